package switchboard_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestADigestNamesWhatItLeavesOut(t *testing.T) {
	digits := strings.Repeat("0123456789abcdef", 4)
	for _, text := range []string{"d1:" + digits, "d2:build:" + digits, "d2:_build,example.com/time:" + digits} {
		if d, err := ParseDefinitionDigest(text); err != nil || d.String() != text || d.Hex != digits {
			t.Errorf("%s is taken apart as %+v, %v", text, d, err)
		}
	}
	if _, err := ParseDefinitionDigest("d3:" + digits); !errors.Is(err, ErrScheme) {
		t.Errorf("a later scheme: %v", err)
	}
	for name, text := range map[string]string{
		"no scheme":           digits,
		"too few digits":      "d1:" + digits[1:],
		"capital letters":     "d1:" + strings.ToUpper(digits),
		"nothing left out":    "d2:" + digits,
		"an empty key":        "d2::" + digits,
		"keys in disorder":    "d2:time,build:" + digits,
		"a key twice":         "d2:build,build:" + digits,
		"a space in a key":    "d2:my build:" + digits,
		"a block":             "d2:x-summit-capabilities:" + digits,
		"a block of a prefix": "d2:org.example/x-summit-capabilities:" + digits,
		"a misspelt block":    "d2:x-sumit-capabilities:" + digits,
		"a block in capitals": "d2:org.example/X-Summit-Capabilities:" + digits,
		"a long key":          "d2:" + strings.Repeat("k", 129) + ":" + digits,
		"too many keys":       "d2:a,b,c,d,e,f,g,h,i:" + digits,
	} {
		if d, err := ParseDefinitionDigest(text); err == nil {
			t.Errorf("%s: %s is a digest: %+v", name, text, d)
		}
	}
}
