package surface_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// selecting makes a surface of lines such as "a/search:1 for search internet", where 1 is the version of
// the definition. A line that ends in "on demand" is of a member; "a/search unjudged" is of a tool that policy could not judge. Tools stand in for others of the
// same name if their version is not lower.
func selecting(prev *surface.Surface, removed []string, lines ...string) *surface.Surface {
	in := surface.Input{
		Task: &switchboard.Task{}, Prev: prev,
		Own: []*switchboard.Tool{{ID: switchboard.ToolID{Name: "switchboard_own"}, Definition: []byte(`{"name":"switchboard_own"}`)}},
		StandsIn: func(now, shown *switchboard.Tool) bool {
			return now.ID.Name == shown.ID.Name && string(now.Definition) >= string(shown.Definition) && shown.Definition != nil
		},
		Removed: func(id switchboard.ToolID) bool { return slices.Contains(removed, id.String()) },
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		id, unjudged := strings.CutSuffix(line, " unjudged")
		if unjudged {
			server, name, _ := strings.Cut(id, "/")
			in.Unjudged = map[switchboard.ToolID]bool{{Server: switchboard.ServerID(server), Name: name}: true}
		}
		return unjudged
	})
	for _, line := range lines {
		line, member := strings.CutSuffix(line, " on demand")
		tool, need, _ := strings.Cut(line, " for ")
		id, version, _ := strings.Cut(tool, ":")
		server, name, _ := strings.Cut(id, "/")
		r := switchboard.Requirement{Tools: []string{need}}
		if verb, resource, ok := strings.Cut(need, " "); ok {
			r = switchboard.Requirement{Verb: switchboard.Verb(verb), Resource: switchboard.Resource(resource)}
		}
		at := slices.IndexFunc(in.Task.Requirements, func(o switchboard.Requirement) bool { return o.String() == r.String() })
		if at < 0 {
			at = len(in.Task.Requirements)
			in.Task.Requirements = append(in.Task.Requirements, r)
		}
		definition := fmt.Appendf(nil, `{"name":%q,"version":%q}`, name, version)
		in.Selected = append(in.Selected, decide.Selected{Requirements: []int{at}, Tool: &switchboard.Tool{
			ID: switchboard.ToolID{Server: switchboard.ServerID(server), Name: name}, Definition: definition, Digest: switchboard.Digest(definition),
		}})
		place := surface.Membership{}
		if member {
			place = surface.Membership{Group: "g", Service: "s"}
		}
		in.Memberships = append(in.Memberships, place)
	}
	if slices.ContainsFunc(in.Memberships, func(p surface.Membership) bool { return p.Group != "" }) {
		in.Groups = []surface.Group{{ID: "g", Stub: "g_helper", Definition: []byte(`{"name":"g_helper"}`)}}
	}
	return surface.New(in)
}

// said returns the route in words.
func said(r surface.Route) string {
	switch r.Kind {
	case surface.Forward:
		return "goes to " + r.Entry.Tool.ID.String()
	case surface.Changed:
		return "is served by " + r.Entry.Tool.ID.String() + " as " + r.Entry.Name
	case surface.Unmet:
		return "is unmet"
	case surface.Unjudged:
		return "is unjudged"
	}
	return "is unknown"
}

