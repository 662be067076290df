package npm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	front "github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/run"
	words "github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A fetched is a server that npx fetches and starts.
type fetched struct {
	id, pkg string
	args    []string
	env     map[string]string
	tools   int // in its list
	call    op
	says    string // in the result of the call
}

// eight are the servers of a person's first configuration. {services} is the address of the
// services that they ask, and {work} is their folder.
var eight = []fetched{
	{id: "everything", pkg: "@modelcontextprotocol/server-everything", tools: 13, call: call("echo", `{"message":"cold"}`), says: "cold"},
	{id: "files", pkg: "@modelcontextprotocol/server-filesystem", args: []string{"{work}"}, tools: 14, call: call("list_allowed_directories", `{}`), says: "{work}"},
	{id: "git", pkg: "@cyanheads/git-mcp-server", env: map[string]string{"GIT_BASE_DIR": "{work}", "MCP_LOG_LEVEL": "error"}, tools: 28, call: call("git_log", `{"path":"{work}/repo"}`), says: "first"},
	{id: "memory", pkg: "@modelcontextprotocol/server-memory", env: map[string]string{"MEMORY_FILE_PATH": "{work}/memory.jsonl"}, tools: 9, call: call("read_graph", `{}`), says: "entities"},
	{id: "passwords", pkg: "@takescake/1password-mcp", tools: 15, call: call("password_generate", `{}`), says: "password"},
	{id: "perplexity", pkg: "@perplexity-ai/mcp-server", env: map[string]string{"PERPLEXITY_API_KEY": "${file:{work}/key}", "PERPLEXITY_BASE_URL": "{services}/perplexity"}, tools: 4, call: call("perplexity_search", `{"query":"x"}`), says: "Perplexity has it"},
	{id: "searxng", pkg: "mcp-searxng", env: map[string]string{"SEARXNG_URL": "{services}/searxng"}, tools: 4, call: call("searxng_web_search", `{"query":"x"}`), says: "SearXNG has x"},
	{id: "thinking", pkg: "@modelcontextprotocol/server-sequential-thinking", tools: 1, call: call("sequentialthinking", `{"thought":"first","thoughtNumber":1,"totalThoughts":2,"nextThoughtNeeded":true}`), says: "totalThoughts"},
}

// npxServers returns the servers of a switchboard.yaml. npx runs each of them at the version of
// package.json, and keeps what it fetches in the cache.
func npxServers(t *testing.T, cache string) string {
	t.Helper()
	text, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	var pinned struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &pinned); err != nil {
		t.Fatal(err)
	}
	servers := map[string]any{}
	for _, s := range eight {
		version := pinned.Dependencies[s.pkg]
		if version == "" {
			t.Fatalf("package.json does not name %s", s.pkg)
		}
		env := map[string]string{"npm_config_cache": cache, "npm_config_ignore_scripts": "true"}
		for _, setting := range os.Environ() { // which says where the registry is
			name, _, _ := strings.Cut(setting, "=")
			if reaches.MatchString(name) && env[name] == "" {
				env[name] = "${env:" + name + "}"
			}
		}
		maps.Copy(env, s.env)
		allowed := []string{}
		for name := range env {
			if words.RefusedVariable(name) != "" {
				allowed = append(allowed, name)
			}
		}
		servers[s.id] = map[string]any{"transport": "stdio", "command": append([]string{"npx", "-y", s.pkg + "@" + version}, s.args...), "env": env, "allow_env": allowed}
	}
	yaml, err := json.Marshal(servers) // JSON is YAML too
	if err != nil {
		t.Fatal(err)
	}
	return string(yaml)
}

// reaches matches the environment variables by which npm reaches its registry.
var reaches = regexp.MustCompile(`(?i)^(npm_config_.+|https?_proxy|no_proxy|node_extra_ca_certs)$`)

// A firstUse is what one client saw of a start, in time since Switchboard was started.
type firstUse struct {
	connected, listed, called, all time.Duration

	asked        time.Duration   // when the client asked for the first list
	tools        []string        // of the servers, in the first list
	whole        []string        // of the servers, in the list after the calls
	waitsAtHello bool            // servers had not answered when the client was connected
	waitsAtList  bool            // servers had not answered when the first list was answered
	calls        []time.Duration // when the call of each of the eight was answered

	late  wait.Lateness
	wrong []string
}

// discoverProbe is how long a client of mcp-go waits for server/discover before it speaks the older era.
const discoverProbe = 5 * time.Second

