package standing

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

func mustParse(t testing.TB, text string) ArgumentTests {
	t.Helper()
	tests, err := ParseTests([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// AP-11: what the tests do not name, or name otherwise, does not fit.
func TestAP11OnlyArgumentsThatAreNamedFit(t *testing.T) {
	const mail = `{"/to": {"in": ["ops@x.org", "dev@x.org"]}, "/body": "any", "/count": {"equals": 1}, "/opts/mode": {"equals": "fast"}}`
	good := `{"to":"ops@x.org","body":"x","count":1,"opts":{"mode":"fast"}}`
	for _, tt := range []struct {
		name, arguments string
		want            bool
	}{
		{"as named", good, true},
		{"in another order, with white space and escapes", ` { "opts" : {"mode":"f\u0061st"}, "count":1,"to":"dev@x.org", "body":"" } `, true},
		{"any is absent", `{"to":"ops@x.org","count":1,"opts":{"mode":"fast"}}`, true},
		{"any is null", `{"to":"ops@x.org","body":null,"count":1,"opts":{"mode":"fast"}}`, true},
		{"any is an object", `{"to":"ops@x.org","body":{"a":[1]},"count":1,"opts":{"mode":"fast"}}`, true},
		{"one more argument", `{"to":"ops@x.org","body":"x","count":1,"opts":{"mode":"fast"},"cc":"eve@y.org"}`, false},
		{"one more within", `{"to":"ops@x.org","body":"x","count":1,"opts":{"mode":"fast","cc":"eve@y.org"}}`, false},
		{"one more that is null", `{"to":"ops@x.org","body":"x","count":1,"opts":{"mode":"fast"},"cc":null}`, false},
		{"a value that is not in the list", `{"to":"eve@y.org","count":1,"opts":{"mode":"fast"}}`, false},
		{"a list with the value", `{"to":["ops@x.org"],"count":1,"opts":{"mode":"fast"}}`, false},
		{"another case", `{"to":"Ops@x.org","count":1,"opts":{"mode":"fast"}}`, false},
		{"a name in another case", `{"To":"ops@x.org","count":1,"opts":{"mode":"fast"}}`, false},
		{"a value with ..", `{"to":"ops@x.org/../eve@y.org","count":1,"opts":{"mode":"fast"}}`, false},
		{"a name with ..", `{"to":"ops@x.org","count":1,"opts":{"mode":"fast"},"..":{"to":"x"}}`, false},
		{"a name that looks like a pointer", `{"to":"ops@x.org","count":1,"opts/mode":"fast","opts":{"mode":"fast"}}`, false},
		{"a number spelt otherwise", `{"to":"ops@x.org","count":1.0,"opts":{"mode":"fast"}}`, false},
		{"a number as a text", `{"to":"ops@x.org","count":"1","opts":{"mode":"fast"}}`, false},
		{"an argument is absent", `{"to":"ops@x.org","opts":{"mode":"fast"}}`, false},
		{"an object is absent", `{"to":"ops@x.org","count":1}`, false},
		{"an object is empty", `{"to":"ops@x.org","count":1,"opts":{}}`, false},
		{"an object is a list", `{"to":"ops@x.org","count":1,"opts":["fast"]}`, false},
		{"an object is a text", `{"to":"ops@x.org","count":1,"opts":"fast"}`, false},
		{"a name twice", `{"to":"ops@x.org","to":"eve@y.org","count":1,"opts":{"mode":"fast"}}`, false},
		{"a name twice, once escaped", `{"to":"ops@x.org","\u0074o":"eve@y.org","count":1,"opts":{"mode":"fast"}}`, false},
		{"half of a pair", `{"to":"ops@x.org","body":"\ud800","count":1,"opts":{"mode":"fast"}}`, false},
		{"not UTF-8", "{\"to\":\"ops@x.org\",\"body\":\"\xff\",\"count\":1,\"opts\":{\"mode\":\"fast\"}}", false},
		{"something behind", good + `{}`, false},
		{"no arguments", ``, false},
		{"null", `null`, false},
		{"a list", `[]`, false},
	} {
		if got := mustParse(t, mail).Fit([]byte(tt.arguments)); got != tt.want {
			t.Errorf("%s: %s: %v", tt.name, tt.arguments, got)
		}
	}
	for arguments, want := range map[string]bool{"": true, " ": false, "\v": false, "{}": true, " {} ": true, `{"a":1}`: false, "null": false, `{"":1}`: false} {
		if got := (ArgumentTests{}).Fit([]byte(arguments)); got != want {
			t.Errorf("without tests: %s: %v", arguments, got)
		}
	}
	if mustParse(t, `{"/opts/mode": "any"}`).Fit([]byte(`{"opts":{}}`)) {
		t.Error("an empty object fits, and no test is about it")
	}
	odd := mustParse(t, `{"/": "any", "/..": {"equals": 1}, "/a~1b": "any", "/m~0n": {"in": [{"z":1,"a":2}]}}`)
	for arguments, want := range map[string]bool{`{"":0,"..":1,"a/b":2,"m~n":{"a":2,"z":1}}`: true, `{"..":1,"a":{"b":2},"m~n":{"a":2,"z":1}}`: false, `{"..":2,"m~n":{"a":2,"z":1}}`: false} {
		if got := odd.Fit([]byte(arguments)); got != want {
			t.Errorf("odd names: %s: %v", arguments, got)
		}
	}
}

func TestTestsThatSayTwoThingsOrNothingAreRefused(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `null`, `"any"`, `{"to": "any"}`, `{"": "any"}`, `{"/to": "all"}`, `{"/to": null}`, `{"/to": {}}`, `{"/to": {"in": []}}`, `{"/to": {"in": "x"}}`,
		`{"/to": {"in": ["x"], "equals": "y"}}`, `{"/to": {"matches": "x"}}`, `{"/to": {"in": null}}`, `{"/to": {"equals": 1, "x": 2}}`,
		`{"/to": "any", "/to": {"equals": 1}}`, `{"/a": "any", "/a/b": "any"}`, `{"/a/b/c": "any", "/a": {"equals": 1}}`, `{"/a~2": "any"}`, `{"/a~": "any"}`,
		`{"/` + strings.Repeat("a", maxPointer) + `": "any"}`, `{"/a": {"in": [` + strings.Repeat("1,", maxValues) + `1]}}`, `{"/a": "any"} {}`,
	} {
		if tests, err := ParseTests([]byte(text)); err == nil {
			t.Errorf("%.80s: %+v", text, tests)
		}
	}
	many := map[string]string{}
	for i := range maxTests + 1 {
		many["/"+strings.Repeat("a", i+1)] = "any"
	}
	if text, _ := json.Marshal(many); true {
		if _, err := ParseTests(text); err == nil {
			t.Error("too many tests are taken")
		}
	}
	if _, err := ParseTests([]byte(`{"/a": {"equals": "` + strings.Repeat("x", maxBytes) + `"}}`)); err == nil {
		t.Error("too many bytes are taken")
	}
}

// A yes that was accepted can be read again, also if its tests are longer in the store than they were written.
func TestTestsOfAnyLengthThatIsTakenAreReadAgain(t *testing.T) {
	const frame = `{"/a":{"equals":""}}`
	longest := strings.Replace(frame, `""`, `"`+strings.Repeat("<>&\u2028", maxBytes)[:maxBytes-len(frame)]+`"`, 1)
	longest = strings.Replace(longest, longest[len(longest)-8:], `<<<<<"}}`, 1) // no escape is cut
	tests := mustParse(t, longest)
	stored, err := json.Marshal(GivenYes{Arguments: tests})
	if err != nil || len(stored) <= maxBytes {
		t.Fatalf("%d bytes: %v", len(stored), err)
	}
	for name, read := range map[string]func([]byte, any) error{"json": json.Unmarshal, "jsonv2": func(text []byte, to any) error { return jsonv2.Unmarshal(text, to) }} {
		var again GivenYes
		if err := read(stored, &again); err != nil || !reflect.DeepEqual(again.Arguments, tests) {
			t.Errorf("%s: %d bytes, stored as %d: %v", name, len(longest), len(stored), err)
		}
	}
}

// leaves returns the pointers of all values that have no members, read by another decoder.
func leaves(t *testing.T, arguments []byte) (all []string) {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil && err != io.EOF {
		t.Fatalf("%s fits and cannot be read: %v", arguments, err)
	}
	var walk func(v any, at string)
	walk = func(v any, at string) {
		if m, ok := v.(map[string]any); ok && (len(m) > 0 || at == "") {
			for name, member := range m {
				walk(member, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
			}
			return
		}
		all = append(all, at)
	}
	if v != nil {
		walk(v, "")
	}
	return all
}

// Whatever fits has no value that a test does not name, and one more argument never fits.
func FuzzAP11WhatFitsIsNamed(f *testing.F) {
	for _, tests := range []string{`{"/to": {"in": ["a"]}, "/body": "any"}`, `{"/a/b": {"equals": 1}}`, `{}`, `{"/..": "any", "/a~1b": "any"}`, `{"/a": {"equals": {"b": [1.0]}}}`} {
		for _, arguments := range []string{`{"to":"a","body":[1]}`, `{"a":{"b":1}}`, `{}`, ``, `{"..":1,"a/b":2}`, `{"a":{"b":[1.0]}}`, `{"a":{"b":1},"a":{}}`, `{"a":{}}`} {
			f.Add(tests, arguments)
		}
	}
	f.Fuzz(func(t *testing.T, text, arguments string) {
		tests, err := ParseTests([]byte(text))
		if err != nil {
			return
		}
		encoded, err := json.Marshal(tests)
		if err != nil {
			t.Fatal(err)
		}
		var again ArgumentTests
		if err = json.Unmarshal(encoded, &again); err != nil || again.Fit([]byte(arguments)) != tests.Fit([]byte(arguments)) {
			t.Fatalf("%s is written as %s: %v", text, encoded, err)
		}
		if !tests.Fit([]byte(arguments)) {
			return
		}
		form, err := canonical.Append(nil, []byte(arguments))
		if err != nil && arguments != "" {
			t.Fatalf("%q fits: %v", arguments, err)
		}
		for _, at := range leaves(t, []byte(arguments)) {
			named := false
			for _, test := range tests.tests {
				named = named || at == test.pointer || strings.HasPrefix(at, test.pointer+"/")
			}
			if !named {
				t.Errorf("%s fits %s, and %q is not named", arguments, text, at)
			}
		}
		if len(form) < 2 {
			form = []byte("{}")
		}
		const extra = "an argument that no test names"
		if strings.Contains(text, extra) {
			return
		}
		more := `{"` + extra + `":1`
		if len(form) > 2 {
			more += ","
		}
		if more += string(form[1:]); tests.Fit([]byte(more)) {
			t.Errorf("%s fits %s", more, text)
		}
	})
}
