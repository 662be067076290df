package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

type validateCmd struct {
	commonFlags
	outputFlags
}

// Run reads the configuration and prints its faults, or what it contains.
func (v *validateCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	c, err := v.checkConfig(ctx, log)
	if err != nil {
		return err
	}
	tasks := 0
	for _, t := range c.Tenants {
		tasks += len(t.Tasks)
	}
	sum := struct {
		Servers  int `json:"servers"`
		Tenants  int `json:"tenants"`
		Tasks    int `json:"tasks"`
		Keys     int `json:"keys"`
		Overlays int `json:"tools_in_overlays"`

		Warnings []string `json:"warnings,omitempty"`
	}{Servers: len(c.Servers), Tenants: len(c.Tenants), Tasks: tasks, Keys: len(c.Keys), Overlays: len(c.Overlays)}
	for _, w := range c.Warnings {
		sum.Warnings = append(sum.Warnings, w.String())
	}
	if v.JSON {
		return json.NewEncoder(io.raw).Encode(sum)
	}
	for _, w := range sum.Warnings {
		fmt.Fprintln(io.err, "warning:", w)
	}
	file := v.Config
	if v.MCPConfig != "" {
		file = v.MCPConfig
	}
	var holds []string
	for _, h := range []struct {
		n    int
		what string
	}{{sum.Servers, "server"}, {sum.Tenants, "tenant"}, {sum.Tasks, "task"}, {sum.Keys, "key"}} {
		if h.n > 0 {
			holds = append(holds, count(h.n, h.what))
		}
	}
	_, err = fmt.Fprintf(io.out, "%s: good: %s\n", file, strings.Join(holds, ", "))
	return err
}

// count returns "1 server" or "2 servers".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}
