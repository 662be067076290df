package served_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/strictclient"
)

// A client that checks a whole list loses the items of all servers by one malformed definition of one server. So each definition that clients get fits the protocol's schema:
// Switchboard repairs what has only one meaning, and refuses other definitions one by one.
func TestOneMalformedDefinitionTakesNoListAway(t *testing.T) {
	t.Parallel()
	with := func(name, members string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object"},` + members + `}`
	}
	takes := func(name, schema string) string { return `{"name":"` + name + `","inputSchema":` + schema + `}` }
	repaired := []string{
		with("null_text", `"title":null,"description":null`), with("null_annotations", `"annotations":null`), with("null_hint", `"annotations":{"readOnlyHint":null}`),
		with("null_meta", `"_meta":null`), with("null_output", `"outputSchema":null`), with("icons_text", `"icons":"x"`), with("odd_task", `"execution":{"taskSupport":"later"}`),
		with("list_output", `"outputSchema":{"type":"array"}`), with("bare_output", `"outputSchema":{}`),
		takes("untyped", `{"properties":{"a":{"type":"string"}}}`), takes("empty", `{}`), takes("any_of", `{"anyOf":[{"type":"object"}]}`), takes("type_list", `{"type":["object","null"]}`),
		takes("null_properties", `{"type":"object","properties":null,"required":null}`), takes("boolean_property", `{"type":"object","properties":{"a":true,"b":false}}`),
		takes("property_text", `{"type":"object","properties":{"a":"string"}}`),
	}
	refused := []string{
		with("title_number", `"title":5`), with("hint_text", `"annotations":{"readOnlyHint":"yes"}`), with("meta_list", `"_meta":[]`), with("execution_text", `"execution":"x"`),
		takes("array", `{"type":"array"}`), takes("required_true", `{"type":"object","required":true}`),
	}
	bad := rig.FakeRow("bad", append([]string{
		`resources={"uri":"x:null","name":"n","description":null,"mimeType":null},{"uri":"x:unnamed"},{"uri":"x:size","name":"n","size":"7"},{"name":"n"},{"uri":"x:decimal","name":"n","size":0.5}`,
		`resourceTemplates={"uriTemplate":"x:{null}","name":"t","description":null},{"uriTemplate":"x:{number}","name":7}`,
		`prompts={"name":"null_arguments","arguments":null},{"name":"arguments_map","arguments":{"a":{}}},{"name":"unnamed_argument","arguments":[{"description":"a"}]},{"name":"null_required","arguments":[{"name":"a","required":null}]}`,
	}, append(repaired, refused...)...)...)
	good := rig.FakeRow("good", `resources={"uri":"y:1","name":"n"}`, `resourceTemplates={"uriTemplate":"y:{a}","name":"t"}`, `prompts={"name":"ask"}`, with("work", `"description":"works"`))
	g := rig.Serve(t, rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+bad+"\n  "+good+"\n"))
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		for _, list := range []struct {
			kind       switchboard.Kind
			member, id string
			want       []string
		}{
			{switchboard.Tools, "tools", "name", append(namesOf(t, repaired), "work")},
			{switchboard.Resources, "resources", "uri", []string{"x:null", "x:unnamed", "x:decimal", "y:1"}},
			{switchboard.Templates, "resourceTemplates", "uriTemplate", []string{"x:{null}", "y:{a}"}},
			{switchboard.Prompts, "prompts", "name", []string{"null_arguments", "null_required", "ask"}},
		} {
			method := map[switchboard.Kind]string{switchboard.Tools: "tools/list", switchboard.Resources: "resources/list", switchboard.Templates: "resources/templates/list", switchboard.Prompts: "prompts/list"}[list.kind]
			rig.Eventually(t, method+" has what is sound, and what can be repaired", func() string {
				m, _ := s.Ask(t, method, "{}")
				var result map[string]json.RawMessage
				var items []json.RawMessage
				if json.Unmarshal(m.Result, &result) != nil || json.Unmarshal(result[list.member], &items) != nil {
					return string(m.Raw)
				}
				got := map[string]bool{}
				for _, item := range items {
					if err := strictclient.Check(list.kind, modern, item); err != nil {
						t.Fatalf("modern %t: a strict client loses the list %s: %v: %s", modern, method, err, item)
					}
					var members map[string]any
					_ = json.Unmarshal(item, &members)
					got[members[list.id].(string)] = true
				}
				var ids []string
				for _, id := range slices.Sorted(maps.Keys(got)) {
					if !strings.HasPrefix(id, "switchboard_") { // Switchboard's own
						ids = append(ids, id)
					}
				}
				return rig.ReasonUnless(slices.Equal(ids, slices.Sorted(slices.Values(list.want))), strings.Join(ids, " "))
			})
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"untyped","arguments":{"a":"x"}}`)
		if strings.Contains(string(m.Raw), "SB-") || m.Result == nil {
			t.Errorf("modern %t: a repaired tool cannot be called: %s", modern, m.Raw)
		}
	}
	a := g.AskAdmin(t, "", http.MethodGet, "/v1/status", "")
	for _, want := range []string{
		`server \"bad\", tool \"title_number\", tool: title: is a number; want a string`,
		`server \"bad\", tool \"array\", tool: inputSchema.type: is not \"object\"`,
		`2 of its resources are left out, because clients would refuse the whole list: \"x:size\" (size: is a string; want a number), uri: is missing`,
		`1 of its resource templates are left out`, `2 of its prompts are left out`,
	} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("the status does not say %s: %s", want, a.Body)
		}
	}
}

// namesOf returns the names of definitions.
func namesOf(t *testing.T, definitions []string) (names []string) {
	t.Helper()
	for _, definition := range definitions {
		var d struct{ Name string }
		if err := json.Unmarshal([]byte(definition), &d); err != nil {
			t.Fatal(err)
		}
		names = append(names, d.Name)
	}
	return names
}
