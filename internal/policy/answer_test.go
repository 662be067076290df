package policy

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestCandidatesAreFoundByTheirIDsInAnyOrder(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"a", "a-", "a-b", "a0", "ab", "b", "b/c"}) // a hyphen comes before the slash, and a digit after it
	rapid.Check(t, func(t *rapid.T) {
		at := map[string]int{}
		var candidates []*switchboard.Tool
		for range rapid.IntRange(0, 12).Draw(t, "candidates") {
			server := rapid.SampledFrom([]switchboard.ServerID{"a", "a-b", "a0", "ab"}).Draw(t, "server")
			id := switchboard.ToolID{Server: server, Name: part.Draw(t, "name")}
			if _, again := at[id.String()]; !again {
				at[id.String()] = len(candidates)
				candidates = append(candidates, &switchboard.Tool{ID: id})
			}
		}
		ids := sortIDs(candidates)
		for id, want := range at {
			if got, ok := ids.find(id); !ok || got != want {
				t.Errorf("%s is at %d, %t, want %d", id, got, ok, want)
			}
		}
		other := part.Draw(t, "other")
		if _, is := at[other]; !is {
			if i, ok := ids.find(other); ok {
				t.Errorf("%q is no candidate, and was found at %d", other, i)
			}
		}
	})
}
