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

// A capability is what a tool says that it can do, as it is written on the
// wire.
type capability struct {
	Verb        string   `json:"verb"`
	Resource    string   `json:"resource"`
	Constraints []string `json:"constraints,omitempty"`
}

func can(verb, resource string, constraints ...string) capability {
	return capability{verb, resource, constraints}
}

// readOnly reports whether c itself promises to change nothing.
func (c capability) readOnly() bool { return slices.Contains(c.Constraints, "readonly") }

// A place is where a server tells of its tools' capabilities.
type place int

const (
	onTool         place = iota // _meta of each tool
	onToolPrefixed              // the same, under a reverse-DNS prefix
	inExperimental              // the handshake's capabilities.experimental
	inExtensions                // the handshake's capabilities.extensions
)

// vendorPrefix is the reverse-DNS name that the samples put before
// capabilitiesKey where a prefix is due.
const vendorPrefix = "io.switchboard/"

// A bench is a server in the making: its tools, and where it tells what they
// can do.
type bench struct {
	name, title, instructions string
	place                     place

	tools []server.ServerTool
	says  map[string][]capability
}

// add puts a tool on the bench. Its input schema is made from A, unknown and
// ill-typed arguments are refused before do is called, and an error of do
// becomes a result that says isError. do returns a string for a result that is
// text alone, and anything else for one that is structured as well.
func add[A any](b *bench, name, description string, does capability, do func(context.Context, A) (any, error), opts ...mcp.ToolOption) {
	no := false
	t := mcp.NewTool(name, slices.Concat([]mcp.ToolOption{
		mcp.WithDescription(description),
		mcp.WithInputSchema[A](),
		mcp.WithReadOnlyHintAnnotation(does.readOnly()),
		mcp.WithOpenWorldHintAnnotation(false),
	}, opts)...)
	if does.readOnly() {
		t.Annotations.DestructiveHint = &no
	}
	// A nil slice in Go is no reason to let clients send null.
	t.RawInputSchema = bytes.ReplaceAll(t.RawInputSchema, []byte(`["null","array"]`), []byte(`"array"`))
	switch b.place {
	case onTool:
		t.Meta = mcp.NewMetaFromMap(map[string]any{capabilitiesKey: []capability{does}})
	case onToolPrefixed:
		t.Meta = mcp.NewMetaFromMap(map[string]any{vendorPrefix + capabilitiesKey: []capability{does}})
	case inExperimental, inExtensions:
		if b.says == nil {
			b.says = map[string][]capability{}
		}
		b.says[name] = []capability{does}
	}
	b.tools = append(b.tools, server.ServerTool{Tool: t, Handler: func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args A
		if raw := r.Params.RawArguments; len(raw) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return mcp.NewToolResultErrorf("arguments of %s: %v", name, err), nil
			}
		}
		result, err := do(ctx, args)
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		if text, ok := result.(string); ok {
			return mcp.NewToolResultText(text), nil
		}
		return mcp.NewToolResultStructuredOnly(result), nil
	}})
}

// destroys marks a tool that takes away what cannot be had back.
func destroys(yes bool) mcp.ToolOption { return mcp.WithDestructiveHintAnnotation(yes) }

// server makes the server.
func (b *bench) server() *server.MCPServer {
	opts := []server.ServerOption{
		server.WithTitle(b.title),
		server.WithInstructions(b.instructions),
		server.WithToolCapabilities(false),
		server.WithInputSchemaValidation(),
		server.WithOutputSchemaValidation(),
		server.WithRecovery(),
	}
	if len(b.says) > 0 {
		tools := map[string]any{}
		for name, says := range b.says {
			tools[name] = map[string]any{capabilitiesKey: says}
		}
		told := map[string]any{"tools": tools}
		if b.place == inExperimental {
			opts = append(opts, server.WithExperimental(map[string]any{capabilitiesKey: told}))
		} else {
			// A key of extensions has a prefix, by the protocol's rules.
			opts = append(opts, server.WithExtensions(map[string]any{vendorPrefix + capabilitiesKey: told}))
		}
	}
	s := server.NewMCPServer(b.name, Version, opts...)
	s.SetTools(b.tools...)
	return s
}

// limit returns asked where it is between 1 and most, otherwise where nothing
// was asked, and an error for the rest.
func limit(name string, asked, otherwise, most int) (int, error) {
	switch {
	case asked == 0:
		return otherwise, nil
	case asked < 1 || asked > most:
		return 0, fmt.Errorf("%s is %d; want 1 to %d", name, asked, most)
	}
	return asked, nil
}

// bounded reports an error where text is empty or longer than most bytes.
func bounded(name, text string, most int) error {
	switch {
	case text == "":
		return fmt.Errorf("%s is empty", name)
	case len(text) > most:
		return fmt.Errorf("%s is %d bytes long; at most %d are allowed", name, len(text), most)
	}
	return nil
}
