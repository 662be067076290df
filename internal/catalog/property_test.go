package catalog_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A statement is what one source states about one tool; nil is no statement.
type statement []string

func (s statement) spoken() bool { return s != nil }

var statements = rapid.Custom(func(t *rapid.T) statement {
	if rapid.IntRange(0, 2).Draw(t, "silent") == 0 {
		return nil
	}
	caps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		c := rapid.SampledFrom([]string{"read", "write"}).Draw(t, "verb") + " " +
			rapid.SampledFrom([]string{"fs", "cloud", "aws", "blob"}).Draw(t, "resource")
		for _, k := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"readonly", "rate_limited", "human_in_the_loop", "pii_safe"}), rapid.ID).Draw(t, "constraints") {
			c += " " + k
		}
		return c
	}), 0, 3).Draw(t, "caps")
	return append(statement{}, caps...)
})

// A drawn is a world with tools t0, t1, … on servers s0, s1, …, and the statement of each source about each tool. Index
// 0 is the overlay, 4 the tenant's overlay.
type drawn struct {
	said    [][][5]statement // by server and tool
	replace [][]bool
}

var worlds = rapid.Custom(func(t *rapid.T) drawn {
	var d drawn
	for range rapid.IntRange(1, 3).Draw(t, "servers") {
		var said [][5]statement
		var replace []bool
		for range rapid.IntRange(1, 3).Draw(t, "tools") {
			var of [5]statement
			for i := range of {
				of[i] = statements.Draw(t, string(switchboard.Sources[i]))
			}
			said = append(said, of)
			replace = append(replace, rapid.Bool().Draw(t, "replace"))
		}
		d.said = append(d.said, said)
		d.replace = append(d.replace, replace)
	}
	return d
})

// shuffled draws a permutation; with a nil t it keeps the order.
func shuffled[T any](t *rapid.T, list []T) []T {
	if t == nil {
		return list
	}
	return rapid.Permutation(list).Draw(t, "order")
}

// build returns the inputs of a snapshot, with everything in a random order drawn by t.
func (d drawn) build(t *rapid.T) ([]catalog.Source, map[switchboard.ToolID]switchboard.Overlay) {
	var sources []catalog.Source
	overlays := map[switchboard.ToolID]switchboard.Overlay{}
	for i, tools := range d.said {
		id := switchboard.ServerID(fmt.Sprintf("s%d", i))
		src := catalog.Source{Offer: switchboard.Offer{Server: id}}
		var inManifest, inHandshake []string
		for j, said := range tools {
			name := fmt.Sprintf("t%d", j)
			if s := said[0]; s.spoken() {
				o := *overlay(shuffled(t, s)...)
				o.Replace = d.replace[i][j]
				overlays[switchboard.ToolID{Server: id, Name: name}] = o
			}
			member := func(s statement) string {
				return fmt.Sprintf(`%q:{"x-summit-capabilities":%s}`, name, block(shuffled(t, s)...))
			}
			if s := said[1]; s.spoken() {
				inManifest = append(inManifest, member(s))
			}
			if s := said[2]; s.spoken() {
				inHandshake = append(inHandshake, member(s))
			}
			members := ""
			if s := said[3]; s.spoken() {
				members = own(s...) // the order is in the definition's digest
			}
			src.Offer.Tools = append(src.Offer.Tools, []byte(define(name, members)))
		}
		tools := func(list []string) string { return `{"tools":{` + strings.Join(shuffled(t, list), ",") + `}}` }
		src.Manifest = &catalog.Manifest{Name: "m", Data: []byte(`{"capabilities":` + tools(inManifest) + `}`)}
		src.Offer.Capabilities = []byte(tools(inHandshake))
		src.Offer.Tools = shuffled(t, src.Offer.Tools)
		sources = append(sources, src)
	}
	return shuffled(t, sources), overlays
}

func (d drawn) tenant() *switchboard.Tenant {
	t := &switchboard.Tenant{Overlays: map[switchboard.ToolID]switchboard.Overlay{}}
	for i, tools := range d.said {
		id := switchboard.ServerID(fmt.Sprintf("s%d", i))
		t.Servers = append(t.Servers, id)
		for j, said := range tools {
			if said[4].spoken() {
				t.Overlays[switchboard.ToolID{Server: id, Name: fmt.Sprintf("t%d", j)}] = *overlay(said[4]...)
			}
		}
	}
	return t
}

func TestNoOrderMatters(t *testing.T) {
	law.Hold(t, law.Deterministic)
	tax := taxonomy(t)
	rapid.Check(t, func(t *rapid.T) {
		d := worlds.Draw(t, "world")
		sources, overlays := d.build(nil)
		want := catalog.Build(sources, overlays, tax)
		sources, overlays = d.build(t)
		got := catalog.Build(sources, overlays, tax)
		if got.Digest() != want.Digest() || ids(got.Tools()) != ids(want.Tools()) {
			t.Errorf("digest %s, then %s", want.Digest(), got.Digest())
		}
		if a, b := want.For(d.tenant()).Digest(), got.For(d.tenant()).Digest(); a != b {
			t.Errorf("view %s, then %s", a, b)
		}
		if len(got.Faults()) != 0 {
			t.Errorf("faults %q", texts(got.Faults()))
		}
	})
}

