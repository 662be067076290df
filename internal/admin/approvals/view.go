package approvals

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxPast limits the earlier decisions that are shown.
const maxPast = 10

// An ApprovalView is a request as a person reads it before deciding. No text in it has a character that is not visible as itself.
type ApprovalView struct {
	ApprovalRow

	// Effect states what a yes does, in one sentence.
	Effect string `json:"effect"`

	Who      []string `json:"who,omitempty" doc:"Who may decide: offices, roles or persons. Empty means the office approver."`
	Deciders string   `json:"who_decides" doc:"The same in words."`

	Rules []string       `json:"rules,omitempty" doc:"The rules that asked, with their reasons."`
	Words string         `json:"reason,omitempty" doc:"The agent's words, of a request for a capability."`
	Votes []PastDecision `json:"votes,omitempty"`

	Arguments ShownArguments `json:"arguments"`
	Server    ServerWords    `json:"server"`
	Effects   []string       `json:"side_effects,omitempty" doc:"What is known about the effects of the call."`
	Money     string         `json:"money,omitempty" doc:"The price, and what the budgets have left."`

	Past    []PastDecision `json:"past,omitempty" doc:"The last decisions about this tool and principal, the newest first."`
	Refused []PastDecision `json:"refused_before,omitempty" doc:"Earlier refusals of the same arguments."`

	WhyNot string `json:"why_not,omitempty" doc:"Why you may not decide this."`

	// Text is all of this, as commands and the page show it.
	Text string `json:"text" doc:"All of this as lines of text, as the command and the page show it."`
}

// ShownArguments are the arguments of a call, as package shown writes them.
type ShownArguments struct {
	Text   string   `json:"text,omitempty" doc:"Like JSON. A character that is not visible as itself is \\u{…}, a credential is \\masked{LENGTH}, and a text that continues on the next line goes on after \"| \"."`
	Masked []string `json:"masked,omitempty" doc:"Where credentials are: JSON Pointers."`
	Hidden string   `json:"hidden,omitempty" doc:"Why they are not shown."`
}

// ServerWords are what the server says about its tool. They may be untrue.
type ServerWords struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Cut         bool   `json:"cut,omitempty" doc:"The description is longer."`
	Changed     bool   `json:"changed,omitempty" doc:"The server now offers another definition than the one that was asked for, or none. A yes would not be used."`
}

// A PastDecision is what a person has said about a request.
type PastDecision struct {
	Request string         `json:"request,omitempty"`
	At      time.Time      `json:"at"`
	State   approval.State `json:"state" doc:"What has become of the request, or approved or refused for one person's word."`
	By      string         `json:"by,omitempty"`
	Note    string         `json:"note,omitempty"`
}

// Show returns a request as the officer may see it. Only who acts as an approver of the tenant sees arguments.
func (d *Decider) Show(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*ApprovalView, error) {
	r, err := d.find(ctx, by, tenant, id)
	if err != nil {
		return nil, err
	}
	all, err := d.o.Keeper.List(ctx, r.Asker.Tenant)
	if err != nil {
		return nil, asRefusal(err)
	}
	now := time.Now().UTC()
	v := &ApprovalView{ApprovalRow: rowOf(r, now), Who: r.Terms.Who, Words: shown.Line(r.Target.Reason), Rules: describeRules(r.Terms.Rules)}
	for i := range r.Votes {
		v.Votes = append(v.Votes, voteOf(&r.Votes[i]))
	}
	v.Past, v.Refused = pastOf(r, all)
	acts := d.ActsAsApprover(by, r.Asker.Tenant)
	if !acts {
		v.Words = ""
	} else if r.Kind == approval.ForCall {
		v.Tool = shown.Line(r.Target.ID().String())
	}
	if r.Kind == approval.ForCall {
		if err := d.showCall(ctx, r, v, acts); err != nil {
			return nil, err
		}
	}
	rules := d.o.Rules(r.Asker.Tenant)
	if err := approval.MayDecide(by, r, rules); err != nil {
		v.WhyNot = shown.Line(access.AsError(err).Text)
	}
	v.Effect, v.Deciders = effectOf(r, v.Tool, now, v.Money), describeWho(v, rules.Unmanned)
	v.Text = v.write(r, now)
	return v, nil
}

