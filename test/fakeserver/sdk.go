package fakeserver

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/summit-switchboard/switchboard/test/fault"
)

// Library is a server of the official SDK with some resources, templates, prompts and a tool that changes them.
func Library(name string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{
		Instructions:       "Ask " + name + "\u202e for\x1b documents.",
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{name + " " + r.Params.Ref.Name + r.Params.Ref.URI}}}, nil
		},
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(r.Params.URI, "/none") {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: name + " " + r.Params.URI}}}, nil
	}
	get := func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { //nolint:unparam // a handler
		return &mcp.GetPromptResult{Description: name + " " + r.Params.Name}, nil
	}
	for _, uri := range []string{"doc://shared", "doc://" + name} {
		s.AddResource(&mcp.Resource{URI: uri, Name: uri}, read)
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: name + "://{id}", Name: "t"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "doc://shared/{id}", Name: "u"}, read)
	for _, prompt := range []string{"greet", "by-" + name} {
		s.AddPrompt(&mcp.Prompt{Name: prompt}, get)
	}
	type input struct {
		Do  string `json:"do"`
		URI string `json:"uri"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "do-" + name}, func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		switch in.Do {
		case "prompt":
			s.AddPrompt(&mcp.Prompt{Name: "new-" + name}, get)
		case "update":
			return &mcp.CallToolResult{}, nil, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: in.URI})
		case "die":
			os.Exit(0)
		}
		return &mcp.CallToolResult{}, nil, nil
	})
	return s
}

// Echo serves on stdio an MCP server with these capabilities. It answers each request with the request's method and params.
func Echo(name string, modern bool, capabilities string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var q struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal(in.Bytes(), &q) != nil || q.ID == nil {
			continue
		}
		result := fmt.Sprintf(`{"by":%q,"method":%q,"params":%s}`, name, q.Method, cmp.Or(string(q.Params), "null"))
		switch {
		case q.Method == "initialize" && !modern:
			result = `{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"echo","version":"1"}}`
		case q.Method == "server/discover" && modern:
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + capabilities + `}`
		case q.Method == "initialize" || q.Method == "server/discover":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", q.ID)
			continue
		case q.Method == "tools/list":
			result = fmt.Sprintf(`{"tools":[{"name":"tool-%s","inputSchema":{"type":"object"}}]}`, name)
		case q.Method == "prompts/list":
			result = fmt.Sprintf(`{"prompts":[{"name":"prompt-%s"}]}`, name)
		case q.Method == "resources/list":
			result = fmt.Sprintf(`{"resources":[{"uri":"%s:1"}]}`, name)
		case q.Method == "resources/templates/list":
			result = `{"resourceTemplates":[]}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", q.ID, result)
	}
}

// ServeFaulty serves the real server of package fault over HTTP, in a process of its own that a test can kill. args are the transport, the address to
// listen at and the ledger. It prints the address.
func ServeFaulty(args []string) error {
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, fault.NewHandler(fault.Transport(args[0]), "one", fault.Ledger(args[2])))
}
