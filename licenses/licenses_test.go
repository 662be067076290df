package licenses_test

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/summit-switchboard/switchboard/licenses"
	"github.com/summit-switchboard/switchboard/licenses/linked"
)

var update = flag.Bool("update", false, "write the file with the licenses")

// accepted are the licenses that something in the program may have, besides those that package linked recognizes: they ask for no more.
var accepted = append([]string{
	"SunPro",   // of the mathematics in C that OPA's opa.wasm has
	"blessing", // SQLite is in the public domain
}, linked.Recognized...)

func TestTheLicensesOfEverythingThatIsLinkedAreAcceptedAndInTheFile(t *testing.T) {
	works, err := linked.Find(t.Context(), "..")
	if errors.Is(err, linked.ErrAbsent) {
		t.Skipf("skipped: the licenses of everything that is linked (%v)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range works {
		for _, id := range w.IDs() {
			if !slices.Contains(accepted, id) {
				t.Errorf("%s %s is under %s, which is not accepted", w.Name, w.Version, id)
			}
		}
	}
	license, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	want := linked.Render(string(license), works)
	if *update {
		if err := os.WriteFile("THIRD-PARTY-LICENSES", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if licenses.Text != want {
		t.Errorf("what is linked has changed: go test ./licenses -update writes the file; read the differences:\n%s",
			diff.Diff("THIRD-PARTY-LICENSES", []byte(licenses.Text), "as it should be", []byte(want)))
	}
}

// The digest is that of https://www.apache.org/licenses/LICENSE-2.0.txt.
func TestTheLicenseIsTheOfficialTextOfApache2(t *testing.T) {
	text, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30" {
		t.Errorf("LICENSE has the digest %s", got)
	}
}
