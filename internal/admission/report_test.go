package admission

import (
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A seen is what a report says about each tool with the digest.
type seen struct {
	digest string
	facts  switchboard.ReportFacts
}

func (s *seen) FactsOf(_, digest string) *switchboard.ReportFacts {
	if digest != s.digest {
		return nil
	}
	return &s.facts
}

func TestAFailedMustSuspendsUntilItPassesOrAPersonLetsItIn(t *testing.T) {
	pins := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	digest := pins.Pins[tool("look")].Digest
	later := day.Add(time.Hour)
	failed := switchboard.ReportFacts{Score: 900, Leave: "walls", Failed: []string{"readonly"}, At: later}
	by := func(at time.Time) *ServerPins {
		own := &ServerPins{Listed: pins.Listed, Met: true, Pins: map[PinKey]Pin{}}
		for k, p := range pins.Pins {
			if k == tool("look") {
				p.By, p.Since = "ann", at
			}
			own.Pins[k] = p
		}
		return own
	}
	for name, c := range map[string]struct {
		pins  *ServerPins
		seen  *seen
		state switchboard.LifeState
	}{
		"a failed must":                         {pins, &seen{digest, failed}, switchboard.LifeSuspended},
		"a score that is too low, and no must":  {pins, &seen{digest, switchboard.ReportFacts{Score: 100, Leave: "walls", At: later}}, switchboard.LifeActive},
		"a report about another definition":     {pins, &seen{"d1:00", failed}, switchboard.LifeActive},
		"a person has let it in before":         {by(day), &seen{digest, failed}, switchboard.LifeSuspended},
		"a person has let it in since":          {by(later.Add(time.Second)), &seen{digest, failed}, switchboard.LifeActive},
		"a person has let it in in that second": {by(later), &seen{digest, failed}, switchboard.LifeActive},
	} {
		j := Judge(first, c.pins, Reports{}, OfferTerms{Reports: c.seen}, later.Add(time.Hour), nil)
		if _, a := look(t, j); a.State != c.state {
			t.Errorf("%s: it is %s, want %s (%s)", name, a.State, c.state, a.Why)
		}
		e := j.Offer.Evidence["look"]
		if want := c.seen.digest == digest; (e != nil && e.Report != nil) != want {
			t.Errorf("%s: that the evidence has the report is %v", name, !want)
		}
	}
}
