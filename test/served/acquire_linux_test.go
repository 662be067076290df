package served_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/registry"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// seekers are an agent that lacks a capability, two persons who may decide, and a registry.
const seekers = `
-- switchboard.yaml --
admin: {edit: programs}
registries: [{id: corp, file: registry.json}]
servers:
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
operators: [{key: lea, hash: "HASH:lea --operator"}]
tenants:
  acme:
    servers: ["*"]
    approvers: [{key: lea, hash: "SAME"}]
    request: [{verb: search, resource: knowledge_graph}]
  umbrella:
    servers: ["*"]
    approvers: [{key: uma, hash: "HASH:uma --approver"}]
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: browse
keys: [{id: ann, hash: "HASH:ann"}]
-- tenants/acme/tasks/browse.yaml --
task_id: browse
required_capabilities: [{verb: search, resource: internet}]
-- registry.json --
`

// A dossier is what the admin API says of one.
type dossier struct {
	ID, Status, Phase, Chosen, Proposal, Text string
	Candidates                                []struct{ Name, Why string }
	Tools                                     []struct {
		Tool     string
		Score    int
		Verified bool
	}
}

func readDossier(t *testing.T, g *rig.Gateway, key string) dossier {
	t.Helper()
	a := g.AskAdmin(t, key, http.MethodGet, "/v1/acquisitions", "")
	var list struct{ Dossiers []dossier }
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || len(list.Dossiers) == 0 {
		return dossier{}
	}
	a = g.AskAdmin(t, key, http.MethodGet, "/v1/acquisitions/"+list.Dossiers[0].ID, "")
	var d dossier
	if err := json.Unmarshal([]byte(a.Body), &d); err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return d
}

