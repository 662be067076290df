// Package law marks the tests that hold the laws of the design. The runner of `make test`
// ends the whole run as soon as one of them fails, since no later result can make the
// build good.
package law

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// A Law is the number of a law in the design.
type Law int

// The laws whose broken claim ends a run.
const (
	Deterministic    Law = 1
	OneDecision      Law = 3
	OnlyNarrower     Law = 4
	NeverTwice       Law = 6
	NothingLeaks     Law = 8
	NothingAckedLost Law = 9
)

const (
	// Attr is the attribute of a test that holds a law. Its value is the number.
	Attr = "law"
	// SeedAttr is the attribute of a test that draws at random. Its value is the seed.
	SeedAttr = "seed"
	// SeedEnv is the variable that makes Seed return the same seed again.
	SeedEnv = "SWITCHBOARD_TEST_SEED"
)

// Hold marks the test and its subtests as claims about the law.
func Hold(t testing.TB, law Law) {
	t.Helper()
	t.Attr(Attr, fmt.Sprint(int(law)))
}

// Seed returns a seed for what the test draws at random, and has the runner print it if
// the test fails. It is a new seed each time, or that of SeedEnv.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if again := os.Getenv(SeedEnv); again != "" {
		var err error
		if seed, err = strconv.ParseUint(again, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedEnv, err)
		}
	}
	t.Attr(SeedAttr, fmt.Sprint(seed))
	return seed
}
