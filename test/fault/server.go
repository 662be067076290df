package fault

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tools of the real server, named by their annotations.
const (
	Stateful      = "stateful"      // destructiveHint
	Idempotent    = "idempotent"    // idempotentHint
	Deterministic = "deterministic" // readOnlyHint
)

// Tools lists all of them.
var Tools = []string{Stateful, Idempotent, Deterministic}

// A Ledger is a file in which servers record their executions. It survives their end, also a kill.
type Ledger string

// note records one execution. A line of this length is written atomically, also by several processes.
func (l Ledger) note(server, tool, key string) error {
	f, err := os.OpenFile(string(l), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%s\t%s\t%s\n", server, tool, key); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// Executed returns how often each server has executed the call with the key.
func (l Ledger) Executed(key string) (byServer map[string]int, err error) {
	text, err := os.ReadFile(string(l))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	byServer = map[string]int{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) == 3 && f[2] == key {
			byServer[f[0]]++
		}
	}
	return byServer, nil
}

// Answer is the text of the one right result of a call.
func Answer(server, tool, key string) string {
	return fmt.Sprintf("%s: %s has done %s.", server, tool, key)
}

// New returns the real server, made with the official SDK. Its tools take a key, record it, and name it in their results.
func New(name string, ledger Ledger) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	yes, no := true, false
	hints := map[string]*mcp.ToolAnnotations{
		Stateful:      {DestructiveHint: &yes},
		Idempotent:    {IdempotentHint: true, DestructiveHint: &no},
		Deterministic: {ReadOnlyHint: true},
	}
	for _, tool := range Tools {
		type input struct {
			Key string `json:"key" jsonschema:"names the call"`
		}
		mcp.AddTool(s, &mcp.Tool{Name: tool, Annotations: hints[tool]}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			if err := ledger.note(name, tool, in.Key); err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: Answer(name, tool, in.Key)}}}, nil, nil
		})
	}
	return s
}

// ServeStdio serves New on this process's stdin and stdout, until stdin ends.
func ServeStdio(name string, ledger Ledger) error {
	return New(name, ledger).Run(context.Background(), &mcp.StdioTransport{})
}

// A Handler serves New over HTTP.
type Handler struct {
	make func() http.Handler
	now  atomic.Pointer[http.Handler]
}

// NewHandler returns the real server over the transport t.
func NewHandler(t Transport, name string, ledger Ledger) *Handler {
	h := &Handler{make: func() http.Handler {
		s := New(name, ledger)
		get := func(*http.Request) *mcp.Server { return s }
		switch t {
		case SSE:
			return mcp.NewSSEHandler(get, nil)
		case Modern:
			return mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
		default:
			return mcp.NewStreamableHTTPHandler(get, nil)
		}
	}}
	h.Restart()
	return h
}

// Restart forgets all sessions.
func (h *Handler) Restart() {
	fresh := h.make()
	h.now.Store(&fresh)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*h.now.Load()).ServeHTTP(w, r) }
