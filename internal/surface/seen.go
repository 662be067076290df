package surface

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Sight is one entry that a client was shown: in a list, by an expansion, or in the answer that a name is served
// differently now.
type Sight struct {
	Name string

	// Tool is the tool that the name stood for. It has no definition if only the digest is known.
	Tool *switchboard.Tool

	Serves []string // see Entry
}

// SightOf returns the Sight of the entry.
func SightOf(e Entry) Sight { return Sight{Name: e.Name, Tool: e.Tool, Serves: e.Serves} }

// SameAs reports whether the entry is the tool that was shown, with the same definition. The definitions of our own
// tools and of stubs are not compared.
func (o *Sight) SameAs(e *Entry) bool {
	return o.Tool.Key() == e.Tool.Key() && (o.Tool.ID.Server == "" || o.Tool.Digest == e.Tool.Digest)
}

// A Table holds the sights of one list by name. It is immutable and safe for concurrent use.
type Table struct {
	sights []Sight // sorted by name
	alone  *Seen   // the Seen of a client that was shown only this list
}

// Table returns the sights of the list for a client of the era.
func (s *Surface) Table(modern bool) *Table {
	if modern {
		return s.tables[1]()
	}
	return s.tables[0]()
}

func (s *Surface) buildTable(modern bool) *Table {
	t := &Table{}
	for i := range s.listedPositions(modern) {
		t.sights = append(t.sights, SightOf(*s.entryAt(i)))
	}
	t.index()
	return t
}

func (t *Table) index() {
	slices.SortFunc(t.sights, func(a, b Sight) int { return strings.Compare(a.Name, b.Name) })
	t.alone = newSeen(t, nil, nil, false)
}

func (t *Table) lookup(name string) (Sight, bool) {
	i, ok := slices.BinarySearchFunc(t.sights, name, func(o Sight, name string) int { return strings.Compare(o.Name, name) })
	if !ok {
		return Sight{}, false
	}
	return t.sights[i], true
}

// MaxSeen limits the names that are remembered for one client. Names of its last list are always remembered.
const MaxSeen = 4096

// maxSeenBytes limits the tool definitions that are remembered for one client besides its last list.
const maxSeenBytes = 256 << 10

// A Seen has everything that one client was shown: by name, the entry that the name last stood for. The zero Seen,
// and nil, are for a client that was shown nothing. It is immutable and safe for concurrent use.
type Seen struct {
	list       *Table  // the last list; nil for none
	beforeList []Sight // shown before list and not in it; the oldest first
	afterList  []Sight // shown after list, and overrides it; the oldest first
	lost       bool    // the client was shown more, and the record of it is lost

	digest func() switchboard.Digest
	byName func() map[string]Sight // of beforeList and afterList
}

// Lost is for a client that was shown something while the record of it is lost.
var Lost = newSeen(nil, nil, nil, true)

// IsLost reports whether the client was shown something that is not recorded any more.
func (s *Seen) IsLost() bool { return s != nil && s.lost }

func newSeen(list *Table, before, after []Sight, lost bool) *Seen {
	s := &Seen{list: list, beforeList: before, afterList: after, lost: lost}
	s.digest = sync.OnceValue(func() switchboard.Digest { return canonical.Sum(s.Text()) })
	s.byName = sync.OnceValue(func() map[string]Sight {
		all := make(map[string]Sight, len(s.beforeList)+len(s.afterList))
		for _, shown := range [][]Sight{s.beforeList, s.afterList} {
			for _, o := range shown {
				all[o.Name] = o
			}
		}
		return all
	})
	return s
}

// WithList returns s after the client is shown the list as well.
func (s *Seen) WithList(list *Table) *Seen {
	if s == nil || s.list == nil && len(s.beforeList)+len(s.afterList) == 0 {
		return list.alone
	}
	if s.list == list && len(s.afterList) == 0 && !slices.ContainsFunc(s.beforeList, list.has) {
		return s
	}
	var before []Sight
	keep := func(shown []Sight, but func(name string) bool) {
		for _, o := range shown {
			if !list.has(o) && !but(o.Name) {
				before = append(before, o)
			}
		}
	}
	later := s.byName()
	keep(s.beforeList, func(string) bool { return false })
	if s.list != nil && s.list != list {
		keep(s.list.sights, func(name string) bool { _, again := later[name]; return again })
	}
	keep(s.afterList, func(string) bool { return false })
	if len(before) == 0 {
		return list.alone
	}
	return newSeen(list, before, nil, false).trimToLimits()
}