// useAtOnce connects a client of the era, lists once, calls a tool of each server at the same
// time, and lists again.
func useAtOnce(ctx context.Context, g gateway, era string, began time.Time, in *strings.Replacer) *firstUse {
	u := &firstUse{calls: make([]time.Duration, len(eight))}
	failed := func(what string, err error) bool {
		switch {
		case wait.Overdue(ctx, err):
			u.late.Add("%s: %v", what, err)
		case err != nil:
			u.wrong = append(u.wrong, fmt.Sprintf("%s: %v", what, err))
		}
		return err != nil
	}
	c, err := mcpgo.NewStreamableHttpClient(g.url+"/mcp", transport.WithHTTPTimeout(2*patience))
	if failed("a client", err) || failed("start", c.Start(ctx)) {
		return u
	}
	defer c.Close() //nolint:errcheck // all is answered
	_, err = c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: era, ClientInfo: mcp.Implementation{Name: "test", Version: "1"},
	}})
	u.connected = time.Since(began)
	u.waitsAtHello = g.waits()
	if failed("initialize", err) {
		return u
	}
	switch {
	case c.ProtocolVersion() == era:
	case u.connected >= discoverProbe:
		u.late.Add("server/discover took so long that the client speaks %s", c.ProtocolVersion())
		return u
	default:
		u.wrong = append(u.wrong, "it speaks "+c.ProtocolVersion())
	}
	list := func() (names []string) {
		l, err := c.ListTools(ctx, mcp.ListToolsRequest{})
		if failed("tools/list", err) {
			return nil
		}
		for _, tool := range l.Tools {
			if !strings.HasPrefix(tool.Name, "switchboard_") { // our own
				names = append(names, tool.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	u.asked = time.Since(began)
	u.tools = list()
	u.listed = time.Since(began)
	u.waitsAtList = g.waits()

	errs := make([]error, len(eight))
	var calls sync.WaitGroup
	for i, s := range eight {
		calls.Go(func() {
			errs[i] = callOf(ctx, c, s.call, in)
			u.calls[i] = time.Since(began)
		})
	}
	calls.Wait()
	for i, s := range eight {
		failed(s.id+": "+s.call.Name, errs[i])
	}
	u.called, u.all = slices.Min(u.calls), slices.Max(u.calls)
	u.whole = list()
	return u
}

// callOf calls the tool of a server that may be starting, until ctx ends. Only a call that has waited for as long
// as Switchboard lets calls wait may be told that the server or its tool is not there, and comes again.
func callOf(ctx context.Context, c *mcpgo.Client, o op, in *strings.Replacer) error {
	says := ""
	for _, s := range eight {
		if s.call.Name == o.Name {
			says = in.Replace(s.says)
		}
	}
	for {
		asked := time.Now()
		arguments := json.RawMessage(in.Replace(string(o.Args)))
		r, err := c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: o.Name, RawArguments: arguments, Arguments: arguments}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			raw, err := json.Marshal(r.Content)
			if err != nil {
				return err
			}
			if text = string(raw); !r.IsError && strings.Contains(text, says) {
				return nil
			}
		}
		notThere := slices.ContainsFunc([]string{"SB-ROUT-001", "SB-DISC-002", "Unknown tool: " + o.Name}, func(say string) bool { return strings.Contains(text, say) })
		if took := time.Since(asked); took < front.StartWait || !notThere {
			return fmt.Errorf("after %s: %s", took, text)
		}
	}
}

func TestFirstMinutes2EightServersThatNPXFetchesServeClientsThatComeAtOnce(t *testing.T) {
	t.Parallel() // it waits for npm
	const what = "eight npx servers with an empty npm cache"
	npmlock.NeedRegistry(t, what, "@modelcontextprotocol/server-memory")
	url, _ := services(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, cache := filepath.Join(dir, "work"), filepath.Join(dir, "cache")
	repository(t, filepath.Join(work, "repo"))
	if err := os.WriteFile(filepath.Join(work, "key"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := strings.NewReplacer("{work}", filepath.ToSlash(work), "{services}", url)
	yaml := "start_deadline: 2m\ntoken_budget: 60000\nservers: " + in.Replace(npxServers(t, cache)) + "\n"
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, s := range eight {
		want += s.tools
	}
	switchboard(t) // it is built once, which takes no part in the figures

	fetchedNow := func() int {
		dirs, err := os.ReadDir(filepath.Join(cache, "_npx"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(dirs)
	}
	starts := [2]firstStart{}
	for i, name := range []string{"with an empty cache", "the second time"} {
		t.Run(name, func(t *testing.T) {
			if i == 1 && starts[0].by == nil {
				wait.Late(t, "the first start was late, so npx may not have fetched all packages, and Switchboard may not have seen all tools")
			}
			if n := fetchedNow(); n != i*len(eight) {
				t.Errorf("npx has fetched %d packages before", n)
			}
			starts[i] = startAndUse(t, dir, in)
			for era, u := range starts[i].by {
				switch {
				case len(u.whole) != want:
					t.Errorf("%s: %d tools are listed when all servers have answered, want %d: %q", era, len(u.whole), want, u.whole)
				case len(u.tools) > 0 && slices.ContainsFunc(u.tools, func(n string) bool { return !slices.Contains(u.whole, n) }):
					t.Errorf("%s: the first list has tools that the last has not: %q", era, u.tools)
				case i == 0 && u.waitsAtList && u.listed-u.asked < run.ListPatience:
					t.Errorf("%s: a first list waited %s for servers that are starting, want %s", era, u.listed-u.asked, run.ListPatience)
				case i == 1 && !slices.Equal(u.tools, u.whole):
					t.Errorf("%s: the first list has %d of %d tools", era, len(u.tools), len(u.whole))
				case i == 1 && !u.waitsAtList:
					wait.Late(t, "%s: the servers had answered when the first list was: this shows nothing", era)
				}
			}
		})
	}
	if t.Failed() || starts[0].by == nil || starts[1].by == nil {
		return
	}
	table := tableOf(starts)
	t.Logf("\n%s", table)
	onPage(t, "../../docs/operate.md", "first start", table)
}

// A firstStart is what clients of both eras saw of a start.
type firstStart struct {
	port time.Duration
	by   map[string]*firstUse
}

// startAndUse starts a Switchboard on the folder, and lets a client of each era use it at once.
func startAndUse(t *testing.T, dir string, in *strings.Replacer) (s firstStart) {
	t.Helper()
	began := time.Now()
	g := serveAtOnce(t, dir)
	s.port, s.by = time.Since(began), map[string]*firstUse{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	uses := [2]*firstUse{}
	eras := [2]string{legacy, modern}
	var clients sync.WaitGroup
	for i, era := range eras {
		clients.Go(func() { uses[i] = useAtOnce(ctx, g, era, began, in) })
	}
	clients.Wait()
	late := &wait.Lateness{}
	for i, era := range eras {
		u := uses[i]
		s.by[era] = u
		for _, w := range u.wrong {
			t.Errorf("%s: %s", era, w)
		}
		if u.late.Any() {
			u.late.State(t)
		}
		if !u.waitsAtHello {
			late.Add("%s: the servers had answered when initialize was: this shows nothing", era)
		}
	}
	late.State(t)
	return s
}

// tableOf is the table of a first and a second start.
func tableOf(starts [2]firstStart) string {
	var b strings.Builder
	b.WriteString("| seconds after the start | empty cache, legacy client | modern client | second start, legacy client | modern client |\n| --- | --- | --- | --- | --- |\n")
	row := func(step string, cell func(s *firstStart, u *firstUse) string) {
		b.WriteString("| " + step + " |")
		for i := range starts {
			for _, era := range []string{legacy, modern} {
				b.WriteString(" " + cell(&starts[i], starts[i].by[era]) + " |")
			}
		}
		b.WriteString("\n")
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
	row("the port answers", func(s *firstStart, _ *firstUse) string { return seconds(s.port) })
	row("the client is connected", func(_ *firstStart, u *firstUse) string { return seconds(u.connected) })
	row("the first list is answered", func(_ *firstStart, u *firstUse) string {
		return fmt.Sprintf("%s (%d of %d tools)", seconds(u.listed), len(u.tools), len(u.whole))
	})
	row("the first call is answered", func(_ *firstStart, u *firstUse) string { return seconds(u.called) })
	row("a call of each server is answered", func(_ *firstStart, u *firstUse) string { return seconds(u.all) })
	return b.String()
}

// onPage writes the table between the marks of that name on the page, where UPDATE is set. Else it
// checks that the page has a table with the same first column.
func onPage(t *testing.T, page, name, table string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	from, to := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(string(text), from)
	was, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatal(errors.New(page + " has no " + from + to))
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(page, []byte(before+from+table+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	steps := regexp.MustCompile(`(?m)^\| [^|]* \|`)
	if got, want := steps.FindAllString(was, -1), steps.FindAllString(table, -1); !slices.Equal(got, want) {
		t.Errorf("%s has a table of the steps\n%q, and they are\n%q: run this with UPDATE=1", page, got, want)
	}
}
