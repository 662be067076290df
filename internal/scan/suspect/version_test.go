package suspect

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// Findings are kept with the pins of definitions. They are found again only if Version is higher.
func TestAChangeOfTheRulesHasAnotherVersion(t *testing.T) {
	const known = 1
	const digest = "f3c00c4bb6f69cc6"
	if got := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%v %v", rules, lexicon)))[:16]; Version != known || got != digest {
		t.Errorf("the rules have version %d and digest %s, and the test knows %d and %s: increase Version, and write both here", Version, got, known, digest)
	}
}
