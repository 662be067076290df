package surface

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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

	// Until is when the client may have read that the name is served differently now: calls that
	// arrive earlier were written before it knew. Zero where it was not told so.
	Until time.Time
}

// SightOf returns the sight of the entry.
func SightOf(e Entry) Sight { return Sight{Name: e.Name, Tool: e.Tool, Serves: e.Serves} }

// sameAs reports whether the entry is the tool that was shown, with the same definition. The
// definitions of our own tools and of stubs do not count.
func (o *Sight) sameAs(e *Entry) bool {
	return o.Tool.ID == e.Tool.ID && (o.Tool.ID.Server == "" || o.Tool.Digest == e.Tool.Digest)
}

// A Table has what one list shows, by name. It is immutable and safe for concurrent use.
type Table struct {
	sights []Sight // sorted by name
	first  *Seen   // of a client that has seen this list and nothing else
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
	t.first = newSeen(t, nil)
}

func newSeen(list *Table, more []Sight) *Seen {
	s := &Seen{list: list, more: more}
	s.sum = sync.OnceValue(func() switchboard.Digest { return canonical.Sum(s.Text()) })
	return s
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
	list *Table  // the last list; nil for none
	more []Sight // what was shown besides and is not in the list, or was shown after it; the oldest first

	sum func() switchboard.Digest
}

// Listed returns s of a client that was shown the list besides.
func (s *Seen) Listed(list *Table) *Seen {
	switch {
	case s == nil || s.list == list && len(s.more) == 0:
		return list.first
	case s.list == list && !slices.ContainsFunc(s.more, list.has):
		return s
	}
	later := make(map[string]bool, len(s.more))
	for _, o := range s.more {
		later[o.Name] = true
	}
	var more []Sight
	if s.list != nil && s.list != list {
		for _, o := range s.list.sights {
			if !later[o.Name] && !list.has(o) {
				more = append(more, o)
			}
		}
	}
	for _, o := range s.more {
		if !list.has(o) {
			more = append(more, o)
		}
	}
	if len(more) == 0 {
		return list.first
	}
	return newSeen(list, more).trim()
}

// has reports whether the list has an entry of that name.
func (t *Table) has(o Sight) bool {
	_, listed := t.lookup(o.Name)
	return listed
}

// Shown returns s of a client that was shown the entries besides.
func (s *Seen) Shown(sights ...Sight) *Seen {
	next := newSeen(nil, nil)
	if s != nil {
		next.list, next.more = s.list, slices.Clone(s.more)
	}
	for _, o := range sights {
		next.more = slices.DeleteFunc(next.more, func(was Sight) bool { return was.Name == o.Name })
		next.more = append(next.more, o)
	}
	return next.trim()
}

// trim keeps s within its bounds.
func (s *Seen) trim() *Seen {
	most := MaxSeen
	if s.list != nil {
		most -= len(s.list.sights)
	}
	s.more = s.more[max(0, len(s.more)-max(0, most)):]
	left := maxSeenBytes
	for i := range slices.Backward(s.more) {
		o := &s.more[i]
		if left -= len(o.Tool.Definition); left < 0 && o.Tool.Definition != nil {
			o.Tool = &switchboard.Tool{ID: o.Tool.ID, Digest: o.Tool.Digest}
		}
	}
	return s
}

func find(sights []Sight, name string) (Sight, bool) {
	i := slices.IndexFunc(sights, func(o Sight) bool { return o.Name == name })
	if i < 0 {
		return Sight{}, false
	}
	return sights[i], true
}

// Lookup returns what the name stood for when the client was last shown it.
func (s *Seen) Lookup(name string) (Sight, bool) {
	if s == nil {
		return Sight{}, false
	}
	if o, ok := find(s.more, name); ok || s.list == nil {
		return o, ok
	}
	return s.list.lookup(name)
}

// UpToDate reports whether the client knows the tools as s shows them, or knows none.
func (s *Seen) UpToDate(now *Surface) bool {
	return s == nil || len(s.more) == 0 && (s.list == now.Table(false) || s.list == now.Table(true))
}

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
	Again bool   // for Changed: the client was told so a moment ago
}

