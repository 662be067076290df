package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bytedance/sonic"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	goccy "github.com/goccy/go-json"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// depth returns how deeply objects and arrays are nested in valid JSON.
func depth(text []byte) (deepest int) {
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, dec.StackDepth())
	}
}

// lenient is a message as encoding/json reads it: names in any case, and the last one of duplicates.
type lenient struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type lenientParams struct {
	Name      json.RawMessage `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      json.RawMessage `json:"_meta"`
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		string(smallCall),
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"a\u0062","result":{"a":[1,2.5e3,"\ud83d\ude00",null]}}`,
		`{"jsonrpc":"2.0","id":-1,"error":{"code":-32600,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"name":"safe","Name":"danger"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","paramſ":{"\u006eame":"x","name\u0000":1}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"arguments":{"a":1,"\u0061":2}}}`,
		`[{"jsonrpc":"2.0"}]`, "\uFEFF{}", `{} {}`, `"\ud800"`, `{"a":` + strings.Repeat("[", 70), `{"jsonrpc":"2.0","id":1,"result":{"a":` + strings.Repeat(`[{"b":`, 100) + "1" + strings.Repeat("}]", 100) + `}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		was := bytes.Clone(in)
		m, err := wire.Parse(in)
		loose, looseErr := wire.ParseEnvelope(in)
		if !bytes.Equal(in, was) {
			t.Fatal("the input was modified")
		}

		// Parse must say "not JSON" exactly for text that is not JSON. Batches and other values that are not objects
		// are refused unread.
		if text := bytes.TrimLeft(in, " \t\r\n"); len(text) > 0 && text[0] == '{' {
			tooDeep := depth(in) > wire.MaxDepth
			wellFormed := json.Valid(in) && utf8.Valid(in)
			pairs := jsontext.Value(in).IsValid(jsontext.AllowDuplicateNames(true))
			if got, want := code(err) != wire.CodeParse, wellFormed && pairs && !tooDeep; got != want {
				t.Fatalf("Parse takes %q for JSON: %v, want %v (%v)", in, got, want, err)
			}
			if looseErr == nil && loose.Deep && (!tooDeep || !wellFormed || depth(in) > wire.MaxListDepth) {
				t.Fatalf("ParseEnvelope takes %q for a message with a deep result", in)
			}
			if got, want := code(looseErr) != wire.CodeParse && !loose.Deep, wellFormed && !tooDeep; got && !want || want && !got && pairs {
				t.Fatalf("ParseEnvelope takes %q for JSON: %v, want %v (%v)", in, got, want, looseErr)
			}
		}
		if err != nil {
			return
		}
		if looseErr != nil || show(m) != show(loose) {
			t.Fatalf("Parse reads %s, ParseEnvelope %s, %v", show(m), show(loose), looseErr)
		}
		if !jsontext.Value(in).IsValid() {
			t.Fatalf("%q was accepted, but jsontext refuses it", in)
		}
		agree(t, m, in)
		lookUp(t, &m)

		// The message means the same after another program has re-encoded it in another order.
		var v any
		dec := json.NewDecoder(bytes.NewReader(in))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.Parse(again)
		if err != nil {
			// escaping <, >, & makes an id longer
			if len(m.ID) > wire.MaxIDBytes/6 {
				return
			}
			t.Fatalf("%q was accepted, but re-encoded as %q is not: %v", in, again, err)
		}
		a, _ := wire.IDKey(m.ID)
		b, _ := wire.IDKey(n.ID)
		if m.Kind != n.Kind || m.Method != n.Method || a != b {
			t.Fatalf("%q re-encoded as %q is another message", in, again)
		}
	})
}

// JS-02: independent readers read an accepted message in the same way.
func TestJS02_WhatIsAcceptedSaysTheSameToEveryReader(t *testing.T) {
	accepted := 0
	for _, in := range []string{
		string(smallCall),
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a\u0062\/\ud83d\ude00","arguments":{"n":1.0,"N":-0,"e":1E+2,"deep":[[[{}]]]}}}`,
		"{\"id\" :\t7 ,\n\"params\":{\"name\":\"é\u2028\"}, \"method\":\"tools/call\",\"jsonrpc\":\"2.0\"}",
		`{"jsonrpc":"2.0","id":"a\u0062","method":"m","params":{"_meta":{"x":1e-400},"name":""}}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"m","params":{"name":"\u0000"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"name":"safe","Name":"danger"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","paramſ":{"name":"danger"},"params":{"name":"safe"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"name":"safe","n\u0061me":"danger"}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\",\"params\":{\"name\":\"\xff\"}}",
		`{"jsonrpc":"2.0","id":7,"method":"m","params":{"name":"\ud800"}}`,
	} {
		m, err := wire.Parse([]byte(in))
		if err != nil {
			continue // two readers could read it differently
		}
		accepted++
		agree(t, m, []byte(in))
	}
	if accepted != 5 {
		t.Errorf("%d are accepted, want 5", accepted)
	}
}

// lookUp checks that the recorded positions lead to the same values as reading the message again.
func lookUp(t *testing.T, m *wire.Message) {
	t.Helper()
	same := func(obj []byte, look func(string) ([]byte, bool)) {
		t.Helper()
		for name, value := range wire.Members(obj) {
			if got, ok := look(name); !ok || !bytes.Equal(got, value) {
				t.Fatalf("%q of %s is %s, %v", name, obj, got, ok)
			}
		}
		if got, ok := look("no such name"); ok {
			t.Fatalf("the absent member in %s is %s", obj, got)
		}
	}
	same(m.Params, m.Param)
	meta, _ := wire.Field(m.Params, wire.MemberMeta)
	same(meta, m.Meta)
}

// readers are the JSON readers that servers and clients may use. sonic supports few machines, and falls back to
// encoding/json on others.
var readers = map[string]func([]byte, any) error{
	"encoding/json": json.Unmarshal, "json v2": func(in []byte, to any) error { return jsonv2.Unmarshal(in, to) }, "goccy": goccy.Unmarshal, "sonic": sonic.ConfigStd.Unmarshal,
}

// agree checks that each reader reads the message as we do.
func agree(t *testing.T, m wire.Message, in []byte) {
	t.Helper()
	for reader, unmarshal := range readers {
		var l lenient
		if err := unmarshal(in, &l); err != nil {
			t.Fatalf("%s refuses %q: %v", reader, in, err)
		}
		if l.Version != "2.0" || l.Method != m.Method || !bytes.Equal(l.ID, m.ID) || !bytes.Equal(l.Params, m.Params) {
			t.Fatalf("%q: %s reads %+v", in, reader, l)
		}
		raw, _ := wire.Field(m.Params, "name")
		name, ok := wire.String(raw)
		if !ok {
			continue
		}
		var p struct {
			Name string `json:"name"`
		}
		if err := unmarshal(m.Params, &p); err != nil || p.Name != name {
			t.Fatalf("%q: for %s the name is %q, %v", in, reader, p.Name, err)
		}
	}
	if m.Params == nil {
		return
	}
	var p lenientParams
	if err := json.Unmarshal(m.Params, &p); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]json.RawMessage{"name": p.Name, "arguments": p.Arguments, "_meta": p.Meta} {
		if got, ok := wire.Field(m.Params, name); !bytes.Equal(got, value) || ok != (value != nil) {
			t.Fatalf("%q: %s is %q, and for encoding/json %q", in, name, got, value)
		}
		if text, ok := wire.String(value); ok {
			var s string
			if err := json.Unmarshal(value, &s); err != nil || s != text {
				t.Fatalf("%s is %q, and for encoding/json %q, %v", value, text, s, err)
			}
		}
	}
}

// code returns the code of a *ParseError, and 0 for nil.
func code(err error) int {
	if pe, ok := errors.AsType[*wire.ParseError](err); ok {
		return pe.Code
	}
	return 0
}

func FuzzRewrite(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":{"c":[1.0,"\u0041"]} , "d":null}`, `{ }`, "{\n \"\\u0061\" : 1 }", `{"a":1,"b":2,"c":3}`, `{"a":{"a":1}}`} {
		f.Add([]byte(s), "a", `"new"`, "b")
		f.Add([]byte(s), "z", `{"x":1}`, "a")
	}
	f.Fuzz(func(t *testing.T, obj []byte, set, value, remove string) {
		_ = wire.Rewrite(nil, obj, wire.Edit{Name: set, Value: []byte("1")}, wire.Edit{Name: remove}) // no panic for any bytes
		_ = wire.OneLine(obj)
		_, _ = wire.String(obj)
		_, _ = wire.IDKey(obj)
		value = strings.Trim(value, " \t\r\n") // a raw value has no space around it
		if !jsontext.Value(obj).IsValid() || !bytes.HasPrefix(obj, []byte("{")) || depth(obj) >= wire.MaxDepth ||
			!jsontext.Value(value).IsValid() || !utf8.ValidString(set) || !utf8.ValidString(remove) || set == remove {
			return
		}
		if got := wire.Rewrite(nil, obj); !bytes.Equal(got, obj) {
			t.Fatalf("without edits, %q results from %q", got, obj)
		}
		got := wire.Rewrite([]byte("dst"), obj, wire.Edit{Name: set, Value: []byte(value)}, wire.Edit{Name: remove})
		if !bytes.HasPrefix(got, []byte("dst")) {
			t.Fatalf("dst is gone: %q", got)
		}
		got = got[len("dst"):]
		if !jsontext.Value(got).IsValid() {
			t.Fatalf("%q became %q, which is not JSON", obj, got)
		}
		if v, ok := wire.Field(got, set); !ok || string(v) != value {
			t.Fatalf("%q became %q, where %q is %q", obj, got, set, v)
		}
		if v, ok := wire.Field(got, remove); ok {
			t.Fatalf("%q became %q, where %q is still %q", obj, got, remove, v)
		}
		if a, b := others(obj, set, remove), others(got, set, remove); !slices.Equal(a, b) {
			t.Fatalf("the other members of %q are %q, and in %q %q", obj, a, got, b)
		}
		// Changing it back restores the bytes, unless something was removed.
		if old, ok := wire.Field(obj, set); ok {
			there := wire.Rewrite(nil, obj, wire.Edit{Name: set, Value: []byte(value)})
			if back := wire.Rewrite(nil, there, wire.Edit{Name: set, Value: old}); !bytes.Equal(back, obj) {
				t.Fatalf("%q changed and changed back is %q", obj, back)
			}
		}
		same := wire.Without(nil, obj, func(name string) bool { return name == remove })
		if want := wire.Rewrite(nil, obj, wire.Edit{Name: remove}); !bytes.Equal(same, want) {
			t.Fatalf("Without gives %q, Rewrite %q", same, want)
		}
		var more []wire.Edit
		if _, ok := wire.Field(obj, set); !ok {
			more = append(more, wire.Edit{Name: set, Value: []byte(value)})
		}
		mapped := wire.Map(nil, obj, func(name, was []byte) []byte {
			switch string(name) {
			case set:
				return []byte(value)
			case remove:
				return nil
			}
			return was
		}, more...)
		if !bytes.Equal(mapped, got) {
			t.Fatalf("Map gives %q, Rewrite %q", mapped, got)
		}
		// jsontext sees the same members.
		if a, b := others(obj), reference(t, obj); !slices.Equal(a, b) {
			t.Fatalf("the members of %q are %q, and for jsontext %q", obj, a, b)
		}
	})
}

// others returns the members except those with the given names.
func others(obj []byte, names ...string) (list []string) {
	for name, value := range wire.Members(obj) {
		if !slices.Contains(names, name) {
			list = append(list, name+"="+string(value))
		}
	}
	return list
}

// reference returns the members that jsontext reads.
func reference(t *testing.T, obj []byte) (list []string) {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(obj))
	if _, err := dec.ReadToken(); err != nil {
		t.Fatal(err)
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		s := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s+"="+string(value))
	}
	return list
}
