package proposal

import (
	"fmt"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/shown"
)

// A View is a proposal as people read it.
type View struct {
	KeptProposal
	Diff string `json:"diff"` // of the files, unified: a patch for those who roll files out themselves
	Text string `json:"text"` // what a yes would do; nothing in it can look like another line of it
}

const textColumns = 100

// text writes what a person reads before saying yes. What others have written is escaped.
func (p *KeptProposal) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	who := "officer"
	if p.Proposer.Agent {
		who = "agent"
	}
	line("proposal %s: %s", p.ID, p.State)
	line("by %s %s, %s", who, shown.Line(p.Proposer.ID), p.Created.Format("2006-01-02 15:04 UTC"))
	for _, l := range shown.Wrap(shown.Line(p.Note), textColumns) {
		line("  | %s", l)
	}
	line("")
	line("risk: %s; it needs %s; %d of %d have said yes", p.Risk, p.Risk.need(), p.yeses(), p.Needed)
	shownParts := 0
	for _, part := range p.Parts {
		if shownParts++; shownParts > 40 {
			line("  and %d more parts", len(p.Parts)-40)
			break
		}
		line("  %-8s %s: %s", part.Risk, shown.Line(part.File), part.Part)
	}
	if p.TakesBack != "" {
		line("it takes back %s", shown.Line(p.TakesBack))
	}
	line("")
	line("claims:")
	if len(p.Claims) == 0 {
		line("  none: nothing is checked after it is applied")
	}
	for i := range p.Claims {
		line("  - %s", shown.Line(p.Claims[i].String()))
	}
	for _, c := range p.Unproved {
		line("  not proved yet, since its server does not run: %s", shown.Line(c))
	}
	line("")
	line("it would change: %s", shown.Line(p.Effect))
	for _, w := range p.Warnings {
		line("  warning: %s", shown.Line(w))
	}
	for _, t := range p.Tasks {
		after := listText(t.After)
		if t.Why != "" {
			after = "nothing: " + t.Why
		}
		line("  task %s of %s: now %s; after: %s", t.Task, t.Tenant, shown.Line(listText(t.Before)), shown.Line(after))
	}
	if len(p.Tasks) == 0 {
		line("  each task that was tried gets the tools that it gets now")
	}
	if p.Untried > 0 {
		line("  %d more tasks are not shown", p.Untried)
	}
	if past := p.Past; past != nil && past.Why == "" {
		line("last week's decisions: %d the same, %d different, %d not known; %d of %d looked at", past.Same, past.Different, past.Unknown, past.Looked, past.Of)
		for _, c := range past.Changes {
			line("  %s %s %s %s: %s", c.Kind, c.Tenant, c.Task, shown.Line(c.Tool), shown.Line(c.Why))
		}
	} else if past != nil {
		line("what last week's decisions would have been is not known: %s", shown.Line(past.Why))
	}
	for _, v := range p.Votes {
		word := "no"
		if v.Yes {
			word = "yes"
		}
		line("%s by %s, %s %s", word, shown.Line(v.By), v.At.Format("2006-01-02 15:04 UTC"), shown.Line(v.Note))
	}
	if p.Why != "" {
		line("%s", shown.Line(p.Why))
	}
	for _, broken := range p.Broken {
		line("  did not hold: %s", shown.Line(broken))
	}
	return b.String()
}
