package bind

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAnEndedLabelDeclaresNoEquivalents(t *testing.T) {
	taxonomy, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := switchboard.ToolID{Server: "a", Name: "look"}
	sources := []catalog.Source{{Offer: switchboard.Offer{Server: "a", Tools: [][]byte{[]byte(`{"name":"look","inputSchema":{"type":"object"}}`)}}}}
	overlays := func(digest switchboard.Digest) map[switchboard.ToolID]switchboard.Overlay {
		return map[switchboard.ToolID]switchboard.Overlay{id: {For: digest, Equivalents: []switchboard.DeclaredEquivalent{{Tool: switchboard.ToolID{Server: "b", Name: "look"}}}}}
	}
	// Another tool, and a tenant's overlay, do not lead to it either.
	to := map[switchboard.ToolID]switchboard.Overlay{{Server: "b", Name: "look"}: {Equivalents: []switchboard.DeclaredEquivalent{{Tool: id}, {Tool: switchboard.ToolID{Server: "c", Name: "look"}}}}}
	if counting := countingOverlays(to, catalog.Build(sources, overlays("sha256:0"), taxonomy)); len(counting[switchboard.ToolID{Server: "b", Name: "look"}].Equivalents) != 1 {
		t.Errorf("what leads to a tool with an ended label counts: %v", counting)
	}
	known, _ := catalog.Build(sources, nil, taxonomy).Tool(id)
	for digest, want := range map[switchboard.Digest]int{"": 1, known.Digest: 1, "sha256:0": 0} {
		all := overlays(digest)
		if counting := countingOverlays(all, catalog.Build(sources, all, taxonomy)); len(counting[id].Equivalents) != want || len(all[id].Equivalents) != 1 {
			t.Errorf("given to %q: %d equivalents count, want %d, of %d", digest, len(counting[id].Equivalents), want, len(all[id].Equivalents))
		}
	}
}
