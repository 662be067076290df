package contract

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// In each row the wider schema accepts all that the narrower one accepts, or does not.
func TestAProofSaysWhichSchemaAcceptsMore(t *testing.T) {
	tests := []struct {
		name            string
		wider, narrower string
		want            bool
	}{
		{"equal texts", `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`, `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`, true},
		{"another description", `{"type":"string","description":"a"}`, `{"type":"string","title":"b"}`, true},
		{"anything", `{}`, `{"type":"string"}`, true},
		{"nothing", `{"type":"string"}`, `false`, true},
		{"a type more", `{"type":["string","null"]}`, `{"type":"string"}`, true},
		{"a type less", `{"type":"string"}`, `{"type":["string","null"]}`, false},
		{"integers are numbers", `{"type":"number"}`, `{"type":"integer"}`, true},
		{"numbers are no integers", `{"type":"integer"}`, `{"type":"number"}`, false},
		{"a type that JSON Schema does not have", `{"type":"string"}`, `{"type":"any"}`, false},
		{"the same such type", `{"type":"any"}`, `{"type":"any"}`, false},
		{"no type at all", `{"type":"string"}`, `{"type":[]}`, false},
		{"no alternative at all", `{"type":"string"}`, `{"anyOf":[]}`, false},
		{"multiples of nothing", `{"multipleOf":2}`, `{"type":"integer","multipleOf":0}`, false},
		{"a number that cannot be told", `{"maximum":5}`, `{"const":1e309}`, false},
		{
			"what an alternative evaluates", `{"type":"object","unevaluatedProperties":false}`,
			`{"type":"object","unevaluatedProperties":false,"anyOf":[{"properties":{"a":{}}}]}`, false,
		},
		{
			"a keyword beside a reference, which draft 7 ignores", `{"$schema":"http://json-schema.org/draft-07/schema#","not":{"$ref":"#/definitions/x","type":"string"},"definitions":{"x":{}}}`,
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"integer"}`, false,
		},
		{
			"a keyword that draft 7 does not have", `{"type":"object","dependentRequired":{"a":["b"]}}`,
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","dependentRequired":{"a":["b"]}}`, false,
		},
		{"a draft that nobody knows here", `{"enum":["b"]}`, `{"$schema":"http://json-schema.org/draft-04/schema#","const":"b"}`, false},
		{"draft 7 and 2020-12", `{"type":"object","properties":{"q":{"type":"string"}}}`, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"q":{"type":"string"}}}`, true},
		{
			"a required member with a default", `{"type":"object","required":["limit"],"properties":{"limit":{"type":"integer"}}}`,
			`{"type":"object","required":["limit"],"properties":{"limit":{"type":"integer","default":10}}}`, false,
		},
		{"a dynamic reference", `{"$dynamicRef":"#a"}`, `{"$dynamicRef":"#a"}`, false},
		{"a class of characters that ECMA-262 does not have", `{"pattern":"^[[:alpha:]]$"}`, `{"const":"a"}`, false},
		{"a text beyond ASCII", `{"pattern":"^\\S+$"}`, `{"const":"a\u00a0b"}`, false},
		{"a plain pattern", `{"pattern":"^[a-z]+(?:-[a-z0-9]+)*$"}`, `{"enum":["a-b","c"]}`, true},
		{"a required member less", `{"type":"object","required":["a"]}`, `{"type":"object","required":["a","b"]}`, true},
		{"a required member more", `{"type":"object","required":["a","b"]}`, `{"type":"object","required":["a"]}`, false},
		{
			"an optional member more, where both are closed",
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`, true,
		},
		{
			"an optional member more, where the narrower one is open",
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`,
			`{"type":"object","properties":{"a":{"type":"string"}}}`, false,
		},
		{
			"an optional member less, where the wider one is open",
			`{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`, true,
		},
		{"closed is narrower than open", `{"type":"object","additionalProperties":false}`, `{"type":"object"}`, false},
		{"an enum word more", `{"enum":["a","b"]}`, `{"enum":["a"]}`, true},
		{"an enum word less", `{"enum":["a"]}`, `{"enum":["a","b"]}`, false},
		{"the words of an enum that have the type", `{"enum":["a"]}`, `{"type":"string","enum":["a",1]}`, true},
		{"a const of an enum", `{"enum":["a","b"]}`, `{"const":"b"}`, true},
		{"texts of an enum are texts", `{"type":"string","maxLength":2,"pattern":"^[a-z]+$"}`, `{"enum":["a","bc"]}`, true},
		{"an enum word that is too long", `{"type":"string","maxLength":2}`, `{"enum":["a","bcd"]}`, false},
		{"both booleans", `{"enum":[true,false]}`, `{"type":"boolean"}`, true},
		{"1.0 is 1", `{"enum":[1.0]}`, `{"const":1}`, true},
		{"a lower minimum", `{"minimum":1}`, `{"minimum":2}`, true},
		{"a higher minimum", `{"minimum":2}`, `{"minimum":1}`, false},
		{"more than 1 is at least 1", `{"minimum":1}`, `{"exclusiveMinimum":1}`, true},
		{"at least 1 is not more than 1", `{"exclusiveMinimum":1}`, `{"minimum":1}`, false},
		{"a minimum says nothing of texts", `{"minimum":2}`, `{"type":"string"}`, true},
		{"multiples of 6 are multiples of 3", `{"multipleOf":3}`, `{"type":"integer","multipleOf":6}`, true},
		{"multiples of 3 are not all of 6", `{"multipleOf":6}`, `{"type":"integer","multipleOf":3}`, false},
		{"a longer text", `{"type":"string","maxLength":9}`, `{"type":"string","maxLength":3}`, true},
		{"the same pattern", `{"type":"string","pattern":"^a"}`, `{"type":"string","pattern":"^a","maxLength":3}`, true},
		{"another pattern", `{"type":"string","pattern":"^a"}`, `{"type":"string","pattern":"^ab"}`, false},
		{"a format that only the wider one asks for", `{"type":"string","format":"uri"}`, `{"type":"string"}`, false},
		{"wider elements", `{"items":{"type":"number"}}`, `{"type":"array","items":{"type":"integer"}}`, true},
		{"narrower elements", `{"items":{"type":"integer"}}`, `{"type":"array","items":{"type":"number"}}`, false},
		{"one of the alternatives", `{"anyOf":[{"type":"string"},{"type":"number"}]}`, `{"type":"integer"}`, true},
		{"alternatives in another order", `{"anyOf":[{"type":"string"},{"type":"null"}]}`, `{"anyOf":[{"type":"null"},{"type":"string"}]}`, true},
		{"a type list for alternatives", `{"type":["string","null"]}`, `{"anyOf":[{"type":"null"},{"type":"string"}]}`, true},
		{"an alternative less", `{"anyOf":[{"type":"string"}]}`, `{"anyOf":[{"type":"null"},{"type":"string"}]}`, false},
		{"exactly one of two types", `{"oneOf":[{"type":"string"},{"type":"array"}]}`, `{"type":"string"}`, true},
		{"more than one fits", `{"oneOf":[{"type":"string"},{"maxLength":3}]}`, `{"type":"string"}`, false},
		{"all of two", `{"allOf":[{"type":"object"},{"required":["a"]}]}`, `{"type":"object","required":["a"]}`, true},
		{"facts of allOf", `{"type":"object","required":["a"]}`, `{"allOf":[{"type":"object"},{"required":["a"]}]}`, true},
		{"what is not of the type", `{"not":{"type":"string"}}`, `{"type":"integer"}`, true},
		{"a definition", `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, `{"type":"string"}`, true},
		{"a definition of the narrower one", `{"type":"string"}`, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, true},
		{
			"equal references to different schemas",
			`{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"string"}}}`,
			`{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"integer"}}}`, false,
		},
		{
			"trees", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
			`{"$ref":"#/$defs/m","$defs":{"m":{"type":"object","required":["x"],"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/m"}}}}}}`, true,
		},
		{
			"trees of other leaves", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","required":["y"],"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
			`{"$ref":"#/$defs/m","$defs":{"m":{"type":"object","required":["x"],"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/m"}}}}}}`, false,
		},
		{"a schema that only refers to itself", `{"$ref":"#"}`, `{"type":"string"}`, false},
		{
			"before draft 2019-09, keywords beside $ref do not count", `{"required":["a"]}`,
			`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/x","required":["a"],"definitions":{"x":{}}}`, false,
		},
		{
			"a reference in a schema with an id of its own", `{"type":"string"}`,
			`{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"},"b":{"$id":"https://example.com/b"}}}`, false,
		},
		{"a keyword that nobody knows", `{"x-only":"even"}`, `{"type":"string"}`, false},
		{"the same keyword that nobody knows", `{"x-only":"even"}`, `{"type":"string","x-only":"even"}`, true},
		{"the same condition", `{"if":{"type":"string"},"then":{"minLength":1}}`, `{"if":{"type":"string"},"then":{"minLength":1},"title":"t"}`, true},
		{"one more condition", `{"if":{"type":"string"},"then":{"minLength":1}}`, `{}`, false},
		{
			"a member that a pattern covers",
			`{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","patternProperties":{"^a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, false,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wider, err := decode([]byte(test.wider))
			if err != nil {
				t.Fatal(err)
			}
			narrower, err := decode([]byte(test.narrower))
			if err != nil {
				t.Fatal(err)
			}
			if got := acceptsAll(wider, narrower); got != test.want {
				t.Errorf("%s accepts all of %s: %v, want %v", test.wider, test.narrower, got, test.want)
			}
		})
	}
}

// For random schemas and values, what is proven is true: every value that fits the narrower schema fits the wider one.
func TestAProofHoldsForEveryValue(t *testing.T) {
	proofs := 0
	for seed := range uint64(6_000) {
		r := rand.New(rand.NewPCG(seed, 17))
		narrower := someSchema(r, 3)
		wider := narrower
		switch r.IntN(3) {
		case 0:
			wider = someSchema(r, 3)
		case 1:
			wider = loosened(r, narrower)
		}
		if holdsProof(t, wider, narrower, func() string { return someValue(r, 3) }, 12) {
			proofs++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if proofs < 600 {
		t.Errorf("%d proofs are too few to say anything", proofs)
	}
}

// holdsProof checks values against two schemas. It reports whether one is proven to accept everything that the other
// accepts.
func holdsProof(t *testing.T, wider, narrower string, value func() string, values int) bool {
	t.Helper()
	w, err := decode([]byte(wider))
	if err != nil {
		return false
	}
	n, err := decode([]byte(narrower))
	if err != nil || !acceptsAll(w, n) {
		return false
	}
	ws, err := compile([]byte(wider))
	if err != nil {
		return false
	}
	ns, err := compile([]byte(narrower))
	if err != nil {
		return false
	}
	for range values {
		v := value()
		if ns.checkWhole([]byte(v)) == nil {
			if err := ws.checkWhole([]byte(v)); err != nil {
				t.Errorf("%s\nis proven to accept all of\n%s\nand refuses %s: %v", wider, narrower, v, err)
			}
		}
	}
	return true
}

// loosened removes a keyword from the schema, if it can.
func loosened(r *rand.Rand, schema string) string {
	return strings.Replace(schema, []string{`"minimum":2`, `"required":["a"]`, `"type":"integer"`, `"additionalProperties":false`, `"maxLength":1`}[r.IntN(5)], `"title":"t"`, 1)
}

// someSchema returns a schema of the words that someValue uses.
func someSchema(r *rand.Rand, depth int) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	sub := func() string { return someSchema(r, depth-1) }
	for range 1 + r.IntN(3) {
		switch n := r.IntN(22); {
		case n < 5 || depth == 0 && n > 12:
			add(`"type":%s`, []string{`"string"`, `"integer"`, `"number"`, `"object"`, `"array"`, `"boolean"`, `["string","null"]`, `["object","integer"]`}[r.IntN(8)])
		case n == 5:
			add(`"minimum":%d`, r.IntN(3))
		case n == 6:
			add(`"exclusiveMaximum":%d`, r.IntN(4))
		case n == 7:
			add(`"maxLength":%d`, r.IntN(3))
		case n == 8:
			add(`"enum":%s`, []string{`["a","b"]`, `[1,2,"a"]`, `[null,true]`, `[1.0,{"a":1}]`, `[[1]]`}[r.IntN(5)])
		case n == 9:
			add(`"const":%s`, []string{`"a"`, `1`, `{"a":1}`, `null`}[r.IntN(4)])
		case n == 10:
			add(`"required":[%q]`, []string{"a", "b"}[r.IntN(2)])
		case n == 11:
			add(`"multipleOf":%s`, []string{"2", "0.5", "1"}[r.IntN(3)])
		case n == 12:
			add(`"minProperties":%d`, r.IntN(2))
		case n == 13:
			add(`"properties":{"a":%s,"b":%s}`, sub(), sub())
		case n == 14:
			add(`"properties":{"b":%s}`, sub())
		case n == 15:
			add(`"additionalProperties":%s`, []string{"false", "true", sub()}[r.IntN(3)])
		case n == 16:
			add(`"items":%s`, sub())
		case n == 17:
			add(`"anyOf":[%s,%s]`, sub(), sub())
		case n == 18:
			add(`"oneOf":[%s,%s]`, sub(), sub())
		case n == 19:
			add(`"allOf":[%s,%s]`, sub(), sub())
		case n == 20:
			add(`"not":%s`, sub())
		default:
			add(`"patternProperties":{"^a":%s}`, sub())
		}
	}
	seen := map[string]bool{}
	var once []string
	for _, part := range parts {
		name, _, _ := strings.Cut(part, ":")
		if !seen[name] {
			seen[name] = true
			once = append(once, part)
		}
	}
	return "{" + strings.Join(once, ",") + "}"
}

func someValue(r *rand.Rand, depth int) string {
	switch n := r.IntN(10); {
	case n < 2:
		return []string{`"a"`, `"b"`, `""`, `"abc"`}[r.IntN(4)]
	case n < 4:
		return []string{"0", "1", "2", "3", "1.0", "1.5", "-1"}[r.IntN(7)]
	case n == 4:
		return []string{"null", "true", "false"}[r.IntN(3)]
	case depth == 0:
		return "1"
	case n < 8:
		var members []string
		for _, name := range []string{"a", "b", "ab", "c"} {
			if r.IntN(2) == 0 {
				members = append(members, fmt.Sprintf("%q:%s", name, someValue(r, depth-1)))
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	var elements []string
	for range r.IntN(3) {
		elements = append(elements, someValue(r, depth-1))
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func FuzzProof(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, `{"a":"x"}`)
	f.Add(`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"string"},{"items":{"$ref":"#/$defs/a"}}]}}}`, `{"type":"string"}`, `"a"`)
	f.Add(`{"oneOf":[{"type":"string"},{"type":"array"}]}`, `{"enum":["a",1]}`, `1`)
	f.Fuzz(func(t *testing.T, wider, narrower, value string) {
		if len(wider)+len(narrower)+len(value) > 4096 {
			t.Skip("long")
		}
		if _, err := decode([]byte(value)); err != nil {
			t.Skip("no value")
		}
		holdsProof(t, wider, narrower, func() string { return value }, 1)
	})
}

func TestAToolMayStandInForAnother(t *testing.T) {
	search := `{"name":"web_search","inputSchema":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}%s}`
	tests := []struct {
		name       string
		now, shown string // the text after the input schema
		want       bool
	}{
		{"with the same definition", ``, ``, true},
		{"with another description", `,"description":"now"`, `,"description":"then"`, true},
		{"if it gives more structure than was promised", `,"outputSchema":{"type":"object"}`, ``, true},
		{"not if it no longer gives the structure", ``, `,"outputSchema":{"type":"object"}`, false},
		{"if its results are narrower", `,"outputSchema":{"type":"object","required":["a"]}`, `,"outputSchema":{"type":"object"}`, true},
		{"not if its results are wider", `,"outputSchema":{"type":"object"}`, `,"outputSchema":{"type":"object","required":["a"]}`, false},
		{"not if it may write where the other only read", ``, `,"annotations":{"readOnlyHint":true}`, false},
		{"if it only reads where the other may write", `,"annotations":{"readOnlyHint":true}`, ``, true},
		{"not if it may destroy", `,"annotations":{"destructiveHint":true}`, `,"annotations":{"destructiveHint":false}`, false},
		{"if it only reads where the other destroyed nothing", `,"annotations":{"readOnlyHint":true}`, `,"annotations":{"destructiveHint":false}`, true},
		{"not if it reaches further", `,"annotations":{"readOnlyHint":true}`, `,"annotations":{"readOnlyHint":true,"openWorldHint":false}`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			now := &switchboard.Tool{ID: switchboard.ToolID{Server: "b", Name: "web_search"}, Definition: fmt.Appendf(nil, search, test.now)}
			shown := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "web_search"}, Definition: fmt.Appendf(nil, search, test.shown)}
			var none *Set
			if got := none.MayStandIn(now, shown); got != test.want {
				t.Errorf("may stand in: %v, want %v", got, test.want)
			}
			now.ID.Name = "google_search"
			if none.MayStandIn(now, shown) {
				t.Error("a tool of another name stands in without a declaration")
			}
		})
	}
}

// These schemas are an example of the longest proof, which stays within its limit.
func BenchmarkProof(b *testing.B) {
	flat := func(n int) string {
		var s strings.Builder
		s.WriteString(`{"type":"object","properties":{`)
		for i := range n {
			if i > 0 {
				s.WriteByte(',')
			}
			fmt.Fprintf(&s, `"p%d":{"type":"string","description":"the %dth"}`, i, i)
		}
		return s.String() + `},"required":["p0"]}`
	}
	alternatives := func(n int) string {
		return `{"allOf":[` + strings.Repeat(`{"anyOf":[{"type":"string"},{"type":"object","properties":{"a":{}}}]},`, n) + `{}]}`
	}
	for _, bench := range []struct{ name, wider, narrower string }{
		{"8 members", flat(8), flat(8)},
		{"200 members", flat(200), flat(200)},
		{"out of steps", `{"type":"object"}`, alternatives(40)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w, _ := decode([]byte(bench.wider))
			n, _ := decode([]byte(bench.narrower))
			b.ReportAllocs()
			for b.Loop() {
				acceptsAll(w, n)
			}
		})
	}
}

// A server writes its own schema, and the proof runs while a call waits.
func TestAProofEndsSoonForAnySchemas(t *testing.T) {
	t.Parallel()
	many := func(n int, item func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = item(i)
		}
		return strings.Join(all, ",")
	}
	words := many(900, func(i int) string { return fmt.Sprintf("%q", fmt.Sprint("word", i)) })
	numbers := many(5000, func(i int) string { return fmt.Sprint(i) })
	for name, pair := range map[string][2]string{
		"a long pattern":  {`{"pattern":"` + strings.Repeat("a?", 20_000) + `"}`, `{"enum":[` + words + `]}`},
		"large classes":   {`{"pattern":"` + strings.Repeat(`\\d{99}`, 30) + `"}`, `{"enum":[` + words + `]}`},
		"many numbers":    {`{"anyOf":[` + many(2000, func(int) string { return `{"minimum":9}` }) + `]}`, `{"enum":[` + numbers + `]}`},
		"many references": {`{"allOf":[` + many(3000, func(int) string { return `{"not":{"$ref":"#"}}` }) + `]}`, `{"type":"object"}`},
		"many alternatives": {`{"anyOf":[` + many(40, func(int) string {
			return `{"$ref":"#/$defs/x","required":["z"]}`
		}) + `,{"type":"object"}],"$defs":{"x":{"properties":{` + many(200, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) }) + `}}}}`, `{"type":"object","properties":{` +
			many(200, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) }) + `}}`},
	} {
		wider, err := decode([]byte(pair[0]))
		if err != nil {
			t.Fatal(err)
		}
		narrower, err := decode([]byte(pair[1]))
		if err != nil {
			t.Fatal(err)
		}
		first, quickest := acceptsAll(wider, narrower), time.Hour
		for range 5 {
			began := time.Now()
			if again := acceptsAll(wider, narrower); again != first {
				t.Errorf("%s: the answer is %v, and then %v", name, first, again)
			}
			quickest = min(quickest, time.Since(began))
		}
		if quickest > 2*time.Second { // 10 ms on an idle machine; some took 19 s
			t.Errorf("%s: it takes %s", name, quickest)
		}
	}
}
