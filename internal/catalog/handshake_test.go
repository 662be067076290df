package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestHandshakesDifferWhereTheyMeanSomethingElse(t *testing.T) {
	const b, more = `[{"verb":"read","resource":"fs"}]`, `[{"verb":"write","resource":"fs"}]`
	for _, tt := range []struct{ name, before, after, want string }{
		{"a tool", `{"tools":{"t":{"x-summit-capabilities":` + b + `},"u":{"x-summit-capabilities":` + b + `}}}`, `{"tools":{"t":{"x-summit-capabilities":` + more + `},"u":{"x-summit-capabilities":` + b + `}}}`, "capabilities.tools.t.x-summit-capabilities about t"},
		{"order and spaces", `{"tools":{"t":{"x-summit-capabilities":` + b + `}}}`, `{ "tools" : {"t":{"x-summit-capabilities":[{"resource":"fs","verb":"read"}]}}}`, ""},
		{"what no one reads", `{"logging":{},"tools":{"listChanged":true,"t":{"x-summit-capabilities":` + b + `}}}`, `{"completions":{},"tools":{"t":{"title":"T","x-summit-capabilities":` + b + `}}}`, "capabilities.tools.listChanged, capabilities.tools.t.title"},
		{"an extension", ``, `{"extensions":{"com.example/any":{"version":1,"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`, "capabilities.extensions.com.example/any.tools.t.x-summit-capabilities about t, capabilities.extensions.com.example/any.version"},
		{"ours in experimental", ``, `{"experimental":{"com.example/x-summit-capabilities":{"tools":{"t":` + b + `}}}}`, "capabilities.experimental.com.example/x-summit-capabilities.tools.t about t"},
		{"lists by tool", ``, `{"x-summit-capabilities":{"t":` + b + `}}`, "capabilities.x-summit-capabilities.t about t"},
		{"objects by tool", ``, `{"x-summit-capabilities":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}`, "capabilities.x-summit-capabilities.tools.t.x-summit-capabilities about t"},
		{"a tool or all tools", ``, `{"x-summit-capabilities":{"tools":{"x-summit-capabilities":` + b + `}}}`, "capabilities.x-summit-capabilities.tools.x-summit-capabilities about x-summit-capabilities, capabilities.x-summit-capabilities.tools about all"},
		{"a tool beside tools", `{"x-summit-capabilities":{"tools":{"t":` + b + `}}}`, `{"x-summit-capabilities":{"tools":{"t":` + b + `},"u":[]}}`, "capabilities.x-summit-capabilities.u about u, capabilities.x-summit-capabilities about all"},
		{"null for a block", ``, `{"x-summit-capabilities":{"t":null}}`, "capabilities.x-summit-capabilities.t about t"},
		{"an object for a block", ``, `{"tools":{"t":{"x-summit-capabilities":{}}}}`, "capabilities.tools.t.x-summit-capabilities about t"},
		{"an object without tools", ``, `{"x-summit-capabilities":{}}`, ""},
		{"the only tool", ``, `{"x-summit-capabilities":` + b + `}`, "capabilities.x-summit-capabilities about all"},
		{"a list in place of an object", `{"x-summit-capabilities":{"t":` + b + `}}`, `{"x-summit-capabilities":` + b + `}`, "capabilities.x-summit-capabilities about all, capabilities.x-summit-capabilities.t about t"},
		{"a misspelt name", ``, `{"tools":{"t":{"x-summit-capabilties":` + b + `}}}`, "capabilities.tools.t.x-summit-capabilties about all"},
		{"an empty block", ``, `{"tools":{"t":{"x-summit-capabilities":[]}}}`, "capabilities.tools.t.x-summit-capabilities about t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			statements := func(capabilities string) []byte {
				if s := catalog.HandshakeStatements([]byte(capabilities), nil); s != nil {
					return s
				}
				return []byte("{}")
			}
			all, ok := catalog.DiffHandshakes(statements(tt.before), statements(tt.after))
			var said []string
			for _, d := range all {
				text := strings.Join(d.Path, ".")
				if d.Counts {
					text += " about " + map[bool]string{true: "all", false: d.Tool}[d.Tool == ""]
				}
				said = append(said, text)
			}
			if got := strings.Join(said, ", "); !ok || got != tt.want {
				t.Errorf("they differ in %q, want %q", got, tt.want)
			}
		})
	}
	if s := catalog.HandshakeStatements([]byte(`{"logging":{},"tools":{"listChanged":true},"experimental":{"note":"\u00e9"}}`), nil); s != nil {
		t.Errorf("a handshake that says nothing of tools has the statements %s", s)
	}
	for _, s := range []string{`{"capabilities":{"x-summit-capabilities":1,"x-summit-capabilities":2}`, ``} {
		if d, ok := catalog.DiffHandshakes([]byte(s), []byte("{}")); ok {
			t.Errorf("%s is read as %v", s, fmt.Sprint(d))
		}
	}
}

