package admission

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/realdata"
)

// admitted is the definition before each change.
const admitted = `{"name":"send","title":"Send","description":"Sends a mail.","icons":[{"src":"a.png"}],
"inputSchema":{"type":"object","properties":{"to":{"type":"string","description":"To whom."},"count":{"type":"integer","default":1},"how":{"enum":["now","later"]},"description":{"type":"string"}},"required":["to"]},
"outputSchema":{"type":"object","properties":{"id":{"type":"string","title":"Id"}},"required":["id"]},
"annotations":{"title":"Send","readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},
"_meta":{"example.com/note":1,"x-summit-capabilities":[{"verb":"write","resource":"mail","constraints":["audited"]}]}}`

func TestAChangeOfADefinitionHasTheClassOfItsMeaning(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		class          Class
		member         string
	}{
		{"spaces", `"title":"Send",`, `"title" : "Send" ,`, Same, ""},
		{"the order of members", `"name":"send","title":"Send",`, `"title":"Send","name":"send",`, Same, ""},
		{"a description", `Sends a mail.`, `Sends a mail at once.`, Words, "description"},
		{"a title", `"title":"Send",`, ``, Words, "title"},
		{"an icon", `a.png`, `b.png`, Words, "icons"},
		{"a description of an argument", `To whom.`, `An address.`, Words, "inputSchema"},
		{"an example of an argument", `"description":"To whom."`, `"examples":["x@example.com"]`, Words, "inputSchema"},
		{"a title of the result", `"title":"Id"`, `"title":"Number"`, Words, "outputSchema"},
		{"a note in _meta", `note":1`, `note":2`, Words, "_meta.example.com/note"},
		{"a title in annotations", `"annotations":{"title":"Send"`, `"annotations":{"title":"Send it"`, Words, "annotations.title"},
		{"a hint that promises more", `"readOnlyHint":false`, `"readOnlyHint":true`, Words, "annotations.readOnlyHint"},
		{"a block with one more constraint", `["audited"]`, `["audited","readonly"]`, Words, "_meta.x-summit-capabilities"},
		{"a block that is gone", `,"x-summit-capabilities":[{"verb":"write","resource":"mail","constraints":["audited"]}]`, ``, Freer, "_meta.x-summit-capabilities"},
		{"a block that is empty", `[{"verb":"write","resource":"mail","constraints":["audited"]}]`, `[]`, Freer, "_meta.x-summit-capabilities"},
		{"a block that cannot be read", `[{"verb":"write","resource":"mail","constraints":["audited"]}]`, `[1]`, Freer, "_meta.x-summit-capabilities"},
		{"a _meta that cannot be read", `"_meta":{"example.com/note":1,"x-summit-capabilities":[{"verb":"write","resource":"mail","constraints":["audited"]}]}`, `"_meta":[]`, Narrower, "_meta"},
		{"an argument whose name is that of another place", `"how":`, `"to/properties/x":{"default":1},"how":`, Narrower, "inputSchema"},
		{"one more optional argument", `"how":`, `"cc":{"type":"string"},"how":`, Wider, "inputSchema"},
		{"one more value of an enum", `"later"]`, `"later","never"]`, Wider, "inputSchema"},
		{"a required argument that is optional now", `"required":["to"]},`, `"required":[]},`, Wider, "inputSchema"},
		{"a result that promises more", `"required":["id"]`, `"required":["id"],"additionalProperties":false`, Wider, "outputSchema"},
		{"one more required argument", `"required":["to"]},`, `"required":["to","how"]},`, Narrower, "inputSchema"},
		{"a value of an enum less", `"now","later"`, `"now"`, Narrower, "inputSchema"},
		{"another type", `"to":{"type":"string"`, `"to":{"type":"integer"`, Narrower, "inputSchema"},
		{"an argument that may not be there any more", `"how":{"enum":["now","later"]}`, `"how":false`, Narrower, "inputSchema"},
		{"an argument whose name is a word of schemas", `"description":{"type":"string"}`, `"description":{"type":"integer"}`, Narrower, "inputSchema"},
		{"another default", `"default":1`, `"default":2`, Narrower, "inputSchema"},
		{"a default that is gone", `,"default":1`, ``, Narrower, "inputSchema"},
		{"one more argument with a default", `"how":`, `"cc":{"type":"string","default":"boss"},"how":`, Narrower, "inputSchema"},
		{"a result that promises less", `,"required":["id"]`, ``, Narrower, "outputSchema"},
		{"no result any more", `"outputSchema"`, `"otherSchema"`, Narrower, "outputSchema"},
		{"a member that nobody knows", `"name":"send",`, `"name":"send","execution":{"taskSupport":"required"},`, Narrower, "execution"},
		{"a hint that nobody knows", `"openWorldHint":false`, `"openWorldHint":false,"safeHint":true`, Narrower, "annotations.safeHint"},
		{"it may destroy", `"destructiveHint":false`, `"destructiveHint":true`, Freer, "annotations.destructiveHint"},
		{"it reaches further", `,"openWorldHint":false`, ``, Freer, "annotations.openWorldHint"},
		{"a repeat may harm", `"idempotentHint":true`, `"idempotentHint":false`, Freer, "annotations.idempotentHint"},
		{"a block that has lost a constraint", `["audited"]`, `[]`, Freer, "_meta.x-summit-capabilities"},
		{"a block with one more capability", `"resource":"mail","constraints":["audited"]}`, `"resource":"mail","constraints":["audited"]},{"verb":"read","resource":"mail"}`, Freer, "_meta.x-summit-capabilities"},
		{"a block at another place", `"name":"send",`, `"name":"send","x-summit-capabilities":[{"verb":"execute","resource":"shell"}],`, Freer, "x-summit-capabilities"},
	} {
		t.Run(test.name, func(t *testing.T) {
			offered := strings.Replace(admitted, test.old, test.new, 1)
			if offered == admitted || !json.Valid([]byte(offered)) {
				t.Fatalf("the test changes nothing, or too much: %s", offered)
			}
			got, all := CompareTools([]byte(admitted), []byte(offered))
			if got != test.class || test.class != Same && !slices.Contains(all, Difference{test.member, test.class}) {
				t.Errorf("%s by %v, want %s by %s", got, all, test.class, test.member)
			}
		})
	}
}

