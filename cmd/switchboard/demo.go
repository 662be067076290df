package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/standing"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/tenants"
)

//go:embed demo.yaml
var demoConfig string

// demoFiles stand beside the configuration of the demo.
//
//go:embed demo
var demoFiles embed.FS

type demoCmd struct {
	Keep   bool   `help:"Continue to serve afterwards, for your own client, until interrupted."`
	Listen string `help:"Listen on ADDR." default:"127.0.0.1:0" placeholder:"ADDR"`
}

const (
	demoTenant switchboard.TenantID = "example"
	demoTask   switchboard.TaskID   = "research"

	// demoContractTask requires a named capability.
	demoContractTask switchboard.TaskID = "ask"

	demoCapability = "web.search"
)

// Run starts the gateway and the sample servers over real transports, and prints each step of the
// demo.
func (d *demoCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	dir, err := os.MkdirTemp("", "switchboard-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // files that remain there do no harm
	nimbus, err := writeDemoConfig(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { nimbus.stop() }()

	files := commonFlags{Config: filepath.Join(dir, "switchboard.yaml"), Tenant: demoTenant}
	if !log.Enabled(ctx, slog.LevelDebug) {
		log = slog.New(slog.DiscardHandler) // the demo prints to stdout; -v shows the log too
	}
	began := time.Now()
	o := app.Options{Serves: true, Listen: d.Listen}
	var vars variables
	if d.Keep {
		o.Data, o.Officers.Listen, o.Configured = filepath.Join(dir, ".switchboard"), true, vars.set
	}
	a, err := files.startApp(ctx, log, o)
	if err != nil {
		return err
	}
	defer a.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	if err := a.Ready(ctx); err != nil {
		return err
	}

	agents, _ := a.Addresses()
	reload := make(chan os.Signal, 1)
	go a.Watch(ctx, reload)
	s := demoStory{w: io.out, a: a, dir: dir, reload: reload, url: "http://" + agents.String(), took: time.Since(began)}
	if d.Keep { // commands find it by its configuration
		defer files.shareApp(ctx, a, shareOptions{Log: log, Results: "bounded", URL: s.url, Linger: forEver, Variables: &vars})()
	}
	if err := s.narrate(ctx); err != nil {
		return err
	}
	if !d.Keep {
		fmt.Fprintf(io.out, "\nThat was it, and everything is stopped again. To try it with your own client:  switchboard demo --keep\n")
		cancel()
		return <-served
	}
	s.writeHeading("What the page has to show: a call that waits for you, a change of a file, and a server that fails and comes back with other words")
	if err := s.leaveForPage(ctx, nimbus); err != nil {
		return err
	}
	page, err := app.PageAddress(ctx, a)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.out, "\nThe page shows what has happened. This address signs your browser in once, within a minute:\n\n   %s\n", page)
	fmt.Fprintf(io.out, "\nLater, this command opens the page:\n\n   switchboard page --config %s\n", files.Config)
	fmt.Fprintf(io.out, "\nServing %s/mcp until you press Ctrl-C. The configuration is in %s.\n", s.url, dir)
	return <-served
}

// writeDemoConfig writes the demo's configuration into dir and starts the one server
// that Switchboard does not start itself.
func writeDemoConfig(ctx context.Context, dir string) (*httpSample, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	code := filepath.Join(dir, "code")
	if err := os.Mkdir(code, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(code, "login.go"), []byte(demoSource), 0o644); err != nil {
		return nil, err
	}
	example, err := fs.Sub(tenants.Example, "example")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(dir, "tenants", "example"), example); err != nil {
		return nil, err
	}
	more, err := fs.Sub(demoFiles, "demo")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, more); err != nil {
		return nil, err
	}
	nimbus := &httpSample{program: program, name: "nimbus-search", address: "127.0.0.1:0"}
	if err := nimbus.start(ctx); err != nil {
		return nil, err
	}
	text := strings.NewReplacer("SELF", strconv.Quote(program), "NIMBUS", nimbus.url, "CODE", strconv.Quote(code)).Replace(demoConfig)
	if err := os.WriteFile(filepath.Join(dir, "switchboard.yaml"), []byte(text), 0o600); err != nil {
		nimbus.stop()
		return nil, err
	}
	return nimbus, nil
}

// demoSource is the file that the code-reader sample reads.
const demoSource = `package login

// Verify reports whether the domain that sent the mail is one of ours.
func Verify(domain string) bool {
	return domain == "example.com" // look-alikes such as examp1e.com are not
}
`

// An httpSample is a sample server that Switchboard does not start itself.
type httpSample struct {
	program, name, address string
	reworded               bool // describes a tool in other words
	url                    string
	stop                   func()
}

