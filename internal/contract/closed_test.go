package contract

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestASchemaThatIsReadAsClosedMayGrow(t *testing.T) {
	const q = `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`
	for _, test := range []struct {
		name          string
		after, before string
		want          bool
	}{
		{"nothing", q, q, true},
		{"one more optional member", `{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}},"required":["q"]}`, q, true},
		{"one more required member", `{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}},"required":["q","n"]}`, q, false},
		{"a member less, closed", `{"type":"object","properties":{},"additionalProperties":false}`, q, false},
		{"closed now", `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"],"additionalProperties":false}`, q, true},
		{"a member of another type", `{"type":"object","properties":{"q":{"type":"integer"}},"required":["q"]}`, q, false},
		{"a further member where any was allowed", `{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}}}`, `{"type":"object","properties":{"q":{"type":"string"}},"additionalProperties":true}`, false},
		{"a member of an object that names none", `{"properties":{"o":{"properties":{"n":{"type":"integer"}}}}}`, `{"properties":{"o":{"type":"object"}}}`, false},
		{"a member deep inside", `{"properties":{"o":{"items":{"properties":{"a":{},"b":{"type":"integer"}}}}}}`, `{"properties":{"o":{"items":{"properties":{"a":{}}}}}}`, true},
		{
			"a member that another alternative names", `{"properties":{"a":{},"b":{"type":"string"},"c":{}}}`,
			`{"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`, false,
		},
		{"what a value names", `{"properties":{"a":{"type":"string"}}}`, `{"enum":[{"a":1}],"properties":{"b":{}}}`, false},
		{"no schema", `{"type":"strange"}`, q, false},
	} {
		if got := StillFits([]byte(test.after), []byte(test.before)); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}

func TestAClosedSchemaFindsWhatItDoesNotName(t *testing.T) {
	for _, test := range []struct{ schema, value, want string }{
		{`{"properties":{"a":{}}}`, `{"a":{"b":1}}`, ""},
		{`{"properties":{"a":{}}}`, `{"b":1}`, "/b"},
		{`{"properties":{"a":{"properties":{"b":{}}}}}`, `{"a":{"b/c":1}}`, "/a/b~1c"},
		{`{"properties":{"a":{"items":{"properties":{"b":{}}}}}}`, `{"a":[{},{"c":1}]}`, "/a/1/c"},
		{`{"properties":{"a":{}},"additionalProperties":{"type":"string"}}`, `{"b":"x"}`, ""},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"b":"x"}`, "/b"},
		{`{"properties":{"a":{}},"patternProperties":{"^x":{"properties":{"n":{}}}}}`, `{"x1":{"m":1}}`, "/x1/m"},
		{`{"type":"object"}`, `{"b":1}`, ""},
		{`{"anyOf":[{"properties":{"a":{}}},{"required":["b"]}]}`, `{"a":1,"b":2}`, ""},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"kids":{"items":{"$ref":"#/$defs/n"}}}}}}`, `{"kids":[{"kids":[{"x":1}]}]}`, "/kids/0/kids/0/x"},
		{`{"properties":{"z":{}},"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{}}},"b":{"$id":"https://example.com/b"}}}`, `{"y":1}`, ""}, // where the reference leads is not known
		{`{"properties":{"a":{}}}`, `"text"`, ""},
	} {
		c, err := NewClosedSchema([]byte(test.schema))
		if err != nil {
			t.Fatal(err)
		}
		if got, found, err := c.Unnamed([]byte(test.value)); err != nil || got != test.want || found != (test.want != "") {
			t.Errorf("%s of %s: %q %t %v, want %q", test.value, test.schema, got, found, err, test.want)
		}
	}
}

var triples = flag.Int("triples", 6000, "how many random pairs of `schemas` TestWhatStillFitsFits compares, each with 12 values; 100000 is what is promised")

// For random schemas: whatever fits the admitted schema, and has only members that it names, fits every schema that is proven to be wider.
func TestWhatStillFitsFits(t *testing.T) {
	proofs, values, refused := 0, 0, 0
	for seed := range uint64(*triples) {
		r := rand.New(rand.NewPCG(seed, 27))
		before := someSchema(r, 3)
		after := before
		switch r.IntN(4) {
		case 0:
			after = someSchema(r, 3)
		case 1:
			after = loosened(r, before)
		case 2:
			after = strings.Replace(before, `"properties":{"b"`, `"properties":{"c":`+someSchema(r, 1)+`,"b"`, 1)
		}
		if !StillFits([]byte(after), []byte(before)) {
			continue
		}
		proofs++
		admitted, err1 := compile([]byte(before))
		offered, err2 := compile([]byte(after))
		named, err3 := NewClosedSchema([]byte(before))
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		for range 12 {
			v := []byte(someValue(r, 3))
			if admitted.checkWhole(v) != nil {
				continue
			}
			if _, found, _ := named.Unnamed(v); found {
				refused++
				continue
			}
			values++
			if err := offered.checkWhole(v); err != nil {
				t.Fatalf("seed %d: %s\nis said to accept all that fits\n%s\nand refuses %s: %v", seed, after, before, v, err)
			}
		}
	}
	if t.Logf("%d proofs, %d values, %d values with other members", proofs, values, refused); proofs < *triples/10 || values < proofs || refused < proofs/10 {
		t.Error("these are too few to say anything")
	}
}
