package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type explainCmd struct {
	commonFlags
	targetFlags
	outputFlags
	Task switchboard.TaskID `arg:"" optional:"" help:"The task. Without it, the tenant's default task."`
	Tool string             `help:"Explain only this tool, given as SERVER/TOOL." placeholder:"ID"`
	principalFlags
	whatIfFlags
	File string `help:"What if this file of the configuration had the text of another one, as in tenants/acme/tenant.yaml=new.yaml? Needs a Switchboard that runs." placeholder:"PATH=FILE"`
}

// whatIfFlags replace inputs of a decision: of one that is made now, or of a recorded one.
type whatIfFlags struct {
	Tier    string                 `help:"What if the caller had this tier?" placeholder:"TIER"`
	Mode    switchboard.Mode       `help:"What if the caller had this mode: observe, assist or autopilot?" enum:"observe,assist,autopilot," default:""`
	At      time.Time              `help:"What if it were this instant, such as 2026-12-24T22:00:00Z? It counts for policies that read the clock."`
	Without []switchboard.ServerID `help:"What if this server were out? Repeat the flag for several." placeholder:"SERVER"`
}

// query returns the flags as the API takes them.
func (w *whatIfFlags) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"tier": w.Tier, "mode": string(w.Mode), "at": instantText(w.At)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(w.Without) > 0 {
		q.Set("without", strings.ReplaceAll(joinIDs(w.Without), ", ", ","))
	}
	return q
}

// whatIf returns the flags with the file, as the API takes them.
func (e *explainCmd) whatIf() (url.Values, error) {
	q := e.query()
	if e.File == "" {
		return q, nil
	}
	path, from, ok := strings.Cut(e.File, "=")
	if !ok {
		return nil, usageError{errors.New("--file wants the path in the configuration, =, and the file with the text that is tried")}
	}
	text, err := os.ReadFile(from)
	q.Set("file", path)
	q.Set("text", string(text))
	return q, err
}

// principalFlags describe the caller of a decision.
type principalFlags struct {
	Principal string `help:"Decide for the caller with the key ID of the tenant. Without it: for whoever calls without a key, or, if keyless callers belong to another tenant, for the only key of the tenant. If that has several keys, name one." placeholder:"ID"`
}

// Run prints the decision on every candidate. It exits 1 if the task may not start.
func (e *explainCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	changes, err := e.whatIf()
	if err != nil {
		return err
	}
	ask := admin.ExplainQuery{WhatIf: admin.DecisionWhatIf{Tier: e.Tier, Mode: e.Mode, At: e.At, Without: e.Without}}
	x, err := fetchExplanation(ctx, io, taskTarget{commonFlags: e.commonFlags, targetFlags: e.targetFlags, Task: e.Task}, e.Principal, ask, changes, log)
	if err != nil {
		return err
	}
	if e.Tool != "" {
		if _, err := switchboard.ParseToolID(e.Tool); err != nil {
			return usageError{err}
		}
		keepTool(x, e.Tool)
	}
	if e.JSON {
		enc := json.NewEncoder(io.raw)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(x); err != nil {
			return err
		}
	} else {
		writeExplanation(io.out, x)
	}
	if x.Why != "" {
		return errNegative
	}
	return nil
}

// fetchExplanation returns the explanation of the task's decision for the principal. q has what a running Switchboard is asked besides; nil means nothing.
func fetchExplanation(ctx context.Context, io streams, t taskTarget, principal string, ask admin.ExplainQuery, q url.Values, log *slog.Logger) (*admin.Explanation, error) {
	ask.Task = t.Task
	if !t.findTarget() {
		if q.Has("file") {
			return nil, usageError{errors.New("--file asks a Switchboard that runs, and none does; start it, name it with --url, or change the file in a copy of the folder and name its switchboard.yaml with --config")}
		}
		a, err := t.startApp(ctx, log, app.Options{})
		if err != nil {
			return nil, err
		}
		defer a.Stop()
		return pollUntilStarted(ctx, io, t.Wait, func() (*admin.Explanation, []switchboard.ServerID, error) {
			p, err := a.Reads().Principal(t.Tenant, principal)
			if err != nil {
				return nil, nil, err
			}
			return withStarting(a.Reads().Explain(ctx, p, ask))
		})
	}
	if q == nil {
		q = url.Values{}
	}
	if t.Task != "" {
		q.Set("task", string(t.Task))
	}
	if principal != "" {
		q.Set("principal", principal)
	}
	if ask.Tokens {
		q.Set("tokens", "true")
	}
	if ask.Definitions {
		q.Set("definitions", "true")
	}
	if ask.Budget > 0 {
		q.Set("budget", strconv.Itoa(ask.Budget))
	}
	return pollUntilStarted(ctx, io, t.Wait, func() (*admin.Explanation, []switchboard.ServerID, error) {
		var x admin.Explanation
		return withStarting(&x, t.fetchInto(ctx, "/v1/tenants/"+url.PathEscape(string(t.Tenant))+"/decision?"+q.Encode(), &x))
	})
}

