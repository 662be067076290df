package served_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

const (
	// vetoOfAcme has a rule that no answer depends on.
	vetoOfAcme = "package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n\ndeny[c.id] contains \"not on acme's watch\" if {\n\tsome c in input.candidate_tools\n\tc.tool == \"work\"\n}\n\nforgotten := 7\n"

	// mildVeto is a proposal in its place.
	mildVeto = "package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n\ndeny[c.id] contains \"not at all\" if {\n\tsome c in input.candidate_tools\n\tc.tool == \"rest\"\n}\n"
)

// An author checks and evaluates the policies of the tenant where they are served, with candidates too. The values of the operator's rules are the operator's.
func TestPoliciesAreCheckedAndEvaluatedWhereTheyAreServed(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	rig.WriteFile(t, filepath.Join(dir, "tenants/acme/policies/veto.rego"), vetoOfAcme)
	g := rig.Serve(t, dir)
	candidate, err := json.Marshal(map[string]any{"files": []any{map[string]any{"path": "veto.rego", "text": mildVeto}}})
	if err != nil {
		t.Fatal(err)
	}
	files := strings.TrimSuffix(strings.TrimPrefix(string(candidate), "{"), "}")
	const tool = `{"id":"a/work","server":"a","tool":"work"}`
	type check struct {
		Layers   int
		Warnings []struct{ File, Rule, About string }
	}
	for _, tt := range []struct {
		who, query, body string
		status, layers   int
		found            bool // the forgotten rule
	}{
		{"author", "", `{}`, 200, 1, true},
		{"author", "", `{` + files + `}`, 200, 1, false},
		{"author", "", `{"files":[{"path":"../x.rego","text":""}]}`, 400, 0, false},
		{"author", "", `{"files":[{"path":"veto.rego","text":"package switchboard.tenant\n\nallow if {"}]}`, 422, 0, false},
		{"author", "?tenant=umbrella", `{}`, 404, 0, false},
		{"operator", "", `{}`, 200, 2, true},
		{"operator", "?tenant=acme", `{}`, 200, 1, true},
		{"operator", "?tenant=umbrella", `{}`, 200, 0, false},
		{"operator", "", `{` + files + `}`, 400, 0, false},
	} {
		a := g.AskAdmin(t, keys[tt.who], "POST", "/v1/policies/check"+tt.query, tt.body)
		var got check
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != tt.status || got.Layers != tt.layers {
			t.Errorf("%s%s checks %.60s: %d %s", tt.who, tt.query, tt.body, a.Status, a.Body)
		}
		found := false
		for _, w := range got.Warnings {
			found = found || w.About == "unreached" && w.File == "tenants/acme/policies/veto.rego" && strings.HasSuffix(w.Rule, "forgotten")
		}
		if found != tt.found || strings.Contains(a.Body, dir) {
			t.Errorf("%s%s checks %.60s and finds %s", tt.who, tt.query, tt.body, a.Body)
		}
	}
	type evaluation struct {
		Evaluation struct {
			Candidates []struct {
				ID      string
				Allowed bool
				Why     string
			}
			Layers []struct {
				Layer string
				Rules []struct{ Rule string }
			}
		}
	}
	input := `"input":{"candidate_tools":[` + tool + `]}`
	for _, tt := range []struct {
		who, query, body string
		status           int
		allowed          bool
		operators        bool // the values of the operator's rules
	}{
		{"author", "", `{` + input + `}`, 200, false, false},
		{"author", "", `{` + input + `,` + files + `}`, 200, true, false},
		{"operator", "?tenant=acme", `{` + input + `}`, 200, false, true},
		{"operator", "", `{"input":{"tenant_id":"acme","candidate_tools":[` + tool + `]}}`, 200, false, true},
		{"operator", "", `{` + input + `}`, 400, false, false},
		{"author", "", `{"input":{"tenant_id":"umbrella"}}`, 400, false, false},
		{"author", "", `{"input":{"candidates":[]}}`, 400, false, false},
		{"author", "", `{"input":{"candidate_tools":[{"id":"nothing"}]}}`, 400, false, false},
	} {
		a := g.AskAdmin(t, keys[tt.who], "POST", "/v1/policies/eval"+tt.query, tt.body)
		var got evaluation
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != tt.status {
			t.Errorf("%s%s evaluates %.90s: %d %s", tt.who, tt.query, tt.body, a.Status, a.Body)
		}
		if a.Status != http.StatusOK {
			continue
		}
		e := got.Evaluation
		if len(e.Candidates) != 1 || e.Candidates[0].ID != "a/work" || e.Candidates[0].Allowed != tt.allowed || len(e.Layers) != 2 {
			t.Fatalf("%s%s evaluates %.90s: %s", tt.who, tt.query, tt.body, a.Body)
		}
		if operators, own := len(e.Layers[0].Rules) > 0, len(e.Layers[1].Rules); operators != tt.operators || own == 0 || strings.Contains(a.Body, dir) {
			t.Errorf("%s%s evaluates %.90s and sees %s", tt.who, tt.query, tt.body, a.Body)
		}
	}
	t.Run("by the commands", func(t *testing.T) {
		elsewhere := t.TempDir()
		asked := filepath.Join(elsewhere, "asked.json")
		rig.WriteFile(t, asked, `{"candidate_tools":[`+tool+`]}`)
		for _, tt := range []struct {
			who, want string
			code      int
			args      []string
		}{
			{"author", "tenants/acme/policies/veto.rego:10:1: ", 1, []string{"policy", "check"}},
			{"author", "1 layer: ", 1, []string{"policy", "check", "--tenant", "acme"}},
			{"operator", "2 layers: ", 1, []string{"policy", "check"}},
			{"viewer", "SB-AUTH-002", 1, []string{"policy", "check"}},
			{"author", "a/work: denied: SB-POL-001: the tenant's policy denies it: not on acme's watch", 1, []string{"policy", "eval", "--tenant", "acme", "--input", asked}},
			{"author", "  tenants/acme/policies/veto.rego:10  switchboard.tenant.forgotten      7\n", 1, []string{"policy", "eval", "--tenant", "acme", "--input", asked}},
			{"other admin", "no tenant", 2, []string{"policy", "eval", "--tenant", "acme", "--input", asked}},
		} {
			out, errs, code := rig.CommandAs(t, elsewhere, keys[tt.who], append(tt.args, "--url", g.AdminURL())...)
			if code != tt.code || !strings.Contains(out+errs, tt.want) {
				t.Errorf("%q as %s: exit %d\n%s%s", tt.args, tt.who, code, out, errs)
			}
		}
	})
}
