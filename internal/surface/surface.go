// Package surface is what the client of one bound task sees: which tools,
// resources and prompts, under which names, in which order, and the finished
// bytes of their lists.
//
// # Names
//
// A tool is shown under the requirement's as, else its own name. When two share
// a name, every one of them becomes <server>__<tool>; so does a tool whose own name is such a
// long name of another. Names that are too long,
// or have characters that clients do not take, are shortened (see Shorten);
// names that begin as Reserved are Switchboard's own, and a server's tool with
// such a name becomes <server>__<tool>. Should even that be no name of its own,
// because a server's tools imitate our shortened names, <server>__ and a hash
// is.
//
// Names follow from what is selected, and from nothing that was shown before: equal
// decisions and equal expansions give equal lists. A client that holds an older list is
// served all the same: Route says where a call of a name goes that a client was shown (see
// Seen).
//
// Resources, their templates and prompts keep the names that their servers give
// them, which clients show to people and servers mention in results. Only where
// two servers use the same name does each of them get its server's (see
// Qualify).
//
// # Groups
//
// The members of an on-demand group are part of the surface, and have their names,
// from the start, so that expanding one renames nothing. What is listed is the
// group's stub, and those members that are expanded: to legacy clients alone, since
// the list of a modern one does not change by what it does. What each entry costs
// is counted over the bytes that the client gets of it.
//
// It decides nothing: what is selected, and in which order, it is told.
package surface

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxRemembered bounds how many names of resources, templates and prompts that have gone are
// kept for them, besides those that were shown just before. Beyond it all are forgotten.
const MaxRemembered = 4096

// An Entry is one tool that the client can use, or a stub.
type Entry struct {
	Name string
	Role Role
	Tool *switchboard.Tool // of no server where it is our own

	// Judgments are policy's, of the requirements that selected the tool.
	Judgments []*switchboard.Judgment

	// Equivalents are where its calls may move, and Others the candidates on other servers that can
	// take its place.
	Equivalents []switchboard.Equivalent
	Others      []switchboard.ToolID

	// Serves are the requirements that selected the tool, as Requirement.String spells them; of
	// a stub, those of its members.
	Serves []string

	// Group is the on-demand group of a member, or that a stub stands for, and
	// Service the part of the group that a member is of.
	Group, Service string

	// Expanded is set while a member is.
	Expanded *Expansion

	// Withheld says that the tool is kept back: since it was shown it has grown
	// beyond what there is room for.
	Withheld bool
}

// A Role is what an entry is to its client.
type Role uint8

// String is the role in one word, for people.
func (r Role) String() string { return [...]string{"always", "on demand", "stub", "own"}[r] }

// The roles.
const (
	Essential Role = iota // a server's tool that is always listed
	Member                // a server's tool that is listed while it is expanded
	Stub                  // stands for the members of one group
	Own                   // answered by Switchboard itself
)

// Usable reports whether the client may call the entry by its name.
func (e Entry) Usable() bool { return !e.Withheld && (e.Role != Member || e.Expanded != nil) }

// Append appends the tool's definition as the client sees it: the server's own
// bytes, but for the name where it is shown under another.
func (e Entry) Append(dst []byte) []byte {
	if raw, ok := wire.Field(e.Tool.Definition, "name"); ok {
		if name, ok := wire.String(raw); ok && name == e.Name {
			return append(dst, e.Tool.Definition...)
		}
	}
	return wire.Rewrite(dst, e.Tool.Definition, wire.Edit{Name: "name", Value: wire.AppendString(nil, e.Name)})
}

// An Input is what a Surface is made of. The zero Input makes one that shows
// nothing.
type Input struct {
	// Task is whose tools they are; nil when nothing is selected.
	Task *switchboard.Task

	// Selected are the task's tools, in the list's order, and Places, where not
	// nil, says of each which group it is a member of.
	Selected []decide.Selected
	Places   []Place

	// Own are the tools that Switchboard answers itself, and Groups have those of
	// them that stand for many. Own come first in the list, Last come last, and each stub
	// right before the first member of its group.
	Own    []*switchboard.Tool
	Last   []*switchboard.Tool
	Groups []Group

	// Whole is what else the servers offer that the task uses as a whole.
	Whole []switchboard.Offer

	// Unlisted says that the list of a modern client has none but our own tools:
	// it had no others when the run was minted, and may not change by what the
	// client does.
	Unlisted bool

	// Decided gives the digests of the decision that has selected all that, and of
	// what that was made from; nil where nobody has recorded it.
	Decided func() (decision, basis switchboard.Digest)

	// Prev, where not nil, is what the same client saw until now: what is expanded stays so.
	Prev *Surface

	// StandsIn reports whether calls of the tool shown may go to the tool now, of which the caller
	// has found that both serve the same requirement. Removed reports whether policy or a bound of
	// the operator has taken the tool away. Nil functions report false.
	StandsIn func(now, shown *switchboard.Tool) bool
	Removed  func(switchboard.ToolID) bool

	// Instructions is what a model is told when its client connects; "" means nothing.
	Instructions string

	// Info is the JSON object that tells modern clients who answers; nil means
	// that nothing does.
	Info []byte

	// Budget is how many tokens all that is charged may cost, the instructions too; 0
	// means that there is no bound. CollapseOldest says that what was used longest ago makes room.
	Budget         int
	CollapseOldest bool

	// Count says how many tokens a definition costs. It is safe for concurrent
	// use; nil means that nothing costs any.
	Count func(definition []byte) int
}

