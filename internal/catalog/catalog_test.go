package catalog_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A world is the start of a table's row: server "s" with tool "t".
type world struct {
	tool      string // the members of t's definition after name and inputSchema, as ,"a":1
	tools     []string
	handshake string
	beside    string // the handshake's member with our block's name, next to the capabilities
	manifest  string
	overlay   *switchboard.Overlay // the overlay of s/t
	overlays  map[string]switchboard.Overlay
	trust     switchboard.Trust
}

func (w world) sources() []catalog.Source {
	src := catalog.Source{Offer: switchboard.Offer{Server: "s", Tools: [][]byte{}}, Trust: w.trust}
	if w.tools == nil {
		w.tools = []string{define("t", w.tool)}
	}
	for _, t := range w.tools {
		src.Offer.Tools = append(src.Offer.Tools, []byte(t))
	}
	var beside, capabilities []byte
	if w.handshake != "" {
		capabilities = []byte(w.handshake)
	}
	if w.beside != "" {
		beside = []byte(w.beside)
	}
	var names []string
	for _, t := range w.tools {
		var d struct{ Name string }
		if json.Unmarshal([]byte(t), &d) == nil {
			names = append(names, d.Name)
		}
	}
	src.Offer.Capabilities, src.Offer.Beside, _ = catalog.ResolveHandshake(capabilities, beside, names)
	if w.manifest != "" {
		src.Manifest = &catalog.Manifest{Name: "m.json", Data: []byte(w.manifest)}
	}
	return []catalog.Source{src}
}

func (w world) build(t testing.TB) *catalog.Snapshot {
	t.Helper()
	overlays := map[switchboard.ToolID]switchboard.Overlay{}
	if w.overlay != nil {
		overlays[switchboard.ToolID{Server: "s", Name: "t"}] = *w.overlay
	}
	for name, o := range w.overlays {
		overlays[switchboard.ToolID{Server: "s", Name: name}] = o
	}
	s := catalog.Build(w.sources(), overlays, taxonomy(t))
	// What pins keep of a handshake means the same as the handshake.
	if statements := catalog.HandshakeStatements(w.sources()[0].Offer.Capabilities, w.sources()[0].Offer.Beside); json.Valid(statements) {
		kept := w.sources()
		kept[0].Offer.Capabilities, kept[0].Offer.Beside = catalog.HandshakeParts(statements)
		if k := catalog.Build(kept, overlays, taxonomy(t)); k.Digest() != s.Digest() || !slices.Equal(k.Faults(), s.Faults()) {
			t.Errorf("of the handshake %s with %s, %s is kept, which means something else: %q, %q", w.handshake, w.beside, statements, texts(k.Faults()), texts(s.Faults()))
		}
	}
	return s
}

