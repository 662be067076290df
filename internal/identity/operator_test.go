package identity_test

import (
	"net/http"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
)

func TestOnlyMarkedRequestsAreOfTheOperator(t *testing.T) {
	o := identity.NewOperator()
	marked, other := http.Header{}, http.Header{}
	o.Mark(marked)
	identity.NewOperator().Mark(other)
	if err := o.Check(marked); err != nil {
		t.Error(err)
	}
	for name, head := range map[string]http.Header{"no mark": {}, "the mark of another process": other} {
		if o.Check(head) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	var zero identity.Operator
	empty := http.Header{}
	zero.Mark(empty)
	if zero.Check(empty) == nil {
		t.Error("the zero Operator recognizes its empty mark")
	}
}
