package surface

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Expansion is one member that is expanded. It is safe for concurrent use.
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

// Use notes that the tool is called.
func (x *Expansion) Use() { x.used.Store(time.Now().UnixNano()) }

// Used returns when it was expanded, or called last.
func (x *Expansion) Used() time.Time { return time.Unix(0, x.used.Load()) }

// maxResting is how many expansions wait for servers to be there again.
const maxResting = 256

// With returns the same surface with just these members expanded, given oldest
// first, and these tools withheld. What is no such tool is left out; but where
// nothing is shown of its server, it is expanded again once that is there: another
// replica may have it already, and one that has just begun will.
func (s *Surface) With(expanded []*Expansion, withheld []switchboard.ToolID) *Surface {
	own := *s
	own.expanded, own.resting, own.withheld = nil, slices.Clone(s.resting), nil
	own.entries = slices.Clone(s.entries)
	at := make(map[switchboard.ToolID]*Entry, len(own.entries))
	there := map[switchboard.ServerID]bool{}
	for i := range own.entries {
		e := &own.entries[i]
		e.Expanded, e.Withheld = nil, false
		at[e.Tool.ID] = e
		there[e.Tool.ID.Server] = true
	}
	for _, x := range expanded {
		switch e := at[x.Tool]; {
		case e != nil && e.Role == Member:
			e.Expanded = x
			own.expanded = append(own.expanded, x)
		case !there[x.Tool.Server]:
			own.resting = append(own.resting, x)
		}
	}
	own.resting = own.resting[max(0, len(own.resting)-maxResting):]
	for _, id := range withheld {
		if e := at[id]; e != nil {
			e.Withheld = true
			own.withheld = append(own.withheld, id)
		}
	}
	own.finish(switchboard.Tools)
	return &own
}

// Expanded returns what is expanded, oldest first. The slice must not be modified.
func (s *Surface) Expanded() []*Expansion { return s.expanded }

// Withheld returns which tools are kept back. The slice must not be modified.
func (s *Surface) Withheld() []switchboard.ToolID { return s.withheld }

// places yields the places, among entries and then ours, in the list's order.
func (s *Surface) places() iter.Seq[int] {
	return func(yield func(int) bool) {
		next := 0
		for i := range len(s.entries) + 1 {
			for ; next < len(s.ours) && s.ours[next].before <= i; next++ {
				if !yield(len(s.entries) + next) {
					return
				}
			}
			if i < len(s.entries) && !yield(i) {
				return
			}
		}
	}
}

// listed yields the places of what a client of the era sees in its list.
func (s *Surface) listed(modern bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range s.places() {
			e := s.entry(i)
			if quiet := modern && (e.Role == Member || s.unlisted && e.Role != Own); e.Usable() && !quiet && !yield(i) {
				return
			}
		}
	}
}

// All yields everything that is known under a name, in the list's order.
func (s *Surface) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for i := range s.places() {
			if !yield(*s.entry(i)) {
				return
			}
		}
	}
}

// Charged yields what is charged, in the list's order, with its cost in tokens:
// all that a legacy client sees in its list, and a modern one may call.
func (s *Surface) Charged() iter.Seq2[Entry, int] {
	return func(yield func(Entry, int) bool) {
		for i := range s.listed(false) {
			if !yield(*s.entry(i), s.cost(i)) {
				return
			}
		}
	}
}

// WholeBytes returns the bytes of the definitions of all servers' tools, as a list without
// groups would have them.
func (s *Surface) WholeBytes() int { return s.wholeBytes() }

// WholeTokens returns what these definitions cost.
func (s *Surface) WholeTokens() (n int) {
	for i := range s.entries {
		n += s.cost(i)
	}
	return n
}

// Instructions is what a model is told when its client connects; "" means nothing.
func (s *Surface) Instructions() string { return s.told }

// InstructionTokens returns what the instructions cost. They are charged besides what
// Charged yields.
func (s *Surface) InstructionTokens() int {
	if s.told == "" || s.telling == nil {
		return 0
	}
	return s.telling()
}

// Bytes bounds how many bytes all that is charged has.
func (s *Surface) Bytes() (n int) {
	n = 6 * len(s.told) // as JSON
	for i := range s.listed(false) {
		n += len(s.entry(i).Tool.Definition) + MaxNameBytes
	}
	return n
}

// Budget returns how many tokens all that is charged may cost; 0 means that there is
// no bound.
func (s *Surface) Budget() int { return s.budget }

// CollapseOldest reports whether what was used longest ago makes room for what is
// expanded.
func (s *Surface) CollapseOldest() bool { return s.collapse }

// Keep returns what make made when it was first asked for under the key: something
// that hangs on the entries alone, and not on what is expanded.
func (s *Surface) Keep(key string, make func() any) any {
	if v, ok := s.kept.Load(key); ok {
		return v
	}
	v, _ := s.kept.LoadOrStore(key, make())
	return v
}

// Stubs returns the stubs in the list's order.
func (s *Surface) Stubs() (all []Entry) {
	for _, o := range s.ours {
		if o.Role == Stub {
			all = append(all, o.Entry)
		}
	}
	return all
}

// Cost returns how many tokens the entry of the name costs where it is listed; 0
// for one that is not there.
func (s *Surface) Cost(name string) int {
	i, ok := s.at[name]
	if !ok {
		return 0
	}
	return s.cost(i)
}

func (s *Surface) cost(i int) int {
	if n := s.costs[i].Load(); n > 0 {
		return int(n - 1)
	}
	if s.count == nil {
		return 0
	}
	n := s.count(s.entry(i).Append(nil))
	s.costs[i].Store(int64(n) + 1)
	return n
}