// showCall shows what only calls have.
func (d *Decider) showCall(ctx context.Context, r *approval.Request, v *ApprovalView, acts bool) error {
	kept, err := d.o.Keeper.Kept(ctx, r)
	switch {
	case errors.Is(err, approval.ErrNoRequest):
		v.Arguments.Hidden = "they are not kept any more, because the request has ended"
	case errors.Is(err, approval.ErrUnreadable):
		v.Arguments.Hidden = "they do not open: they were changed, or sealed with another key. Nobody can approve the request; the agent can withdraw it, and call again"
	case err != nil:
		return asRefusal(err)
	case !acts:
		v.Arguments.Hidden = "only an approver of the tenant sees them"
	default:
		a, err := shown.WriteArguments(ArgumentsOf(r.Target.Method, kept.Params))
		if err != nil {
			return err
		}
		v.Arguments = ShownArguments{Text: a.Text, Masked: a.Masked}
	}
	if d.o.Money != nil {
		v.Money = d.o.Money(ctx, r, kept.Params)
	}
	t := d.o.Tool(r.Asker.Tenant, &r.Target)
	if r.Target.Definition == "" { // not a tool
		return nil
	}
	if t == nil || t.Digest != r.Target.Definition {
		v.Server.Changed = true
	}
	if t != nil {
		v.Server.Title, v.Server.Description, v.Server.Cut = wordsOf(t)
		v.Effects = EffectsOf(t)
	}
	return nil
}

// ArgumentsOf returns what people are shown of the params of a call: the arguments of a tool, and of anything else all but the protocol's own member.
func ArgumentsOf(method string, params []byte) []byte {
	if method != wire.MethodToolsCall {
		return wire.Without(nil, params, func(member string) bool { return member == wire.MemberMeta })
	}
	raw, _ := wire.Field(params, "arguments")
	return raw
}

// wordsOf returns the title and the description of a tool.
func wordsOf(t *switchboard.Tool) (title, description string, cut bool) {
	var def struct {
		Title       any `json:"title"`
		Description any `json:"description"`
		Annotations struct {
			Title any `json:"title"`
		} `json:"annotations"`
	}
	_ = json.Unmarshal(t.Definition, &def) // what is no text is left out
	text := func(v any) string { s, _ := v.(string); return s }
	title, _ = shown.Words(cmp.Or(text(def.Title), text(def.Annotations.Title)))
	description, cut = shown.Words(text(def.Description))
	return strings.ReplaceAll(title, "\n", " "), description, cut
}

