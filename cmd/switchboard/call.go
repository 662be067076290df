package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

type callCmd struct {
	taskTarget
	outputFlags
	Tool      string `arg:"" help:"The tool, as \"switchboard tools\" names it."`
	Arguments string `arg:"" optional:"" help:"Its arguments, a JSON object." default:"{}"`
}

// Run calls the tool. If the result says isError, it prints the result and exits 1.
func (c *callCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Arguments), &arguments); err != nil {
		return usageError{fmt.Errorf(`the arguments are not a JSON object, such as '{"path": "README.md"}': %w`, err)}
	}
	conn, err := c.connect(ctx, io, log, c.dataDir(), c.Tool)
	if err != nil {
		return err
	}
	defer conn.stop()
	result, r, err := callTool(ctx, conn, c.Tool, c.Arguments)
	if stub := r.Meta.Error.Stub; err == nil && stub != "" { // the tool is on demand, so this call did not reach it
		inner, _ := json.Marshal(map[string]any{"action": "call", "tool": c.Tool, "arguments": arguments})
		result, r, err = callTool(ctx, conn, stub, string(inner))
	}
	if err != nil {
		return err
	}
	text := len(r.Content) > 0
	for _, block := range r.Content {
		text = text && block.Type == "text"
	}
	out := withoutSpelling(io.out)
	switch {
	case c.JSON:
		fmt.Fprintf(io.raw, "%s\n", result)
	case !text:
		fmt.Fprintf(out, "%s\n", result)
	default:
		for _, block := range r.Content {
			fmt.Fprintln(out, block.Text)
		}
	}
	if r.IsError {
		return errNegative
	}
	return nil
}

// A callResult holds the members of a result that the command reads.
type callResult struct {
	IsError bool `json:"isError"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Meta struct {
		Error struct {
			Stub string `json:"stub"`
		} `json:"io.switchboard/error"`
	} `json:"_meta"`
}

// callTool calls the tool once. raw is the result as received.
func callTool(ctx context.Context, conn *mcpClient, tool, arguments string) (raw []byte, r callResult, err error) {
	raw, err = conn.request(ctx, "tools/call", tool,
		wire.Edit{Name: "name", Value: wire.AppendString(nil, tool)},
		wire.Edit{Name: "arguments", Value: []byte(arguments)})
	if err != nil {
		return nil, r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, r, fmt.Errorf("the result cannot be read: %w", err)
	}
	return raw, r, nil
}
