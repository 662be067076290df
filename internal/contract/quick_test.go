package contract

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Everything that a quick schema accepts, the whole schema accepts too: objects and lists within each other, references,
// alternatives, and texts that only a server can send (a name twice, half of a surrogate pair).
func TestAQuickSchemaAcceptsOnlyWhatFits(t *testing.T) {
	pick := func(t *rapid.T, what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
	types := []string{`"string"`, `"integer"`, `"number"`, `"boolean"`, `"null"`, `"object"`, `"array"`, `["string","null"]`, `["integer","array"]`, `["number","object"]`}
	var schema func(t *rapid.T, depth int) string
	schema = func(t *rapid.T, depth int) string {
		sub := func() string {
			if depth == 0 {
				return pick(t, "leaf", "true", "false", "{}", `{"type":`+pick(t, "type", types...)+`}`, `{"$ref":"#/$defs/a"}`)
			}
			return schema(t, depth-1)
		}
		var words []string
		for range rapid.IntRange(1, 3).Draw(t, "keywords") {
			switch rapid.IntRange(0, 11).Draw(t, "keyword") {
			case 0, 1, 2:
				words = append(words, `"type":`+pick(t, "type", types...))
			case 3:
				words = append(words, `"properties":{"a":`+sub()+`,"b":`+sub()+`}`)
			case 4:
				words = append(words, `"items":`+sub())
			case 5:
				words = append(words, `"additionalProperties":`+sub())
			case 6:
				words = append(words, `"anyOf":[`+sub()+`,`+sub()+`]`)
			case 7:
				words = append(words, pick(t, "ref", `"$ref":"#/$defs/a"`, `"$ref":"#/$defs/b"`, `"$ref":"#"`, `"$ref":"#/properties/a"`, `"$ref":"https://json-schema.org/draft/2020-12/schema"`))
			case 8:
				words = append(words, pick(t, "required", `"required":["a"]`, `"required":["a","c"]`, `"required":[]`))
			default:
				words = append(words, pick(
					t, "other", `"description":"x"`, `"default":1`, `"enum":["a",1]`, `"enum":[]`, `"const":"a"`, `"const":null`, `"minimum":2`, `"minimum":1.5`, `"maximum":1`,
					`"exclusiveMinimum":1`, `"minLength":2`, `"maxLength":1`, `"minItems":1`, `"maxItems":1`, `"uniqueItems":true`, `"not":{"type":"null"}`, `"pattern":"^a"`, `"pattern":"(?!a)"`,
					`"format":"email"`, `"format":"regex"`, `"minProperties":2`, `"propertyNames":{"maxLength":0}`, `"patternProperties":{"a":false}`, `"prefixItems":[false]`, `"oneOf":[true,false]`,
				))
			}
		}
		return "{" + strings.Join(words, ",") + "}"
	}
	var value func(t *rapid.T, depth int) string
	value = func(t *rapid.T, depth int) string {
		n := 2
		if depth > 0 {
			n = 7
		}
		switch rapid.IntRange(0, n).Draw(t, "kind") {
		case 3, 4, 5:
			var members []string
			for range rapid.IntRange(0, 3).Draw(t, "members") {
				members = append(members, pick(t, "name", `"a"`, `"b"`, `"c"`, `"\u0061"`, `"\ud800"`, `"a\/b"`, `"d"`)+" : "+value(t, depth-1))
			}
			return "{" + strings.Join(members, " , ") + "}"
		case 6, 7:
			var elements []string
			for range rapid.IntRange(0, 2).Draw(t, "elements") {
				elements = append(elements, value(t, depth-1))
			}
			return "[" + strings.Join(elements, ",") + "]"
		}
		return pick(t, "value", `"a"`, `"aa"`, `"\t"`, `"ü"`, `"üü"`, `"\u0061"`, `"\ud800"`, `""`, `1`, `2`, `-0`, `1.0`, `1.5`, `1e2`, `1e400`, `9007199254740993`, strings.Repeat("9", 400), `true`, `null`)
	}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		words := []string{`"$defs":{"a":` + schema(t, 1) + `,"b":{"$ref":"#/$defs/` + pick(t, "to", "a", "b") + `"}}`}
		if dialect := rapid.IntRange(0, 9).Draw(t, "dialect"); dialect < 2 {
			words = append(words, `"$schema":"`+[]string{"http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"}[dialect]+`"`)
		}
		text := "{" + strings.Join(words, ",") + "," + schema(t, 2)[1:]
		s, err := compile([]byte(text))
		if err != nil {
			return // such as one with a duplicate name
		}
		for range 60 {
			v := value(t, 3)
			if !s.quick.accepts([]byte(v)) {
				continue
			}
			accepted++
			if err := s.checkWhole([]byte(v)); err != nil && !errors.Is(err, errCostly) {
				t.Fatalf("%s is accepted under %s: %v", v, text, err)
			}
		}
	})
	if accepted < 100 {
		t.Error("only", accepted, "were accepted")
	}
	t.Log(accepted, "accepted")
}

