package sample_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/summit-switchboard/switchboard/internal/sample"
)

// TestMain makes the test binary a sample over stdio if SAMPLE is set.
func TestMain(m *testing.M) {
	if name := os.Getenv("SAMPLE"); name != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err := sample.Serve(ctx, name, sample.Options{Root: os.Getenv("SAMPLE_ROOT"), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// stdio starts a sample as a separate process.
func stdio(t *testing.T, name, root string) *client.Client {
	t.Helper()
	// The race detector sleeps for a second at the end of a process.
	c, err := client.NewStdioMCPClient(os.Args[0], []string{"SAMPLE=" + name, "SAMPLE_ROOT=" + root, "GORACE=atexit_sleep_ms=0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// overHTTP serves a sample in this process and returns its URL. The test fails if the sample ends with
// an error.
func overHTTP(t *testing.T, name, root string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := sample.Serve(ctx, name, sample.Options{Root: root, HTTP: "127.0.0.1:0", Stdout: w})
		ended <- errors.Join(err, w.Close())
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("the address was not printed: %v", err)
	}
	return strings.TrimSpace(line)
}

// open initializes a connection in the given era.
func open(t *testing.T, c *client.Client, version string) *mcp.InitializeResult {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hello, err := c.Initialize(t.Context(), mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "test", Version: "1"},
	}})
	if err != nil {
		t.Fatalf("initialize: %v", err)
	}
	if got := c.ProtocolVersion(); got != version {
		t.Fatalf("the connection speaks %q, want %q", got, version)
	}
	return hello
}

// call calls a tool and returns the text of its result.
func call(t *testing.T, c *client.Client, tool string, args any) (text string, isError bool) {
	t.Helper()
	r, err := c.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: tool, Arguments: args}})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if len(r.Content) != 1 {
		t.Fatalf("%s: %d pieces of content, want 1", tool, len(r.Content))
	}
	piece, ok := r.Content[0].(mcp.TextContent)
	if !ok {
		t.Fatalf("%s: content is a %T", tool, r.Content[0])
	}
	return piece.Text, r.IsError
}

// must calls a tool and fails the test if the result is an error.
func must(t *testing.T, c *client.Client, tool string, args any) string {
	t.Helper()
	text, isError := call(t, c, tool, args)
	if isError {
		t.Fatalf("%s %v: %s", tool, args, text)
	}
	return text
}

// refused calls a tool whose result must be an error that contains want.
func refused(t *testing.T, c *client.Client, tool string, args any, want string) {
	t.Helper()
	if text, isError := call(t, c, tool, args); !isError || !strings.Contains(text, want) {
		t.Errorf("%s %v: isError %v, %q; want an error with %q", tool, args, isError, text, want)
	}
}

type jsonObject = map[string]any

const modern, legacy = mcp.ProtocolVersion20260728, "2025-11-25"

// tools are the number of tools of each sample, and a call that succeeds.
var tools = map[string]struct {
	count int
	tool  string
	args  jsonObject
	want  string
}{
	"atlas-search":  {2, "search_web", jsonObject{"query": "domain spoofing"}, "spoofing"},
	"aws-like":      {63, "s3_list_buckets", jsonObject{}, "reports"},
	"code-reader":   {3, "list_files", jsonObject{}, "hello.go"},
	"nimbus-search": {2, "web_search", jsonObject{"query": "domain spoofing"}, "spoofing"},
	"notifier":      {3, "list_channels", jsonObject{}, "security"},
}

func TestEverySampleServesBothErasOverBothTransports(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/hello.go", []byte("package hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range sample.Names() {
		want, ok := tools[name]
		if !ok {
			t.Errorf("%s: say in this test what it offers", name)
			continue
		}
		for _, version := range []string{modern, legacy} {
			for transport, dial := range map[string]func(*testing.T) *client.Client{
				"stdio": func(t *testing.T) *client.Client { return stdio(t, name, root) },
				"http": func(t *testing.T) *client.Client {
					c, err := client.NewStreamableHttpClient(overHTTP(t, name, root))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = c.Close() })
					return c
				},
			} {
				t.Run(name+" "+transport+" "+version, func(t *testing.T) {
					c := dial(t)
					hello := open(t, c, version)
					if hello.ServerInfo.Name != name {
						t.Errorf("the server calls itself %q", hello.ServerInfo.Name)
					}
					list, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
					if err != nil {
						t.Fatal(err)
					}
					if len(list.Tools) != want.count {
						t.Errorf("%d tools are listed, want %d", len(list.Tools), want.count)
					}
					if text := must(t, c, want.tool, want.args); !strings.Contains(text, want.want) {
						t.Errorf("%s gave %q, want it to say %q", want.tool, text, want.want)
					}
					refused(t, c, want.tool, jsonObject{"no_such_argument": 1}, "no_such_argument")
					if _, err := c.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: "no_such_tool"}}); err == nil {
						t.Error("a tool that does not exist was called")
					}
				})
			}
		}
	}
}

