package switchboard

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestEveryCodeHasASectionOfItsOwnAndSaysWhetherToRetry(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors/README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`Code = "(SB-[A-Z]+-[0-9]{3})"`).FindAllStringSubmatch(string(source), -1)
	if len(codes) != len(retryByCode) {
		t.Errorf("there are %d codes, but retries has %d", len(codes), len(retryByCode))
	}
	for _, m := range codes {
		if n := strings.Count(string(page), "\n## "+m[1]+" "); n != 1 {
			t.Errorf("docs/errors/README.md has %d sections for %s, want 1", n, m[1])
		}
		if Code(m[1]).Retry() == "" {
			t.Errorf("%s does not say whether to retry", m[1])
		}
	}
	if n := strings.Count(string(page), "\n## SB-"); n != len(codes) {
		t.Errorf("docs/errors/README.md has %d sections; there are %d codes", n, len(codes))
	}
}
