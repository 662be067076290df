package served_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// claimants are two operators, and a tenant whose searches go to nimbus. Nothing serves the task files.
const claimants = `
-- switchboard.yaml --
admin: {edit: programs}
servers:
  atlas: {transport: stdio, command: [BIN, sample, atlas-search]}
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
operators: [{key: ops, hash: "HASH:ops --operator"}, {key: oda, hash: "HASH:oda --operator"}]
tenants:
  acme: {servers: ["*"], allow: [by_name]}
  umbrella: {servers: ["*"]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: browse
keys: [{id: ann, hash: "HASH:ann"}]
ranking: {prefer: [{verb: search, resource: internet, servers: [nimbus]}]}
-- tenants/acme/tasks/browse.yaml --
task_id: browse
required_capabilities: [{verb: search, resource: internet}]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- tenants/acme/tasks/files.yaml --
task_id: files
required_capabilities: [{verb: read, resource: fs}]
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
default_task: browse
-- tenants/umbrella/tasks/browse.yaml --
task_id: browse
required_capabilities: [{verb: search, resource: internet}]
`

// A statedClaim is a claim as a request makes it, and the sentence that names it in answers.
type statedClaim struct {
	claim    map[string]any
	sentence string
}

// Each kind of claim lets a proposal be applied if it is true. If it is false, the trial refuses the proposal, or the proposal is rolled back where only the served state can tell. The answer says which
// claim it was and what was found, and nothing is changed.
func TestEachClaimIsBelievedIfItIsTrueAndNamedIfItIsFalse(t *testing.T) {
	t.Parallel()
	text, keys := fillKeys(t, claimants)
	dir := rig.LayOut(t, text)
	g := rig.Serve(t, dir)
	client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["ann"])
	if got := rig.ListNames(t, client); !slices.Contains(got, "web_search") {
		t.Fatalf("the client lists %q", got)
	}
	rig.Eventually(t, "the decision is recorded", func() string {
		d, _ := policyDiff(t, dir, "--against", ".")
		return rig.ReasonUnless(d.Decisions > 0, "not yet")
	})
	tenant, main := filepath.Join(dir, "tenants/acme/tenant.yaml"), filepath.Join(dir, "switchboard.yaml")
	was := map[string]string{tenant: rig.ReadFile(t, tenant), main: rig.ReadFile(t, main)}
	unchanged := func(t *testing.T) {
		t.Helper()
		for name, text := range was {
			if now := rig.ReadFile(t, name); now != text {
				t.Errorf("%s is %q", name, now)
			}
		}
	}
	create := func(t *testing.T, d draft) rig.Answer {
		t.Helper()
		return g.AskAdmin(t, keys["ops"], http.MethodPost, "/v1/proposals", d.text(t))
	}
	apply := func(t *testing.T, d draft) (id string, a rig.Answer) {
		t.Helper()
		p := proposalOf(t, create(t, d), http.StatusCreated)
		if a := g.AskAdmin(t, keys["oda"], http.MethodPost, "/v1/proposals/"+p.ID+"/approve", `{"note":"good"}`); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return p.ID, g.AskAdmin(t, keys["ops"], http.MethodPost, "/v1/proposals/"+p.ID+"/apply", "")
	}
	moved := draft{Note: "searches go to atlas", Files: []map[string]any{{"path": "tenants/acme/tenant.yaml", "text": strings.Replace(was[tenant], "servers: [nimbus]", "servers: [atlas]", 1)}}}

	for kind, tt := range map[string]struct {
		false statedClaim
		found string
	}{
		"meets":     {statedClaim{map[string]any{"tenant": "acme", "task": "browse", "meets": "search:internet", "by": "nimbus/web_search"}, "task browse of acme meets search:internet by nimbus/web_search"}, "it is met by atlas/search_web"},
		"lists":     {statedClaim{map[string]any{"tenant": "acme", "task": "browse", "lists": "nimbus/web_search"}, "task browse of acme has nimbus/web_search"}, "it gets atlas/search_web"},
		"hides":     {statedClaim{map[string]any{"tenant": "acme", "task": "browse", "hides": "atlas/search_web"}, "task browse of acme does not have atlas/search_web"}, "it has it"},
		"unchanged": {statedClaim{map[string]any{"tenant": "acme", "unchanged": true}, "nothing else changes for tenant acme"}, "task browse had nimbus/"},
		"decisions": {statedClaim{map[string]any{"tenant": "acme", "decisions": 7}, "no decision of tenant acme in the last 7 days would have been another"}, "moved browse"},
	} {
		t.Run("the trial refutes "+kind, func(t *testing.T) {
			d := moved
			d.Claims = []map[string]any{{"tenant": "umbrella", "unchanged": true}, tt.false.claim}
			a := create(t, d)
			if a.Status < 400 || a.Status >= 500 || !strings.Contains(a.Body, "a claim does not hold") || !strings.Contains(a.Body, tt.false.sentence+": "+tt.found) || strings.Contains(a.Body, "umbrella") {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if list := g.AskAdmin(t, keys["ops"], http.MethodGet, "/v1/proposals", ""); strings.Contains(list.Body, `"id"`) {
				t.Errorf("it is kept: %s", list.Body)
			}
			unchanged(t)
		})
	}
	if got := rig.ListNames(t, client); !slices.Contains(got, "web_search") || slices.Contains(got, "search_web") {
		t.Errorf("the client lists %q", got)
	}

	withB := serverB(was[main], fmt.Sprintf(rig.Tool, "rest"))
	for kind, tt := range map[string]struct {
		false statedClaim
		found string
	}{
		"meets":     {statedClaim{map[string]any{"tenant": "acme", "task": "files", "meets": "read:fs", "by": "b/nosuch"}, "task files of acme meets read:fs by b/nosuch"}, "it is met by b/rest"},
		"lists":     {statedClaim{map[string]any{"tenant": "acme", "task": "files", "lists": "b/nosuch"}, "task files of acme has b/nosuch"}, "it gets b/rest"},
		"hides":     {statedClaim{map[string]any{"tenant": "acme", "task": "all", "hides": "b/rest"}, "task all of acme does not have b/rest"}, "it has it"},
		"unchanged": {statedClaim{map[string]any{"tenant": "acme", "unchanged": true}, "nothing else changes for tenant acme"}, "task all had "},
	} {
		t.Run("the served state refutes "+kind, func(t *testing.T) {
			d := withB
			d.Claims = []map[string]any{{"tenant": "acme", "decisions": 7}, tt.false.claim}
			id, a := apply(t, d)
			if a.Status != http.StatusConflict || !strings.Contains(a.Body, "SB-CONF-004") || !strings.Contains(a.Body, tt.false.sentence+": "+tt.found) || strings.Contains(a.Body, "no decision of tenant acme") {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if p := proposalOf(t, g.AskAdmin(t, keys["ops"], http.MethodGet, "/v1/proposals/"+id, ""), http.StatusOK); p.State != "rolled_back" {
				t.Errorf("%+v", p)
			}
			unchanged(t)
		})
	}

	moved.Claims = []map[string]any{
		{"tenant": "acme", "task": "browse", "meets": "search:internet", "by": "atlas/search_web"},
		{"tenant": "acme", "task": "browse", "lists": "atlas/search_web"},
		{"tenant": "acme", "task": "browse", "hides": "nimbus/web_search"},
		{"tenant": "umbrella", "unchanged": true},
		{"tenant": "acme", "decisions": 7, "changes": []any{map[string]any{"change": "moved", "task": "browse"}}},
	}
	id, a := apply(t, moved)
	if p := proposalOf(t, a, http.StatusOK); p.State != "applied" || p.ID != id {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if now := rig.ReadFile(t, tenant); now != moved.Files[0]["text"] {
		t.Errorf("the file is %q", now)
	}
	if got := rig.ListNames(t, client); !slices.Contains(got, "search_web") || slices.Contains(got, "web_search") {
		t.Errorf("the client lists %q", got)
	}
}
