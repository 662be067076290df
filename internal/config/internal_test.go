package config

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

func TestNearest(t *testing.T) {
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
		if got := nearestName(tt.in, known); got != tt.want {
			t.Errorf("nearestName(%q) = %q, want %q", tt.in, got, tt.want)
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
		sink := &sink{}
		v, ok := readYAML("x", []byte("a: "+quoteYAML(s)), sink)
		if !ok || len(v.pairs) != 1 || v.pairs[0].val.kind != textKind || v.pairs[0].val.text != s {
			t.Fatalf("%q was written as %s and read as %+v %v", s, quoteYAML(s), v.syntaxNode, sink.faults)
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
		return quoteYAML(rapid.String().Draw(t, "text"))
	}
	rapid.Check(t, func(t *rapid.T) {
		said := drawnMap(t, func() string { return draw(t, 3) })
		sink := &sink{}
		v, ok := readYAML("x", []byte(said), sink)
		got := v.readJSONMap()
		want, err := canonical.Append(nil, got)
		if !ok || len(sink.faults) > 0 || err != nil || string(want) != string(got) {
			t.Fatalf("%s was read as %s, want %s (%v, %v)", said, got, want, err, sink.faults)
		}
	})
}

// drawnMap draws a map with the values that value returns.
func drawnMap(t *rapid.T, value func() string) string {
	var pairs []string
	for _, k := range rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 0, 4, rapid.ID).Draw(t, "keys") {
		pairs = append(pairs, quoteYAML(k)+": "+value())
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}
