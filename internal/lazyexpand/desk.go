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

// What a Permit is asked for, as policies spell it.
const (
	PhaseSearch = "search"
	PhaseExpand = "expand"
)

// A Permit says of each entry why the principal may not find or expand it now, nil
// where it may. The errors are *switchboard.Error.
type Permit func(ctx context.Context, who switchboard.Principal, phase string, entries []surface.Entry) []error

// A Deed is something that a client has had expanded or collapsed, or was refused.
type Deed struct {
	Action    string // expand or collapse
	Group     string
	Tools     []switchboard.ToolID // that were expanded or collapsed, or of which that was refused
	Collapsed []string             // names of what had to go for it
	Err       *switchboard.Error   // why it was refused; nil where it was done
}

// Options are what a Desk is made of.
type Options struct {
	Permit Permit

	// Record has a receipt of what was done or refused on a run, and returns its id, if
	// there is one; nil means that there are none.
	Record func(r *run.Run, did Deed) (receipt string)

	// Check says why the arguments plainly do not fit the tool's schema: a *switchboard.Error. nil
	// checks nothing.
	Check func(tool *switchboard.Tool, args []byte) error

	Docs *search.Cache // what tools are found by
	Log  *slog.Logger  // nil means that nothing is logged
}

// A Desk does what clients ask of stubs. It keeps nothing: what is expanded is the
// run's. It is safe for concurrent use.
type Desk struct{ Options }

// New returns a Desk.
func New(o Options) *Desk {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Desk{o}
}

// A Reply is what a stub answers.
type Reply struct {
	Text string // for the model

	// Defines are the entries of which the text holds definitions.
	Defines []surface.Entry

	// Spent is what programs are told besides, where the budget was touched.
	Spent *Spent

	// Inner, where set, is the tool that is to be called with Arguments in the
	// stub's place: an object, nil for none.
	Inner     *surface.Entry
	Arguments []byte
}

// Spent is how a run's budget stands.
type Spent struct {
	Budget int `json:"budget"`
	Used   int `json:"used"`
	Added  int `json:"added,omitempty"`
	Freed  int `json:"freed,omitempty"`
}

// Serve does what a client of the run asks of the stub. lists says that the client's list grows by
// what is expanded, so that it gets the definitions twice. The error is a *switchboard.Error, and then
// nothing has changed.
func (d *Desk) Serve(ctx context.Context, r *run.Run, stub surface.Entry, args []byte, lists bool) (Reply, error) {
	g := groupIn(r.Surface(), stub)
	a, err := parse(args, g.definition)
	if err != nil {
		return Reply{}, err
	}
	if g.price = "the tokens that expanding them adds"; lists {
		g.price += " to the list, and once to the answer"
	}
	a.lists = lists
	switch a.action {
	case actionList:
		return d.list(ctx, r, g, a.service)
	case actionSearch:
		return d.search(ctx, r, g, a)
	case actionExpand:
		return d.recorded(ctx, r, g, a, d.expand)
	case actionCollapse:
		return d.recorded(ctx, r, g, a, d.collapse)
	}
	entries, err := g.named([]string{a.tool})
	if err != nil {
		return Reply{}, d.suggest(ctx, r, g, a.tool, err)
	}
	if x := entries[0].Expanded; x != nil {
		x.Use()
	}
	return Reply{Inner: &entries[0], Arguments: a.arguments}, nil
}

// recorded does what do does, and has it recorded where that has changed something or was
// refused.
func (d *Desk) recorded(ctx context.Context, r *run.Run, g group, a ask, do func(context.Context, *run.Run, group, ask, *Deed) (Reply, error)) (Reply, error) {
	did := Deed{Action: a.action, Group: g.name}
	reply, err := do(ctx, r, g, a, &did)
	refused := errors.As(err, &did.Err)
	if d.Record == nil || !refused && (err != nil || len(did.Tools) == 0) {
		return reply, err
	}
	return reply, switchboard.Receipted(err, d.Record(r, did))
}

