package lazyexpand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The phases that a Permit checks, as policies spell them.
const (
	PhaseSearch = "search"
	PhaseExpand = "expand"
)

// An Authorizer returns for each entry why the principal may not find or expand it now, nil if it may. The errors are
// *switchboard.Error.
type Authorizer func(ctx context.Context, who switchboard.Principal, phase string, entries []surface.Entry) []error

// An ExpandEvent is an expansion or a collapse by a client, done or refused.
type ExpandEvent struct {
	Action    string // expand or collapse
	Group     string
	Tools     []switchboard.ToolID // the tools that were expanded or collapsed, or that the refused request named
	Collapsed []string             // names of the tools that were collapsed to make room
	Err       *switchboard.Error   // why it was refused; nil if it was done
}

// Options configure a Desk.
type Options struct {
	Authorize Authorizer

	// Record writes a receipt of a Deed on a run, and returns its id, if there is one; nil means that there are no
	// receipts.
	Record func(r *run.Run, did ExpandEvent) (receipt string)

	// Check returns a *switchboard.Error if the arguments obviously do not fit the tool's schema. nil checks nothing.
	Check func(tool *switchboard.Tool, args []byte) error

	Docs *search.Cache // for searches
	Log  *slog.Logger  // nil means no log output
}

// A Desk answers requests to stubs. It has no state: the run stores expansions. It is safe for concurrent use.
type Desk struct{ Options }

// New returns a Desk.
func New(o Options) *Desk {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Desk{o}
}

// A Reply is the answer of a stub.
type Reply struct {
	Text string // for the model

	// Defines are the entries with their definitions in the text.
	Defines []surface.Entry

	// Budget is the state of the budget for programs; nil if the request did not concern the budget.
	Budget *BudgetUse

	// Inner, if set, is the tool to call with Arguments in place of the stub. Arguments is an object, nil for none.
	Inner     *surface.Entry
	Arguments []byte
}

// BudgetUse is the state of a run's budget.
type BudgetUse struct {
	Budget int `json:"budget"`
	Used   int `json:"used"`
	Added  int `json:"added,omitempty"`
	Freed  int `json:"freed,omitempty"`
}

// Serve handles a client's request to the stub of the run. lists says that an expansion grows the client's list, so
// that the client receives the definitions twice. The error is a *switchboard.Error, and then nothing has changed.
func (d *Desk) Serve(ctx context.Context, r *run.Run, stub surface.Entry, args []byte, lists bool) (Reply, error) {
	g := viewGroup(r.Surface(), stub)
	a, err := parse(args, g.definitionOf)
	if err != nil {
		return Reply{}, err
	}
	if g.costNote = "the tokens that expanding them adds"; lists {
		g.costNote += " to the list, and once to the answer"
	}
	a.lists = lists
	switch a.action {
	case actionList:
		return d.answerList(ctx, r, g, a.service)
	case actionSearch:
		return d.answerSearch(ctx, r, g, a)
	case actionExpand:
		return d.withReceipt(ctx, r, g, a, d.expandMembers)
	case actionCollapse:
		return d.withReceipt(ctx, r, g, a, d.collapseMembers)
	}
	entries, err := g.membersNamed([]string{a.tool})
	if err != nil {
		return Reply{}, d.suggestNames(ctx, r, g, a.tool, err)
	}
	if x := entries[0].Expanded; x != nil {
		x.Use()
	}
	return Reply{Inner: &entries[0], Arguments: a.arguments}, nil
}

// withReceipt calls do, and writes a receipt if it has changed something or was refused.
func (d *Desk) withReceipt(ctx context.Context, r *run.Run, g groupView, a stubRequest, do func(context.Context, *run.Run, groupView, stubRequest, *ExpandEvent) (Reply, error)) (Reply, error) {
	did := ExpandEvent{Action: a.action, Group: g.name}
	reply, err := do(ctx, r, g, a, &did)
	refused := errors.As(err, &did.Err)
	if d.Record == nil || !refused && (err != nil || len(did.Tools) == 0) {
		return reply, err
	}
	return reply, switchboard.WithReceipt(err, d.Record(r, did))
}

