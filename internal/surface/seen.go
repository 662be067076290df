package surface

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Sight is one entry that a client was shown: by a list, by an expansion, or by the answer
// that a name is served differently now.
type Sight struct {
	Name string

	// Tool is what the name stood for. It has no definition where only the digest is known.
	Tool *switchboard.Tool

	Serves []string // see Entry
}

// SightOf returns the sight of the entry.
func SightOf(e Entry) Sight { return Sight{Name: e.Name, Tool: e.Tool, Serves: e.Serves} }

// SameAs reports whether the entry is the tool that was shown, with the same definition. The
// definitions of our own tools and of stubs do not count.
func (o *Sight) SameAs(e *Entry) bool {
	return o.Tool.ID == e.Tool.ID && (o.Tool.ID.Server == "" || o.Tool.Digest == e.Tool.Digest)
}

// A Table has what one list shows, by name. It is immutable and safe for concurrent use.
type Table struct {
	sights []Sight // sorted by name
	only   *Seen   // of a client that was shown this list and nothing else
}

// Table returns what the list for a client of the era shows.
func (s *Surface) Table(modern bool) *Table {
	if modern {
		return s.tables[1]()
	}
	return s.tables[0]()
}

func (s *Surface) table(modern bool) *Table {
	t := &Table{}
	for i := range s.listed(modern) {
		t.sights = append(t.sights, SightOf(*s.entry(i)))
	}
	t.sort()
	return t
}

func (t *Table) sort() {
	slices.SortFunc(t.sights, func(a, b Sight) int { return strings.Compare(a.Name, b.Name) })
	t.only = newSeen(t, nil, nil, false)
}

func (t *Table) lookup(name string) (Sight, bool) {
	i, ok := slices.BinarySearchFunc(t.sights, name, func(o Sight, name string) int { return strings.Compare(o.Name, name) })
	if !ok {
		return Sight{}, false
	}
	return t.sights[i], true
}

// MaxSeen bounds the names that are kept for one client. Names of its last list are always kept.
const MaxSeen = 4096

// maxSeenBytes bounds the definitions of tools that are kept for one client beside its last list.
const maxSeenBytes = 256 << 10

// A Seen is what one client was shown: for each name the entry that it last stood for. The zero
// Seen, and nil, are of a client that was shown nothing. It is immutable and safe for
// concurrent use.
type Seen struct {
	list   *Table  // the last list; nil for none
	before []Sight // what was shown before that and is not in it; the oldest first
	after  []Sight // what was shown after it, and counts more; the oldest first
	lost   bool    // the client was shown more, and nobody knows what

	sum    func() switchboard.Digest
	byName func() map[string]Sight // of before and after
}

// Lost is of a client that was shown something, and nobody knows what.
var Lost = newSeen(nil, nil, nil, true)

// IsLost reports whether the client was shown something, and nobody knows what.
func (s *Seen) IsLost() bool { return s != nil && s.lost }

func newSeen(list *Table, before, after []Sight, lost bool) *Seen {
	s := &Seen{list: list, before: before, after: after, lost: lost}
	s.sum = sync.OnceValue(func() switchboard.Digest { return canonical.Sum(s.Text()) })
	s.byName = sync.OnceValue(func() map[string]Sight {
		all := make(map[string]Sight, len(s.before)+len(s.after))
		for _, shown := range [][]Sight{s.before, s.after} {
			for _, o := range shown {
				all[o.Name] = o
			}
		}
		return all
	})
	return s
}

// WithList returns what the client was shown once it is shown the list too.
func (s *Seen) WithList(list *Table) *Seen {
	if s == nil || s.list == nil && len(s.before)+len(s.after) == 0 {
		return list.only
	}
	if s.list == list && len(s.after) == 0 && !slices.ContainsFunc(s.before, list.names) {
		return s
	}
	var before []Sight
	keep := func(shown []Sight, but func(name string) bool) {
		for _, o := range shown {
			if !list.names(o) && !but(o.Name) {
				before = append(before, o)
			}
		}
	}
	later := s.byName()
	keep(s.before, func(string) bool { return false })
	if s.list != nil && s.list != list {
		keep(s.list.sights, func(name string) bool { _, again := later[name]; return again })
	}
	keep(s.after, func(string) bool { return false })
	if len(before) == 0 {
		return list.only
	}
	return newSeen(list, before, nil, false).trim()
}

// With returns what a client was shown that was shown o after s, perhaps in part.
func (s *Seen) With(o *Seen) *Seen {
	if s == nil || o == nil || s == o {
		return cmp.Or(o, s)
	}
	both := s
	if o.list != nil {
		both = both.WithList(o.list)
	}
	var unknown []Sight
	for _, shown := range o.before {
		if _, ok := both.Lookup(shown.Name); !ok {
			unknown = append(unknown, shown)
		}
	}
	if more := slices.Concat(unknown, o.after); len(more) > 0 {
		both = both.WithSights(more...)
	}
	return both
}

