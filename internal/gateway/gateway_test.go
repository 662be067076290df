package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/realdata"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// desk is a run.Binder: it knows the tasks, and the tools that all of them show.
type desk struct {
	mu      sync.Mutex
	tools   []string
	reverse bool // the task work can no longer be met
	failing bool // its policy cannot be evaluated
	whole   []switchboard.Offer
}

func (d *desk) Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	switch {
	case task == "" && p.ID == "idle": // a principal without a default task
		return "", nil
	case task == "":
		return "work", nil
	case task == "work", task == "play", task == "unmet", task == "slow":
		return task, nil
	}
	return "", switchboard.Refuse(switchboard.CodeNoSuchTask, "there is no task %q for you", task)
}

func (d *desk) Bind(ctx context.Context, _ switchboard.Principal, task switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	if task == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if task == "unmet" || task == "work" && d.reverse {
		return nil, &switchboard.Error{
			Code: switchboard.CodeUnmet, Text: "requirement 1 cannot be met", Requirement: "search internet [readonly]", Stage: "prune",
			Hint: "ask whoever runs Switchboard for a server that can", Cause: errors.New("cause for the operator"),
		}
	}
	if d.failing {
		return nil, switchboard.Refuse(switchboard.CodePolicyFailed, "it could not be decided")
	}
	if task == "" {
		return nothing, nil
	}
	var selected []decide.Selected
	for _, name := range d.tools {
		selected = append(selected, decide.Selected{Tool: toolNamed(name), Requirements: []int{0}})
	}
	info := gateway.ServerInfo("switchboard", "0.0-test")
	return surface.New(surface.Input{Task: &switchboard.Task{ID: task, Requirements: make([]switchboard.Requirement, 1)}, Selected: selected, WholeServers: d.whole, Prev: was.Surface, ServerInfo: info}), nil
}

func (d *desk) Lasts(switchboard.TenantID) bool { return true }

func (*desk) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

var (
	nothing = surface.New(surface.Input{Own: []*switchboard.Tool{gateway.Status}, ServerInfo: gateway.ServerInfo("switchboard", "0.0-test")})
	tools   sync.Map
)

// toolNamed returns a tool of the server "s": for one name always the same.
func toolNamed(name string) *switchboard.Tool {
	schema := `{"type":"object"}`
	if name == "region" {
		schema = `{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Region"}}}`
	}
	t, _ := tools.LoadOrStore(name, &switchboard.Tool{
		ID:         switchboard.ToolID{Server: "s", Name: name},
		Definition: []byte(`{"name":` + string(wire.AppendString(nil, name)) + `,"inputSchema":` + schema + `,"x-kept": 1.0}`),
	})
	return t.(*switchboard.Tool)
}

// A world is a gateway over HTTP, with fakes for everything around it.
type world struct {
	*gateway.Gateway
	t    *testing.T
	desk *desk
	runs *run.Runs
	url  string
	log  *logs

	library library     // resources, prompts and subscriptions
	early   atomic.Bool // it is not ready yet

	mu      sync.Mutex
	act     map[string]switchboard.CallerFunc // by tool
	revoked map[string]bool                   // keys that are not valid any more
	called  []string                          // params of the calls, in their order
	refused []switchboard.Code
}

type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newGateway returns a world without a listener.
func newGateway(t *testing.T) *world {
	t.Helper()
	return newReplica(t, store.NewMemory(), &cluster.Cluster{})
}

// newReplica returns a world without a listener that shares the store with others.
func newReplica(t *testing.T, st store.Store, c *cluster.Cluster) *world {
	t.Helper()
	w := &world{t: t, desk: &desk{tools: []string{"echo", "region"}}, log: &logs{}, act: map[string]switchboard.CallerFunc{}, revoked: map[string]bool{}}
	w.runs = run.New(w.desk, nothing, st)
	w.Gateway = gateway.New(gateway.Options{
		Runs:          w.runs,
		Sessions:      gateway.SessionOptions{Store: st, Cluster: c, Key: switchboard.NewSecret("what all that have the store know")},
		Caller:        switchboard.CallerFunc(w.call),
		Authenticator: parts{w},
		Servers:       parts{w},
		Tasks:         parts{w},
		Recorder:      parts{w},
		Log:           slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Name:          "switchboard",
		Version:       "0.0-test",
	})
	w.Allow([]string{"gw.example.com", "other.example.com:8443"}, []string{"https://app.example.com"})
	t.Cleanup(w.Close)
	return w
}