// An example is a schema, if a reference leads to it. Two defaults whose places are spelt alike stay apart.
func TestWhatLooksLikeWordsAndIsNone(t *testing.T) {
	for _, test := range []struct{ before, after string }{
		{`{"properties":{"a":{"$ref":"#/examples/0"}},"examples":[{"type":"string"}]}`, `{"properties":{"a":{"$ref":"#/examples/0"}},"examples":[{"type":"integer"}]}`},
		{`{"properties":{"a":{"$ref":"#/default"}},"default":{"type":"string"}}`, `{"properties":{"a":{"$ref":"#/default"}},"default":{"type":"integer"}}`},
		{`{"properties":{"a":{"properties":{"b":{"default":1}}},"a/properties/b":{"default":2}}}`, `{"properties":{"a":{"properties":{"b":{"default":3}}},"a/properties/b":{"default":2}}}`},
	} {
		definition := func(schema string) json.RawMessage {
			return json.RawMessage(`{"name":"a","inputSchema":` + schema + `}`)
		}
		for range 20 { // members have no order
			if got, _ := CompareTools(definition(test.before), definition(test.after)); got != Narrower {
				t.Fatalf("%s and then %s: %s, want narrower", test.before, test.after, got)
			}
		}
	}
}

// A server writes both definitions.
func TestAComparisonEndsSoonForAnyDefinitions(t *testing.T) {
	many := func(n int, item func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = item(i)
		}
		return strings.Join(all, ",")
	}
	properties := func(value string) string {
		return `{"properties":{` + many(2000, func(i int) string { return fmt.Sprintf(`"p%d":%s`, i, value) }) + `}}`
	}
	nested := `{"properties":{` + many(2000, func(i int) string { return fmt.Sprintf(`"p%d":{}`, i) }) + `}}`
	for range 4 {
		nested = `{"properties":{"` + strings.Repeat("x", 100_000) + `":` + nested + `}}`
	}
	for name, pair := range map[string][2]string{
		"many members": {properties("true"), properties("{}")},
		"long names":   {nested, strings.Replace(nested, "{}", `{"title":"a"}`, 1)},
		"many alternatives": {`{"anyOf":[` + many(200, func(i int) string {
			return fmt.Sprintf(`{"properties":{"p%d":{"anyOf":[%s]}}}`, i, many(5, func(j int) string { return fmt.Sprintf(`{"minimum":%d}`, j) }))
		}) + `]}`, properties("{}")},
		"a tree of itself":    {`{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`, `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"}}}`},
		"many lists in lists": {`{"items":{"items":{"items":` + properties("true") + `}}}`, `{"items":{"items":{"items":` + properties("{}") + `}}}`},
	} {
		quickest := time.Hour
		for range 3 {
			began := time.Now()
			CompareTools(json.RawMessage(`{"inputSchema":`+pair[0]+`}`), json.RawMessage(`{"inputSchema":`+pair[1]+`}`))
			quickest = min(quickest, time.Since(began))
		}
		if t.Logf("%s: %s", name, quickest); quickest > 2*time.Second { // some took minutes
			t.Errorf("%s: it takes %s", name, quickest)
		}
	}
}

