package redact

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// Two spellings have the same normal form exactly if they are the same number.
func TestEqualNumbersHaveTheSameNormalFormAndOthersDoNot(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 16))
	spell := func() string {
		var b strings.Builder
		if r.IntN(3) == 0 {
			b.WriteByte('-')
		}
		for range 1 + r.IntN(3) {
			b.WriteByte("0012"[r.IntN(4)])
		}
		if r.IntN(2) == 0 {
			b.WriteByte('.')
			for range 1 + r.IntN(3) {
				b.WriteByte("0012"[r.IntN(4)])
			}
		}
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, "%c%d", "eE"[r.IntN(2)], r.IntN(7)-3)
		}
		return b.String()
	}
	same := 0
	for range 200_000 {
		a, b := spell(), spell()
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		n, ok := appendNormal(nil, a)
		m, also := appendNormal(nil, b)
		if !ok || !also {
			t.Fatalf("%s or %s is not a number", a, b)
		}
		if equal := x.Cmp(y) == 0; equal != (string(n) == string(m)) {
			t.Fatalf("%s is %s, and %s is %s", a, n, b, m)
		} else if equal {
			same++
		}
	}
	if same < 1000 {
		t.Errorf("only %d pairs were equal", same)
	}
	for _, none := range []string{"", "-", ".", "x", "1x", "1e", "1e99999999999", "1/2", "0x10", "--1", "1.2.3", "2026-11-23"} {
		if n, ok := appendNormal(nil, none); ok {
			t.Errorf("%q is the number %s", none, n)
		}
	}
}

// Thousands of numbers cost time in proportion to their length, whatever their exponents.
func BenchmarkNormal(b *testing.B) {
	for _, spelt := range []string{"52000.50", "1e9999", "-1234567890123456789012345678901234567890"} {
		b.Run(spelt, func(b *testing.B) {
			b.ReportAllocs()
			var buf [64]byte
			for b.Loop() {
				appendNormal(buf[:0], spelt)
			}
		})
	}
}