// define returns the definition of a tool with these further members.
func define(name, members string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}%s}`, name, members)
}

// block returns a block of capabilities written as "read fs readonly".
func block(caps ...string) string {
	var rows []string
	for _, c := range parse(caps...) {
		row := fmt.Sprintf(`{"verb":%q,"resource":%q`, c.Verb, c.Resource)
		if len(c.Constraints) > 0 {
			row += fmt.Sprintf(`,"constraints":["%s"]`, join(c.Constraints, `","`))
		}
		rows = append(rows, row+"}")
	}
	return "[" + strings.Join(rows, ",") + "]"
}

func parse(caps ...string) (out []switchboard.Capability) {
	for _, s := range caps {
		f := strings.Fields(s)
		c := switchboard.Capability{Verb: switchboard.Verb(f[0]), Resource: switchboard.Resource(f[1])}
		for _, k := range f[2:] {
			c.Constraints = append(c.Constraints, switchboard.Constraint(k))
		}
		out = append(out, c)
	}
	return out
}

func overlay(caps ...string) *switchboard.Overlay {
	return &switchboard.Overlay{Capabilities: append([]switchboard.Capability{}, parse(caps...)...)}
}

func replacing(caps ...string) *switchboard.Overlay {
	o := overlay(caps...)
	o.Replace = true
	return o
}

func manifest(caps ...string) string {
	return fmt.Sprintf(`{"name":"n","version":"1.0.0","capabilities":{"tools":{"t":{"description":"d","x-summit-capabilities":%s}}}}`, block(caps...))
}

func handshake(caps ...string) string {
	return fmt.Sprintf(`{"tools":{"listChanged":true,"t":{"x-summit-capabilities":%s}}}`, block(caps...))
}

func own(caps ...string) string { return `,"x-summit-capabilities":` + block(caps...) }

// show writes capabilities as "overlay: read fs readonly".
func show(caps []switchboard.Capability) (out []string) {
	for _, c := range caps {
		s := fmt.Sprintf("%s: %s %s", c.Source, c.Verb, c.Resource)
		if len(c.Constraints) > 0 {
			s += " " + join(c.Constraints, " ")
		}
		out = append(out, s)
	}
	return out
}

func join[T ~string](words []T, sep string) string {
	var s []string
	for _, w := range words {
		s = append(s, string(w))
	}
	return strings.Join(s, sep)
}

// taxonomy has cloud, and aws and azure below it; azure has blob below it.
func taxonomy(t testing.TB) *switchboard.Taxonomy {
	t.Helper()
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{
		"cloud": "", "aws": "cloud", "azure": "cloud", "blob": "azure",
	}, []switchboard.Constraint{"eu_only"})
	if err != nil {
		t.Fatal(err)
	}
	return tax
}

func only(t *testing.T, s *catalog.Snapshot) *switchboard.Tool {
	t.Helper()
	if len(s.Tools()) != 1 {
		t.Fatalf("%d tools, want 1; faults: %v", len(s.Tools()), texts(s.Faults()))
	}
	return s.Tools()[0]
}

func texts(faults []catalog.ToolFault) (out []string) {
	for _, f := range faults {
		out = append(out, f.Error())
	}
	return out
}

func TestTheStrongestSourceDecidesAndWeakerOnesOnlyRestrict(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	for _, tt := range []struct {
		name string
		in   world
		want []string
		kept []string
	}{
		{name: "nobody says anything"},
		{
			name: "the tool alone",
			in:   world{tool: own("search internet readonly")},
			want: []string{"tool: search internet readonly"},
		},
		{
			name: "the handshake before the tool",
			in:   world{handshake: handshake("search internet"), tool: own("search internet readonly")},
			want: []string{"handshake: search internet"},
		},
		{
			name: "the manifest before the handshake",
			in:   world{manifest: manifest("search internet"), handshake: handshake("search internet readonly")},
			want: []string{"manifest: search internet"},
		},
		{
			name: "the overlay before all",
			in:   world{overlay: overlay("read fs"), manifest: manifest("read fs readonly"), handshake: handshake("read fs pii_safe"), tool: own("read fs eu_only")},
			want: []string{"overlay: read fs"},
		},
		{
			name: "constraints that restrict stay, whoever said them",
			in:   world{overlay: overlay("read fs readonly"), manifest: manifest("read fs rate_limited pii_safe"), tool: own("read fs human_in_the_loop")},
			want: []string{"overlay: read fs readonly"},
			kept: []string{"tool: read fs human_in_the_loop", "manifest: read fs rate_limited"},
		},
		{
			name: "further capabilities stay whole",
			in:   world{manifest: manifest("read fs readonly"), handshake: handshake("write fs pii_safe"), tool: own("read fs", "read internet readonly")},
			want: []string{"manifest: read fs readonly"},
			kept: []string{"tool: read internet readonly", "handshake: write fs pii_safe"},
		},
		{
			name: "the same verb on another resource is a further capability",
			in:   world{overlay: overlay("read aws"), tool: own("read cloud")},
			want: []string{"overlay: read aws"},
			kept: []string{"tool: read cloud"},
		},
		{
			name: "replace keeps nothing",
			in:   world{overlay: replacing("read fs readonly"), manifest: manifest("write fs human_in_the_loop"), tool: own("read fs rate_limited")},
			want: []string{"overlay: read fs readonly"},
		},
		{
			name: "replace without capabilities takes all away",
			in:   world{overlay: &switchboard.Overlay{Replace: true}, tool: own("read fs")},
		},
		{
			name: "replace is the way past a block that is malformed",
			in:   world{overlay: replacing("read fs"), tool: `,"x-summit-capabilities":[{"verb":"reed"}]`, manifest: `{`},
			want: []string{"overlay: read fs"},
		},
		{
			name: "an empty block says that there is none",
			in:   world{manifest: manifest(), tool: own("write fs")},
			kept: []string{"tool: write fs"},
		},
		{
			name: "an overlay that says nothing of capabilities leaves it to others",
			in:   world{overlay: &switchboard.Overlay{}, tool: own("write fs")},
			want: []string{"tool: write fs"},
		},
		{
			name: "order and repetition mean nothing",
			in:   world{tool: own("write fs", "read fs rate_limited readonly readonly", "read fs readonly rate_limited", "write fs")},
			want: []string{"tool: read fs rate_limited readonly", "tool: write fs"},
		},
		{
			name: "terms of the taxonomy",
			in:   world{tool: own("execute blob eu_only")},
			want: []string{"tool: execute blob eu_only"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tool := only(t, tt.in.build(t))
			if got := show(tool.Capabilities); !slices.Equal(got, tt.want) {
				t.Errorf("capabilities = %q, want %q", got, tt.want)
			}
			if got := show(tool.Kept); !slices.Equal(got, tt.kept) {
				t.Errorf("kept = %q, want %q", got, tt.kept)
			}
		})
	}
}

func TestAStatementAboutAMissingToolIsAFaultOfThatName(t *testing.T) {
	w := world{
		tool:      own("read fs"),
		overlays:  map[string]switchboard.Overlay{"tt": *overlay("read fs")},
		manifest:  `{"capabilities":{"tools":{"T":{"x-summit-capabilities":[]},"silent":{}}}}`,
		handshake: `{"tools":{"gone\u202e":{"x-summit-capabilities":[]}}}`,
	}
	s := w.build(t)
	only(t, s)
	want := []string{
		`server "s", tool "T", manifest m.json: the server has no such tool`,
		`server "s", tool "gone\u202e", handshake: the server has no such tool`,
		`server "s", tool "tt", overlay: the server has no such tool`,
	}
	if got := texts(s.Faults()); !slices.Equal(got, want) {
		t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	away := w.sources()
	away[0].Offer.Tools = nil
	if f := catalog.Build(away, nil, taxonomy(t)).Faults(); len(f) != 0 {
		t.Errorf("a server that has not listed its tools: faults %q", texts(f))
	}
}

func TestTrustIsDeclaredUnlessTheOperatorVouches(t *testing.T) {
	if got := only(t, world{}.build(t)).Trust; got != switchboard.TrustDeclared {
		t.Errorf("trust = %q", got)
	}
	if got := only(t, world{trust: switchboard.TrustOperator}.build(t)).Trust; got != switchboard.TrustOperator {
		t.Errorf("trust = %q", got)
	}
}

func TestTwoServersWithOneIDAreBothRefused(t *testing.T) {
	src := slices.Concat(world{tool: own("read fs")}.sources(), world{}.sources())
	s := catalog.Build(src, nil, taxonomy(t))
	if len(s.Tools()) != 0 || len(s.Faults()) != 1 {
		t.Errorf("%d tools, faults %q", len(s.Tools()), texts(s.Faults()))
	}
}