// start runs the server at its address; with port 0, at a free port, which it then keeps.
func (h *httpSample) start(ctx context.Context) error {
	args := []string{"sample", h.name, "--http", h.address}
	if h.reworded {
		args = append(args, "--reworded")
	}
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 3 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	h.stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // its exit code does not matter here
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		h.stop()
		return fmt.Errorf("sample %s printed no address: %w", h.name, err)
	}
	h.url = strings.TrimSpace(line)
	at, err := url.Parse(h.url)
	if err == nil {
		h.address = at.Host
	}
	return err
}

// A demoStory prints the demo in a few steps, each with real results.
type demoStory struct {
	w    io.Writer
	a    *app.App
	dir  string // of the configuration
	url  string
	took time.Duration
	step int

	reload chan<- os.Signal // makes the App read its configuration
}

func (s *demoStory) writeHeading(text string) {
	s.step++
	fmt.Fprintf(s.w, "\n%d. %s\n\n", s.step, text)
}

func (s *demoStory) narrate(ctx context.Context) error {
	st := s.a.Reads().Status("")
	fmt.Fprintf(s.w, "Switchboard is one MCP endpoint in front of many MCP servers.\nBehind this one stand %s with %s, started and asked in %s:\n\n",
		count(len(st.Servers), "sample server"), count(st.Catalog.Tools, "tool"), s.took.Round(time.Millisecond))
	for _, server := range st.Servers {
		fmt.Fprintf(s.w, "   %-8s %-5s %2d tools, speaks MCP %s\n", server.ID, server.Transport, server.Tools, server.Version)
	}

	s.writeHeading("A task says what it needs, not which tools (tasks/research.yaml)")
	task, err := tenants.Example.ReadFile("example/tasks/research.yaml")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(task)) {
		if !strings.HasPrefix(line, "#") {
			fmt.Fprint(s.w, "   ", line)
		}
	}

	s.writeHeading("Switchboard decides which server's tool serves each need, and can say why")
	x, err := s.a.Reads().Explain(ctx, identity.Local(demoTenant), admin.ExplainQuery{Task: demoTask})
	if err != nil {
		return err
	}
	writeExplanation(indent{s.w}, x)

	s.writeHeading("A client that connects sees just these tools, and calls them by name")
	if err := s.showCalls(ctx); err != nil {
		return err
	}

	s.writeHeading("A person says yes to one call, and a budget says how much is enough")
	if err := s.showLimits(ctx); err != nil {
		return err
	}

	s.writeHeading("A named capability promises tools: its provider is replaced, and the client's list stays the same")
	if err := s.showReplacement(ctx); err != nil {
		return err
	}

	s.writeHeading("Is a capability allowed now? One question, with the reason")
	if err := s.showVerdict(ctx); err != nil {
		return err
	}

	s.writeHeading("What your client puts into its configuration")
	config, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{
		"switchboard": map[string]any{"type": "http", "url": s.url + "/mcp/tasks/" + string(demoTask)},
	}}, "   ", "  ")
	fmt.Fprintf(s.w, "   %s\n", config)
	return err
}

// connect connects as a client of the task does.
func (s *demoStory) connect(ctx context.Context, task switchboard.TaskID) (*mcpClient, error) {
	return (&taskTarget{targetFlags: targetFlags{URL: s.url}, Task: task}).connect(ctx, streams{}, nil, "", "")
}

// showCalls does what a client does: it lists the tools, calls one, and tries one that it does not see.
func (s *demoStory) showCalls(ctx context.Context) error {
	c, err := s.connect(ctx, demoTask)
	if err != nil {
		return err
	}
	defer c.stop()
	_, names, err := listNames(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "   tools/list  → %s\n\n", names)
	return s.callAll(ctx, c, []demoCall{
		{"web_search", `{"query":"look-alike domains in phishing mail"}`, ""},
		{"s3_delete_bucket", `{"bucket":"backups"}`, "the cloud server has such a tool; this task does not see it, so it does not exist"},
	})
}

// listNames returns the answer to tools/list, and the names in it.
func listNames(ctx context.Context, c *mcpClient) (list []byte, names string, err error) {
	list, err = c.request(ctx, "tools/list", "")
	if err != nil {
		return nil, "", err
	}
	var answer struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(list, &answer); err != nil {
		return nil, "", err
	}
	var shown []string
	for _, t := range answer.Tools {
		shown = append(shown, t.Name)
	}
	return list, strings.Join(shown, ", "), nil
}