// Each row reads: a client was shown the first tools; now there are the others; a call of the name …
func TestWhereACallOfANameGoes(t *testing.T) {
	tests := []struct {
		name    string
		shown   []string
		now     []string
		removed []string
		call    string
		want    string
	}{
		{"the same tool", []string{"a/x:1 for search internet"}, []string{"a/x:1 for search internet"}, nil, "x", "goes to a/x"},
		{"a tool that may stand in, under the same name", []string{"a/x:1 for search internet"}, []string{"b/x:1 for search internet"}, nil, "x", "goes to b/x"},
		{"a tool that may not", []string{"a/x:2 for search internet"}, []string{"b/x:1 for search internet"}, nil, "x", "is served by b/x as x"},
		{"a new definition that may stand in", []string{"a/x:1 for search internet"}, []string{"a/x:2 for search internet"}, nil, "x", "goes to a/x"},
		{"by name, a new definition is told", []string{"a/x:1 for a/*"}, []string{"a/x:2 for a/*"}, nil, "x", "is served by a/x as x"},
		{"by name, the tool of another server is told", []string{"a/x:1 for */*"}, []string{"b/x:1 for */*"}, nil, "x", "is served by b/x as x"},
		{"by name, a tool that is gone has no other", []string{"a/x:1 for */*"}, []string{"b/y:1 for */*"}, nil, "x", "is unmet"},
		{"the tool under its long name", []string{"a/x:1 for */*"}, []string{"a/x:1 for */*", "b/x:1 for */*"}, nil, "x", "goes to a/x"},
		{"the tool under its short name again", []string{"a/x:1 for */*", "b/x:1 for */*"}, []string{"a/x:1 for */*"}, nil, "a__x", "goes to a/x"},
		{"the one that may stand in, under another name", []string{"a/x:1 for search internet"}, []string{"b/x:1 for search internet", "c/x:1 for read fs"}, nil, "x", "goes to b/x"},
		{"not to one of another requirement", []string{"a/x:1 for search internet"}, []string{"c/x:1 for read fs"}, nil, "x", "is served by c/x as x"},
		{"what serves the requirement now", []string{"a/x:1 for search internet"}, []string{"b/find:1 for search internet"}, nil, "x", "is served by b/find as find"},
		{"rather the one of the same name", []string{"a/x:2 for search internet"}, []string{"b/find:1 for search internet", "b/x:1 for search internet", "c/x:1 for read fs"}, nil, "x", "is served by b/x as b__x"},
		{"nothing serves it", []string{"a/x:1 for search internet"}, []string{"b/y:1 for read fs"}, nil, "x", "is unmet"},
		{"policy could not judge it", []string{"a/x:1 for search internet"}, []string{"a/x unjudged", "b/y:1 for read fs"}, nil, "x", "is unjudged"},
		{"policy could judge the one that may stand in", []string{"a/x:1 for search internet"}, []string{"a/x unjudged", "b/x:1 for search internet"}, nil, "x", "goes to b/x"},
		{"policy could judge what serves the requirement", []string{"a/x:1 for search internet"}, []string{"a/x unjudged", "b/find:1 for search internet"}, nil, "x", "is served by b/find as find"},
		{"policy could not judge another", []string{"a/x:1 for search internet"}, []string{"b/x unjudged", "b/y:1 for read fs"}, nil, "x", "is unmet"},
		{"what policy has removed does not exist", []string{"a/x:1 for search internet"}, []string{"b/find:1 for search internet"}, []string{"a/x"}, "x", "is unknown"},
		{"what policy has removed does not exist, though a member has its name", []string{"a/x:1 for search internet"}, []string{"b/x:1 for search internet on demand"}, []string{"a/x"}, "x", "is unknown"},
		{"never shown", []string{"a/x:1 for search internet"}, []string{"a/x:1 for search internet"}, nil, "y", "is unknown"},
		{"in the list, and not shown yet", []string{"a/x:1 for search internet"}, []string{"b/y:1 for search internet"}, nil, "y", "goes to b/y"},
		{"a member that was never shown", []string{"a/x:1 for read fs"}, []string{"a/x:1 for read fs", "b/y:1 for search internet on demand"}, nil, "y", "goes to b/y"},
		{"a tool that is on demand now", []string{"a/x:1 for */*"}, []string{"a/x:1 for */* on demand"}, nil, "x", "goes to a/x"},
		{"a member takes the place of the tool", []string{"a/x:1 for search internet"}, []string{"b/x:1 for search internet on demand"}, nil, "x", "goes to b/x"},
		{"a stub under the name of a tool", []string{"a/g_helper:1 for read fs"}, []string{"a/g_helper:1 for read fs", "b/x:1 for */* on demand"}, nil, "g_helper", "is served by /g_helper as g_helper"},
		{"a tool under the name of a stub", []string{"b/x:1 for search internet on demand"}, []string{"b/x:1 for search internet", "a/g_helper:1 for read fs"}, nil, "g_helper", "is served by a/g_helper as g_helper"},
		{"a stub that is gone", []string{"b/x:1 for search internet on demand"}, []string{"b/x:1 for search internet"}, nil, "g_helper", "is served by b/x as x"},
		{"our own tool", []string{"a/x:1 for read fs"}, []string{"b/y:1 for read fs"}, nil, "switchboard_own", "goes to /switchboard_own"},
	}
	for _, test := range tests {
		for _, elsewhere := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept: %v", test.name, elsewhere), func(t *testing.T) {
				before := selecting(nil, nil, test.shown...)
				seen := (*surface.Seen)(nil).WithList(before.Table(false))
				now := selecting(before, test.removed, test.now...)
				if elsewhere { // in another process
					kept, err := surface.ReadSeen(seen.Digest(), seen.Text())
					if err != nil {
						t.Fatal(err)
					}
					if kept.Digest() != seen.Digest() {
						t.Errorf("%s is read as %s", seen.Text(), kept.Text())
					}
					seen = kept
					if strings.Contains(test.name, "stand in") || strings.Contains(test.name, "takes the place") {
						// The decision to stand in needs the definition. Without it the client is told.
						if got := said(now.Route(seen, test.call, false)); got != test.want && !strings.HasPrefix(got, "is served by ") {
							t.Errorf("%s %s; want: it %s, or the client is told", test.call, got, test.want)
						}
						return
					}
				}
				if got := said(now.Route(seen, test.call, false)); got != test.want {
					t.Errorf("%s %s; want: it %s", test.call, got, test.want)
				}
			})
		}
	}
}

