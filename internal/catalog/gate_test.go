package catalog_test

import (
	"errors"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A fakeGate keeps out the tools of its map, and counts how many it was asked about.
type fakeGate struct {
	key    switchboard.Digest
	out    map[string]string // the reason, by the name of the tool
	broken bool
	asked  int
}

func (g *fakeGate) Key() switchboard.Digest { return g.key }

func (g *fakeGate) KeepOut(tools []*switchboard.Tool) (why []string, failed []error) {
	g.asked += len(tools)
	why = make([]string, len(tools))
	for i, t := range tools {
		why[i] = g.out[t.ID.Name]
		if g.broken {
			failed = append(failed, errors.New("divided by zero"))
		}
	}
	return why, failed
}

// states returns why each tool is out; "in" if it is not.
func states(s *catalog.Snapshot) map[string]string {
	all := map[string]string{}
	for _, t := range s.Tools() {
		all[t.ID.Name] = "in"
		if a := t.Admission; a != nil {
			all[t.ID.Name] = string(a.State) + ": " + a.Why
		}
	}
	return all
}

func TestWhatTheGateKeepsOutIsNotLetIn(t *testing.T) {
	src := world{tools: []string{define("a", ""), define("b", ""), define("c", "")}}.sources()
	src[0].Offer.Admissions = map[string]*switchboard.Admission{"c": {State: switchboard.LifeSuspended, Why: "a person has suspended it"}}
	g := &fakeGate{key: "1", out: map[string]string{"b": "it attacks", "c": "it attacks, too"}}
	s := (&catalog.Snapshot{}).RebuildBehind(g, src, nil, taxonomy(t))
	want := map[string]string{"a": "in", "b": "new: the operator's rules keep it out: it attacks", "c": "suspended: a person has suspended it"}
	for name, is := range states(s) {
		if is != want[name] {
			t.Errorf("%s is %q, want %q", name, is, want[name])
		}
	}
	if open := catalog.Build(src, nil, taxonomy(t)); open.Digest() == s.Digest() {
		t.Error("the digest does not cover what is kept out")
	}
	if g.asked != 2 {
		t.Errorf("the gate was asked about %d tools, want the 2 that pins let in", g.asked)
	}
}

func TestTheGateIsAskedOnceAboutEachChangedTool(t *testing.T) {
	src := world{tools: []string{define("a", ""), define("b", "")}}.sources()
	changed := world{tools: []string{define("a", ""), define("b", `,"x":1`)}}.sources()
	first, second := &fakeGate{key: "1", out: map[string]string{"a": "no"}}, &fakeGate{key: "2"}
	s := &catalog.Snapshot{}
	for _, c := range []struct {
		what string
		gate *fakeGate
		src  []catalog.Source
		want int
		a    string
	}{
		{"at first", first, src, 2, "new: the operator's rules keep it out: no"},
		{"again", first, src, 0, "new: the operator's rules keep it out: no"},
		{"with a changed tool", first, changed, 1, "new: the operator's rules keep it out: no"},
		{"under other rules", second, changed, 2, "in"},
	} {
		c.gate.asked = 0
		s = s.RebuildBehind(c.gate, c.src, nil, taxonomy(t))
		if got := states(s)["a"]; c.gate.asked != c.want || got != c.a {
			t.Errorf("%s: the gate was asked about %d tools, want %d; a is %q, want %q", c.what, c.gate.asked, c.want, got, c.a)
		}
	}
	if s = s.Rebuild(changed, nil, taxonomy(t)); states(s)["a"] != "in" {
		t.Error("without a gate something is kept out")
	}
}

func TestAGateThatFailsLetsNothingNewInAndTakesNothingOut(t *testing.T) {
	person := map[string]*switchboard.ToolEvidence{"person": {Person: true}}
	src := world{tools: []string{define("before", "")}}.sources()
	more := world{tools: []string{define("before", ""), define("person", ""), define("sight", "")}}.sources()
	more[0].Offer.Evidence = person
	g := &fakeGate{key: "1"}
	s := (&catalog.Snapshot{}).RebuildBehind(g, src, nil, taxonomy(t))
	g.broken = true
	s = s.RebuildBehind(g, more, nil, taxonomy(t))
	want := map[string]string{
		"before": "in", "person": "in",
		"sight": "new: no person has let it in, and the operator's rules for that could not be evaluated: divided by zero",
	}
	for name, is := range states(s) {
		if is != want[name] {
			t.Errorf("%s is %q, want %q", name, is, want[name])
		}
	}
	if !s.Undecided() {
		t.Error("nothing says that the gate must be asked again")
	}
	g.broken, g.asked = false, 0
	s = s.RebuildBehind(g, more, nil, taxonomy(t))
	if s.Undecided() || states(s)["sight"] != "in" || g.asked != 2 {
		t.Errorf("once the rules can be evaluated, undecided is %v, and the tool is %q after %d questions", s.Undecided(), states(s)["sight"], g.asked)
	}
}

// Tools of a snapshot are judged by other rules as if those had been in force.
func TestToolsAreAsBehindAnotherGate(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	w := world{}
	for _, name := range names {
		w.tools = append(w.tools, define(name, ""))
	}
	src := w.sources()
	src[0].Offer.Admissions = map[string]*switchboard.Admission{"c": {State: switchboard.LifeSuspended, Why: "a person has suspended it"}, "d": {State: switchboard.LifeTesting, Why: "new"}}
	src[0].Offer.Evidence = map[string]*switchboard.ToolEvidence{"e": {Person: true}}
	first, second := &fakeGate{key: "1", out: map[string]string{"b": "it attacks", "d": "it attacks"}}, &fakeGate{key: "2", out: map[string]string{"a": "it writes", "b": "it attacks", "c": "it writes"}}
	s := (&catalog.Snapshot{}).RebuildBehind(first, src, nil, taxonomy(t))
	for _, tt := range []struct {
		what string
		gate catalog.ToolGate
		want []string
	}{
		{"the same rules", first, []string{"in", "new: the operator's rules keep it out: it attacks", "suspended: a person has suspended it", "new: the operator's rules keep it out: it attacks", "in"}},
		{"other rules", second, []string{"new: the operator's rules keep it out: it writes", "new: the operator's rules keep it out: it attacks", "suspended: a person has suspended it", "testing: so it was, but for the operator's rules", "in"}},
		{"no rules", nil, []string{"in", "in", "suspended: a person has suspended it", "testing: so it was, but for the operator's rules", "in"}},
		{"rules that fail", &fakeGate{broken: true}, []string{
			"new: no person has let it in, and the operator's rules for that could not be evaluated: divided by zero", "new: no person has let it in, and the operator's rules for that could not be evaluated: divided by zero",
			"suspended: a person has suspended it", "new: no person has let it in, and the operator's rules for that could not be evaluated: divided by zero", "in",
		}},
	} {
		kept := map[*switchboard.Tool]bool{}
		for _, tool := range s.Tools() {
			kept[tool] = true
		}
		for i, tool := range catalog.Behind(tt.gate, s.Tools()) {
			got := "in"
			if a := tool.Admission; a != nil {
				got = string(a.State) + ": " + a.Why
			}
			if same := got == states(s)[names[i]]; got != tt.want[i] || kept[tool] != same {
				t.Errorf("%s: %s is %q, the tool itself %v; want %q", tt.what, names[i], got, kept[tool], tt.want[i])
			}
		}
	}
}