// withStarting returns an explanation with the servers that are still starting and could change it.
func withStarting(x *admin.Explanation, err error) (*admin.Explanation, []switchboard.ServerID, error) {
	if err != nil {
		return nil, nil, err
	}
	return x, x.Starting, nil
}

// keepTool removes everything about other tools from the explanation.
func keepTool(x *admin.Explanation, tool string) {
	for i := range x.Requirements {
		r := &x.Requirements[i]
		other := func(c admin.ExplainedCandidate) bool { return c.Tool != tool }
		r.Selected = slices.DeleteFunc(r.Selected, other)
		r.Others = slices.DeleteFunc(r.Others, other)
		r.Dropped = slices.DeleteFunc(r.Dropped, func(d admin.ExplainedDrop) bool { return d.Tool != tool })
		if len(r.Selected) == 0 && !slices.Contains(r.Tied, tool) {
			r.Tied, r.Warning = nil, "" // they concern other tools
		}
		if len(r.Selected)+len(r.Others)+len(r.Dropped) == 0 {
			r.Dropped = []admin.ExplainedDrop{{Tool: tool, Stage: "filter", Reason: "it has no capability of this verb and resource, or is not offered to this tenant"}}
		}
	}
	x.Faults = slices.DeleteFunc(x.Faults, func(f admin.ToolFault) bool {
		server, name, _ := strings.Cut(tool, "/")
		return string(f.Server) != server || f.Tool != "" && f.Tool != name
	})
	x.Servers = slices.DeleteFunc(x.Servers, func(s admin.ServerHealth) bool { return !strings.HasPrefix(tool, string(s.Server)+"/") })
	x.Tools = slices.DeleteFunc(x.Tools, func(e admin.ExplainedTool) bool { return string(e.Server)+"/"+e.Tool != tool })
}

// faultsHead is the heading of the catalog's faults.
const faultsHead = "Wrong in what servers, manifests and overlays say:"