// TestTheLawOfSources checks each tool against the rule of the design, written again here in a simpler form.
func TestTheLawOfSources(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	tax := taxonomy(t)
	rapid.Check(t, func(t *rapid.T) {
		d := worlds.Draw(t, "world")
		sources, overlays := d.build(nil)
		v := catalog.Build(sources, overlays, tax).For(d.tenant())
		for i, tools := range d.said {
			for j, said := range tools {
				id := switchboard.ToolID{Server: switchboard.ServerID(fmt.Sprintf("s%d", i)), Name: fmt.Sprintf("t%d", j)}
				tool, ok := v.Tool(id)
				if !ok {
					t.Fatalf("%v is missing", id)
				}
				heard := said
				if d.replace[i][j] && said[0].spoken() {
					heard[1], heard[2], heard[3] = nil, nil, nil
				}
				winner := slices.IndexFunc(heard[:], statement.spoken)
				for k := range heard {
					if k != winner {
						neverAdds(t, v, tool, heard[k], switchboard.Sources[k], winner >= 0 && k > winner)
					}
				}
				if winner >= 0 {
					for _, c := range parse(heard[winner]...) {
						for _, r := range append(tax.Ancestors(c.Resource), c.Resource) {
							if !slices.Contains(v.Match(c.Verb, r), tool) {
								t.Errorf("%v has %q but is not found for %s", id, heard[winner], r)
							}
						}
					}
					for _, c := range tool.Capabilities {
						if c.Source != switchboard.Sources[winner] {
							t.Errorf("%v: %q does not come from %s", id, show(tool.Capabilities), switchboard.Sources[winner])
						}
					}
				} else if len(tool.Capabilities)+len(tool.Kept) != 0 {
					t.Errorf("%v: no source mentions it, but it has %q, %q", id, show(tool.Capabilities), show(tool.Kept))
				}
			}
		}
	})
}

// neverAdds checks the effect of a source that is not the strongest: it adds nothing that Match finds; if it counts, it
// adds all its restrictions; and it adds nothing else.
func neverAdds(t *rapid.T, v *catalog.View, tool *switchboard.Tool, said statement, source switchboard.Source, heard bool) {
	names := func(list []switchboard.Capability, c switchboard.Capability) bool {
		return slices.ContainsFunc(list, func(x switchboard.Capability) bool { return x.Verb == c.Verb && x.Resource == c.Resource })
	}
	var kept []switchboard.Capability
	for _, k := range tool.Kept {
		if k.Source == source {
			kept = append(kept, k)
		}
	}
	if !heard && len(kept) > 0 {
		t.Errorf("%v keeps %q of %s", tool.ID, show(kept), source)
	}
	for _, c := range parse(said...) {
		if !names(tool.Capabilities, c) && !slices.ContainsFunc(tool.Capabilities, func(x switchboard.Capability) bool {
			return x.Verb == c.Verb && x.Resource != c.Resource // found through an ancestor
		}) && slices.Contains(v.Match(c.Verb, c.Resource), tool) {
			t.Errorf("%v is found for %s %s, which only %s states", tool.ID, c.Verb, c.Resource, source)
		}
		if !heard {
			continue
		}
		for _, k := range c.Constraints {
			if k.Restricts() && !tool.Demands(k) {
				t.Errorf("%v: %s states %s, but it is lost", tool.ID, source, k)
			}
		}
		if !names(tool.Capabilities, c) && !names(kept, c) {
			t.Errorf("%v: %s states %s, but it is lost", tool.ID, source, c)
		}
	}
	for _, k := range kept {
		if names(tool.Capabilities, k) && (len(k.Constraints) == 0 || slices.ContainsFunc(k.Constraints, func(c switchboard.Constraint) bool { return !c.Restricts() })) {
			t.Errorf("%v has %q, which restricts nothing", tool.ID, show(kept))
		}
	}
}

func TestRebuildEqualsBuild(t *testing.T) {
	law.Hold(t, law.Deterministic)
	tax := taxonomy(t)
	wider, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"cloud": "", "aws": "cloud", "blob": ""}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := catalog.Build(nil, nil, tax)
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			d := worlds.Draw(t, "world")
			under := rapid.SampledFrom([]*switchboard.Taxonomy{tax, wider}).Draw(t, "taxonomy")
			sources, overlays := d.build(t)
			for i := range sources {
				sources[i].Offer.Stale = rapid.Bool().Draw(t, "stale")
				if rapid.Bool().Draw(t, "spoilt") {
					sources[i].Offer.Tools = append(sources[i].Offer.Tools, []byte(`{"name":"bad"}`))
				}
			}
			want := catalog.Build(sources, overlays, under)
			s = s.Rebuild(sources, overlays, under)
			if s.Digest() != want.Digest() || !slices.Equal(texts(s.Faults()), texts(want.Faults())) {
				t.Fatalf("rebuilt: %s %q\nbuilt:   %s %q", s.Digest(), texts(s.Faults()), want.Digest(), texts(want.Faults()))
			}
			for i, tool := range s.Tools() {
				if w := want.Tools()[i]; w.ID != tool.ID || w.Stale != tool.Stale || string(w.Definition) != string(tool.Definition) {
					t.Fatalf("%v is not %v", tool, w)
				}
			}
			if a, b := s.For(d.tenant()), want.For(d.tenant()); a.Digest() != b.Digest() {
				t.Fatal("the views differ")
			}
		}
	})
}

