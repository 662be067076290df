// Package surface builds the view of a client that has bound one task: its tools, resources and prompts, their names
// and order, and the finished bytes of their lists.
//
// # Names
//
// A tool is shown under the requirement's as, or else under its own name. If two tools share a name, each of them
// becomes <server>__<tool>. If a tool's own name equals such a long name of another tool, it gets its long name, too.
// Names that are too long, or have characters that clients do not accept, are shortened (see Shorten). Names with the
// prefix Reserved belong to Switchboard, and a server's tool with such a name becomes <server>__<tool>. If a server's
// tools imitate our shortened names, the name of last resort is <server>__ and a hash.
//
// Names follow from the selection, and never from what was shown before: equal decisions and equal expansions give
// equal lists. Switchboard still serves a client that holds an older list: Route returns the target of a call by a
// name that the client was shown (see Seen).
//
// Resources, their templates and prompts keep the names that their servers give them, because clients show these
// names to people and servers mention them in results. Only if two servers use the same name does each item get its
// server's prefix (see Qualify).
//
// # Groups
//
// The members of an on-demand group are part of the surface and have their names from the start, so expanding a
// member renames nothing. The list contains the group's stub, and for legacy clients the expanded members. The list
// of a modern client does not change by the client's own actions. The cost of each entry is counted over the bytes
// that the client receives.
//
// The package decides nothing: its caller passes the selection and the order.
package surface

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxRemembered limits the names of removed resources, templates and prompts that stay reserved, besides those that
// were shown just before. Beyond the limit all of them are forgotten.
const MaxRemembered = 4096

// An Entry is one tool that the client can use, or a stub.
type Entry struct {
	Name string
	Role Role
	Tool *switchboard.Tool // without a server for our own tools and stubs

	// Judgments are the policy results for the requirements that selected the tool.
	Judgments []*switchboard.Judgment

	// Equivalents are the tools that a call of this one may move to. Others are the candidates on other servers that
	// can replace it on the surface.
	Equivalents []switchboard.Equivalent
	Others      []switchboard.ToolID

	// Serves are the requirements that selected the tool, as Requirement.String spells them. For a stub they are the
	// requirements of its members.
	Serves []string

	// Group is the on-demand group of a member or a stub. Service is the member's part of the group.
	Group, Service string

	// Expanded is set while the member is expanded.
	Expanded *Expansion

	// Withheld says that the client does not get the tool: its definition has grown beyond the budget since it was
	// shown.
	Withheld bool
}

// A Role is the kind of an entry: whether it is always listed, and whether a server or Switchboard answers it.
type Role uint8

// String returns the role in a few words, for people.
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

// Append appends the tool's definition as the client sees it: the server's own bytes, with the name replaced if the
// tool is shown under another name.
func (e Entry) Append(dst []byte) []byte {
	if raw, ok := wire.Field(e.Tool.Definition, "name"); ok {
		if name, ok := wire.String(raw); ok && name == e.Name {
			return append(dst, e.Tool.Definition...)
		}
	}
	return wire.Rewrite(dst, e.Tool.Definition, wire.Edit{Name: "name", Value: wire.AppendString(nil, e.Name)})
}

// appendListed appends the definition for the list of a client of the era.
func (e Entry) appendListed(dst []byte, modern bool) []byte {
	if !modern && e.Tool.Structured {
		legacy := *e.Tool
		legacy.Definition = shape.ForLegacy(legacy.Definition)
		e.Tool = &legacy
	}
	return e.Append(dst)
}

