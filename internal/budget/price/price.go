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
	return OfElements(t, CountElements(t, params))
}

// NoList is the number of elements of something that is not a list.
const NoList = -1

// CountElements returns how many elements the lists have that the tool's price depends on, by their pointers. It is nil if the price
// depends on none.
func CountElements(t *switchboard.Tool, params []byte) map[string]int {
	if t.Price == nil || len(t.Price.Each) == 0 {
		return nil
	}
	args, _ := wire.Field(params, "arguments")
	all := map[string]int{}
	for _, e := range t.Price.Each {
		all[e.Pointer] = countElements(args, e.Pointer)
	}
	return all
}

// OfElements is Of for arguments with these numbers of elements. A number that is missing counts as NoList.
func OfElements(t *switchboard.Tool, elements map[string]int) (switchboard.Micros, error) {
	p := t.Price
	if p == nil {
		return 0, nil
	}
	sum := p.Call
	for _, e := range p.Each {
		n, ok := elements[e.Pointer]
		if !ok || n < 0 {
			return 0, notPriced("its price depends on the elements of the list %s in its arguments, and no list stands there", e.Pointer)
		}
		price, ok := e.Micros.Times(n)
		if ok {
			sum, ok = sum.Add(price)
		}
		if !ok {
			return 0, notPriced("its price would be more than %v", switchboard.MaxMicros)
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

// countElements returns how many elements the list has that the pointer leads to, or NoList.
func countElements(value []byte, pointer string) (n int) {
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if isAbsent(value) {
			return 0
		}
		name = unescapeName.Replace(name)
		switch value[0] {
		case '{':
			value, _ = wire.Field(value, name)
		case '[':
			value = elementAt(value, name)
		default:
			return NoList
		}
	}
	switch {
	case isAbsent(value):
		return 0
	case value[0] != '[':
		return NoList
	}
	for range wire.Elements(value) {
		n++
	}
	return n
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
