package served_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A person answers what its client is asked.
type person struct {
	name   string
	header http.Header   // of its client
	ready  func()        // called before it answers; nil means that it answers at once
	asked  chan<- string // by method; nil means that nobody wants to know

	form map[string]any // what it writes into a form; nil means its name
}

// fill returns what the person writes into a form.
func (p *person) fill() map[string]any {
	if p.form != nil {
		return p.form
	}
	return map[string]any{"name": p.name}
}

func (p *person) hears(method string) {
	if p.asked != nil {
		p.asked <- method
	}
	if p.ready != nil {
		p.ready()
	}
}

// A caller calls a tool of the server behind, by a client that somebody else
// wrote, and returns the text of the result.
type caller func(ctx context.Context, tool string, arguments map[string]any) (text string, err error)

// people are the clients that can be asked, by era.
var people = []struct {
	name    string
	modern  bool
	connect func(t *testing.T, url string, p *person) caller
}{
	{"go-sdk legacy", false, func(t *testing.T, url string, p *person) caller { return gosdkPerson(t, url, p, "2025-11-25") }},
	{"go-sdk modern", true, func(t *testing.T, url string, p *person) caller { return gosdkPerson(t, url, p, "") }},
	{"mcp-go legacy", false, func(t *testing.T, url string, p *person) caller {
		return mcpgoPerson(t, url, p, mcpgo.WithLegacyProtocolOnly()) //nolint:staticcheck // what legacy clients are
	}},
	{"mcp-go modern", true, func(t *testing.T, url string, p *person) caller { return mcpgoPerson(t, url, p) }},
}

// bearer sends requests with a person's headers.
type bearer struct{ header http.Header }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	maps.Copy(r.Header, b.header)
	return http.DefaultTransport.RoundTrip(r)
}

func gosdkPerson(t *testing.T, url string, p *person, version string) caller {
	t.Helper()
	c := gosdk.NewClient(&gosdk.Implementation{Name: "test", Version: "1"}, &gosdk.ClientOptions{
		ElicitationHandler: func(context.Context, *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			p.hears("elicitation/create")
			return &gosdk.ElicitResult{Action: "accept", Content: p.fill()}, nil
		},
		CreateMessageHandler: func(context.Context, *gosdk.CreateMessageRequest) (*gosdk.CreateMessageResult, error) { //nolint:staticcheck // servers still ask so
			p.hears("sampling/createMessage")
			return &gosdk.CreateMessageResult{Role: "assistant", Model: "m", Content: &gosdk.TextContent{Text: p.name}}, nil //nolint:staticcheck // as above
		},
	})
	c.AddRoots(&gosdk.Root{URI: "file:///" + p.name}) //nolint:staticcheck // as above
	tr := &gosdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{p.header}}}
	s, err := c.Connect(t.Context(), tr, &gosdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return func(ctx context.Context, tool string, arguments map[string]any) (string, error) {
		res, err := s.CallTool(ctx, &gosdk.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil || len(res.Content) == 0 {
			return "", err
		}
		text, _ := res.Content[0].(*gosdk.TextContent)
		return text.Text, nil
	}
}

// An answerer is a person to mcp-go.
type answerer struct{ *person }

func (a answerer) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	a.hears("elicitation/create")
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: "accept", Content: a.fill()}}, nil
}

func (a answerer) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	a.hears("sampling/createMessage")
	return &mcp.CreateMessageResult{Model: "m", SamplingMessage: mcp.SamplingMessage{Role: "assistant", Content: mcp.NewTextContent(a.name)}}, nil
}

func (a answerer) ListRoots(context.Context, mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: "file:///" + a.name}}}, nil
}

func mcpgoPerson(t *testing.T, url string, p *person, options ...mcpgo.ClientOption) caller {
	t.Helper()
	headers := map[string]string{}
	for name := range p.header {
		headers[name] = p.header.Get(name)
	}
	tr, err := transport.NewStreamableHTTP(url, transport.WithHTTPHeaders(headers))
	if err != nil {
		t.Fatal(err)
	}
	a := answerer{p}
	c := mcpgo.NewClient(tr, append(options, mcpgo.WithElicitationHandler(a), mcpgo.WithSamplingHandler(a), mcpgo.WithRootsHandler(a))...)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var req mcp.InitializeRequest
	req.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	req.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}
	if _, err := c.Initialize(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, tool string, arguments map[string]any) (string, error) {
		var req mcp.CallToolRequest
		req.Params.Name, req.Params.Arguments = tool, arguments
		res, err := c.CallTool(ctx, req)
		if err != nil || len(res.Content) == 0 {
			return "", err
		}
		text, _ := mcp.AsTextContent(res.Content[0])
		return text.Text, nil
	}
}

