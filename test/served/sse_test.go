package served_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// asker is a server over HTTP with SSE whose tool asks the client for a name.
func asker(t *testing.T) *httptest.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1}); err != nil {
				return nil, nil, err
			}
		}
		said, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who?", RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
		}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("Hello ", said.Content["name"])}}}, nil, nil
	})
	behind := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		behind.CloseClientConnections()
		behind.Close()
	})
	return behind
}

func TestAServerOverHTTPWithSSEServesClientsAndAsksEachOfThem(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	behind := asker(t)
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(fmt.Sprintf("old: {transport: http, url: %s/sse}", behind.URL))))
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	greeted := make(chan error, 2)
	for _, who := range []string{"Ann", "Bob"} {
		go func() {
			greeted <- func() error {
				progress := make(chan struct{}, 1)
				client := mcp.NewClient(&mcp.Implementation{Name: who, Version: "1"}, &mcp.ClientOptions{
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": who}}, nil
					},
					ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress <- struct{}{} },
				})
				s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, nil)
				if err != nil {
					return err
				}
				defer s.Close() //nolint:errcheck // the test is over
				params := &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{}}
				params.SetProgressToken(who)
				result, err := s.CallTool(ctx, params)
				if err != nil {
					return err
				}
				if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != "Hello "+who {
					return fmt.Errorf("%s got %+v", who, result.Content[0])
				}
				select {
				case <-progress:
					return nil
				case <-ctx.Done():
					return fmt.Errorf("%s heard of no progress: %w", who, ctx.Err())
				}
			}()
		}()
	}
	for range 2 {
		wait.Answered(t, ctx, "a greeting", <-greeted)
	}
	if out, errs, _ := rig.Command(t, g.Dir, "status", "--url", g.URL); !strings.Contains(out, "(HTTP+SSE)") {
		t.Errorf("status does not say what it speaks:\n%s%s", out, errs)
	}
}
