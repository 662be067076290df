package npm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	words "github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const sparing = `
-- switchboard.yaml --
start_deadline: 2m
servers:
  cloud: {transport: stdio, command: ["%[1]s", sample, aws-like]}
  web: {transport: stdio, command: ["%[1]s", sample, nimbus-search]}
tenants: {example: {servers: ["*"], allow: [by_name], token_budget: 100000}}
-- tenants/example/tenant.yaml --
tenant: example
-- tenants/example/tasks/few.yaml --
task_id: few
required_capabilities:
  - {tools: ["cloud/s3_list_buckets"]}
-- tenants/example/tasks/lazy.yaml --
task_id: lazy
required_capabilities:
  - {tools: ["web/*"]}
  - {tools: ["cloud/*"], load: on_demand, group: cloud}
`

// definitionsIn returns the definitions in the result of tools/list, byte for byte.
func definitionsIn(t *testing.T, a answer) []json.RawMessage {
	t.Helper()
	var list struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(a.result, &list); err != nil || len(list.Tools) == 0 {
		t.Fatalf("tools/list: %v %s %s", err, a.result, a.err)
	}
	return list.Tools
}

// Clients of both eras list and search. What they got is counted with js-tiktoken, as are the lists of the servers themselves.
func TestTheTokensSparedAreThoseOfASecondTokenizerOverTheListsThatClientsGot(t *testing.T) {
	t.Parallel()
	npmlock.Need(t, "lists that a second tokenizer counts")
	dir := t.TempDir()
	for _, f := range txtar.Parse(fmt.Appendf(nil, sparing, switchboard(t))).Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := serve(t, dir)
	k := newTokenizer(t)
	cost := func(a answer) (n int64) {
		for _, definition := range definitionsIn(t, a) {
			n += int64(k.count(t, definition))
		}
		return n
	}
	full := map[words.ServerID]int64{}
	for id, s := range servers(t, dir) {
		full[id] = cost(dial(t, legacy, s).ask(t, "tools/list", "{}"))
	}
	var lists, listed, whole int64
	for _, era := range []string{legacy, modern} {
		few, lazy := connect(t, g.path("few"), era), connect(t, g.path("lazy"), era)
		list := func(p *poster, behind int64) {
			t.Helper()
			lists, listed, whole = lists+1, listed+cost(p.ask(t, "tools/list", "{}")), whole+behind
		}
		list(few, full["cloud"])
		list(few, full["cloud"]) // again: it costs again
		list(lazy, full["cloud"]+full["web"])
		for _, ask := range []string{`{"action":"list"}`, `{"action":"search","query":"read an object"}`, `{"action":"expand","tools":["s3_list_buckets"]}`} {
			a := lazy.ask(t, "tools/call", `{"name":"cloud_helper","arguments":`+ask+`}`)
			if a.result == nil {
				t.Fatalf("%s %s: %s", era, ask, a.err)
			}
			listed += int64(k.count(t, a.result))
		}
		list(lazy, full["cloud"]+full["web"]) // with what was expanded
	}
	if whole < 3*listed {
		t.Errorf("the full lists have %d tokens, and the clients got %d: this shows little", whole, listed)
	}
	type span struct {
		Span       string
		Lists      int64
		ListTokens int64 `json:"list_tokens"`
		FullTokens int64 `json:"full_list_tokens"`
		Uncounted  int64 `json:"uncounted_lists"`
		Spared     int64 `json:"tokens_spared"`
	}
	wait.For(t, time.Minute, "all lists are counted", func() error {
		out, errs, code := command(t, g.program, "now", "--json", "--url", g.url, "--config", filepath.Join(g.dir, "switchboard.yaml"))
		var now struct{ Spans []span }
		if err := json.Unmarshal([]byte(out), &now); err != nil || code != 0 || len(now.Spans) != 4 {
			t.Fatalf("now: %v, exit %d\n%s%s", err, code, out, errs)
		}
		for _, s := range now.Spans[1:] {
			if want := (span{s.Span, lists, listed, whole, 0, whole - listed}); s != want {
				return fmt.Errorf("%+v, want %+v", s, want)
			}
		}
		return nil
	})
	t.Logf("%d lists: %d tokens instead of %d", lists, listed, whole)
}