const askerTool = `{"name":"asker","inputSchema":{"type":"object"}}`

// askerBehind is the configuration of a fake that asks, of an era and on a transport.
func askerBehind(t *testing.T, transport string, modern bool, args ...string) string {
	t.Helper()
	args = append(args, askerTool)
	if modern {
		args = append([]string{"modern"}, args...)
	}
	if transport == "http" {
		server := httptest.NewServer(fakeserver.New(args))
		t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		return "transport: http, url: " + server.URL + "/mcp"
	}
	quoted, _ := json.Marshal(args)
	return "transport: stdio, command: [FAKE, " + strings.Trim(string(quoted), "[]") + "]"
}

// questions are what servers ask, and what is in the answer of a person called Ann.
var questions = []struct{ method, params, answer string }{
	{"elicitation/create", `{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, `"name":"Ann"`},
	{"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"who?"}}],"maxTokens":9}`, `"text":"Ann"`},
	{"roots/list", `{}`, `file:///Ann`},
}

func TestAServerAsksTheClientOfACallInAnyCombinationOfEras(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(fmt.Sprintf("%s, modern=%v", transport, modern), func(t *testing.T) {
				g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, transport, modern))))
				for _, who := range people {
					t.Run(who.name, func(t *testing.T) {
						asked := make(chan string, 10)
						call := who.connect(t, g.URL+"/mcp", &person{name: "Ann", asked: asked})
						for _, q := range questions {
							text, err := call(t.Context(), "asker", map[string]any{"do": "ask", "method": q.method, "params": q.params})
							if err != nil || !strings.Contains(text, q.answer) {
								t.Errorf("%s: the server hears %s, %v", q.method, text, err)
							}
							if modern && !strings.HasPrefix(text, fakeserver.State) && !who.modern {
								t.Errorf("%s: the state is not the exact one: %s", q.method, text)
							}
						}
						if len(asked) != 2 {
							t.Errorf("the client was asked %d times for what people answer", len(asked))
						}
					})
				}
			})
		}
	}
}

func TestServersOfTheSDKsAskThroughSwitchboard(t *testing.T) {
	t.Parallel()
	sdk := gosdk.NewServer(&gosdk.Implementation{Name: "sdk", Version: "1"}, nil)
	type none struct{}
	gosdk.AddTool(sdk, &gosdk.Tool{Name: "asker"}, func(ctx context.Context, r *gosdk.CallToolRequest, _ none) (*gosdk.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &gosdk.ElicitParams{Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return nil, nil, err
		}
		return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: fmt.Sprint(answer.Content)}}}, nil, nil
	})
	other := mcpgoserver.NewMCPServer("mcp-go", "1", mcpgoserver.WithElicitation())
	other.AddTool(mcp.NewTool("asker"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var req mcp.ElicitationRequest
		req.Params.Message, req.Params.RequestedSchema = "who?", json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)
		answer, err := other.RequestElicitation(ctx, req)
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultText(fmt.Sprint(answer.Content)), nil
	})
	for name, handler := range map[string]http.Handler{
		"go-sdk": gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return sdk }, nil),
		"mcp-go": mcpgoserver.NewStreamableHTTPServer(other),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Protocol-Version") == "2026-07-28" {
					http.Error(w, "no such version", http.StatusBadRequest)
					return
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			g := rig.Serve(t, rig.LayOut(t, oddConfig("transport: http, url: "+server.URL+"/mcp")))
			for _, who := range people {
				t.Run(who.name, func(t *testing.T) {
					call := who.connect(t, g.URL+"/mcp", &person{name: "Ann"})
					if text, err := call(t.Context(), "asker", map[string]any{}); err != nil || text != "map[name:Ann]" {
						t.Errorf("the server hears %s, %v", text, err)
					}
				})
			}
		})
	}
}

