//go:build agents && unix

package agents_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// patience is how long an agent may take for its whole conversation.
const patience = 3 * time.Minute

// An agent is a program of somebody else, and how it is told what to do.
type agent struct {
	name    string
	opens   string // what it says first
	relists bool   // it lists again when it is told that the list changed
	roots   bool   // it says where it works to a server that asks during a call
	program string // where the program is in node_modules; the platform is in its path
	script  bool   // the program is JavaScript, for node
	pkg     string // of package.json
	asked   treatment

	// prepare writes the agent's files into its home, where it works too, and
	// returns its arguments and environment.
	prepare func(t *testing.T, home, model string, s endpoint) (args, env []string)
}

// An endpoint is Switchboard as an agent is told of it: an address, or a command.
type endpoint struct {
	url     string
	command []string
	timeout time.Duration // of the agent for one call; 0 is its default
}

// A treatment is what an agent does, where no person is, when a server keeps it waiting or asks its person. Each asks for progress.
type treatment struct {
	extends  bool   // it goes on waiting after its own timeout, if there is progress
	declares string // its capability "elicitation"; "" is none
	empty    string // its answer to a form without fields; "" is never asked
	form     string // to a form with a field that is required
	page     string // to an address
}

// none reports whether the agent is told of no Switchboard.
func (s endpoint) none() bool { return s.url == "" && s.command == nil }

// prompt is what the person says. The model does not read it.
const prompt = "Use the tools."

var all = []agent{
	{
		name: "Claude Code", opens: "server/discover 2026-07-28", relists: true, roots: true,
		program: "@anthropic-ai/claude-code-*/claude", pkg: "@anthropic-ai/claude-code",
		asked: treatment{declares: `{"form":{},"url":{}}`, empty: "cancel", form: "cancel", page: "cancel"},
		prepare: func(t *testing.T, home, model string, s endpoint) (args, env []string) {
			env = []string{
				"ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=dummy", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
				"DISABLE_AUTOUPDATER=1", "ENABLE_TOOL_SEARCH=false",
			}
			if s.timeout != 0 {
				env = append(env, fmt.Sprintf("MCP_TOOL_TIMEOUT=%d", s.timeout.Milliseconds()))
			}
			if s.none() {
				return []string{"-p", prompt, "--allowedTools", "mcp__switchboard"}, env
			}
			server := object{"type": "http", "url": s.url}
			if s.url == "" {
				server = object{"type": "stdio", "command": s.command[0], "args": s.command[1:]}
			}
			file := write(t, home, "mcp.json", object{"mcpServers": object{"sb": server}})
			return []string{"-p", prompt, "--mcp-config", file, "--strict-mcp-config", "--allowedTools", "mcp__sb"}, env
		},
	},
	{
		name: "Codex", opens: "initialize 2025-06-18", relists: false,
		program: "@openai/codex-*/vendor/*/bin/codex", pkg: "@openai/codex",
		asked: treatment{declares: `{"form":{},"url":{}}`, empty: "accept", form: "decline", page: "decline"},
		prepare: func(t *testing.T, home, model string, s endpoint) (args, env []string) {
			server := fmt.Sprintf("[mcp_servers.sb]\nurl = %q", s.url)
			switch {
			case s.none():
				server = ""
			case s.url == "":
				server = fmt.Sprintf("[mcp_servers.sb]\ncommand = %q\nargs = [%s]", s.command[0], quoted(s.command[1:]))
			}
			// By default Codex gives a server one second, then asks the model without its tools: too little on a busy machine.
			if s.timeout != 0 {
				server += fmt.Sprintf("\ntool_timeout_sec = %g", s.timeout.Seconds())
			}
			write(t, home, ".codex/config.toml", fmt.Sprintf(`model = "scripted"
model_provider = "mock"
check_for_update_on_startup = false
mcp_optional_startup_grace_ms = 0
[analytics]
enabled = false
[features]
apps = false
plugins = false
remote_plugin = false
[model_providers.mock]
name = "mock"
base_url = %q
wire_api = "responses"
env_key = "DUMMY_KEY"
%s
`, model+"/v1", server))
			return []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt}, []string{"DUMMY_KEY=dummy"}
		},
	},
	{
		name: "Gemini CLI", opens: "initialize 2025-06-18", relists: true, roots: true,
		program: "@google/gemini-cli/bundle/gemini.js", script: true, pkg: "@google/gemini-cli",
		prepare: func(t *testing.T, home, model string, s endpoint) (args, env []string) {
			servers := object{"sb": object{"httpUrl": s.url}}
			switch {
			case s.none():
				servers = object{}
			case s.url == "":
				servers["sb"] = object{"command": s.command[0], "args": s.command[1:]}
			case s.timeout != 0:
				servers["sb"] = object{"httpUrl": s.url, "timeout": s.timeout.Milliseconds()}
			}
			write(t, home, ".gemini/settings.json", object{
				"mcpServers": servers,
				"security":   object{"auth": object{"selectedType": "gemini-api-key"}},
				"general":    object{"enableAutoUpdate": false, "disableAutoUpdate": true},
				"privacy":    object{"usageStatisticsEnabled": false},
				"telemetry":  object{"enabled": false},
			})
			// With no model named, it asks one which to take, and waits for the answer.
			return []string{"--skip-trust", "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p", prompt},
				[]string{"GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_API_KEY=dummy"}
		},
	},
	{
		name: "opencode", opens: "initialize 2025-11-25", relists: true, roots: true,
		program: "opencode-*/bin/opencode", pkg: "opencode-linux-x64",
		asked: treatment{extends: true},
		prepare: func(t *testing.T, home, model string, s endpoint) (args, env []string) {
			servers := object{"sb": object{"type": "remote", "url": s.url}}
			file := "opencode.json" // of the project
			switch {
			case s.none():
				servers, file = object{}, ".config/opencode/opencode.json" // of the user
			case s.url == "":
				servers["sb"] = object{"type": "local", "command": s.command}
			case s.timeout != 0:
				servers["sb"] = object{"type": "remote", "url": s.url, "timeout": s.timeout.Milliseconds()}
			}
			write(t, home, file, object{
				"model": "mock/scripted", "small_model": "mock/scripted", "autoupdate": false, "share": "disabled",
				"enabled_providers": []string{"mock"},
				"provider": object{"mock": object{
					"npm": "@ai-sdk/openai-compatible", "options": object{"baseURL": model + "/v1", "apiKey": "dummy"},
					"models": object{"scripted": object{"tool_call": true}},
				}},
				"mcp": servers,
			})
			// It would install a package for plugins, and waits for that at its end. Without a file of models, it reads its own list of thousands, which
			// takes a third of its processor time.
			return []string{"run", prompt}, []string{
				"OPENCODE_MODELS_PATH=" + write(t, home, "models.json", object{}),
				"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_PURE=1",
				"npm_config_offline=true", "npm_config_fetch_retries=0",
			}
		},
	},
}