// A model writes two calls of a name at once. Both get the answer that the name has changed, even if the client is shown more
// meanwhile. Calls that it writes after that are made.
func TestCallsOfOneTurnAreNotMade(t *testing.T) {
	before := selecting(nil, nil, "a/x:2 for search internet", "b/find:1 for read fs")
	now := selecting(before, nil, "b/x:1 for search internet")
	shown := (*surface.Seen)(nil).WithList(before.Table(false))
	told := now.Route(shown, "x", false)
	if said(told) != "is served by b/x as x" || told.JustShown {
		t.Fatalf("the first call %s", said(told))
	}
	for what, seen := range map[string]*surface.Seen{
		"told": shown.WithSights(surface.SightOf(told.Entry)), "told, and it has listed": shown.WithSights(surface.SightOf(told.Entry)).WithList(now.Table(false)),
	} {
		if early := now.Route(seen, "x", true); said(early) != "is served by b/x as x" || !early.JustShown {
			t.Errorf("%s: a call of the same turn %s, again: %v", what, said(early), early.JustShown)
		}
		if later := now.Route(seen, "x", false); said(later) != "goes to b/x" {
			t.Errorf("%s: a call of the next turn %s", what, said(later))
		}
		// Meanwhile a third tool serves, which may stand in for the second, and not for the first.
		third := selecting(now, nil, "c/x:1 for search internet")
		if early := third.Route(seen, "x", true); said(early) != "is served by c/x as x" || early.JustShown {
			t.Errorf("%s: a call of the same turn %s, again: %v", what, said(early), early.JustShown)
		}
	}
}

// The record of a client's sights is lost: before its first call of a server's tool it is told which tool serves the name.
func TestALostClientIsToldWhichToolServesAName(t *testing.T) {
	now := selecting(nil, nil, "a/x:1 for search internet", "a/y:1 for search internet", "b/z:1 for read fs on demand")
	seen := surface.Lost
	for name, want := range map[string]string{
		"x": "is served by a/x as x", "switchboard_own": "goes to /switchboard_own", "g_helper": "goes to /g_helper", "z": "is served by b/z as z", "other": "is unknown",
	} {
		if got := said(now.Route(seen, name, false)); got != want {
			t.Errorf("%s %s; want: it %s", name, got, want)
		}
	}
	x, _ := now.Lookup("x")
	seen = seen.WithSights(surface.SightOf(x))
	kept, err := surface.ReadSeen(seen.Digest(), seen.Text())
	if err != nil {
		t.Fatal(err)
	}
	for _, seen := range []*surface.Seen{seen, kept} {
		if x, y := said(now.Route(seen, "x", false)), said(now.Route(seen, "y", false)); x != "goes to a/x" || y != "is served by a/y as y" {
			t.Errorf("once it was told of x, x %s and y %s", x, y)
		}
	}
	if got := said(now.Route(seen.WithList(now.Table(false)), "y", false)); got != "goes to a/y" {
		t.Errorf("once it has listed, y %s", got)
	}
}

func TestTheOldestSightsAreForgottenFirst(t *testing.T) {
	lines := func(from string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("a/%s-%d:1 for */*", from, i))
		}
		return all
	}
	lists := map[string]int{"first": 1800, "second": 1800, "third": 1800, "fourth": 1800}
	var seen *surface.Seen
	for _, name := range []string{"first", "second", "third", "fourth"} {
		seen = seen.WithList(selecting(nil, nil, lines(name, lists[name])...).Table(false))
	}
	for name, want := range map[string]int{"fourth": 1800, "third": 1800, "second": surface.MaxSeen - 3600 - 1, "first": 0} {
		known := 0
		for i := range lists[name] {
			if _, ok := seen.Lookup(fmt.Sprintf("%s-%d", name, i)); ok {
				known++
			}
		}
		if known != want {
			t.Errorf("of the %s list %d names are known, want %d", name, known, want)
		}
	}
	if _, ok := seen.Lookup("second-0"); ok {
		t.Error("of the second list the last names are forgotten, and not the first")
	}
}

