package price_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/budget/price"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestThePriceOfACall(t *testing.T) {
	perText := switchboard.Price{Call: 1000, Each: []switchboard.ElementPrice{{Pointer: "/texts", Micros: 20}}}
	nested := switchboard.Price{Each: []switchboard.ElementPrice{{Pointer: "/batch/1/a~1b", Micros: 7}}}
	const refused = -1
	for _, tt := range []struct {
		name   string
		price  *switchboard.Price
		params string
		want   switchboard.Micros
	}{
		{"no price", nil, `{}`, 0},
		{"of a call", &switchboard.Price{Call: 5}, `{"name":"x"}`, 5},
		{"of each element", &perText, `{"name":"x","arguments":{"texts":["a",["b","c"],{"d":1}]}}`, 1060},
		{"an empty list", &perText, `{"arguments":{"texts":[ ]}}`, 1000},
		{"no list", &perText, `{"arguments":{}}`, 1000},
		{"no arguments", &perText, `{"name":"x"}`, 1000},
		{"null in the place of a list", &perText, `{"arguments":{"texts":null}}`, 1000},
		{"text in the place of a list", &perText, `{"arguments":{"texts":"a"}}`, refused},
		{"an object in the place of a list", &perText, `{"arguments":{"texts":{"0":"a"}}}`, refused},
		{"a number in the place of a list", &perText, `{"arguments":{"texts":3}}`, refused},
		{"arguments that are no object", &perText, `{"arguments":"a"}`, refused},
		{"a list in a list", &nested, `{"arguments":{"batch":[0,{"a/b":[1,2]}]}}`, 14},
		{"a list in a list that ends before", &nested, `{"arguments":{"batch":[0]}}`, 0},
		{"a list in a text", &nested, `{"arguments":{"batch":"a"}}`, refused},
		{"the most", &switchboard.Price{Call: 1, Each: perText.Each, Most: 41}, `{"arguments":{"texts":[1,2]}}`, 41},
		{"above the most", &switchboard.Price{Call: 2, Each: perText.Each, Most: 41}, `{"arguments":{"texts":[1,2]}}`, refused},
		{"reported by the server", &switchboard.Price{Call: 1, Most: 41, Reported: true}, `{}`, 41},
		{"reported, and above the most", &switchboard.Price{Call: 42, Most: 41, Reported: true}, `{}`, refused},
		{"2^50", &switchboard.Price{Call: 1<<50 - 20, Each: perText.Each}, `{"arguments":{"texts":[1]}}`, 1 << 50},
		{"above 2^50", &switchboard.Price{Call: 1<<50 - 20, Each: perText.Each}, `{"arguments":{"texts":[1,2]}}`, refused},
		{"a product above 2^50", &switchboard.Price{Each: []switchboard.ElementPrice{{Pointer: "/texts", Micros: 1 << 50}}}, `{"arguments":{"texts":[1,2]}}`, refused},
		{"a product that int64 cannot hold", &switchboard.Price{Each: []switchboard.ElementPrice{{Pointer: "/texts", Micros: 1 << 50}}}, `{"arguments":{"texts":[` + strings.Repeat("1,", 1<<14-1) + `1]}}`, refused},
	} {
		got, err := price.Of(&switchboard.Tool{Price: tt.price}, []byte(tt.params))
		refusal, _ := errors.AsType[*switchboard.Error](err)
		switch {
		case tt.want == refused && (refusal == nil || refusal.Code != switchboard.CodeNotPriced || !refusal.Unsent):
			t.Errorf("%s: got %v, %v; want SB-COST-002", tt.name, got, err)
		case tt.want != refused && (err != nil || got != tt.want):
			t.Errorf("%s: got %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}