const canBeAsked = `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"roots":{}}`

// able sends a modern call of the tool "asker", with these members of params.
func able(t *testing.T, s *rig.HTTPSession, params string) rig.Message {
	t.Helper()
	body := strings.Replace(rig.WithMeta(`{"name":"asker",`+params+`}`), `"io.modelcontextprotocol/clientCapabilities":{}`, canBeAsked, 1)
	h := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"asker"}}
	m, _ := s.Post(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+body+`}`, h)
	return m
}

func argument(do string, more ...string) string {
	quoted := fmt.Sprintf(`"arguments":{"do":%q`, do)
	for i := 0; i < len(more); i += 2 {
		value, _ := json.Marshal(more[i+1])
		quoted += fmt.Sprintf(`,%q:%s`, more[i], value)
	}
	return quoted + "}"
}

// What a server asks says who asks, and passes as it was else.
func TestWhatAModernServerAsksAModernClientPassesToTheByte(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, transport, true))))
			s := g.Open(t, "/mcp", true)
			const params, answers = `{"message":"\u0041 1.0","n":1.0, "x":1e2}`, `{"` + fakeserver.Key + `":{"action":"accept","content":{"n":1.0}},"other": 1e2}`
			ask := argument("ask", "method", "elicitation/create", "params", params)
			m := able(t, s, ask)
			if got, want := field(t, m.Result, "inputRequests"), `{"`+fakeserver.Key+`":{"method":"elicitation/create","params":{"message":"The server \"odd\" asks: A 1.0","n":1.0, "x":1e2,"_meta":{"io.switchboard/server":"odd"}}}}`; got != want {
				t.Errorf("asked for\n%s\nwant\n%s", got, want)
			}
			if got := field(t, m.Result, "requestState"); got != fakeserver.State {
				t.Errorf("the state is %s, want %s", got, fakeserver.State)
			}
			m = able(t, s, ask+`,"requestState":`+fakeserver.State+`,"inputResponses":`+answers)
			if got, want := text(t, m), fakeserver.State+" "+answers; got != want {
				t.Errorf("the server hears\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// text is the first text of a tool's result.
func text(t *testing.T, m rig.Message) string {
	t.Helper()
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) == 0 {
		t.Fatalf("no text: %s", m.Raw)
	}
	return result.Content[0].Text
}

func TestEachClientIsAskedWhatItsOwnCallNeeds(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	keys, rows := map[string]string{}, ""
	for _, who := range []string{"ann", "ben"} {
		key, row := rig.NewKey(t, who)
		keys[who] = key
		rows += row
	}
	for _, transport := range []string{"stdio", "http"} {
		config := fmt.Sprintf(`
-- switchboard.yaml --
servers:
  asker: {%s}
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
keys:
%s-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["asker/*"]}]
`, askerBehind(t, transport, false), rows)
		for _, who := range people {
			t.Run(transport+" "+who.name, func(t *testing.T) {
				g := rig.Serve(t, rig.LayOut(t, config))
				// All three are asked before any of them answers.
				persons := []*person{{name: "Ann-1"}, {name: "Ann-2"}, {name: "Ben"}}
				var all sync.WaitGroup
				all.Add(len(persons))
				var calls sync.WaitGroup
				for _, p := range persons {
					p.header = http.Header{"Authorization": {"Bearer " + keys[strings.ToLower(p.name[:3])]}}
					p.ready = func() { all.Done(); all.Wait() }
					call := who.connect(t, g.URL+"/mcp", p)
					calls.Go(func() {
						text, err := call(t.Context(), "asker", map[string]any{"do": "ask", "method": questions[0].method, "params": questions[0].params})
						if err != nil || !strings.Contains(text, `"name":"`+p.name+`"`) {
							t.Errorf("the call of %s hears %s, %v", p.name, text, err)
						}
					})
				}
				calls.Wait()
			})
		}
	}
}

// The reference server for files asks for the roots as soon as it is initialized,
// before any call, and goes by them from then on.
func TestAServerThatAsksForRootsAtItsStartGetsThoseOfItsClient(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false, "mood=asks-roots", "marks="+marks))))
	for _, name := range []string{"Ann", "Ben"} {
		call := gosdkPerson(t, g.URL+"/mcp", &person{name: name}, "2025-11-25")
		for range 2 {
			text, err := call(t.Context(), "asker", map[string]any{"do": "roots"})
			if err != nil || !strings.Contains(text, "file:///"+name) {
				t.Errorf("the server of %s has the roots %s, %v", name, text, err)
			}
		}
	}
	// Whoever has declared no roots is not asked for any.
	m, _ := g.Open(t, "/mcp", false).Ask(t, "tools/call", `{"name":"asker","arguments":{"do":"roots"}}`)
	if got := text(t, m); !strings.Contains(got, `"code":-32601`) {
		t.Errorf("without roots the server hears %s", got)
	}
}

