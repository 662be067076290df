package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/summit-switchboard/switchboard/internal/identity"
)

// A contestant is a process between the clients and the backend.
type contestant struct {
	endpoint
	name string
	keys []string // as many as manySessions need; none where none is asked for
	pid  int      // 0 for direct, where nothing stands between
	side string   // where it can be profiled, if it can
	stop func()
}

// The names of the contestants. Every binary that -switchboard names is one
// more.
const (
	direct  = "direct"
	proxy   = "P"          // httputil.ReverseProxy
	naive   = "naive"      // mcp-go's client behind, mcp-go's server in front
	ours    = "sb"         // Switchboard, with a key, a task and limits
	keyless = "sb keyless" // the same without a key
)

// A stage is a backend and the contestants before it.
type stage struct {
	era   string
	tools int
	stdio bool
	fault string // of the backend; see its flag

	contestants []*contestant
	stops       []func()
}

// An arena is what all stages share.
type arena struct {
	self     string            // this program
	binaries map[string]string // of Switchboard, by contestant
	dir      string            // for configurations
}

// set starts the stage's backend and the contestants with these names.
func (a *arena) set(ctx context.Context, s *stage, names ...string) (err error) {
	defer func() {
		if err != nil {
			s.strike()
		}
	}()
	args := []string{"backend", "-era", s.era, "-tools", fmt.Sprint(s.tools), "-fault", s.fault}
	command := append(append([]string{a.self}, args...), "-stdio")
	var behind string
	if !s.stdio {
		p, err := start(ctx, "", a.self, args...)
		if err != nil {
			return err
		}
		s.stops = append(s.stops, p.stop)
		behind = p.address
	}
	for _, name := range names {
		c := &contestant{name: name, endpoint: endpoint{era: s.era}}
		var p *process
		switch name {
		case direct:
			p = &process{address: behind, stop: func() {}}
		case proxy:
			p, err = start(ctx, "", a.self, "proxy", behind)
		case naive:
			where := []string{"naive", behind}
			if s.stdio {
				where = append([]string{"naive", "-stdio"}, command...)
			}
			p, err = start(ctx, "", a.self, where...)
		default:
			p, c.keys, err = a.switchboard(ctx, name, behind, command, s.tools)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if c.url, err = url.Parse(p.address); err != nil {
			return err
		}
		c.pid, c.side, c.stop = p.pid, p.side, p.stop
		s.contestants = append(s.contestants, c)
		if len(c.keys) > 0 {
			c.key = c.keys[0]
		}
		if err := c.awake(s.tools); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// strike ends all of the stage's processes.
func (s *stage) strike() {
	for _, c := range s.contestants {
		c.stop()
	}
	for _, stop := range s.stops {
		stop()
	}
	s.contestants, s.stops = nil, nil
}

// awake has one session list the tools and call one.
func (c *contestant) awake(tools int) error {
	one, err := c.client(c.endpoint, "awake")
	if err != nil {
		return err
	}
	defer one.end()
	if _, err := one.list(tools); err != nil && !c.excused(err) {
		return err
	}
	for range 20 { // a backend with a fault does answer most
		if _, err := one.call(100); err == nil {
			return nil
		}
	}
	return errors.New("no call is answered")
}

// excused reports whether err is a cut answer of P (docs/benchmarks.md), which need not stop a measurement before its start.
func (c *contestant) excused(err error) bool { return c.name == proxy && errors.Is(err, errCut) }

// client opens one session.
func (c *contestant) client(e endpoint, name string) (*client, error) {
	for {
		one := newClient(e, name)
		err := one.open()
		if err == nil {
			return one, nil
		}
		one.hangUp()
		if !c.excused(err) {
			return nil, err
		}
	}
}

// sessionsEach is how many sessions each key opens, within Switchboard's limit for one principal.
const sessionsEach = 200

// clients opens n sessions.
func (c *contestant) clients(n int) ([]*client, error) {
	var all []*client
	for i := range n {
		e := c.endpoint
		if len(c.keys) > 0 {
			e.key = c.keys[i/sessionsEach]
		}
		one, err := c.client(e, fmt.Sprintf("%s%d", strings.ReplaceAll(c.name, " ", ""), i))
		if err != nil {
			end(all)
			return nil, fmt.Errorf("%s: session %d: %w", c.name, i, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func end(clients []*client) {
	for _, c := range clients {
		c.end()
	}
}

// switchboard lays out a configuration for so many tools, and serves it with the
// binary of that name.
func (a *arena) switchboard(ctx context.Context, name, behind string, command []string, tools int) (p *process, keys []string, err error) {
	// What it says of its tools counts: its tools only read.
	at := fmt.Sprintf("{transport: http, url: %q, trust: operator}", behind)
	if behind == "" {
		at = fmt.Sprintf("{transport: stdio, trust: operator, command: [%s]}", strings.Join(quoted(command), ", "))
	}
	rows := ""
	if name != keyless {
		keys, rows = mint((manySessions + sessionsEach - 1) / sessionsEach)
	}
	budget := ""
	if tools > 10 { // else they fit; an older binary does not know the key
		budget = "token_budget: 10000000\n"
	}
	p, err = a.serve(ctx, name, map[string]string{
		"switchboard.yaml": budget + "servers:\n  bench: " + at + "\ntenants:\n  default: {servers: [bench]}\n",
		"tenants/default/tenant.yaml": `tenant: default
default_task: look
ranking:
  prefer: [{verb: search, resource: internet, servers: [bench]}]
limits:
  - {match: {constraint: rate_limited}, rate: 1000000/s, burst: 1000000}
` + rows,
		"tenants/default/tasks/look.yaml": `task_id: look
required_capabilities:
  - {verb: search, resource: internet, constraints: [readonly]}
`,
	})
	return p, keys, err
}

// mint makes keys for the task "look", and their rows in a tenant's file.
func mint(n int) (keys []string, rows string) {
	rows = "keys:\n"
	for i := range n {
		key, hash := identity.Mint()
		keys = append(keys, key)
		rows += fmt.Sprintf("  - {id: bench-%d, hash: %q, tasks: [look]}\n", i, hash)
	}
	return keys, rows
}

// serve serves the files as a configuration, with the binary of that name.
func (a *arena) serve(ctx context.Context, name string, files map[string]string) (*process, error) {
	dir, err := os.MkdirTemp(a.dir, "")
	if err != nil {
		return nil, err
	}
	for file, text := range files {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return start(ctx, dir, a.binaries[name], "serve", "--listen", "127.0.0.1:0")
}

func quoted(ss []string) (q []string) {
	for _, s := range ss {
		q = append(q, fmt.Sprintf("%q", s))
	}
	return q
}

// A process is a contestant or a backend that runs.
type process struct {
	pid     int
	address string // where it serves, from the first line of its stdout
	side    string // where it can be profiled, if it can
	stop    func()
}

// start starts a process that prints its address on its first line.
func start(ctx context.Context, dir, program string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SWITCHBOARD_RESULTS=whole") // a proxy gives no previews either
	log := &tail{}
	cmd.Stderr = log
	cmd.WaitDelay = 5 * time.Second // its children may hold pipes open
	dieWithUs(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // its exit code does not matter
		timer.Stop()
	}
	p := &process{pid: cmd.Process.Pid, stop: stop}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, fmt.Errorf("%s %s gave no address:\n%s", program, strings.Join(args, " "), log)
	}
	p.address, p.side, _ = strings.Cut(strings.TrimSpace(line), " ")
	return p, nil
}

// A tail keeps the end of the text that is written to it.
type tail struct{ text []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if n := len(t.text) - 4<<10; n > 0 {
		t.text = t.text[n:]
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.text) }

// listen serves h and prints where.
func listen(ctx context.Context, address string, h http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	side := ""
	if os.Getenv(sideVariable) != "" {
		if side, err = sideDoor(); err != nil {
			return err
		}
	}
	fmt.Printf("http://%s/mcp %s\n", l.Addr(), side)
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// runProxy runs P, the plain reverse proxy that is the baseline of all ratios. Its one setting is the number of idle connections: with the default it
// would dial for most calls.
func runProxy(ctx context.Context, args []string) error {
	to, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	to.Path = ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1000
	return listen(ctx, "127.0.0.1:0", &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	})
}

// runNaive runs the gateway that an engineer would write with mcp-go in an afternoon: it lists the tools behind, offers them in front, and forwards
// each call.
func runNaive(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("naive", flag.ContinueOnError)
	stdio := f.Bool("stdio", false, "the arguments are a command, not an address")
	if err := f.Parse(args); err != nil {
		return err
	}
	args = f.Args()
	var c *mcpclient.Client
	var err error
	if *stdio {
		c, err = mcpclient.NewStdioMCPClient(args[0], nil, args[1:]...)
	} else if c, err = mcpclient.NewStreamableHttpClient(args[0]); err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	hello := mcp.InitializeRequest{}
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "naive", Version: "1"}
	if _, err := c.Initialize(ctx, hello); err != nil {
		return err
	}
	behind, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return err
	}
	s := server.NewMCPServer("naive", "1", server.WithToolCapabilities(false))
	for _, t := range behind.Tools {
		s.AddTool(t, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return c.CallTool(ctx, r)
		})
	}
	return listen(ctx, "127.0.0.1:0", server.NewStreamableHTTPServer(s))
}

// build builds Switchboard from the sources of this program.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "switchboard")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/summit-switchboard/switchboard/cmd/switchboard")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build switchboard: %w\n%s", err, out)
	}
	return binary, nil
}
