package contract

import (
	"encoding/json"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Whatever a client sends, the moved arguments are the client's: each argument under the name in the map, with its
// value byte for byte, and in addition only constants and defaults.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{"arguments":{"query":"x"}}`, `{"arguments":{"\u0071uery":1.50,"b":[{}],"country":null}}`, `{"name":"x"}`, `{"arguments":[]}`,
		`{ "arguments" : { "b" : 1e2 , "a" : "\u0041" } , "_meta" : {} }`, `{"arguments":{"a":1,"safe":false,"num":2}}`, `{"arguments":{}}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	define := func(input string) []byte { return []byte(`{"name":"x","inputSchema":` + input + `}`) }
	here := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "x"}, Definition: define(`{"properties":{"query":{},"a":{},"b":{},"country":{}}}`)}
	there := &switchboard.Tool{ID: switchboard.ToolID{Server: "b", Name: "x"}, Definition: define(`{"properties":{"q":{},"a":{},"b":{},"safe":{},"num":{}}}`)}
	m := newMove(&switchboard.DeclaredEquivalent{
		Map: map[string]string{"query": "q", "a": "b", "b": "a"}, Constants: map[string]json.RawMessage{"safe": []byte("true")},
		Defaults: map[string]json.RawMessage{"num": []byte("10"), "q": []byte(`"all"`)}, Drop: []string{"country"},
	}, here, there)
	if m.faults != nil {
		f.Fatal(m.faults)
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		msg, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + string(params) + `}`))
		if err != nil || len(params) == 0 || params[0] != '{' {
			return
		}
		params = msg.Params
		got, err := m.moveParams(params)
		if err != nil {
			return
		}
		if _, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + string(got) + `}`)); err != nil {
			t.Fatalf("%s are not params: %v", got, err)
		}
		want := map[string]string{"safe": "true", "num": "10", "q": `"all"`}
		args, _ := wire.Field(params, "arguments")
		for name, value := range wire.Members(args) {
			if to := m.declared.Map[name]; to != "" {
				want[to] = string(value)
			} else if name != "country" {
				t.Fatalf("%s has an unknown argument", params)
			}
		}
		moved, _ := wire.Field(got, "arguments")
		n := 0
		for name, value := range wire.Members(moved) {
			if want[name] != string(value) {
				t.Fatalf("%s became %s: %s is %s", params, got, name, value)
			}
			n++
		}
		if n != len(want) {
			t.Fatalf("%s became %s", params, got)
		}
		for name, value := range wire.Members(params) {
			if again, ok := wire.Field(got, name); name != "arguments" && (!ok || string(again) != string(value)) {
				t.Fatalf("%s became %s", params, got)
			}
		}
	})
}
