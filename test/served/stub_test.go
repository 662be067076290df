package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// Twelve ways in which models get a stub wrong. Each is served, or is answered with what to
// write, and with that the second attempt is right.
func TestFirstMinutes7WhatModelsGetWrongIsServedOrSaidInOneSentence(t *testing.T) {
	t.Parallel()
	const right = `{"bucket":"reports","key":"2026/q3/incidents.csv"}`
	rig.EachSession(t, rig.LayOut(t, lazily(8000, "")), func(t *testing.T, name string, s rig.Session) {
		for _, tt := range []struct {
			wrong, args string
			told        bool // it is not served
		}{
			{"flat arguments", `{"action":"call","tool":"s3_get_object","bucket":"reports","key":"2026/q3/incidents.csv"}`, false},
			{"arguments as text", `{"action":"call","tool":"s3_get_object","arguments":"{\"bucket\":\"reports\",\"key\":\"2026/q3/incidents.csv\"}"}`, false},
			{"no action", `{"tool":"s3_get_object","arguments":` + right + `}`, false},
			{"the tool as action", `{"action":"s3_get_object","arguments":` + right + `}`, false},
			{"an action in capitals", `{"action":"CALL","tool":"s3_get_object","arguments":` + right + `}`, false},
			{"params for arguments", `{"action":"call","tool":"s3_get_object","params":` + right + `}`, false},
			{"tools for tool", `{"action":"call","tools":["s3_get_object"],"arguments":` + right + `}`, false},
			{"another action", `{"action":"invoke","tool":"s3_get_object","arguments":` + right + `}`, true},
			{"a guessed name", `{"action":"call","tool":"get_s3_object","arguments":` + right + `}`, true},
			{"a name in capitals", `{"action":"call","tool":"S3_Get_Object","arguments":` + right + `}`, true},
			{"a name with a prefix", `{"action":"call","tool":"mcp__aws__s3_get_object","arguments":` + right + `}`, true},
			{"no tool", `{"action":"call","arguments":` + right + `}`, true},
			{"arguments in two places", `{"action":"call","tool":"s3_get_object","arguments":{"bucket":"reports"},"key":"2026/q3/incidents.csv"}`, true},
		} {
			text, code := helper(t, s, tt.args)
			if !tt.told {
				if code != "" || strings.Contains(text, "NoSuchKey") {
					t.Errorf("%s: %s: %s %s", name, tt.wrong, code, text)
				}
				continue
			}
			// A model that knows nothing else writes what it is told to.
			example := text[max(0, strings.LastIndex(text, `{"action"`)):]
			example, _, _ = strings.Cut(example, "}")
			example = strings.NewReplacer("NAME", "s3_get_object", `"arguments":{`, `"arguments":`+right).Replace(example) + "}"
			if strings.Contains(example, `"search"`) { // it was told how to find the name
				found, _ := helper(t, s, `{"action":"search","query":"get an s3 object"}`)
				if !strings.Contains(found, "- s3_get_object (") {
					t.Errorf("%s: %s: it is told %s, and finds %s", name, tt.wrong, text, found)
				}
				continue
			}
			if !json.Valid([]byte(example)) {
				t.Errorf("%s: %s: it is told %s", name, tt.wrong, text)
				continue
			}
			if again, code := helper(t, s, example); code != "" || strings.Contains(again, "NoSuchKey") {
				t.Errorf("%s: %s: it is told %s\nand with %s it gets %s %s", name, tt.wrong, text, example, code, again)
			}
		}
	})
}

// A member that policy has taken away is not called through its stub either, where another server's tool has its name now: the client
// was shown no definition of that one.
func TestNames8AStubCallsNoOtherToolThanTheOneThatWasShown(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	put := func(argument string) string {
		return fmt.Sprintf(`{"name":"put","inputSchema":{"type":"object","properties":{%q:{"type":"string"}}},"_meta":{"x-summit-capabilities":[{"verb":"write","resource":"fs"}]}}`, argument)
	}
	marks := filepath.Join(t.TempDir(), "marks")
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", put("path")), rig.FakeRow("b", "marks="+marks, put("victim"))))
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), "tenant: default\ndefault_task: lazy\nranking: {adjust: [{server: a, by: 20}]}\n")
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/lazy.yaml"), "task_id: lazy\nrequired_capabilities:\n  - {verb: write, resource: fs, load: on_demand, group: files}\n")
	allow := "package switchboard\n" + rig.AllowAll
	rig.WriteFile(t, filepath.Join(dir, "policies/p.rego"), allow)
	g := rig.Serve(t, dir)
	var clients []rig.Session
	stub := func(s rig.Session, arguments string) rig.Message {
		m, _ := s.Ask(t, "tools/call", `{"name":"files_helper","arguments":`+arguments+`}`)
		return m
	}
	const call = `{"action":"call","tool":"put","arguments":{"path":"x"}}`
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		rig.ListNames(t, s)
		for _, arguments := range []string{`{"action":"expand","tools":["put"]}`, `{"action":"collapse","tools":["put"]}`, call} {
			if m := stub(s, arguments); rig.Code(m) != "" {
				t.Fatalf("%s: %s", arguments, m.Raw)
			}
		}
		clients = append(clients, s)
	}
	rig.WriteFile(t, filepath.Join(dir, "policies/p.rego"), allow+"deny[c.id] contains \"no\" if {\n\tsome c in input.candidate_tools\n\tc.server == \"a\"\n}\n")
	for _, s := range clients {
		rig.Eventually(t, "a/put is taken away", func() string {
			m := stub(s, call)
			return rig.ReasonUnless(strings.Contains(string(m.Raw), "Unknown tool"), string(m.Raw))
		})
		if m := stub(s, `{"action":"expand","tools":["put"]}`); !strings.Contains(string(m.Raw), "victim") {
			t.Errorf("what has the name now is not shown: %s", m.Raw)
		}
		if m := stub(s, `{"action":"call","tool":"put","arguments":{"victim":"x"}}`); rig.Code(m) != "" {
			t.Errorf("once it was shown: %s", m.Raw)
		}
	}
	if n := strings.Count(rig.ReadFile(t, marks), "put"); n != len(clients) {
		t.Errorf("b/put was called %d times, want once for each client that was shown it", n)
	}
}
