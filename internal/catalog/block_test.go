package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestBlocksAreFoundInEveryAllowedPlace(t *testing.T) {
	b := block("read fs")
	for _, tt := range []struct {
		name string
		in   world
		want string // "" means that no source mentions the tool
	}{
		{name: "bare field", in: world{tool: `,"x-summit-capabilities":` + b}, want: "tool"},
		{name: "bare field, escaped", in: world{tool: `,"x-summit-c\u0061pabilities":` + b}, want: "tool"},
		{name: "_meta", in: world{tool: `,"_meta":{"x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "_meta with a prefix", in: world{tool: `,"_meta":{"com.example.mcp-1/x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "_meta with a prefix of one label", in: world{tool: `,"_meta":{"example/x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "all on the tool, and equal", in: world{tool: `,"x-summit-capabilities":` + b + `,"_meta":{"x-summit-capabilities":` + b + `,"a.b/x-summit-capabilities":` + b + `}`}, want: "tool"},
		{name: "annotations", in: world{tool: `,"annotations":{"x-summit-capabilities":` + b + `}`}, want: "tool"},

		{name: "capabilities.tools", in: world{handshake: `{"tools":{"t":{"x-summit-capabilities":` + b + `}}}`}, want: "handshake"},
		{name: "capabilities.tools, escaped", in: world{handshake: `{"tools":{"t":{"x-\u0073ummit-capabilities":` + b + `}}}`}, want: "handshake"},
		{name: "capabilities.extensions under any name", in: world{handshake: `{"extensions":{"com.example/any":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`}, want: "handshake"},
		{name: "capabilities.extensions under ours", in: world{handshake: `{"extensions":{"com.example/x-summit-capabilities":{"tools":{"t":` + b + `}}}}`}, want: "handshake"},
		{name: "capabilities.experimental", in: world{handshake: `{"experimental":{"x-summit-capabilities":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`}, want: "handshake"},
		{name: "capabilities.experimental, the list itself", in: world{handshake: `{"experimental":{"x-summit-capabilities":{"tools":{"t":` + b + `}}}}`}, want: "handshake"},
		{name: "capabilities.experimental under another name is no place", in: world{handshake: `{"experimental":{"other":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`}},
		{name: "a list under somebody's extension is not ours", in: world{handshake: `{"extensions":{"com.summit/other":{"tools":{"t":["x"]}}}}`}},
		{name: "capabilities, an object of lists", in: world{handshake: `{"x-summit-capabilities":{"t":` + b + `}}`}, want: "handshake"},
		{name: "capabilities, an object of tools", in: world{handshake: `{"x-summit-capabilities":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}`}, want: "handshake"},
		{name: "capabilities, the list of the only tool", in: world{handshake: `{"x-summit-capabilities":` + b + `}`}, want: "handshake"},
		{name: "beside capabilities, an object of lists", in: world{beside: `{"t":` + b + `}`}, want: "handshake"},
		{name: "beside capabilities, the list of the only tool", in: world{beside: b, handshake: `{"tools":{}}`}, want: "handshake"},
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
			want: []string{`server "s", tool "t", tool: _meta.x-summit-capabilities: contradicts x-summit-capabilities`},
		},
		{
			name: "the handshake says two things",
			in:   world{handshake: `{"tools":{"t":{"x-summit-capabilities":` + block("read fs") + `}},"experimental":{"x-summit-capabilities":{"tools":{"t":[]}}}}`},
			want: []string{`server "s", tool "t", handshake: capabilities.experimental.x-summit-capabilities.tools.t: contradicts capabilities.tools.t.x-summit-capabilities`},
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
				t.Errorf("the remaining tool is %q", got)
			}
			if got := texts(s.Faults()); !equalUpToOffset(got, tt.want) {
				t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// equalUpToOffset ignores the offset at the end of a syntax error.
func equalUpToOffset(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool {
		g, _, _ = strings.Cut(g, ", offset ")
		return g == w
	})
}

func TestAnUnreadableManifestOrHandshakeRefusesAllToolsThatItMayRestrict(t *testing.T) {
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
		{name: "a list in the handshake of a server with two tools", in: world{handshake: `{"x-summit-capabilities":[]}`}, want: `server "s", handshake: capabilities.x-summit-capabilities: is a list, which can be about the only tool of a server, and the server does not have one tool; write an object with a list for each tool`},
		{name: "a list beside the capabilities of a server with two tools", in: world{beside: `[]`}, want: `server "s", handshake: x-summit-capabilities: is a list, which can be about the only tool of a server`},
		{name: "tools that can be a tool, with others", in: world{beside: `{"tools":{"t":[]},"u":[]}`}, want: `server "s", handshake: x-summit-capabilities: has the object "tools" and other members; `},
		{name: "tools that can be a tool, with a block", in: world{beside: `{"tools":{"x-summit-capabilities":[]}}`}, want: `server "s", handshake: x-summit-capabilities.tools: has the member "x-summit-capabilities"; `},
		{name: "a text beside the capabilities", in: world{beside: `"read fs"`}, want: `server "s", handshake: x-summit-capabilities: is a string; want an object with a list for each tool`},
		{name: "a manifest of 5 MB", in: world{manifest: strings.Repeat(" ", 5<<20)}, want: `server "s", manifest m.json: is 5242880 bytes long; at most 4194304 are allowed`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.in
			w.tools = []string{define("t", own("read fs")), define("u", own("read fs"))}
			w.overlays = map[string]switchboard.Overlay{"u": *replacing("write fs")}
			s := w.build(t)
			if got := only(t, s).ID.Name; got != "u" {
				t.Errorf("the remaining tool is %q, want u, which the operator's overlay replaces", got)
			}
			if got := texts(s.Faults()); len(got) != 1 || !strings.HasPrefix(got[0], tt.want) {
				t.Errorf("faults = %q, want one that begins %q", got, tt.want)
			}
		})
	}
}

func TestAHandshakeWithoutOurBlockIsIgnored(t *testing.T) {
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
