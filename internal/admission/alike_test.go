package admission

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// accepted returns the pins after a person has let in what the offer has.
func accepted(t *testing.T, pins *ServerPins, offer switchboard.Offer) *ServerPins {
	t.Helper()
	next := &ServerPins{Listed: pins.Listed, Met: pins.Met, Pins: map[PinKey]Pin{}}
	Judge(offer, pins, Reports{}, OfferTerms{}, day, func(v PinVerdict) {
		p := v.Pin
		if v.Other != nil {
			p = p.With(v.Other.Digest, v.Other.Definition)
			p.State, p.By = switchboard.LifeActive, "ada"
		}
		next.Pins[v.Key] = p
	})
	return next
}

func TestAPinRemembersTheDefinitionsThatDifferInWordsAlone(t *testing.T) {
	digest := func(o switchboard.Offer) switchboard.Digest {
		d, err := canonical.Digest(o.Tools[0])
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	words, more, freer := offering("looks", "peeks"), offering(`"a":{`, `"b":{"type":"number"},"a":{`), offering(`"readOnlyHint":true`, `"readOnlyHint":false`)
	narrower := offering(`"type":"object"`, `"type":"object","required":["a"]`)
	for _, c := range []struct {
		name   string
		offers []switchboard.Offer // let in, one after the other
		want   []switchboard.Offer // whose digests are alike
	}{
		{"the first", nil, nil},
		{"words", []switchboard.Offer{words}, []switchboard.Offer{first}},
		{"words and back", []switchboard.Offer{words, first}, []switchboard.Offer{words, first}},
		{"wider", []switchboard.Offer{more}, nil},
		{"narrower", []switchboard.Offer{narrower}, nil},
		{"freer", []switchboard.Offer{freer}, nil},
		{"words, then freer", []switchboard.Offer{words, freer}, nil},
		{"freer, then back", []switchboard.Offer{freer, first}, []switchboard.Offer{freer}}, // a hint that promises more is in class words
	} {
		t.Run(c.name, func(t *testing.T) {
			pins, last := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins, first
			for _, o := range c.offers {
				pins, last = accepted(t, pins, o), o
			}
			passed := Judge(last, pins, Reports{}, OfferTerms{}, day, nil).Offer
			for _, o := range []switchboard.Offer{first, words, more, narrower, freer} {
				want, got := false, false
				for _, w := range c.want {
					want = want || digest(w) == digest(o)
				}
				for _, d := range passed.Alike["look"] {
					got = got || d == digest(o)
				}
				if got != want {
					t.Errorf("%s is alike: %v, want %v", o.Tools[0], got, want)
				}
			}
		})
	}
}

func TestAPinRemembersAtMostSixteenDefinitions(t *testing.T) {
	pins := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	for i := range 40 {
		pins = accepted(t, pins, offering("looks", strings.Repeat("x", i+1)))
	}
	for _, p := range pins.Pins {
		if n := len(strings.Fields(p.Alike)); n > maxAlike {
			t.Errorf("%d", n)
		}
	}
}

func TestALineOfTheFileKeepsTheWordsOfAPin(t *testing.T) {
	words := offering("looks", "peeks")
	pins := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	key := tool("look")
	for _, c := range []struct {
		name  string
		offer switchboard.Offer
		alike bool
	}{{"words", words, true}, {"narrower", offering(`"type":"object"`, `"type":"object","required":["a"]`), false}} {
		d, err := DigestOf(c.offer.Tools[0])
		if err != nil {
			t.Fatal(err)
		}
		terms := OfferTerms{Entries: map[PinKey]switchboard.AdmittedPin{key: {Digest: d, State: switchboard.LifeActive, By: "ada", At: day}}}
		j := Judge(c.offer, pins, Reports{}, terms, day, nil)
		if alike := len(j.Offer.Alike["look"]) == 1; alike != c.alike {
			t.Errorf("%s: alike are %v", c.name, j.Offer.Alike)
		}
	}
}
