package edit_test

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
)

func TestRowsAreAddedToAnyMapOfNames(t *testing.T) {
	text := func(s string) document.Node { return document.Node{Kind: document.KindText, Text: s} }
	label := document.Node{Kind: document.KindMap, Pairs: []document.NodePair{
		{Key: text("capabilities"), Value: document.Node{Kind: document.KindList, Items: []document.Node{{Kind: document.KindMap, Pairs: []document.NodePair{{Key: text("verb"), Value: text("read")}}}}}},
		{Key: text("stateful"), Value: document.Node{Kind: document.KindBool, Text: "false"}},
	}}
	rows := []edit.NamedNode{{Name: "b/c", Value: label}, {Name: "no", Value: document.Node{Kind: document.KindMap}}}
	for _, c := range []struct{ before, after string }{
		{"", "tools:\n  b/c: {capabilities: [{verb: read}], stateful: false}\n  \"no\": {}\n"},
		{"server: a\n", "server: a\ntools:\n  b/c: {capabilities: [{verb: read}], stateful: false}\n  \"no\": {}\n"},
		{
			"tools: # ours\n    a: {}  # kept\n\n# the end\nserver: a\n",
			"tools: # ours\n    a: {}  # kept\n    b/c: {capabilities: [{verb: read}], stateful: false}\n    \"no\": {}\n\n# the end\nserver: a\n",
		},
		{"{tools: {a: {}}}\n", "{tools: {a: {}, b/c: {capabilities: [{verb: read}], stateful: false}, \"no\": {}}}\n"},
	} {
		got, err := edit.AddRows("x.yaml", []byte(c.before), "tools", rows)
		if err != nil || string(got) != c.after {
			t.Errorf("%q: %v\n%s\nwant\n%s", c.before, err, got, c.after)
		}
	}
	for before, want := range map[string]string{
		"tools: {b/c: 1}\n":     `x.yaml:1:9: "b/c" stands here already`,
		"tools: [a]\n":          "x.yaml:1:8: tools: want a map",
		"tools: {}\ntools: 1\n": `"tools" stands here twice`,
	} {
		if got, err := edit.AddRows("x.yaml", []byte(before), "tools", rows); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v, want %s", before, got, err, want)
		}
	}
}
