package platform_test

import (
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/platform"
)

// The page has a section for each system; what status says of the system is in it.
func TestThePageSaysWhatIsMissingOnEachSystem(t *testing.T) {
	text, err := os.ReadFile("../../docs/platforms.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		sections[heading] = body
	}
	for system, heading := range map[string]string{"linux": "Linux", "darwin": "macOS and FreeBSD", "freebsd": "macOS and FreeBSD", "windows": "Windows"} {
		body, ok := sections[heading]
		if !ok {
			t.Errorf("the page has no section %q", heading)
		}
		for _, l := range platform.Lacks(system) {
			if row := "| " + l.Feature + " | " + l.Effect + " |"; !strings.Contains(strings.ReplaceAll(body, "`", `"`), row) {
				t.Errorf("%s: the page lacks the row\n%s", system, row)
			}
		}
		if never := strings.Contains(body, "built and vetted, and never run"); never == platform.IsTested(system) {
			t.Errorf("%s: the page says that it was never run: %v", system, never)
		}
	}
}

func TestLinuxLacksNothingAndEveryOtherSystemSomething(t *testing.T) {
	for system, tested := range map[string]bool{"linux": true, "darwin": false, "freebsd": false, "windows": false} {
		if lacks := platform.Lacks(system); (len(lacks) == 0) != tested || platform.IsTested(system) != tested {
			t.Errorf("%s: tested %v, lacks %+v", system, platform.IsTested(system), lacks)
		}
	}
}