// After any history, the list equals that of a new client; and a name that was ever
// shown leads to the tool that it was last shown for, to one that may stand in for it, or to no tool.
func TestAShownNameLeadsToItsToolOrToAnAnswerThatNamesAnother(t *testing.T) {
	law.Hold(t, law.OneDecision)
	pool := []string{"x", "y", "a__x", "g_helper"}
	rapid.Check(t, func(t *rapid.T) {
		var prev *surface.Surface
		var seen *surface.Seen
		last := map[string]surface.Entry{}
		draw := func() (lines, removed []string) {
			ids := map[string]bool{}
			for range rapid.IntRange(0, 6).Draw(t, "tools") {
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "server") + "/" + rapid.SampledFrom(pool).Draw(t, "name")
				ids[id] = true
			}
			for _, id := range slices.Sorted(maps.Keys(ids)) {
				if rapid.IntRange(0, 9).Draw(t, "removed") == 0 {
					removed = append(removed, id)
					continue
				}
				line := id + ":" + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version") + " for " + rapid.SampledFrom([]string{"search internet", "read fs", "*/*"}).Draw(t, "requirement")
				if rapid.Bool().Draw(t, "member") {
					line += " on demand"
				}
				lines = append(lines, line)
			}
			return lines, removed
		}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			lines, removed := draw()
			now := selecting(prev, removed, lines...)
			if fresh := selecting(nil, removed, lines...); string(fresh.List(switchboard.Tools, false)) != string(now.List(switchboard.Tools, false)) {
				t.Fatalf("a fresh client gets %s, and an old one %s", fresh.List(switchboard.Tools, false), now.List(switchboard.Tools, false))
			}
			for name, o := range last {
				r := now.Route(seen, name, false)
				switch {
				case r.Kind == surface.Forward && r.Entry.Tool.ID.Server == "" && o.Tool.ID == r.Entry.Tool.ID:
				case r.Kind == surface.Forward && r.Entry.Tool.ID == o.Tool.ID && r.Entry.Tool.Digest == o.Tool.Digest:
				case r.Kind == surface.Forward && r.Entry.Tool.ID.Name == o.Tool.ID.Name && string(r.Entry.Tool.Definition) >= string(o.Tool.Definition) &&
					slices.ContainsFunc(o.Serves, func(key string) bool { return key != "tools */*" && slices.Contains(r.Entry.Serves, key) }):
				case r.Kind == surface.Forward:
					t.Fatalf("%s was shown for %s and goes to %s", name, o.Tool.ID, r.Entry.Tool.ID)
				case r.Kind == surface.Unknown && !slices.Contains(removed, o.Tool.ID.String()):
					t.Fatalf("%s was shown for %s and is unknown", name, o.Tool.ID)
				}
			}
			for e := range now.All() {
				if o, shown := last[e.Name]; shown && !e.Usable() && slices.Contains(removed, o.Tool.ID.String()) {
					continue // a tool that policy has removed does not exist, though a member has its name
				}
				if r := now.Route(seen, e.Name, false); r.Kind == surface.Unknown || r.Kind == surface.Unmet {
					t.Fatalf("%s is there, and a call of it %s", e.Name, said(r))
				}
			}
			if rapid.Bool().Draw(t, "lists") {
				seen = seen.WithList(now.Table(false))
				for e := range now.All() {
					if e.Usable() {
						last[e.Name] = e
					}
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "moves") == 0 && seen != nil {
				kept, err := surface.ReadSeen(seen.Digest(), seen.Text())
				if err != nil {
					t.Fatal(err)
				}
				seen = kept
			}
			prev = now
		}
	})
}

// An empty list is a list: earlier sights are still known, also by the next process.
func TestSightsBeforeAnEmptyListAreKnownAfterARestart(t *testing.T) {
	seen := (*surface.Seen)(nil).WithList(show(t, nil, "a/search").Table(true)).WithList(show(t, nil).Table(true))
	again, err := surface.ReadSeen(seen.Digest(), seen.Text())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := again.WithList(show(t, nil, "a/fetch").Table(true)).Lookup("search"); !ok {
		t.Error("the earlier sight is forgotten")
	}
}