// toolIDs returns the ids of the entries' tools.
func toolIDs(entries []surface.Entry) []switchboard.ToolID {
	out := make([]switchboard.ToolID, len(entries))
	for i, e := range entries {
		out[i] = e.Tool.Key()
	}
	return out
}

// A groupView is one group of a surface, with its members and its stub.
type groupView struct {
	name, stub string
	costNote   string // explains the tokens beside each tool
	surface    *surface.Surface
	members    []surface.Entry
}

func viewGroup(s *surface.Surface, stub surface.Entry) groupView {
	g := groupView{name: stub.Group, stub: stub.Name, surface: s}
	for _, e := range s.Entries() {
		if e.Role == surface.Member && e.Group == stub.Group {
			g.members = append(g.members, e)
		}
	}
	return g
}

// definitionOf returns the definition of the member with that name, nil for none.
func (g groupView) definitionOf(name string) []byte {
	e, ok := g.surface.Lookup(name)
	if !ok || e.Role != surface.Member || e.Group != g.name {
		return nil
	}
	return e.Tool.Definition
}

// membersNamed returns the members with these names. The refusal of a name outside of the group is the same whether
// such a tool exists or not.
func (g groupView) membersNamed(names []string) (out []surface.Entry, err error) {
	for _, name := range names {
		e, ok := g.surface.Lookup(name)
		if !ok || e.Role != surface.Member || e.Group != g.name {
			return nil, &switchboard.Error{
				Code: switchboard.CodeNotInGroup, Text: fmt.Sprintf("%q is not a tool of %s", shorten(name), g.stub),
				Hint: "search gives the names of its tools: " + examples[actionSearch],
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// serviceMembers returns the members of a service.
func (g groupView) serviceMembers(name string) ([]surface.Entry, error) {
	out := slices.DeleteFunc(slices.Clone(g.members), func(e surface.Entry) bool { return e.Service != name })
	if len(out) == 0 {
		return nil, &switchboard.Error{
			Code: switchboard.CodeNotInGroup, Text: fmt.Sprintf("%q is not a service of %s", shorten(name), g.stub),
			Hint: "its services are " + strings.Join(g.serviceNames(), ", "),
		}
	}
	return out, nil
}

func (g groupView) serviceNames() []string {
	names := make([]string, len(g.members))
	for i, e := range g.members {
		names[i] = e.Service
	}
	return sortedUnique(names)
}

// requestedMembers returns the members that a request names, one by one or as a service.
func (g groupView) requestedMembers(a stubRequest) ([]surface.Entry, error) {
	if a.tools != nil {
		return g.membersNamed(a.tools)
	}
	return g.serviceMembers(a.service)
}

// findable returns the entries that the principal may find now.
func (d *Desk) findable(ctx context.Context, who switchboard.Principal, entries []surface.Entry) []surface.Entry {
	denied := d.Authorize(ctx, who, PhaseSearch, entries)
	out := make([]surface.Entry, 0, len(entries))
	for i, e := range entries {
		if denied[i] == nil && !e.Withheld {
			out = append(out, e)
		}
	}
	return out
}

// answerList answers with the services, or with the tools of one service.
func (d *Desk) answerList(ctx context.Context, r *run.Run, g groupView, service string) (Reply, error) {
	entries := g.members
	if service == "" && len(g.serviceNames()) == 1 {
		service = g.serviceNames()[0]
	}
	if service != "" {
		var err error
		if entries, err = g.serviceMembers(service); err != nil {
			return Reply{}, err
		}
	}
	entries = d.findable(ctx, r.Principal(), entries)
	var b strings.Builder
	if service == "" {
		count, tokens := map[string]int{}, map[string]int{}
		for _, e := range entries {
			count[e.Service]++
			tokens[e.Service] += g.surface.Cost(e.Name)
		}
		fmt.Fprintf(&b, "%s, %s:\n", countOf(len(count), "service"), countOf(len(entries), "tool"))
		for _, name := range g.serviceNames() {
			if count[name] > 0 {
				fmt.Fprintf(&b, "- %s: %s, %s tokens to expand\n", name, countOf(count[name], "tool"), formatNumber(tokens[name]))
			}
		}
		fmt.Fprintf(&b, `Next: {"action":"list","service":"NAME"} or %s`, examples[actionSearch])
		return Reply{Text: b.String()}, nil
	}
	fmt.Fprintf(&b, "%s of %s, with %s:\n", countOf(len(entries), "tool"), service, g.costNote)
	for i, e := range entries {
		if i == maxRows {
			rest := entries[maxRows:]
			names := make([]string, 0, min(len(rest), maxNames))
			for _, e := range rest[:min(len(rest), maxNames)] {
				names = append(names, e.Name)
			}
			fmt.Fprintf(&b, "and %s", strings.Join(names, ", "))
			if n := len(rest) - len(names); n > 0 {
				fmt.Fprintf(&b, " and %d more: search for them", n)
			}
			b.WriteByte('\n')
			break
		}
		writeRow(&b, g.surface, e)
	}
	b.WriteString("Next: " + examples[actionCall] + " or " + examples[actionExpand])
	return Reply{Text: b.String()}, nil
}

// writeRow writes one tool with its arguments on a line.
func writeRow(b *strings.Builder, s *surface.Surface, e surface.Entry) {
	more := ""
	if e.Expanded != nil {
		more = ", expanded"
	}
	fmt.Fprintf(b, "- %s (%s%s)", e.Name, formatNumber(s.Cost(e.Name)), more)
	if line := oneLine(e.Tool.Definition); line != "" {
		b.WriteString(": " + line)
	}
	if takes := signature(e.Tool.Definition); takes != "" {
		b.WriteString(" Takes " + takes)
	}
	b.WriteByte('\n')
}

// answerSearch answers with the tools that match a query best.
func (d *Desk) answerSearch(ctx context.Context, r *run.Run, g groupView, a stubRequest) (Reply, error) {
	limit := min(a.limit, maxFound)
	if a.limit == 0 {
		limit = usualFound
	}
	found := d.findMembers(ctx, r.Principal(), g, a.query, limit)
	if len(found) == 0 {
		return Reply{Text: fmt.Sprintf("nothing fits %q among the tools of %s. Try other words, or look through the services: %s", shorten(a.query), g.stub, examples[actionList])}, nil
	}
	var b strings.Builder
	b.WriteString("best first, with " + g.costNote + ":\n")
	for _, e := range found {
		writeRow(&b, g.surface, e)
	}
	b.WriteString("Next: " + examples[actionCall] + "; expand first where you must know more of what it takes")
	return Reply{Text: b.String()}, nil
}

// findMembers returns at most limit members that match a query, best first.
func (d *Desk) findMembers(ctx context.Context, who switchboard.Principal, g groupView, query string, limit int) []surface.Entry {
	// The index contains the tools that this client may see and no others, so hidden tools
	// has no part in how its own tools are ranked.
	index := g.surface.Memoize(g.name, func() any {
		docs := make([]*search.Doc, len(g.members))
		for i, e := range g.members {
			docs[i] = d.Docs.Doc(e.Tool)
		}
		return search.New(docs)
	}).(*search.Index)
	// Policy may deny some matches, and the others must still be the best. Each round asks
	// is asked about more each time, so as not to be asked often.
	matches := index.Search(query, len(g.members))
	found := make([]surface.Entry, 0, limit)
	for most := limit; len(matches) > 0 && len(found) < limit; most *= 2 {
		n := min(len(matches), most)
		next := make([]surface.Entry, 0, n)
		for _, m := range matches[:n] {
			name, _ := g.surface.Name(m.ID)
			if e, ok := g.surface.Lookup(name); ok {
				next = append(next, e)
			}
		}
		matches = matches[n:]
		found = append(found, d.findable(ctx, who, next)...)
	}
	return found[:min(len(found), limit)]
}

// maxSuggested limits the tools that are suggested for a name.
const maxSuggested = 3

// suggestNames adds the most likely names to err, which says that the group has no tool with that name.
func (d *Desk) suggestNames(ctx context.Context, r *run.Run, g groupView, name string, err error) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		return err
	}
	var names []string
	for _, e := range d.findable(ctx, r.Principal(), g.members) {
		if bareName(e.Name) == bareName(name) {
			names = append(names, e.Name)
		}
	}
	if names == nil {
		for _, e := range d.findMembers(ctx, r.Principal(), g, shorten(name), maxSuggested) {
			names = append(names, e.Name)
		}
	}
	if names == nil {
		return err
	}
	most, _ := json.Marshal(names[0])
	own.Hint = fmt.Sprintf(`did you mean %s? Then write {"action":"call","tool":%s,"arguments":{}}`, strings.Join(names[:min(len(names), maxSuggested)], ", "), most)
	return own
}

// bareName returns a name in lower case, without the characters between its words and without the prefixes that
// clients and models add.
func bareName(name string) string {
	for _, before := range []string{"__", "/", ":", "."} {
		if i := strings.LastIndex(name, before); i >= 0 {
			name = name[i+len(before):]
		}
	}
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
}

// expandMembers adds definitions to the run's list: all of them, or none.
func (d *Desk) expandMembers(ctx context.Context, r *run.Run, g groupView, a stubRequest, did *ExpandEvent) (Reply, error) {
	asked, err := g.requestedMembers(a)
	if err != nil {
		return Reply{}, err
	}
	did.Tools = toolIDs(asked)
	if err := d.checkExpand(ctx, r.Principal(), asked, "expanded"); err != nil {
		return Reply{}, err
	}
	names := make([]string, len(asked))
	for i, e := range asked {
		names[i] = e.Name
		g.surface.Cost(e.Name) // counting is slow; Surface caches the result, so Change stays quick
	}
	var x expansion
	err = r.Change(ctx, func(s *surface.Surface) (*surface.Surface, error) {
		var err error
		x, err = expandOn(s, g.stub, names, a.lists)
		x.recordUse()
		return x.surface, err
	})
	did.Collapsed = x.collapsed
	if err != nil {
		return Reply{}, asRefusal(err)
	}
	did.Tools = toolIDs(x.added)
	if spent := x.reply.Budget; spent.Added > 0 {
		d.Log.Info("expanded", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "task", r.Task(), "run", r.ID(),
			"group", g.name, "tools", len(asked), "tokens", spent.Added, "used", spent.Used, "budget", spent.Budget)
	}
	return x.reply, nil
}

// An expansion is the result of expandOn.
type expansion struct {
	surface   *surface.Surface // nil if everything was expanded already
	reply     Reply
	added     []surface.Entry
	collapsed []string // names
}

// expandOn expands the members with these names in the stub's group. It changes nothing: Run.Change calls it again if
// another process has changed the run first.
func expandOn(s *surface.Surface, stubName string, names []string, lists bool) (expansion, error) {
	stub, _ := s.Lookup(stubName)
	entries, err := viewGroup(s, stub).membersNamed(names) // they may have been removed since the request
	if err != nil {
		return expansion{}, err
	}
	var fresh []surface.Entry
	for _, e := range entries {
		switch {
		case e.Withheld:
			return expansion{}, switchboard.Refuse(switchboard.CodeOverBudget, "%s has grown to %s tokens, and the budget has no room for it", e.Name, formatNumber(s.Cost(e.Name)))
		case e.Expanded == nil:
			fresh = append(fresh, e)
		}
	}
	plan, err := planExpansion(s, fresh, entries)
	if err != nil {
		return expansion{}, err
	}
	x := expansion{added: fresh, collapsed: plan.collapsed, reply: Reply{
		Text:    expansionText(s, entries, fresh, plan, lists),
		Defines: entries,
		Budget:  &BudgetUse{Budget: s.Budget(), Used: plan.used + plan.asked, Added: plan.asked, Freed: plan.freed},
	}}
	if len(fresh) > 0 {
		expanded := slices.Clone(plan.remaining)
		for _, e := range fresh {
			expanded = append(expanded, surface.Expand(e.Tool.Key()))
		}
		x.surface = s.WithExpanded(expanded, s.Withheld())
	}
	return x, nil
}

// recordUse records a use of the requested members that were expanded already.
func (x *expansion) recordUse() {
	for _, e := range x.reply.Defines {
		if e.Expanded != nil {
			e.Expanded.Use()
		}
	}
}

// checkExpand refuses an expansion if policy denies any part of it. done is the verb of the refusal.
func (d *Desk) checkExpand(ctx context.Context, who switchboard.Principal, asked []surface.Entry, done string) error {
	var names []string
	var causes []error
	for i, why := range d.Authorize(ctx, who, PhaseExpand, asked) {
		if why == nil {
			continue
		}
		if own, ok := errors.AsType[*switchboard.Error](why); ok && own.Code != switchboard.CodeDenied {
			return why // policy could not be evaluated
		}
		names, causes = append(names, asked[i].Name), append(causes, fmt.Errorf("%s: %w", asked[i].Tool.ID, why))
	}
	if names == nil {
		return nil
	}
	return &switchboard.Error{
		Code: switchboard.CodeExpandDenied, Stage: "policy", Cause: errors.Join(causes...),
		Text: "not " + done + ": policy does not allow it now for " + strings.Join(names, ", "),
		Hint: "leave these out; it may be allowed at another time, and the person whom you work for may know",
	}
}

// AuthorizeCall asks policy before a member is executed by its name or through its stub. Such a call means to expand the
// tool and then to call it, so a rule on either phase stops it. The error is SB-LAZY-002, or says that policy could
// not be evaluated.
func (d *Desk) AuthorizeCall(ctx context.Context, r *run.Run, e surface.Entry) error {
	return d.checkExpand(ctx, r.Principal(), []surface.Entry{e}, "executed")
}

// expansionText lists the expanded definitions. A client that does not list again learns them only from this text.
func expansionText(s *surface.Surface, entries, fresh []surface.Entry, m expansionPlan, lists bool) string {
	var b strings.Builder
	if len(fresh) == 0 {
		b.WriteString("all of it was expanded already, which costs nothing more; ")
	} else {
		fmt.Fprintf(&b, "%s expanded, for %s tokens", countOf(len(fresh), "tool"), formatNumber(m.asked))
		if lists {
			answer := 0
			for _, e := range entries {
				answer += s.Cost(e.Name)
			}
			fmt.Fprintf(&b, " in the list and %s in this answer", formatNumber(answer))
		}
		b.WriteString("; ")
	}
	if len(m.collapsed) > 0 {
		fmt.Fprintf(&b, "collapsed for it: %s; ", strings.Join(m.collapsed, ", "))
	}
	fmt.Fprintf(&b, "%s of %s are in use. Call them by name:\n[", formatNumber(m.used+m.asked), formatNumber(s.Budget()))
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e.Append(nil))
	}
	b.WriteByte(']')
	return b.String()
}