// Merge merges s with o, where the client was shown o after s. The two may overlap.
func (s *Seen) Merge(o *Seen) *Seen {
	if s == nil || o == nil || s == o {
		return cmp.Or(o, s)
	}
	both := s
	if o.list != nil {
		both = both.WithList(o.list)
	}
	var unknown []Sight
	for _, shown := range o.beforeList {
		if _, ok := both.Lookup(shown.Name); !ok {
			unknown = append(unknown, shown)
		}
	}
	if more := slices.Concat(unknown, o.afterList); len(more) > 0 {
		both = both.WithSights(more...)
	}
	return both
}

// Digest returns the digest of the Seen of a client that was shown only this list.
func (t *Table) Digest() switchboard.Digest { return t.alone.Digest() }

// has reports whether the list has an entry with the sight's name.
func (t *Table) has(o Sight) bool {
	_, listed := t.lookup(o.Name)
	return listed
}

// WithSights returns s after the client is shown the entries as well.
func (s *Seen) WithSights(sights ...Sight) *Seen {
	next := newSeen(nil, nil, nil, false)
	if s != nil {
		next = newSeen(s.list, slices.Clone(s.beforeList), slices.Clone(s.afterList), s.lost)
	}
	for _, o := range sights {
		same := func(was Sight) bool { return was.Name == o.Name }
		next.beforeList = slices.DeleteFunc(next.beforeList, same)
		next.afterList = append(slices.DeleteFunc(next.afterList, same), o)
	}
	return next.trimToLimits()
}

// trimToLimits removes the oldest sights and definitions beyond the limits.
func (s *Seen) trimToLimits() *Seen {
	most := MaxSeen
	if s.list != nil {
		most = max(0, most-len(s.list.sights))
	}
	s.afterList = s.afterList[max(0, len(s.afterList)-most):]
	s.beforeList = s.beforeList[max(0, len(s.beforeList)-(most-len(s.afterList))):]
	left := maxSeenBytes
	for _, shown := range [][]Sight{s.afterList, s.beforeList} {
		for i := range slices.Backward(shown) {
			o := &shown[i]
			if left -= len(o.Tool.Definition); left < 0 && o.Tool.Definition != nil {
				o.Tool = &switchboard.Tool{ID: o.Tool.Key(), Digest: o.Tool.Digest}
			}
		}
	}
	return s
}

// Lookup returns the entry that the name stood for when the client was last shown it.
func (s *Seen) Lookup(name string) (Sight, bool) {
	if s == nil {
		return Sight{}, false
	}
	if len(s.beforeList)+len(s.afterList) > 0 {
		if o, ok := s.byName()[name]; ok {
			return o, true
		}
	}
	if s.list == nil {
		return Sight{}, false
	}
	return s.list.lookup(name)
}

// UpToDate reports whether the client knows the tools as now shows them, or was shown none.
func (s *Seen) UpToDate(now *Surface) bool {
	return s == nil || !s.lost && s.list != nil && len(s.afterList) == 0 && (s.list.sameList(now.Table(false)) || s.list.sameList(now.Table(true)))
}

// sameList reports whether both lists show the same.
func (t *Table) sameList(o *Table) bool { return t == o || t.alone.Digest() == o.alone.Digest() }

// A Way says how Switchboard handles a call of a name.
type Way uint8

// The ways.
const (
	Unknown  Way = iota // the client has no such tool
	Forward             // the call is forwarded to the entry
	Changed             // the answer says that the entry serves the name now: SB-CAP-008
	Unmet               // no tool serves the name now: SB-CAP-004
	Unjudged            // policy could not be evaluated for the tool, and no other tool serves the name: SB-POL-002
)

