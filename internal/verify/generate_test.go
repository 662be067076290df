package verify

import (
	"encoding/json"
	"errors"
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// generateFor generates arguments for a tool with this input schema, and returns whether they fit.
func generateFor(schema string, whole bool) (json.RawMessage, error) {
	definition := []byte(`{"name":"t","inputSchema":` + schema + `}`)
	tool := &switchboard.Tool{ID: switchboard.ToolID{Name: "t"}, Definition: definition}
	return generate(json.RawMessage(schema), canonical.Sum(definition), whole, nil, func(args json.RawMessage) error { return contract.Check(switchboard.CheckStrict, tool, args) })
}

func TestAValueIsGeneratedForEachKindOfSchema(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object"}`,
		`{"type":"object","properties":{"a":{"type":"string","minLength":3,"maxLength":4}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"string","pattern":"^[A-Z]{3}-\\d{2,4}$"}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"string","format":"uuid"},"b":{"type":"string","format":"date-time"}},"required":["a","b"]}`,
		`{"type":"object","properties":{"a":{"type":"integer","minimum":7,"multipleOf":5}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"integer","exclusiveMinimum":7,"maximum":9}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"number","minimum":0.1,"maximum":0.2}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"number","maximum":-3}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"const":3}},"required":["a","b"]}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"},"minItems":3,"uniqueItems":true}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false}},"required":["a"]}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"array","items":[{"type":"string"}],"additionalItems":false}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"array","contains":{"const":5},"minItems":2}},"required":["a"]}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"$defs":{"x":{"type":"object","properties":{"b":{"type":"null"}},"required":["b"]}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/tree"}},"required":["a"],"$defs":{"tree":{"type":"object","properties":{"child":{"$ref":"#/$defs/tree"}}}}}`,
		`{"type":"object","allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},"required":["b"]}]}`,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string","minLength":300000},{"type":"integer"}]}},"required":["a"]}`,
		`{"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],"properties":{"c":{"type":"string"}}}`,
		`{"type":"object","properties":{"a":{"type":["null","string"]}},"required":["a"]}`,
		`{"type":"object","minProperties":2,"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"dependentRequired":{"a":["b"]}}`,
		`{"type":"object","properties":{"a":{"type":"string","not":{"const":"sample"},"examples":["sample","other"]}},"required":["a"]}`,
		`true`,
	} {
		for _, whole := range []bool{false, true} {
			if _, err := generateFor(schema, whole); err != nil {
				t.Errorf("%s (whole: %t): %v", schema, whole, err)
			}
		}
	}
}

func TestASchemaThatAsksTooMuchHasNoValue(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","required":["a"],"properties":{"a":`, 300) + `{}` + strings.Repeat(`}}`, 300)
	wide := `{"type":"object","allOf":[` + strings.Repeat(`{"$ref":"#"},`, 200) + `{}]}`
	begun := time.Now()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, schema := range map[string]string{
		"a reference to itself":             `{"$ref":"#"}`,
		"two that refer to each other":      `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"a member that must hold itself":    `{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`,
		"a pattern of 10 KB":                `{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"` + strings.Repeat("(a|b)", 2048) + `"}}}`,
		"a pattern that repeats":            `{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"((a{60}){60}){60}"}}}`,
		"a thousand million elements":       `{"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":1000000000}}}`,
		"a thousand million characters":     `{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":1000000000}}}`,
		"a thousand million members":        `{"type":"object","minProperties":1000000000}`,
		"a number with a large exponent":    `{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":1e999999}}}`,
		"types that exclude each other":     `{"type":"object","required":["a"],"properties":{"a":{"allOf":[{"type":"string"},{"type":"integer"}]}}}`,
		"bounds that exclude each other":    `{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":5,"maximum":4}}}`,
		"a member that must not exist":      `{"type":"object","required":["a"],"properties":{"a":false}}`,
		"nothing at all":                    `false`,
		"a reference out of the schema":     `{"$ref":"https://example.com/schema"}`,
		"300 levels":                        deep,
		"200 references to the whole":       wide,
		"no JSON":                           `{`,
		"a pattern that Go does not accept": `{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"(?=b)a"}}}`,
	} {
		if v, err := generateFor(schema, true); !errors.Is(err, ErrNoValue) {
			t.Errorf("%s: %.200s, %v", name, v, err)
		}
	}
	runtime.ReadMemStats(&after)
	// Whatever was freed meanwhile, no peak is higher than all that was allocated.
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d MiB were allocated for all of them", n>>20)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

func TestEqualSeedsGiveEqualValues(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"string"}},"required":["a","b"]}`
	a, err1 := generateFor(schema, true)
	b, err2 := generateFor(schema, true)
	if err1 != nil || err2 != nil || string(a) != string(b) {
		t.Errorf("%s, %s", a, b)
	}
}

// every says how many of a server's tools are left out: each schema is compiled, which takes longer than all else.
var every = flag.Int("every", 8, "generate arguments for each n-th tool of a server")

// docs/verify.md has the figure for all.
func TestMostToolsOfTheCatalogGetArgumentsThatFit(t *testing.T) {
	servers, err := realdata.Servers()
	if err != nil {
		t.Skip(err)
	}
	tools, found := 0, 0
	for i := range servers {
		for j, object := range servers[i].Tools {
			if j%*every != 0 {
				continue
			}
			schema, _ := wire.Field(object, "inputSchema")
			tools++
			if _, err := generateFor(string(schema), false); err == nil {
				found++
			}
		}
	}
	t.Logf("%d of %d tools get arguments that fit", found, tools)
	if found < tools*99/100 {
		t.Errorf("only %d of %d tools get arguments that fit", found, tools)
	}
}

func FuzzGenerate(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`)
	f.Add(`{"type":"object","properties":{"a":{"type":"string","pattern":"a{1,9}|b"}},"required":["a"]}`)
	f.Add(`{"allOf":[{"enum":[1,2]},{"enum":[2]}]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		v, err := generateFor(schema, true)
		if err == nil && !json.Valid(v) {
			t.Errorf("%s gives %s", schema, v)
		}
		s := &VerifiedTool{Digest: "d1:00", Definition: []byte(`{"name":"t","inputSchema":` + schema + `}`)}
		for _, c := range MakePlan(s, CallLimits{}, TestPlace{}).Calls {
			if !json.Valid(c.Arguments) {
				t.Errorf("%s plans %s", schema, c.Arguments)
			}
		}
	})
}
