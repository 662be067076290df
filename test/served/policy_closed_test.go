package served_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// failures are layers of tenants that fail while COND holds, and their codes. A
// panic is a unit test's: nothing that can be written makes one.
var failures = map[string]struct{ rego, code string }{
	"runtime-error":      {rig.AllowAll + `deny["x/y"] contains "n" if { COND; {k: v | some k in ["a"]; some v in [1, 2]}.a == 3 }`, "SB-POL-002"},
	"builtin-error":      {rig.AllowAll + `deny["x/y"] contains "n" if { COND; time.parse_rfc3339_ns(input.tenant_id) > 0 }`, "SB-POL-002"},
	"undefined":          {`allowed_tools := {c.id | some c in input.candidate_tools} if not cond` + "\ncond if COND", "SB-POL-001"},
	"wrong-type":         {`allowed_tools := {c.id | some c in input.candidate_tools} if not cond` + "\nallowed_tools := true if COND\ncond if COND", "SB-POL-002"},
	"conflict":           {rig.AllowAll + `deny["x/y"] contains "n" if y == 3` + "\ny := 1 if input.tenant_id\ny := 2 if COND", "SB-POL-002"},
	"unknown-id":         {`allowed_tools contains c.id if { not cond; some c in input.candidate_tools }` + "\nallowed_tools contains \"no/such\"\ncond if COND", "SB-POL-001"},
	"unknown-obligation": {rig.AllowAll + `obligations[c.id] contains {"type": "pray"} if { COND; some c in input.candidate_tools }`, "SB-POL-003"},
	"empty-folder":       {"", "SB-POL-001"},
	"loop":               {rig.AllowAll + `deny["x/y"] contains "n" if { COND; count([1 | some i in numbers.range(1, 9999); some j in numbers.range(1, 9999); i + j == 0]) > 0 }`, "SB-POL-002"},
	"regex": {
		rig.AllowAll + `deny["x/y"] contains "n" if { COND; regex.match("^((((a?){10}){10}){9})*b$", concat("", ["a" | some _ in numbers.range(1, 100000)])) }`,
		"SB-POL-002",
	},
}

// slow are those that take their second.
func slow(way string) bool { return way == "loop" }

// saysOf reports whether a line of a log says something of a tenant.
func saysOf(log, tenant, what string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "tenant="+tenant+" ") && strings.Contains(line, what) {
			return true
		}
	}
	return false
}

// PO-05, PO-06: whatever goes wrong in a layer denies, in a list, a call, an
// explanation, and where an earlier decision allowed the call.
func TestPO05_WhateverFailsDeniesWithItsCode(t *testing.T) {
	t.Parallel() // it waits for what takes too long
	var quick []string
	for way := range failures {
		if !slow(way) {
			quick = append(quick, way)
		}
	}
	t.Run("quick", func(t *testing.T) { failing(t, quick) })
	for way := range failures {
		if slow(way) { // what goes on after its second keeps only its own process busy
			t.Run(way, func(t *testing.T) { failing(t, []string{way}) })
		}
	}
}