// ids are those of the entries' tools.
func ids(entries []surface.Entry) []switchboard.ToolID {
	out := make([]switchboard.ToolID, len(entries))
	for i, e := range entries {
		out[i] = e.Tool.ID
	}
	return out
}

// A group is what one stub stands for on a surface.
type group struct {
	name, stub string
	price      string // what the tokens beside a tool are
	of         *surface.Surface
	members    []surface.Entry
}

func groupIn(s *surface.Surface, stub surface.Entry) group {
	g := group{name: stub.Group, stub: stub.Name, of: s}
	for _, e := range s.Entries() {
		if e.Role == surface.Member && e.Group == stub.Group {
			g.members = append(g.members, e)
		}
	}
	return g
}

// definition returns that of a member, nil where there is none of that name.
func (g group) definition(name string) []byte {
	e, ok := g.of.Lookup(name)
	if !ok || e.Role != surface.Member || e.Group != g.name {
		return nil
	}
	return e.Tool.Definition
}

// named returns the members of these names. What is not in the group is refused
// in the same words whether it exists or not.
func (g group) named(names []string) (out []surface.Entry, err error) {
	for _, name := range names {
		e, ok := g.of.Lookup(name)
		if !ok || e.Role != surface.Member || e.Group != g.name {
			return nil, &switchboard.Error{
				Code: switchboard.CodeNotInGroup, Text: fmt.Sprintf("%q is not a tool of %s", short(name), g.stub),
				Hint: "search gives the names of its tools: " + examples[actionSearch],
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// service returns the members of a service.
func (g group) service(name string) ([]surface.Entry, error) {
	out := slices.DeleteFunc(slices.Clone(g.members), func(e surface.Entry) bool { return e.Service != name })
	if len(out) == 0 {
		return nil, &switchboard.Error{
			Code: switchboard.CodeNotInGroup, Text: fmt.Sprintf("%q is not a service of %s", short(name), g.stub),
			Hint: "its services are " + strings.Join(g.services(), ", "),
		}
	}
	return out, nil
}

func (g group) services() []string {
	names := make([]string, len(g.members))
	for i, e := range g.members {
		names[i] = e.Service
	}
	return unique(names)
}

// asked returns the members that an action names, one by one or as a service.
func (g group) asked(a ask) ([]surface.Entry, error) {
	if a.tools != nil {
		return g.named(a.tools)
	}
	return g.service(a.service)
}

// seen returns those of the entries that the principal may find now.
func (d *Desk) seen(ctx context.Context, who switchboard.Principal, entries []surface.Entry) []surface.Entry {
	denied := d.Permit(ctx, who, PhaseSearch, entries)
	out := make([]surface.Entry, 0, len(entries))
	for i, e := range entries {
		if denied[i] == nil && !e.Withheld {
			out = append(out, e)
		}
	}
	return out
}

// list answers with the services, or with the tools of one.
func (d *Desk) list(ctx context.Context, r *run.Run, g group, service string) (Reply, error) {
	entries := g.members
	if service == "" && len(g.services()) == 1 {
		service = g.services()[0]
	}
	if service != "" {
		var err error
		if entries, err = g.service(service); err != nil {
			return Reply{}, err
		}
	}
	entries = d.seen(ctx, r.Principal(), entries)
	var b strings.Builder
	if service == "" {
		count, tokens := map[string]int{}, map[string]int{}
		for _, e := range entries {
			count[e.Service]++
			tokens[e.Service] += g.of.Cost(e.Name)
		}
		fmt.Fprintf(&b, "%s, %s:\n", plural(len(count), "service"), plural(len(entries), "tool"))
		for _, name := range g.services() {
			if count[name] > 0 {
				fmt.Fprintf(&b, "- %s: %s, %s tokens to expand\n", name, plural(count[name], "tool"), number(tokens[name]))
			}
		}
		fmt.Fprintf(&b, `Next: {"action":"list","service":"NAME"} or %s`, examples[actionSearch])
		return Reply{Text: b.String()}, nil
	}
	fmt.Fprintf(&b, "%s of %s, with %s:\n", plural(len(entries), "tool"), service, g.price)
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
		row(&b, g.of, e)
	}
	b.WriteString("Next: " + examples[actionCall] + " or " + examples[actionExpand])
	return Reply{Text: b.String()}, nil
}

// row is one tool on a line, with what it takes.
func row(b *strings.Builder, s *surface.Surface, e surface.Entry) {
	more := ""
	if e.Expanded != nil {
		more = ", expanded"
	}
	fmt.Fprintf(b, "- %s (%s%s)", e.Name, number(s.Cost(e.Name)), more)
	if line := oneLine(e.Tool.Definition); line != "" {
		b.WriteString(": " + line)
	}
	if takes := signature(e.Tool.Definition); takes != "" {
		b.WriteString(" Takes " + takes)
	}
	b.WriteByte('\n')
}

// search answers with the tools that fit a query best.
func (d *Desk) search(ctx context.Context, r *run.Run, g group, a ask) (Reply, error) {
	limit := min(a.limit, maxFound)
	if a.limit == 0 {
		limit = usualFound
	}
	found := d.find(ctx, r.Principal(), g, a.query, limit)
	if len(found) == 0 {
		return Reply{Text: fmt.Sprintf("nothing fits %q among the tools of %s. Try other words, or look through the services: %s", short(a.query), g.stub, examples[actionList])}, nil
	}
	var b strings.Builder
	b.WriteString("best first, with " + g.price + ":\n")
	for _, e := range found {
		row(&b, g.of, e)
	}
	b.WriteString("Next: " + examples[actionCall] + "; expand first where you must know more of what it takes")
	return Reply{Text: b.String()}, nil
}

// find returns the members that fit a query best, the best first, at most limit.
func (d *Desk) find(ctx context.Context, who switchboard.Principal, g group, query string, limit int) []surface.Entry {
	// An index of what this client may see, and nothing else: what is hidden from it
	// has no part in how its own tools are ranked.
	index := g.of.Keep(g.name, func() any {
		docs := make([]*search.Doc, len(g.members))
		for i, e := range g.members {
			docs[i] = d.Docs.Doc(e.Tool)
		}
		return search.New(docs)
	}).(*search.Index)
	// Policy may take some matches away, and what is left is still to be the best. It
	// is asked about more each time, so as not to be asked often.
	matches := index.Search(query, len(g.members))
	found := make([]surface.Entry, 0, limit)
	for most := limit; len(matches) > 0 && len(found) < limit; most *= 2 {
		n := min(len(matches), most)
		next := make([]surface.Entry, 0, n)
		for _, m := range matches[:n] {
			name, _ := g.of.Name(m.ID)
			if e, ok := g.of.Lookup(name); ok {
				next = append(next, e)
			}
		}
		matches = matches[n:]
		found = append(found, d.seen(ctx, who, next)...)
	}
	return found[:min(len(found), limit)]
}

// maxSuggested bounds the tools that are suggested for a name.
const maxSuggested = 3

// suggest returns err, which says that the group has no tool of that name, with the names
// that were most likely meant.
func (d *Desk) suggest(ctx context.Context, r *run.Run, g group, name string, err error) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		return err
	}
	var names []string
	for _, e := range d.seen(ctx, r.Principal(), g.members) {
		if bare(e.Name) == bare(name) {
			names = append(names, e.Name)
		}
	}
	if names == nil {
		for _, e := range d.find(ctx, r.Principal(), g, short(name), maxSuggested) {
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

// bare is a name in lower case, without what stands between its words, and without what
// clients and models put before it.
func bare(name string) string {
	for _, before := range []string{"__", "/", ":", "."} {
		if i := strings.LastIndex(name, before); i >= 0 {
			name = name[i+len(before):]
		}
	}
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
}

// expand adds definitions to the run's list: all, or none.
func (d *Desk) expand(ctx context.Context, r *run.Run, g group, a ask, did *Deed) (Reply, error) {
	asked, err := g.asked(a)
	if err != nil {
		return Reply{}, err
	}
	did.Tools = ids(asked)
	if err := d.permitted(ctx, r.Principal(), asked, "expanded"); err != nil {
		return Reply{}, err
	}
	for _, e := range asked {
		g.of.Cost(e.Name) // counting takes its time, and is not done again below
	}
	var reply Reply
	var added []surface.Entry
	err = r.Change(ctx, func(s *surface.Surface) (*surface.Surface, error) {
		stub, _ := s.Lookup(g.stub)
		now := groupIn(s, stub)
		names := make([]string, len(asked))
		for i, e := range asked {
			names[i] = e.Name
		}
		entries, err := now.named(names) // they may have gone meanwhile
		if err != nil {
			return nil, err
		}
		var fresh []surface.Entry
		for _, e := range entries {
			switch {
			case e.Withheld:
				return nil, switchboard.Refuse(switchboard.CodeOverBudget, "%s has grown to %s tokens, for which there is no room", e.Name, number(s.Cost(e.Name)))
			case e.Expanded == nil:
				fresh = append(fresh, e)
			}
		}
		m, err := makeRoom(s, fresh, entries)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Expanded != nil {
				e.Expanded.Use()
			}
		}
		reply.Spent = &Spent{Budget: s.Budget(), Used: m.used + m.asked, Added: m.asked, Freed: m.freed}
		reply.Defines = entries
		reply.Text = expansion(s, entries, fresh, m, a.lists)
		did.Collapsed = m.collapsed
		if added = fresh; len(fresh) == 0 {
			return nil, nil
		}
		left := slices.Clone(m.left)
		for _, e := range fresh {
			left = append(left, surface.Expand(e.Tool.ID))
		}
		return s.With(left, s.Withheld()), nil
	})
	if err != nil {
		return Reply{}, refusal(err)
	}
	did.Tools = ids(added)
	if reply.Spent.Added > 0 {
		d.Log.Info("expanded", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "task", r.Task(), "run", r.ID(),
			"group", g.name, "tools", len(asked), "tokens", reply.Spent.Added, "used", reply.Spent.Used, "budget", reply.Spent.Budget)
	}
	return reply, nil
}

// permitted refuses an expansion of which policy denies any part. done says what is not done then.
func (d *Desk) permitted(ctx context.Context, who switchboard.Principal, asked []surface.Entry, done string) error {
	var names []string
	var causes []error
	for i, why := range d.Permit(ctx, who, PhaseExpand, asked) {
		if why == nil {
			continue
		}
		if own, ok := errors.AsType[*switchboard.Error](why); ok && own.Code != switchboard.CodeDenied {
			return why // it could not be told
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

// Permitted asks policy before a member is executed, by its name or through its stub: that is to
// expand it, and then to call it, so a rule on either phase stops it. The error is SB-LAZY-002, or says
// that policy could not be evaluated.
func (d *Desk) Permitted(ctx context.Context, r *run.Run, e surface.Entry) error {
	return d.permitted(ctx, r.Principal(), []surface.Entry{e}, "executed")
}

// expansion says what has been expanded, and shows it: a client that does not list
// again has no other way to learn it.
func expansion(s *surface.Surface, entries, fresh []surface.Entry, m room, lists bool) string {
	var b strings.Builder
	if len(fresh) == 0 {
		b.WriteString("all of it was expanded already, which costs nothing more; ")
	} else {
		fmt.Fprintf(&b, "%s expanded, for %s tokens", plural(len(fresh), "tool"), number(m.asked))
		if lists {
			answer := 0
			for _, e := range entries {
				answer += s.Cost(e.Name)
			}
			fmt.Fprintf(&b, " in the list and %s in this answer", number(answer))
		}
		b.WriteString("; ")
	}
	if len(m.collapsed) > 0 {
		fmt.Fprintf(&b, "collapsed for it: %s; ", strings.Join(m.collapsed, ", "))
	}
	fmt.Fprintf(&b, "%s of %s are in use. Call them by name:\n[", number(m.used+m.asked), number(s.Budget()))
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e.Append(nil))
	}
	b.WriteByte(']')
	return b.String()
}

// Bound says what a client is shown that has just been bound: one that does not list
// again has no other way to learn it.
func Bound(s *surface.Surface) Reply {
	all, used := charged(s)
	var b strings.Builder
	var defines []surface.Entry
	fmt.Fprintf(&b, "bound; %s of %s tokens are in use. Call them by name:\n[", number(used), number(s.Budget()))
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
	return Reply{Text: b.String(), Defines: defines, Spent: &Spent{Budget: s.Budget(), Used: used}}
}

// collapse takes definitions out of the run's list again.
func (d *Desk) collapse(ctx context.Context, r *run.Run, g group, a ask, did *Deed) (Reply, error) {
	if _, err := g.asked(a); err != nil {
		return Reply{}, err
	}
	var reply Reply
	var gone []switchboard.ToolID
	err := r.Change(ctx, func(s *surface.Surface) (*surface.Surface, error) {
		stub, _ := s.Lookup(g.stub)
		asked, err := groupIn(s, stub).asked(a)
		if err != nil {
			return nil, err
		}
		_, used := charged(s)
		gone = nil
		freed := 0
		for _, e := range asked {
			if e.Expanded != nil {
				gone = append(gone, e.Tool.ID)
				freed += s.Cost(e.Name)
			}
		}
		reply.Spent = &Spent{Budget: s.Budget(), Used: used - freed, Freed: freed}
		if gone == nil {
			reply.Text = fmt.Sprintf("none of that was expanded; %s of %s tokens are in use", number(used), number(s.Budget()))
			return nil, nil
		}
		reply.Text = fmt.Sprintf("%s collapsed, which gives %s tokens back; %s of %s are in use",
			plural(len(gone), "tool"), number(freed), number(used-freed), number(s.Budget()))
		left := slices.DeleteFunc(slices.Clone(s.Expanded()), func(x *surface.Expansion) bool { return slices.Contains(gone, x.Tool) })
		return s.With(left, s.Withheld()), nil
	})
	if err != nil {
		return Reply{}, refusal(err)
	}
	did.Tools = gone
	return reply, nil
}

// refusal is err as one of ours.
func refusal(err error) error {
	if _, ok := errors.AsType[*switchboard.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "it could not be done now", Cause: err}
}

// Admit prepares the call of an entry by its own name: a member that is not expanded, and that policy
// permits. It expands the member if there is room; else the call is made, and the list stays as it is. The error is a *switchboard.Error: SB-LAZY-001 for an entry that is withheld, and
// SB-LAZY-004 where the arguments do not fit a definition that the client was not shown.
func (d *Desk) Admit(ctx context.Context, r *run.Run, e surface.Entry, args []byte) error {
	s := r.Surface()
	if e.Withheld {
		return withheld(s, e)
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
		a := ask{action: actionExpand, tools: []string{e.Name}}
		if _, err := d.recorded(ctx, r, groupIn(s, stub), a, d.expand); err != nil {
			d.Log.Debug("called and not expanded", "tool", e.Tool.ID, "err", err)
		}
		return nil
	}
	return switchboard.Refuse(switchboard.CodeNoSuchTool, "Unknown tool: %s", e.Name)
}

// withheld says why the entry is: it has grown.
func withheld(s *surface.Surface, e surface.Entry) error {
	return &switchboard.Error{
		Code: switchboard.CodeOverBudget,
		Text: fmt.Sprintf("%s is withheld: it has grown to %s tokens, for which the budget of %s has no room", e.Name, number(s.Cost(e.Name)), number(s.Budget())),
		Hint: "the person who runs Switchboard can raise token_budget",
	}
}

// expandFirst says that the arguments of a call do not fit, and how to learn the definition.
func expandFirst(stub, e surface.Entry, why error) error {
	name, _ := json.Marshal(e.Name)
	reason := why.Error()
	if own, ok := errors.AsType[*switchboard.Error](why); ok {
		reason = own.Text
	}
	return &switchboard.Error{
		Code: switchboard.CodeExpandFirst, Stub: stub.Name, Cause: why,
		Text: fmt.Sprintf("%s was not called: %s", e.Name, reason),
		Hint: fmt.Sprintf(`for its whole definition, call %s with {"action":"expand","tools":[%s]}`, stub.Name, name),
	}
}
