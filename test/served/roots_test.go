package served_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// surveyor is a server of the SDK that asks for the roots in each call, and when
// they have changed: then it adds a line to the file.
func surveyor(file string) *mcp.Server {
	list := func(ctx context.Context, s *mcp.ServerSession) string {
		roots, err := s.ListRoots(ctx, nil) //nolint:staticcheck // clients still have them
		if err != nil {
			return err.Error()
		}
		var uris []string
		for _, r := range roots.Roots {
			uris = append(uris, r.URI)
		}
		return strings.Join(uris, " ")
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "surveyor", Version: "1"}, &mcp.ServerOptions{
		RootsListChangedHandler: func(_ context.Context, r *mcp.RootsListChangedRequest) { //nolint:staticcheck // as above
			go func() { fakeserver.AppendLine(file, "changed: "+list(context.Background(), r.Session)) }()
		},
	})
	mcp.AddTool(s, &mcp.Tool{Name: "asker"}, func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: list(ctx, r.Session)}}}, nil, nil
	})
	return s
}

// surveyed is the configuration of a server that asks for roots, over a
// transport, and notes in the file what it hears when they have changed.
func surveyed(t *testing.T, transport, file string) string {
	if transport == "stdio" {
		return askerBehind(t, "stdio", false, "marks="+file)
	}
	var handler http.Handler
	one := surveyor(file)
	switch transport {
	case "sse":
		handler = mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return one }, nil)
	default:
		handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return one }, nil)
	}
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
	return "transport: http, url: " + server.URL + "/mcp"
}

// A rover is a legacy client whose roots change.
type rover struct {
	client  *mcp.Client
	session *mcp.ClientSession
}

// rove connects a rover to g, over HTTP, or over stdio to a switchboard of its own.
func rove(t *testing.T, tr mcp.Transport, name string) *rover {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil)
	c.AddRoots(&mcp.Root{URI: "file:///" + name}) //nolint:staticcheck // as above
	s, err := c.Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &rover{c, s}
}

// pipeTo is a switchboard for one client over stdio.
func pipeTo(t *testing.T, dir string) mcp.Transport {
	cmd := rig.Switchboard(t, "stdio", "--alone")
	cmd.Dir = dir
	return &mcp.CommandTransport{Command: cmd}
}

// asked has the server ask for the roots in a call.
func (r *rover) asked(t *testing.T) string {
	t.Helper()
	result, err := r.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "asker", Arguments: map[string]any{"do": "ask", "method": "roots/list", "params": "{}"}})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := result.Content[0].(*mcp.TextContent)
	return text.Text
}

// changes are the lines that a server has noted of changes.
func changes(file string) (lines []string) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "changed: ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestAServerHearsThatTheRootsOfItsClientHaveChangedAndAsksForThemAtOnce(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	for _, transport := range []string{"stdio", "http", "sse"} {
		for _, front := range []string{"http", "stdio"} {
			t.Run(front+" to "+transport, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "marks")
				dir := rig.LayOut(t, oddConfig(surveyed(t, transport, file)))
				var ann, ben *rover
				if front == "http" {
					g := rig.Serve(t, dir)
					ann = rove(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, "ann")
					ben = rove(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, "ben")
				} else {
					ann = rove(t, pipeTo(t, dir), "ann")
					ben = rove(t, pipeTo(t, dir), "ben")
				}
				for name, r := range map[string]*rover{"ann": ann, "ben": ben} {
					if got := r.asked(t); !strings.Contains(got, "file:///"+name) {
						t.Fatalf("in a call of %s the server hears %s", name, got)
					}
				}
				ann.client.AddRoots(&mcp.Root{URI: "file:///more"}) //nolint:staticcheck // as above
				rig.Eventually(t, "the server has the new roots", func() string {
					if got := changes(file); len(got) != 1 || !strings.Contains(got[0], "file:///ann") || !strings.Contains(got[0], "file:///more") {
						return fmt.Sprintf("it has noted %q", got)
					}
					return ""
				})
				ben.asked(t) // so that its server would have been told before
				if got := changes(file); len(got) != 1 {
					t.Errorf("for one change of one client it was told %q", got)
				}
			})
		}
	}
}

func TestNoServerHearsOfRootsOfAClientThatCannotBeToldApartOrOfAnotherEra(t *testing.T) {
	t.Parallel()
	const changed = `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`
	for _, tt := range []struct {
		name, more        string
		modern, ourModern bool // the server, the client
	}{
		{"a modern server", "", true, false},
		{"a modern client", "", false, true},
		{"a shared process", ", share: all", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "marks")
			g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", tt.modern, "marks="+file)+tt.more)))
			if tt.ourModern {
				s := g.Open(t, "/mcp", true)
				able(t, s, argument("echo"))
				s.Post(t, changed, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"notifications/roots/list_changed"}})
				able(t, s, argument("echo")) // comes after what the server would be told
			} else {
				r := rove(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, "ann")
				r.asked(t)
				r.client.AddRoots(&mcp.Root{URI: "file:///more"}) //nolint:staticcheck // as above
				r.asked(t)                                        // as above
			}
			if said, _ := os.ReadFile(file); strings.Count(string(said), "asker") < 2 || strings.Contains(string(said), "told") {
				t.Errorf("the server has noted %q", said)
			}
		})
	}
}

// Some programs can run only once, for example because they listen at a fixed port.
func TestAClientThatCanBeAskedLearnsThatAServerRunsOnlyOnce(t *testing.T) {
	t.Parallel()
	for share, want := range map[string]string{"principal": "runs, but could not be started once more for you", "all": "content"} {
		lock := filepath.Join(t.TempDir(), "lock")
		row := fmt.Sprintf(`a: {transport: stdio, share: %s, command: [sh, -c, 'mkdir "$2" || exit 1; exec "$0" "$1" "$3"', FAKE, %q, '%s']}`, share, lock, fmt.Sprintf(rig.Tool, "one"))
		g := rig.Serve(t, rig.LayOut(t, rig.Fakes(row)))
		rig.ListNames(t, g.Open(t, "/mcp", true)) // it runs
		client := rove(t, &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp"}, "ann")
		result, err := client.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "one", Arguments: map[string]any{}})
		got := fmt.Sprint(err)
		if err == nil {
			text, _ := result.MarshalJSON()
			got = string(text)
		}
		if !strings.Contains(got, want) {
			t.Errorf("share: %s: the client gets %s", share, got)
		}
	}
}
