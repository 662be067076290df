package served_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cases are the kinds of abuse cases, and how many there are of each.
var cases = map[string]int{
	"AD": 2, "AZ": 15, "SE": 6, "CD": 12, "CO": 8, "SS": 7, "OR": 7, "TP": 12, "PI": 5, "JS": 13, "RX": 11, "LK": 6, "ST": 7, "PO": 10, "RQ": 1, "AP": 12, "BU": 10, "CA": 5, "AU": 5, "UI": 1, "AR": 3, "PG": 8,
}

var (
	caseRow    = regexp.MustCompile(`(?m)^\| ([A-Z]{2})-(\d\d) \| ([^|]+) \| ([^|]+) \|$`)
	testNamed  = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	caseInName = regexp.MustCompile(`^Test(AD|AZ|SE|CD|CO|SS|OR|TP|PI|JS|RX|LK|ST|PO|RQ|AP|BU|CA|AU|UI|AR|PG)(\d\d)`)
)

// The table of abuse cases in docs/threats.md has a row for each case, names tests that there are, and leaves out none that has a case in its name.
func TestTheTableOfAbuseCasesIsComplete(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs/threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, top := range []string{"internal", "test", "cmd", "policies"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
				have[f[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := map[string][]string{} // of a case, the tests
	seen := map[string]int{}
	for _, row := range caseRow.FindAllStringSubmatch(string(page), -1) {
		seen[row[1]]++
		for _, name := range testNamed.FindAllStringSubmatch(row[4], -1) {
			rows[row[1]+row[2]] = append(rows[row[1]+row[2]], name[1])
			if !have[name[1]] {
				t.Errorf("%s-%s: there is no test %s", row[1], row[2], name[1])
			}
		}
	}
	for kind, n := range cases {
		if seen[kind] != n {
			t.Errorf("%s has %d rows, want %d", kind, seen[kind], n)
		}
	}
	for name := range have {
		if c := caseInName.FindStringSubmatch(name); c != nil && !slices.Contains(rows[c[1]+c[2]], name) {
			t.Errorf("%s-%s: its row does not name %s", c[1], c[2], name)
		}
	}
}