// An Input holds everything that a Surface is built from. The zero Input builds one that shows nothing.
type Input struct {
	// Task is the bound task; nil when nothing is selected.
	Task *switchboard.Task

	// Selected are the task's tools in the order of the list. Places, if not nil, has the group of each of them.
	Selected    []decide.Selected
	Memberships []Membership

	// Own and Last are the tools that Switchboard answers itself. Own come first in the list, Last come last. Groups
	// have the stubs; each stub comes right before the first member of its group.
	Own    []*switchboard.Tool
	Last   []*switchboard.Tool
	Groups []Group

	// WholeServers are the other offers of the servers that the task uses as a whole.
	WholeServers []switchboard.Offer

	// Unlisted says that the list of a modern client contains only our own tools. It had no others when the run was
	// minted, and may not change by the client's own actions.
	Unlisted bool

	// Decided returns the digests of the decision behind the selection, and of the inputs to that decision; nil if no
	// decision was recorded.
	Decided func() (decision, basis switchboard.Digest)

	// Prev is what the same client saw until now, or nil. Its expanded tools stay expanded.
	Prev *Surface

	// StandsIn reports whether calls of the tool shown may go to the tool now. The caller has checked that both serve
	// the same requirement. Removed reports whether policy or a limit of the operator has removed the tool. Nil
	// functions report false.
	StandsIn func(now, shown *switchboard.Tool) bool
	Removed  func(switchboard.ToolID) bool

	// Unjudged holds the tools that are missing only because policy could not be evaluated. It is not modified.
	Unjudged map[switchboard.ToolID]bool

	// KeptOut holds the tools that the states of admission keep out, with the code of the refusal. It is not modified.
	KeptOut map[switchboard.ToolID]switchboard.Code

	// Instructions is the text that a model reads when its client connects; "" means none.
	Instructions string

	// ServerInfo is the JSON object that identifies Switchboard to modern clients; nil means none.
	ServerInfo []byte

	// Budget is how many tokens the charged entries and the instructions may cost together; 0 means no limit.
	// CollapseOldest says that the entry with the oldest use is collapsed to make room.
	Budget         int
	CollapseOldest bool

	// OfferTokens returns the tokens of all definitions that the server offers. It must be safe for concurrent use. Nil means that they cost nothing.
	OfferTokens func(switchboard.ServerID) int

	// Count returns how many tokens a definition costs. It must be safe for concurrent use. Nil means that
	// definitions cost nothing.
	Count func(definition []byte) int
}

// A Membership is a tool's on-demand group and its service in that group. The zero Place is for an essential tool.
type Membership struct{ Group, Service string }

// A Group is an on-demand group: its id, the name of its stub, and the stub's definition, which holds that name.
type Group struct {
	ID, Stub   string
	Definition []byte
}

// A Surface is immutable and safe for concurrent use.
type Surface struct {
	toolTable
	itemSet
	offerSet
	spending

	serverInfo []byte
	unlisted   bool
	standsIn   func(now, shown *switchboard.Tool) bool
	removed    func(switchboard.ToolID) bool
	unjudged   map[switchboard.ToolID]bool
	keptOut    map[switchboard.ToolID]switchboard.Code
	decided    func() (decision, basis switchboard.Digest)
	memo       *sync.Map // see Keep

	wholeBytes func() int                           // see WholeBytes
	tables     [2]func() *Table                     // by era; see Table
	lists      [switchboard.NKinds][2]func() []byte // by kind and era
}

// A toolTable has the tools and stubs of a surface, their names, costs and expansions.
type toolTable struct {
	entries     []Entry                       // the servers' tools
	ownEntries  []placedEntry                 // tools that Switchboard answers itself, and stubs
	names       map[switchboard.ToolID]string // by tool: the name
	indexByName map[string]int                // by name: an index into entries, or len(entries) plus an index into ownEntries

	tokenCosts  []atomic.Int64 // by the same index: the tokens plus one; 0 means not counted yet
	countTokens func([]byte) int

	expanded []*Expansion // oldest first
	absent   []*Expansion // expansions on servers without an offer now; oldest first
	withheld []switchboard.ToolID
}

// An itemSet has the resources, templates and prompts of a surface.
type itemSet struct {
	items       [switchboard.NKinds]*itemIndex
	uriPatterns func() []uriPattern
}

// An offerSet has the offers of the servers that the task uses as a whole.
type offerSet struct {
	servers       []switchboard.Offer
	declaredByEra [2]func() []declaredCapability
	offerTokens   func() int // see OfferTokens
}

// A spending is the budget of a surface, and its instructions, which are charged to it.
type spending struct {
	instructions      string
	instructionTokens func() int // returns the tokens of instructions
	budget            int
	collapseOldest    bool
}

// A placedEntry is an own entry and the index of the server's tool that it precedes in the list.
type placedEntry struct {
	Entry
	position int
}