// Rebuild may reuse only what has not changed.
func TestRebuildSeesEachChange(t *testing.T) {
	base := world{tool: own("read fs"), overlay: overlay("read aws"), manifest: manifest("read internet"), handshake: handshake("read slack")}
	wider, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"aws": "internet"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := func(edit func(*world)) world {
		w := base
		edit(&w)
		return w
	}
	broken := other(func(w *world) { w.manifest = "{" })
	silent := world{overlay: &switchboard.Overlay{}, tool: own("read fs")}
	without := world{tools: []string{}, handshake: handshake("read fs")}
	for _, tt := range []struct {
		name  string
		from  world // the base, if it is empty
		w     world // the same, if it is empty
		edit  func(*catalog.Source)
		tax   *switchboard.Taxonomy
		twice bool
	}{
		{name: "away", edit: func(s *catalog.Source) { s.Offer.Stale = true }},
		{name: "class", edit: func(s *catalog.Source) { s.Class = "paid" }},
		{name: "trust", edit: func(s *catalog.Source) { s.Trust = switchboard.TrustOperator }},
		{name: "version", edit: func(s *catalog.Source) { s.Offer.Version = "2.0" }},
		{name: "definition", w: other(func(w *world) { w.tool = own("read codebase") })},
		{name: "handshake", w: other(func(w *world) { w.handshake = handshake("read codebase") })},
		{name: "manifest", w: other(func(w *world) { w.manifest = manifest("read codebase") })},
		{name: "manifest's name", from: broken, edit: func(s *catalog.Source) { s.Manifest.Name = "new.json" }},
		{name: "no manifest", w: other(func(w *world) { w.manifest = "" })},
		{name: "overlay", w: other(func(w *world) { w.overlay = overlay("read codebase") })},
		{name: "overlay replaces", w: other(func(w *world) { w.overlay = replacing("read aws") })},
		{name: "overlay's facts", w: other(func(w *world) { w.overlay = and(operator("stateful"), "read aws") })},
		{name: "no overlay", w: other(func(w *world) { w.overlay = nil })},
		{name: "overlay says none, no longer nothing", from: silent, w: world{overlay: overlay(), tool: silent.tool}},
		{name: "no tools", w: other(func(w *world) { w.tools = []string{} })},
		{name: "not known which tools", from: without, edit: func(s *catalog.Source) { s.Offer.Tools = nil }},
		{name: "taxonomy", tax: wider},
		{name: "a word gone from the taxonomy", from: world{tool: own("read blob")}, tax: wider},
		{name: "one id twice", twice: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inputs := func(w world) ([]catalog.Source, map[switchboard.ToolID]switchboard.Overlay) {
				overlays := map[switchboard.ToolID]switchboard.Overlay{}
				if w.overlay != nil {
					overlays[switchboard.ToolID{Server: "s", Name: "t"}] = *w.overlay
				}
				return w.sources(), overlays
			}
			if reflect.ValueOf(tt.from).IsZero() {
				tt.from = base
			}
			if reflect.ValueOf(tt.w).IsZero() {
				tt.w = tt.from
			}
			before, overlays := inputs(tt.from)
			s := catalog.Build(before, overlays, taxonomy(t))
			after, overlays := inputs(tt.w)
			if tt.edit != nil {
				tt.edit(&after[0])
			}
			if tt.twice {
				after = slices.Concat(after, after)
			}
			if tt.tax == nil {
				tt.tax = taxonomy(t)
			}
			want := catalog.Build(after, overlays, tt.tax)
			got := s.Rebuild(after, overlays, tt.tax)
			if a, b := describe(got), describe(want); a != b {
				t.Errorf("rebuilt: %s\nbuilt:   %s", a, b)
			}
			if describe(got) == describe(s) {
				t.Error("the row has no visible effect")
			}
		})
	}
}

func describe(s *catalog.Snapshot) string {
	out := fmt.Sprintf("%s %q", s.Digest(), texts(s.Faults()))
	for _, t := range s.Tools() {
		out += fmt.Sprintf(" %v stale=%t class=%s trust=%s version=%s %q %q", t.ID, t.Stale, t.Class, t.Trust, t.Version, show(t.Capabilities), show(t.Kept))
	}
	return out
}
