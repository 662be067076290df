package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxNames limits the names in one list of the view.
const maxNames = 50

// decisionStages are the stages of a decision in order, each with its effect.
var decisionStages = []struct{ Name, Does string }{
	{"filter", "finds the tools with the capability, or with the name"},
	{"prune", "drops those without a required constraint"},
	{"admission", "drops what is suspended, retired, or not let in yet"},
	{"policy", "drops what a rule does not allow"},
	{"verdict", "drops what may not be used now"},
	{"rank", "orders the rest"},
	{"health", "drops those of servers that cannot serve"},
	{"select", "takes what the task asked for"},
}

// A shownDecision is an explanation as the view shows it.
type shownDecision struct {
	*admin.Explanation
	Caller struct {
		ID, Tier string
		Auth     switchboard.Auth
		Mode     switchboard.Mode
		Roles    []string
	}
	At   *time.Time // nil if no policy reads the clock
	Rows []shownRequirement
}

// A shownRequirement is a requirement with its candidates, counted by stage.
type shownRequirement struct {
	*admin.ExplainedRequirement
	Number     int
	Names      map[string]string // of the selected tools, in the client's list
	Shown      []admin.ExplainedCandidate
	Behind     []admin.ExplainedCandidate
	Candidates int
	Flow       []stageFlow
	Drops      []*dropGroup
	MoreDrops  int // candidates in further groups
}

// A stageFlow says how many candidates came to a stage, and how many it dropped.
type stageFlow struct {
	Stage, Does         string
	Came, Dropped, Left int
	Ran                 bool
	Was                 *stageFlow // without the what-if
	BarLeft, BarGone    int        // of 100
}

// A dropGroup are the candidates that a stage dropped for the same reason.
type dropGroup struct {
	Stage, Reason string
	Code          switchboard.Code
	Rules         []shownRule
	Tools         []droppedTool
	Count         int
	New           int // of these, how many are not dropped without the what-if
}

// A droppedTool is a dropped candidate, with the values of the rules' variables.
type droppedTool struct {
	Tool   string
	Values []string
	New    bool
}

// A shownRule is a rule that dropped candidates.
type shownRule struct {
	Layer, Rule    string
	File           string
	Line           int
	Reason, Failed string
	Path           string // of its file in the folder of the configuration; "" if it is not known
}

// A requirementChange compares a requirement without and with the what-if.
type requirementChange struct {
	Number        int
	Requirement   string
	Before, After []string
	Gone, Back    []admin.ExplainedDrop // dropped only with the what-if, and only without it; at most maxNames
	MoreGone      int
	MoreBack      int
	Same          bool
}

// Rest is the number of candidates that are not named.
func (g *dropGroup) Rest() int { return g.Count - len(g.Tools) }

// showDecision returns the explanation as the view shows it. was, if not nil, is the decision without the what-if.
func showDecision(x *admin.Explanation, was *shownDecision) *shownDecision {
	d := &shownDecision{Explanation: x}
	for name, value := range wire.MembersAsBytes(x.Decision) { // most of the record are candidates, which are not decoded again
		switch string(name) {
		case "now":
			_ = json.Unmarshal(value, &d.At) // Switchboard has written it
		case "principal":
			_ = json.Unmarshal(value, &d.Caller) // else it has no names
		}
	}
	names := map[string]string{}
	for _, e := range x.Tools {
		names[string(e.Server)+"/"+e.Tool] = e.Name
	}
	for i := range x.Requirements {
		r := shownRequirement{ExplainedRequirement: &x.Requirements[i], Number: i + 1, Names: names}
		var before *shownRequirement
		if was != nil {
			before = was.find(x.Requirements, i)
		}
		r.count(before)
		d.Rows = append(d.Rows, r)
	}
	return d
}

// find returns the requirement that is the same as all[i]; nil if there is none.
func (d *shownDecision) find(all []admin.ExplainedRequirement, i int) *shownRequirement {
	nth := 0
	for k := range all[:i] {
		if all[k].Requirement == all[i].Requirement {
			nth++
		}
	}
	for k := range d.Rows {
		if d.Rows[k].Requirement == all[i].Requirement {
			if nth == 0 {
				return &d.Rows[k]
			}
			nth--
		}
	}
	return nil
}

// count counts the candidates by stage, and groups those that were dropped. before is the same requirement without the what-if.
func (r *shownRequirement) count(before *shownRequirement) {
	r.Shown = r.Selected[:min(len(r.Selected), maxNames)]
	r.Behind = r.Others[:min(len(r.Others), maxNames)]
	r.Candidates = len(r.Selected) + len(r.Others) + len(r.Dropped)
	by := map[string]int{"select": len(r.Others)}
	for _, d := range r.Dropped {
		by[d.Stage]++
	}
	left := r.Candidates
	for i, stage := range decisionStages {
		f := stageFlow{Stage: stage.Name, Does: stage.Does, Came: left, Dropped: by[stage.Name], Ran: left > 0 || i == 0}
		left -= f.Dropped
		f.Left = left
		if r.Candidates > 0 {
			f.BarLeft, f.BarGone = 100*f.Left/r.Candidates, 100*f.Came/r.Candidates-100*f.Left/r.Candidates
		}
		if before != nil {
			f.Was = &before.Flow[i]
		}
		r.Flow = append(r.Flow, f)
	}
	r.group(before)
}

