package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type tasksCmd struct {
	commonFlags
	outputFlags
}

// A listedTask is one task in the output of tasks --json.
type listedTask struct {
	Task    switchboard.TaskID `json:"task"`
	Default bool               `json:"default"`
	Needs   []listedNeed       `json:"needs"`
}

// A listedNeed is one requirement of a task.
type listedNeed struct {
	Requirement string             `json:"requirement"` // as explain writes it
	Select      switchboard.Select `json:"select,omitempty"`
	As          string             `json:"as,omitempty"`
	Optional    bool               `json:"optional,omitempty"`
	OnDemand    bool               `json:"on_demand,omitempty"`
	Group       string             `json:"group,omitempty"`
	Stub        string             `json:"stub,omitempty"`
}

// Run prints the tasks of the tenant in the configuration. It starts no server.
func (c *tasksCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	cfg, err := c.loadWithoutFaults(ctx, log)
	if err != nil {
		return err
	}
	t := cfg.Tenants[c.Tenant]
	if t == nil {
		var known []string
		for _, id := range slices.Sorted(maps.Keys(cfg.Tenants)) {
			known = append(known, string(id))
		}
		return usageError{fmt.Errorf("there is no tenant %q%s; name one with --tenant", c.Tenant, config.SuggestName(string(c.Tenant), "tenants", known))}
	}
	tasks := []listedTask{}
	for _, id := range slices.Sorted(maps.Keys(t.Tasks)) {
		one := listedTask{Task: id, Default: id == t.DefaultTask}
		for _, r := range t.Tasks[id].Requirements {
			one.Needs = append(one.Needs, listedNeed{r.String(), r.Select, r.As, r.Optional, r.OnDemand, r.Group, r.Stub})
		}
		tasks = append(tasks, one)
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(tasks)
	}
	writeTasks(io.out, t, tasks)
	return nil
}

// writeTasks prints the tasks with numbered requirements, as explain does.
func writeTasks(w io.Writer, t *switchboard.Tenant, tasks []listedTask) {
	if len(tasks) == 0 {
		fmt.Fprintf(w, "Tenant %s has no tasks; write one in tenants/%s/tasks/\n", t.ID, t.ID)
		return
	}
	fmt.Fprintf(w, "%s of tenant %s\n", count(len(tasks), "task"), t.ID)
	for _, task := range tasks {
		fmt.Fprintf(w, "\n%s", task.Task)
		if task.Default {
			fmt.Fprint(w, " (default)")
		}
		fmt.Fprintln(w)
		for i, n := range task.Needs {
			fmt.Fprintf(w, "  %d. needs %s\n", i+1, n)
		}
	}
	if t.DefaultTask == "" {
		fmt.Fprint(w, "\nNo task is the default: a client names its task.\n")
	}
}

// String returns text such as "read fs [readonly], one tool shown as read, optional".
func (n listedNeed) String() string {
	parts := []string{n.Requirement}
	switch {
	case n.As != "":
		parts = append(parts, "one tool shown as "+n.As)
	case n.Select == switchboard.SelectTool:
		parts = append(parts, "one tool")
	}
	if n.OnDemand {
		parts = append(parts, "on demand in group "+n.Group+" through "+n.Stub)
	}
	if n.Optional {
		parts = append(parts, "optional")
	}
	return strings.Join(parts, ", ")
}