func TestQuickSchemasAcceptTheArgumentsOfMostTools(t *testing.T) {
	for _, tt := range []struct{ schema, value string }{
		{`{"type":"object","properties":{"query":{"type":"string"},"num":{"type":"integer"},"filter":{"type":"object"}},"required":["query"]}`, `{"query":"x","num":3}`},
		{`{"type":"object","properties":{"q":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"title":"Q"}},"title":"search"}`, `{"q":null}`},
		{`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":["boolean","null"]}},"additionalProperties":false}`, `{"a":1.5,"b":true}`},
		{`{"type":"object"}`, `{}`},
		{`{"type":"object","properties":{"a":{"type":"array","maxItems":2,"items":{"$ref":"#/$defs/one"}}},"$defs":{"one":{"type":"object","properties":{"name":{"type":"string","pattern":"^[a-z]+$"},"more":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/one"}},{"type":"null"}]}},"required":["name"],"additionalProperties":false}}}`, `{"a":[{"name":"x","more":null},{"name":"y","more":[{"name":"z"}]}],"b":{"c":[1]}}`},
		{`{"properties":{"a":{"type":"integer","minimum":0,"maximum":9},"b":{"type":"string","minLength":1,"maxLength":3},"c":{"enum":["x","y"]}}}`, `{"a":9,"b":"süß","c":"y"}`},
	} {
		s, err := compile([]byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		if !s.quick.accepts([]byte(tt.value)) {
			t.Errorf("%s is not accepted, under %s", tt.value, tt.schema)
		}
		if long := fmt.Sprintf(`{"query":%q}`, strings.Repeat("x", maxQuickBytes)); s.quick.accepts([]byte(long)) {
			t.Error("a long value is accepted")
		}
	}
}

// Each value breaks one keyword of its schema, or is one that only a server can send.
func TestAQuickSchemaRefusesWhatBreaksOneKeyword(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ schema, good, bad string }{
		{`{"items":{"pattern":"^a","type":"string"}}`, `["ab"]`, `["ab","ba"]`},
		{`{"items":{"minLength":2}}`, `["ab"]`, `["ab","a"]`},
		{`{"maxItems":1}`, `[[1,2]]`, `[1,2]`},
		{`{"minItems":1}`, `[{}]`, `[]`},
		{`{"items":{"enum":["a","b"]}}`, `["a"]`, `["c"]`},
		{`{"items":{"const":"a"}}`, `["a"]`, `["b"]`},
		{`{"items":{"maximum":2}}`, `[2,"x"]`, `[3]`},
		{`{"additionalProperties":{"required":["a"]}}`, `{"x":{"a":1}}`, `{"x":{"b":1}}`},
		{`{"properties":{"a":{}},"required":["a","b"]}`, `{"a":1,"b":1}`, `{"a":1,"a":1}`},
		{`{"properties":{"a":{"additionalProperties":false}}}`, `{"a":{}}`, `{"a":{"b":1}}`},
		{`{"anyOf":[{"type":"string","maxLength":1},{"type":"null"}],"minLength":1}`, `null`, `""`},
		{`{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}],"$defs":{"a":{"type":"array","items":{"type":"boolean"}}}}`, `[true]`, `[1]`},
		{`{}`, `{"a":1,"b":1}`, `{"a":1,"a":1}`},
		{`{}`, `{"a":"b"}`, `{"a":"\ud800"}`},
	} {
		s, err := compile([]byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		if !s.quick.accepts([]byte(tt.good)) || s.quick.accepts([]byte(tt.bad)) || s.checkWhole([]byte(tt.bad)) == nil {
			t.Errorf("%s: %s is accepted: %v, and %s: %v", tt.schema, tt.good, s.quick.accepts([]byte(tt.good)), tt.bad, s.quick.accepts([]byte(tt.bad)))
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