// group groups the candidates that were dropped by stage, reason and rules.
func (r *shownRequirement) group(before *shownRequirement) {
	dropped := map[string]bool{}
	if before != nil {
		for _, d := range before.Dropped {
			dropped[d.Tool] = true
		}
	}
	groups, at := []*dropGroup{}, map[string]*dropGroup{}
	for _, d := range r.Dropped {
		parts := []any{d.Stage, d.Reason, d.Code}
		tool := droppedTool{Tool: d.Tool, New: before != nil && !dropped[d.Tool]}
		var rules []shownRule
		for _, c := range d.Rules {
			parts = append(parts, c.File, c.Line, c.Rule, c.Reason, c.Failed)
			rules = append(rules, shownRule{string(c.Layer), c.Rule, c.File, c.Line, c.Reason, c.Failed, configPath(string(c.Layer), c.File)})
			for _, name := range slices.Sorted(maps.Keys(c.Values)) {
				tool.Values = append(tool.Values, name+" = "+c.Values[name])
			}
		}
		key := fmt.Sprintf("%q", parts)
		g := at[key]
		if g == nil {
			g = &dropGroup{Stage: d.Stage, Reason: d.Reason, Code: d.Code, Rules: rules}
			at[key] = g
			groups = append(groups, g)
		}
		if g.Count++; tool.New {
			g.New++
		}
		if len(g.Tools) < maxNames {
			g.Tools = append(g.Tools, tool)
		}
	}
	slices.SortStableFunc(groups, func(a, b *dropGroup) int {
		return cmp.Or(-cmp.Compare(min(a.New, 1), min(b.New, 1)), -cmp.Compare(placeOfStage(a.Stage), placeOfStage(b.Stage)), -cmp.Compare(a.Count, b.Count))
	})
	if len(groups) > maxNames {
		for _, g := range groups[maxNames:] {
			r.MoreDrops += g.Count
		}
		groups = groups[:maxNames]
	}
	r.Drops = groups
}

// placeOfStage returns the place of a stage in a decision.
func placeOfStage(name string) int {
	for i, s := range decisionStages {
		if s.Name == name {
			return i
		}
	}
	return len(decisionStages)
}

// configPath returns the path of a rule's file in the folder of the configuration; "" if it is not there.
func configPath(layer, file string) string {
	file = strings.ReplaceAll(file, `\`, "/")
	folder := "policies/"
	if layer == "tenant" {
		folder = "tenants/"
	}
	if i := strings.LastIndex("/"+file, "/"+folder); i >= 0 {
		return file[i:]
	}
	return ""
}

// compareDecisions compares the requirements of a decision without and with a what-if.
func compareDecisions(before *shownDecision, now *admin.Explanation) (all []requirementChange) {
	matched := map[int]bool{}
	for i := range now.Requirements {
		after := &now.Requirements[i]
		c := requirementChange{Number: i + 1, Requirement: after.Requirement, After: toolsOf(after)}
		if old := before.find(now.Requirements, i); old != nil {
			matched[old.Number] = true
			c.Before = toolsOf(old.ExplainedRequirement)
			c.Gone, c.MoreGone = onlyDropped(after, old.ExplainedRequirement)
			c.Back, c.MoreBack = onlyDropped(old.ExplainedRequirement, after)
		}
		c.Same = slices.Equal(c.Before, c.After) && len(c.Gone)+len(c.Back) == 0
		all = append(all, c)
	}
	for i := range before.Rows {
		if r := &before.Rows[i]; !matched[r.Number] {
			all = append(all, requirementChange{Requirement: r.Requirement, Before: toolsOf(r.ExplainedRequirement)})
		}
	}
	return all
}

// toolsOf returns the tools that a requirement gets.
func toolsOf(r *admin.ExplainedRequirement) (tools []string) {
	for _, c := range r.Selected {
		tools = append(tools, c.Tool)
	}
	return tools
}

// onlyDropped returns the candidates that r drops and other does not, at most maxNames, and how many more there are.
func onlyDropped(r, other *admin.ExplainedRequirement) (only []admin.ExplainedDrop, more int) {
	there := map[string]bool{}
	for _, d := range other.Dropped {
		there[d.Tool] = true
	}
	for _, d := range r.Dropped {
		switch {
		case there[d.Tool]:
		case len(only) == maxNames:
			more++
		default:
			only = append(only, d)
		}
	}
	return only, more
}