// parts answers what the gateway of a world asks.
type parts struct{ *world }

func (p parts) Authenticate(r *http.Request) (switchboard.Principal, error) { return p.authenticate(r) }

func (p parts) Subscribe(ctx context.Context, c *switchboard.Call, updated func(string)) (func(), error) {
	return p.library.subscribe(ctx, c, updated)
}

func (parts) SessionEnded(string) {}

func (parts) RootsChanged(string, func(context.Context, string, []byte) ([]byte, error)) {}

func (parts) Request(context.Context, switchboard.Principal, *run.Run, []byte) (lazyexpand.Reply, error) {
	return lazyexpand.Reply{}, nil
}

func (parts) CapabilityStatus(context.Context, switchboard.Principal, *run.Run, string) (lazyexpand.Reply, error) {
	return lazyexpand.Reply{}, nil
}

func (parts) Declare(context.Context, *run.Run, []byte) (lazyexpand.Reply, error) {
	return lazyexpand.Reply{}, errors.New("no surface has it")
}

func (parts) Status(p switchboard.Principal, _ *run.Run) []byte {
	return []byte(`{"you":"` + p.ID + `"}`)
}

func (p parts) Ready() (bool, []byte) { return !p.early.Load(), []byte(`{"ready":"so"}`) }

func (parts) Denied(switchboard.Principal, *run.Run, string, switchboard.Code) string { return "" }

func (p parts) Refused(c switchboard.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, c)
}

func (parts) ShowsReceipts(switchboard.TenantID) bool { return false }

// closedAfter returns a channel that is closed after d.
func closedAfter(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newGateway(t).reachable()
}

// reachable starts the world's HTTP server.
func (w *world) reachable() *world {
	t := w.t
	s := httptest.NewServer(w)
	t.Cleanup(func() {
		w.Close()
		w.CutCalls() // a test that ends early leaves calls that nothing else ends
		s.CloseClientConnections()
		s.Close()
	})
	w.url = s.URL
	return w
}

// authenticate accepts "Bearer NAME". A request without a key has the local principal.
func (w *world) authenticate(r *http.Request) (switchboard.Principal, error) {
	if p, ok := cluster.Principal(r); ok {
		return p, nil
	}
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.revoked[key]:
		return switchboard.Principal{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, "this key is not known here")
	case key == "":
		return switchboard.Principal{Tenant: "default", ID: "local", Auth: switchboard.AuthLocal}, nil
	}
	return switchboard.Principal{Tenant: "acme", ID: key, Auth: switchboard.AuthAPIKey}, nil
}

func (w *world) revoke(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revoked[key] = true
}

// call answers as play or answers set for the tool, otherwise with the arguments.
func (w *world) call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	if c.Tool == nil {
		return w.library.call(c)
	}
	w.mu.Lock()
	f := w.act[c.Tool.ID.Name]
	w.called = append(w.called, string(c.Params))
	w.mu.Unlock()
	if f != nil {
		return f(ctx, c)
	}
	args, ok := wire.Field(c.Params, "arguments")
	if !ok {
		args = []byte("null")
	}
	return switchboard.Result{JSON: []byte(`{"content":[],"echo":` + string(args) + `}`)}, nil
}

func (w *world) calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.called)
}

// play makes f answer the calls of a tool.
func (w *world) play(tool string, f switchboard.CallerFunc) {
	w.mu.Lock()
	w.act[tool] = f
	w.mu.Unlock()
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	if !slices.Contains(w.desk.tools, tool) {
		w.desk.tools = append(w.desk.tools, tool)
	}
}

// answers makes text the result of a tool.
func (w *world) answers(tool, result string) {
	w.play(tool, func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte(result)}, nil
	})
}

