package surface_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// grouped returns a surface with an own tool, an essential tool, and two groups.
func grouped(prev *surface.Surface, unlisted bool, names ...string) *surface.Surface {
	task := &switchboard.Task{Requirements: make([]switchboard.Requirement, 1)}
	own := &switchboard.Tool{ID: switchboard.ToolID{Name: "switchboard_own"}, Definition: []byte(`{"name":"switchboard_own"}`)}
	in := surface.Input{
		Task: task, Own: []*switchboard.Tool{own}, Prev: prev, Unlisted: unlisted,
		Groups: []surface.Group{{ID: "b", Stub: "b_helper", Definition: []byte(`{"name":"b_helper"}`)}, {ID: "a", Stub: "a_helper", Definition: []byte(`{"name":"a_helper"}`)}},
		Count:  func(b []byte) int { return len(b) }, Instructions: "Use it.",
	}
	for _, n := range names {
		group, name, _ := strings.Cut(n, "/")
		tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: name}, Definition: fmt.Appendf(nil, `{"name":%q}`, name)}
		in.Selected = append(in.Selected, decide.Selected{Tool: tool, Requirements: []int{0}})
		in.Memberships = append(in.Memberships, surface.Membership{Group: group})
	}
	return surface.New(in)
}

// toolsIn are the names in the list of a client of the era.
func toolsIn(t *testing.T, s *surface.Surface, modern bool) (names []string) {
	t.Helper()
	var l struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(s.List(switchboard.Tools, modern), &l); err != nil {
		t.Fatal(err)
	}
	for _, tool := range l.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func expand(s *surface.Surface, names ...string) *surface.Surface {
	var xs []*surface.Expansion
	for _, n := range names {
		e, _ := s.Lookup(n)
		xs = append(xs, surface.Expand(e.Tool.ID))
	}
	return s.WithExpanded(xs, nil)
}

func TestAStubIsListedBeforeItsMembersAndAnExpansionKeepsItsPosition(t *testing.T) {
	s := grouped(nil, false, "/one", "a/two", "b/three", "a/four", "/five")
	want := []string{"switchboard_own", "one", "a_helper", "b_helper", "five"}
	for _, modern := range []bool{false, true} {
		if got := toolsIn(t, s, modern); !slices.Equal(got, want) {
			t.Errorf("modern %v: %q, want %q", modern, got, want)
		}
	}
	x := expand(s, "four", "three")
	if got, want := toolsIn(t, x, false), []string{"switchboard_own", "one", "a_helper", "b_helper", "three", "four", "five"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := toolsIn(t, x, true); !slices.Equal(got, want) {
		t.Errorf("a modern list has changed to %q", got)
	}
	if s.Differs(x, true) != 0 || s.Differs(x, false) == 0 || x.Differs(s, false) == 0 {
		t.Error("an expansion is not a change for legacy clients only")
	}
	if got := toolsIn(t, s, false); !slices.Equal(got, want) {
		t.Errorf("the original surface has changed to %q", got)
	}
	var names []string
	sum := 0
	for e, n := range x.Charged() {
		names = append(names, e.Name)
		if sum += n; n != len(e.Append(nil)) {
			t.Errorf("%s costs %d", e.Name, n)
		}
	}
	if !slices.Equal(names, toolsIn(t, x, false)) {
		t.Errorf("charged is %q", names)
	}
	if x.Bytes() < sum {
		t.Errorf("it has %d bytes, and the bound is %d", sum, x.Bytes())
	}
}

func TestExpandedToolsStayExpandedWhenTheRunIsBoundAgain(t *testing.T) {
	s := expand(grouped(nil, false, "a/two", "a/four", "b/three"), "four", "three")
	next := grouped(s, false, "a/two", "a/four", "/three")
	if got, want := toolsIn(t, next, false), []string{"switchboard_own", "b_helper", "a_helper", "four", "three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := next.Expanded(); len(got) != 1 || got[0] != s.Expanded()[0] {
		t.Errorf("expanded are %v", got)
	}
}

func TestTheListOfAModernClientStaysWhenItsTaskIsBoundLater(t *testing.T) {
	s := grouped(nil, true, "/one", "a/two")
	if got := toolsIn(t, s, true); !slices.Equal(got, []string{"switchboard_own"}) {
		t.Errorf("%q", got)
	}
	if got := toolsIn(t, s, false); !slices.Contains(got, "one") {
		t.Errorf("%q", got)
	}
	if e, ok := s.Lookup("one"); !ok || !e.Usable() {
		t.Error("it cannot be called")
	}
}

func TestAWithheldToolIsNeitherListedNorCallable(t *testing.T) {
	law.Hold(t, law.OneDecision)
	s := grouped(nil, false, "/one", "a/two")
	one, _ := s.Lookup("one")
	w := expand(s, "two").WithExpanded(expand(s, "two").Expanded(), []switchboard.ToolID{one.Tool.ID})
	for _, modern := range []bool{false, true} {
		if slices.Contains(toolsIn(t, w, modern), "one") {
			t.Error("it is listed")
		}
	}
	if e, ok := w.Lookup("one"); !ok || e.Usable() || !e.Withheld {
		t.Errorf("%+v", e)
	}
}

func TestAKeptValueLastsAsLongAsTheEntriesAreTheSame(t *testing.T) {
	made := 0
	keep := func(s *surface.Surface) {
		s.Memoize("x", func() any { made++; return made })
	}
	s := grouped(nil, false, "/one", "a/two")
	keep(s)
	keep(expand(s, "two"))
	keep(grouped(expand(s, "two"), false, "/one", "a/two"))
	if made != 1 {
		t.Errorf("the value was made %d times", made)
	}
	for i, other := range [][]string{{"/one"}, {"/one", "/two"}, {"/one", "b/two"}, {"a/two", "/one"}} {
		if keep(grouped(s, false, other...)); made != i+2 {
			t.Errorf("with other entries, %v, the value was made %d times", other, made)
		}
	}
}

// A stub's name comes from the task; a server's tool with the same name gets its long name.
func TestAToolWithTheNameOfAStubGetsItsLongName(t *testing.T) {
	s := grouped(nil, false, "/a_helper", "a/two")
	if got := toolsIn(t, s, false); !slices.Equal(got, []string{"switchboard_own", "b_helper", "s__a_helper", "a_helper"}) {
		t.Errorf("%q", got)
	}
}

// The other server has a tool with the same name: the model continues with that one.
func TestAnExpandedToolStaysExpandedOnTheServerThatReplacesIt(t *testing.T) {
	of := func(server switchboard.ServerID, prev *surface.Surface) *surface.Surface {
		task := &switchboard.Task{Requirements: make([]switchboard.Requirement, 1)}
		in := surface.Input{Task: task, Prev: prev, Groups: []surface.Group{{ID: "g", Stub: "g_helper", Definition: []byte(`{"name":"g_helper"}`)}}}
		for _, name := range []string{"one", "two"} {
			tool := &switchboard.Tool{ID: switchboard.ToolID{Server: server, Name: name}, Definition: []byte(`{"name":"` + name + `"}`)}
			in.Selected = append(in.Selected, decide.Selected{Tool: tool, Requirements: []int{0}})
			in.Memberships = append(in.Memberships, surface.Membership{Group: "g", Service: "s"})
		}
		return surface.New(in)
	}
	s := of("b", expand(of("a", nil), "two"))
	if got := s.Expanded(); len(got) != 1 || got[0].Tool != (switchboard.ToolID{Server: "b", Name: "two"}) {
		t.Errorf("expanded are %v", got)
	}
}

func TestAnExpansionWaitsWhileItsServerHasNoOffer(t *testing.T) {
	both := []string{"a/two", "a/three"}
	for name, follow := range map[string]func(*surface.Surface) *surface.Surface{
		"here":               func(s *surface.Surface) *surface.Surface { return s },
		"in another process": func(s *surface.Surface) *surface.Surface { return surface.Restore(s.State()) },
	} {
		s := expand(grouped(nil, false, both...), "two", "three")
		gone := grouped(follow(s), false)
		if n := len(gone.Expanded()); n != 0 {
			t.Errorf("%s: %d tools of an absent server are expanded", name, n)
		}
		gone = gone.WithExpanded(nil, nil)
		part := grouped(follow(gone), false, "a/two")
		if got := part.Expanded(); len(got) != 1 || got[0].Tool.Name != "two" {
			t.Errorf("%s: the server is back, and %v is expanded", name, got)
		}
		if got := grouped(follow(part), false, both...).Expanded(); len(got) != 1 {
			t.Errorf("%s: %v is expanded, and one of them was missing while its server was there", name, got)
		}
	}
}

// A long run is bound again at each change of the catalog, and its clients list again each time.
// Of earlier surfaces only the names that its clients know stay in memory.
func TestAReplacedSurfaceIsReleased(t *testing.T) {
	var last *surface.Surface
	var seen *surface.Seen
	var before []weak.Pointer[surface.Surface]
	for i := range 8 {
		one := grouped(last, false, "/one", "a/two", "a/four", fmt.Sprintf("b/three_%d", i))
		if i > 0 {
			one = expand(one, "two")
		}
		for _, modern := range []bool{false, true} {
			for k := range switchboard.NKinds {
				if i%2 == 0 { // an unused lazy value holds its inputs
					one.List(k, modern)
				}
			}
		}
		seen = seen.WithList(one.Table(true))
		if _, ok := seen.Lookup("one"); !ok {
			t.Fatal("it is not known")
		}
		_ = one.Route(seen, "one", false)
		before = append(before, weak.Make(one))
		last = one
	}
	runtime.GC()
	for i, p := range before[:len(before)-1] {
		if p.Value() != nil {
			t.Errorf("surface %d of %d is held", i, len(before))
		}
	}
	runtime.KeepAlive(last)
	runtime.KeepAlive(seen)
}