type object = map[string]any

// write writes a file below a folder: text as it is, anything else as JSON.
func write(t *testing.T, dir, name string, content any) string {
	t.Helper()
	text, ok := content.(string)
	if !ok {
		raw, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func quoted(words []string) string {
	var q []string
	for _, w := range words {
		q = append(q, fmt.Sprintf("%q", w))
	}
	return strings.Join(q, ", ")
}

// find returns the agent's command line. An agent that has no package for this
// platform is missed as the packages themselves would be.
func (a agent) find(t *testing.T) []string {
	t.Helper()
	npmlock.Need(t, "agents")
	files, err := filepath.Glob(filepath.Join("node_modules", filepath.FromSlash(a.program)))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > 0 {
		file, err := filepath.Abs(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if a.script {
			return []string{"node", file}
		}
		return []string{file}
	}
	if os.Getenv("SWITCHBOARD_REQUIRE") == "1" {
		t.Fatalf("%s: required: it has no package for this platform", a.name)
	}
	t.Skipf("skipped: %s (it has no package for this platform)", a.name)
	return nil
}

// run lets the agent have its conversation, and returns what it says at the end.
func (a agent) run(t *testing.T, model string, s endpoint, more ...string) string {
	t.Helper()
	return a.runFor(t, patience, model, s, more...)
}

// runFor is run for a conversation that may take so long.
func (a agent) runFor(t *testing.T, long time.Duration, model string, s endpoint, more ...string) string {
	t.Helper()
	home := t.TempDir()
	args, env := a.prepare(t, home, model, s)
	return a.runIn(t, long, home, args, append(env, more...))
}

// runIn runs the agent's program in a home folder, and returns its output. It may take so long.
func (a agent) runIn(t *testing.T, long time.Duration, home string, args, env []string) string {
	t.Helper()
	words := a.find(t)
	var asked noise
	wall := listen(t, &asked)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], slices.Concat(words[1:], args)...)
	cmd.Dir = home
	cmd.Stdin = strings.NewReader("") // what it reads there becomes a part of the prompt
	cmd.Env = append(slices.Clone(env), "HOME="+home, "TMPDIR="+home, "PATH="+os.Getenv("PATH"), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		cmd.Env = append(cmd.Env, name+"="+wall, strings.ToLower(name)+"="+wall)
	}
	// What the agent starts must not outlive it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if p := cmd.ProcessState; p != nil {
		t.Logf("%s took %v, of a processor %v", a.name, time.Since(start).Round(100*time.Millisecond), (p.UserTime() + p.SystemTime()).Round(100*time.Millisecond))
	}
	if hosts := asked.hosts(); len(hosts) > 0 {
		t.Errorf("%s asked the network for %q, in vain", a.name, hosts)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it said:\n%s\n%s", &out, &errs)
		}
	})
	if wait.Overdue(ctx, err) {
		wait.Late(t, "%s: not after %s:\n%s\n%s", a.name, long, &out, &errs)
	}
	if err != nil {
		t.Errorf("%s: %v", a.name, err)
	}
	return out.String()
}