// A Route is the result of routing a call of a name.
type Route struct {
	Kind      Way
	Entry     Entry            // for Forward and Changed
	Was       string           // for Changed, Unmet and Unjudged: the requirement that the name was shown for; "" if unknown
	Code      switchboard.Code // for Unmet: why the tool is kept out; "" if it is for another reason
	JustShown bool             // for Changed: the client was shown the entry a moment ago, after it wrote the call
}

// Route decides where a call of the name goes for a client that was shown seen. A shown name leads to the tool that
// it was shown for, or to a tool that may stand in for it, or to an answer that names the tool that serves it now:
// never elsewhere. A client that was shown nothing calls the tools of the list. early says that the client wrote the
// call before it read that the name is served differently now. The Entry may be a member that is not expanded.
func (s *Surface) Route(seen *Seen, name string, early bool) Route {
	e, known := s.Lookup(name)
	listed := known && e.Usable()
	if listed && !early && seen.UpToDate(s) {
		return Route{Kind: Forward, Entry: e}
	}
	o, shown := seen.Lookup(name)
	switch {
	case shown:
	case known && seen.IsLost() && e.Tool.ID.Server != "":
		return Route{Kind: Changed, Entry: e, Was: firstKey(e.Serves)}
	case known:
		return Route{Kind: Forward, Entry: e}
	default:
		return Route{}
	}
	way := s.routeShown(&o, &e, known)
	if early && way.Entry.Tool != nil && way.Entry.Tool.ID.Server != "" {
		way.Kind, way.Was = Changed, firstKey(o.Serves)
		way.JustShown = o.Name == way.Entry.Name && o.SameAs(&way.Entry)
	}
	return way
}

// routeShown routes a call of a name that was shown as o. e is the entry with that name now, if known.
func (s *Surface) routeShown(o *Sight, e *Entry, known bool) Route {
	was := firstKey(o.Serves)
	listed := known && e.Usable()
	switch {
	case known && o.SameAs(e): // also a withheld tool, or one that is no longer expanded
		return Route{Kind: Forward, Entry: *e}
	case listed && s.mayStandIn(e, o):
		return Route{Kind: Forward, Entry: *e}
	case listed:
		return Route{Kind: Changed, Entry: *e, Was: was}
	case s.removed != nil && s.removed(o.Tool.Key()):
		return Route{}
	}
	var member *Entry // the unexpanded member with that name
	if known {
		member = e
	}
	return s.routeElsewhere(o, was, member)
}

// routeElsewhere routes a call of a name that is not in the list. member is the unexpanded member with that name, or
// nil.
func (s *Surface) routeElsewhere(o *Sight, was string, member *Entry) Route {
	if name, ok := s.Name(o.Tool.Key()); ok {
		if e, _ := s.Lookup(name); o.SameAs(&e) {
			return Route{Kind: Forward, Entry: e}
		}
	}
	var serving, standIn *Entry
	several := false
	for i := range s.entries {
		e := &s.entries[i]
		if e.Withheld || !o.isServedBy(e) {
			continue
		}
		if serving == nil || serving.Tool.Key().Name != o.Tool.Key().Name && e.Tool.Key().Name == o.Tool.Key().Name {
			serving = e
		}
		if s.mayStandIn(e, o) {
			several = several || standIn != nil
			standIn = e
		}
	}
	switch {
	case standIn != nil && !several:
		return Route{Kind: Forward, Entry: *standIn}
	case member != nil:
		return Route{Kind: Changed, Entry: *member, Was: was}
	case serving != nil:
		return Route{Kind: Changed, Entry: *serving, Was: was}
	case s.unjudged[o.Tool.Key()]:
		return Route{Kind: Unjudged, Was: was}
	}
	return Route{Kind: Unmet, Was: was, Code: s.keptOut[o.Tool.Key()]}
}

// HasUnjudged reports whether a tool is missing only because policy could not be evaluated.
func (s *Surface) HasUnjudged() bool { return len(s.unjudged) > 0 }

// SameMissing reports whether the same tools are missing from both surfaces, for the same reasons: policy could not be evaluated, or admission keeps them out.
func (s *Surface) SameMissing(o *Surface) bool {
	return maps.Equal(s.unjudged, o.unjudged) && maps.Equal(s.keptOut, o.keptOut)
}

