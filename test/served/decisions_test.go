package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// withoutTool returns a tenant's policy that denies the tool for the reason.
func withoutTool(tool, reason string) string {
	return fmt.Sprintf(`package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains %q if {
	some c in input.candidate_tools
	c.tool == %q
}
`, reason, tool)
}

// A decision of yesterday is explained by the rules of yesterday, to the offices of its tenant alone.
func TestARecordedDecisionIsExplainedByTheRulesThatMadeIt(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	main, own := filepath.Join(dir, "switchboard.yaml"), filepath.Join(dir, "tenants/acme/policies/own.rego")
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "servers:\n", "servers:\n  "+strings.ReplaceAll(rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest"), fmt.Sprintf(rig.Tool, "stay")), "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))+"\n", 1))
	rig.WriteFile(t, main, strings.NewReplacer("acme: {", "acme: {tier: [pro, free], ", "umbrella: {", "umbrella: {tier: platinum, ").Replace(rig.ReadFile(t, main)))
	reads := `{capabilities: [{verb: read, resource: fs}]}`
	rig.WriteFile(t, filepath.Join(dir, "overlays/a.yaml"), "server: a\ntools: {work: "+reads+"}\n")
	rig.WriteFile(t, filepath.Join(dir, "overlays/b.yaml"), "server: b\ntools: {rest: "+reads+", stay: "+reads+"}\n")
	rig.WriteFile(t, filepath.Join(dir, "tenants/acme/tasks/all.yaml"), "task_id: all\nrequired_capabilities: [{verb: read, resource: fs, select: tool}]\n")
	rig.WriteFile(t, own, withoutTool("rest", "the old rule")+"\ndeny[c.id] contains \"not for free\" if {\n\tsome c in input.candidate_tools\n\tinput.user_tier == \"free\"\n}\n")
	g := rig.Serve(t, dir)
	client, other := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]), g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"])
	rig.ListNames(t, other)
	if got := rig.ListNames(t, client); !slices.Equal(got, []string{"work"}) {
		t.Fatalf("the client lists %q", got)
	}
	type page struct {
		Decisions []struct {
			ID, Tenant, Task, Outcome, Code string
			Principal                       struct{ ID string }
		}
		Next     string
		Complete bool
	}
	search := func(who, query string) (p page) {
		t.Helper()
		a := g.AskAdmin(t, keys[who], "GET", "/v1/decisions?limit=1"+query, "")
		if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return p
	}
	await := func(query string, n int) (all page) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("there are %d decisions", n), func() string {
			all = page{}
			for next := ""; ; {
				p := search("viewer", query+next)
				all.Decisions = append(all.Decisions, p.Decisions...)
				if p.Complete {
					break
				}
				next = "&after=" + url.QueryEscape(p.Next)
			}
			if len(all.Decisions) != n {
				return fmt.Sprintf("%+v", all)
			}
			return ""
		})
		return all
	}
	first := await("", 1).Decisions[0]
	if first.Tenant != "acme" || first.Task != "all" || first.Outcome != "ok" || first.Principal.ID != "alice" {
		t.Errorf("the decision is %+v", first)
	}
	rig.WriteFile(t, own, withoutTool("work", "the new rule"))
	rig.Eventually(t, "the new rule is in force", func() string {
		if got := rig.ListNames(t, client); !slices.Equal(got, []string{"rest"}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	await("&principal=alice&task=all&outcome=ok", 2)
	await("&outcome=refused", 0)
	await("&principal=bob", 0)
	if p := search("operator", "&principal=bob"); len(p.Decisions) != 1 || p.Decisions[0].Tenant != "umbrella" {
		t.Errorf("of bob the operator finds %+v", p)
	}

	a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions/"+first.ID, "")
	for _, want := range []string{`"tool":"b/rest","stage":"policy"`, "the old rule", `"rule":"deny"`, `"selected":[{"tool":"a/work"`, `"policies":[{"digest":"`} {
		if a.Status != http.StatusOK || !strings.Contains(a.Body, want) {
			t.Errorf("%d, and it lacks %s: %s", a.Status, want, a.Body)
		}
	}
	if strings.Contains(a.Body, "the new rule") {
		t.Errorf("the old decision is explained by the new rule: %s", a.Body)
	}
	var made struct{ Decision string }
	if err := json.Unmarshal([]byte(a.Body), &made); err != nil || made.Decision == "" {
		t.Fatalf("the decision has no digest: %s", a.Body)
	}
	checkRecordedWhatIf(t, g, dir, keys, first.ID)
	if same := search("viewer", "&digest="+made.Decision); len(same.Decisions) != 1 || same.Decisions[0].ID != first.ID {
		t.Errorf("by its digest, it is found as %+v", same)
	}
	if none := search("viewer", "&digest=sha256:"+strings.Repeat("0", 64)); len(none.Decisions) != 0 {
		t.Errorf("another digest finds %+v", none)
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions?digest=x", ""); a.Status != http.StatusBadRequest {
		t.Errorf("what is no digest: %d %s", a.Status, a.Body)
	}
	call := g.AskAdmin(t, keys["operator"], "GET", "/v1/receipts?kind=start", "")
	var started struct{ Receipts []struct{ ID string } }
	if err := json.Unmarshal([]byte(call.Body), &started); err != nil || len(started.Receipts) == 0 {
		t.Fatalf("%s", call.Body)
	}
	for what, a := range map[string]rig.Answer{
		"another tenant's officer": g.AskAdmin(t, keys["other admin"], "GET", "/v1/decisions/"+first.ID, ""),
		"a receipt of a start":     g.AskAdmin(t, keys["operator"], "GET", "/v1/decisions/"+started.Receipts[0].ID, ""),
		"no receipt":               g.AskAdmin(t, keys["operator"], "GET", "/v1/decisions/n1/x", ""),
	} {
		if a.Status != http.StatusNotFound {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions?outcome=tool_error", ""); a.Status != http.StatusBadRequest {
		t.Errorf("an outcome that no decision has: %d %s", a.Status, a.Body)
	}
	if out, errs, code := rig.Command(t, dir, "decisions", "list", "--task", "all", "--tenant", "acme"); code != 0 || strings.Count(out, "alice") != 2 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := rig.Command(t, dir, "decisions", "show", first.ID); code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), "dropped b/rest at policy") || !strings.Contains(out, `says "the old rule"`) || strings.Contains(out, "shown as nothing") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

// checkRecordedWhatIf asks what if the recorded decision, which gave a/work and whose rule dropped b/rest, had been made otherwise. A newer rule is in force.
func checkRecordedWhatIf(t *testing.T, g *rig.Gateway, dir string, keys officers, id string) {
	t.Helper()
	type recorded struct {
		Decision    string
		Explanation struct{ Digest string }
		WhatIf      *struct {
			Digest, Refused string
			Requirements    []struct {
				Selected []struct{ Tool string }
				Dropped  []struct{ Tool, Stage, Reason string }
			}
		} `json:"what_if"`
		Unrecorded []string `json:"not_recorded"`
	}
	for _, tt := range []struct {
		name, query string
		flags       []string
		want        []string // parts of the answer
	}{
		{"the mode alone", "mode=assist", []string{"--mode", "assist"}, []string{`"selected":[{"tool":"a/work"`, `"tool":"b/rest","stage":"policy"`, "the old rule"}},
		{"another tier", "tier=free", []string{"--tier", "free"}, []string{`"tool":"a/work","stage":"policy"`, "not for free", "which tiers tenant acme had then"}},
		{"a server out", "without=a", []string{"--without", "a"}, []string{`"selected":[{"tool":"b/stay"`, `"tool":"a/work","stage":"health"`, `"tool":"b/rest","stage":"policy"`, "the what-if takes its server out"}},
	} {
		a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions/"+id+"?"+tt.query, "")
		var got, printed recorded
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != http.StatusOK || got.WhatIf == nil || got.Explanation.Digest != got.Decision || got.WhatIf.Digest == got.Decision {
			t.Errorf("%s: %d %s", tt.name, a.Status, a.Body)
			continue
		}
		_, after, _ := strings.Cut(a.Body, `"what_if":`)
		for _, want := range tt.want {
			if !strings.Contains(after, want) {
				t.Errorf("%s: it lacks %s: %s", tt.name, want, after)
			}
		}
		if strings.Contains(a.Body, "the new rule") {
			t.Errorf("%s: a rule of today has a part in it: %s", tt.name, a.Body)
		}
		out, errs, code := rig.Command(t, dir, append([]string{"decisions", "show", id, "--json"}, tt.flags...)...)
		if err := json.Unmarshal([]byte(out), &printed); code != 0 || err != nil || !reflect.DeepEqual(printed, got) {
			t.Errorf("%s: exit %d, the command says\n%s%s\nand the API\n%s", tt.name, code, out, errs, a.Body)
		}
	}
	// The operator's policies may say how they treat a tier that only another tenant has.
	for who, want := range map[string]int{"viewer": http.StatusBadRequest, "operator": http.StatusOK} {
		if a := g.AskAdmin(t, keys[who], "GET", "/v1/decisions/"+id+"?tier=platinum", ""); a.Status != want || (want == http.StatusOK) == strings.Contains(a.Body, `tenant acme has no tier \"platinum\"`) {
			t.Errorf("a tier of another tenant for the %s: %d %s", who, a.Status, a.Body)
		}
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions/"+id+"?without=zzz", ""); a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "zzz") {
		t.Errorf("a server that the tenant did not have: %d %s", a.Status, a.Body)
	}
	if out, errs, code := rig.Command(t, dir, "decisions", "show", id, "--without", "a"); code != 0 || !strings.Contains(out, "what if: ") || !strings.Contains(strings.Join(strings.Fields(out), " "), "selected b/stay score 0") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