// noise is the proxy through which an agent would reach the network: it lets
// nothing through.
type noise struct {
	mu   sync.Mutex
	list []string
}

func (n *noise) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.list, r.Host) {
		n.list = append(n.list, r.Host)
	}
	http.Error(w, "no network here", http.StatusForbidden)
}

func (n *noise) hosts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// A backend is the server behind: unlock gives a nonce, and the roots of a client
// that has some, and makes another tool, unlocked, that gives a second nonce; look
// gives the agent time to see it. It speaks the legacy era only.
type backend struct {
	first, second string
	listed        <-chan struct{} // the list was asked for after it had changed
}

func (b *backend) handler() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "backend", Version: "1"}, nil)
	says := func(text func(context.Context, *mcp.ServerSession) string) mcp.ToolHandler {
		return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text(ctx, r.Session)}}}, nil
		}
	}
	tool := func(name string) *mcp.Tool {
		return &mcp.Tool{Name: name, Description: "Gives a word.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
	}
	server.AddTool(tool("unlock"), says(func(ctx context.Context, client *mcp.ServerSession) string {
		text := b.first
		if client.InitializeParams().Capabilities.RootsV2 != nil { //nolint:staticcheck // deprecated, and what agents answer with no person there
			roots, err := client.ListRoots(ctx, nil) //nolint:staticcheck // likewise
			if err != nil {
				return err.Error()
			}
			for _, root := range roots.Roots {
				text += " in " + root.URI
			}
		}
		server.AddTool(tool("unlocked"), says(func(context.Context, *mcp.ServerSession) string { return b.second }))
		return text
	}))
	server.AddTool(tool("look"), says(func(context.Context, *mcp.ServerSession) string {
		select {
		case <-b.listed:
		case <-time.After(2 * time.Second):
		}
		return "looked"
	}))
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

// looks is how often the model looks for the new tool before it gives up.
const looks = 10

// script unlocks, looks until the new tool is there if the agent will ever show
// it, calls it, and says what it was given.
func (b *backend) script(a agent) func(agents.Turn) agents.Reply {
	return func(turn agents.Turn) agents.Reply {
		unlock, look, unlocked := turn.Offers("unlock"), turn.Offers("look"), turn.Offers("unlocked")
		switch {
		case turn.Has(b.second):
			return agents.Reply{Say: "The words are " + b.first + " and " + b.second}
		case turn.Has(b.first) && unlocked != nil:
			return agents.Reply{Call: unlocked}
		case turn.Has(b.first) && a.relists && len(turn.Results) <= looks:
			return agents.Reply{Call: look}
		case turn.Has(b.first) || unlock == nil || len(turn.Results) > 0:
			return agents.Reply{Say: "The word is " + b.first}
		}
		return agents.Reply{Call: unlock}
	}
}

// An ear hears what a client says to Switchboard.
type ear struct {
	mu       sync.Mutex
	heard    []string
	lists    int
	answered int // of the questions for the list
	listed   chan struct{}
	messages []heardMessage
	called   func() // at each call of a tool; may be nil
}

// A heardMessage is a message of a client, with what the tests look at.
type heardMessage struct {
	Method string
	Params struct {
		ProtocolVersion, Name string
		Capabilities          asks // at the start of the legacy era
		Meta                  struct {
			Version       string          `json:"io.modelcontextprotocol/protocolVersion"`
			Capabilities  asks            `json:"io.modelcontextprotocol/clientCapabilities"`
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
}

// An asks is the part of a client's capabilities that says how its person can be asked.
type asks struct{ Elicitation json.RawMessage }

func newEar() *ear { return &ear{listed: make(chan struct{})} }

// hear takes a message of the client, and reports whether it is the question for the list.
func (e *ear) hear(message []byte) bool {
	var m heardMessage
	if json.Unmarshal(message, &m) != nil || m.Method == "" {
		m.Method = "(an answer)"
	}
	what := m.Params.ProtocolVersion + m.Params.Name
	if m.Method == "server/discover" {
		what = m.Params.Meta.Version
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, strings.TrimSpace(m.Method+" "+what))
	if e.messages = append(e.messages, m); m.Method == "tools/call" && e.called != nil {
		e.called()
	}
	if m.Method != "tools/list" {
		return false
	}
	if e.lists++; e.lists == 2 {
		close(e.listed)
	}
	return true
}

// answers is how many lists were answered.
func (e *ear) answers() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.answered
}

// relisted waits until more than n lists were answered, but no longer than so long.
func (e *ear) relisted(n int, long time.Duration) {
	for late := time.Now().Add(long); e.answers() <= n && time.Now().Before(late); {
		<-time.After(5 * time.Millisecond)
	}
}

// all returns what was heard, and how often it was the question for the list.
func (e *ear) all() (heard []string, lists int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard), e.lists
}

// before returns what stands before a switchboard and hears the client.
func (e *ear) before(t *testing.T, address string) string {
	t.Helper()
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host}) },
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			if e.hear(body) {
				defer func() {
					e.mu.Lock()
					e.answered++
					e.mu.Unlock()
				}()
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		} else {
			e.mu.Lock()
			e.heard = append(e.heard, "HTTP "+r.Method+" "+r.URL.Path)
			e.mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	})) + target.Path
}

