package gateway_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A guest is a connected client of another library.
type guest struct {
	version string
	list    func(ctx context.Context) ([]string, error)
	call    func(ctx context.Context, tool string) (text string, isError bool, err error)
	heard   <-chan string // methods of notifications
	close   func()
}

// guests connect, over HTTP.
var guests = []struct {
	name, version string
	connect       func(ctx context.Context, t *testing.T, w *world) guest
}{
	{"mcp-go legacy", "2025-11-25", func(ctx context.Context, t *testing.T, w *world) guest {
		tr, err := transport.NewStreamableHTTP(w.url+"/mcp", transport.WithContinuousListening()) //nolint:staticcheck // as legacy clients do
		if err != nil {
			t.Fatal(err)
		}
		return mcpgoGuest(ctx, t, mcpgo.NewClient(tr, mcpgo.WithLegacyProtocolOnly())) //nolint:staticcheck // as legacy clients do
	}},
	{"mcp-go modern", "2026-07-28", func(ctx context.Context, t *testing.T, w *world) guest {
		tr, err := transport.NewStreamableHTTP(w.url + "/mcp")
		if err != nil {
			t.Fatal(err)
		}
		c := mcpgo.NewClient(tr)
		g := mcpgoGuest(ctx, t, c)
		stop, err := c.ListenAsync(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		was := g.close
		g.close = func() { stop(); was() }
		return g
	}},
	{"go-sdk legacy", "2025-11-25", func(ctx context.Context, t *testing.T, w *world) guest {
		return gosdkGuest(ctx, t, &gosdk.StreamableClientTransport{Endpoint: w.url + "/mcp"}, "2025-11-25")
	}},
	{"go-sdk modern", "2026-07-28", func(ctx context.Context, t *testing.T, w *world) guest {
		return gosdkGuest(ctx, t, &gosdk.StreamableClientTransport{Endpoint: w.url + "/mcp"}, "")
	}},
	{"go-sdk legacy on stdio", "2025-11-25", func(ctx context.Context, t *testing.T, w *world) guest {
		return gosdkGuest(ctx, t, stdioTransport(ctx, t, w), "2025-11-25")
	}},
	{"go-sdk modern on stdio", "2026-07-28", func(ctx context.Context, t *testing.T, w *world) guest {
		return gosdkGuest(ctx, t, stdioTransport(ctx, t, w), "")
	}},
}

func stdioTransport(ctx context.Context, t *testing.T, w *world) gosdk.Transport {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- w.ServeStdio(ctx, gateway.Stdio{In: inR, Out: outW, Principal: stdioPrincipal, Grace: nineSeconds})
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		if err := <-done; err != nil {
			t.Errorf("serving ended: %v", err)
		}
	})
	return &gosdk.IOTransport{Reader: outR, Writer: inW}
}

func mcpgoGuest(ctx context.Context, t *testing.T, c *mcpgo.Client) guest {
	t.Helper()
	heard := make(chan string, 100)
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method != mcp.MethodNotificationSubscriptionsAcknowledged {
			heard <- n.Method
		}
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var req mcp.InitializeRequest
	req.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	req.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}
	res, err := c.Initialize(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if res.ServerInfo.Name != "switchboard" {
		t.Errorf("the server's info: %+v", res.ServerInfo)
	}
	return guest{
		version: res.ProtocolVersion,
		heard:   heard,
		close:   func() { _ = c.Close() },
		list: func(ctx context.Context) (names []string, _ error) {
			res, err := c.ListTools(ctx, mcp.ListToolsRequest{})
			if err != nil {
				return nil, err
			}
			for _, tool := range res.Tools {
				names = append(names, tool.Name)
			}
			return names, nil
		},
		call: func(ctx context.Context, tool string) (string, bool, error) {
			var req mcp.CallToolRequest
			req.Params.Name = tool
			req.Params.Meta = &mcp.Meta{ProgressToken: 1}
			res, err := c.CallTool(ctx, req)
			if err != nil || len(res.Content) == 0 {
				return "", false, err
			}
			text, _ := mcp.AsTextContent(res.Content[0])
			return text.Text, res.IsError, nil
		},
	}
}

