package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

type callCmd struct {
	target
	output
	Tool      string `arg:"" help:"The tool, as \"switchboard tools\" names it."`
	Arguments string `arg:"" optional:"" help:"Its arguments, a JSON object." default:"{}"`
}

// Run calls the tool. A result that says isError is printed, and exits 1.
func (c *callCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Arguments), &arguments); err != nil {
		return usageError{fmt.Errorf("the arguments are no JSON object: %w", err)}
	}
	conn, err := c.connect(ctx, log)
	if err != nil {
		return err
	}
	defer conn.stop()
	result, err := conn.ask(ctx, "tools/call", c.Tool,
		wire.Edit{Name: "name", Value: wire.AppendString(nil, c.Tool)},
		wire.Edit{Name: "arguments", Value: []byte(c.Arguments)})
	if err != nil {
		return err
	}
	var r struct {
		IsError bool `json:"isError"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return fmt.Errorf("the result cannot be read: %w", err)
	}
	text := len(r.Content) > 0
	for _, block := range r.Content {
		text = text && block.Type == "text"
	}
	switch {
	case c.JSON:
		fmt.Fprintf(io.raw, "%s\n", result)
	case !text:
		fmt.Fprintf(io.out, "%s\n", result)
	default:
		for _, block := range r.Content {
			fmt.Fprintln(io.out, block.Text)
		}
	}
	if r.IsError {
		return errNo
	}
	return nil
}