// listen serves on loopback until the test is over, and returns the address. It
// waits for no stream that is still open.
func listen(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// relay stands before a switchboard on stdio: it is this test binary, started by
// the agent. It tells the test each line of the client.
func relay(tell string, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{}} // no proxy
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if answer, err := client.Post(tell, "application/json", bytes.NewReader(line)); err == nil {
				_ = answer.Body.Close()
			}
			if _, err := in.Write(line); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	return errors.Join(in.Close(), cmd.Wait())
}

func (e *ear) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if body, err := io.ReadAll(r.Body); err == nil {
		e.hear(body)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "word" {
		if err := serveWord(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "relay" {
		if err := relay(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(programs.Run(m))
}

// serve starts a switchboard, and returns its address.
func serve(t *testing.T, program, config string) string {
	t.Helper()
	return serveIn(t, os.Environ(), program, config)
}

// serveIn is serve in an environment.
func serveIn(t *testing.T, env []string, program, config string) string {
	t.Helper()
	cmd := exec.Command(program, "-v", "serve", "--listen", "127.0.0.1:0", "--config", config)
	cmd.Env = env
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if t.Failed() {
			t.Logf("Switchboard logged:\n%s", &log)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	return strings.TrimSpace(line)
}

func TestAgentsThatAreNotOursWorkThroughSwitchboard(t *testing.T) {
	t.Parallel()
	for _, a := range all {
		for _, transport := range []string{"http", "stdio"} {
			t.Run(a.name+"/"+transport, func(t *testing.T) {
				a.find(t)
				program, err := programs.Plain()
				if err != nil {
					t.Fatal(err)
				}
				e := newEar()
				b := &backend{first: rand.Text(), second: rand.Text(), listed: e.listed}
				dir := t.TempDir()
				config := write(t, dir, "switchboard.yaml", fmt.Sprintf("servers:\n  behind: {transport: http, url: %q}\ntenants:\n  default: {servers: [behind], allow: [by_name], trial: [behind]}\n", listen(t, b.handler())))
				write(t, dir, "tenants/default/tenant.yaml", "tenant: default\ndefault_task: all\n")                                                                // a tool that comes later is tried
				write(t, dir, "overlays/behind.yaml", "server: behind\ntools: {unlocked: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}}\n") // else a person is asked about it
				write(t, dir, "tenants/default/tasks/all.yaml", "task_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n")

				var s endpoint
				if transport == "http" {
					s.url = e.before(t, serve(t, program, config))
				} else {
					self, err := os.Executable()
					if err != nil {
						t.Fatal(err)
					}
					s.command = []string{self, "relay", listen(t, e), program, "stdio", "--alone", "--config", config}
				}
				model := &agents.Model{Script: b.script(a)}
				said := a.run(t, listen(t, model), s)

				heard, lists := e.all()
				t.Logf("to Switchboard it said: %q", heard)
				if len(heard) == 0 || heard[0] != a.opens {
					t.Errorf("it does not open with %s", a.opens)
				}
				last := model.Last()
				if !last.Has(b.first) {
					t.Errorf("the first word, %s, is not among the results in the conversation: %q", b.first, last.Results)
				}
				if !strings.Contains(said, b.first) {
					t.Errorf("the agent does not say %s in the end: %q", b.first, said)
				}
				if got := last.Has(b.first + " in file://"); got != a.roots {
					t.Errorf("the server was told the roots: %t, want %t; %q were the results", got, a.roots, last.Results)
				}
				if (lists > 1) != a.relists {
					t.Errorf("it listed %d times", lists)
				}
				if got := last.Has(b.second); got != a.relists {
					t.Errorf("it called the tool that came later: %t, want %t; it was offered %v, and %q were the results", got, a.relists, last.Tools, last.Results)
				}
			})
		}
	}
}