// Digest is of the list alone, as a client knows it that was shown nothing else.
func (t *Table) Digest() switchboard.Digest { return t.only.Digest() }

// names reports whether the list has an entry of the sight's name.
func (t *Table) names(o Sight) bool {
	_, listed := t.lookup(o.Name)
	return listed
}

// WithSights returns what the client was shown once it is shown the entries too.
func (s *Seen) WithSights(sights ...Sight) *Seen {
	next := newSeen(nil, nil, nil, false)
	if s != nil {
		next = newSeen(s.list, slices.Clone(s.before), slices.Clone(s.after), s.lost)
	}
	for _, o := range sights {
		same := func(was Sight) bool { return was.Name == o.Name }
		next.before = slices.DeleteFunc(next.before, same)
		next.after = append(slices.DeleteFunc(next.after, same), o)
	}
	return next.trim()
}

// trim keeps s within its bounds: it forgets what was shown first.
func (s *Seen) trim() *Seen {
	most := MaxSeen
	if s.list != nil {
		most = max(0, most-len(s.list.sights))
	}
	s.after = s.after[max(0, len(s.after)-most):]
	s.before = s.before[max(0, len(s.before)-(most-len(s.after))):]
	left := maxSeenBytes
	for _, shown := range [][]Sight{s.after, s.before} {
		for i := range slices.Backward(shown) {
			o := &shown[i]
			if left -= len(o.Tool.Definition); left < 0 && o.Tool.Definition != nil {
				o.Tool = &switchboard.Tool{ID: o.Tool.ID, Digest: o.Tool.Digest}
			}
		}
	}
	return s
}

// Lookup returns what the name stood for when the client was last shown it.
func (s *Seen) Lookup(name string) (Sight, bool) {
	if s == nil {
		return Sight{}, false
	}
	if len(s.before)+len(s.after) > 0 {
		if o, ok := s.byName()[name]; ok {
			return o, true
		}
	}
	if s.list == nil {
		return Sight{}, false
	}
	return s.list.lookup(name)
}

// UpToDate reports whether the client knows the tools as s shows them, or was shown none.
func (s *Seen) UpToDate(now *Surface) bool {
	return s == nil || !s.lost && s.list != nil && len(s.after) == 0 && (s.list.equal(now.Table(false)) || s.list.equal(now.Table(true)))
}

// equal reports whether both lists show the same.
func (t *Table) equal(o *Table) bool { return t == o || t.only.Digest() == o.only.Digest() }

// A Way says what becomes of a call of a name.
type Way uint8

// The ways.
const (
	Unknown Way = iota // there is no such tool for the client
	Forward            // it goes to the entry
	Changed            // the client is told that the entry serves it now: SB-CAP-008
	Unmet              // nothing serves it now: SB-CAP-004
)

// A Route is where a call of a name goes.
type Route struct {
	Way   Way
	Entry Entry  // for Forward and Changed
	Was   string // for Changed and Unmet: the requirement that the name was shown for; "" where nothing is known
	Again bool   // for Changed: the client was shown the entry a moment ago, after it wrote the call
}

// Route says where a call of the name goes, of a client that was shown so much. A name that a client was shown leads to the
// tool that it was shown for, or to one that may stand in for it, or the client is told what serves it now: never elsewhere.
// A client that was shown nothing calls what is in the list. early says that the client wrote the call before it read that the
// name is served differently now. An Entry that is a member need not be expanded.
func (s *Surface) Route(seen *Seen, name string, early bool) Route {
	e, known := s.Lookup(name)
	listed := known && e.Usable()
	if listed && !early && seen.UpToDate(s) {
		return Route{Way: Forward, Entry: e}
	}
	o, shown := seen.Lookup(name)
	switch {
	case shown:
	case known && seen.IsLost() && e.Tool.ID.Server != "":
		return Route{Way: Changed, Entry: e, Was: firstOf(e.Serves)}
	case known:
		return Route{Way: Forward, Entry: e}
	default:
		return Route{}
	}
	way := s.routeShown(&o, &e, known)
	if early && way.Entry.Tool != nil && way.Entry.Tool.ID.Server != "" {
		way.Way, way.Was = Changed, firstOf(o.Serves)
		way.Again = o.Name == way.Entry.Name && o.SameAs(&way.Entry)
	}
	return way
}

// routeShown routes a call of a name that was shown as o. e is the entry of that name now, if it is known.
func (s *Surface) routeShown(o *Sight, e *Entry, known bool) Route {
	was := firstOf(o.Serves)
	listed := known && e.Usable()
	switch {
	case known && o.SameAs(e): // also while it is withheld, or no longer expanded
		return Route{Way: Forward, Entry: *e}
	case listed && s.mayStandIn(e, o):
		return Route{Way: Forward, Entry: *e}
	case listed:
		return Route{Way: Changed, Entry: *e, Was: was}
	case s.removed != nil && s.removed(o.Tool.ID):
		return Route{}
	}
	var member *Entry // of that name, which is not expanded
	if known {
		member = e
	}
	return s.routeElsewhere(o, was, member)
}

