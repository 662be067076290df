package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// everyClient are clients of both eras over HTTP, and one over stdio.
func everyClient(t *testing.T, g *rig.Gateway) map[string]rig.Session {
	t.Helper()
	return map[string]rig.Session{"http, legacy": g.Open(t, "/mcp", false), "http, modern": g.Open(t, "/mcp", true), "stdio, legacy": rig.Stdio(t, g.Dir, false)}
}

// Number 9: allowed_tools may be an array. What is wrong with an answer for certain is a fault before anybody calls.
func TestNames9AnArrayOfAllowedToolsAllows(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"), fmt.Sprintf(rig.Tool, "two"))))
	file := filepath.Join(dir, "tenants/default/policies/p.rego")
	rig.WriteFile(t, file, "package switchboard.tenant\nallowed_tools := [c.id | some c in input.candidate_tools; c.tool == \"one\"]\n")
	if out, errs, code := rig.Command(t, dir, "validate"); code != 0 {
		t.Fatalf("validate: exit %d\n%s%s", code, out, errs)
	}
	g := rig.Serve(t, dir)
	for who, s := range everyClient(t, g) {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one"}) {
			t.Errorf("%s: it lists %q", who, got)
		}
		if got := rig.Call(t, s, "one", `{}`); got != "" {
			t.Errorf("%s: a call gives %s", who, got)
		}
	}
	for rules, says := range map[string]string{
		"allowed_tools := 3\n":                                     "own.rego",
		"allowed_tools := {\"a/one\": true}\n":                     "own.rego",
		rig.AllowAll + "deny := [\"a/one\"]\n":                     "own.rego",
		"deny[\"a/one\"] contains \"no\" if input.mode == \"x\"\n": "allowed_tools",
	} {
		other := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))))
		rig.WriteFile(t, filepath.Join(other, "tenants/default/policies/own.rego"), "package switchboard.tenant\n"+rules)
		if out, errs, code := rig.Command(t, other, "validate"); code != 2 || !strings.Contains(errs, says) {
			t.Errorf("%s: validate: exit %d\n%s%s", rules, code, out, errs)
		}
	}
}

// Number 10: a block that says what a tool can do is read wherever it can mean one tool only; else explain names it.
func TestNames10ABlockCountsWhereverItStands(t *testing.T) {
	t.Parallel()
	const can = `[{"verb":"read","resource":"fs"}]`
	plain := fmt.Sprintf(rig.Tool, "one")
	for name, tt := range map[string]struct {
		args  []string
		fault string // that explain names; "" where the block counts
	}{
		"a map in capabilities":                {[]string{`block="x-summit-capabilities":{"one":` + can + `}`, plain}, ""},
		"a list in capabilities, of one tool":  {[]string{`block="x-summit-capabilities":` + can, plain}, ""},
		"beside capabilities":                  {[]string{`beside="x-summit-capabilities":{"one":` + can + `}`, plain}, ""},
		"in annotations":                       {[]string{`{"name":"one","inputSchema":{"type":"object"},"annotations":{"x-summit-capabilities":` + can + `}}`}, ""},
		"a list in capabilities, of two tools": {[]string{`block="x-summit-capabilities":` + can, plain, fmt.Sprintf(rig.Tool, "two")}, "x-summit-capabilities"},
		"two blocks that say different things": {[]string{
			`{"name":"one","inputSchema":{"type":"object"},"annotations":{"x-summit-capabilities":` + can + `},"_meta":{"x-summit-capabilities":[{"verb":"write","resource":"fs"}]}}`,
		}, "x-summit-capabilities"},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+", "+era+" server", func(t *testing.T) {
				t.Parallel()
				args := tt.args
				if era == "modern" {
					args = append([]string{"modern"}, args...)
				}
				dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", args...)))
				rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/all.yaml"), "task_id: all\nrequired_capabilities: [{verb: read, resource: fs}]\n")
				g := rig.Serve(t, dir)
				if tt.fault != "" {
					out, errs, _ := rig.Command(t, dir, "explain", "--url", g.URL)
					if !strings.Contains(out+errs, tt.fault) {
						t.Errorf("explain does not name the block:\n%s%s", out, errs)
					}
					return
				}
				for who, s := range everyClient(t, g) {
					if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one"}) {
						t.Errorf("%s: it lists %q", who, got)
					}
				}
			})
		}
	}
}

// Number 12: what is most likely a mistake is a warning, and what the clock denies is denied for now.
func TestNames12AClassThatNoServerHasIsAWarning(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one")), strings.Replace(rig.FakeRow("b", fmt.Sprintf(rig.Tool, "two")), "{", "{enabled: false, ", 1)))
	tenant := filepath.Join(dir, "tenants/default/tenant.yaml")
	rig.WriteFile(t, tenant, rig.ReadFile(t, tenant)+"ranking: {classes: [paid_api]}\n")
	out, errs, code := rig.Command(t, dir, "validate")
	if code != 0 || !strings.Contains(errs, `class "paid_api" is used by no server`) {
		t.Errorf("validate: exit %d\n%s%s", code, out, errs)
	}
	g := rig.Serve(t, dir)
	if !strings.Contains(g.Logged(), "level=WARN") || !strings.Contains(g.Logged(), "paid_api") {
		t.Error("the log does not warn")
	}
	for who, s := range everyClient(t, g) {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"one"}) {
			t.Errorf("%s: with b disabled it lists %q", who, got)
		}
	}

	// Denied by the clock: at another hour the same call is made.
	hour := (time.Now().UTC().Hour() + 12) % 24
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/policies/p.rego"), fmt.Sprintf("package switchboard.tenant\n%sdeny[c.id] contains \"not now\" if {\n\tinput.phase == \"call\"\n\tsome c in input.candidate_tools\n\t[hour, _, _] := time.clock(time.parse_rfc3339_ns(input.now))\n\thour != %d\n}\n", rig.AllowAll, hour))
	g.Reload(t)
	for who, s := range everyClient(t, g) {
		m, _ := s.Ask(t, "tools/call", `{"name":"one","arguments":{}}`)
		var data struct{ Retryable string }
		if m.Error != nil {
			_ = json.Unmarshal(m.Error.Data, &data)
		}
		if rig.Code(m) != "SB-POL-001" || data.Retryable != "later" && !strings.Contains(string(m.Raw), `"retryable":"later"`) {
			t.Errorf("%s: what the clock denies: %s", who, m.Raw)
		}
	}
}
