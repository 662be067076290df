package switchboard

import (
	"fmt"
	"strconv"
	"strings"
)

// Micros is an amount of money, in millionths of the installation's currency.
type Micros int64

// decimals is the number of decimal places that Micros have.
const decimals = 6

// ParseMicros returns the amount that s writes in plain decimal digits, such as 10, 2.50 or 0.000001. The result is exact: no
// floating point is used, and an amount that cannot be exact is an error.
func ParseMicros(s string) (Micros, error) {
	whole, part, dot := strings.Cut(s, ".")
	switch {
	case whole == "" || strings.Trim(whole+part, "0123456789") != "" || dot && part == "" || len(whole) > 1 && whole[0] == '0':
		return 0, fmt.Errorf("write the amount in plain decimal digits, such as 10, 2.50 or 0.000001")
	case len(part) > decimals:
		return 0, fmt.Errorf("an amount has at most %d decimal places", decimals)
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", decimals-len(part)), 10, 64)
	if err != nil || Micros(n) > MaxMicros {
		return 0, fmt.Errorf("the largest amount is %v", MaxMicros)
	}
	return Micros(n), nil
}

// String returns the amount as ParseMicros reads it, with at least two decimal places. A negative amount has a minus sign.
func (m Micros) String() string {
	sign, n := "", uint64(m) //nolint:gosec // the sign is handled in the next lines
	if m < 0 {
		sign, n = "-", -n
	}
	part := strings.TrimRight(fmt.Sprintf("%06d", n%1_000_000), "0")
	return fmt.Sprintf("%s%d.%s", sign, n/1_000_000, part+strings.Repeat("0", max(0, 2-len(part))))
}

// Add returns the sum of two amounts from 0 to MaxMicros. ok is false if the sum is larger.
func (m Micros) Add(n Micros) (sum Micros, ok bool) { return m + n, m+n <= MaxMicros }

// Times returns the amount, from 0 to MaxMicros, n times. ok is false if the product is larger.
func (m Micros) Times(n int) (product Micros, ok bool) {
	if m != 0 && Micros(n) > MaxMicros/m {
		return 0, false
	}
	return m * Micros(n), true
}

// MaxMicros is the largest price, limit and sum.
const MaxMicros Micros = 1 << 50

// A Price is what calls of a tool cost, as configured. The zero Price costs nothing.
type Price struct {
	Call Micros `json:",omitzero"` // of each call

	// Each are what the elements of arguments cost in addition, sorted by pointer.
	Each []ElementPrice `json:",omitempty"`

	// Most is the most that one call may cost; 0 means no bound.
	Most Micros `json:",omitzero"`

	// Reported says that the server states the cost in its result, up to Most.
	Reported bool `json:",omitzero"`
}

// An ElementPrice is what each element of one argument costs.
type ElementPrice struct {
	Pointer string // a JSON Pointer (RFC 6901) into the arguments, which leads to a list
	Micros  Micros
}

// Free reports whether calls cost nothing.
func (p *Price) Free() bool { return p.Call == 0 && len(p.Each) == 0 && p.Most == 0 }

// A Yes is a person's approval of one call. It may be used once.
type Yes struct {
	Request  string // the id of the request that was approved
	Standing string // the id of the standing yes; "" if a person has approved this one call

	// Memory belongs to package approval.
	Memory any
}
