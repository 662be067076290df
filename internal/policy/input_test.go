package policy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// FuzzArgumentsReadAsOPAReadsThem checks that OPA's own reader returns the same value for every
// text that parseValue accepts.
func FuzzArgumentsReadAsOPAReadsThem(f *testing.F) {
	for _, s := range []string{
		`null`, `true`, `[]`, `{}`, `-0`, `1.50`, `1e2`, `"a\u00e9\ud83d\ude00\n"`, `{"a":[1,{"b":null}],"c":{"":false}}`, ` [ 1 , 2 ] `,
		`{"a":1,"a":2}`, `[1`, `{"a":`, `"\ud800"`, `1 2`, `[1,]`, ``, `tru`, `{"a":1}}`, strings.Repeat("[", 70) + strings.Repeat("]", 70), "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ParseValue(raw)
		if err != nil {
			return
		}
		want, err := ast.ValueFromReader(bytes.NewReader(raw))
		if err != nil || got.Compare(want) != 0 {
			t.Errorf("%q: %v, but OPA reads %v (%v)", raw, got, want, err)
		}
	})
}

func TestArgumentsThatAreNotJSONAreNotJudged(t *testing.T) {
	for _, s := range []string{``, `tru`, `[1`, `{"a":`, `{"a"}`, `1 2`, `[1,]`, `{"a":1}}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\""} {
		if v, err := ParseValue([]byte(s)); err == nil {
			t.Errorf("%q is read as %v", s, v)
		}
	}
}

// BenchmarkArguments compares parseValue with OPA's own reader.
func BenchmarkArguments(b *testing.B) {
	for name, raw := range map[string]string{
		"1 MB of text": `{"x":"` + strings.Repeat("a", 1_000_000) + `"}`,
		"small":        `{"query":"the weather","limit":10,"tags":["a","b"],"deep":{"a":{"b":null}}}`,
	} {
		for who, read := range map[string]func([]byte) (ast.Value, error){
			"ours": ParseValue, "opa": func(raw []byte) (ast.Value, error) { return ast.ValueFromReader(bytes.NewReader(raw)) },
		} {
			b.Run(name+"/"+who, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := read([]byte(raw)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