// BoundReply returns the answer to a client that has just been bound. A client that does not list again learns its tools
// only from this answer.
func BoundReply(s *surface.Surface) Reply {
	all, used := chargedEntries(s)
	var b strings.Builder
	var defines []surface.Entry
	fmt.Fprintf(&b, "bound; %s of %s tokens are in use. Call them by name:\n[", formatNumber(used), formatNumber(s.Budget()))
	for _, c := range all {
		if c.Role == surface.Own {
			continue
		}
		if defines != nil {
			b.WriteByte(',')
		}
		defines = append(defines, c.Entry)
		b.Write(c.Append(nil))
	}
	b.WriteByte(']')
	return Reply{Text: b.String(), Defines: defines, Budget: &BudgetUse{Budget: s.Budget(), Used: used}}
}

// collapseMembers removes definitions from the run's list.
func (d *Desk) collapseMembers(ctx context.Context, r *run.Run, g groupView, a stubRequest, did *ExpandEvent) (Reply, error) {
	if _, err := g.requestedMembers(a); err != nil {
		return Reply{}, err
	}
	var c collapse
	err := r.Change(ctx, func(s *surface.Surface) (*surface.Surface, error) {
		var err error
		c, err = collapseOn(s, g.stub, a)
		return c.surface, err
	})
	if err != nil {
		return Reply{}, asRefusal(err)
	}
	did.Tools = c.removed
	return c.reply, nil
}

