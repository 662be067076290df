package contract

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The authors of schemas and of values may try to keep us busy. The cost is counted, not measured by a clock, so that a
// busy machine refuses nothing that an idle one accepts.
func TestNoSchemaAndNoValueKeepUsBusy(t *testing.T) {
	nested := func(open, end string, n int) string { return strings.Repeat(open, n) + end + strings.Repeat("]", n) }
	many := func(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	chain := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
		for i := range n {
			fmt.Fprintf(&b, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
		}
		fmt.Fprintf(&b, `"d%d":{}}}`, n)
		return b.String()
	}
	numbers := make([]string, 2000)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	for name, tt := range map[string]struct{ schema, value string }{
		"alternatives that double at each level": {`{"anyOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}],"not":{"const":1}}`, nested("[", "2", 60)},
		"a thousand schemas in one place":        {chain(1500), "1"},
		"a pattern for each byte":                {`{"items":{"pattern":"(a|aa|aaa|b?c?d?e?){900}x"}}`, many(1000, `"`+strings.Repeat("a", 4000)+`"`)},
		"many patterns":                          {`{"patternProperties":{"(a|b|c|d){900}$":{},"(a|b|c|e){900}$":{}}}`, `{"` + strings.Repeat("a", 1<<20) + `":1}`},
		"a long enumeration, again and again":    {`{"items":{"enum":[` + strings.Join(numbers, ",") + `]}}`, many(100_000, "5000")},
		"unique elements without end":            {`{"uniqueItems":true}`, many(100_000, "{}")},
		"all that fits into a message":           {`{}`, many(600_000, "[]")},
		"a value that is too long":               {`{}`, `"` + strings.Repeat("a", MaxChecked) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			s, err := compile([]byte(tt.schema))
			if err == nil {
				err = s.check([]byte(tt.value))
			}
			if err == nil || errors.As(err, new(*misfit)) {
				t.Errorf("it was checked: %v", err)
			}
			t.Log(time.Since(begin).Round(time.Millisecond), err)
		})
	}
}

func TestWhatCostsMuchToCompileIsNotCompiled(t *testing.T) {
	var patterns strings.Builder
	for i := range 200 {
		fmt.Fprintf(&patterns, `{"pattern":"x%d(a|b|c|d){1000}"},`, i)
	}
	for name, tt := range map[string]struct{ schema, want string }{
		"patterns":               {`{"anyOf":[` + patterns.String() + `{}]}`, `is no JSON Schema: at "/anyOf/`},
		"a number":               {`{"minimum":1e999999999}`, "is no JSON Schema: at \"/minimum\""},
		"references elsewhere":   {`{"$ref":"file:///etc/passwd"}`, "not followed"},
		"a metaschema elsewhere": {`{"$schema":"http://127.0.0.1:1/schema"}`, "not followed"},
		"dynamic references":     {`{"$dynamicAnchor":"n","items":{"$dynamicRef":"#n"}}`, "not followed"},
		"no JSON":                {`{`, "cannot be read"},
		"no reference":           {`{"$ref":"#/nowhere"}`, "not found"},
	} {
		if _, err := compile([]byte(tt.schema)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

func TestNumbersAreCheckedInTheirOwnSpelling(t *testing.T) {
	for _, tt := range []struct {
		schema, value string
		fits          bool
	}{
		{`{"type":"integer"}`, "1.0", true},
		{`{"type":"integer"}`, "10e-1", true},
		{`{"type":"integer"}`, "1.5", false},
		{`{"type":"integer"}`, "9007199254740993", true},
		{`{"maximum":9007199254740992}`, "9007199254740993", false},
		{`{"const":0.1}`, "0.10", true},
		{`{"const":0.1}`, "0.1000000000000000055", false},
		{`{"multipleOf":0.01}`, "19.99", true},
		{`{"maximum":1}`, "1e400", false},
		{`{"maximum":1}`, "1e-99999", true},
		{`{"minimum":1}`, "1" + strings.Repeat("0", 300), true},
		{`{"minimum":1}`, "1e999999999", false},
	} {
		s, err := compile([]byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check([]byte(tt.value)); (err == nil) != tt.fits {
			t.Errorf("%s under %s: %v", tt.value, tt.schema, err)
		}
	}
}
