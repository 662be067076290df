// Package law marks the tests of the laws in the design. If such a test fails, the runner
// of `make test` ends the whole run: no later result can make the build good.
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

// These laws have tests.
const (
	Deterministic    Law = 1
	OneDecision      Law = 3
	OnlyNarrower     Law = 4
	NeverTwice       Law = 6
	NothingLeaks     Law = 8
	NothingAckedLost Law = 9
)

const (
	// Attr is the attribute of a test of a law. Its value is the number of the law.
	Attr = "law"
	// SeedAttr is the attribute of a test that uses random numbers. Its value is the seed.
	SeedAttr = "seed"
	// SeedEnv is an environment variable. If it is set, Seed returns its value.
	SeedEnv = "SWITCHBOARD_TEST_SEED"
)

// Hold marks the test and its subtests as tests of the law.
func Hold(t testing.TB, law Law) {
	t.Helper()
	t.Attr(Attr, fmt.Sprint(int(law)))
}

// Seed returns a seed for random numbers. The seed is new each time, unless SeedEnv is set.
// If the test fails, the runner prints the seed.
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