func TestAServerThatDiesWhileItsClientIsAskedLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	const params = `{"message":"who?"}`
	t.Run("modern", func(t *testing.T) {
		g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false))))
		s, until := g.Open(t, "/mcp", true), filepath.Join(t.TempDir(), "die")
		ask := argument("ask-and-die", "params", params, "until", until)
		m := able(t, s, ask)
		state := field(t, m.Result, "requestState")
		rig.WriteFile(t, until, "")
		m = able(t, s, ask+`,"requestState":`+state+`,"inputResponses":{"1":{"action":"cancel"}}`)
		if !strings.Contains(string(m.Raw), "SB-EXEC-004") {
			t.Errorf("it is told %s", m.Raw)
		}
	})
	t.Run("legacy", func(t *testing.T) {
		g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false))))
		until := filepath.Join(t.TempDir(), "die")
		died := make(chan struct{})
		call := gosdkPerson(t, g.URL+"/mcp", &person{name: "Ann", ready: func() { rig.WriteFile(t, until, ""); <-died }}, "2025-11-25")
		text, err := call(t.Context(), "asker", map[string]any{"do": "ask-and-die", "params": params, "until": until})
		close(died)
		if err != nil || !strings.Contains(text, "SB-EXEC-004") {
			t.Errorf("it is told %s, %v", text, err)
		}
	})
}

func TestAURLThatHasToBeVisitedFirstIsAskedOfAModernClient(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	const params = `{"mode":"url","message":"log in","url":"https://login.example.com/?a=1\u0026b","elicitationId":"e-1"}`
	asked := strings.Replace(strings.TrimSuffix(params, "}"), "log in", `The server \"odd\" asks: log in`, 1) + `,"_meta":{"io.switchboard/server":"odd"}}`
	ask := argument("url-first", "params", params)
	again := func(t *testing.T, answer string) rig.Message {
		t.Helper()
		g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false, "marks="+marks))))
		s := g.Open(t, "/mcp", true)
		m := able(t, s, ask)
		if got, want := field(t, m.Result, "inputRequests"), `{"1":{"method":"elicitation/create","params":`+asked+`}}`; got != want {
			t.Errorf("asked for\n%s\nwant\n%s", got, want)
		}
		return able(t, s, ask+`,"requestState":`+field(t, m.Result, "requestState")+`,"inputResponses":{"1":`+answer+`}`)
	}
	t.Run("visited", func(t *testing.T) {
		if m := again(t, `{"action":"accept"}`); !strings.Contains(text(t, m), "url-first") {
			t.Errorf("then the call gives %s", m.Raw)
		}
	})
	t.Run("declined", func(t *testing.T) {
		if m := again(t, `{"action":"decline"}`); m.Error == nil || m.Error.Code != -32042 {
			t.Errorf("then the call gives %s", m.Raw)
		}
	})
	if done, err := os.ReadFile(marks); err != nil || strings.Count(string(done), "asker") != 3 {
		t.Errorf("%v: the server was called\n%s", err, done)
	}
}