// showReplacement takes a named capability from the server that provides it, while a client is connected: another one provides it too.
func (s *demoStory) showReplacement(ctx context.Context) error {
	c, err := s.connect(ctx, demoContractTask)
	if err != nil {
		return err
	}
	defer c.stop()
	before, names, err := listNames(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "   nimbus provides %s (overlays/nimbus.yaml), and comes before atlas\n   tools/list  → %s: %s\n\n", demoCapability, names, count(len(before), "byte"))
	was := s.a.Reads().Status("").Loaded
	if err := os.Remove(filepath.Join(s.dir, "overlays", "nimbus.yaml")); err != nil {
		return err
	}
	s.reload <- syscall.SIGHUP
	if err := awaitStep(ctx, func() (bool, error) {
		st := s.a.Reads().Status("")
		if st.Refused != nil {
			return false, errors.New(st.Refused.Why)
		}
		return st.Loaded.After(was), nil
	}); err != nil {
		return err
	}
	after, names, err := listNames(ctx, c)
	if err != nil {
		return err
	}
	same := "other bytes"
	if bytes.Equal(before, after) {
		same = "the same bytes"
	}
	fmt.Fprintf(s.w, "   nimbus does not provide it any more; atlas does (overlays/atlas.yaml)\n   tools/list  → %s: %s\n\n", names, same)
	return s.callAll(ctx, c, []demoCall{
		{"search", `{"text":"look-alike domains","most":1}`, "atlas gets the arguments that it takes: query and limit"},
	})
}

// awaitStep waits until a step of the demo is done.
func awaitStep(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a step of the demo takes too long: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// showVerdict takes away what a capability depends on, and puts it back.
func (s *demoStory) showVerdict(ctx context.Context) error {
	key := filepath.Join(s.dir, "search.key")
	text, err := os.ReadFile(key)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
		want verdict.Name
	}{
		{"rm search.key", func() error { return os.Remove(key) }, verdict.No},
		{"echo … > search.key", func() error { return os.WriteFile(key, text, 0o600) }, verdict.Yes},
	} {
		if err := step.do(); err != nil {
			return err
		}
		var x *admin.Resolution
		if err := awaitStep(ctx, func() (ok bool, err error) { // the last result counts for a second
			x, err = admin.Resolve(ctx, s.a.Reads(), bind.ResolveQuery{Tenant: demoTenant, Capabilities: []string{demoCapability}, Probe: true})
			return err == nil && x.Verdicts[0].Verdict == step.want, err
		}); err != nil {
			return err
		}
		fmt.Fprintf(s.w, "   $ %s\n   $ switchboard resolve %s --probe\n", step.what, demoCapability)
		writeVerdicts(indent{s.w}, x, demoTenant)
	}
	return nil
}

// showLimits makes calls that wait for a person or are over their budget, and says yes as that person.
func (s *demoStory) showLimits(ctx context.Context) error {
	c, err := s.connect(ctx, demoTask)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := s.callAll(ctx, c, []demoCall{
		{"notify", `{"channel":"security","text":"examp1e.com imitates us"}`, "human_in_the_loop: no call without a person's approval"},
	}); err != nil {
		return err
	}
	request, err := s.waitingRequest(ctx)
	if err != nil {
		return err
	}
	row, err := app.DeciderOf(s.a).Decide(ctx, &demoPerson, demoTenant, request, approvals.DecisionWish{Act: approval.ActApprove})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "\n   $ switchboard approvals approve %s\n     → %s is %s%s\n     (the person)\n\n", row.ID, row.ID, stateText(row), meaning(row))
	resume := `{"request":"` + row.ID + `"}`
	return s.callAll(ctx, c, []demoCall{
		{"switchboard_resume", resume, "the call is made, exactly as the person has seen it"},
		{"switchboard_resume", resume, "one yes is one call"},
		{"web_search", `{"query":"who registered examp1e.com"}`, "the second search at 0.02 USD, of 0.03 USD a day"},
	})
}

// demoPerson says yes and changes files: who runs the demo is an operator.
var demoPerson = switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}

// waitingRequest returns the id of the only call that waits for a person.
func (s *demoStory) waitingRequest(ctx context.Context) (string, error) {
	waiting, err := app.DeciderOf(s.a).List(ctx, demoTenant, approvals.ApprovalFilter{State: approval.Pending})
	if err != nil || len(waiting) != 1 {
		return "", fmt.Errorf("%d calls wait for a person: %w", len(waiting), err)
	}
	return waiting[0].ID, nil
}

// sayYesInAdvance makes a standing yes from the call that waits, which goes on waiting.
func (s *demoStory) sayYesInAdvance(ctx context.Context) error {
	request, err := s.waitingRequest(ctx)
	if err != nil {
		return err
	}
	const tests = `{"/channel":{"equals":"security"},"/text":"any"}`
	terms := standing.YesTerms{Uses: 5, For: 2 * time.Hour}
	if terms.Arguments, err = standing.ParseTests([]byte(tests)); err != nil {
		return err
	}
	row, err := app.DeciderOf(s.a).MakeStanding(ctx, &demoPerson, demoTenant, request, terms)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "\n   $ switchboard approvals standing make %s --uses 5 --for 2h --arguments '%s'\n     → %s: no person is asked about 5 such calls; this one still waits\n", request, tests, row.ID)
	return nil
}

