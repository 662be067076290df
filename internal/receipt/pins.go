package receipt

import (
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

// maxPins limits how many definitions a receipt names.
const maxPins = 100

// A PinsReport says which definitions of the receipt's server have another state than in the receipt before, without a person's decision. Unnamed ones count, too.
type PinsReport struct {
	Since       time.Time    `json:"since"`       // the first change
	Changes     int          `json:"changes"`     // of states
	Definitions int          `json:"definitions"` // that have changed, some of them more than once
	Named       []ChangedPin `json:"named"`       // the worst ones
}

// A ChangedPin is the newest change of the state of one definition.
type ChangedPin struct {
	Kind     string `json:"kind"`     // see switchboard.PinKind
	Name     string `json:"name"`     // absent for what is of a server
	State    string `json:"state"`    // frozen, or one of switchboard.LifeState
	Class    string `json:"class"`    // what the offered definition means
	Admitted string `json:"admitted"` // the digest of the admitted definition
	Offered  string `json:"offered"`  // the digest of the one that the server offers in its place
	Why      string `json:"why"`
}

// append appends the member pins, unless there are no changes.
func (p *PinsReport) append(w *canonical.Writer) {
	if p.Changes == 0 {
		return
	}
	w.Name("pins")
	w.BeginObject()
	w.Name("changes")
	w.Int(int64(p.Changes))
	writeAmount(w, "definitions", int64(p.Definitions))
	if len(p.Named) > 0 {
		w.Name("named")
		w.BeginList()
		for i := range p.Named[:min(len(p.Named), maxPins)] {
			c := &p.Named[i]
			w.BeginObject()
			writeText(w, "admitted", c.Admitted)
			writeText(w, "class", c.Class)
			writeText(w, "kind", c.Kind)
			writeText(w, "name", c.Name)
			writeText(w, "offered", c.Offered)
			writeText(w, "state", c.State)
			writeText(w, "why", c.Why)
			w.EndObject()
		}
		w.EndList()
	}
	writeTime(w, "since", p.Since)
	w.EndObject()
}
