package served_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const tenantOfAcme = "tenants/acme/tenant.yaml"

// layOutSearchers lays out officeArchive with two servers that search the internet: atlas finds something, and each call of nimbus fails. The tenant acme prefers nimbus. Its
// task browse searches, and its task all has the tools of both servers.
func layOutSearchers(t *testing.T) (dir string, keys officers) {
	t.Helper()
	dir, keys = layOutOfficers(t)
	main := filepath.Join(dir, "switchboard.yaml")
	text := rig.ReadFile(t, main)
	for server, says := range map[string]string{"nimbus": `{"isError":true,"content":[{"type":"text","text":"nothing"}]}`, "atlas": `{"content":[{"type":"text","text":"found"}]}`} {
		row := strings.ReplaceAll(rig.FakeRow(server, "says="+says, fmt.Sprintf(rig.Tool, server+"_find")), "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))
		text = strings.Replace(text, "servers:\n", "servers:\n  "+row+"\n", 1)
		rig.WriteFile(t, filepath.Join(dir, "overlays", server+".yaml"), fmt.Sprintf("server: %s\ntools: {%[1]s_find: {capabilities: [{verb: search, resource: internet}]}}\n", server))
	}
	rig.WriteFile(t, main, text)
	tenant := filepath.Join(dir, tenantOfAcme)
	rig.WriteFile(t, tenant, strings.Replace(rig.ReadFile(t, tenant), "{id: alice, ", "{id: alice, tasks: [all, browse], ", 1)+"ranking: {prefer: [{verb: search, resource: internet, servers: [nimbus, atlas]}]} # ours\n")
	rig.WriteFile(t, filepath.Join(dir, "tenants/acme/tasks/browse.yaml"), "task_id: browse\nrequired_capabilities: [{verb: search, resource: internet}]\n")
	return dir, keys
}

// searchBoth makes n calls at each of the two servers, for the tenant acme.
func searchBoth(t *testing.T, g *rig.Gateway, keys officers, n int) {
	t.Helper()
	s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	rig.ListNames(t, s)
	for range n {
		for _, tool := range []string{"nimbus_find", "atlas_find"} {
			if m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool)); strings.Contains(string(m.Raw), "SB-") {
				t.Fatalf("a call of %s is refused: %s", tool, m.Raw)
			}
		}
	}
}