// A Place says of a tool which service of which on-demand group it is part of. The
// zero Place is that of an essential tool.
type Place struct{ Group, Service string }

// A Group is on demand: its id, and its stub, with the name that it is to have and that its
// definition holds.
type Group struct {
	ID, Stub   string
	Definition []byte
}

// A Surface is immutable and safe for concurrent use.
type Surface struct {
	entries []Entry        // the servers' tools
	ours    []placed       // own tools and stubs
	at      map[string]int // of entries, and behind them of ours, by name
	costs   []atomic.Int64 // the same, in tokens and one more; 0 means that it is not known yet
	count   func([]byte) int

	expanded []*Expansion // oldest first
	resting  []*Expansion // of servers that are not there now; oldest first
	withheld []switchboard.ToolID
	info     []byte
	told     string     // the instructions
	telling  func() int // what they cost, in tokens
	budget   int
	collapse bool
	unlisted bool
	kept     *sync.Map // see Keep

	wholeBytes func() int // see WholeBytes
	decided    func() (decision, basis switchboard.Digest)

	of       map[switchboard.ToolID]string // the names
	standsIn func(now, shown *switchboard.Tool) bool
	removed  func(switchboard.ToolID) bool
	tables   [2]func() *Table // by era; see Table

	// shelves hold what is not a tool.
	shelves  [switchboard.NKinds]*shelf
	patterns func() []pattern

	servers    []switchboard.Offer
	extensions [2]func() []declared                 // by era
	lists      [switchboard.NKinds][2]func() []byte // by kind and era
}

// placed is an entry that stands before one of the servers' tools.
type placed struct {
	Entry
	before int
}

// New returns the surface of in. The tools that were expanded on in.Prev stay expanded.
func New(in Input) *Surface {
	task, selected, whole, prev := in.Task, in.Selected, in.Whole, in.Prev
	s := &Surface{
		of: map[switchboard.ToolID]string{}, standsIn: in.StandsIn, removed: in.Removed, servers: whole, info: in.Info, count: in.Count,
		budget: in.Budget, collapse: in.CollapseOldest, unlisted: in.Unlisted, kept: &sync.Map{}, decided: in.Decided,
	}
	if s.told = in.Instructions; s.told != "" && s.count != nil { // a function that held in would hold prev, and all before it
		s.telling = sync.OnceValue(func() int { return s.count(wire.AppendString(nil, s.told)) })
	}
	taken := s.seat(&in)
	claims := make([]*claim, len(selected))
	for i, sel := range selected {
		claims[i] = &claim{id: sel.Tool.ID, own: wish(task, sel)}
	}
	settle(claims, taken)
	for _, c := range claims {
		if c.name != "" {
			s.of[c.id] = c.name
		}
	}

	s.entries = make([]Entry, 0, len(selected))
	first := map[string]int{}
	serves := served(task, selected)
	for i, sel := range selected {
		name, ok := s.of[sel.Tool.ID]
		if !ok {
			continue
		}
		e := Entry{Name: name, Tool: sel.Tool, Judgments: sel.Judgments, Equivalents: sel.Equivalents, Others: sel.Others, Serves: serves[i]}
		if in.Places != nil && in.Places[i].Group != "" {
			e.Role, e.Group, e.Service = Member, in.Places[i].Group, in.Places[i].Service
			if _, ok := first[e.Group]; !ok {
				first[e.Group] = len(s.entries)
			}
		}
		s.entries = append(s.entries, e)
	}
	for i := range s.ours {
		switch o := &s.ours[i]; {
		case o.Role == Stub:
			o.before = first[o.Group]
			o.Serves = s.servedBy(o.Group)
		case slices.Contains(in.Last, o.Tool):
			o.before = len(s.entries)
		}
	}
	slices.SortStableFunc(s.ours, func(a, b placed) int { return cmp.Compare(a.before, b.before) })
	if prev != nil && s.hasThoseOf(prev) {
		s.kept = prev.kept
	}
	s.costs = make([]atomic.Int64, len(s.entries)+len(s.ours))
	s.at = make(map[string]int, len(s.costs))
	for i, e := range s.entries {
		s.at[e.Name] = i
	}
	for i, e := range s.ours {
		s.at[e.Name] = len(s.entries) + i
	}
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		var before *shelf
		if prev != nil {
			before = prev.shelves[k]
		}
		s.shelves[k] = newShelf(k, whole, before)
	}
	s.patterns = sync.OnceValue(s.shelves[switchboard.Templates].patterns)
	for era := range s.extensions {
		s.extensions[era] = sync.OnceValue(func() []declared { return declare(whole, era == 1) })
	}
	s.wholeBytes = sync.OnceValue(func() (n int) {
		for i := range s.entries {
			n += len(s.entries[i].Tool.Definition) + 1
		}
		return n
	})
	for k := range switchboard.NKinds {
		s.finish(k)
	}
	if prev != nil && (prev.expanded != nil || prev.resting != nil || prev.withheld != nil) {
		return s.With(s.follow(prev), prev.withheld)
	}
	return s
}

