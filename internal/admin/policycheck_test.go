package admin

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy/author"
)

func TestAValueThatIsTooLargeIsNotShown(t *testing.T) {
	for size, shown := range map[int]bool{10: true, maxRuleValue - 2: true, maxRuleValue: false} {
		v := author.RuleValue{Value: strings.Repeat("x", size)}
		if shortenValue(&v); (v.Value != nil) != shown || (v.Error == "") != shown {
			t.Errorf("%d bytes: %.40v %s", size, v.Value, v.Error)
		}
	}
}