// routeElsewhere routes a call if its name is not in the list. member is the unexpanded member with that name, or nil.
func (s *Surface) routeElsewhere(o *Sight, was string, member *Entry) Route {
	if name, ok := s.Name(o.Tool.ID); ok {
		if e, _ := s.Lookup(name); o.SameAs(&e) {
			return Route{Way: Forward, Entry: e}
		}
	}
	var serving, standIn *Entry
	several := false
	for i := range s.entries {
		e := &s.entries[i]
		if e.Withheld || !o.serves(e) {
			continue
		}
		if serving == nil || serving.Tool.ID.Name != o.Tool.ID.Name && e.Tool.ID.Name == o.Tool.ID.Name {
			serving = e
		}
		if s.mayStandIn(e, o) {
			several = several || standIn != nil
			standIn = e
		}
	}
	switch {
	case standIn != nil && !several:
		return Route{Way: Forward, Entry: *standIn}
	case member != nil:
		return Route{Way: Changed, Entry: *member, Was: was}
	case serving != nil:
		return Route{Way: Changed, Entry: *serving, Was: was}
	}
	return Route{Way: Unmet, Was: was}
}

// serves reports whether the entry serves a requirement that o was shown for. A requirement by
// name asks for that tool, and another one does not serve it.
func (o *Sight) serves(e *Entry) bool {
	return slices.ContainsFunc(o.Serves, func(key string) bool {
		return slices.Contains(e.Serves, key) && (!byName(key) || e.Tool.ID.Name == o.Tool.ID.Name)
	})
}

// byName reports whether the key is of a requirement by name.
func byName(key string) bool { return strings.HasPrefix(key, "tools ") }

// mayStandIn reports whether the entry may stand in for the tool that was shown. A stub stands in for nothing.
func (s *Surface) mayStandIn(e *Entry, o *Sight) bool {
	if e.Tool.ID.Server == "" || o.Tool.ID.Server == "" {
		return false
	}
	common := slices.ContainsFunc(o.Serves, func(key string) bool { return !byName(key) && slices.Contains(e.Serves, key) })
	return common && s.standsIn != nil && s.standsIn(e.Tool, o.Tool)
}

func firstOf(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// keptSight is a Sight as it is kept for another process.
type keptSight struct {
	Name       string               `json:"name"`
	Server     switchboard.ServerID `json:"server,omitempty"` // "" for our own tools and stubs
	Tool       string               `json:"tool"`
	Digest     switchboard.Digest   `json:"digest,omitempty"`
	Serves     []string             `json:"serves,omitempty"`
	Definition json.RawMessage      `json:"definition,omitempty"`
}

// keptSeen is a Seen as it is kept.
type keptSeen struct {
	List   []keptSight `json:"list"`             // null for none: an empty one is a list, too
	Before []keptSight `json:"before,omitempty"` // with definitions as far as they are known: nobody may offer these any more
	After  []keptSight `json:"after,omitempty"`  // likewise
	Lost   bool        `json:"lost,omitempty"`
}

// Digest is of Text.
func (s *Seen) Digest() switchboard.Digest { return s.sum() }

// Text returns s as it is kept for other processes.
func (s *Seen) Text() []byte {
	var all keptSeen
	if s.list != nil {
		all.List = keepSights(s.list.sights, false)
	}
	all.Before, all.After, all.Lost = keepSights(s.before, true), keepSights(s.after, true), s.lost
	text, err := json.Marshal(all)
	if err != nil {
		panic("what a client was shown: " + err.Error()) // it was parsed
	}
	return text
}

func keepSights(sights []Sight, definitions bool) []keptSight {
	out := make([]keptSight, len(sights))
	for i, o := range sights {
		out[i] = keptSight{Name: o.Name, Server: o.Tool.ID.Server, Tool: o.Tool.ID.Name, Digest: o.Tool.Digest, Serves: o.Serves}
		if definitions && o.Tool.ID.Server != "" {
			out[i].Definition = o.Tool.Definition
		}
	}
	return out
}

// ReadSeen reads what Text gave. It is an error if the text is not that of the digest.
func ReadSeen(d switchboard.Digest, text []byte) (*Seen, error) {
	if canonical.Sum(text) != d {
		return nil, fmt.Errorf("what a client was shown: the text is not that of %s", d)
	}
	var all keptSeen
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("what a client was shown: %w", err)
	}
	read := func(kept []keptSight) []Sight {
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
		list.sort()
		if len(all.Before)+len(all.After) == 0 && !all.Lost {
			return list.only, nil
		}
	}
	return newSeen(list, read(all.Before), read(all.After), all.Lost).trim(), nil
}