// changeFile puts the overlay of nimbus back, without its price, as an officer does.
func (s *demoStory) changeFile(ctx context.Context) error {
	const text = "server: nimbus\nprovides:\n  - {capability: web.search@^1, tools: {search: {tool: web_search, map: {text: query, most: count}}}}\n"
	const reason = "nimbus provides web.search again, and costs nothing this month"
	made, err := app.EditorOf(s.a).Apply(ctx, change.Wish{FileWish: change.FileWish{Path: "overlays/nimbus.yaml", Text: []byte(text)}, By: demoPerson, Reason: reason})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "\n   $ switchboard config put --new --reason %q overlays/nimbus.yaml nimbus.yaml\n     → change %s is in force\n", reason, made.ID)
	return nil
}

// leaveForPage makes a call that waits for a person, changes a file, and stops nimbus for a moment, which then describes a tool in other words.
func (s *demoStory) leaveForPage(ctx context.Context, nimbus *httpSample) error {
	c, err := s.connect(ctx, demoTask)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := s.callAll(ctx, c, []demoCall{{"notify", `{"channel":"security","text":"examp1e.com has sent mail to 14 of us"}`, ""}}); err != nil {
		return err
	}
	if err := errors.Join(s.sayYesInAdvance(ctx), s.changeFile(ctx)); err != nil {
		return err
	}
	asking, err := s.connect(ctx, demoContractTask)
	if err != nil {
		return err
	}
	defer asking.stop()
	if _, _, err := listNames(ctx, asking); err != nil { // it gets nimbus
		return err
	}
	nimbus.stop()
	fmt.Fprintf(s.w, "\n   nimbus stops\n\n")
	if err := s.callAll(ctx, asking, []demoCall{{"search", `{"text":"look-alike domains","most":1}`, "nimbus does not answer, and atlas provides the same: the call is moved"}}); err != nil {
		return err
	}
	fmt.Fprintln(s.w)
	answer, err := s.describeCall(ctx, c, "news_search", `{"topic":"look-alike domains"}`)
	if err != nil {
		return err
	}
	why, _, _ := strings.Cut(answer, "\n") // the definition follows
	fmt.Fprintf(s.w, "   news_search {\"topic\":\"look-alike domains\"}\n     → %s\n\n", why)
	if err := s.callAll(ctx, c, []demoCall{{"search_web", `{"query":"look-alike domains","limit":1}`, "atlas serves it; nimbus starts again now, and describes news_search in other words"}}); err != nil {
		return err
	}
	nimbus.reworded = true
	return nimbus.start(ctx)
}

// A demoCall is a call that the demo shows, with a remark.
type demoCall struct{ tool, arguments, remark string }

// callAll makes calls, and prints their outcomes.
func (s *demoStory) callAll(ctx context.Context, c *mcpClient, calls []demoCall) error {
	for i, call := range calls {
		if i > 0 {
			fmt.Fprintln(s.w)
		}
		answer, err := s.describeCall(ctx, c, call.tool, call.arguments)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.w, "   %s %s\n", call.tool, call.arguments)
		for line := range strings.Lines(answer) {
			fmt.Fprintf(s.w, "     → %s", strings.TrimRight(line, "\n")+"\n")
		}
		if call.remark != "" {
			fmt.Fprintf(s.w, "     (%s)\n", call.remark)
		}
	}
	return nil
}

// maxLines limits how many lines of a result the demo shows.
const maxLines = 6

// describeCall makes one call and returns its outcome as text.
func (s *demoStory) describeCall(ctx context.Context, c *mcpClient, tool, arguments string) (string, error) {
	result, err := c.request(ctx, "tools/call", tool,
		wire.Edit{Name: "name", Value: wire.AppendString(nil, tool)},
		wire.Edit{Name: "arguments", Value: []byte(arguments)})
	if refused, ok := errors.AsType[*switchboard.Error](err); ok {
		return refused.Error(), nil
	}
	if err != nil {
		return "", err
	}
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return "", err
	}
	var lines []string
	for _, block := range r.Content {
		for line := range strings.Lines(block.Text) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) > maxLines {
		lines = append(lines[:maxLines], "…")
	}
	return strings.Join(lines, "\n"), nil
}

// indent indents every line.
type indent struct{ w io.Writer }

func (i indent) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if strings.TrimSpace(line) != "" {
			line = "   " + line
		}
		if _, err := io.WriteString(i.w, line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