// failing has a tenant fail in each of these ways.
func failing(t *testing.T, ways []string) {
	marks := filepath.Join(t.TempDir(), "marks")
	tenants := map[string]rig.TenantConfig{}
	for _, way := range ways {
		tenants[way] = rig.TenantConfig{Rego: rig.AllowAll}
	}
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "one"))+"\nTENANTS\n", "", tenants)
	open := map[string]map[string]rig.Session{} // by way and era
	for _, way := range ways {
		open[way] = map[string]rig.Session{"modern": h.OpenAs(way, true)}
		if !slow(way) { // one is enough of what keeps the machine busy
			open[way]["legacy"] = h.OpenAs(way, false)
		}
		for era, s := range open[way] {
			if got := rig.Call(t, s, "one", `{}`); got != "" {
				t.Fatalf("%s, %s: while all is well: %s", way, era, got)
			}
		}
	}
	put := func(cond string) {
		for _, way := range ways {
			f, file := failures[way], filepath.Join(h.Dir, "tenants", way, "policies/own.rego")
			if f.rego == "" {
				if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				continue
			}
			rig.WriteFile(t, file, "package switchboard.tenant\n"+strings.ReplaceAll(f.rego, "COND", cond)+"\n")
		}
		h.Reload(t)
		if h.Reloads(rig.ReloadRefused) > 0 {
			t.Fatal("a layer does not compile")
		}
	}

	each := func(f func(way, code string)) {
		var work sync.WaitGroup
		for _, way := range ways {
			work.Go(func() { f(way, failures[way].code) })
		}
		work.Wait()
	}

	put("true")
	if err := os.Truncate(marks, 0); err != nil {
		t.Fatal(err)
	}
	each(func(way, code string) {
		clients := maps.Clone(open[way])
		if !slow(way) {
			pipe := rig.Stdio(t, h.Dir, true, "--tenant", way)
			m := pipe.Send(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
			if got := rig.Code(m); got != code {
				t.Errorf("%s: initialize over stdio: %s", way, m.Raw)
			}
			clients["modern, over stdio"] = pipe
		}
		for era, s := range clients {
			if m, _ := s.Ask(t, "tools/list", ""); rig.Code(m) != code {
				t.Errorf("%s, %s: tools/list: %s, want %s", way, era, m.Raw, code)
			}
			if got := rig.Call(t, s, "one", `{}`); got != code {
				t.Errorf("%s, %s: a call, after others were allowed: %s, want %s", way, era, got, code)
			}
		}
		var x struct {
			Tools   []any
			Refused string
		}
		if text := h.Explain(t, way, "", ""); json.Unmarshal([]byte(text), &x) != nil || len(x.Tools) > 0 || x.Refused == "" {
			t.Errorf("%s: explain: %s", way, text)
		}
		if warned := saysOf(h.Logged(), way, "level=WARN msg=refused code="+code+" "); warned != (code == "SB-POL-002") {
			t.Errorf("%s: that it was refused with %s is a warning: %v", way, code, warned)
		}
		if slow(way) {
			if !saysOf(h.Logged(), way, "it took longer than it may") {
				t.Errorf("%s: the log does not say why", way)
			}
			return
		}
		if out, errs, exit := rig.Command(t, h.Dir, "explain", "--tenant", way); exit != 1 || !strings.Contains(out, code) {
			t.Errorf("%s: explain, to the operator: exit %d, want %s\n%s%s", way, exit, code, out, errs)
		}
	})

	// The same where only a call fails: what is listed may then be refused.
	put(`input.phase == "call"`)
	each(func(way, code string) {
		if way == "empty-folder" {
			return
		}
		for era, s := range open[way] {
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one"}) {
				t.Errorf("%s, %s: it lists %q", way, era, got)
			}
			if got := rig.Call(t, s, "one", `{}`); got != code {
				t.Errorf("%s, %s: a call that fails: %s, want %s", way, era, got, code)
			}
		}
		if x := h.Explain(t, way, "", ""); !strings.Contains(x, `"name":"one"`) {
			t.Errorf("%s: explain: %s", way, x)
		}
	})
	if got := rig.ReadFile(t, marks); got != "" {
		t.Errorf("calls were made: %q", got)
	}
	put("false")
	for _, way := range ways {
		if got := rig.Call(t, open[way]["modern"], "one", `{}`); failures[way].rego != "" && got != "" {
			t.Errorf("%s: when all is well again: %s", way, got)
		}
	}
}