// The whole way: an agent lacks a capability and asks; a server is found in a registry, with a look-alike beside it; it is tried in strict walls; a person says yes; the tool is
// called in the same session. Its next version fails a must: the tool is suspended, and nothing serves it.
func TestFromICannotToItCan(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	npmlock.NeedClient(t, "acquisition")
	npm := registry.Serve(t)
	npm.Publish(t, "graph-archive", "1.0.0", registry.GraphServer("graph-archive", "io.github.alice/graph-archive", ""), nil)
	npm.Publish(t, "graph-archvie", "1.0.0", registry.GraphServer("graph-archvie", "io.github.alice/graph-archive", ""), nil)
	entries, err := json.Marshal(map[string]any{"servers": []any{
		registry.ListNpm("io.github.mallory/graph-archvie", "Search a knowledge graph of facts.", "graph-archvie", "1.0.0", map[string]any{"runtimeArguments": []any{map[string]any{"type": "positional", "value": "--eval=1"}}}),
		registry.ListNpm("io.github.alice/graph-archive", "Search a knowledge graph of facts.", "graph-archive", "1.0.0", nil),
		registry.ListNpm("io.github.bob/weather", "Tells the weather.", "weather", "latest", nil),
	}})
	if err != nil {
		t.Fatal(err)
	}
	text, keys := fillKeys(t, seekers+string(entries)+"\n")
	_, hash, _ := strings.Cut(text, `{key: lea, hash: "`)
	hash, _, _ = strings.Cut(hash, `"`)
	dir := rig.LayOut(t, strings.Replace(text, "SAME", hash, 1)) // lea has two offices
	cmd := rig.Switchboard(t, "-v", "serve", "--listen", "127.0.0.1:0")
	cmd.Env = npm.Env(t)
	g := rig.ServeBy(t, dir, cmd)
	g.AwaitServers()
	s := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys["ann"])
	heard := hearChanges(t, s)
	before := rig.ListNames(t, s)
	began := time.Now()
	a := request(t, s, "search knowledge_graph", "the task asks who wrote the parser")
	if a.Status != "waiting_for_capability" || !strings.Contains(a.Why, "Switchboard looks for a tool") {
		t.Fatalf("the agent hears %s", a.text)
	}
	var d dossier
	wait.For(t, time.Minute, "a person must decide", func() error {
		if d = readDossier(t, g, keys["lea"]); d.Status != "waiting" && d.Status != "stopped" {
			return errors.New(d.Text)
		}
		return nil
	})
	if d.Status != "waiting" || d.Chosen != "io.github.alice/graph-archive" || len(d.Tools) != 1 || !d.Tools[0].Verified {
		t.Fatalf("the dossier is\n%s", d.Text)
	}
	i := slices.IndexFunc(d.Candidates, func(c struct{ Name, Why string }) bool { return c.Name == "io.github.mallory/graph-archvie" })
	if i < 0 || d.Candidates[i].Why == "" || !strings.Contains(d.Text, "graph-archvie looks like graph-archive") {
		t.Errorf("the look-alike is not named:\n%s", d.Text)
	}
	if again := rig.ListNames(t, s); !slices.Equal(again, before) {
		t.Errorf("before the yes, the list is %q", again)
	}
	if st := standing(t, s, "search knowledge_graph"); st.Status != "pending" || !strings.Contains(st.Why, "a person must say yes") {
		t.Errorf("the agent hears %s", st.text)
	}
	// Neither another tenant's approver nor the agent sees it.
	if a := g.AskAdmin(t, keys["uma"], http.MethodPost, "/v1/acquisitions/"+d.ID+"/review", `{"answer":"yes"}`); a.Status != http.StatusNotFound {
		t.Errorf("another tenant's approver: %d %s", a.Status, a.Body)
	}
	tried := time.Since(began)
	if a := g.AskAdmin(t, keys["lea"], http.MethodPost, "/v1/acquisitions/"+d.ID+"/review", `{"answer":"yes","note":"we know alice"}`); a.Status != http.StatusOK {
		t.Fatalf("the review: %d %s\n%s", a.Status, a.Body, d.Text)
	}
	if st := readDossier(t, g, keys["lea"]); st.Status != "deployed" {
		t.Fatalf("after the yes:\n%s", st.Text)
	}
	wait.Receive(t, "that the list has changed", heard)
	s.Ask(t, "tools/call", `{"name":"knowledge_graph_helper","arguments":{}}`)
	m, _ := s.Ask(t, "tools/call", `{"name":"search_nodes","arguments":{"query":"parser"}}`)
	if !strings.Contains(string(m.Raw), "found in graph-archive: 2") {
		t.Errorf("the call gave %s", m.Raw)
	}
	t.Logf("%s until a person could decide, %s in all", tried.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if got := time.Since(began); got > time.Minute {
		t.Errorf("all but the person's part took %s", got)
	}
	for _, args := range [][]string{{"receipts", "verify"}, {"policy", "diff", "--against", "."}} {
		if out, errs, code := rig.Command(t, dir, args...); code != 0 {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errs)
		}
	}
	out, _, _ := rig.Command(t, dir, "receipts", "list", "--kind", "acquire", "--json")
	for _, step := range []string{"research passed", "implement passed", "validate passed", "document passed", "deploy passed", "review yes"} {
		if !strings.Contains(out, d.ID+" "+step) {
			t.Errorf("no receipt says %q:\n%s", step, out)
		}
	}

	// Another server can do the same by now. Then the next version of the first one takes what it must refuse.
	rig.WriteFile(t, filepath.Join(dir, "spare.js"), registry.GraphServer("spare", "", "")["index.js"])
	rig.WriteFile(t, filepath.Join(dir, "overlays/spare.yaml"), "server: spare\ntools: {search_nodes: {capabilities: [{verb: search, resource: knowledge_graph, constraints: [readonly]}]}}\n")
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "servers:\n", "servers:\n  spare: {transport: stdio, command: [node, spare.js]}\n", 1))
	npm.Publish(t, "graph-archive", "2.0.0", registry.GraphServer("graph-archive", "io.github.alice/graph-archive", "if (args?.query === undefined) return { content: [{ type: 'text', text: 'all of it' }] };"), nil)
	env := npm.Env(t)
	command := func(args ...string) string {
		t.Helper()
		cmd := rig.Switchboard(t, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	g.Reload(t)
	look := command("server", "update", "graph-archive", "2.0.0")
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(look)
	command("server", "update", "graph-archive", "2.0.0", "--accept", digest, "--url", g.URL)
	rig.Eventually(t, "the next version is verified", func() string {
		cmd := rig.Switchboard(t, "verify", "graph-archive", "--url", g.URL)
		cmd.Dir, cmd.Env = dir, env
		out, _ := cmd.CombinedOutput()
		return rig.ReasonUnless(strings.Contains(string(out), "missing"), string(out))
	})
	rig.Eventually(t, "the next candidate serves", func() string {
		m, _ := s.Ask(t, "tools/call", `{"name":"search_nodes","arguments":{"query":"parser"}}`)
		return rig.ReasonUnless(strings.Contains(string(m.Raw), "found in spare: 2"), string(m.Raw))
	})
	if out := command("pins", "list", "--url", g.URL); !strings.Contains(out, "suspended") {
		t.Errorf("the pins are\n%s", out)
	}
	rig.Eventually(t, "the gap is remembered", func() string {
		out := command("memory", "gaps", "--tenant", "acme", "--url", g.URL)
		return rig.ReasonUnless(strings.Contains(out, "search knowledge_graph"), out)
	})
}
