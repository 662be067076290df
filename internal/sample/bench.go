package sample

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// capabilitiesKey is the name of a block of capabilities, wherever it stands.
const capabilitiesKey = "x-summit-capabilities"

// A capability is one label of a tool, in the form of the wire.
type capability struct {
	Verb        string   `json:"verb"`
	Resource    string   `json:"resource"`
	Constraints []string `json:"constraints,omitempty"`
}

func newCapability(verb, resource string, constraints ...string) capability {
	return capability{verb, resource, constraints}
}

// isReadOnly reports whether c promises to change nothing.
func (c capability) isReadOnly() bool { return slices.Contains(c.Constraints, "readonly") }

// A labelPosition says where a server publishes the capabilities of its tools.
type labelPosition int

const (
	onTool         labelPosition = iota // _meta of each tool
	onToolPrefixed                      // the same, under a reverse-DNS prefix
	inExperimental                      // the handshake's capabilities.experimental
	inExtensions                        // the handshake's capabilities.extensions
)

// vendorPrefix is the reverse-DNS name before capabilitiesKey, for positions that require a prefix.
const vendorPrefix = "io.switchboard/"

// A sampleServer describes a server before it runs: its tools, and the position of their labels.
type sampleServer struct {
	name, title, instructions string
	position                  labelPosition

	tools  []server.ServerTool
	labels map[string][]capability
}

// addTool adds a tool to the server. Its input schema is derived from A; unknown and ill-typed
// arguments are refused before do is called. An error of do becomes a result with isError. If do
// returns a string, the result is text only, else it is structured as well.
func addTool[A any](b *sampleServer, name, description string, does capability, do func(context.Context, A) (any, error), opts ...mcp.ToolOption) {
	b.addRaw(name, does, func(ctx context.Context, arguments json.RawMessage) (any, error) {
		a, err := decodeArguments[A](name, arguments)
		if err != nil {
			return nil, err
		}
		return do(ctx, a)
	}, slices.Concat([]mcp.ToolOption{mcp.WithDescription(description), mcp.WithInputSchema[A]()}, opts)...)
}

// decodeArguments decodes the arguments of a tool.
func decodeArguments[A any](name string, arguments json.RawMessage) (a A, err error) {
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &a); err != nil {
			return a, fmt.Errorf("arguments of %s: %w", name, err)
		}
	}
	return a, nil
}

// addRaw is addTool for a tool that decodes its arguments itself. opts must set the input schema.
func (b *sampleServer) addRaw(name string, does capability, do func(ctx context.Context, arguments json.RawMessage) (any, error), opts ...mcp.ToolOption) {
	no := false
	t := mcp.NewTool(name, slices.Concat([]mcp.ToolOption{
		mcp.WithReadOnlyHintAnnotation(does.isReadOnly()),
		mcp.WithOpenWorldHintAnnotation(false),
	}, opts)...)
	if does.isReadOnly() {
		t.Annotations.DestructiveHint = &no
	}
	// A nil slice is valid in Go, but clients must not send null.
	t.RawInputSchema = bytes.ReplaceAll(t.RawInputSchema, []byte(`["null","array"]`), []byte(`"array"`))
	switch b.position {
	case onTool:
		t.Meta = mcp.NewMetaFromMap(map[string]any{capabilitiesKey: []capability{does}})
	case onToolPrefixed:
		t.Meta = mcp.NewMetaFromMap(map[string]any{vendorPrefix + capabilitiesKey: []capability{does}})
	case inExperimental, inExtensions:
		if b.labels == nil {
			b.labels = map[string][]capability{}
		}
		b.labels[name] = []capability{does}
	}
	b.tools = append(b.tools, server.ServerTool{Tool: t, Handler: func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result, err := do(ctx, r.Params.RawArguments)
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		if text, ok := result.(string); ok {
			return mcp.NewToolResultText(text), nil
		}
		return mcp.NewToolResultStructuredOnly(result), nil
	}})
}

// withInput sets the input schema.
func withInput(schema json.RawMessage) mcp.ToolOption {
	return func(t *mcp.Tool) {
		t.InputSchema.Type = "" // mcp-go refuses a tool with both
		t.RawInputSchema = schema
	}
}

// withDestructiveHint marks a tool that destroys data for good.
func withDestructiveHint(yes bool) mcp.ToolOption { return mcp.WithDestructiveHintAnnotation(yes) }

// newServer creates the server.
func (b *sampleServer) newServer() *server.MCPServer {
	opts := []server.ServerOption{
		server.WithTitle(b.title),
		server.WithInstructions(b.instructions),
		server.WithToolCapabilities(false),
		server.WithInputSchemaValidation(),
		server.WithOutputSchemaValidation(),
		server.WithRecovery(),
	}
	if len(b.labels) > 0 {
		tools := map[string]any{}
		for name, says := range b.labels {
			tools[name] = map[string]any{capabilitiesKey: says}
		}
		told := map[string]any{"tools": tools}
		if b.position == inExperimental {
			opts = append(opts, server.WithExperimental(map[string]any{capabilitiesKey: told}))
		} else {
			// The protocol requires a prefix for keys of extensions.
			opts = append(opts, server.WithExtensions(map[string]any{vendorPrefix + capabilitiesKey: told}))
		}
	}
	s := server.NewMCPServer(b.name, Version, opts...)
	s.SetTools(b.tools...)
	return s
}

// checkLimit returns asked if it is between 1 and most, otherwise if asked is 0, and an error else.
func checkLimit(name string, asked, otherwise, most int) (int, error) {
	switch {
	case asked == 0:
		return otherwise, nil
	case asked < 1 || asked > most:
		return 0, fmt.Errorf("%s is %d; want 1 to %d", name, asked, most)
	}
	return asked, nil
}

// checkText returns an error if text is empty or longer than most bytes.
func checkText(name, text string, most int) error {
	switch {
	case text == "":
		return fmt.Errorf("%s is empty", name)
	case len(text) > most:
		return fmt.Errorf("%s is %d bytes long; at most %d are allowed", name, len(text), most)
	}
	return nil
}