// New builds the surface of in. The tools that were expanded on in.Prev stay expanded.
func New(in Input) *Surface {
	task, selected, whole, prev := in.Task, in.Selected, in.WholeServers, in.Prev
	s := &Surface{
		toolTable:  toolTable{names: map[switchboard.ToolID]string{}, countTokens: in.Count},
		offerSet:   offerSet{servers: whole},
		spending:   spending{budget: in.Budget, collapseOldest: in.CollapseOldest},
		serverInfo: in.ServerInfo, unlisted: in.Unlisted, standsIn: in.StandsIn, removed: in.Removed, unjudged: in.Unjudged, keptOut: in.KeptOut, decided: in.Decided, memo: &sync.Map{},
	}
	if s.instructions = in.Instructions; s.instructions != "" && s.countTokens != nil { // a closure over in would hold prev, and all surfaces before it
		s.instructionTokens = sync.OnceValue(func() int { return s.countTokens(wire.AppendString(nil, s.instructions)) })
	}
	taken := s.addOwnEntries(&in)
	// Provided tools come first: no other tool takes the name of a contract.
	for _, provided := range []bool{true, false} {
		var claims []*nameClaim
		for _, sel := range selected {
			if (sel.Tool.Provides != nil) == provided {
				claims = append(claims, newClaim(task, sel))
			}
		}
		assignNames(claims, taken)
		for _, c := range claims {
			if c.name != "" {
				s.names[c.id], taken[c.name] = c.name, true
			}
		}
	}

	s.entries = make([]Entry, 0, len(selected))
	first := map[string]int{}
	serves := servedKeys(task, selected)
	for i, sel := range selected {
		name, ok := s.names[sel.Tool.Key()]
		if !ok {
			continue
		}
		e := Entry{Name: name, Tool: sel.Tool, Judgments: sel.Judgments, Equivalents: sel.Equivalents, Others: sel.Others, Serves: serves[i]}
		if in.Memberships != nil && in.Memberships[i].Group != "" {
			e.Role, e.Group, e.Service = Member, in.Memberships[i].Group, in.Memberships[i].Service
			if _, ok := first[e.Group]; !ok {
				first[e.Group] = len(s.entries)
			}
		}
		s.entries = append(s.entries, e)
	}
	for i := range s.ownEntries {
		switch o := &s.ownEntries[i]; {
		case o.Role == Stub:
			o.position = first[o.Group]
			o.Serves = s.groupServes(o.Group)
		case slices.Contains(in.Last, o.Tool):
			o.position = len(s.entries)
		}
	}
	slices.SortStableFunc(s.ownEntries, func(a, b placedEntry) int { return cmp.Compare(a.position, b.position) })
	if prev != nil && s.sameEntries(&prev.toolTable) {
		s.memo = prev.memo
	}
	s.tokenCosts = make([]atomic.Int64, len(s.entries)+len(s.ownEntries))
	s.indexByName = make(map[string]int, len(s.tokenCosts))
	for i, e := range s.entries {
		s.indexByName[e.Name] = i
	}
	for i, e := range s.ownEntries {
		s.indexByName[e.Name] = len(s.entries) + i
	}
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		var before *itemIndex
		if prev != nil {
			before = prev.items[k]
		}
		s.items[k] = newItemIndex(k, whole, before)
	}
	s.uriPatterns = sync.OnceValue(s.items[switchboard.Templates].compilePatterns)
	for era := range s.declaredByEra {
		s.declaredByEra[era] = sync.OnceValue(func() []declaredCapability { return collectDeclared(whole, era == 1) })
	}
	s.wholeBytes = sync.OnceValue(func() (n int) {
		for i := range s.entries {
			n += len(s.entries[i].Tool.Definition) + 1
		}
		return n
	})
	s.offerTokens = sumOffers(s.entries, in.OfferTokens)
	for k := range switchboard.NKinds {
		s.prepareLists(k)
	}
	if prev != nil && (prev.expanded != nil || prev.absent != nil || prev.withheld != nil) {
		return s.WithExpanded(s.inheritExpansions(prev), prev.withheld)
	}
	return s
}