// A collapse is the result of collapseOn.
type collapse struct {
	surface *surface.Surface // nil if none of the members was expanded
	reply   Reply
	removed []switchboard.ToolID
}

// collapseOn collapses the requested members of the stub's group. It changes nothing, like
// expandOn.
func collapseOn(s *surface.Surface, stubName string, a stubRequest) (collapse, error) {
	stub, _ := s.Lookup(stubName)
	asked, err := viewGroup(s, stub).requestedMembers(a)
	if err != nil {
		return collapse{}, err
	}
	var c collapse
	_, used := chargedEntries(s)
	freed := 0
	for _, e := range asked {
		if e.Expanded != nil {
			c.removed = append(c.removed, e.Tool.Key())
			freed += s.Cost(e.Name)
		}
	}
	c.reply.Budget = &BudgetUse{Budget: s.Budget(), Used: used - freed, Freed: freed}
	if c.removed == nil {
		c.reply.Text = fmt.Sprintf("none of that was expanded; %s of %s tokens are in use", formatNumber(used), formatNumber(s.Budget()))
		return c, nil
	}
	c.reply.Text = fmt.Sprintf("%s collapsed, which gives %s tokens back; %s of %s are in use",
		countOf(len(c.removed), "tool"), formatNumber(freed), formatNumber(used-freed), formatNumber(s.Budget()))
	remaining := slices.DeleteFunc(slices.Clone(s.Expanded()), func(x *surface.Expansion) bool { return slices.Contains(c.removed, x.Tool) })
	c.surface = s.WithExpanded(remaining, s.Withheld())
	return c, nil
}

