package config

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
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
		if got := nearest(tt.in, known); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestDistanceIsThatOfEdits(t *testing.T) {
	word := rapid.StringMatching(`[ab]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) {
			t.Errorf("distance(%q, %q) depends on the order", a, b)
		}
		if (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Errorf("distance(%q, %q) = %d", a, b, d)
		}
		i := rapid.IntRange(0, len(a)).Draw(t, "i")
		if d := distance(a, a[:i]+"c"+a[i:]); d != 1 {
			t.Errorf("one letter more is %d away", d)
		}
	})
}

// What is written in quotes is read as the same text.
func TestQuotedTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		sink := &sink{}
		v, ok := readYAML("x", []byte("a: "+quote(s)), sink)
		if !ok || len(v.pairs) != 1 || v.pairs[0].val.kind != textKind || v.pairs[0].val.text != s {
			t.Fatalf("%q was written as %s and read as %+v %v", s, quote(s), v.node, sink.faults)
		}
	})
}
