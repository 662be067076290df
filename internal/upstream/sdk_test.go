package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	mark "github.com/mark3labs/mcp-go/mcp"
	markserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// An input of the SDKs' tool.
type echoInput struct {
	Text string `json:"text"`
}

// sdkServer returns a server of the official SDK with a tool that reports progress, and one that
// adds a tool.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, r *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			for i := range 3 {
				if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i)}); err != nil {
					return nil, nil, err
				}
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "echo " + in.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(s, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
		return &mcp.CallToolResult{}, nil, nil
	})
	return s
}

// markServer returns the same server, made with mcp-go.
func markServer() *markserver.MCPServer {
	s := markserver.NewMCPServer("mcp-go", "1", markserver.WithToolCapabilities(true), markserver.WithLogging())
	s.AddTool(mark.NewTool("echo", mark.WithString("text")), func(ctx context.Context, r mark.CallToolRequest) (*mark.CallToolResult, error) {
		if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
			for i := range 3 {
				if err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i}); err != nil {
					return nil, err
				}
			}
		}
		return mark.NewToolResultText("echo " + r.GetString("text", "")), nil
	})
	s.AddTool(mark.NewTool("grow"), func(context.Context, mark.CallToolRequest) (*mark.CallToolResult, error) {
		s.AddTool(mark.NewTool("new"), func(context.Context, mark.CallToolRequest) (*mark.CallToolResult, error) {
			return mark.NewToolResultText(""), nil
		})
		return mark.NewToolResultText(""), nil
	})
	return s
}

// closeSessions closes the server's sessions after the test. A test that ends early leaves them open.
func closeSessions(t *testing.T, s *mcp.Server) {
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
	})
}

func init() {
	fakes["go-sdk"] = func(*fake) { _ = sdkServer().Run(context.Background(), &mcp.StdioTransport{}) }
	fakes["mcp-go"] = func(*fake) { _ = markserver.ServeStdio(markServer()) }
}

func TestServersMadeWithTheSDKsAreServedInTheEraTheyPrefer(t *testing.T) {
	t.Parallel()
	serve := func(h http.Handler) switchboard.Server {
		site := httptest.NewServer(h)
		t.Cleanup(func() {
			_ = site.Listener.Close()
			site.CloseClientConnections()
			site.Close()
		})
		return switchboard.Server{ID: "one", Transport: switchboard.TransportHTTP, URL: site.URL + "/mcp"}
	}
	older := func(h http.Handler) switchboard.Server {
		cfg := serve(h)
		cfg.URL = strings.TrimSuffix(cfg.URL, "/mcp") + "/sse"
		return cfg
	}
	official := func(stateless bool) func() switchboard.Server {
		return func() switchboard.Server {
			s := sdkServer()
			closeSessions(t, s)
			return serve(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
		}
	}
	for _, tt := range []struct {
		name     string
		server   func() switchboard.Server
		era      link.Era
		progress int // mcp-go loses notifications just before a result
		grows    bool
	}{
		{"go-sdk over HTTP with sessions", official(false), link.EraLegacy, 3, true},
		{"go-sdk over HTTP without", official(true), link.EraModern, 3, true},
		{"go-sdk over stdio", func() switchboard.Server { return stdioFake("one", "go-sdk") }, link.EraModern, 3, true},
		{"mcp-go over HTTP with sessions", func() switchboard.Server {
			return serve(markserver.NewStreamableHTTPServer(markServer(), markserver.WithStateful(true),
				markserver.WithStreamableHTTPProtocolVersions("2025-11-25", "2025-06-18")))
		}, link.EraLegacy, 0, true},
		{"mcp-go over HTTP without", func() switchboard.Server { return serve(markserver.NewStreamableHTTPServer(markServer())) }, link.EraModern, 0, true},
		{"go-sdk over HTTP with SSE", func() switchboard.Server {
			s := sdkServer()
			return older(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
		}, link.EraLegacy, 3, true},
		{"mcp-go over HTTP with SSE", func() switchboard.Server { return older(markserver.NewSSEServer(markServer())) }, link.EraLegacy, 0, true},
		{"mcp-go over stdio", func() switchboard.Server { return stdioFake("one", "mcp-go") }, link.EraModern, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := readyFleet(t, Options{}, tt.server())
			if s := status(t, f, "one"); s.Era != tt.era || s.Tools != 2 || s.SSE != strings.HasSuffix(tt.name, "SSE") {
				t.Errorf("status %+v", s)
			}
			var h notificationLog
			c := echoCall("one", "{}")
			c.Params = []byte(`{"arguments":{"text":"hello"},"_meta":{"progressToken":"mine","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
			c.Notify = h.notify
			result, err := f.Call(t.Context(), c)
			if err != nil || !strings.Contains(string(result.JSON), "echo hello") {
				t.Fatalf("%s, %v", result.JSON, err)
			}
			if h.count() < tt.progress {
				t.Errorf("%d notifications, want %d", h.count(), tt.progress)
			}
			for _, n := range h.said {
				if !strings.Contains(string(n.Params), `"mine"`) {
					t.Errorf("not the client's token: %s", n.Params)
				}
			}
			if !tt.grows {
				return
			}
			c = echoCall("one", "{}")
			c.Target = "grow"
			if _, err := f.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the new tool is offered", func() bool { return len(f.Offers()[0].Tools) == 3 })
		})
	}
}

func BenchmarkCall(b *testing.B) {
	for _, kind := range []string{"stdio", "http"} {
		for _, size := range []int{1 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", kind, size>>10), func(b *testing.B) {
				result := `{"text":"` + strings.Repeat("x", size) + `"}`
				f := New(Options{})
				defer f.Close(context.Background())
				cfg := stdioFake("one", "bench", fmt.Sprintf("SIZE=%d", size))
				if kind == "http" {
					site := &site{era: link.EraModern, sessions: map[string]bool{}}
					site.special = onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) { writeResult(w, m, result) })
					site.Server = httptest.NewServer(site)
					defer site.down()
					cfg = site.server()
				}
				f.Set([]switchboard.Server{cfg})
				f.Ready(context.Background())
				c := echoCall("one", `{"text":"`+strings.Repeat("x", 1<<10)+`"}`)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := f.Call(b.Context(), c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