// PO-05, PO-08: what does not compile, or reaches out, is never run.
func TestPO08_WhatDoesNotCompileDoesNotStartAndIsNotReloaded(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))))
	file := filepath.Join(dir, "tenants/default/policies/own.rego")
	const good = "package switchboard.tenant\n" + rig.AllowAll
	rig.WriteFile(t, file, good)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	if got := rig.Call(t, s, "one", `{}`); got != "" {
		t.Fatal(got)
	}
	policies := g.Status().Policies
	for text, says := range map[string]string{
		good + "x := ": "rego_parse_error",
		good + `deny["a/one"] contains "x" if http.send({"method": "get", "url": "http://127.0.0.1:1"}).status_code == 200`: "undefined function http.send",
		good + `deny["a/one"] contains "x" if opa.runtime().env.HOME != ""`:                                                 "undefined function opa.runtime",
		good + `deny["a/one"] contains "x" if net.lookup_ip_addr("example.com") != set()`:                                   "undefined function net.lookup_ip_addr",
		good + `deny["a/one"] contains "x" if input.user_teir == "free"`:                                                    "undefined ref: input.user_teir",
		"package switchboard\n" + rig.AllowAll:                                                                              "write package switchboard.tenant",
	} {
		rig.WriteFile(t, file, text)
		g.Reload(t)
		st := g.Status()
		if len(st.Faulty) != 1 || st.Faulty[0].Part != "tenant default" || !strings.Contains(strings.Join(st.Faulty[0].Faults, "\n"), says) ||
			!strings.Contains(st.Faulty[0].Faults[0], "own.rego:") || !slices.Equal(st.Policies, policies) {
			t.Errorf("%s: status %+v, want %q", text, st, says)
		}
		if got := rig.Call(t, s, "one", `{}`); got != "" {
			t.Errorf("%s: under the last good policy: %s", text, got)
		}
		out, errs, code := rig.Command(t, dir, "serve", "--listen", "127.0.0.1:0")
		if code != 2 || !strings.Contains(errs, says) || out != "" {
			t.Errorf("%s: a start: exit %d\n%s%s", text, code, out, errs)
		}
	}
}

// A layer may fail for one requirement only. Then its tools are refused for that reason, not as gone, and they are back as soon as the layer works.
func TestAToolThatPolicyCannotJudgeIsRefusedForThatReason(t *testing.T) {
	const task = "task_id: all\nrequired_capabilities:\n  - {tools: [a/*]}\n  - {tools: [b/*], optional: true}\n"
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))+"\n  "+rig.FakeRow("b", fmt.Sprintf(rig.Tool, "two"))+
		"\nTENANTS\n-- tenants/x/tasks/all.yaml --\n"+task, "", map[string]rig.TenantConfig{"x": {Rego: rig.AllowAll}})
	put := func(rego string) {
		rig.WriteFile(t, filepath.Join(h.Dir, "tenants/x/policies/own.rego"), "package switchboard.tenant\n"+rego)
		h.Reload(t)
	}
	for _, modern := range []bool{false, true} {
		put(rig.AllowAll)
		s := h.OpenAs("x", modern)
		if got := rig.ListNames(t, s); !slices.Contains(got, "two") {
			t.Fatalf("modern %t: while all is well: %q", modern, got)
		}
		put(rig.AllowAll + "deny[\"x/y\"] contains \"n\" if n == 3\nn := 1 if input.tenant_id\nn := 2 if \"b/two\" in {c.id | some c in input.candidate_tools}\n")
		if got := rig.ListNames(t, s); !slices.Contains(got, "one") || slices.Contains(got, "two") {
			t.Errorf("modern %t: while the layer fails for b/two: %q", modern, got)
		}
		if got := rig.Call(t, s, "one", `{}`); got != "" {
			t.Errorf("modern %t: a tool that policy allows: %s", modern, got)
		}
		if got := rig.Call(t, s, "two", `{}`); got != "SB-POL-002" {
			t.Errorf("modern %t: a tool that policy cannot judge: %s", modern, got)
		}
		put(rig.AllowAll)
		if got := rig.Call(t, s, "two", `{}`); got != "" {
			t.Errorf("modern %t: when the layer works again: %s", modern, got)
		}
	}
}