// awaitSuggestion waits until the figures speak for another ranking.
func awaitSuggestion(t *testing.T, g *rig.Gateway, keys officers) {
	t.Helper()
	wait.For(t, folding, "the figures speak for atlas", func() error {
		if a := g.AskAdmin(t, keys["admin"], http.MethodGet, "/v1/memory/ranking", ""); a.Status != http.StatusOK || !strings.Contains(a.Body, `"first":"atlas"`) {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return nil
	})
}

// The whole way by the command line: 49 calls each are too few; then the figures are clear, the change is proposed, and it is in force only after the yes of another person.
func TestARankingThatTheFiguresSpeakForIsProposedApprovedAndApplied(t *testing.T) {
	t.Parallel()
	dir, keys := layOutSearchers(t)
	file := filepath.Join(dir, tenantOfAcme)
	before := rig.ReadFile(t, file)
	g := rig.Serve(t, dir)
	as := func(who string, want int, args ...string) string {
		t.Helper()
		out, errs, code := rig.CommandAs(t, t.TempDir(), keys[who], append(args, "--url", g.AdminURL())...)
		if code != want {
			t.Fatalf("%q as %s: exit %d\n%s%s", args, who, code, out, errs)
		}
		return out + errs
	}
	lists := func(want string) {
		t.Helper()
		s := g.Open(t, "/mcp/tasks/browse", true, "Authorization", "Bearer "+keys["agent"])
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{want}) {
			t.Errorf("the task browse lists %q, want %s", got, want)
		}
	}
	lists("nimbus_find")
	work := func(result string) {
		t.Helper()
		s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
		if m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"do":"result","bytes":%q}}`, result)); strings.Contains(string(m.Raw), "SB-") {
			t.Fatalf("work is refused: %s", m.Raw)
		}
	}
	work(`{"isError":true,"content":[]}`)
	searchBoth(t, g, keys, 49)
	wait.For(t, folding, "the memory has all calls", func() error {
		if out := as("admin", 0, "suggest", "ranking"); !strings.Contains(out, "nimbus, which comes first, has 49 of the 50 calls that a comparison needs") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if out := as("admin", 1, "suggest", "ranking", "--propose"); !strings.Contains(out, "no proposal was made") {
		t.Errorf("with too few calls: %s", out)
	}
	searchBoth(t, g, keys, 1)
	awaitSuggestion(t, g, keys)

	patch := as("admin", 0, "suggest", "ranking")
	for _, want := range []string{"search internet: calls at atlas succeed more often", "suggest ranking --propose", "-ranking: {prefer: [{verb: search, resource: internet, servers: [nimbus, atlas]}]} # ours\n+ranking: {prefer: [{verb: search, resource: internet, servers: [atlas, nimbus]}]} # ours\n"} {
		if !strings.Contains(patch, want) {
			t.Errorf("%q is not in\n%s", want, patch)
		}
	}
	made := as("admin", 0, "suggest", "ranking", "--propose")
	_, rest, _ := strings.Cut(made, "proposal ")
	id, _, _ := strings.Cut(rest, ":")
	for _, want := range []string{
		"by officer ann", "speak for it; search internet: calls", "risk: high; it needs a person other than the proposer",
		"- task browse of acme meets search:internet by atlas/atlas_find\n", "- task browse of acme does not have nimbus/nimbus_find\n", "- nothing else changes for tenant acme\n",
		"nothing is in force yet", "switchboard proposals approve " + id + "\n", "switchboard proposals apply " + id + "\n",
	} {
		if !strings.Contains(made, want) {
			t.Errorf("%q is not in\n%s", want, made)
		}
	}
	if out := as("admin", 1, "proposals", "approve", id); !strings.Contains(out, "you proposed it") {
		t.Errorf("the proposer approves: %s", out)
	}
	if out := as("admin", 1, "proposals", "apply", id); !strings.Contains(out, "0 of 1 have said yes") {
		t.Errorf("applied without a yes: %s", out)
	}
	if got := rig.ReadFile(t, file); got != before {
		t.Errorf("without a yes, the file is\n%s", got)
	}
	lists("nimbus_find")
	as("operator", 0, "proposals", "approve", id)
	if out := as("admin", 0, "proposals", "apply", id); !strings.Contains(out, "is applied and in force, and its claims hold") {
		t.Errorf("applied: %s", out)
	}
	if got, want := rig.ReadFile(t, file), strings.Replace(before, "[nimbus, atlas]", "[atlas, nimbus]", 1); got != want {
		t.Errorf("the file is\n%swant\n%s", got, want)
	}
	lists("atlas_find")
	if out := as("admin", 0, "suggest", "ranking"); !strings.Contains(out, "no server is clearly better than atlas") {
		t.Errorf("after that: %s", out)
	}
	// Neither the steps before it nor a refused application is what came before the errors stopped.
	wait.For(t, folding, "the proposal is named beside errors that stopped with it", func() error {
		work(`{"content":[]}`)
		if out := as("admin", 0, "memory", "errors", "a/work"); !strings.Contains(out, "  proposal "+id+" "+tenantOfAcme+" at ") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// The memory advises; it decides nothing.
func TestWithoutAProposalDecisionsAreByteForByteWhatTheyWereBeforeTheMemoryWasFull(t *testing.T) {
	t.Parallel()
	dir, keys := layOutSearchers(t)
	g := rig.Serve(t, dir)
	list := func() string {
		m, _ := g.Open(t, "/mcp/tasks/browse", true, "Authorization", "Bearer "+keys["agent"]).Ask(t, "tools/list", "{}")
		return string(m.Result)
	}
	replay := func() string {
		out, errs, code := rig.Command(t, dir, "receipts", "replay", "--tenant", "acme", "--url", g.URL)
		if code != 0 {
			t.Fatalf("receipts replay: exit %d\n%s%s", code, out, errs)
		}
		return out
	}
	listed := list()
	first := g.Explain(t, "acme", "browse", "alice")
	if !strings.Contains(first, "nimbus_find") {
		t.Fatalf("the first decision is %s", first)
	}
	was := ""
	rig.Eventually(t, "the first decision is recorded", func() string {
		was = replay()
		return rig.ReasonUnless(sameDecisions(was) > 0, was)
	})
	searchBoth(t, g, keys, 60)
	awaitSuggestion(t, g, keys)
	if now := list(); now != listed {
		t.Errorf("the client lists\n%s\nand before\n%s", now, listed)
	}
	if now := g.Explain(t, "acme", "browse", "alice"); now != first {
		t.Errorf("a fresh decision is\n%s\nand the first one\n%s", now, first)
	}
	if now := replay(); sameDecisions(now) <= sameDecisions(was) { // the calls of searchBoth have bound a task, too
		t.Errorf("the replay says\n%s\nand before\n%s", now, was)
	}
}

// sameDecisions returns how many decisions a replay has made again to the byte; 0 if these are not all.
func sameDecisions(said string) (same int) {
	var all, replayed int
	said = strings.Replace(said, "1 decision,", "1 decisions,", 1)
	if n, err := fmt.Sscanf(said, "%d decisions, %d replayed: %d the same to the byte\n", &all, &replayed, &same); n != 3 || err != nil || all != same || replayed != same {
		return 0
	}
	return same
}
