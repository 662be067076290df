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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/summit-switchboard/switchboard/internal/identity"
)

// A contestant is a process between the clients and the backend.
type contestant struct {
	endpoint
	name string
	keys []string // as many as manySessions need; none where none is asked for
	pid  int      // 0 for direct, where nothing stands between
	side string   // where it can be profiled, if it can

	admin, person string // the admin address of a Switchboard, and a person's key for it; "" if it is not looked at from the side
	stop          func()
}

// The names of the contestants.
const (
	direct  = "direct"
	proxy   = "P"            // httputil.ReverseProxy, tuned
	untuned = "P untuned"    // the same as it comes
	floor   = "relay"        // the least that a gateway does
	synced  = "relay synced" // the same, after a durable append to a file; for one session
	naive   = "naive"        // mcp-go's client behind, mcp-go's server in front
	ours    = "sb"           // Switchboard, with a key, a task and limits; its calls read
)

// These are the other ways to run a binary of Switchboard. The contestant's name is the name of the binary and then the way. Every binary that -switchboard
// names can run in each way.
const (
	effects  = " effects"      // like ours, but the server says nothing about its tools, and so each call has an effect
	newcomer = " default"      // serve --mcp-config, and the server says nothing about its tools; so nothing is written
	keeper   = " default file" // the same with --data, and so with receipts in a file
	again    = " again"        // exactly like ours: the difference is noise
	header   = " header"       // like ours, with a token in the headers of its row
	hosted   = " hosted"       // the same with a token of the vault, which it gets at an authorization server
)

