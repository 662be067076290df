package npm_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A tokenizer counts tokens with tokens.mjs.
type tokenizer struct {
	in    io.Writer
	out   *bufio.Reader
	dog   *watchdog
	known map[string]int
}

// newTokenizer starts tokens.mjs, and stops it after the test.
func newTokenizer(t *testing.T) *tokenizer {
	t.Helper()
	cmd := exec.Command("node", "tokens.mjs")
	log := &locked{}
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dog := watch(5*patience, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		err := cmd.Wait()
		dog.Stop()
		dog.check(t)
		if err != nil {
			t.Errorf("tokens.mjs ended with %v\n%s", err, log)
		}
	})
	return &tokenizer{in: in, out: bufio.NewReader(out), dog: dog, known: map[string]int{}}
}

// count returns the number of tokens of the text. It has each text counted once.
func (k *tokenizer) count(t *testing.T, text []byte) int {
	t.Helper()
	if n, ok := k.known[string(text)]; ok {
		return n
	}
	if err := json.NewEncoder(k.in).Encode(string(text)); err != nil {
		t.Fatal(err)
	}
	line, err := k.out.ReadString('\n')
	if err != nil {
		k.dog.check(t)
		t.Fatalf("tokens.mjs: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	k.known[string(text)] = n
	return n
}

// A poster is a client over HTTP, with no SDK in between.
type poster struct {
	url, era, session string
	hello             answer
}

// connect opens a client of the era.
func connect(t *testing.T, url, era string) *poster {
	t.Helper()
	p := &poster{url: url, era: era}
	if era == modern {
		p.hello = p.ask(t, "server/discover", "{}")
	} else {
		p.hello = p.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	}
	if p.hello.err != nil {
		t.Fatalf("the client is refused: %s", p.hello.err)
	}
	return p
}

// ask sends a request and returns its answer.
func (p *poster) ask(t *testing.T, method, params string) answer {
	t.Helper()
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if p.era == modern {
		var named struct{ Name string }
		_ = json.Unmarshal([]byte(params), &named) // or it has no name
		header.Set("Mcp-Protocol-Version", modern)
		header.Set("Mcp-Method", method)
		if named.Name != "" {
			header.Set("Mcp-Name", named.Name)
		}
		meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		if params != "{}" {
			meta += ","
		}
		params = meta + params[1:]
	} else if p.session != "" {
		header.Set("Mcp-Session-Id", p.session)
		header.Set("Mcp-Protocol-Version", legacy)
	}
	ctx := wait.Context(t)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	wait.Answered(t, ctx, method, err)
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(resp.Body)
	wait.Answered(t, ctx, method, err)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		p.session = id
	}
	a, ok := last(string(body))
	if !ok {
		t.Fatalf("%s: %s: %s", method, resp.Status, body)
	}
	return a
}

// tool calls a tool and returns the text of its result, and what the result tells programs about
// the budget.
func (p *poster) tool(t *testing.T, name, args string) (text string, spent map[string]int, refused string) {
	t.Helper()
	a := p.ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
	var r struct {
		Content []struct{ Text string }
		Meta    struct {
			Tokens map[string]int        `json:"io.switchboard/tokens"`
			Error  struct{ Code string } `json:"io.switchboard/error"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(a.result, &r); err != nil || len(r.Content) == 0 {
		t.Fatalf("%s %s: %s %s", name, args, a.result, a.err)
	}
	return r.Content[0].Text, r.Meta.Tokens, r.Meta.Error.Code
}

// Tasks over servers that are not ours, most of which tell models about themselves. The rows of
// the budgets are filled in.
const budgets = `
-- switchboard.yaml --
start_deadline: 2m
servers:
  everything: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-everything/dist/index.js"]}
  files: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-filesystem/dist/index.js", "${workspace}"]}
  git: {transport: stdio, command: [node, "%[1]s/@cyanheads/git-mcp-server/dist/index.js"], env: {GIT_BASE_DIR: "${workspace}", MCP_LOG_LEVEL: error}}
  memory: {transport: stdio, command: [node, "%[1]s/@modelcontextprotocol/server-memory/dist/index.js"], env: {MEMORY_FILE_PATH: "${workspace}/memory.jsonl"}}
  cloud: {transport: stdio, command: ["%[2]s", sample, aws-like]}
  web: {transport: stdio, command: ["%[2]s", sample, nimbus-search]}
tenants: {example: {servers: ["*"], allow: [by_name], token_budget: 100000}}
-- tenants/example/tenant.yaml --
tenant: example
`

const budgeted = `
-- tenants/example/tasks/t%[1]d.yaml --
task_id: t%[1]d
token_budget: %[2]d
required_capabilities:
  - {tools: ["web/*"]}
  - {tools: ["git/*"], load: on_demand, group: versions}
  - {tools: ["cloud/*"], load: on_demand, group: cloud}
  - {tools: ["everything/*", "files/*", "memory/*"], load: on_demand, group: desk}
`

func TestFirstMinutes6NoneOfManyExpansionsIsATokenOverTheBudget(t *testing.T) {
	t.Parallel() // beside the servers that start late
	npmlock.Need(t, "expansions that a second tokenizer counts")
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(law.Seed(t), 0))
	text := fmt.Sprintf(budgets, modules, switchboard(t))
	const tasks, expansions = 3, 900
	for i := range tasks {
		text += fmt.Sprintf(budgeted, i, 4000+r.IntN(9000))
	}
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(text)).Files {
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
	asked, refused := 0, 0
	for i := range tasks {
		for _, era := range []string{legacy, modern} {
			e := expander{poster: connect(t, g.path(fmt.Sprint("t", i)), era), k: k, r: r, definitions: map[string][]byte{}}
			e.learn(t)
			for of := expansions / tasks / 2; of > 0 && !t.Failed(); {
				switch expanded, code := e.step(t); {
				case !expanded:
					continue
				case code != "":
					refused++
				}
				of--
				asked++
			}
		}
	}
	t.Logf("%d expansions, of which %d were refused; %d texts were counted", asked, refused, len(k.known))
	if !t.Failed() && (asked != expansions || refused < asked/10 || refused > asked*9/10) {
		t.Errorf("%d of %d expansions were refused: this shows little", refused, asked)
	}
}

// An expander is a client that expands and collapses tools at random.
type expander struct {
	*poster
	k            *tokenizer
	r            *rand.Rand
	instructions int // the tokens of the instructions that the client was given
	stubs        []string
	members      map[string][]string // the tools of each stub
	services     map[string][]string // the services of each stub
	definitions  map[string][]byte   // of the tools that were expanded, as the answers gave them
}

var (
	serviceRow  = regexp.MustCompile(`(?m)^- ([^ :]+): \d+ tool`)
	onlyService = regexp.MustCompile(`tools? of (\S+), with`)
	toolRow     = regexp.MustCompile(`(?m)^- (\S+) \(`)
)

// A budgetStatus is what switchboard_status says of the budget.
type budgetStatus struct {
	Budget       int `json:"token_budget"`
	Used         int `json:"tokens_used"`
	Instructions int `json:"instructions_tokens"`
	Groups       []struct {
		Stub     string
		Expanded []string
	}
}

func (e *expander) status(t *testing.T) (s budgetStatus) {
	t.Helper()
	text, _, _ := e.tool(t, "switchboard_status", "{}")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("switchboard_status: %v: %s", err, text)
	}
	return s
}

// learn finds out which instructions, stubs and tools there are.
func (e *expander) learn(t *testing.T) {
	t.Helper()
	told, ok := wire.Field(e.hello.result, "instructions")
	for _, id := range []string{"cloud", "everything"} {
		if !ok || !strings.Contains(string(told), `server \"`+id+`\"`) {
			t.Errorf("%s: the instructions have no words of %s: %s", e.era, id, told)
		}
	}
	e.instructions = e.k.count(t, told)
	e.members, e.services = map[string][]string{}, map[string][]string{}
	for _, g := range e.status(t).Groups {
		e.stubs = append(e.stubs, g.Stub)
		text, _, _ := e.tool(t, g.Stub, `{"action":"list"}`)
		read := func(service, text string) {
			e.services[g.Stub] = append(e.services[g.Stub], service)
			for _, m := range toolRow.FindAllStringSubmatch(text, -1) {
				e.members[g.Stub] = append(e.members[g.Stub], m[1])
			}
		}
		several := serviceRow.FindAllStringSubmatch(text, -1)
		for _, m := range several {
			text, _, _ := e.tool(t, g.Stub, fmt.Sprintf(`{"action":"list","service":%q}`, m[1]))
			read(m[1], text)
		}
		if m := onlyService.FindStringSubmatch(text); len(several) == 0 && m != nil {
			read(m[1], text)
		}
		if len(e.members[g.Stub]) < 20 {
			t.Fatalf("%s: %s has %q", e.era, g.Stub, e.members[g.Stub])
		}
	}
	e.check(t, "{}", nil)
}

// step asks a stub to expand or to collapse, and checks what is charged then. code says why an
// expansion was refused.
func (e *expander) step(t *testing.T) (expanded bool, code string) {
	t.Helper()
	stub := e.stubs[e.r.IntN(len(e.stubs))]
	action, which := "expand", ""
	if e.r.IntN(4) == 0 {
		action = "collapse"
	}
	if e.r.IntN(4) == 0 {
		which = fmt.Sprintf(`"service":%q`, e.services[stub][e.r.IntN(len(e.services[stub]))])
	} else {
		names := []string{}
		for range 1 + e.r.IntN(6) {
			names = append(names, e.members[stub][e.r.IntN(len(e.members[stub]))])
		}
		slices.Sort(names)
		list, err := json.Marshal(slices.Compact(names))
		if err != nil {
			t.Fatal(err)
		}
		which = `"tools":` + string(list)
	}
	args := fmt.Sprintf(`{"action":%q,%s}`, action, which)
	text, spent, code := e.tool(t, stub, args)
	if code != "" && code != "SB-LAZY-001" {
		t.Errorf("%s: %s %s was refused with %s: %s", e.era, stub, args, code, text)
	}
	if action == "expand" && code == "" {
		if _, list, ok := strings.Cut(text, ":\n["); ok { // what was not expanded before
			var tools []json.RawMessage
			if err := json.Unmarshal([]byte("["+list), &tools); err != nil {
				t.Fatalf("%s: %s: %v: %s", e.era, args, err, text)
			}
			e.define(t, tools)
		}
	}
	e.check(t, args, spent)
	return action == "expand", code
}

// define keeps the definitions of tools.
func (e *expander) define(t *testing.T, tools []json.RawMessage) {
	t.Helper()
	for _, raw := range tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		e.definitions[tool.Name] = raw
	}
}

// check counts everything that the client has been given, and compares it with the budget and
// with what is charged.
func (e *expander) check(t *testing.T, args string, spent map[string]int) {
	t.Helper()
	var list struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(e.ask(t, "tools/list", "{}").result, &list); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	sum := e.instructions
	for _, raw := range list.Tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		listed[tool.Name] = true
		sum += e.k.count(t, raw)
	}
	s := e.status(t)
	for _, g := range s.Groups {
		for _, name := range g.Expanded {
			if listed[name] != (e.era == legacy) {
				t.Errorf("%s: %s: %s is expanded, and listed: %v", e.era, args, name, listed[name])
			}
			if e.era == modern { // which has it from the answer, and not from the list
				sum += e.k.count(t, e.definitions[name])
			}
		}
	}
	if sum > s.Budget || sum != s.Used || s.Instructions != e.instructions {
		t.Errorf("%s: %s: %d tokens with %d of instructions, of a budget of %d; %d are charged, %d of them for instructions",
			e.era, args, sum, e.instructions, s.Budget, s.Used, s.Instructions)
	}
	if spent != nil && (spent["used"] != sum || spent["budget"] != s.Budget) {
		t.Errorf("%s: %s: the stub says %v, of %d tokens of %d", e.era, args, spent, sum, s.Budget)
	}
}