// served returns for each of the selected tools which requirements it serves.
func served(task *switchboard.Task, selected []decide.Selected) [][]string {
	if task == nil {
		return make([][]string, len(selected))
	}
	keys := make([]string, len(task.Requirements))
	for i := range task.Requirements {
		keys[i] = task.Requirements[i].String()
	}
	all := make([][]string, len(selected))
	for i, sel := range selected {
		if n := len(sel.Requirements); n == 1 { // as nearly always: they share the keys
			r := sel.Requirements[0]
			all[i] = keys[r : r+1 : r+1]
			continue
		}
		for _, r := range sel.Requirements {
			all[i] = append(all[i], keys[r])
		}
	}
	return all
}

// servedBy returns which requirements the members of the group serve.
func (s *Surface) servedBy(group string) (keys []string) {
	for i := range s.entries {
		if e := &s.entries[i]; e.Role == Member && e.Group == group {
			for _, key := range e.Serves {
				if !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// follow returns what was expanded on prev. A member that is not there now passes its
// expansion on to the member with its own name in the same group: another server
// serves it now.
func (s *Surface) follow(prev *Surface) []*Expansion {
	all := slices.Concat(prev.resting, prev.expanded)
	for i, x := range all {
		if _, there := s.of[x.Tool]; there {
			continue
		}
		name, known := prev.Name(x.Tool)
		if !known {
			continue
		}
		was, _ := prev.Lookup(name)
		for j := range s.entries {
			if e := &s.entries[j]; e.Role == Member && e.Group == was.Group && e.Tool.ID.Name == x.Tool.Name {
				next := &Expansion{Tool: e.Tool.ID}
				next.used.Store(x.used.Load())
				all[i] = next
				break
			}
		}
	}
	return all
}

// hasThoseOf reports whether both have the same entries, by the same names.
func (s *Surface) hasThoseOf(prev *Surface) bool {
	same := func(a, b Entry) bool {
		return a.Name == b.Name && a.Group == b.Group && (a.Tool == b.Tool || a.Tool.ID == b.Tool.ID && bytes.Equal(a.Tool.Definition, b.Tool.Definition))
	}
	return slices.EqualFunc(s.entries, prev.entries, same) &&
		slices.EqualFunc(s.ours, prev.ours, func(a, b placed) bool { return same(a.Entry, b.Entry) })
}

// finish makes the kind's lists when somebody asks for them.
func (s *Surface) finish(k switchboard.Kind) {
	if k == switchboard.Tools {
		s.tables[0] = sync.OnceValue(func() *Table { return s.table(false) })
		s.tables[1] = sync.OnceValue(func() *Table { return s.table(true) })
	}
	s.lists[k][0] = sync.OnceValue(func() []byte { return s.list(k, false) })
	s.lists[k][1] = sync.OnceValue(func() []byte { return s.list(k, true) })
}

// seat gives the tools of our own and the stubs their names, before any other
// gets one: they are Switchboard's word, and the task's. It returns them.
func (s *Surface) seat(in *Input) (taken map[string]bool) {
	taken = map[string]bool{}
	add := func(e Entry) {
		e.Name = e.Tool.ID.Name
		taken[e.Name] = true
		s.of[e.Tool.ID] = e.Name
		s.ours = append(s.ours, placed{Entry: e})
	}
	for _, t := range slices.Concat(in.Own, in.Last) {
		add(Entry{Role: Own, Tool: t})
	}
	for _, g := range in.Groups {
		add(Entry{Role: Stub, Group: g.ID, Tool: &switchboard.Tool{ID: switchboard.ToolID{Name: g.Stub}, Definition: g.Definition}})
	}
	return taken
}

// wish is the name that the tool is to have if nothing stands against it: the first of the
// requirements that selected it says.
func wish(task *switchboard.Task, sel decide.Selected) string {
	return cmp.Or(task.Requirements[sel.Requirements[0]].As, sel.Tool.ID.Name)
}

// Lookup returns what the client knows under name, by its very bytes: also a
// member of a group that is not expanded. See Entry.Usable.
func (s *Surface) Lookup(name string) (Entry, bool) {
	i, ok := s.at[name]
	if !ok {
		return Entry{}, false
	}
	return *s.entry(i), true
}

// entry returns the ith of entries and ours.
func (s *Surface) entry(i int) *Entry {
	if i < len(s.entries) {
		return &s.entries[i]
	}
	return &s.ours[i-len(s.entries)].Entry
}

// Name returns the name under which the client knows the tool.
func (s *Surface) Name(id switchboard.ToolID) (string, bool) {
	name := s.of[id]
	_, known := s.at[name]
	return name, known
}

// Decided returns the digests of the decision that has selected what s shows, and of what
// that was made from; none where nobody has recorded it.
func (s *Surface) Decided() (decision, basis switchboard.Digest) {
	if s.decided == nil {
		return "", ""
	}
	return s.decided()
}

// Entries returns the servers' tools that the client can use, in the list's order,
// with the members of groups whether they are expanded or not. The slice must not
// be modified.
func (s *Surface) Entries() []Entry { return s.entries }

// Servers are what the servers offer that the task uses as a whole, in the order
// of its tools. The slice must not be modified.
func (s *Surface) Servers() []switchboard.Offer { return s.servers }

// Judgments are policy's, of the requirements that selected tools of the server.
func (s *Surface) Judgments(id switchboard.ServerID) (all []*switchboard.Judgment) {
	for _, e := range s.entries {
		if e.Tool.ID.Server != id {
			continue
		}
		for _, j := range e.Judgments {
			if !slices.Contains(all, j) {
				all = append(all, j)
			}
		}
	}
	return all
}

// List returns the result of the kind's list for a client of the modern or the
// legacy era. It is made once, and must not be modified.
func (s *Surface) List(k switchboard.Kind, modern bool) []byte {
	if modern {
		return s.lists[k][1]()
	}
	return s.lists[k][0]()
}

// Differs returns the kinds of which a client of the era does not see the same in
// both: the same things with the same names and definitions, in the same order.
func (s *Surface) Differs(other *Surface, modern bool) (ks switchboard.Kinds) {
	next, stop := iter.Pull(other.listed(modern))
	defer stop()
	for i := range s.listed(modern) {
		j, ok := next()
		if !ok || !s.entry(i).looksLike(other.entry(j)) {
			ks = ks.With(switchboard.Tools)
			break
		}
	}
	if _, more := next(); more {
		ks = ks.With(switchboard.Tools)
	}
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		if !s.shelves[k].equal(other.shelves[k]) {
			ks = ks.With(k)
		}
	}
	return ks
}

func (e *Entry) looksLike(o *Entry) bool {
	return e.Name == o.Name && bytes.Equal(e.Tool.Definition, o.Tool.Definition)
}

// listMembers are the members of a list's result that hold it.
var listMembers = [switchboard.NKinds]string{"tools", "resources", "resourceTemplates", "prompts"}

// list makes the result of the kind's list.
func (s *Surface) list(k switchboard.Kind, modern bool) []byte {
	const slack = MaxNameBytes + 8 // a definition grows by a name at most
	var members []byte             // they follow the list and begin with a comma
	if modern {
		members = modernMembers(s.info)
	}
	n := len(members) + 32
	if k == switchboard.Tools {
		for i := range s.listed(modern) {
			n += len(s.entry(i).Tool.Definition) + slack
		}
	}
	b := append(wire.AppendString(append(make([]byte, 0, n), '{'), listMembers[k]), ":["...)
	first := len(b)
	if k == switchboard.Tools {
		for i := range s.listed(modern) {
			b = s.entry(i).Append(comma(b, first))
		}
	} else {
		for _, it := range s.shelves[k].items {
			b = it.append(comma(b, first), k)
		}
	}
	b = append(b, ']')
	b = append(b, members...)
	return append(b, '}')
}

// comma parts an element from the one before it.
func comma(b []byte, first int) []byte {
	if len(b) > first {
		b = append(b, ',')
	}
	return b
}

// modernMembers are what a result of the modern era has besides. The list may
// differ by client, and we say when it changes: nobody is to keep it.
func modernMembers(serverInfo []byte) []byte {
	b := []byte(`,"resultType":"complete","ttlMs":0,"cacheScope":"private"`)
	if serverInfo == nil {
		return b
	}
	b = append(b, `,"_meta":{`...)
	b = wire.AppendString(b, wire.MetaServerInfo)
	b = append(b, ':')
	b = append(b, serverInfo...)
	return append(b, '}')
}
