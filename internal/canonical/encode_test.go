package canonical_test

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

func TestEqualValuesHaveEqualDigests(t *testing.T) {
	type pair struct {
		B int
		A map[string]int
	}
	one, other := pair{1, map[string]int{"x": 1, "y": 2}}, pair{1, map[string]int{"y": 2, "x": 1}}
	if got, want := string(canonical.Encode(one)), `{"B":1,"A":{"x":1,"y":2}}`; got != want {
		t.Errorf("Encode = %s, want %s", got, want)
	}
	if canonical.SumOf(one) != canonical.SumOf(other) {
		t.Error("equal values have different digests")
	}
	if other.B = 2; canonical.SumOf(one) == canonical.SumOf(other) {
		t.Error("different values have equal digests")
	}
}
