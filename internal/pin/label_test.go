package pin

import (
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Labels name the definition that they were given to, so all processes must know which other definitions have its meaning: also one that starts later, and has never seen the old one.
func TestProcessesAgreeWhichDefinitionsAreAlike(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := open(t)
			a := start(t, next(), "a")
			other := strings.Replace(work, "works", "toils", 1)
			a.state(offerOf(work))
			a.state(offerOf(other))
			id := switchboard.PinID{Server: "s", Kind: switchboard.PinTool, Name: "work"}
			if known, err := a.Decide(t.Context(), id, func(v admission.PinVerdict) (admission.Pin, error) {
				p := v.Pin.With(v.Other.Digest, v.Other.Definition)
				p.By = "ada"
				return p, nil
			}); err != nil || !known {
				t.Fatal(known, err)
			}
			want := a.Admit(t.Context(), offerOf(other), firstUse)[0].Alike["work"]
			if len(want) != 1 || !strings.HasPrefix(string(want[0]), "sha256:") {
				t.Fatalf("alike are %v", want)
			}
			late := start(t, next(), "b")
			if got := late.Admit(t.Context(), offerOf(other), firstUse)[0].Alike["work"]; !slices.Equal(got, want) {
				t.Errorf("alike are %v, want %v", got, want)
			}
		})
	}
}
