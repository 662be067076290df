package document

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

func TestNearestName(t *testing.T) {
	known := []string{"transport", "url", "headers", "trust"}
	for _, tt := range []struct{ in, want string }{
		{"tranport", "transport"},
		{"transprot", "transport"},
		{"Transport", "transport"},
		{"ulr", "url"},
		{"header", "headers"},
		{"trsut", "trust"},
		{"x", ""},
		{"command", ""},
		{"", ""},
		{strings.Repeat("transport", 100), ""},
	} {
		if got := Nearest(tt.in, known); got != tt.want {
			t.Errorf("Nearest(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestEditDistanceAgreesWithItsDefinition(t *testing.T) {
	word := rapid.StringMatching(`[ab]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := editDistance(a, b)
		if d != editDistance(b, a) {
			t.Errorf("editDistance(%q, %q) depends on the order", a, b)
		}
		if (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Errorf("editDistance(%q, %q) = %d", a, b, d)
		}
		i := rapid.IntRange(0, len(a)).Draw(t, "i")
		if d := editDistance(a, a[:i]+"c"+a[i:]); d != 1 {
			t.Errorf("the distance of one inserted letter is %d", d)
		}
	})
}

// A text that quoteYAML writes is read back unchanged.
func TestQuotedTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		sink := &Sink{}
		v, ok := ReadYAML("x", []byte("a: "+Quote(s)), sink)
		if !ok || len(v.Pairs) != 1 || v.Pairs[0].Value.Kind != KindText || v.Pairs[0].Value.Text != s {
			t.Fatalf("%q was written as %s and read as %+v %v", s, Quote(s), v.Node, sink.Faults)
		}
	})
}

// A tenant's policy settings are written in the canonical form, because digests are computed from it.
func TestATenantsPolicySettingsAreCanonicalJSON(t *testing.T) {
	var draw func(t *rapid.T, depth int) string
	draw = func(t *rapid.T, depth int) string {
		switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case depth > 0 && kind == 0:
			var items []string
			for range rapid.IntRange(0, 4).Draw(t, "n") {
				items = append(items, draw(t, depth-1))
			}
			return "[" + strings.Join(items, ", ") + "]"
		case depth > 0 && kind == 1:
			return drawnMap(t, func() string { return draw(t, depth-1) })
		case kind == 2:
			return rapid.SampledFrom([]string{"true", "false", "0", "-1", "0.50", "1234567890123456789", "-0.0"}).Draw(t, "scalar")
		}
		return Quote(rapid.String().Draw(t, "text"))
	}
	rapid.Check(t, func(t *rapid.T) {
		said := drawnMap(t, func() string { return draw(t, 3) })
		sink := &Sink{}
		v, ok := ReadYAML("x", []byte(said), sink)
		got := v.ReadJSONMap()
		want, err := canonical.Append(nil, got)
		if !ok || len(sink.Faults) > 0 || err != nil || string(want) != string(got) {
			t.Fatalf("%s was read as %s, want %s (%v, %v)", said, got, want, err, sink.Faults)
		}
	})
}

// drawnMap draws a map with the values that value returns.
func drawnMap(t *rapid.T, value func() string) string {
	var pairs []string
	for _, k := range rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 0, 4, rapid.ID).Draw(t, "keys") {
		pairs = append(pairs, Quote(k)+": "+value())
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

func TestJSONFaultsNameTheirPositionAndRepeatNothing(t *testing.T) {
	for text, want := range map[string]string{
		"{\"a\": 1 // end\n}":                             "",
		"[1, 2,] // the last comment":                     "",
		"/* [[[ */ {\"a\": \"]\\\"}\"}":                   "",
		"{\"a\": 1} x":                                    "x:1:10: something follows the JSON value; a file holds one",
		"{\n  \"ä\": 1 /* never closed":                   "x:2:10: the comment is not closed",
		"{\"a\": secret}":                                 "x:1:7: this is not valid JSON",
		"{\"a\":\n1":                                      "x:2:2: the JSON ends too early; a bracket or quote is missing",
		"{\"a\": 1,\n \"a\": 2}":                          "x:2:2: a key stands here twice",
		"[\"\\ud800\"]":                                   "x:1:2: this is not valid JSON",
		"[\"\xff\"]":                                      "x:1:3: this is not valid JSON",
		"/*\"*/ " + strings.Repeat("[", 65):               "x:1:71: objects and lists stand within each other too deep",
		"[" + strings.Repeat("[", 1<<20):                  "x:1:65: objects and lists stand within each other too deep",
		strings.Repeat("[", 64) + strings.Repeat("]", 64): "",
	} {
		sink := &Sink{}
		_, ok := ReadJSON("x", []byte(text), sink)
		got := ""
		if len(sink.Faults) > 0 {
			got = sink.Faults[0].String()
		}
		if got != want || ok != (want == "") {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
}