// EffectsOf says what is known about the effects of calls of a tool.
func EffectsOf(t *switchboard.Tool) (all []string) {
	say := func(f switchboard.Fact, yes, no string) {
		text := no
		if f.Holds {
			text = yes
		}
		switch {
		case !f.Stated() || text == "":
			return
		case !f.Trusted:
			text += ", says the server"
		}
		all = append(all, text)
	}
	c := &t.Contract
	if !c.ReadOnly.Stated() {
		all = append(all, "it is not known whether a call changes something")
	}
	say(c.ReadOnly, "a call changes nothing", "a call changes something")
	say(c.Stateful, "what it changes lasts", "")
	say(c.Idempotent, "a second call would change nothing more", "a second call would change something again")
	for _, k := range slices.Concat(t.Capabilities, t.Kept) {
		if text := "its capability: " + k.String(); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

func describeRules(rules []switchboard.AskingRule) (all []string) {
	for i := range rules {
		all = append(all, describeRule(&rules[i]))
	}
	return all
}

// describeRule says which rule asked, and why.
func describeRule(r *switchboard.AskingRule) string {
	text := r.File
	if r.Line > 0 {
		text += fmt.Sprintf(":%d", r.Line)
	}
	if text == "" {
		text = r.Layer
	} else {
		text += " (" + r.Layer + ")"
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return shown.Line(text)
}

func voteOf(v *approval.Vote) PastDecision {
	p := PastDecision{At: v.At, State: approval.Refused, By: v.By, Note: shown.Line(v.Note)}
	if v.Yes {
		p.State = approval.Approved
	}
	return p
}

// pastOf returns the last decisions about the tool and the principal of a request, and all refusals of its arguments, the newest first.
func pastOf(r *approval.Request, all []*approval.Request) (past, refused []PastDecision) {
	for _, o := range all {
		v := o.Last()
		if v == nil || o.Kind != r.Kind || o.ID() == r.ID() || o.Asker.Principal != r.Asker.Principal || o.Target.Label() != r.Target.Label() || o.Target.Capability != r.Target.Capability {
			continue
		}
		p := voteOf(v)
		p.Request = o.ID()
		if o.Stored != approval.Pending {
			p.State = o.Stored
		}
		past = append(past, p)
		if o.Stored == approval.Refused && o.Target.Arguments == r.Target.Arguments {
			refused = append(refused, p)
		}
	}
	for _, b := range r.Before { // they are kept longer
		if b.State == approval.Refused && !slices.ContainsFunc(refused, func(p PastDecision) bool { return p.At.Equal(b.At) }) {
			refused = append(refused, PastDecision{At: b.At, State: b.State, By: b.By, Note: shown.Line(b.Note)})
		}
	}
	newest := func(a, b PastDecision) int { return b.At.Compare(a.At) }
	slices.SortStableFunc(past, newest)
	slices.SortStableFunc(refused, newest)
	return past[:min(len(past), maxPast)], refused[:min(len(refused), maxPast)]
}

// until returns an instant for a person: without the day if it is within a day.
func until(at, now time.Time) string {
	if d := at.Sub(now); d > -12*time.Hour && d < 12*time.Hour {
		return at.UTC().Format("15:04 UTC")
	}
	return at.UTC().Format("2006-01-02 15:04 UTC")
}

// effectOf states what a yes does.
func effectOf(r *approval.Request, tool string, now time.Time, money string) string {
	if state := r.StateAt(now); !state.Open() {
		return "A yes is not possible any more: the request is " + string(state) + "."
	}
	var text string
	if r.Kind == approval.ForCapability {
		text = fmt.Sprintf("the capability %s for %s, in its run or task, for as long as the yes says", shown.Line(r.Target.Capability), shown.Line(r.Asker.Principal))
		if g := r.Grant; g != (approval.Grant{}) {
			text = fmt.Sprintf("the capability %s for %s of %s, until %s", shown.Line(r.Target.Capability), g.Place(), shown.Line(r.Asker.Principal), until(g.Until, now))
		} else if r.Target.Unoffered {
			text += ". When the agent asked, no tool offered it; a yes adds nothing until one does"
		}
	} else {
		text = fmt.Sprintf("one call of %s, exactly this, by %s, until %s", tool, shown.Line(r.Asker.Principal), until(r.Until, now))
		if r.Target.Method != wire.MethodToolsCall {
			text = fmt.Sprintf("one request %s of %s, exactly this, by %s, until %s", r.Target.Method, tool, shown.Line(r.Asker.Principal), until(r.Until, now))
		}
	}
	if money != "" {
		text += "; it costs " + money
	}
	if r.Stored == approval.Approved {
		return "Allowed: " + text + "."
	}
	if n := r.Terms.Needed() - r.Yeses(); n > 1 {
		text += fmt.Sprintf(". It takes effect when %d persons have said yes", n)
	}
	return "A yes allows " + text + "."
}

// width is how many columns the text has. No line that has a part from somebody else is longer, because a terminal would break it, and the rest would begin where our
// own lines begin.
const width = 78

// writeWrapped writes a text on lines of their own, the first after one prefix and the others after another of the same width.
func writeWrapped(b *strings.Builder, first, others, text string) {
	for i, line := range shown.Wrap(text, width-len(others)) {
		b.WriteString([]string{first, others}[min(i, 1)] + line + "\n")
	}
}

// write returns all of the view as text.
func (v *ApprovalView) write(r *approval.Request, now time.Time) string {
	var b strings.Builder
	line := func(name, text string) { writeWrapped(&b, fmt.Sprintf("%-13s", name), strings.Repeat(" ", 13), text) }
	state := "Request " + v.ID + " is " + string(v.State)
	switch {
	case v.By == "":
	case v.State == approval.Used:
		state += " (approved by " + shown.Line(v.By) + ")"
	default:
		state += " (by " + shown.Line(v.By) + ")"
	}
	writeWrapped(&b, "", "  ", state+".")
	b.WriteString("\n")
	writeWrapped(&b, "", "  ", v.Effect)
	b.WriteString("\n")
	asker := v.Principal
	if r.Asker.Auth != "" {
		asker += " (" + string(r.Asker.Auth) + ")"
	}
	line("asked by", asker+" of tenant "+string(v.Tenant)+", at "+until(r.Asked, now))
	if v.Task != "" {
		line("for task", string(v.Task))
	}
	if v.Kind == approval.ForCall && r.Target.Capability != "" {
		line("provides", r.Target.Capability)
	}
	if v.Words != "" {
		line("it says", v.Words)
	}
	for i, rule := range v.Rules {
		line([]string{"asked for", ""}[min(i, 1)], rule)
	}
	line("who decides", v.Deciders)
	if v.WhyNot != "" && v.State.Open() {
		line("", "you may not: "+v.WhyNot)
	}
	for i := range v.Votes {
		line("so far", describePast(&v.Votes[i], now))
	}
	if v.Money != "" {
		line("costs", v.Money)
	}
	for i, e := range v.Effects {
		line([]string{"effects", ""}[min(i, 1)], shown.Line(e))
	}
	if v.Kind == approval.ForCall {
		v.writeCall(&b)
	}
	writePast(&b, "These arguments were refused before:", v.Refused, now)
	about := "this tool"
	if v.Kind == approval.ForCapability {
		about = "this capability"
	}
	writePast(&b, "The last decisions about "+about+" and principal:", v.Past, now)
	return strings.TrimRight(b.String(), "\n")
}

func describeWho(v *ApprovalView, unmanned bool) string {
	who := "the office approver of tenant " + string(v.Tenant)
	if len(v.Who) > 0 {
		who = "an approver of tenant " + string(v.Tenant) + " who is one of: " + shown.Line(strings.Join(v.Who, ", "))
	}
	if unmanned {
		who = "whoever can read the data folder, because the configuration names no approver: so you do, and so does an agent that runs programs as you"
	}
	if v.Needed > 1 {
		who += fmt.Sprintf("; %d different persons must say yes", v.Needed)
	}
	return who
}

// writeCall writes the arguments, and apart from them the words of the server.
func (v *ApprovalView) writeCall(b *strings.Builder) {
	switch n := len(v.Arguments.Masked); {
	case v.Arguments.Hidden != "":
		fmt.Fprintf(b, "\nArguments: %s.\n", v.Arguments.Hidden)
	case n > 0:
		b.WriteString("\nArguments, with credentials masked at these places:\n")
		for _, pointer := range v.Arguments.Masked[:min(n, maxPast)] {
			writeWrapped(b, "  ", "    ", pointer)
		}
		if n > maxPast {
			fmt.Fprintf(b, "  and %d more\n", n-maxPast)
		}
		b.WriteString(v.Arguments.Text + "\n")
	default:
		b.WriteString("\nArguments:\n" + v.Arguments.Text + "\n")
	}
	if v.Server.Changed {
		b.WriteString("\nThe server now offers another definition than the one that was asked for, or\nnone. A yes would not be used.\n")
	}
	if v.Server.Title == "" && v.Server.Description == "" {
		return
	}
	b.WriteString("\nThe server's own words about this tool, which may be untrue:\n")
	for _, text := range []string{v.Server.Title, v.Server.Description} {
		for line := range strings.Lines(text) {
			writeWrapped(b, "  > ", "  > ", strings.TrimRight(line, "\n"))
		}
	}
	if v.Server.Cut {
		b.WriteString("  > […]\n")
	}
}

func writePast(b *strings.Builder, title string, past []PastDecision, now time.Time) {
	if len(past) == 0 {
		return
	}
	b.WriteString("\n" + title + "\n")
	for i := range past {
		writeWrapped(b, "  ", "    ", describePast(&past[i], now))
	}
}

func describePast(p *PastDecision, now time.Time) string {
	said, then := string(p.State), ""
	if p.State != approval.Refused && p.State != approval.Approved {
		said, then = string(approval.Approved), " and "+said
	}
	if p.By != "" {
		said += " by " + shown.Line(p.By)
	}
	text := until(p.At, now) + " " + said + then
	if p.Request != "" {
		text += ", " + p.Request
	}
	if p.Note != "" {
		text += `: "` + p.Note + `"`
	}
	return text
}