// The tools that a server offers change after its handshake was let in.
func TestWhatAHandshakeMeansDoesNotDependOnTheTools(t *testing.T) {
	reads := block("read fs")
	for _, tt := range []struct{ name, capabilities, beside, other string }{
		{"a tool with the name tools comes later", "", `{"tools":{"t":` + reads + `}}`, "tools"},
		{"another tool beside the only one", "", reads, "u"},
		{"another tool, and the list is in the capabilities", `{"x-summit-capabilities":` + reads + `}`, "", "u"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var capabilities, beside []byte
			if tt.capabilities != "" {
				capabilities = []byte(tt.capabilities)
			}
			if tt.beside != "" {
				beside = []byte(tt.beside)
			}
			o := switchboard.Offer{Server: "s"}
			o.Capabilities, o.Beside, _ = catalog.ResolveHandshake(capabilities, beside, []string{"t"})
			o.Capabilities, o.Beside = catalog.HandshakeParts(catalog.HandshakeStatements(o.Capabilities, o.Beside))
			o.Tools = [][]byte{[]byte(define("t", own("write fs"))), []byte(define(tt.other, ""))}
			s := catalog.Build([]catalog.Source{{Offer: o}}, nil, taxonomy(t))
			for _, tool := range s.Tools() {
				got := "none"
				for _, c := range tool.Capabilities {
					got = string(c.Verb) + " " + string(c.Resource)
				}
				if want := map[bool]string{true: "read fs", false: "none"}[tool.ID.Name == "t"]; got != want {
					t.Errorf("%s has %s, want %s", tool.ID.Name, got, want)
				}
			}
			if len(s.Tools()) != 2 || len(texts(s.Faults())) > 0 {
				t.Errorf("%d tools, faults %q", len(s.Tools()), texts(s.Faults()))
			}
		})
	}
}

// A drawnHandshake has statements about three tools in five places, of which some are wrong.
type drawnHandshake [5]struct {
	form   int
	values [4]string
}

// change draws what stands in one place.
func (h *drawnHandshake) change(t *rapid.T) {
	place := &h[rapid.IntRange(0, len(h)-1).Draw(t, "place")]
	values := []string{"", "", block("read fs"), block("write fs"), "[]", "null", "{}", "1", `{"x-summit-capabilities":[]}`, `{"x-summit-capabilities":{}}`, `{"x-summit-capabilties":[]}`}
	switch i := rapid.IntRange(0, len(place.values)).Draw(t, "member"); i {
	case len(place.values):
		place.form = rapid.IntRange(0, 3).Draw(t, "form")
	default:
		place.values[i] = rapid.SampledFrom(values).Draw(t, "value")
	}
}

