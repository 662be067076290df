package catalog_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// FuzzBuild passes foreign text in every place that takes some. For any text there must be a tool or a fault, and every
// reader must read the same tool.
func FuzzBuild(f *testing.F) {
	f.Add(define("t", own("read fs readonly")), handshake("read fs"), manifest("write fs"))
	f.Add(define("t", `,"_meta":{"a.b/x-summit-capabilities":[]}`), `{"experimental":{"x-summit-capabilities":{"tools":{"t":[]}}}}`, `{"capabilities":{"tools":{}}}`)
	f.Add(`{"name":"t","inputSchema":`+doubled(3)+`}`, `{"extensions":{"a/b":{"tools":{"t":{"x-summit-capabilities":[]}}}}}`, `{}`)
	f.Add(header(`"type":"string","x-mcp-header":"Region","pattern":"^a"`), ``, ``)
	f.Add(header(`"$ref":"#a","$anchor":"a","items":[{"$ref":"#/properties/a/items/0"}]`), `{"x-summit":1}`, `[]`)
	f.Add(`{"n\u0061me":"t","Name":"u","inputSchema":{"$id":"x","$ref":"%"}}`, `{"tools":{"x-summit":{}}}`, `null`)
	tax := taxonomy(f)
	f.Fuzz(func(t *testing.T, definition, handshake, manifest string) {
		src := catalog.Source{
			Offer:    switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(definition)}, Capabilities: []byte(handshake)},
			Manifest: &catalog.Manifest{Name: "m", Data: []byte(manifest)},
		}
		s := catalog.Build([]catalog.Source{src}, nil, tax)
		if len(s.Tools()) == 0 && len(s.Faults()) == 0 {
			t.Fatal("there is neither a tool nor a fault")
		}
		for _, fault := range texts(s.Faults()) {
			if strings.ContainsFunc(fault, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("the fault has control characters: %q", fault)
			}
		}
		again := s.Rebuild([]catalog.Source{src}, nil, tax)
		if again.Digest() != s.Digest() || catalog.Build([]catalog.Source{src}, nil, tax).Digest() != s.Digest() {
			t.Error("the second build has another digest")
		}
		for _, tool := range s.Tools() {
			checkTool(t, tool, definition, tax)
		}
	})
}

func checkTool(t *testing.T, tool *switchboard.Tool, definition string, tax *switchboard.Taxonomy) {
	if repaired, _ := shape.Repair(switchboard.Tools, []byte(definition)); string(tool.Definition) != string(repaired) {
		t.Errorf("definition %q was changed to %q", definition, tool.Definition)
	}
	// The standard library is lenient about case and repetition.
	var seen struct {
		Name        string
		InputSchema map[string]any
	}
	if err := json.Unmarshal([]byte(definition), &seen); err != nil || seen.Name != tool.ID.Name || seen.InputSchema == nil {
		t.Errorf("we read %q, another reader %q, %v", tool.ID.Name, seen.Name, err)
	}
	for _, c := range slices.Concat(tool.Capabilities, tool.Kept) {
		if !slices.Contains(switchboard.Verbs, c.Verb) || !tax.HasResource(c.Resource) || !slices.IsSorted(c.Constraints) {
			t.Errorf("capability %v", c)
		}
		for _, k := range c.Constraints {
			if !tax.HasConstraint(k) {
				t.Errorf("constraint %q", k)
			}
		}
	}
}
