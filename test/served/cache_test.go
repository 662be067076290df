package served_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

func TestResultsOfDeterministicToolsAreGivenAgain(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir := t.TempDir()
	marks, release := filepath.Join(dir, "marks"), filepath.Join(dir, "release")
	// Of so many places in the cache hardly two results fall on one.
	archive := "-- switchboard.yaml --\napprovals: {wait: 1s}\ncache: {ttl: 10m, bytes: 1GiB}\nservers:\n  " +
		strings.Replace(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "get"), fmt.Sprintf(rig.Tool, "post")), "{", "{share: tenant, ", 1) + "\n  " +
		rig.FakeRow("own", "marks="+marks, fmt.Sprintf(rig.Tool, "mine")) + "\nTENANTS\n" +
		"-- overlays/a.yaml --\nserver: a\ntools:\n  get: {deterministic: true}\n" +
		"-- overlays/own.yaml --\nserver: own\ntools:\n  mine: {deterministic: true}\n"
	h := rig.ServeTenants(t, archive, "", map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll}, "other": {Rego: rig.AllowAll}})
	legacy, modern, other := h.OpenAs("acme", false), h.OpenAs("acme", true), h.OpenAs("other", true)
	executed := 0
	check := func(what string, s rig.Session, tool, arguments string, fresh bool) {
		t.Helper()
		if fresh {
			executed++
		}
		m := callWith(t, s, fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
		if given := strings.Contains(string(m.Result), `"io.switchboard/given":{"from":"cache","first":"20`); rig.Code(m) != "" || given == fresh {
			t.Errorf("%s: %s", what, m.Raw)
		}
		if n := lines(t, marks); n != executed {
			t.Fatalf("%s: executed %d times, want %d", what, n, executed)
		}
	}
	check("the first", modern, "get", `{"a":1}`, true)
	check("again", modern, "get", `{ "a": 1 }`, false)
	check("in the other era", legacy, "get", `{"a":1}`, false)
	check("with other arguments", modern, "get", `{"a":1.0}`, true)
	check("another tenant", other, "get", `{"a":1}`, true)
	check("which has its own", other, "get", `{"a":1}`, false)
	check("a tool that does something", modern, "post", `{"a":1}`, true)
	check("each time", modern, "post", `{"a":1}`, true)
	check("a process of the principal's", modern, "mine", `{}`, true)
	check("for itself", modern, "mine", `{}`, false)
	for range 2 {
		executed++
		if m := callWith(t, modern, `{"name":"get","arguments":{"do":"result","bytes":"{\"isError\":true}"}}`); !strings.Contains(string(m.Result), "isError") || strings.Contains(string(m.Result), "given") {
			t.Errorf("an error: %s", m.Raw)
		}
	}

	var asking sync.WaitGroup
	for i := range 20 {
		s := h.OpenAs("acme", i%2 == 0)
		asking.Go(func() {
			if m := callWith(t, s, fmt.Sprintf(`{"name":"get","arguments":{"do":"await","until":%q}}`, release)); rig.Code(m) != "" {
				t.Errorf("%d: %s", i, m.Raw)
			}
		})
	}
	executed++
	rig.Eventually(t, "the call is under way", func() string {
		if lines(t, marks) < executed {
			return "not yet"
		}
		return ""
	})
	rig.WriteFile(t, release, "")
	asking.Wait()
	if n := lines(t, marks); n != executed {
		t.Errorf("twenty who asked for the same: executed %d times, want %d", n, executed)
	}

	layer := filepath.Join(h.Dir, "tenants/acme/policies/own.rego")
	was := rig.ReadFile(t, layer)
	for rule, want := range map[string]string{
		"\ndeny[\"a/get\"] contains \"no\"\n":                                                           "SB-CAP-001",
		"\ndeny[\"a/get\"] contains \"no\" if input.call.arguments.a == 1\n":                            "SB-POL-001",
		"\nobligations[\"a/get\"] contains {\"type\": \"require_approval\", \"who\": [\"oncall\"]}\n":   "SB-APPR-001",
		"\nobligations[\"a/get\"] contains {\"type\": \"redact\", \"fields\": [\"/content/0/text\"]}\n": "[redacted]",
	} {
		rig.ReplaceFile(t, layer, was+rule)
		h.Reload(t)
		if m := callWith(t, modern, `{"name":"get","arguments":{"a":1}}`); !strings.Contains(string(m.Raw), want) || strings.Contains(string(m.Raw), `{\"a\":1}`) {
			t.Errorf("%s%s", rule, m.Raw)
		}
	}
	if n := lines(t, marks); n != executed {
		t.Errorf("executed %d times, want %d", n, executed)
	}
}
