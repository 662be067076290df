package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A world is what a row of a table starts from: server "s" with tool "t".
type world struct {
	tool      string // the members of t's definition beside name and inputSchema, as ,"a":1
	tools     []string
	handshake string
	manifest  string
	overlay   *switchboard.Overlay // of s/t
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
	if w.handshake != "" {
		src.Offer.Capabilities = []byte(w.handshake)
	}
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
	return catalog.Build(w.sources(), overlays, taxonomy(t))
}

// define gives the definition of a tool with more members.
func define(name, members string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}%s}`, name, members)
}

// block gives a block of capabilities written as "read fs readonly".
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

func texts(faults []catalog.Fault) (out []string) {
	for _, f := range faults {
		out = append(out, f.Error())
	}
	return out
}

func TestTheStrongestSourceSpeaksAndWeakerOnesOnlyRestrict(t *testing.T) {
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

func TestBlocksAreFoundWhereverTheyMayStand(t *testing.T) {
	b := block("read fs")
	for _, tt := range []struct {
		name string
		in   world
		want string // "" means that nobody spoke
	}{
		{name: "bare field", in: world{tool: `,"x-summit-capabilities":` + b}, want: "tool"},
		{name: "bare field, escaped", in: world{tool: `,"x-summit-c\u0061pabilities":` + b}, want: "tool"},
		{name: "_meta", in: world{tool: `,"_meta":{"x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "_meta with a prefix", in: world{tool: `,"_meta":{"com.example.mcp-1/x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "_meta with a prefix of one label", in: world{tool: `,"_meta":{"example/x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "all on the tool, and equal", in: world{tool: `,"x-summit-capabilities":` + b + `,"_meta":{"x-summit-capabilities":` + b + `,"a.b/x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "annotations are not a place", in: world{tool: `,"annotations":{"x-summit-capabilities":` + b + `}`}},

		{name: "capabilities.tools", in: world{handshake: `{"tools":{"t":{"x-summit-capabilities":` + b + `}}}`}, want: "handshake"},
		{name: "capabilities.tools, escaped", in: world{handshake: `{"tools":{"t":{"x-\u0073ummit-capabilities":` + b + `}}}`}, want: "handshake"},
		{name: "capabilities.extensions under any name", in: world{handshake: `{"extensions":{"com.example/any":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`}, want: "handshake"},
		{name: "capabilities.extensions under ours", in: world{handshake: `{"extensions":{"com.example/x-summit-capabilities":{"tools":{"t":` + b + `}}}}`}, want: "handshake"},
		{name: "capabilities.experimental", in: world{handshake: `{"experimental":{"x-summit-capabilities":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`}, want: "handshake"},
		{name: "capabilities.experimental, the list itself", in: world{handshake: `{"experimental":{"x-summit-capabilities":{"tools":{"t":` + b + `}}}}`}, want: "handshake"},
		{name: "capabilities.experimental under another name is no place", in: world{handshake: `{"experimental":{"other":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`}},
		{name: "a list under somebody's extension is not ours", in: world{handshake: `{"extensions":{"com.summit/other":{"tools":{"t":["x"]}}}}`}},
		{name: "all in the handshake, and equal", in: world{handshake: `{"tools":{"t":{"x-summit-capabilities":` + b + `}},"experimental":{"x-summit-capabilities":{"tools":{"t":` + b + `}}}}`}, want: "handshake"},

		{name: "the manifest", in: world{manifest: manifest("read fs")}, want: "manifest"},
		{name: "the manifest without name and version", in: world{manifest: `{"capabilities":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}`}, want: "manifest"},
		{name: "the manifest with more than we know", in: world{manifest: `{"$schema":"x","license":"MIT","capabilities":{"prompts":{},"tools":{"t":{"inputSchema":{},"x-summit-capabilities":` + b + `}}}}`}, want: "manifest"},
		{name: "the manifest, silent about the tool", in: world{manifest: `{"capabilities":{"tools":{}}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.in.build(t)
			var want []string
			if tt.want != "" {
				want = []string{tt.want + ": read fs"}
			}
			if got := show(only(t, s).Capabilities); !slices.Equal(got, want) {
				t.Errorf("capabilities = %q, want %q", got, want)
			}
			if f := s.Faults(); len(f) > 0 {
				t.Errorf("faults: %q", texts(f))
			}
		})
	}
}

func TestAMalformedBlockRefusesItsToolAlone(t *testing.T) {
	ok := define("other", own("read fs"))
	for _, tt := range []struct {
		name string
		in   world
		want []string // the faults
	}{
		{
			name: "not a list",
			in:   world{tool: `,"x-summit-capabilities":"read fs"`},
			want: []string{`server "s", tool "t", tool: x-summit-capabilities: is a string; want a list of {verb, resource, constraints}`},
		},
		{
			name: "not of objects",
			in:   world{tool: `,"_meta":{"a.b/x-summit-capabilities":[["read","fs"]]}`},
			want: []string{`server "s", tool "t", tool: _meta.a.b/x-summit-capabilities[0]: is a list; want an object with verb and resource`},
		},
		{
			name: "unknown verb",
			in:   world{tool: own("serch internet")},
			want: []string{`server "s", tool "t", tool: x-summit-capabilities[0].verb: "serch" is not a verb; did you mean "search"?`},
		},
		{
			name: "verb in another case",
			in:   world{tool: own("Read fs")},
			want: []string{`server "s", tool "t", tool: x-summit-capabilities[0].verb: "Read" is not a verb; did you mean "read"?`},
		},
		{
			name: "unknown resource in a manifest",
			in:   world{manifest: manifest("read fs", "read intrenet")},
			want: []string{`server "s", tool "t", manifest m.json: capabilities.tools.t.x-summit-capabilities[1].resource: "intrenet" is not a resource here; did you mean "internet"?`},
		},
		{
			name: "unknown constraint in a handshake, and a word that is like none",
			in:   world{handshake: handshake("read fs read_only kubernetes")},
			want: []string{
				`server "s", tool "t", handshake: capabilities.tools.t.x-summit-capabilities[0].constraints[0]: "read_only" is not a constraint here; did you mean "readonly"?`,
				`server "s", tool "t", handshake: capabilities.tools.t.x-summit-capabilities[0].constraints[1]: "kubernetes" is not a constraint here; the nearest known is "eu_only"`,
			},
		},
		{
			name: "unknown field, missing field",
			in:   world{tool: `,"x-summit-capabilities":[{"verb":"read","ressource":"fs"}]`},
			want: []string{
				`server "s", tool "t", tool: x-summit-capabilities[0]: "ressource" is not a field here; did you mean "resource"?`,
				`server "s", tool "t", tool: x-summit-capabilities[0]: has no resource`,
			},
		},
		{
			name: "a field in another case",
			in:   world{tool: `,"x-summit-capabilities":[{"verb":"read","resource":"fs","Constraints":["human_in_the_loop"]}]`},
			want: []string{`server "s", tool "t", tool: x-summit-capabilities[0]: "Constraints" is not a field here; did you mean "constraints"?`},
		},
		{
			name: "fields of other kinds",
			in:   world{tool: `,"x-summit-capabilities":[{"verb":1,"resource":null,"constraints":"readonly"}]`},
			want: []string{
				`server "s", tool "t", tool: x-summit-capabilities[0].constraints: is a string; want a list of strings`,
				`server "s", tool "t", tool: x-summit-capabilities[0].resource: is null; want a string`,
				`server "s", tool "t", tool: x-summit-capabilities[0].verb: is a number; want a string`,
			},
		},
		{
			name: "a field twice",
			in:   world{tool: `,"x-summit-capabilities":[{"verb":"read","resource":"fs","verb":"write"}]`},
			want: []string{`server "s", tool "t", tool: is not strict JSON: duplicate object member name at "/x-summit-capabilities/0/verb"`},
		},
		{
			name: "our name almost, on the tool",
			in:   world{tool: `,"X-Summit-Capabilities":[]`},
			want: []string{`server "s", tool "t", tool: "X-Summit-Capabilities" is not a field here; did you mean "x-summit-capabilities"?`},
		},
		{
			name: "our name almost, in _meta",
			in:   world{tool: `,"_meta":{"com.example/x_summit_capabilities":[]}`},
			want: []string{`server "s", tool "t", tool: _meta: "com.example/x_summit_capabilities" is not a field here; did you mean "x-summit-capabilities"?`},
		},
		{
			name: "our name behind something that is no prefix",
			in:   world{tool: `,"_meta":{"-x/x-summit-capabilities":[]}`},
			want: []string{`server "s", tool "t", tool: _meta: "-x/x-summit-capabilities" is not a field here; did you mean "x-summit-capabilities"?`},
		},
		{
			name: "our name almost, in a manifest",
			in:   world{manifest: `{"capabilities":{"tools":{"t":{"x-summit-capability":[]}}}}`},
			want: []string{`server "s", tool "t", manifest m.json: capabilities.tools.t: "x-summit-capability" is not a field here; did you mean "x-summit-capabilities"?`},
		},
		{
			name: "a tool that is no object, in a manifest",
			in:   world{manifest: `{"capabilities":{"tools":{"t":[]}}}`},
			want: []string{`server "s", tool "t", manifest m.json: capabilities.tools.t: is a list; want an object`},
		},
		{
			name: "neither list nor object, in our extension",
			in:   world{handshake: `{"extensions":{"x-summit-capabilities":{"tools":{"t":true}}}}`},
			want: []string{`server "s", tool "t", handshake: capabilities.extensions.x-summit-capabilities.tools.t: is a boolean; want a list of {verb, resource, constraints}`},
		},
		{
			name: "a weaker source is heard even where a stronger one speaks",
			in:   world{overlay: overlay("read fs"), tool: own("read fs human_in_the_lop")},
			want: []string{`server "s", tool "t", tool: x-summit-capabilities[0].constraints[0]: "human_in_the_lop" is not a constraint here; did you mean "human_in_the_loop"?`},
		},
		{
			name: "one source says two things",
			in:   world{tool: own("read fs") + `,"_meta":{"x-summit-capabilities":` + block("read fs readonly") + `}`},
			want: []string{`server "s", tool "t", tool: _meta.x-summit-capabilities: says something else than x-summit-capabilities`},
		},
		{
			name: "the handshake says two things",
			in:   world{handshake: `{"tools":{"t":{"x-summit-capabilities":` + block("read fs") + `}},"experimental":{"x-summit-capabilities":{"tools":{"t":[]}}}}`},
			want: []string{`server "s", tool "t", handshake: capabilities.experimental.x-summit-capabilities.tools.t: says something else than capabilities.tools.t.x-summit-capabilities`},
		},
		{
			name: "more than anybody needs",
			in:   world{tool: `,"x-summit-capabilities":[` + strings.Repeat(`{"verb":"read","resource":"fs"},`, 64) + `{}]`},
			want: []string{`server "s", tool "t", tool: x-summit-capabilities: has more than 64 capabilities`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.in
			w.tools = []string{define("t", w.tool), ok}
			s := w.build(t)
			if got := only(t, s).ID.Name; got != "other" {
				t.Errorf("the tool that stays is %q", got)
			}
			if got := texts(s.Faults()); !equalUpToOffset(got, tt.want) {
				t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// equalUpToOffset ignores the offset that a syntax error ends with.
func equalUpToOffset(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool {
		g, _, _ = strings.Cut(g, ", offset ")
		return g == w
	})
}

func TestWhatCannotBeReadAsAWholeRefusesAllThatItMayHaveRestricted(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   world
		want string
	}{
		{name: "a manifest that is not JSON", in: world{manifest: `{"capabilities"`}, want: `server "s", manifest m.json: is not strict JSON: `},
		{name: "a manifest with a name twice", in: world{manifest: `{"capabilities":{"tools":{},"tools":{}}}`}, want: `server "s", manifest m.json: is not strict JSON: duplicate object member name at "/capabilities/tools"`},
		{name: "a manifest that is a list", in: world{manifest: `[]`}, want: `server "s", manifest m.json: is a list; want an object`},
		{name: "a manifest without tools", in: world{manifest: `{"capabilities":{}}`}, want: `server "s", manifest m.json: capabilities.tools: is missing; `},
		{name: "a manifest with a slip", in: world{manifest: `{"capabilitie":{"tools":{}}}`}, want: `server "s", manifest m.json: "capabilitie" is not a field here; did you mean "capabilities"?`},
		{name: "a manifest with another case", in: world{manifest: `{"capabilities":{"tools":{},"Tools":{}}}`}, want: `server "s", manifest m.json: capabilities: "Tools" is not a field here; did you mean "tools"?`},
		{name: "a manifest with two values", in: world{manifest: `{"capabilities":{"tools":{}}} {}`}, want: `server "s", manifest m.json: cannot be read: something follows the value`},
		{name: "a handshake with a name twice", in: world{handshake: `{"tools":{"t":{"x-summit-capabilities":[]}},"tools":{}}`}, want: `server "s", handshake: is not strict JSON: duplicate object member name at "/tools"`},
		{name: "a handshake with a slip", in: world{handshake: `{"experimental":{"x-summit-capabilties":{}}}`}, want: `server "s", handshake: capabilities.experimental: "x-summit-capabilties" is not a field here; did you mean "x-summit-capabilities"?`},
		{name: "a manifest of 5 MB", in: world{manifest: strings.Repeat(" ", 5<<20)}, want: `server "s", manifest m.json: is 5242880 bytes long; at most 4194304 are allowed`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.in
			w.tools = []string{define("t", own("read fs")), define("u", own("read fs"))}
			w.overlays = map[string]switchboard.Overlay{"u": *replacing("write fs")}
			s := w.build(t)
			if got := only(t, s).ID.Name; got != "u" {
				t.Errorf("the tool that stays is %q, want u, of which the operator says all", got)
			}
			if got := texts(s.Faults()); len(got) != 1 || !strings.HasPrefix(got[0], tt.want) {
				t.Errorf("faults = %q, want one that begins %q", got, tt.want)
			}
		})
	}
}

func TestAHandshakeThatNeverHeardOfUsIsLeftAlone(t *testing.T) {
	for _, handshake := range []string{
		`{"tools":{"listChanged":true},"logging":{},"experimental":{}}`,
		`{"tools":{},"tools":{}}`,
		`not even JSON`,
		`null`,
	} {
		s := world{handshake: handshake, tool: own("read fs")}.build(t)
		if got := show(only(t, s).Capabilities); len(got) != 1 || len(s.Faults()) != 0 {
			t.Errorf("handshake %s: capabilities %q, faults %q", handshake, got, texts(s.Faults()))
		}
	}
}

func TestSpeakingOfAToolThatIsNotThereIsAFaultOfThatName(t *testing.T) {
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
		`server "s", tool "gone\\u202e", handshake: the server has no such tool`,
		`server "s", tool "tt", overlay: the server has no such tool`,
	}
	if got := texts(s.Faults()); !slices.Equal(got, want) {
		t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	away := w.sources()
	away[0].Offer.Tools = nil
	if f := catalog.Build(away, nil, taxonomy(t)).Faults(); len(f) != 0 {
		t.Errorf("a server that has not said which tools it has: faults %q", texts(f))
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
