package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	markserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// If a server says that it has no such tool, and its list agrees, it has not executed the call,
// even if it never announces the change. Otherwise its answer is passed on.
func TestACallOfAToolThatItsServerHasWithdrawnIsNotExecuted(t *testing.T) {
	t.Parallel()
	type way struct {
		site     http.Handler
		withdraw func()
		executed bool // the server's answer counts
	}
	sdk := func(stateless bool, odd func(*atomic.Bool) mcp.Middleware) func() way {
		return func() way {
			s := sdkServer()
			closeSessions(t, s)
			var gone atomic.Bool
			w := way{
				site: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless}),
				withdraw: func() {
					gone.Store(true)
					s.RemoveTools("echo")
				},
			}
			if odd != nil {
				s.AddReceivingMiddleware(odd(&gone))
			}
			return w
		}
	}
	answers := func(text string) func(*atomic.Bool) mcp.Middleware {
		return func(gone *atomic.Bool) mcp.Middleware {
			return func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
					if method == "tools/call" && gone.Load() {
						return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
					}
					return next(ctx, method, r)
				}
			}
		}
	}
	for name, newWay := range map[string]func() way{
		"go-sdk with sessions": sdk(false, nil),
		"go-sdk without":       sdk(true, nil),
		"mcp-go": func() way {
			s := markServer()
			return way{site: markserver.NewStreamableHTTPServer(s), withdraw: func() { s.DeleteTools("echo") }}
		},
		"a result that says it": sdk(true, answers("Unknown tool: echo")),
		"a result that says something like it": func() way {
			w := sdk(true, answers("echo: file not found"))()
			w.executed = true
			return w
		},
		"a result of an SDK that says it": sdk(true, answers("MCP error -32602: Tool echo not found")),
		"an error that says something like it": func() way {
			w := sdk(true, func(gone *atomic.Bool) mcp.Middleware {
				return func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
						if method == "tools/call" && gone.Load() { // it had executed the call
							return nil, &jsonrpc.Error{Code: -32603, Message: "tool echo not found"}
						}
						return next(ctx, method, r)
					}
				}
			})()
			w.executed = true
			return w
		},
		"an error that says more": func() way {
			w := sdk(true, func(gone *atomic.Bool) mcp.Middleware {
				return func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
						if method == "tools/call" && gone.Load() {
							return nil, &jsonrpc.Error{Code: -32602, Message: "echo: sent the mail, but the address book was not found; tool echo is disabled"}
						}
						return next(ctx, method, r)
					}
				}
			})()
			w.executed = true
			return w
		},
		"one that offers the tool all the same": func() way {
			w := sdk(true, answers("Unknown tool: echo"))()
			before := w.site
			offered := sdkServer()
			lists := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return offered }, &mcp.StreamableHTTPOptions{Stateless: true})
			w.site = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "tools/call" {
					before.ServeHTTP(out, r)
					return
				}
				lists.ServeHTTP(out, r)
			})
			w.executed = true
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWay()
			site := httptest.NewServer(w.site)
			t.Cleanup(func() {
				_ = site.Listener.Close()
				site.CloseClientConnections()
				site.Close()
			})
			f := readyFleet(t, Options{}, switchboard.Server{ID: "one", Transport: switchboard.TransportHTTP, URL: site.URL + "/mcp"})
			c := echoCall("one", "{}")
			c.Params = []byte(`{"name":"echo","arguments":{"text":"hello"}}`)
			if result, err := f.Call(t.Context(), c); err != nil || !strings.Contains(string(result.JSON), "echo hello") {
				t.Fatalf("%s, %v", result.JSON, err)
			}
			w.withdraw()
			began := time.Now()
			result, err := f.Call(t.Context(), c)
			own, ours := errors.AsType[*switchboard.Error](err)
			switch {
			case !w.executed && !ours && time.Since(began) >= confirmTimeout:
				wait.Late(t, "the listing that says that the tool is gone")
			case w.executed && ours:
				t.Errorf("the server's error is not passed on: %v", err)
			case !w.executed && (!ours || !own.Unsent || own.Code != switchboard.CodeNoneHealthy):
				t.Errorf("%s, %v; want a refusal of what was not executed", result.JSON, err)
			}
		})
	}
}

// Whoever waits for the list of a server that announces no change has each change when the wait ends. The wait ends with its context if the server does not answer.
func TestAnAwaitedListHasWhatTheServerOffersNow(t *testing.T) {
	t.Parallel()
	s := sdkServer()
	var hangs atomic.Bool
	over := make(chan struct{})
	lists := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-over
			return
		}
		lists.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(over)
		_ = site.Listener.Close()
		site.CloseClientConnections()
		site.Close()
	})
	f := readyFleet(t, Options{}, switchboard.Server{ID: "one", Transport: switchboard.TransportHTTP, URL: site.URL + "/mcp"})
	for _, name := range []string{"a", "b", "c"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
		listed := f.AwaitList(wait.Context(t), "one")
		if offer := f.Offers()[0]; !listed || !offersTool(&offer, name) {
			t.Errorf("the list lacks %s: %s", name, offer.Tools)
		}
	}
	if f.AwaitList(wait.Context(t), "two") {
		t.Error("the list of a server that is not there is listed")
	}
	hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if f.AwaitList(ctx, "one") || ctx.Err() == nil {
		t.Error("a list is awaited that the server has not given")
	}
}
