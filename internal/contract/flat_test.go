package contract

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Everything that a flat schema accepts, the whole schema accepts too.
func TestAFlatSchemaAcceptsOnlyWhatFits(t *testing.T) {
	pick := func(t *rapid.T, what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
	types := []string{`"string"`, `"integer"`, `"number"`, `"boolean"`, `"null"`, `"object"`, `"array"`, `["string","null"]`, `["integer","array"]`, `["number","boolean"]`}
	member := rapid.Custom(func(t *rapid.T) string {
		var words []string
		for range rapid.IntRange(0, 2).Draw(t, "keywords") {
			words = append(words, pick(
				t, "keyword", `"type":`+pick(t, "type", types...), `"description":"x"`, `"default":1`, `"enum":["a",1]`, `"enum":[]`, `"minimum":2`, `"minimum":1.5`, `"maximum":1`,
				`"exclusiveMinimum":1`, `"minLength":2`, `"maxLength":1`,
				`"anyOf":[{"type":`+pick(t, "one", types...)+`},{"type":`+pick(t, "other", types...)+`}]`, `"anyOf":[{"maximum":1,"type":"number"},{"enum":["b"]}]`, `"not":{"type":"null"}`, `"const":null`, `"pattern":"^a"`,
			))
		}
		return "{" + strings.Join(words, ",") + "}"
	})
	values := []string{`"a"`, `"aa"`, `"\t"`, `"ü"`, `"üü"`, `"\u0061"`, `"\ud800"`, `""`, `1`, `2`, `-0`, `1.0`, `1.5`, `1e2`, `1e400`, `9007199254740993`, strings.Repeat("9", 400), `true`, `null`, `[]`, `{}`}
	names := []string{`"a"`, `"b"`, `"c"`, `"\u0061"`, `"d"`}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		words := []string{
			`"properties":{"a":` + member.Draw(t, "a") + `,"b":` + member.Draw(t, "b") + `,"c":true,"e":` + member.Draw(t, "e") + `}`,
		}
		for _, word := range []string{
			`"type":` + pick(t, "type", types...), `"type":"object"`, `"required":["a"]`, `"required":["a","e"]`, `"required":[]`, `"additionalProperties":false`,
			`"additionalProperties":{"type":"string"}`, `"title":"x"`, `"minProperties":2`, `"propertyNames":{"maxLength":0}`, `"patternProperties":{"a":false}`,
			`"$schema":"http://json-schema.org/draft-04/schema#"`, `"$schema":"https://json-schema.org/draft/2020-12/schema"`,
		} {
			if rapid.IntRange(0, 7).Draw(t, word) == 0 {
				words = append(words, word)
			}
		}
		text := "{" + strings.Join(words, ",") + "}"
		s, err := compile([]byte(text))
		if err != nil {
			return // such as one with a duplicate name
		}
		try := func(members ...string) {
			value := "{" + strings.Join(members, " , ") + "}"
			if !s.flat.accepts([]byte(value)) {
				return
			}
			accepted++
			if err := s.checkWhole([]byte(value)); err != nil {
				t.Fatalf("%s is accepted under %s: %v", value, text, err)
			}
		}
		try()
		for _, name := range names {
			for _, value := range values {
				try(name + ":" + value)
				try(name+":"+value, `"e":`+pick(t, "e", values...))
			}
		}
	})
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
	t.Log(accepted, "accepted")
}

func TestFlatSchemasAcceptTheArgumentsOfMostTools(t *testing.T) {
	for _, tt := range []struct{ schema, value string }{
		{`{"type":"object","properties":{"query":{"type":"string"},"num":{"type":"integer"},"filter":{"type":"object"}},"required":["query"]}`, `{"query":"x","num":3}`},
		{`{"type":"object","properties":{"q":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"title":"Q"}},"title":"search"}`, `{"q":null}`},
		{`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":["boolean","null"]}},"additionalProperties":false}`, `{"a":1.5,"b":true}`},
		{`{"type":"object"}`, `{}`},
		{`{"properties":{"a":{"type":"integer","minimum":0,"maximum":9},"b":{"type":"string","minLength":1,"maxLength":3},"c":{"enum":["x","y"]}}}`, `{"a":9,"b":"süß","c":"y"}`},
	} {
		s, err := compile([]byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		if !s.flat.accepts([]byte(tt.value)) {
			t.Errorf("%s is not accepted, under %s", tt.value, tt.schema)
		}
		if long := fmt.Sprintf(`{"query":%q}`, strings.Repeat("x", maxFlatBytes)); s.flat.accepts([]byte(long)) {
			t.Error("a long value is accepted")
		}
	}
}

// The cost of checking, for a call that moves, that the other tool accepts its arguments.
func BenchmarkArguments(b *testing.B) {
	s, err := compile([]byte(`{"type":"object","properties":{"nonce":{"type":"string"},"size":{"type":"integer","minimum":0}},"required":["nonce","size"]}`))
	if err != nil {
		b.Fatal(err)
	}
	value := []byte(`{"nonce":"sb0.1234567","size":1024}`)
	for name, check := range map[string]func([]byte) error{"check": s.check, "examine": s.checkWhole} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := check(value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