// writeExplanation prints the decision by requirement.
func writeExplanation(w io.Writer, x *admin.Explanation) {
	fmt.Fprintf(w, "Task %s of tenant %s\n", x.Task, x.Tenant)
	shown := map[string]string{}
	for _, e := range x.Tools {
		as := "shown as " + e.Name
		if e.Group != "" {
			as = "on demand in " + e.Group + " as " + e.Name
		}
		shown[string(e.Server)+"/"+e.Tool] = as
	}
	for i, r := range x.Requirements {
		optional := ""
		if r.Optional {
			optional = ", optional"
		}
		fmt.Fprintf(w, "\n%d. needs %s%s\n", i+1, r.Requirement, optional)
		rows := [][4]string{}
		for _, c := range r.Selected {
			as := shown[c.Tool]
			if as == "" && (x.Why != "" || len(x.Tools) > 0) { // a recorded decision has no names
				as = "shown as nothing, for the task may not start"
			}
			rows = append(rows, [4]string{"  selected", c.Tool, as, rankText(c)})
		}
		for _, c := range r.Others {
			rows = append(rows, [4]string{"  ranked behind", c.Tool, "", rankText(c)})
		}
		for _, d := range r.Dropped {
			rows = append(rows, [4]string{"  dropped", d.Tool, "at " + d.Stage, d.Reason})
			for _, r := range d.Rules {
				rows = append(rows, [4]string{"", "", "", causeLine(r)})
			}
		}
		writeTable(w, rows)
		if r.Warning != "" {
			fmt.Fprintf(w, "  TIE           %s\n", r.Warning)
		}
		if len(r.Unknown) > 0 {
			fmt.Fprintf(w, "  policy names tools that are no candidates here: %s\n", strings.Join(r.Unknown, ", "))
		}
		if r.Unmet != "" {
			fmt.Fprintf(w, "  NOT MET       %s\n", r.Unmet)
		}
	}
	if x.Flows != nil {
		fmt.Fprintf(w, "\nTogether these tools can carry private data out by the words of a stranger (switchboard docs flows):\n  %s\n", x.Flows)
	}
	for i, id := range x.Whole {
		if i == 0 {
			fmt.Fprint(w, "\nShown with their resources and prompts:\n")
		}
		fmt.Fprintln(w, " ", id)
	}
	for i, s := range x.Servers {
		if i == 0 {
			fmt.Fprint(w, "\nServers that are not as they should be:\n")
		}
		fmt.Fprintf(w, "  %s: %s\n", s.Server, strings.Join(slices.Concat([]string{string(s.State) + " for " + sinceText(s.Since)}, healthRemarks(&s.Status)), "; "))
	}
	for i, f := range x.Faults {
		if i == 0 {
			fmt.Fprint(w, "\n", faultsHead, "\n")
		}
		fmt.Fprintln(w, " ", f.Why)
	}
	if x.Why != "" {
		fmt.Fprintf(w, "\n%s\n", x.Why)
	}
	if x.Unlabelled > 0 {
		verb := "have"
		if x.Unlabelled == 1 {
			verb = "has"
		}
		fmt.Fprintf(w, "%s %s no labels: switchboard annotate --all\n", count(x.Unlabelled, "tool"), verb)
	}
	fmt.Fprintf(w, "\ndecision %s\n", x.Digest)
}

// causeLine describes a policy rule that denied a candidate.
func causeLine(r author.DenialCause) string {
	s := fmt.Sprintf("  %s:%d: %s ", r.File, r.Line, r.Rule)
	if r.Rule == "deny" {
		s += "says " + strconv.Quote(r.Reason)
	} else {
		s += "does not allow it: " + r.Failed
	}
	values := make([]string, 0, len(r.Values))
	for _, name := range slices.Sorted(maps.Keys(r.Values)) {
		values = append(values, name+" = "+r.Values[name])
	}
	if len(values) > 0 {
		s += ", where " + strings.Join(values, ", ")
	}
	return s
}

// rankText explains the rank of a candidate.
func rankText(c admin.ExplainedCandidate) string {
	s := fmt.Sprintf("score %d", c.Score)
	if c.Preferred > 0 {
		s = fmt.Sprintf("preferred (%d.), %s", c.Preferred, s)
	}
	if len(c.Capabilities) > 0 {
		s += "; " + strings.Join(c.Capabilities, "; ")
	}
	if c.Provides != "" {
		s += "; it provides " + c.Provides
	}
	if c.Declared != "" {
		s += "; " + c.Declared
	}
	if c.Redacted != "" {
		s += "; " + c.Redacted
	}
	if c.Risk != "" {
		s += "; risk: " + string(c.Risk)
	}
	if len(c.Flow) > 0 {
		s += "; flow: " + strings.Join(c.Flow, ", ")
	}
	if c.Repeatable {
		s += "; a repeat is harmless: " + c.Repeat
	} else {
		s += "; a repeat may do harm: " + c.Repeat
	}
	if len(c.MovesTo) > 0 {
		s += "; its calls may move to " + strings.Join(c.MovesTo, ", ")
	}
	if c.Stale {
		s += "; its server is away"
	}
	return s
}

// writeTable writes rows in columns of the necessary width.
func writeTable(w io.Writer, rows [][4]string) {
	var width [3]int
	for _, row := range rows {
		for i := range width {
			width[i] = max(width[i], len([]rune(row[i])))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row[:3] {
			if width[i] > 0 {
				fmt.Fprintf(&line, "%-*s  ", width[i], cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String()+row[3], " "))
	}
}
