package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What the configuration of the part "completion" has, beside 500 receipts.
const (
	completedServers  = 20
	completedTools    = 50 // of each server
	completedTenants  = 20
	completedTasks    = 50 // of the default tenant
	completedReceipts = 500
)

// completedLines are lines that a person has typed, and a word among the candidates for the end of each.
var completedLines = []struct{ line, want string }{
	{"switchboard rec", "receipts"},
	{"switchboard logs ", "server-19"},
	{"switchboard explain --tenant ", "tenant-19"},
	{"switchboard tools --task ", "task-49"},
	{"switchboard call tool-19-", "tool-19-49"},
	{"switchboard receipts show ", "/"},
}

// completions is how often each line is completed in a round.
const completions = 20

// completion measures how long a shell waits for the candidates of a word: from the start of the process that it asks to the end of that process.
// A Switchboard serves the configuration meanwhile, and has the store open.
func (b *bench) completion(ctx context.Context, _ string) error {
	files, err := completedFiles(b)
	if err != nil {
		return err
	}
	p, err := b.serve(ctx, ours, files)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := b.makeReceipts(ctx, p); err != nil {
		return err
	}
	short := b.figure(fmt.Sprintf("completions without the word that is there, of %d", len(completedLines)*completions), "").judge("sb", func(at at) float64 { return at(ours) }).atMost(0)
	missing := make([]int, b.rounds)
	for _, l := range completedLines {
		f := b.figure(fmt.Sprintf("completion of %q, the slowest but one of %d", l.line, completions), "ms").judge("sb", func(at at) float64 { return at(ours) }).atMost(50)
		for round := range b.rounds {
			var took []time.Duration
			for range completions {
				cmd := exec.CommandContext(ctx, b.binaries[ours], "complete", "bash", "--", l.line)
				cmd.Dir = p.dir
				began := time.Now()
				out, err := cmd.Output()
				took = append(took, time.Since(began))
				if err != nil {
					return fmt.Errorf("complete %q: %w", l.line, err)
				}
				if !bytes.Contains(out, []byte(l.want)) { // the search in the store has ended early
					missing[round]++
				}
			}
			slices.Sort(took)
			f.see(ours, milli(took[len(took)-2]))
		}
	}
	for _, n := range missing {
		short.see(ours, float64(n))
	}
	return nil
}

// completedFiles returns the configuration, with servers that list tools and do nothing else.
func completedFiles(b *bench) (map[string]string, error) {
	lists, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return nil, err
	}
	var servers, names []string
	for i := range completedServers {
		var tools []map[string]any
		for j := range completedTools {
			tools = append(tools, map[string]any{
				"name": fmt.Sprintf("tool-%d-%d", i, j), "description": "Does one of the many things that servers do.",
				"inputSchema": map[string]any{"type": "object"}, "annotations": map[string]any{"readOnlyHint": true},
			})
		}
		text, err := json.Marshal(tools)
		if err != nil {
			return nil, err
		}
		list := filepath.Join(lists, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(list, text, 0o600); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("server-%d", i)
		command := quoted([]string{b.self, "backend", "-era", legacy, "-stdio", "-list", list})
		servers = append(servers, fmt.Sprintf("  %s: {transport: stdio, trust: operator, command: [%s]}\n", name, strings.Join(command, ", ")))
		names = append(names, name)
	}
	all := "{servers: [" + strings.Join(names, ", ") + "], allow: [by_name]}\n"
	var tenants strings.Builder
	tenants.WriteString("  default: " + all)
	for i := range completedTenants {
		fmt.Fprintf(&tenants, "  tenant-%d: %s", i, all)
	}
	files := map[string]string{
		"switchboard.yaml":               "token_budget: 10000000\nservers:\n" + strings.Join(servers, "") + "tenants:\n" + tenants.String(),
		"tenants/default/tenant.yaml":    "tenant: default\ndefault_task: all\n",
		"tenants/default/tasks/all.yaml": "task_id: all\nrequired_capabilities:\n  - {tools: [\"" + strings.Join(names, "/*\", \"") + "/*\"]}\n",
	}
	for i := range completedTasks {
		files[fmt.Sprintf("tenants/default/tasks/%d.yaml", i)] = fmt.Sprintf("task_id: task-%d\nrequired_capabilities:\n  - {tools: [\"server-%d/tool-%d-0\"]}\n", i, i%completedServers, i%completedServers)
	}
	return files, nil
}

// listPatience limits the wait for the lists of all servers.
const listPatience = time.Minute

// makeReceipts waits until all servers have listed their tools, and calls one.
func (b *bench) makeReceipts(ctx context.Context, p *process) error {
	at, err := url.Parse(p.address)
	if err != nil {
		return err
	}
	c := newClient(endpoint{era: legacy, url: at}, "completion")
	c.tool = "tool-0-0"
	defer c.end()
	if err := c.open(); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		listed, err := c.definitions()
		if err != nil {
			return err
		}
		if len(listed) >= completedServers*completedTools {
			break
		}
		if ctx.Err() != nil || time.Since(began) > listPatience {
			return fmt.Errorf("after %s, %d tools are listed", time.Since(began), len(listed))
		}
	}
	for range completedReceipts {
		if _, err := c.call(10); err != nil {
			return err
		}
	}
	return nil
}
