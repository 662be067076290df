package proposal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A StatedClaim says one thing about the effect of a proposal. Switchboard checks it before people decide, and again on the served state. Exactly one is set: Meets with By, Lists, Hides,
// Unchanged or Decisions.
type StatedClaim struct {
	Tenant switchboard.TenantID `json:"tenant" maxLength:"64"`
	Task   switchboard.TaskID   `json:"task,omitempty" maxLength:"64"`

	Meets string `json:"meets,omitempty" maxLength:"200" doc:"VERB:RESOURCE, a requirement of the task, that the tool by is selected for."`
	By    string `json:"by,omitempty" maxLength:"256" doc:"SERVER/TOOL."`
	Lists string `json:"lists,omitempty" maxLength:"256" doc:"SERVER/TOOL, that the task gets."`
	Hides string `json:"hides,omitempty" maxLength:"256" doc:"SERVER/TOOL, that the task does not get."`

	Unchanged bool `json:"unchanged,omitempty" doc:"No task of the tenant gets or loses a tool, except as other claims of the proposal say."`

	Decisions int               `json:"decisions,omitempty" minimum:"0" maximum:"30" doc:"For how many days back, no recorded decision of the tenant would have been another, except for changes."`
	Changes   []ClaimedDecision `json:"changes,omitempty" maxItems:"100"`
}

// A ClaimedDecision is a change of recorded decisions that a claim admits. An empty member admits any.
type ClaimedDecision struct {
	Change string             `json:"change" maxLength:"64" doc:"The kind of change, as a policy diff names it."`
	Task   switchboard.TaskID `json:"task,omitempty" maxLength:"64"`
	Tool   string             `json:"tool,omitempty" maxLength:"256"`
}

// maxDays is how far back a claim about decisions looks.
const maxDays = 30

// check refuses a claim that does not make exactly one statement.
func (c *StatedClaim) check() error {
	statements := 0
	for _, set := range []bool{c.Meets != "", c.Lists != "", c.Hides != "", c.Unchanged, c.Decisions != 0} {
		if set {
			statements++
		}
	}
	ofTask := c.Meets != "" || c.Lists != "" || c.Hides != ""
	switch {
	case statements != 1:
		return errors.New("make one statement: meets with by, lists, hides, unchanged, or decisions")
	case switchboard.CheckID(string(c.Tenant)) != nil:
		return fmt.Errorf("%.64q is no tenant", c.Tenant)
	case ofTask != (c.Task != ""):
		return errors.New("a statement about tools names its task, and no other one does")
	case c.Task != "" && switchboard.CheckID(string(c.Task)) != nil:
		return fmt.Errorf("%.64q is no task", c.Task)
	case (c.Meets != "") != (c.By != ""):
		return errors.New("meets says which requirement, and by says which tool; give both")
	case c.Decisions < 0 || c.Decisions > maxDays:
		return fmt.Errorf("decisions looks back 1 to %d days", maxDays)
	case c.Decisions == 0 && len(c.Changes) > 0, len(c.Changes) > 100:
		return errors.New("changes belongs to decisions, with at most 100 items")
	}
	if verb, resource, ok := strings.Cut(c.Meets, ":"); c.Meets != "" && (!ok || verb == "" || resource == "" || len(c.Meets) > 200) {
		return fmt.Errorf("%.200q is no VERB:RESOURCE", c.Meets)
	}
	if tool := c.tool(); tool != "" {
		if server, name, ok := strings.Cut(tool, "/"); !ok || name == "" || len(tool) > 256 || switchboard.CheckID(server) != nil {
			return fmt.Errorf("%.256q is no SERVER/TOOL", tool)
		}
	}
	for _, d := range c.Changes {
		if !slices.Contains(replay.ChangeKinds(), d.Change) {
			return fmt.Errorf("%.64q is no change of decisions; known: %s", d.Change, strings.Join(replay.ChangeKinds(), ", "))
		}
	}
	return nil
}

// checkTenants refuses claims about tenants that the proposer does not see, since the answer would say what they have. An officer may call any tenant unchanged: the
// answer names nothing of it. officer is nil for an agent.
func checkTenants(who Proposer, officer *switchboard.Officer, claims []StatedClaim) error {
	for i := range claims {
		c := &claims[i]
		if officer == nil && c.Tenant != who.Tenant || officer != nil && !officer.Sees(c.Tenant) && !c.Unchanged {
			return refuse(switchboard.CodeNotAuthorized, "claim %d is about tenant %s, which you may not see; make claims about your own tenants", i+1, c.Tenant)
		}
	}
	return nil
}

// tool returns the tool that the claim names, "" if it names none.
func (c *StatedClaim) tool() string { return c.By + c.Lists + c.Hides }

// server returns the server of that tool.
func (c *StatedClaim) server() switchboard.ServerID {
	server, _, _ := strings.Cut(c.tool(), "/")
	return switchboard.ServerID(server)
}

// String returns the claim as a sentence.
func (c *StatedClaim) String() string {
	task := fmt.Sprintf("task %s of %s ", c.Task, c.Tenant)
	switch {
	case c.Meets != "":
		return task + "meets " + c.Meets + " by " + c.By
	case c.Lists != "":
		return task + "has " + c.Lists
	case c.Hides != "":
		return task + "does not have " + c.Hides
	case c.Unchanged:
		return "nothing else changes for tenant " + string(c.Tenant)
	case len(c.Changes) == 0:
		return fmt.Sprintf("no decision of tenant %s in the last %d days would have been another", c.Tenant, c.Decisions)
	}
	var known []string
	for _, d := range c.Changes {
		known = append(known, strings.TrimSpace(d.Change+" "+string(d.Task)+" "+d.Tool))
	}
	return fmt.Sprintf("of the decisions of tenant %s in the last %d days, only these would have been others: %s", c.Tenant, c.Decisions, strings.Join(known, "; "))
}