func gosdkGuest(ctx context.Context, t *testing.T, tr gosdk.Transport, version string) guest {
	t.Helper()
	heard := make(chan string, 100)
	c := gosdk.NewClient(&gosdk.Implementation{Name: "test", Version: "1"}, &gosdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) { heard <- "notifications/tools/list_changed" },
		ProgressNotificationHandler: func(context.Context, *gosdk.ProgressNotificationClientRequest) {
			heard <- "notifications/progress"
		},
	})
	s, err := c.Connect(ctx, tr, &gosdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	return guest{
		version: s.InitializeResult().ProtocolVersion,
		heard:   heard,
		close:   func() { _ = s.Close() },
		list: func(ctx context.Context) (names []string, _ error) {
			for tool, err := range s.Tools(ctx, nil) {
				if err != nil {
					return nil, err
				}
				names = append(names, tool.Name)
			}
			return names, nil
		},
		call: func(ctx context.Context, tool string) (string, bool, error) {
			p := &gosdk.CallToolParams{Name: tool}
			p.SetProgressToken(1)
			res, err := s.CallTool(ctx, p)
			if err != nil || len(res.Content) == 0 {
				return "", false, err
			}
			text, _ := res.Content[0].(*gosdk.TextContent)
			return text.Text, res.IsError, nil
		},
	}
}

func TestClientLibrariesOfOthersWork(t *testing.T) {
	for _, tt := range guests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.answers("hello", `{"content":[{"type":"text","text":"hello back"}]}`)
			w.play("progress", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
				c.Notify(switchboard.Notification{Method: "notifications/progress", Params: []byte(`{"progressToken":1,"progress":1}`)})
				return switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"done"}]}`)}, nil
			})
			w.play("approve", func(context.Context, *switchboard.Call) (switchboard.Result, error) {
				return switchboard.Result{}, switchboard.Refuse(switchboard.CodeApprovalPending, "a person has to approve")
			})
			w.play("fails", func(context.Context, *switchboard.Call) (switchboard.Result, error) {
				return switchboard.Result{}, &switchboard.ServerError{Server: "s", Object: []byte(`{"code":4711,"message":"the server's own words"}`)}
			})
			s := w.stalls()
			g := tt.connect(t.Context(), t, w)
			defer g.close()
			if g.version != tt.version {
				t.Errorf("speaks %s, want %s", g.version, tt.version)
			}
			names, err := g.list(t.Context())
			if err != nil || strings.Join(names, " ") != "echo region hello progress approve fails stall" {
				t.Errorf("list: %q %v", names, err)
			}
			if text, isError, err := g.call(t.Context(), "hello"); err != nil || isError || text != "hello back" {
				t.Errorf("call: %q %v %v", text, isError, err)
			}
			if text, isError, err := g.call(t.Context(), "approve"); err != nil || !isError || !strings.Contains(text, "a person has to approve") {
				t.Errorf("a refusal for the model: %q %v %v", text, isError, err)
			}
			if _, _, err := g.call(t.Context(), "nosuch"); err == nil || !strings.Contains(err.Error(), "Unknown tool: nosuch") {
				t.Errorf("unknown tool: %v", err)
			}
			if _, _, err := g.call(t.Context(), "fails"); err == nil || !strings.Contains(err.Error(), "the server's own words") {
				t.Errorf("a server's error: %v", err)
			}
			if text, _, err := g.call(t.Context(), "progress"); err != nil || text != "done" {
				t.Errorf("call with progress: %q %v", text, err)
			}
			if got := <-g.heard; got != "notifications/progress" {
				t.Errorf("heard %s", got)
			}
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-s.in; leave() }()
			if _, _, err := g.call(ctx, "stall"); err == nil {
				t.Error("a cancelled call succeeded")
			}
			if tt.name == "mcp-go legacy" {
				close(s.out) // a disconnect cancels nothing in this era
			} else {
				<-s.ended
			}

			// A modern client may not have begun to listen yet: change the list until it is
			// notified.
			for n, told := 0, false; !told; n++ {
				w.change("new" + strings.Repeat("er", n))
				select {
				case m := <-g.heard:
					told = m == "notifications/tools/list_changed"
				case <-time.After(10 * time.Millisecond):
				}
			}
			if names, err := g.list(t.Context()); err != nil || names[7] != "new" {
				t.Errorf("list after: %q %v", names, err)
			}
		})
	}
}