// Route says where a call of the name goes that arrived at the instant, of a client that has seen
// so much. A name that a client was shown leads to the tool that it was shown for, or to one that
// may stand in for it, or the client is told what serves it now: never elsewhere. An Entry that is
// a member need not be expanded.
func (s *Surface) Route(seen *Seen, name string, arrived time.Time) Route {
	e, known := s.Lookup(name)
	listed := known && e.Usable()
	if listed && seen.UpToDate(s) {
		return Route{Way: Forward, Entry: e}
	}
	o, shown := seen.Lookup(name)
	switch {
	case !shown && known:
		return Route{Way: Forward, Entry: e}
	case !shown:
		return Route{}
	}
	was := first(o.Serves)
	if arrived.Before(o.Until) { // the client had not read the answer when it wrote the call
		if now, ok := s.of[o.Tool.ID]; ok && known && now == name {
			return Route{Way: Changed, Entry: e, Was: was, Again: true}
		}
	}
	same := known && o.sameAs(&e)
	switch {
	case same: // also while it is withheld, or no longer expanded
		return Route{Way: Forward, Entry: e}
	case listed && s.mayStandIn(&e, &o):
		return Route{Way: Forward, Entry: e}
	case listed:
		return Route{Way: Changed, Entry: e, Was: was}
	case s.removed != nil && s.removed(o.Tool.ID) && known: // the member has nothing to do with it
		return Route{Way: Changed, Entry: e, Was: was}
	case s.removed != nil && s.removed(o.Tool.ID):
		return Route{}
	}
	var member *Entry // of that name, which is not expanded
	if known {
		member = &e
	}
	return s.elsewhere(&o, was, member)
}

// elsewhere routes a call if its name is not in the list. member is the unexpanded member with that name, or nil.
func (s *Surface) elsewhere(o *Sight, was string, member *Entry) Route {
	if name, ok := s.Name(o.Tool.ID); ok {
		if e, _ := s.Lookup(name); o.sameAs(&e) {
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

// mayStandIn reports whether the entry may stand in for the tool that was shown.
func (s *Surface) mayStandIn(e *Entry, o *Sight) bool {
	common := slices.ContainsFunc(o.Serves, func(key string) bool { return !byName(key) && slices.Contains(e.Serves, key) })
	return common && s.standsIn != nil && s.standsIn(e.Tool, o.Tool)
}

func first(keys []string) string {
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
	Until      time.Time            `json:"until,omitzero"`
	Definition json.RawMessage      `json:"definition,omitempty"`
}

// keptSeen is a Seen as it is kept.
type keptSeen struct {
	List []keptSight `json:"list,omitempty"`
	More []keptSight `json:"more,omitempty"` // with definitions: nobody may offer these any more
}

// Digest is of Text.
func (s *Seen) Digest() switchboard.Digest { return s.sum() }

// Text returns s as it is kept for other processes.
func (s *Seen) Text() []byte {
	var all keptSeen
	if s.list != nil {
		all.List = keepSights(s.list.sights, false)
	}
	all.More = keepSights(s.more, true)
	text, err := json.Marshal(all)
	if err != nil {
		panic("what a client was shown: " + err.Error()) // it was parsed
	}
	return text
}

func keepSights(sights []Sight, definitions bool) []keptSight {
	out := make([]keptSight, len(sights))
	for i, o := range sights {
		out[i] = keptSight{Name: o.Name, Server: o.Tool.ID.Server, Tool: o.Tool.ID.Name, Digest: o.Tool.Digest, Serves: o.Serves, Until: o.Until}
		if definitions && o.Tool.ID.Server != "" {
			out[i].Definition = o.Tool.Definition
		}
	}
	return out
}

// ReadSeen reads what Text gave.
func ReadSeen(text []byte) (*Seen, error) {
	var all keptSeen
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("what a client was shown: %w", err)
	}
	read := func(kept []keptSight) []Sight {
		sights := make([]Sight, len(kept))
		for i, k := range kept {
			tool := &switchboard.Tool{ID: switchboard.ToolID{Server: k.Server, Name: k.Tool}, Digest: k.Digest, Definition: k.Definition}
			sights[i] = Sight{Name: k.Name, Serves: k.Serves, Until: k.Until, Tool: tool}
		}
		return sights
	}
	s := newSeen(nil, read(all.More))
	if all.List != nil {
		list := &Table{sights: read(all.List)}
		list.sort()
		if s.list = list; len(s.more) == 0 {
			return list.first, nil
		}
	}
	return s.trim(), nil
}