// servedKeys returns the requirements that each of the selected tools serves.
func servedKeys(task *switchboard.Task, selected []decide.Selected) [][]string {
	if task == nil {
		return make([][]string, len(selected))
	}
	keys := make([]string, len(task.Requirements))
	for i := range task.Requirements {
		keys[i] = task.Requirements[i].String()
	}
	all := make([][]string, len(selected))
	for i, sel := range selected {
		if n := len(sel.Requirements); n == 1 { // nearly always: the tools share the keys
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

// groupServes returns the requirements that the members of the group serve.
func (t *toolTable) groupServes(group string) (keys []string) {
	for i := range t.entries {
		if e := &t.entries[i]; e.Role == Member && e.Group == group {
			for _, key := range e.Serves {
				if !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// inheritExpansions returns the expansions of prev. If an expanded member is gone, its expansion passes to the member
// with the same tool name in the same group: another server serves it now.
func (s *Surface) inheritExpansions(prev *Surface) []*Expansion {
	all := slices.Concat(prev.absent, prev.expanded)
	for i, x := range all {
		if _, there := s.names[x.Tool]; there {
			continue
		}
		name, known := prev.Name(x.Tool)
		if !known {
			continue
		}
		was, _ := prev.Lookup(name)
		for j := range s.entries {
			if e := &s.entries[j]; e.Role == Member && e.Group == was.Group && e.Tool.Key().Name == x.Tool.Name {
				next := &Expansion{Tool: e.Tool.Key()}
				next.used.Store(x.used.Load())
				all[i] = next
				break
			}
		}
	}
	return all
}

// sameEntries reports whether both surfaces have the same entries under the same names.
func (t *toolTable) sameEntries(prev *toolTable) bool {
	same := func(a, b Entry) bool {
		return a.Name == b.Name && a.Group == b.Group && (a.Tool == b.Tool || a.Tool.Key() == b.Tool.Key() && bytes.Equal(a.Tool.Definition, b.Tool.Definition))
	}
	return slices.EqualFunc(t.entries, prev.entries, same) &&
		slices.EqualFunc(t.ownEntries, prev.ownEntries, func(a, b placedEntry) bool { return same(a.Entry, b.Entry) })
}

// prepareLists sets functions that build the kind's lists on first use.
func (s *Surface) prepareLists(k switchboard.Kind) {
	if k == switchboard.Tools {
		s.tables[0] = sync.OnceValue(func() *Table { return s.buildTable(false) })
		s.tables[1] = sync.OnceValue(func() *Table { return s.buildTable(true) })
	}
	s.lists[k][0] = sync.OnceValue(func() []byte { return s.buildList(k, false) })
	s.lists[k][1] = sync.OnceValue(func() []byte { return s.buildList(k, true) })
}

// addOwnEntries names our own tools and the stubs before any other tool: their names come from Switchboard and from
// the task. It returns these names.
func (t *toolTable) addOwnEntries(in *Input) (taken map[string]bool) {
	taken = map[string]bool{}
	add := func(e Entry) {
		e.Name = e.Tool.ID.Name
		taken[e.Name] = true
		t.names[e.Tool.ID] = e.Name
		t.ownEntries = append(t.ownEntries, placedEntry{Entry: e})
	}
	for _, t := range slices.Concat(in.Own, in.Last) {
		add(Entry{Role: Own, Tool: t})
	}
	for _, g := range in.Groups {
		add(Entry{Role: Stub, Group: g.ID, Tool: &switchboard.Tool{ID: switchboard.ToolID{Name: g.Stub}, Definition: g.Definition}})
	}
	return taken
}

// wantedName returns the name that the tool gets unless there is a conflict: the as of the first requirement that
// selected it, or else the contract's name or its own.
func wantedName(task *switchboard.Task, sel decide.Selected) string {
	return cmp.Or(task.Requirements[sel.Requirements[0]].As, sel.Tool.Name())
}

// Lookup returns the entry with exactly that name. It may be a member that is not expanded. See Entry.Usable.
func (t *toolTable) Lookup(name string) (Entry, bool) {
	i, ok := t.indexByName[name]
	if !ok {
		return Entry{}, false
	}
	return *t.entryAt(i), true
}

// entryAt returns the entry at index i of indexByName.
func (t *toolTable) entryAt(i int) *Entry {
	if i < len(t.entries) {
		return &t.entries[i]
	}
	return &t.ownEntries[i-len(t.entries)].Entry
}

// Name returns the name on the surface of the tool with this Key.
func (t *toolTable) Name(key switchboard.ToolID) (string, bool) {
	name := t.names[key]
	_, known := t.indexByName[name]
	return name, known
}

// Calls returns the entry for calls of a server's tool: as a tool that provides the version of a capability, or as the server's own
// tool if version is "".
func (t *toolTable) Calls(id switchboard.ToolID, version string) (Entry, bool) {
	for _, e := range t.entries {
		provides := ""
		if e.Tool.Provides != nil {
			provides = e.Tool.Provides.Capability
		}
		if e.Tool.ID == id && provides == version {
			return e, true
		}
	}
	return Entry{}, false
}

// Decided returns the digests of the decision that selected the tools of s, and of the inputs to that decision; "" if
// no decision was recorded.
func (s *Surface) Decided() (decision, basis switchboard.Digest) {
	if s.decided == nil {
		return "", ""
	}
	return s.decided()
}

// Entries returns the servers' tools in the order of the list, including members that are not expanded. The slice
// must not be modified.
func (t *toolTable) Entries() []Entry { return t.entries }

// Servers returns the offers of the servers that the task uses as a whole, in the order of its tools. The slice must
// not be modified.
func (o *offerSet) Servers() []switchboard.Offer { return o.servers }

// Judgments returns the policy results for the requirements that selected tools of the server.
func (t *toolTable) Judgments(id switchboard.ServerID) (all []*switchboard.Judgment) {
	for _, e := range t.entries {
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

// List returns the result of the kind's list for a client of the modern or the legacy era. It is built once and must
// not be modified.
func (s *Surface) List(k switchboard.Kind, modern bool) []byte {
	if modern {
		return s.lists[k][1]()
	}
	return s.lists[k][0]()
}

// Differs returns the kinds that a client of the era sees differently in other: other items, names, definitions, or
// another order.
func (s *Surface) Differs(other *Surface, modern bool) (ks switchboard.Kinds) {
	next, stop := iter.Pull(other.listedPositions(modern))
	defer stop()
	for i := range s.listedPositions(modern) {
		j, ok := next()
		if !ok || !s.entryAt(i).sameInList(other.entryAt(j)) {
			ks = ks.With(switchboard.Tools)
			break
		}
	}
	if _, more := next(); more {
		ks = ks.With(switchboard.Tools)
	}
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		if !s.items[k].sameItems(other.items[k]) {
			ks = ks.With(k)
		}
	}
	return ks
}

func (e *Entry) sameInList(o *Entry) bool {
	return e.Name == o.Name && bytes.Equal(e.Tool.Definition, o.Tool.Definition)
}

// listMemberNames are the names of the members that hold the lists in results.
var listMemberNames = [switchboard.NKinds]string{"tools", "resources", "resourceTemplates", "prompts"}

// buildList returns the result of the kind's list.
func (s *Surface) buildList(k switchboard.Kind, modern bool) []byte {
	const slack = MaxNameBytes + 8 // a definition grows by a name at most
	var members []byte             // the members after the list, with a leading comma
	if modern {
		members = modernMembers(s.serverInfo)
	}
	n := len(members) + 32
	if k == switchboard.Tools {
		for i := range s.listedPositions(modern) {
			n += len(s.entryAt(i).Tool.Definition) + slack
		}
	}
	b := append(wire.AppendString(append(make([]byte, 0, n), '{'), listMemberNames[k]), ":["...)
	first := len(b)
	if k == switchboard.Tools {
		for i := range s.listedPositions(modern) {
			b = s.entryAt(i).appendListed(appendComma(b, first), modern)
		}
	} else {
		for _, it := range s.items[k].items {
			b = it.append(appendComma(b, first), k)
		}
	}
	b = append(b, ']')
	b = append(b, members...)
	return append(b, '}')
}

// appendComma separates an element from the previous one.
func appendComma(b []byte, first int) []byte {
	if len(b) > first {
		b = append(b, ',')
	}
	return b
}

// modernMembers returns the additional members of a result of the modern era. The list may differ between clients,
// and we notify them of changes, so clients must not cache it.
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
