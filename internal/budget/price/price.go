// Package price computes what one call costs: the price of its tool, applied to the arguments. All amounts are whole
// numbers, and a call without an exact price is refused.
package price

import (
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Of returns what a call of the tool costs with these params, as they are sent. If the server reports the cost, it is the most
// that the server may report.
//
// A list that is absent or null has no elements. Where something else than a list stands, and if the price is above the most that a
// call may cost, the call cannot be priced. The error is then a *switchboard.Error with the code SB-COST-002.
func Of(t *switchboard.Tool, params []byte) (switchboard.Micros, error) {
	p := t.Price
	if p == nil {
		return 0, nil
	}
	sum := p.Call
	if len(p.Each) > 0 {
		args, _ := wire.Field(params, "arguments")
		for _, e := range p.Each {
			n, err := countElements(args, e.Pointer)
			if err != nil {
				return 0, err
			}
			price, ok := e.Micros.Times(n)
			if ok {
				sum, ok = sum.Add(price)
			}
			if !ok {
				return 0, notPriced("its price would be more than %v", switchboard.MaxMicros)
			}
		}
	}
	switch {
	case p.Most > 0 && sum > p.Most:
		return 0, notPriced("its price would be %v, and one call may cost at most %v", sum, p.Most)
	case p.Reported:
		return p.Most, nil
	}
	return sum, nil
}

func notPriced(format string, args ...any) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeNotPriced, "the call was not sent, because "+format, args...)
	e.Unsent = true
	return e
}

var unescapeName = strings.NewReplacer("~1", "/", "~0", "~")

// countElements returns how many elements the list has that the pointer leads to.
func countElements(value []byte, pointer string) (n int, err error) {
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if isAbsent(value) {
			return 0, nil
		}
		name = unescapeName.Replace(name)
		switch value[0] {
		case '{':
			value, _ = wire.Field(value, name)
		case '[':
			value = elementAt(value, name)
		default:
			return 0, notPriced("its price depends on the elements of the list %s in its arguments, and no list stands there", pointer)
		}
	}
	switch {
	case isAbsent(value):
		return 0, nil
	case value[0] != '[':
		return 0, notPriced("its price depends on the elements of the list %s in its arguments, and no list stands there", pointer)
	}
	for range wire.Elements(value) {
		n++
	}
	return n, nil
}

func isAbsent(value []byte) bool { return len(value) == 0 || value[0] == 'n' }

// elementAt returns the element of a list, or nil.
func elementAt(list []byte, index string) []byte {
	at, err := strconv.Atoi(index)
	if err != nil || strconv.Itoa(at) != index {
		return nil
	}
	i := 0
	for element := range wire.Elements(list) {
		if i == at {
			return element
		}
		i++
	}
	return nil
}
