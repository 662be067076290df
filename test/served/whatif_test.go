package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/whatif"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// denies is a layer of acme that denies everything; permits, nothing.
const (
	denies  = "package switchboard.tenant\n\nallowed_tools contains c.id if {\n\tsome c in input.candidate_tools\n\tc.id == \"none\"\n}\n"
	permits = "package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n"
)

// recordDecisions lets alice bind the task of acme, so that there are decisions to compare.
func recordDecisions(t *testing.T, g *rig.Gateway, dir string, keys officers) {
	t.Helper()
	s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	if code := rig.Call(t, s, "work", `{}`); code != "" {
		t.Fatalf("the call is refused with %s", code)
	}
	rig.Eventually(t, "the decision is recorded", func() string {
		if out, _, _ := rig.Command(t, dir, "receipts", "list", "--kind", "decision", "--json"); !strings.Contains(out, `"acme"`) {
			return out
		}
		return ""
	})
}

// compare starts a comparison, waits for its end, and returns it.
func compare(t *testing.T, g *rig.Gateway, key, query, body string) (c whatif.Comparison) {
	t.Helper()
	a := g.AskAdmin(t, key, http.MethodPost, "/v1/comparisons"+query, body)
	if a.Status != http.StatusAccepted || !strings.HasPrefix(a.Header.Get("Location"), "/v1/comparisons/") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	at := a.Header.Get("Location")
	rig.Eventually(t, "the comparison is over", func() string {
		a = g.AskAdmin(t, key, http.MethodGet, at, "")
		c = whatif.Comparison{}
		if err := json.Unmarshal([]byte(a.Body), &c); err != nil || c.State == whatif.Running {
			return a.Body
		}
		return ""
	})
	return c
}

// What would last week's decisions have been? The dry run says it, a comparison says it with its progress, and neither changes anything.
func TestRecordedDecisionsAreComparedWithThoseUnderAnotherFile(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	recordDecisions(t, g, dir, keys)

	body, err := json.Marshal(map[string]string{"path": "tenants/acme/policies/closed.rego", "text": denies})
	if err != nil {
		t.Fatal(err)
	}
	c := compare(t, g, keys["author"], "", string(body))
	if c.State != whatif.Done || c.By != "art" || c.Tenant != "acme" || c.Result == nil || c.Result.Changed == 0 || len(c.Result.Broken) > 0 || c.Looked != c.Of || c.Of == 0 {
		t.Errorf("%+v %+v", c, c.Result)
	}
	if c = compare(t, g, keys["viewer"], "", "{}"); c.State != whatif.Done || c.Result.Decisions == 0 || c.Result.Changed != 0 || len(c.Result.Broken) > 0 {
		t.Errorf("made again as they were: %+v %+v", c, c.Result)
	}
	for _, tt := range []struct {
		who, query, path, text string
		want                   int
	}{
		{"viewer", "", "tenants/acme/policies/closed.rego", denies, 403},
		{"other admin", "", "tenants/acme/policies/closed.rego", denies, 404},
		{"author", "", "switchboard.yaml", "{}", 404},
		{"author", "?tenant=umbrella", "tenants/acme/policies/closed.rego", denies, 404},
		{"author", "", "tenants/acme/policies/closed.rego", "package switchboard.tenant\n\nallowed_tools contains", 422},
		{"author", "", "../passwd", "x", 404},
		{"agent", "", "tenants/acme/policies/closed.rego", denies, 401},
	} {
		body, err := json.Marshal(map[string]string{"path": tt.path, "text": tt.text})
		if err != nil {
			t.Fatal(err)
		}
		if a := g.AskAdmin(t, keys[tt.who], http.MethodPost, "/v1/comparisons"+tt.query, string(body)); a.Status != tt.want {
			t.Errorf("%s with %s: %d, want %d: %s", tt.who, tt.path, a.Status, tt.want, a.Body)
		}
	}
	if a := g.AskAdmin(t, keys["other admin"], http.MethodGet, "/v1/comparisons", ""); !strings.Contains(a.Body, `"comparisons":[]`) {
		t.Errorf("an admin of another tenant sees %s", a.Body)
	}

	// The commands.
	for name, text := range map[string]string{"denies.rego": denies, "permits.rego": permits} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.Do(1, `(?s)1 would change.*Newly denied|(?s)would change.*Tasks that could not start`, "config", "compare", "tenants/acme/policies/closed.rego", "denies.rego")
	g.Do(0, "nothing would change", "config", "compare", "tenants/acme/policies/closed.rego", "permits.rego")
	g.Do(0, `tenants/acme/policies/closed.rego +done`, "config", "comparisons")
	g.Do(0, "(?s)It would change.*Of the recorded decisions: .*would change", "config", "put", "tenants/acme/policies/closed.rego", "denies.rego", "--new", "--dry-run")
	if _, err := os.Stat(dir + "/tenants/acme/policies"); !os.IsNotExist(err) {
		t.Errorf("a file was written: %v", err)
	}
	if code := rig.Call(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]), "work", `{}`); code != "" {
		t.Errorf("the calls are refused with %s", code)
	}
}

func TestPoliciesAreListedAndTheirTestsRunThroughTheAPI(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	for name, text := range map[string]string{
		"closed.rego":      permits,
		"closed_test.rego": "package switchboard.tenant_test\n\nimport data.switchboard.tenant\n\ntest_open if tenant.allowed_tools == {\"a/work\"} with input as {\"candidate_tools\": [{\"id\": \"a/work\"}]}\n",
	} {
		if err := os.MkdirAll(dir+"/tenants/acme/policies", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/tenants/acme/policies/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := rig.Serve(t, dir)
	a := g.AskAdmin(t, keys["viewer"], http.MethodGet, "/v1/policies", "")
	if a.Status != 200 || strings.Count(a.Body, `"layer"`) != 1 || !strings.Contains(a.Body, `"path":"closed_test.rego"`) || !strings.Contains(a.Body, `"test":true`) {
		t.Errorf("a viewer sees %d %s", a.Status, a.Body)
	}
	g.Do(0, `(?s)policies \(shipped\).*tenants/acme/policies\n  closed.rego  sha256:`, "policy", "list")
	test := func(who, files string) (status int, r author.TestReport) {
		t.Helper()
		a := g.AskAdmin(t, keys[who], http.MethodPost, "/v1/policies/test?tenant=acme", fmt.Sprintf(`{"files":%s}`, files))
		_ = json.Unmarshal([]byte(a.Body), &r)
		return a.Status, r
	}
	if status, r := test("author", "{}"); status != 200 || r.Count(author.Passed) != 1 || len(r.Tests) != 1 {
		t.Errorf("%d %+v", status, r)
	}
	candidate, err := json.Marshal(map[string]string{"closed.rego": denies})
	if err != nil {
		t.Fatal(err)
	}
	if status, r := test("author", string(candidate)); status != 200 || r.Count(author.Failed) != 1 {
		t.Errorf("with a candidate: %d %+v", status, r)
	}
	for files, want := range map[string]int{`{"closed.rego":"package"}`: 422, `{"../x.rego":"package x"}`: 400, `{"closed.rego":7}`: 400} {
		if status, _ := test("author", files); status != want {
			t.Errorf("%s: %d, want %d", files, status, want)
		}
	}
	if status, _ := test("viewer", "{}"); status != 403 {
		t.Errorf("a viewer: %d", status)
	}
	if status, r := test("author", "{}"); status != 200 || r.Count(author.Passed) != 1 {
		t.Errorf("a candidate stays: %d %+v", status, r)
	}
}