func (h *drawnHandshake) statements() []byte {
	var texts [5]string
	for i, place := range h {
		var tools []string
		for k, name := range []string{"t", "u", "tools", "x-summit-capabilities"} {
			if v := place.values[k]; v != "" {
				tools = append(tools, `"`+name+`":`+v)
			}
		}
		texts[i] = "{" + strings.Join(tools, ",") + "}"
		switch place.form {
		case 1:
			texts[i] = `{"tools":` + texts[i] + `}`
		case 2:
			texts[i] = place.values[0]
		}
	}
	var all []string
	for i, name := range []string{"tools", "x-summit-capabilities", "extensions", "experimental"} {
		if name[0] == 'e' {
			texts[i] = `{"` + []string{"com.example/any", "com.example/x-summit-capabilities", "x-summit-capabilities", "x-summit-capabilties"}[h[i].form] + `":{"tools":` + texts[i] + `}}`
		}
		if texts[i] != "" {
			all = append(all, `"`+name+`":`+texts[i])
		}
	}
	var beside []byte
	if texts[4] != "" {
		beside = []byte(texts[4])
	}
	if s := catalog.HandshakeStatements([]byte("{"+strings.Join(all, ",")+"}"), beside); s != nil {
		return s
	}
	return []byte("{}")
}

func TestEachToolThatMeansSomethingElseIsNamedByTheDifference(t *testing.T) {
	tax := taxonomy(t)
	rapid.Check(t, func(t *rapid.T) {
		var h drawnHandshake
		for range rapid.IntRange(0, 6).Draw(t, "said") {
			h.change(t)
		}
		before := h.statements()
		for range rapid.IntRange(1, 2).Draw(t, "changes") {
			h.change(t)
		}
		after := h.statements()
		labels := func(statements []byte) map[string]string {
			o := switchboard.Offer{Server: "s"}
			o.Capabilities, o.Beside = catalog.HandshakeParts(statements)
			for _, name := range []string{"t", "u", "tools"} {
				o.Tools = append(o.Tools, []byte(define(name, own("execute fs"))))
			}
			all := map[string]string{}
			for _, tool := range catalog.Build([]catalog.Source{{Offer: o}}, nil, tax).Tools() {
				all[tool.ID.Name] = fmt.Sprint(tool.Capabilities, tool.Kept)
			}
			return all
		}
		places, ok := catalog.DiffHandshakes(before, after)
		was, is := labels(before), labels(after)
		if len(labels([]byte("{}"))) != 3 {
			t.Fatal("tools without a handshake are refused")
		}
		for _, name := range []string{"t", "u", "tools"} {
			named := !ok || slices.ContainsFunc(places, func(d catalog.HandshakeDifference) bool { return d.Counts && (d.Tool == "" || d.Tool == name) })
			if was[name] != is[name] && !named {
				t.Fatalf("%s was %q and is %q; the difference of %s and %s is %v", name, was[name], is[name], before, after, places)
			}
		}
	})
}

// Only what a server says about its tools is replaced: the extensions of the protocol that it has are still known.
func TestReplacedStatementsKeepTheOtherCapabilities(t *testing.T) {
	const other = `"completions":{},"tasks":{"list":{}}`
	for _, tt := range []struct{ capabilities, statements, want, beside string }{
		{`{` + other + `,"tools":{"listChanged":true}}`, "", `{` + other + `,"tools":{"listChanged":true}}`, ""},
		{`{"x-summit-capabilities":[],` + other + `}`, "", `{` + other + `}`, ""},
		{`{"x-summit-capabilities":[],` + other + `}`, `{"capabilities":{"x-summit-capabilities":{"tools":{}}},"x-summit-capabilities":[1]}`, `{` + other + `,"x-summit-capabilities":{"tools":{}}}`, "[1]"},
		{`{"x-summit`, "", "", ""},
	} {
		var statements []byte
		if tt.statements != "" {
			statements = []byte(tt.statements)
		}
		if got, beside := catalog.ReplaceStatements([]byte(tt.capabilities), statements); string(got) != tt.want || string(beside) != tt.beside {
			t.Errorf("%s with %s: %s and %s, want %s and %s", tt.capabilities, tt.statements, got, beside, tt.want, tt.beside)
		}
	}
}
