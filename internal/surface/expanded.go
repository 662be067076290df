package surface

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Expansion is one expanded member. It is safe for concurrent use.
type Expansion struct {
	Tool switchboard.ToolID
	used atomic.Int64 // unix nanoseconds
}

// Expand returns an Expansion that begins now.
func Expand(id switchboard.ToolID) *Expansion {
	x := &Expansion{Tool: id}
	x.Use()
	return x
}

// Use records that the tool is called.
func (x *Expansion) Use() { x.used.Store(time.Now().UnixNano()) }

// Used returns when the tool was expanded or last called.
func (x *Expansion) Used() time.Time { return time.Unix(0, x.used.Load()) }

// maxAbsent limits the expansions that wait for servers to return.
const maxAbsent = 256

// WithExpanded returns the same surface with exactly these members expanded, given oldest first, and these tools withheld. It
// ignores ids of other tools. If the surface has no tool of the id's server, the expansion waits and takes effect
// when the server's offer appears: another replica may have the offer already, and a starting replica will get it.
func (s *Surface) WithExpanded(expanded []*Expansion, withheld []switchboard.ToolID) *Surface {
	own := *s
	own.expanded, own.absent, own.withheld = nil, slices.Clone(s.absent), nil
	own.entries = slices.Clone(s.entries)
	at := make(map[switchboard.ToolID]*Entry, len(own.entries))
	there := map[switchboard.ServerID]bool{}
	for i := range own.entries {
		e := &own.entries[i]
		e.Expanded, e.Withheld = nil, false
		at[e.Tool.Key()] = e
		there[e.Tool.ID.Server] = true
	}
	for _, x := range expanded {
		switch e := at[x.Tool]; {
		case e != nil && e.Role == Member:
			e.Expanded = x
			own.expanded = append(own.expanded, x)
		case !there[x.Tool.Server]:
			own.absent = append(own.absent, x)
		}
	}
	own.absent = own.absent[max(0, len(own.absent)-maxAbsent):]
	for _, id := range withheld {
		if e := at[id]; e != nil {
			e.Withheld = true
			own.withheld = append(own.withheld, id)
		}
	}
	own.prepareLists(switchboard.Tools)
	return &own
}

// Expanded returns the expansions, oldest first. The slice must not be modified.
func (t *toolTable) Expanded() []*Expansion { return t.expanded }

// Withheld returns the tools that are withheld. The slice must not be modified.
func (t *toolTable) Withheld() []switchboard.ToolID { return t.withheld }

// listOrder yields the indexes of all entries (see indexByName) in the order of the list.
func (t *toolTable) listOrder() iter.Seq[int] {
	return func(yield func(int) bool) {
		next := 0
		for i := range len(t.entries) + 1 {
			for ; next < len(t.ownEntries) && t.ownEntries[next].position <= i; next++ {
				if !yield(len(t.entries) + next) {
					return
				}
			}
			if i < len(t.entries) && !yield(i) {
				return
			}
		}
	}
}

// listedPositions yields the indexes of the entries in the list of a client of the era.
func (s *Surface) listedPositions(modern bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range s.listOrder() {
			e := s.entryAt(i)
			if quiet := modern && (e.Role == Member || s.unlisted && e.Role != Own); e.Usable() && !quiet && !yield(i) {
				return
			}
		}
	}
}

// All yields every entry in the order of the list, listed or not.
func (t *toolTable) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range t.listOrder() {
			if !yield(*t.entryAt(i)) {
				return
			}
		}
	}
}

// Charged yields the charged entries in the order of the list, with their cost in tokens: every entry that a legacy
// client sees in its list and a modern client may call.
func (s *Surface) Charged() iter.Seq2[Entry, int] {
	return func(yield func(Entry, int) bool) {
		for i := range s.listedPositions(false) {
			if !yield(*s.entryAt(i), s.costAt(i)) {
				return
			}
		}
	}
}

// FullListBytes returns the bytes of the definitions of all servers' tools, which a list without groups would have.
func (s *Surface) FullListBytes() int { return s.wholeBytes() }

// FullListTokens returns the tokens of these definitions.
func (t *toolTable) FullListTokens() (n int) {
	for i := range t.entries {
		n += t.costAt(i)
	}
	return n
}

// HasServerTools reports whether the surface has a tool of a server, listed or not.
func (t *toolTable) HasServerTools() bool { return len(t.entries) > 0 }

// ListTokens returns the tokens of the definitions in the list of a client of the era.
func (s *Surface) ListTokens(modern bool) (n int) {
	for i := range s.listedPositions(modern) {
		n += s.costAt(i)
	}
	return n
}

// OfferTokens returns the tokens of all definitions that the servers of the surface's tools offer: what their lists would cost a client that
// connects to them itself.
func (o *offerSet) OfferTokens() int { return o.offerTokens() }

// sumOffers returns a function that counts the offers of the entries' servers once.
func sumOffers(entries []Entry, tokens func(switchboard.ServerID) int) func() int {
	return sync.OnceValue(func() (n int) {
		if tokens == nil {
			return 0
		}
		seen := map[switchboard.ServerID]bool{}
		for i := range entries {
			if id := entries[i].Tool.ID.Server; !seen[id] {
				seen[id] = true
				n += tokens(id)
			}
		}
		return n
	})
}

// Instructions returns the text that a model reads when its client connects; "" means none.
func (b *spending) Instructions() string { return b.instructions }

// InstructionTokens returns the tokens of the instructions. They are charged in addition to the entries of Charged.
func (b *spending) InstructionTokens() int {
	if b.instructions == "" || b.instructionTokens == nil {
		return 0
	}
	return b.instructionTokens()
}

// Bytes returns an upper limit for the bytes of the charged entries and the instructions.
func (s *Surface) Bytes() (n int) {
	n = 6 * len(s.instructions) // as JSON
	for i := range s.listedPositions(false) {
		n += len(s.entryAt(i).Tool.Definition) + MaxNameBytes
	}
	return n
}

// Budget returns how many tokens the charged entries and the instructions may cost; 0 means no limit.
func (b *spending) Budget() int { return b.budget }

// CollapseOldest reports whether the entry with the oldest use is collapsed to make room for an expansion.
func (b *spending) CollapseOldest() bool { return b.collapseOldest }

// Memoize returns the result of the first call of make for the key. The value must depend on the entries alone, and not
// on the expansions.
func (s *Surface) Memoize(key string, make func() any) any {
	if v, ok := s.memo.Load(key); ok {
		return v
	}
	v, _ := s.memo.LoadOrStore(key, make())
	return v
}

// Stubs returns the stubs in the order of the list.
func (t *toolTable) Stubs() (all []Entry) {
	for _, o := range t.ownEntries {
		if o.Role == Stub {
			all = append(all, o.Entry)
		}
	}
	return all
}

// Cost returns how many tokens the entry with that name costs in a list; 0 if there is none.
func (t *toolTable) Cost(name string) int {
	i, ok := t.indexByName[name]
	if !ok {
		return 0
	}
	return t.costAt(i)
}

func (t *toolTable) costAt(i int) int {
	if n := t.tokenCosts[i].Load(); n > 0 {
		return int(n - 1)
	}
	if t.countTokens == nil {
		return 0
	}
	n := t.countTokens(t.entryAt(i).Append(nil))
	t.tokenCosts[i].Store(int64(n) + 1)
	return n
}