func TestTheWorstDifferenceIsTheClassOfAll(t *testing.T) {
	offered := strings.NewReplacer(`Sends a mail.`, `Sends.`, `"later"]`, `"later","never"]`, `"destructiveHint":false`, `"destructiveHint":true`).Replace(admitted)
	got, all := CompareTools([]byte(admitted), []byte(offered))
	want := []Difference{{"annotations.destructiveHint", Freer}, {"description", Words}, {"inputSchema", Wider}}
	if got != Freer || !slices.Equal(all, want) {
		t.Errorf("%s by %v, want freer by %v", got, all, want)
	}
}

// eachRealTool calls f with the tools of real servers.
func eachRealTool(t *testing.T, f func(server string, definition json.RawMessage)) {
	t.Helper()
	file := realdata.File("catalog", "servers.jsonl.gz")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the catalog of real tools is not here: %v", err)
	}
	err := realdata.Lines(file, func(line []byte) error {
		var s struct {
			Name  string
			Tools []json.RawMessage
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		for _, d := range s.Tools {
			f(s.Name, d)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// For each real tool: all its words are changed, and nothing else.
func TestAllChangesInWordsAloneAreRecognised(t *testing.T) {
	n := 0
	eachRealTool(t, func(server string, d json.RawMessage) {
		v, _ := read(d).(map[string]any)
		v["title"], v["description"], v["icons"] = "another", "Other words.", []any{map[string]any{"src": "https://example.com/a.png"}}
		changeWords(v["inputSchema"])
		changeWords(v["outputSchema"])
		if class, all := CompareTools(d, written(v)); class != Words {
			t.Fatalf("%s: %s by %v: %.500s", server, class, all, d)
		}
		n++
	})
	if n < 9000 {
		t.Errorf("only %d tools were compared", n)
	}
}

// changeWords gives the schema, and the schemas below it, other words.
func changeWords(schema any) {
	object, ok := schema.(map[string]any)
	if !ok {
		return
	}
	object["description"], object["examples"] = "Another.", []any{1}
	delete(object, "title")
	for _, keyword := range []string{"items", "additionalProperties", "not"} {
		changeWords(object[keyword])
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := object[keyword].([]any)
		for _, one := range list {
			changeWords(one)
		}
	}
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		named, _ := object[keyword].(map[string]any)
		for _, one := range named {
			changeWords(one)
		}
	}
}

// notOfName are the parts of a server's name that differ between its packages: scopes, words that all have, and signs.
var notOfName = regexp.MustCompile(`^@[^/]*/|server|mcp|[^a-z]`)

// Tools of one name on two versions of a server, as they are.
func TestChangesBetweenRealVersionsHaveClasses(t *testing.T) {
	first := map[string]json.RawMessage{}
	counts := map[Class]int{}
	slowest := time.Duration(0)
	eachRealTool(t, func(server string, d json.RawMessage) {
		v, _ := read(d).(map[string]any)
		key := fmt.Sprint(notOfName.ReplaceAllString(strings.ToLower(server), ""), "/", v["name"])
		before := first[key]
		if before == nil {
			first[key] = d
			return
		}
		began := time.Now()
		class, all := CompareTools(before, d)
		slowest = max(slowest, time.Since(began))
		counts[class]++
		if class == Same != (len(all) == 0) {
			t.Errorf("%s: %s by %v", key, class, all)
		}
	})
	t.Logf("by class: %v; the slowest took %s", counts, slowest)
	if counts[Words] < 10 || counts[Narrower] < 10 {
		t.Errorf("these are too few: %v", counts)
	}
}

func FuzzCompareTools(f *testing.F) {
	f.Add(admitted, strings.Replace(admitted, "now", "soon", 1))
	f.Add(`{}`, `[]`)
	f.Add(`{"annotations":[]}`, `{"annotations":{"x-summit-capabilities":1}}`)
	f.Add(`{"inputSchema":{"$ref":"#"}}`, `{"inputSchema":{"$ref":"#","properties":{"a":{"$ref":"#"}}}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 8192 {
			t.Skip("long")
		}
		class, all := CompareTools([]byte(a), []byte(b))
		if (class == Same) != (len(all) == 0) {
			t.Errorf("%s by %v", class, all)
		}
		if same, _ := CompareTools([]byte(a), []byte(a)); json.Valid([]byte(a)) && strings.HasPrefix(strings.TrimSpace(a), "{") && same != Same {
			t.Errorf("with itself it is %s", same)
		}
	})
}
