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
	known, _ := catalog.Build(sources, nil, taxonomy).Tool(id)
	for digest, want := range map[switchboard.Digest]int{"": 1, known.Digest: 1, "sha256:0": 0} {
		all := overlays(digest)
		if counting := countingOverlays(all, catalog.Build(sources, all, taxonomy)); len(counting[id].Equivalents) != want || len(all[id].Equivalents) != 1 {
			t.Errorf("given to %q: %d equivalents count, want %d, of %d", digest, len(counting[id].Equivalents), want, len(all[id].Equivalents))
		}
	}
}