// A claimCheck checks claims in one world.
type claimCheck struct {
	world  *TaskWorld
	before Lists // of the tenants that a claim calls unchanged
	claims []StatedClaim

	// compare compares the decisions of a tenant since an instant with the world. whole says that the result counts only if all of them were looked at.
	compare func(ctx context.Context, tenant switchboard.TenantID, since time.Time) (*replay.Diff, error)
	whole   bool

	shows func(switchboard.TenantID) bool // whether everybody who reads the proposal may see the tenant
}

// broken returns the claims that do not hold, each with the reason. skip leaves claims out.
func (k *claimCheck) broken(ctx context.Context, skip func(*StatedClaim) bool) []string {
	out := []string{}
	for i := range k.claims {
		c := &k.claims[i]
		if skip != nil && skip(c) {
			continue
		}
		why := k.whyNot(ctx, c)
		if why != "" && !k.shows(c.Tenant) {
			why = "it does not hold"
		}
		if why != "" {
			out = append(out, c.String()+": "+why)
		}
	}
	return out
}

// whyNot returns why a claim does not hold, "" if it does. What cannot be found out does not hold.
func (k *claimCheck) whyNot(ctx context.Context, c *StatedClaim) string {
	switch {
	case c.Unchanged:
		return k.whyChanged(ctx, c.Tenant)
	case c.Decisions > 0:
		return k.whyDecided(ctx, c)
	}
	if !slices.Contains(k.world.Tasks(c.Tenant), c.Task) {
		return "there is no such task"
	}
	got := k.world.Look(ctx, c.Tenant, c.Task)
	has := slices.Contains(got.Tools, c.tool())
	switch {
	case ctx.Err() != nil:
		return "it could not be checked in time"
	case c.Hides != "":
		if got.Why != "" {
			return "it could not start: " + got.Why // which hides nothing that was meant
		}
		if has {
			return "it has it"
		}
		return ""
	case got.Why != "":
		return "it could not start: " + got.Why
	case c.Lists != "":
		if !has {
			return "it gets " + listText(got.Tools)
		}
		return ""
	}
	for _, r := range got.Requirements {
		if r.Name == c.Meets {
			if slices.Contains(r.Tools, c.By) {
				return ""
			}
			return "it is met by " + listText(r.Tools)
		}
	}
	return "the task has no such requirement"
}

// whyChanged returns which task of the tenant gets other tools than before, in ways that no claim names.
func (k *claimCheck) whyChanged(ctx context.Context, tenant switchboard.TenantID) string {
	now, err := k.world.lists(ctx, []switchboard.TenantID{tenant})
	if err != nil {
		return err.Error()
	}
	was, ok := k.before[tenant]
	if !ok {
		return "what it was before is not known"
	}
	named := map[switchboard.TaskID][]string{}
	for i := range k.claims {
		if c := &k.claims[i]; c.Tenant == tenant && c.Task != "" {
			named[c.Task] = append(named[c.Task], c.tool())
		}
	}
	tasks := slices.Compact(slices.Sorted(maps.Keys(merged(was, now[tenant]))))
	for _, task := range tasks {
		_, existed := was[task]
		_, exists := now[tenant][task]
		if existed != exists && named[task] == nil {
			return fmt.Sprintf("task %s is new or gone, and no claim names it", task)
		}
		a, b := without(was[task], named[task]), without(now[tenant][task], named[task])
		if !slices.Equal(a, b) {
			return fmt.Sprintf("task %s had %s, and gets %s", task, listText(was[task]), listText(now[tenant][task]))
		}
	}
	return ""
}

func merged(a, b map[switchboard.TaskID][]string) map[switchboard.TaskID][]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[switchboard.TaskID][]string{}
	}
	maps.Copy(out, b)
	return out
}

func without(tools, named []string) []string {
	return slices.DeleteFunc(slices.Clone(tools), func(t string) bool { return slices.Contains(named, t) })
}

// whyDecided returns which recorded decision would have been another.
func (k *claimCheck) whyDecided(ctx context.Context, c *StatedClaim) string {
	d, err := k.compare(ctx, c.Tenant, time.Now().AddDate(0, 0, -c.Decisions))
	if err != nil {
		return "the decisions cannot be compared now"
	}
	for i := range d.Changes {
		if now := &d.Changes[i]; !slices.ContainsFunc(c.Changes, func(a ClaimedDecision) bool {
			return a.Change == now.Kind && (a.Task == "" || a.Task == now.Task) && (a.Tool == "" || a.Tool == now.Tool)
		}) {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", now.Kind, now.Task, now.Tool)) + " in " + fmt.Sprint(now.Decisions) + " of them"
		}
	}
	switch {
	case d.Unlisted > 0:
		return "there are more changes than are listed"
	case len(d.Broken) > 0 || len(d.NotReplayed) > 0:
		return "some decisions cannot be made again"
	case k.whole && d.Looked != nil && !d.Looked.Complete():
		return fmt.Sprintf("only %d of %d decisions could be looked at in time", d.Looked.Decisions, d.Looked.Of)
	}
	return ""
}

func listText(tools []string) string {
	if len(tools) == 0 {
		return "nothing"
	}
	if len(tools) > 8 {
		return strings.Join(tools[:8], ", ") + fmt.Sprintf(" and %d more", len(tools)-8)
	}
	return strings.Join(tools, ", ")
}