// said collects the capabilities that a server publishes, in any position.
func said(t *testing.T, name string) (where string, says map[string]string) {
	t.Helper()
	c := stdio(t, name, t.TempDir())
	hello := open(t, c, legacy)
	says = map[string]string{}
	for key, block := range map[string]any{
		"experimental": hello.Capabilities.Experimental["x-summit-capabilities"],
		"extensions":   hello.Capabilities.Extensions["io.switchboard/x-summit-capabilities"],
	} {
		if block == nil {
			continue
		}
		where += key
		tools, _ := block.(jsonObject)["tools"].(jsonObject)
		for tool, says1 := range tools {
			raw, err := json.Marshal(says1.(jsonObject)["x-summit-capabilities"])
			if err != nil {
				t.Fatal(err)
			}
			says[tool] = string(raw)
		}
	}
	list, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Meta == nil {
			continue
		}
		for key, block := range tool.Meta.AdditionalFields {
			if !strings.Contains(where, key) {
				where += key
			}
			raw, err := json.Marshal(block)
			if err != nil {
				t.Fatal(err)
			}
			says[tool.Name] = string(raw)
		}
	}
	if len(says) != len(list.Tools) {
		t.Errorf("%s: %d of %d tools are labelled", name, len(says), len(list.Tools))
	}
	return where, says
}

func TestEachSampleSaysWhatItsToolsDo(t *testing.T) {
	for name, want := range map[string]struct{ where, tool, says string }{
		"atlas-search":  {"x-summit-capabilities", "search_web", `[{"constraints":["pii_safe","readonly"],"resource":"internet","verb":"search"}]`},
		"aws-like":      {"x-summit-capabilities", "iam_attach_user_policy", `[{"constraints":["human_in_the_loop"],"resource":"aws","verb":"write"}]`},
		"code-reader":   {"extensions", "search_code", `[{"constraints":["readonly"],"resource":"codebase","verb":"search"}]`},
		"nimbus-search": {"experimental", "news_search", `[{"constraints":["rate_limited","readonly"],"resource":"internet","verb":"search"}]`},
		"notifier":      {"io.switchboard/x-summit-capabilities", "notify", `[{"constraints":["human_in_the_loop"],"resource":"slack","verb":"notify"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			where, says := said(t, name)
			if where != want.where {
				t.Errorf("capabilities are told in %q, want %q", where, want.where)
			}
			if says[want.tool] != want.says {
				t.Errorf("%s says %s, want %s", want.tool, says[want.tool], want.says)
			}
		})
	}
}

func TestHTTPRefusesForeignPagesAndForeignSessions(t *testing.T) {
	url := overHTTP(t, "notifier", "")
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for name, tt := range map[string]struct {
		header, value, body string
		status              int
	}{
		"a page of another site": {"Origin", "https://evil.example", list, http.StatusForbidden},
		"a session never issued": {"Mcp-Session-Id", "made-up", list, http.StatusNotFound},
		"a body without end":     {"X-None", "", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", sample.MaxMessage) + `"}`, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set(tt.header, tt.value)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != tt.status {
				t.Errorf("status %d, want %d", answer.StatusCode, tt.status)
			}
		})
	}
}

func TestServeRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		sample string
		o      sample.Options
		want   string
	}{
		"an unknown name":         {"atlas", sample.Options{}, `no sample is called "atlas"; there are atlas-search, aws-like,`},
		"a folder that is absent": {"code-reader", sample.Options{Root: "absent"}, "no such file"},
		"an open address":         {"notifier", sample.Options{HTTP: "0.0.0.0:0"}, "use a loopback address"},
		"all addresses":           {"notifier", sample.Options{HTTP: ":0"}, "use a loopback address"},
		"no port":                 {"notifier", sample.Options{HTTP: "127.0.0.1"}, "want host:port"},
		"an endless line":         {"notifier", sample.Options{Stdin: strings.NewReader(strings.Repeat(" ", sample.MaxMessage+1))}, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Stdout = io.Discard
			err := sample.Serve(t.Context(), tt.sample, tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Serve = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestServeEndsWithItsInput(t *testing.T) {
	if err := sample.Serve(t.Context(), "notifier", sample.Options{Stdin: strings.NewReader(""), Stdout: io.Discard}); err != nil {
		t.Errorf("Serve = %v, want a regular end", err)
	}
}