// asRefusal returns err as a *switchboard.Error, unless it is the end of a context.
func asRefusal(err error) error {
	if _, ok := errors.AsType[*switchboard.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "it could not be done now", Cause: err}
}

// Admit prepares the call of an unexpanded member by its own name, after policy has permitted it. It expands the
// member if there is room; otherwise the call is still made, and the list stays as it is. The error is a
// *switchboard.Error: SB-LAZY-001 for a withheld entry, and SB-LAZY-004 if the arguments do not fit a definition that
// the client was not shown.
func (d *Desk) Admit(ctx context.Context, r *run.Run, e surface.Entry, args []byte) error {
	s := r.Surface()
	if e.Withheld {
		return withheldError(s, e)
	}
	for _, stub := range s.Stubs() {
		if stub.Group != e.Group {
			continue
		}
		if d.Check != nil {
			if err := d.Check(e.Tool, args); err != nil {
				return expandFirst(stub, e, err)
			}
		}
		a := stubRequest{action: actionExpand, tools: []string{e.Name}}
		if _, err := d.withReceipt(ctx, r, viewGroup(s, stub), a, d.expandMembers); err != nil {
			d.Log.Debug("called and not expanded", "tool", e.Tool.ID, "err", err)
		}
		return nil
	}
	return switchboard.Refuse(switchboard.CodeNoSuchTool, "Unknown tool: %s", e.Name)
}

// withheldError says why the entry is withheld: it has grown.
func withheldError(s *surface.Surface, e surface.Entry) error {
	return &switchboard.Error{
		Code: switchboard.CodeOverBudget,
		Text: fmt.Sprintf("%s is withheld: it has grown to %s tokens, and the budget of %s has no room for it", e.Name, formatNumber(s.Cost(e.Name)), formatNumber(s.Budget())),
		Hint: "the person who runs Switchboard can raise token_budget",
	}
}

// expandFirst says that the arguments of a call do not fit, and how to get the definition.
func expandFirst(stub, e surface.Entry, why error) error {
	name, _ := json.Marshal(e.Name)
	reason := why.Error()
	if own, ok := errors.AsType[*switchboard.Error](why); ok {
		reason = own.Text
	}
	return &switchboard.Error{
		Code: switchboard.CodeExpandFirst, ServedBy: switchboard.ServedTool{Stub: stub.Name}, Cause: why,
		Text: fmt.Sprintf("%s was not called: %s", e.Name, reason),
		Hint: fmt.Sprintf(`for its whole definition, call %s with {"action":"expand","tools":[%s]}`, stub.Name, name),
	}
}