// isServedBy reports whether the entry serves a requirement that o was shown for. A requirement by name asks for that
// tool, so another tool does not serve it.
func (o *Sight) isServedBy(e *Entry) bool {
	return slices.ContainsFunc(o.Serves, func(key string) bool {
		return slices.Contains(e.Serves, key) && (!isByName(key) || e.Tool.Key().Name == o.Tool.Key().Name)
	})
}

// isByName reports whether the key belongs to a requirement by name.
func isByName(key string) bool { return strings.HasPrefix(key, "tools ") }

// mayStandIn reports whether the entry may stand in for the tool that was shown. A stub never stands in.
func (s *Surface) mayStandIn(e *Entry, o *Sight) bool {
	if e.Tool.ID.Server == "" || o.Tool.ID.Server == "" {
		return false
	}
	common := slices.ContainsFunc(o.Serves, func(key string) bool { return !isByName(key) && slices.Contains(e.Serves, key) })
	return common && s.standsIn != nil && s.standsIn(e.Tool, o.Tool)
}

func firstKey(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// A storedSight is the stored form of a Sight, for other processes.
type storedSight struct {
	Name       string               `json:"name"`
	Server     switchboard.ServerID `json:"server,omitempty"` // "" for our own tools and stubs
	Tool       string               `json:"tool"`
	Digest     switchboard.Digest   `json:"digest,omitempty"`
	Serves     []string             `json:"serves,omitempty"`
	Definition json.RawMessage      `json:"definition,omitempty"`
}

// A storedSeen is the stored form of a Seen.
type storedSeen struct {
	List   []storedSight `json:"list"`             // null for no list; an empty list is a list
	Before []storedSight `json:"before,omitempty"` // with the known definitions, because no server may offer them now
	After  []storedSight `json:"after,omitempty"`  // likewise
	Lost   bool          `json:"lost,omitempty"`
}

// Digest returns the digest of Text.
func (s *Seen) Digest() switchboard.Digest { return s.digest() }

// Text returns the stored form of s.
func (s *Seen) Text() []byte {
	var all storedSeen
	if s.list != nil {
		all.List = storeSights(s.list.sights, false)
	}
	all.Before, all.After, all.Lost = storeSights(s.beforeList, true), storeSights(s.afterList, true), s.lost
	text, err := json.Marshal(all)
	if err != nil {
		panic("what a client was shown: " + err.Error()) // impossible: all parts were parsed from JSON
	}
	return text
}

func storeSights(sights []Sight, definitions bool) []storedSight {
	out := make([]storedSight, len(sights))
	for i, o := range sights {
		out[i] = storedSight{Name: o.Name, Server: o.Tool.ID.Server, Tool: o.Tool.Key().Name, Digest: o.Tool.Digest, Serves: o.Serves}
		if definitions && o.Tool.ID.Server != "" {
			out[i].Definition = o.Tool.Definition
		}
	}
	return out
}

// ReadSeen decodes the result of Text. A text with another digest than d is an error.
func ReadSeen(d switchboard.Digest, text []byte) (*Seen, error) {
	if canonical.Sum(text) != d {
		return nil, fmt.Errorf("what a client was shown: the text is not that of %s", d)
	}
	var all storedSeen
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("what a client was shown: %w", err)
	}
	read := func(kept []storedSight) []Sight {
		sights := make([]Sight, len(kept))
		for i, k := range kept {
			tool := &switchboard.Tool{ID: switchboard.ToolID{Server: k.Server, Name: k.Tool}, Digest: k.Digest, Definition: k.Definition}
			sights[i] = Sight{Name: k.Name, Serves: k.Serves, Tool: tool}
		}
		return sights
	}
	var list *Table
	if all.List != nil {
		list = &Table{sights: read(all.List)}
		list.index()
		if len(all.Before)+len(all.After) == 0 && !all.Lost {
			return list.alone, nil
		}
	}
	return newSeen(list, read(all.Before), read(all.After), all.Lost).trimToLimits(), nil
}