// splitName returns the name of the binary and the way to run it.
func splitName(name string) (binary, way string) {
	for _, way := range []string{effects, newcomer, keeper, again, header, hosted} {
		if binary, ok := strings.CutSuffix(name, way); ok {
			return binary, way
		}
	}
	return name, ""
}

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
	behind, err := a.backend(ctx, s, false)
	if err != nil {
		return err
	}
	var silent server
	for _, name := range names {
		c := &contestant{name: name, endpoint: endpoint{era: s.era}}
		var p *process
		switch name {
		case direct:
			p = &process{address: behind.address, stop: func() {}}
		case proxy:
			p, err = start(ctx, "", a.self, "proxy", behind.address)
		case untuned:
			p, err = start(ctx, "", a.self, "proxy", "-untuned", behind.address)
		case floor:
			p, err = start(ctx, "", a.self, "relay", behind.address)
		case synced:
			p, err = start(ctx, "", a.self, "relay", "-sync", filepath.Join(a.dir, "synced-"+s.era), behind.address)
		case naive:
			where := []string{"naive", behind.address}
			if s.stdio {
				where = append([]string{"naive", "-stdio"}, behind.command...)
			}
			p, err = start(ctx, "", a.self, where...)
		default:
			to := behind
			if _, way := splitName(name); slices.Contains([]string{effects, newcomer, keeper}, way) {
				if silent.none() {
					if silent, err = a.backend(ctx, s, true); err != nil {
						return err
					}
				}
				to = silent
			}
			p, c.keys, err = a.switchboard(ctx, name, to, s.tools)
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

// A server is a backend that a contestant stands before: its address, or the command that starts it.
type server struct {
	address string
	command []string
}

func (s server) none() bool { return s.address == "" && s.command == nil }

// backend starts a backend of the stage, or returns how to start it if it is on stdio.
func (a *arena) backend(ctx context.Context, s *stage, silent bool) (server, error) {
	args := []string{"backend", "-era", s.era, "-tools", fmt.Sprint(s.tools), "-fault", s.fault}
	if silent {
		args = append(args, "-silent")
	}
	if s.stdio {
		return server{command: append(append([]string{a.self}, args...), "-stdio")}, nil
	}
	p, err := start(ctx, "", a.self, args...)
	if err != nil {
		return server{}, err
	}
	s.stops = append(s.stops, p.stop)
	return server{address: p.address}, nil
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

// excused reports whether err is a cut answer of the untuned proxy (docs/benchmarks.md), which need not stop a measurement before its start.
func (c *contestant) excused(err error) bool { return c.name == untuned && errors.Is(err, errCut) }

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

// switchboard lays out a configuration for so many tools, and serves it with the binary and in the way of that name.
func (a *arena) switchboard(ctx context.Context, name string, behind server, tools int) (p *process, keys []string, err error) {
	_, way := splitName(name)
	if way == newcomer || way == keeper {
		flags := []string{"--mcp-config", newcomerFile}
		if way == keeper {
			flags = append(flags, "--data", ".switchboard")
		}
		p, err = a.serve(ctx, name, newcomerFiles(behind), flags...)
		return p, nil, err
	}
	// What the server says of its tools counts: they only read.
	at := fmt.Sprintf("{transport: http, url: %q, trust: operator}", behind.address)
	if behind.address == "" {
		at = fmt.Sprintf("{transport: stdio, trust: operator, command: [%s]}", strings.Join(quoted(behind.command), ", "))
	}
	switch way {
	case header:
		at = fmt.Sprintf("{transport: http, url: %q, trust: operator, headers: {Authorization: \"Bearer ${file:token}\"}}", behind.address)
	case hosted:
		var issuer string
		var shut func()
		if issuer, shut, err = authorize(ctx); err != nil {
			return nil, nil, err
		}
		defer func() {
			if err != nil {
				shut()
				return
			}
			end := p.stop
			p.stop = func() { end(); shut() }
		}()
		at = fmt.Sprintf("{transport: http, url: %q, trust: operator, credential: {client: {id: bench, secret: \"${file:token}\", issuer: %q}}}", behind.address, issuer)
	}
	keys, rows := mint((manySessions + sessionsEach - 1) / sessionsEach)
	budget := ""
	if tools > 10 { // else they fit; an older binary does not know the key
		budget = "token_budget: 10000000\n"
	}
	files := map[string]string{
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
	}
	if way == header || way == hosted {
		files["token"] = benchToken
	}
	if way == effects { // an overlay gives the tools the capability that the task requires, but does not say that they only read
		var overlay strings.Builder
		overlay.WriteString("server: bench\ntools:\n")
		for i := range tools {
			fmt.Fprintf(&overlay, "  %s: {capabilities: [{verb: search, resource: internet, constraints: [rate_limited]}]}\n", toolName(echo, i))
		}
		files["overlays/bench.yaml"] = overlay.String()
		files["tenants/default/tasks/look.yaml"] = "task_id: look\nrequired_capabilities:\n  - {verb: search, resource: internet}\n"
	}
	p, err = a.serve(ctx, name, files)
	return p, keys, err
}

// newcomerFile is the file that a newcomer's client already has.
const newcomerFile = "mcp.json"

// newcomerFiles is a folder with newcomerFile, which names the server and says nothing else.
func newcomerFiles(behind server) map[string]string {
	at := fmt.Sprintf(`"type":"http","url":%q`, behind.address)
	if behind.address == "" {
		at = fmt.Sprintf(`"command":%q,"args":[%s]`, behind.command[0], strings.Join(quoted(behind.command[1:]), ","))
	}
	return map[string]string{newcomerFile: `{"mcpServers":{"bench":{` + at + `}}}`}
}

// mint makes keys for the task "look", and their rows in a tenant's file.
func mint(n int) (keys []string, rows string) {
	rows = "keys:\n"
	for i := range n {
		key, hash := identity.Mint(identity.AgentPrefix)
		keys = append(keys, key)
		rows += fmt.Sprintf("  - {id: bench-%d, hash: %q, tasks: [look]}\n", i, hash)
	}
	return keys, rows
}

// serve serves the files as a configuration, with the binary of that name and with further flags.
func (a *arena) serve(ctx context.Context, name string, files map[string]string, flags ...string) (*process, error) {
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
	binary, _ := splitName(name)
	return start(ctx, dir, a.binaries[binary], append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
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
	dir     string // its folder
	address string // where it serves, from the first line of its stdout
	side    string // where it can be profiled, if it can
	began   time.Time
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
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // its exit code does not matter
		timer.Stop()
	}
	p := &process{pid: cmd.Process.Pid, dir: dir, began: began, stop: stop}
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
	return listenOn(ctx, l, h)
}

// listenOn is listen with a listener that is open already.
func listenOn(ctx context.Context, l net.Listener, h http.Handler) (err error) {
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
	s := mcpserver.NewMCPServer("naive", "1", mcpserver.WithToolCapabilities(false))
	for _, t := range behind.Tools {
		s.AddTool(t, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return c.CallTool(ctx, r)
		})
	}
	return listen(ctx, "127.0.0.1:0", mcpserver.NewStreamableHTTPServer(s))
}

// copyProgram copies a program, so that the copy can be removed from the system's cache while the program runs.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from) //nolint:gosec // this program
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o700) //nolint:gosec // it is started
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