// change adds a tool to the list.
func (w *world) change(tool string) {
	w.desk.mu.Lock()
	w.desk.tools = append(w.desk.tools, tool)
	w.desk.mu.Unlock()
	w.runs.Rebind(context.Background())
}

// A head is headers, by name.
type head map[string]string

// absent as a value removes a default header.
const absent = "(absent)"

const both = "application/json, text/event-stream"

// do sends a request to the path and returns the answer, read to its end.
func (w *world) do(method, path, body string, h head) (*http.Response, string) {
	w.t.Helper()
	res := w.open(w.t.Context(), method, path, body, h)
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, string(text)
}

// open sends a request and returns the answer as soon as it begins.
func (w *world) open(ctx context.Context, method, path, body string, h head) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	usual := head{"Accept": both}
	if method == http.MethodPost {
		usual["Content-Type"] = "application/json"
	}
	for _, set := range []head{usual, h} {
		for name, value := range set {
			switch {
			case value == absent:
				req.Header.Del(name)
			case name == "Host":
				req.Host = value
			default:
				req.Header.Set(name, value)
			}
		}
	}
	res, err := http.DefaultClient.Do(req)
	wait.Answered(w.t, ctx, method+" "+path, err)
	return res
}

func (w *world) post(body string, h head) (*http.Response, string) {
	w.t.Helper()
	return w.do(http.MethodPost, "/mcp", body, h)
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// session opens a legacy session and returns the headers of its requests.
func (w *world) session(h head) head {
	w.t.Helper()
	res, body := w.post(initialize, h)
	id := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != http.StatusOK || id == "" {
		w.t.Fatalf("initialize: %s %s", res.Status, body)
	}
	in := head{"Mcp-Session-Id": id, "Mcp-Protocol-Version": "2025-11-25"}
	maps.Copy(in, h)
	return in
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modern returns a modern request and its headers. params are members, with a comma after them.
func modern(id, method, params, name string) (string, head) {
	h := head{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
	if name != "" {
		h["Mcp-Name"] = wire.EncodeHeader(name)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + modernMeta + `}}`, h
}

func legacyCall(id, tool, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `"` + more + `}}`
}

// Law 10: a call that finds its run empty, because policy could not be evaluated, and binds it again, is a call of what the run shows then. It is not one of a
// tool that nothing serves (SB-CAP-004).
func TestACallThatBindsItsRunAgainIsRoutedAgain(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	if _, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, in); !strings.Contains(body, `"echo"`) {
		t.Fatalf("the client is shown %s", body)
	}
	for _, failing := range []bool{true, false} {
		w.desk.mu.Lock()
		w.desk.failing = failing
		w.desk.mu.Unlock()
		if failing {
			w.runs.Rebind(t.Context())
		}
	}
	if _, body := w.post(legacyCall("2", "echo", ""), in); !strings.Contains(body, `"result"`) {
		t.Errorf("the call: %s", body)
	}
}

// Law 7: once policy can be evaluated again, nothing of its failure remains.
func TestTheNextRequestAsksAgainWhatPolicyCouldNotDecide(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	fail := func(failing bool) {
		w.desk.mu.Lock()
		defer w.desk.mu.Unlock()
		w.desk.failing = failing
	}
	for _, method := range []string{"tools/call", "tools/list", "prompts/get", "resources/subscribe"} {
		message := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"name":"echo","uri":"x:y"}}`
		fail(true)
		w.runs.Rebind(t.Context())
		if _, body := w.post(message, in); !strings.Contains(body, "SB-POL-002") {
			t.Errorf("%s while policy fails: %s", method, body)
		}
		fail(false)
		if _, body := w.post(message, in); strings.Contains(body, "SB-POL-002") || method == "tools/call" && !strings.Contains(body, `"result"`) {
			t.Errorf("%s afterwards: %s", method, body)
		}
	}
}

// data returns the folder of the shared test data, or skips the test.
func data(t *testing.T, folder string) string {
	t.Helper()
	dir := realdata.File(folder)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no %s in the test data; set SWITCHBOARD_DATA to the folder that has it", folder)
	}
	return dir
}