func TestAServerAsksForNothingThatItsClientHasNotDeclared(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, transport, false))))
			s := g.Open(t, "/mcp", true)
			for _, ask := range []string{
				argument("ask", "method", "sampling/createMessage", "params", questions[1].params),
				argument("ask", "method", "tools/list", "params", "{}"),
			} {
				if m := able(t, s, ask); !strings.Contains(text(t, m), `"code":-32601`) {
					t.Errorf("%s: the server hears %s", ask, m.Raw)
				}
			}
			// This client has no URL mode.
			call := mcpgoPerson(t, g.URL+"/mcp", &person{name: "Ann"}, mcpgo.WithClientCapabilities(mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapability{Form: &struct{}{}}}))
			got, err := call(t.Context(), "asker", map[string]any{"do": "ask", "method": "elicitation/create", "params": `{"mode":"url","url":"https://example.com","message":"go"}`})
			if err != nil || !strings.Contains(got, `"code":-32601`) {
				t.Errorf("URL mode: the server hears %s, %v", got, err)
			}
		})
	}
}

// Such a state is of a Switchboard that has been started again since, or of a
// server that was of the other era: the server would do it all once more.
func TestAStateThatALegacyServerCannotKnowIsNotSentToIt(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false, "marks="+marks))))
	m := able(t, g.Open(t, "/mcp", true), argument("echo")+`,"requestState":"switchboard-1.BEFORE.x.y","inputResponses":{}`)
	if m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("it is answered with %s", m.Raw)
	}
	if done, err := os.ReadFile(marks); err == nil {
		t.Errorf("the server was called: %s", done)
	}
}

func TestALegacyClientGetsAnElicitationIDForAURL(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "http", true))))
	ids := make(chan string, 2)
	c := gosdk.NewClient(&gosdk.Implementation{Name: "test", Version: "1"}, &gosdk.ClientOptions{
		Capabilities: &gosdk.ClientCapabilities{Elicitation: &gosdk.ElicitationCapabilities{URL: &gosdk.URLElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			ids <- r.Params.ElicitationID
			return &gosdk.ElicitResult{Action: "accept"}, nil
		},
	})
	s, err := c.Connect(t.Context(), &gosdk.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, &gosdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for range 2 {
		arguments := map[string]any{"do": "ask", "method": "elicitation/create", "params": `{"mode":"url","url":"https://example.com","message":"go"}`}
		if _, err := s.CallTool(t.Context(), &gosdk.CallToolParams{Name: "asker", Arguments: arguments}); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := <-ids, <-ids; a == "" || a == b {
		t.Errorf("the ids are %q and %q", a, b)
	}
}

func TestWhatAServerSaysBeforeItAsksIsHeardBefore(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false))))
	s := g.Open(t, "/mcp", true)
	ask := argument("ask", "method", "elicitation/create", "params", `{}`, "steps", "500")
	body := strings.Replace(rig.WithMeta(`{"name":"asker",`+ask+`}`), `"io.modelcontextprotocol/clientCapabilities":{}`, `"progressToken":1,`+canBeAsked, 1)
	for range 5 {
		m, said := s.Post(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":`+body+`}`, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"asker"}})
		if n := len(said.Said); n != 500 || !strings.Contains(string(m.Raw), "input_required") {
			t.Errorf("%d of 500 notifications before %s", n, m.Raw)
		}
	}
}

func TestAClientHearsThatAnElicitationIsComplete(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, transport, false))))
			heard := make(chan string, 2)
			c := gosdk.NewClient(&gosdk.Implementation{Name: "test", Version: "1"}, &gosdk.ClientOptions{
				Capabilities: &gosdk.ClientCapabilities{Elicitation: &gosdk.ElicitationCapabilities{URL: &gosdk.URLElicitationCapabilities{}}},
				ElicitationHandler: func(context.Context, *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
					return &gosdk.ElicitResult{Action: "accept"}, nil
				},
				ElicitationCompleteHandler: func(_ context.Context, r *gosdk.ElicitationCompleteNotificationRequest) {
					heard <- r.Params.ElicitationID
				},
			})
			s, err := c.Connect(t.Context(), &gosdk.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, &gosdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if _, err := s.CallTool(t.Context(), &gosdk.CallToolParams{Name: "asker", Arguments: map[string]any{"do": "complete"}}); err != nil {
				t.Fatal(err)
			}
			if id := wait.Receive(t, "that the elicitation is complete", heard); id != "e-1" {
				t.Errorf("it hears of %q", id)
			}
		})
	}
}
