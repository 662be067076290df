package proposal

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Nobody learns by a claim what a tenant has that it does not see.
func TestAClaimTellsNothingAboutTheTenantsOfOthers(t *testing.T) {
	foreign := []StatedClaim{
		{Tenant: "umbrella", Task: "all", Lists: "c/one"},
		{Tenant: "umbrella", Task: "all", Hides: "a/one"},
		{Tenant: "umbrella", Task: "all", Meets: "search:internet", By: "a/one"},
		{Tenant: "umbrella", Decisions: 7},
		{Tenant: "nosuch", Decisions: 7},
	}
	for _, c := range foreign {
		w := newWorld(t)
		w.past = func() *replay.Diff {
			return &replay.Diff{Changes: []replay.DecisionChange{{Kind: "denied", Tenant: "umbrella", Tool: "secret/tool"}}}
		}
		for _, by := range []*switchboard.Officer{nil, ann} {
			who := agent
			if by != nil {
				who = ByOfficer(by)
			}
			d := ofAgent(swap())
			d.Claims = append(d.Claims, c)
			want := "claim 6 is about tenant " + string(c.Tenant) + ", which you may not see"
			if _, err := w.Create(t.Context(), who, by, d); reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s by %s: %v", c.String(), who.ID, err)
			}
		}
	}
	w := newWorld(t)
	if _, err := w.Create(t.Context(), agent, nil, swap()); reason(err) != "SB-AUTH-002" {
		t.Errorf("an agent calls another tenant unchanged: %v", err)
	}
	w.lie = func(tools []string) []string { return tools[:1] } // umbrella is served differently from what the files say
	d := &Draft{Note: "n", Files: swap().Files, Claims: []StatedClaim{{Tenant: "umbrella", Unchanged: true}}}
	for _, by := range []*switchboard.Officer{ann, ops} { // the admins of acme read what an operator proposes, too
		if _, err := w.propose(by, d); reason(err) != "SB-CONF-001" || !strings.Contains(err.Error(), "it does not hold") || strings.Contains(err.Error(), "/") {
			t.Errorf("by %s: %v", by.ID, err)
		}
	}
}

// A proposal of files of two tenants is tried with the rights of those who may read it, and not with an operator's.
func TestAProposalOfTwoTenantsShowsNothingOfAThird(t *testing.T) {
	w := newWorld(t)
	w.write("switchboard.yaml", strings.Replace(startFiles["switchboard.yaml"], "  umbrella:", "  third: {servers: [\"*\"], allow: [by_name]}\n  umbrella:", 1))
	w.write("tenants/third/tenant.yaml", "tenant: third\ndefault_task: all\n")
	w.write("tenants/third/tasks/all.yaml", "task_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n")
	w.start()
	w.tried = func(r *change.Reading) {
		for _, tenant := range []switchboard.TenantID{"acme", "third", "umbrella"} {
			r.Tasks = append(r.Tasks, change.TaskChange{Tenant: tenant, Task: "all"})
		}
	}
	both := admin("bea")
	both.Offices["umbrella"] = both.Offices["acme"]
	d := &Draft{Note: "n", Files: []FileDraft{{Path: tenantFile, Text: new(startFiles[tenantFile] + "mode: assist\n")}, {Path: "tenants/umbrella/tenant.yaml", Text: new("tenant: umbrella\ndefault_task: all\nmode: assist\n")}}}
	p, err := w.propose(both, d)
	if err != nil || p.Tenant != "" || p.Past != nil || len(p.Tasks) != 2 || p.Tasks[0].Tenant != "acme" || p.Tasks[1].Tenant != "umbrella" {
		t.Fatalf("%+v, %v", p, err)
	}
	w.tried = func(r *change.Reading) {
		r.Faults = append(r.Faults, switchboard.Fault{File: filepath.Join(w.dir, "tenants/third/tenant.yaml"), Text: "a secret of third"})
	}
	if _, err := w.propose(both, d); reason(err) != "SB-CONF-001" || strings.Contains(err.Error(), "secret of third") {
		t.Errorf("%v", err)
	}
}
