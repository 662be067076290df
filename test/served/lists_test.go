package served_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// libraries are two that share names, one on stdio and one over HTTP.
func libraries(t *testing.T, modern bool) string {
	t.Helper()
	b := fakeserver.Library("b")
	site := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return b }, &mcp.StreamableHTTPOptions{Stateless: modern}))
	t.Cleanup(func() {
		_ = site.Listener.Close()
		site.CloseClientConnections()
		site.Close()
	})
	return rig.LayOut(t, rig.Fakes(`a: {transport: stdio, command: [FAKE, library, a]}`, `b: {transport: http, url: "`+site.URL+`"}`)+`-- tenants/default/tasks/tool.yaml --
task_id: tool
required_capabilities:
  - {tools: ["a/do-a"]}
`)
}

func TestEverythingThatServersOfferIsListedReadAndCompletedInBothEras(t *testing.T) {
	t.Parallel()
	for _, modernBehind := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern behind %v", modernBehind), func(t *testing.T) {
			rig.EachSession(t, libraries(t, modernBehind), func(t *testing.T, name string, s rig.Session) {
				list := func(method, member, key string) (got []string) {
					m, _ := s.Ask(t, method, "")
					var result map[string]json.RawMessage
					var items []map[string]any
					_ = json.Unmarshal(m.Result, &result)
					_ = json.Unmarshal(result[member], &items)
					for _, item := range items {
						got = append(got, fmt.Sprint(item[key]))
					}
					slices.Sort(got)
					return got
				}
				for _, tt := range []struct{ method, member, key, want string }{
					{"prompts/list", "prompts", "name", "a__greet b__greet by-a by-b"},
					{"resources/list", "resources", "uri", "doc://a doc://b switchboard://a/doc://shared switchboard://b/doc://shared"},
					{"resources/templates/list", "resourceTemplates", "uriTemplate", "a://{id} b://{id} switchboard://a/doc://shared/{id} switchboard://b/doc://shared/{id}"},
				} {
					if got := strings.Join(list(tt.method, tt.member, tt.key), " "); got != tt.want {
						t.Errorf("%s: %s", tt.method, got)
					}
				}
				notFound := -32002
				if strings.HasSuffix(name, "modern") {
					notFound = -32602
				}
				for _, tt := range []struct {
					method, params string
					want           string // in the result
					code           int
				}{
					{"prompts/get", `{"name":"by-a"}`, `"a by-a"`, 0},
					{"prompts/get", `{"name":"b__greet"}`, `"b greet"`, 0},
					{"prompts/get", `{"name":"greet"}`, "", -32602},
					{"prompts/get", `{"name":"a__by-a"}`, "", -32602},
					{"resources/read", `{"uri":"doc://b"}`, `"b doc://b"`, 0},
					{"resources/read", `{"uri":"switchboard://b/doc://shared"}`, `"uri":"switchboard://b/doc://shared"`, 0},
					{"resources/read", `{"uri":"switchboard://b/doc://shared"}`, `"b doc://shared"`, 0},
					{"resources/read", `{"uri":"a://7"}`, `"a a://7"`, 0},
					{"resources/read", `{"uri":"switchboard://b/doc://shared/7"}`, `"b doc://shared/7"`, 0},
					{"resources/read", `{"uri":"doc://shared"}`, "", notFound},
					{"resources/read", `{"uri":"doc://shared/7"}`, "", notFound},
					{"resources/read", `{"uri":"a://x/none"}`, "", notFound},
					{"resources/read", `{"uri":"switchboard://c/x"}`, "", notFound},
					{"completion/complete", `{"ref":{"type":"ref/prompt","name":"b__greet"},"argument":{"name":"x","value":"y"}}`, `"b greet"`, 0},
					{"completion/complete", `{"ref":{"type":"ref/resource","uri":"a://{id}"},"argument":{"name":"id","value":"y"}}`, `"a a://{id}"`, 0},
					{"completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":"y"}}`, "", -32602},
					{"nobody/knows", `{}`, "", -32601},
				} {
					m, _ := s.Ask(t, tt.method, tt.params)
					switch {
					case tt.code == 0 && !strings.Contains(string(m.Result), tt.want):
						t.Errorf("%s %s: %s", tt.method, tt.params, m.Raw)
					case tt.code != 0 && (m.Error == nil || m.Error.Code != tt.code):
						t.Errorf("%s %s: %s, want the error %d", tt.method, tt.params, m.Raw, tt.code)
					}
				}
			})
		})
	}
}

func TestATaskOfSingleToolsSeesNothingElseOfTheirServer(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	g := rig.Serve(t, libraries(t, false))
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp/tasks/tool", modern)
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"do-a"}) {
			t.Fatalf("tools %q", got)
		}
		for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
			if m, _ := s.Ask(t, method, ""); !strings.Contains(string(m.Result), `:[]`) {
				t.Errorf("%s: %s", method, m.Raw)
			}
		}
		refusals := map[string][2]string{ // of what is hidden, and of what is not there
			"prompts/get":    {`{"name":"by-a"}`, `{"name":"by-x"}`},
			"resources/read": {`{"uri":"doc://a"}`, `{"uri":"doc://x"}`},
		}
		if !modern {
			refusals["resources/subscribe"] = refusals["resources/read"]
		}
		for method, params := range refusals {
			hidden, _ := s.Ask(t, method, params[0])
			unknown, _ := s.Ask(t, method, params[1])
			if hidden.Error == nil || strings.ReplaceAll(string(hidden.Raw), "doc://a", "doc://x") != strings.ReplaceAll(string(unknown.Raw), "by-x", "by-a") {
				t.Errorf("%s: hidden %s\nunknown %s", method, hidden.Raw, unknown.Raw)
			}
		}
	}
}

func TestExplainAndStatusSayWhatThereIsBesidesTools(t *testing.T) {
	t.Parallel()
	dir := libraries(t, false)
	const shown = "\nShown with their resources and prompts:\n  a\n  b\n"
	if out, errs, code := rig.Command(t, dir, "explain", "all"); code != 0 || !strings.Contains(out, shown) {
		t.Errorf("explain all: exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := rig.Command(t, dir, "explain", "tool"); code != 0 || strings.Contains(out, "Shown with") {
		t.Errorf("explain tool: exit %d\n%s%s", code, out, errs)
	}
	g := rig.Serve(t, dir)
	g.Open(t, "/mcp", false) // it answers once the servers have
	if out, errs, code := rig.Command(t, dir, "status", "--url", g.URL); code != 0 || strings.Count(out, "1, 4 resources, 2 prompts") != 2 {
		t.Errorf("status: exit %d\n%s%s", code, out, errs)
	}
}

// A reader is a client of the official SDK.
type reader struct {
	*mcp.ClientSession
	updated, prompts chan string
}

func (r *reader) do(t *testing.T, server, what, uri string) {
	t.Helper()
	_, _ = r.CallTool(t.Context(), &mcp.CallToolParams{Name: "do-" + server, Arguments: map[string]any{"do": what, "uri": uri}}) // it may die of it
}

func (r *reader) hears(t *testing.T, what string, c <-chan string, want string) {
	t.Helper()
	if got := wait.Receive(t, what, c); got != want {
		t.Errorf("%s: heard %q, want %q", what, got, want)
	}
}

func connect(t *testing.T, tr mcp.Transport, version string) *reader {
	t.Helper()
	r := &reader{updated: make(chan string, 100), prompts: make(chan string, 100)}
	c := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler:   func(_ context.Context, r2 *mcp.ResourceUpdatedNotificationRequest) { r.updated <- r2.Params.URI },
		PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) { r.prompts <- "changed" },
	})
	s, err := c.Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	r.ClientSession = s
	return r
}

func TestAClientHearsOfUpdatesAlsoAfterTheServerHasRestarted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version      string
		modernBehind bool
		stdio        bool
	}{
		{"2025-11-25", false, false}, {"2025-11-25", true, true}, {"", false, true}, {"", true, false},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			dir := libraries(t, tt.modernBehind)
			var tr mcp.Transport
			if tt.stdio {
				cmd := rig.Switchboard(t, "stdio", "--alone")
				cmd.Dir = dir
				tr = &mcp.CommandTransport{Command: cmd}
			} else {
				tr = &mcp.StreamableClientTransport{Endpoint: rig.Serve(t, dir).URL + "/mcp"}
			}
			r := connect(t, tr, tt.version)
			const ofA, ofB = "switchboard://a/doc://shared", "switchboard://b/doc://shared"
			for _, uri := range []string{ofA, ofB} {
				if err := r.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
					t.Fatalf("%s: %v", uri, err)
				}
			}
			// A listener of the modern era is acknowledged some time after Subscribe. An
			// update that comes late must not be made twice: it would be heard below.
			for server, uri := range map[string]string{"a": ofA, "b": ofB} {
				rig.Eventually(t, "the first update of "+uri, func() string {
					r.do(t, server, "update", "doc://shared")
					select {
					case got := <-r.updated:
						if got != uri {
							return got
						}
						return ""
					case <-time.After(5 * time.Second):
						return "heard nothing"
					}
				})
			}
			r.do(t, "a", "die", "")
			r.hears(t, "what may have been updated", r.updated, ofA)
			r.do(t, "a", "update", "doc://shared")
			r.hears(t, "an update after the restart", r.updated, ofA)
			if err := r.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: ofA}); err != nil {
				t.Fatal(err)
			}
			// A modern client only closes its stream, and nobody acknowledges that: what
			// is underway at that moment may be heard. What comes after is not.
			both := func() {
				r.do(t, "a", "update", "doc://shared")
				r.do(t, "b", "update", "doc://shared")
			}
			rig.Eventually(t, "an update of the other alone", func() string {
				both()
				select {
				case got := <-r.updated:
					if got == ofB {
						return ""
					}
					return "heard " + got
				case <-time.After(5 * time.Second):
					return "heard nothing"
				}
			})
			for len(r.updated) > 0 {
				<-r.updated
			}
			both()
			r.hears(t, "an update after it was unsubscribed", r.updated, ofB)
			if _, err := r.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: ofB}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAClientIsToldOfNewPromptsOnlyWhereItSeesThem(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, libraries(t, false))
	all := connect(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, "2025-11-25")
	few := connect(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp/tasks/tool"}, "2025-11-25")
	all.do(t, "b", "prompt", "")
	g.Accept(t, "b", "prompt", "new-b")
	all.hears(t, "a new prompt", all.prompts, "changed")
	rig.Eventually(t, "the new prompt is listed", func() string {
		list, err := all.ListPrompts(t.Context(), nil)
		if err != nil {
			return err.Error()
		}
		if len(list.Prompts) != 5 {
			return fmt.Sprint(len(list.Prompts))
		}
		return ""
	})
	select {
	case <-few.prompts:
		t.Error("a client was told of a prompt that it does not see")
	default:
	}
}

func TestExtensionsGoToTheOneServerThatDeclaredThem(t *testing.T) {
	t.Parallel()
	const all = `{"tools":{},"prompts":{},"resources":{},"completions":{},"tasks":{"list":{}},"experimental":{"lab":{"v":1.0}},"extensions":{"com.example/ui":{}}}`
	const some = `{"tools":{},"experimental":{"lab":{}}}`
	for _, modern := range []bool{false, true} {
		era := map[bool]string{false: "legacy", true: "modern"}[modern]
		quoted, _ := json.Marshal([]string{all, some})
		var caps []json.RawMessage
		_ = json.Unmarshal(quoted, &caps)
		dir := rig.LayOut(t, rig.Fakes(
			fmt.Sprintf(`one: {transport: stdio, command: [FAKE, echo, one, %s, %s]}`, era, caps[0]),
			fmt.Sprintf(`two: {transport: stdio, command: [FAKE, echo, two, %s, %s]}`, era, caps[1])))
		rig.EachSession(t, dir, func(t *testing.T, name string, s rig.Session) {
			same := strings.HasSuffix(name, era)
			for _, method := range []string{"tasks/get", "ui/open"} {
				m, _ := s.Ask(t, method, `{"taskId":"7","n":1.0}`)
				if same && (!strings.Contains(string(m.Result), `"by":"one","method":"`+method+`"`) || !strings.Contains(string(m.Result), `"n":1.0`)) {
					t.Errorf("%s behind, %s: %s", era, method, m.Raw)
				}
				if !same && (m.Error == nil || m.Error.Code != -32601) {
					t.Errorf("%s behind, %s: %s", era, method, m.Raw)
				}
			}
			if m, _ := s.Ask(t, "lab/x", `{}`); m.Error == nil || m.Error.Code != -32601 {
				t.Errorf("lab/x, which two servers declared: %s", m.Raw)
			}
			// What is the client's own in _meta goes on with every method.
			for method, params := range map[string]string{
				"prompts/get":         `{"name":"prompt-one"`,
				"resources/read":      `{"uri":"one:1"`,
				"completion/complete": `{"ref":{"type":"ref/prompt","name":"prompt-one"},"argument":{"name":"a","value":"b"}`,
				"tools/call":          `{"name":"tool-one"`,
			} {
				const mine = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","com.example/x":{"n":1.0}`
				given := params + `,"_meta":{` + mine + `}}`
				if strings.HasSuffix(name, "modern") {
					given = params + `,` + strings.Replace(rig.ModernMeta, "{", "{"+mine+",", 1) + `}`
				}
				body := `{"jsonrpc":"2.0","id":99,"method":"` + method + `","params":` + given + `}`
				m := rig.Message{}
				if h, ok := s.(*rig.HTTPSession); ok && h.Modern {
					target := map[string]string{"prompts/get": "prompt-one", "resources/read": "one:1", "tools/call": "tool-one"}[method]
					m, _ = h.Post(t, body, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {target}})
				} else {
					m = s.Send(t, body)
				}
				if !strings.Contains(string(m.Result), mine) || !strings.Contains(string(m.Result), `"method":"`+method+`"`) {
					t.Errorf("%s: %s", method, m.Raw)
				}
			}
		})
	}
}
