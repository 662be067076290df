package shape_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/strictclient"
)

// tool returns a definition with the members beside the name and the schema.
func tool(members string) string {
	return `{"name":"t","inputSchema":{"type":"object"},` + members + `}`
}

// schema returns a definition with the input schema.
func schema(text string) string { return `{"name":"t","inputSchema":` + text + `}` }

func TestWhatHasOneMeaningIsRepaired(t *testing.T) {
	bare := `{"name":"t","inputSchema":{"type":"object"}}`
	for _, tt := range []struct {
		name        string
		kind        switchboard.Kind
		sent, shown string
	}{
		{"null texts", switchboard.Tools, tool(`"title":null,"description":null`), bare},
		{"null objects", switchboard.Tools, tool(`"annotations":null,"execution":null,"icons":null,"_meta":null,"outputSchema":null`), bare},
		{"a null hint", switchboard.Tools, tool(`"annotations":{"title":null,"readOnlyHint":null,"destructiveHint":true}`), tool(`"annotations":{"destructiveHint":true}`)},
		{"null in the middle", switchboard.Tools, `{ "description" : null, "name" : "t", "inputSchema" : {"type":"object"} }`, `{ "name" : "t", "inputSchema" : {"type":"object"} }`},
		{"an escaped name", switchboard.Tools, tool(`"descriptio\u006e":null`), bare},
		{"a null that the protocol does not know", switchboard.Tools, tool(`"x-vendor":null`), tool(`"x-vendor":null`)},
		{"null inside of _meta", switchboard.Tools, tool(`"_meta":{"a":null}`), tool(`"_meta":{"a":null}`)},
		{"an unknown taskSupport", switchboard.Tools, tool(`"execution":{"taskSupport":"later"}`), tool(`"execution":{}`)},

		{"no type", switchboard.Tools, schema(`{"properties":{"a":{}}}`), schema(`{"properties":{"a":{}},"type":"object"}`)},
		{"nothing in the schema", switchboard.Tools, schema(`{}`), schema(`{"type":"object"}`)},
		{"a null type", switchboard.Tools, schema(`{"type":null}`), schema(`{"type":"object"}`)},
		{"anyOf without a type", switchboard.Tools, schema(`{"anyOf":[{"type":"object"}]}`), schema(`{"anyOf":[{"type":"object"}],"type":"object"}`)},
		{"a list of types", switchboard.Tools, schema(`{"type":["object","null"],"a":1}`), schema(`{"type":"object","a":1}`)},
		{"null properties", switchboard.Tools, schema(`{"type":"object","properties":null,"required":null,"$schema":null}`), schema(`{"type":"object"}`)},
		{"boolean properties", switchboard.Tools, schema(`{"type":"object","properties":{"a":true,"b": false ,"c":{}}}`), schema(`{"type":"object","properties":{"a":{},"b": {"not":{}} ,"c":{}}}`)},
		{"properties without a schema", switchboard.Tools, schema(`{"type":"object","properties":{"type":"object","properties":{"a":{}},"required":["a"],"n":null,"\u202e":7}}`), schema(`{"type":"object","properties":{"type":{},"properties":{"a":{}},"required":{},"n":{},"\u202e":{}}}`)},
		{"an inner schema is no concern", switchboard.Tools, schema(`{"type":"object","properties":{"a":{"type":["array","null"],"properties":null,"required":true}}}`), schema(`{"type":"object","properties":{"a":{"type":["array","null"],"properties":null,"required":true}}}`)},
		{"an output schema without a type", switchboard.Tools, tool(`"outputSchema":{"properties":{"a":true},"required":null}`), tool(`"outputSchema":{"properties":{"a":{}},"type":"object"}`)},
		{"the results are lists", switchboard.Tools, tool(`"outputSchema":{"type":"array","properties":null,"$schema":null}`), tool(`"outputSchema":{"type":"array","properties":null}`)},
		{"the results are objects or null", switchboard.Tools, tool(`"outputSchema":{"type":["object","null"]}`), tool(`"outputSchema":{"type":"object"}`)},

		{"icons that are none", switchboard.Tools, tool(`"icons":"x"`), bare},
		{"an icon without src", switchboard.Tools, tool(`"icons":[{"src":"a"},{"mimeType":"image/png"}]`), bare},
		{"sizes as a text", switchboard.Tools, tool(`"icons":[{"src":"a","sizes":"48x48"}]`), bare},
		{"members of icons", switchboard.Tools, tool(`"icons":[{"src":"a","mimeType":null,"sizes":["48x48"]}, {"src":"b","theme":"blue"},{"src":"c","theme":"dark"}]`), tool(`"icons":[{"src":"a","sizes":["48x48"]},{"src":"b"},{"src":"c","theme":"dark"}]`)},

		{"a resource", switchboard.Resources, `{"uri":"a:b","name":"n","title":null,"description":null,"mimeType":null,"size":null,"annotations":null,"icons":null,"_meta":null}`, `{"uri":"a:b","name":"n"}`},
		{"a resource without a name", switchboard.Resources, `{"uri":"a:b"}`, `{"uri":"a:b","name":"a:b"}`},
		{"a resource with a null name", switchboard.Resources, `{"name":null,"uri":"a:b"}`, `{"name":"a:b","uri":"a:b"}`},
		{"a template without a name", switchboard.Templates, `{"uriTemplate":"a:{b}","description":null,"mimeType":null}`, `{"uriTemplate":"a:{b}","name":"a:{b}"}`},
		{"half a byte", switchboard.Resources, `{"uri":"a:b","name":"n","size":1.5}`, `{"uri":"a:b","name":"n"}`},
		{"more bytes than there are", switchboard.Resources, `{"uri":"a:b","name":"n","size":1e30}`, `{"uri":"a:b","name":"n"}`},
		{"too high a priority", switchboard.Resources, `{"uri":"a:b","name":"n","annotations":{"priority":5,"audience":["user"]}}`, `{"uri":"a:b","name":"n","annotations":{"audience":["user"]}}`},
		{"a day", switchboard.Templates, `{"uriTemplate":"a","name":"n","annotations":{"lastModified":"2025-01-12"}}`, `{"uriTemplate":"a","name":"n","annotations":{}}`},
		{"a time without an offset", switchboard.Templates, `{"uriTemplate":"a","name":"n","annotations":{"lastModified":"2025-01-12T15:00:58"}}`, `{"uriTemplate":"a","name":"n","annotations":{}}`},
		{"an hour of one digit", switchboard.Templates, `{"uriTemplate":"a","name":"n","annotations":{"lastModified":"2025-01-12T5:00:58Z"}}`, `{"uriTemplate":"a","name":"n","annotations":{}}`},
		{"a comma", switchboard.Templates, `{"uriTemplate":"a","name":"n","annotations":{"lastModified":"2025-01-12T15:00:58,1Z"}}`, `{"uriTemplate":"a","name":"n","annotations":{}}`},

		{"a prompt", switchboard.Prompts, `{"name":"p","title":null,"description":null,"arguments":null,"icons":null,"_meta":null}`, `{"name":"p"}`},
		{"arguments", switchboard.Prompts, `{"name":"p","arguments":[{"name":"a","description":null},{"name":"b","required":null,"title":null}]}`, `{"name":"p","arguments":[{"name":"a"},{"name":"b"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shown, misfit := shape.Repair(tt.kind, []byte(tt.sent))
			if misfit != nil || string(shown) != tt.shown {
				t.Errorf("%s\nwant %s\nmisfit: %v", shown, tt.shown, misfit)
			}
			if err := strictclient.Check(tt.kind, true, shown); err != nil {
				t.Errorf("a strict client refuses it: %v", err)
			}
			if again, misfit := shape.Repair(tt.kind, shown); misfit != nil || !bytes.Equal(again, shown) {
				t.Errorf("it is repaired again: %s, %v", again, misfit)
			}
		})
	}
}

func TestWhatClientsAcceptStaysByteForByte(t *testing.T) {
	for _, tt := range []struct {
		kind       switchboard.Kind
		definition string
	}{
		{switchboard.Tools, `{ "name":"t" , "title":"T","description":"d","inputSchema":{ "$schema":"s","type":"object","properties":{"a":{}},"required":["a"],"anyOf":[{}] },
			"outputSchema":{"type":"object"},"annotations":{"title":"x","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"z":1},
			"execution":{"taskSupport":"optional"},"icons":[{"src":"a","mimeType":"m","sizes":["any"],"theme":"dark"}],"_meta":{"a":[null]},"other":null }`},
		{switchboard.Resources, `{"uri":"","name":"","size":-1,"annotations":{"audience":["user","assistant"],"priority":0.5,"lastModified":"2025-01-12T15:00:58.123+02:00"}}`},
		{switchboard.Templates, `{"uriTemplate":"a{b}","name":"n","mimeType":"m","annotations":{"audience":[],"priority":1,"lastModified":"2025-01-12T15:00:58Z"}}`},
		{switchboard.Prompts, `{"name":"p","arguments":[{"name":"a","title":"A","required":true,"x":null},{"name":"b"}],"_meta":{}}`},
	} {
		shown, misfit := shape.Repair(tt.kind, []byte(tt.definition))
		if misfit != nil || string(shown) != tt.definition {
			t.Errorf("%s\nbecame %s, misfit: %v", tt.definition, shown, misfit)
		}
		if err := strictclient.Check(tt.kind, true, shown); err != nil {
			t.Errorf("a strict client refuses it: %v", err)
		}
	}
}

func TestTheMisfitNamesTheMember(t *testing.T) {
	for _, tt := range []struct {
		kind             switchboard.Kind
		definition, want string
	}{
		{switchboard.Tools, `7`, "is a number; want an object"},
		{switchboard.Tools, `{"inputSchema":{}}`, "name: is missing"},
		{switchboard.Tools, `{"name":null,"inputSchema":{}}`, "name: is null; want a string"},
		{switchboard.Tools, tool(`"title":5`), "title: is a number; want a string"},
		{switchboard.Tools, tool(`"description":["d"]`), "description: is a list; want a string"},
		{switchboard.Tools, tool(`"annotations":"safe"`), "annotations: is a string; want an object"},
		{switchboard.Tools, tool(`"annotations":{"readOnlyHint":"yes"}`), "annotations.readOnlyHint: is a string; want a boolean"},
		{switchboard.Tools, tool(`"annotations":{"title":{}}`), "annotations.title: is an object; want a string"},
		{switchboard.Tools, tool(`"execution":true`), "execution: is a boolean; want an object"},
		{switchboard.Tools, tool(`"execution":{"taskSupport":1}`), "execution.taskSupport: is a number; want a string"},
		{switchboard.Tools, tool(`"_meta":[]`), "_meta: is a list; want an object"},
		{switchboard.Tools, `{"name":"t"}`, "inputSchema: is missing"},
		{switchboard.Tools, schema(`null`), "inputSchema: is null; want a JSON Schema object"},
		{switchboard.Tools, schema(`true`), "inputSchema: is a boolean; want a JSON Schema object"},
		{switchboard.Tools, schema(`{"type":"array"}`), `inputSchema.type: is not "object"`},
		{switchboard.Tools, schema(`{"type":["string","null"]}`), `inputSchema.type: is not "object"`},
		{switchboard.Tools, schema(`{"type":["object",7]}`), `inputSchema.type: is not "object"`},
		{switchboard.Tools, schema(`{"type":{}}`), `inputSchema.type: is not "object"`},
		{switchboard.Tools, schema(`{"$schema":1}`), "inputSchema.$schema: is a number; want a string"},
		{switchboard.Tools, schema(`{"properties":[]}`), "inputSchema.properties: is a list; want an object"},
		{switchboard.Tools, schema(`{"required":true}`), "inputSchema.required: is a boolean; want a list"},
		{switchboard.Tools, schema(`{"required":["a",null]}`), "inputSchema.required[1]: is null; want a string"},
		{switchboard.Tools, tool(`"outputSchema":[]`), "outputSchema: is a list; want a JSON Schema object"},
		{switchboard.Tools, tool(`"outputSchema":{"type":"list"}`), `outputSchema.type: is not "object"`},
		{switchboard.Tools, tool(`"outputSchema":{"type":[]}`), `outputSchema.type: is not "object"`},

		{switchboard.Resources, `{"name":"n"}`, "uri: is missing"},
		{switchboard.Resources, `{"uri":null}`, "uri: is null; want a string"},
		{switchboard.Resources, `{"uri":"a","name":7}`, "name: is a number; want a string"},
		{switchboard.Resources, `{"uri":"a","mimeType":{}}`, "mimeType: is an object; want a string"},
		{switchboard.Resources, `{"uri":"a","size":"7"}`, "size: is a string; want a number"},
		{switchboard.Resources, `{"uri":"a","annotations":{"audience":"user"}}`, "annotations.audience: is a string; want a list"},
		{switchboard.Resources, `{"uri":"a","annotations":{"audience":["user","system"]}}`, `annotations.audience[1]: is neither "user" nor "assistant"`},
		{switchboard.Resources, `{"uri":"a","annotations":{"priority":"high"}}`, "annotations.priority: is a string; want a number"},
		{switchboard.Resources, `{"uri":"a","annotations":{"lastModified":7}}`, "annotations.lastModified: is a number; want a string"},
		{switchboard.Templates, `{"name":"n"}`, "uriTemplate: is missing"},
		{switchboard.Templates, `{"uriTemplate":"a","description":0}`, "description: is a number; want a string"},

		{switchboard.Prompts, `{}`, "name: is missing"},
		{switchboard.Prompts, `{"name":"p","arguments":{"a":{}}}`, "arguments: is an object; want a list"},
		{switchboard.Prompts, `{"name":"p","arguments":["a"]}`, "arguments[0]: is a string; want an object"},
		{switchboard.Prompts, `{"name":"p","arguments":[{"name":"a"},{"description":"b"}]}`, "arguments[1].name: is missing"},
		{switchboard.Prompts, `{"name":"p","arguments":[{"name":"a","required":"yes"}]}`, "arguments[0].required: is a string; want a boolean"},
	} {
		shown, misfit := shape.Repair(tt.kind, []byte(tt.definition))
		if misfit == nil || misfit.Error() != tt.want || string(shown) != tt.definition {
			t.Errorf("%s\nbecame %s, misfit: %v, want %s", tt.definition, shown, misfit, tt.want)
		}
		if strictclient.Check(tt.kind, false, []byte(tt.definition)) == nil {
			t.Errorf("%s: a strict client accepts it", tt.definition)
		}
	}
}

// Only the modern protocol has results that are no objects.
func TestLegacyClientsGetNoSchemaOfOtherResultsThanObjects(t *testing.T) {
	bare := `{"name":"t","inputSchema":{"type":"object"}}`
	for definition, want := range map[string]string{
		bare:                                     bare,
		tool(`"outputSchema":{"type":"object"}`): tool(`"outputSchema":{"type":"object"}`),
		tool(`"outputSchema":{"type":"array","items":{}}`):           bare,
		tool(`"outputSchema":{"type":["string","null"]},"title":""`): tool(`"title":""`),
	} {
		shown, misfit := shape.Repair(switchboard.Tools, []byte(definition))
		if misfit != nil || string(shown) != definition {
			t.Errorf("%s becomes %s, %v", definition, shown, misfit)
		}
		if err := strictclient.Check(switchboard.Tools, true, shown); err != nil {
			t.Errorf("a modern client refuses %s: %v", shown, err)
		}
		legacy := shape.ForLegacy(shown)
		if err := strictclient.Check(switchboard.Tools, false, legacy); err != nil || string(legacy) != want {
			t.Errorf("a legacy client gets %s, want %s: %v", legacy, want, err)
		}
	}
}

// What two readers understand differently is refused elsewhere. A repair could hide it.
func TestWhatIsAmbiguousStaysAsItIs(t *testing.T) {
	for _, definition := range []string{
		``, ` `, `{`,
		tool(`"description":null,"description":"x"`),
		tool(`"description":null,"a":{"b":1,"b":2}`),
		`{"name":"t","inputSchema":{},"inputSchema":{}}`,
		tool("\"description\":null,\"a\":\"\xff\""),
		tool(`"description":null,"a":"\ud800"`),
		tool(`"description":null,"a":` + strings.Repeat("[", 99) + strings.Repeat("]", 99)),
		tool(`"description":null` + strings.Repeat(`,"description":null`, 99)),
	} {
		if shown, _ := shape.Repair(switchboard.Tools, []byte(definition)); string(shown) != definition {
			t.Errorf("%s\nbecame %s", definition, shown)
		}
	}
}

// Some keep the same definitions for long, and many of them.
func TestADefinitionThatNeedsNoRepairIsNotCopied(t *testing.T) {
	definition := []byte(tool(`"title":"t","outputSchema":{"type":"object","properties":{"a":{}},"required":["a"]},"annotations":{"readOnlyHint":true}`))
	shown, _ := shape.Repair(switchboard.Tools, definition)
	if &shown[0] != &definition[0] {
		t.Error("it was copied")
	}
}

// FuzzRepair states that strict clients accept whatever is neither ambiguous nor a misfit.
func FuzzRepair(f *testing.F) {
	for k := range switchboard.NKinds {
		f.Add(byte(k), tool(`"icons":[{"src":"a","theme":null}],"arguments":[{"name":"a"}]`))
		f.Add(byte(k), `{"name":null,"uri":"a","uriTemplate":"b","annotations":{"priority":1e9,"lastModified":"2025-01-12T15:00:58Z"},"size":1e5}`)
	}
	f.Fuzz(func(t *testing.T, kind byte, definition string) {
		k := switchboard.Kind(kind) % switchboard.NKinds
		shown, misfit := shape.Repair(k, []byte(definition))
		if misfit != nil || !wire.Strict(shown) {
			return
		}
		if err := strictclient.Check(k, true, shown); err != nil {
			t.Errorf("%s becomes %s: %v", definition, shown, err)
		}
		if again, misfit := shape.Repair(k, shown); misfit != nil || !bytes.Equal(again, shown) {
			t.Errorf("%s becomes %s, and then %s, %v", definition, shown, again, misfit)
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal([]byte(definition), &before) != nil || json.Unmarshal(shown, &after) != nil {
			t.Fatal("it is no object")
		}
		if string(before["x"]) != string(after["x"]) {
			t.Error("an unknown member was changed")
		}
	})
}
