package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// first is the offer of a server that every test begins with.
var first = switchboard.Offer{
	Server:       "s",
	Tools:        [][]byte{[]byte(`{"name":"look","description":"looks","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}},"annotations":{"readOnlyHint":true}}`)},
	Prompts:      [][]byte{[]byte(`{"name":"review","description":"reviews"}`)},
	Templates:    [][]byte{[]byte(`{"uriTemplate":"x://{a}","name":"x"}`)},
	Instructions: "Look first.",
}

var day = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

// offering returns the first offer with the tool's text changed.
func offering(old, new string) switchboard.Offer {
	o := first
	o.Tools = [][]byte{[]byte(strings.Replace(string(first.Tools[0]), old, new, 1))}
	return o
}

func tool(name string) PinKey { return PinKey{switchboard.PinTool, name} }

func look(t *testing.T, j JudgedOffer) (definition string, a switchboard.Admission) {
	t.Helper()
	if len(j.Offer.Tools) != 1 {
		t.Fatalf("%d tools are passed on, want 1", len(j.Offer.Tools))
	}
	a = switchboard.Admission{State: switchboard.LifeActive}
	if is := j.Offer.Admissions["look"]; is != nil {
		a = *is
	}
	return string(j.Offer.Tools[0]), a
}

// deceives finds a blocking finding in each text with the word "evil".
func deceives(_ PinKey, definition []byte) string {
	if strings.Contains(string(definition), "evil") {
		return "bidi"
	}
	return ""
}

func TestAChangedToolIsShownAsAdmittedOrSuspended(t *testing.T) {
	seen := Judge(first, &ServerPins{}, Reports{}, OfferTerms{FindBlocking: deceives}, day, nil)
	if !seen.FirstSeen || len(seen.Pins.Pins) != 4 {
		t.Fatalf("at first sight, FirstSeen is %v and there are %d pins, want 4", seen.FirstSeen, len(seen.Pins.Pins))
	}
	suspend := switchboard.AdmissionRules{Changed: switchboard.ChangedSuspend}
	for _, c := range []struct {
		name, old, new string
		rules          switchboard.AdmissionRules
		state          switchboard.LifeState
		frozen         bool
		why            string
	}{
		{name: "the same", state: switchboard.LifeActive},
		{name: "spaces and order", old: `{"name":"look","description":"looks",`, new: `{ "description":"looks", "name":"look",`, state: switchboard.LifeActive},
		{name: "words", old: "looks", new: "peeks", state: switchboard.LifeActive, frozen: true, why: "words: description"},
		{name: "words where each change suspends", rules: suspend, old: "looks", new: "peeks", state: switchboard.LifeSuspended, why: "words: description"},
		{name: "spaces where each change suspends", rules: suspend, old: `"looks",`, new: `"looks" , `, state: switchboard.LifeActive},
		{name: "one more argument", old: `"a":{`, new: `"b":{"type":"number"},"a":{`, state: switchboard.LifeActive, frozen: true, why: "wider: inputSchema"},
		{name: "a required argument", old: `"type":"object"`, new: `"type":"object","required":["a"]`, state: switchboard.LifeSuspended, why: "narrower: inputSchema"},
		{name: "a default", old: `"a":{`, new: `"a":{"default":"/",`, state: switchboard.LifeSuspended, why: "narrower: inputSchema"},
		{name: "a freer hint", old: `"readOnlyHint":true`, new: `"readOnlyHint":false`, state: switchboard.LifeSuspended, why: "freer: annotations.readOnlyHint"},
		{name: "words that deceive", old: "looks", new: "evil", state: switchboard.LifeSuspended, why: "poisoned: bidi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := Judge(offering(c.old, c.new), seen.Pins, Reports{}, OfferTerms{Rules: c.rules, FindBlocking: deceives}, day, nil)
			definition, a := look(t, j)
			if definition != string(first.Tools[0]) {
				t.Errorf("a definition is passed on that was not let in: %s", definition)
			}
			if a.State != c.state || a.Frozen != c.frozen || !strings.Contains(a.Why, c.why) {
				t.Errorf("it is %+v; want %s, frozen %v, because of %q", a, c.state, c.frozen, c.why)
			}
			if j.FirstSeen {
				t.Error("a change counts as first sight")
			}
			back := Judge(first, j.Pins, Reports{Own: j.Others}, OfferTerms{}, day, nil)
			if _, a := look(t, back); a.State != switchboard.LifeActive || a.Frozen || len(back.Others) > 0 {
				t.Errorf("once the admitted definition is offered again, it is %+v", a)
			}
		})
	}
}

func TestWhatOneReplicaSeesCountsOnAll(t *testing.T) {
	seen := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil)
	for _, changed := range []switchboard.Offer{offering(`"looks"`, `"looks","outputSchema":{}`), offering(`"a":{`, `"b":{},"a":{`)} {
		there := Judge(changed, seen.Pins, Reports{}, OfferTerms{}, day, nil)
		_, want := look(t, there)
		here := Judge(first, seen.Pins, Reports{Others: there.Others}, OfferTerms{}, day, nil)
		if definition, a := look(t, here); a != want || a == (switchboard.Admission{State: switchboard.LifeActive}) || definition != string(first.Tools[0]) {
			t.Errorf("here it is %+v, there %+v", a, want)
		}
	}
}

func TestATwiceChangedToolHasTheWorseStateOnAllReplicas(t *testing.T) {
	seen := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil)
	words, narrower := offering("looks", "peeks"), offering(`"type":"object"`, `"type":"object","required":["a"]`)
	a := Judge(words, seen.Pins, Reports{}, OfferTerms{}, day, nil)
	b := Judge(narrower, seen.Pins, Reports{}, OfferTerms{}, day, nil)
	_, onA := look(t, Judge(words, seen.Pins, Reports{Own: a.Others, Others: b.Others}, OfferTerms{}, day, nil))
	_, onB := look(t, Judge(narrower, seen.Pins, Reports{Own: b.Others, Others: a.Others}, OfferTerms{}, day, nil))
	if onA != onB || onA.State != switchboard.LifeSuspended {
		t.Errorf("one replica has %+v, the other %+v", onA, onB)
	}
}

// A report compares an offer with the definition that was admitted then. If a person admits another one, the offer is compared again.
func TestAReportAboutAnotherAdmittedDefinitionDoesNotCount(t *testing.T) {
	stricter := offering(`"type":"object"`, `"type":"object","required":["a"]`)
	offered := stricter
	offered.Tools = [][]byte{[]byte(strings.Replace(string(stricter.Tools[0]), "looks", "peeks", 1))}
	strictPins, pins := Judge(stricter, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins, Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	words := Judge(offered, strictPins, Reports{}, OfferTerms{}, day, nil)
	if _, a := look(t, words); !a.Frozen {
		t.Fatalf("other words make it %+v", a)
	}
	for name, c := range map[string]struct {
		offered switchboard.Offer
		reports Reports
	}{"of its own": {offered, Reports{Own: words.Others}}, "of another replica": {first, Reports{Others: words.Others}}} {
		if _, a := look(t, Judge(c.offered, pins, c.reports, OfferTerms{}, day, nil)); a.State != switchboard.LifeSuspended {
			t.Errorf("with a report %s, a narrower definition makes it %+v", name, a)
		}
	}
}

func TestWhatIsNewAfterTheFirstListIsTried(t *testing.T) {
	pins := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	o := first
	o.Tools = append([][]byte{[]byte(`{"name":"more","inputSchema":{}}`)}, o.Tools...)
	o.Prompts = append([][]byte{[]byte(`{"name":"other"}`)}, o.Prompts...)
	j := Judge(o, pins, Reports{}, OfferTerms{}, day, nil)
	if a := j.Offer.Admissions["more"]; a == nil || a.State != switchboard.LifeTesting {
		t.Errorf("a new tool is %+v", a)
	}
	if len(j.Offer.Prompts) != 1 {
		t.Errorf("prompts %s are passed on", j.Offer.Prompts)
	}
}

func TestAnEmptyListIsNoFirstList(t *testing.T) {
	empty := switchboard.Offer{Server: "s", Tools: [][]byte{}}
	pins := Judge(empty, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	if _, a := look(t, Judge(first, pins, Reports{}, OfferTerms{}, day, nil)); a.State != switchboard.LifeActive {
		t.Errorf("the tools of a server that had listed nothing are %s", a.State)
	}
}

func TestADeceivingToolIsNotLetInUntilItDeceivesNoLonger(t *testing.T) {
	o := offering("looks", "evil")
	terms := OfferTerms{FindBlocking: deceives}
	j := Judge(o, &ServerPins{}, Reports{}, terms, day, nil)
	if _, a := look(t, j); a.State != switchboard.LifeSuspended || j.Pins.Pins[tool("look")].Digest != "" {
		t.Errorf("it is %+v", a)
	}
	o = first
	o.Uncleaned = map[string][]byte{"look": []byte("evil")}
	if _, a := look(t, Judge(o, &ServerPins{}, Reports{}, terms, day, nil)); a.State != switchboard.LifeSuspended {
		t.Errorf("with deceiving characters that are removed, it is %+v", a)
	}
	if _, a := look(t, Judge(first, &ServerPins{}, Reports{}, terms, day, nil)); a.State != switchboard.LifeActive {
		t.Errorf("it is %+v when it deceives no longer", a)
	}
}

// The removed characters are no part of the definition that is compared. At first sight they keep it out, so they are new in one that was let in. In one that a person has let in,
// the person may have seen them.
func TestRemovedCharactersThatComeLaterSuspend(t *testing.T) {
	poisoned := first
	poisoned.Uncleaned = map[string][]byte{"look": []byte("evil")}
	poisoned.UncleanedOthers = map[string][]byte{
		switchboard.SentKey(switchboard.Prompts, "review"): []byte("evil"), switchboard.SentKey(switchboard.Templates, "x://{a}"): []byte("evil"), switchboard.SentInstructions: []byte("evil"),
	}
	terms := OfferTerms{FindBlocking: deceives}
	states := func(o switchboard.Offer, pins *ServerPins, r Reports) (pinned, suspended int, j JudgedOffer) {
		j = Judge(o, pins, r, terms, day, func(v PinVerdict) {
			if v.State == switchboard.LifeSuspended && v.Other != nil && v.Other.Class == Poisoned {
				suspended++
			}
		})
		return len(j.Pins.Pins), suspended, j
	}
	if pinned, suspended, j := states(poisoned, &ServerPins{}, Reports{}); pinned != 0 || suspended != 4 || len(j.Offer.Prompts)+len(j.Offer.Templates)+len(j.Offer.Instructions) > 0 {
		t.Errorf("at first sight, %d are let in, and %d suspended", pinned, suspended)
	}
	_, _, j := states(first, &ServerPins{}, Reports{})
	_, suspended, later := states(poisoned, j.Pins, Reports{})
	if suspended != 4 || len(later.Offer.Prompts)+len(later.Offer.Templates)+len(later.Offer.Instructions) > 0 {
		t.Errorf("later, %d are suspended", suspended)
	}
	if _, suspended, _ := states(first, j.Pins, Reports{Others: later.Others}); suspended != 4 {
		t.Errorf("where another replica is offered it, %d are suspended", suspended)
	}
	if _, suspended, _ := states(first, later.Pins, Reports{Own: later.Others}); suspended != 0 {
		t.Errorf("without these characters, %d are suspended", suspended)
	}
	byPerson := &ServerPins{Listed: j.Pins.Listed, Pins: maps.Clone(j.Pins.Pins)}
	for k, p := range byPerson.Pins {
		p.By = "ann"
		byPerson.Pins[k] = p
	}
	if _, suspended, _ := states(poisoned, byPerson, Reports{Others: later.Others}); suspended != 0 {
		t.Errorf("of those that a person has let in, %d are suspended", suspended)
	}
}

func TestWhatIsGoneForThirtyDaysIsRetired(t *testing.T) {
	pins := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	without := first
	without.Tools = [][]byte{[]byte(`{"name":"other","inputSchema":{}}`)}
	for _, c := range []struct {
		days int
		want switchboard.LifeState
	}{{1, switchboard.LifeActive}, {29, switchboard.LifeActive}, {30, switchboard.LifeRetired}} {
		gone := Judge(without, pins, Reports{}, OfferTerms{}, day, nil).Pins
		gone = Judge(without, gone, Reports{}, OfferTerms{}, day.AddDate(0, 0, c.days), nil).Pins
		back := Judge(first, gone, Reports{}, OfferTerms{}, day.AddDate(0, 0, c.days), nil)
		if _, a := look(t, back); a.State != c.want {
			t.Errorf("after %d days it is %s, want %s", c.days, a.State, c.want)
		}
		if at := back.Pins.Pins[tool("look")].Gone; c.want == switchboard.LifeActive && !at.IsZero() {
			t.Errorf("it is offered again, and gone since %s", at)
		}
	}
	away := first
	away.Tools, away.Stale = [][]byte{}, true
	if p := Judge(away, pins, Reports{}, OfferTerms{}, day, nil).Pins; p != pins {
		t.Error("an offer that is only remembered takes tools away")
	}
}

func TestThePersonsFileDecides(t *testing.T) {
	digest, err := DigestOf(first.Tools[0])
	if err != nil {
		t.Fatal(err)
	}
	strict := switchboard.AdmissionRules{Trust: switchboard.TrustStrict}
	entry := func(digest string, s switchboard.LifeState) map[PinKey]switchboard.AdmittedPin {
		return map[PinKey]switchboard.AdmittedPin{tool("look"): {Digest: digest, State: s, By: "ann", At: day}}
	}
	for _, c := range []struct {
		name    string
		rules   switchboard.AdmissionRules
		entries map[PinKey]switchboard.AdmittedPin
		offered switchboard.Offer
		want    switchboard.LifeState
	}{
		{"strict, not in the file", strict, nil, first, switchboard.LifeNew},
		{"strict, in the file", strict, entry(digest, switchboard.LifeActive), first, switchboard.LifeActive},
		{"strict, other words", strict, entry(digest, switchboard.LifeActive), offering("looks", "peeks"), switchboard.LifeSuspended},
		{"first_use, other words, no bytes", switchboard.AdmissionRules{}, entry(digest, switchboard.LifeActive), offering("looks", "peeks"), switchboard.LifeSuspended},
		{"suspended in the file", switchboard.AdmissionRules{}, entry(digest, switchboard.LifeSuspended), first, switchboard.LifeSuspended},
		{"retired in the file", strict, entry(digest, switchboard.LifeRetired), first, switchboard.LifeRetired},
		{"deprecated in the file", strict, entry(digest, switchboard.LifeDeprecated), first, switchboard.LifeDeprecated},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, a := look(t, Judge(c.offered, &ServerPins{}, Reports{}, OfferTerms{Rules: c.rules, Entries: c.entries}, day, nil)); a.State != c.want {
				t.Errorf("it is %+v, want %s", a, c.want)
			}
		})
	}
}

func TestAServerWithTooManyNamesGetsNoNewOnesIn(t *testing.T) {
	pins := &ServerPins{Pins: map[PinKey]Pin{}}
	for i := range maxPins {
		pins.Pins[tool(strings.Repeat("x", 1+i%50)+string(rune('a'+i/50%26))+strings.Repeat("y", i/1300))] = Pin{State: switchboard.LifeActive, Digest: "d", Gone: day}
	}
	for i := 0; len(pins.Pins) < maxPins; i++ {
		pins.Pins[tool(strings.Repeat("z", i+1))] = Pin{State: switchboard.LifeActive, Digest: "d", Gone: day}
	}
	j := Judge(first, pins, Reports{}, OfferTerms{}, day, nil)
	if j.Pins.Pins[tool("look")].Digest != "" {
		t.Error("the tool is let in")
	}
}

func TestAKeySurvivesTheStore(t *testing.T) {
	want := ServerPins{Pins: map[PinKey]Pin{{switchboard.PinPrompt, "a b <&>"}: {Digest: "d1:x", Definition: `{"name":"<&>"}`, State: switchboard.LifeActive, Since: day}, {Kind: switchboard.PinInstructions}: {}}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got ServerPins
	if err := json.Unmarshal(text, &got); err != nil || got.Pins[PinKey{switchboard.PinPrompt, "a b <&>"}] != want.Pins[PinKey{switchboard.PinPrompt, "a b <&>"}] || len(got.Pins) != 2 {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
}

// To read words takes longer than to judge, so what was found is kept with the pin.
func TestTheFindingsInADefinitionAreKeptWithItsPin(t *testing.T) {
	read := 0
	terms := func(version int) OfferTerms {
		return OfferTerms{WordRules: version, FindWords: func(_ PinKey, definition []byte) []switchboard.RuleFinding {
			if read++; !strings.Contains(string(definition), "looks") {
				return nil
			}
			return []switchboard.RuleFinding{{Rule: "use-me", Tier: "looking"}}
		}}
	}
	found := switchboard.ToolEvidence{Read: true, Findings: []switchboard.RuleFinding{{Rule: "use-me", Tier: "looking"}}}
	changed, none := found, switchboard.ToolEvidence{Read: true}
	changed.Diff = "words"
	pins := &ServerPins{}
	for _, c := range []struct {
		name    string
		offer   switchboard.Offer
		version int
		want    switchboard.ToolEvidence
		reads   int // calls of FindWords
	}{
		{"at first sight", first, 2, found, 1},
		{"again", first, 2, found, 0},
		{"by rules of an older version", first, 1, found, 0},
		{"by rules of a newer version", first, 3, found, 1},
		{"while the server offers other words", offering("looks", "peeks"), 3, changed, 0},
	} {
		read = 0
		j := Judge(c.offer, pins, Reports{}, terms(c.version), day, nil)
		if got := j.Offer.Evidence["look"]; !got.Equal(&c.want) || read != c.reads {
			t.Errorf("%s: the evidence is %+v after %d reads, want %+v after %d", c.name, got, read, c.want, c.reads)
		}
		text, err := json.Marshal(j.Pins)
		pins = &ServerPins{}
		if err := errors.Join(err, json.Unmarshal(text, pins)); err != nil {
			t.Fatal(err)
		}
	}
	p := pins.Pins[tool("look")]
	p = p.With("d1:other", `{"name":"look"}`)
	p.By = "ann"
	pins.Pins[tool("look")] = p
	none.Diff, none.Person = "narrower", true
	if got := Judge(first, pins, Reports{}, terms(3), day, nil).Offer.Evidence["look"]; !got.Equal(&none) {
		t.Errorf("of another definition, which a person has let in, the evidence is %+v, want %+v", got, none)
	}
	if got := Judge(first, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Offer.Evidence; len(got) > 0 {
		t.Errorf("nobody has read the words, and the evidence is %+v", got)
	}
}

// A release before package shape admitted definitions as they were sent. The same offer is now repaired before it is compared.
func TestAPinOfADefinitionAsItWasSentStillCounts(t *testing.T) {
	sent, repaired := first, first
	sent.Tools = [][]byte{[]byte(`{"name":"look","description":null,"inputSchema":{"properties":{"a":true}}}`)}
	sent.Prompts = [][]byte{[]byte(`{"name":"review","arguments":null}`)}
	sent.Templates = [][]byte{[]byte(`{"uriTemplate":"x://{a}","mimeType":null}`)}
	repaired.Tools = [][]byte{[]byte(`{"name":"look","inputSchema":{"properties":{"a":{}},"type":"object"}}`)}
	repaired.Prompts = [][]byte{[]byte(`{"name":"review"}`)}
	repaired.Templates = [][]byte{[]byte(`{"uriTemplate":"x://{a}","name":"x://{a}"}`)}
	for _, rules := range []switchboard.AdmissionRules{{}, {Changed: switchboard.ChangedSuspend}, {Volatile: []string{"at"}}} {
		pins := Judge(sent, &ServerPins{}, Reports{}, OfferTerms{Rules: rules}, day, nil).Pins
		j := Judge(repaired, pins, Reports{}, OfferTerms{Rules: rules}, day.Add(time.Hour), func(v PinVerdict) {
			if v.State != switchboard.LifeActive || v.Frozen || v.Other != nil {
				t.Errorf("rules %+v: %v is %s, frozen %t, %s", rules, v.Key, v.State, v.Frozen, v.Why)
			}
		})
		if j.Pins != pins {
			t.Errorf("rules %+v: the pins were changed, so that an older replica would suspend what they are of", rules)
		}
		for k := range switchboard.NKinds {
			if got, want := j.Offer.List(k), repaired.List(k); fmt.Sprintf("%s", got) != fmt.Sprintf("%s", want) {
				t.Errorf("rules %+v: clients get the %s %s, want %s", rules, k, got, want)
			}
		}
	}
	changed := repaired
	changed.Tools = [][]byte{[]byte(`{"name":"look","description":"looks","inputSchema":{"properties":{"a":{}},"type":"object"}}`)}
	pins := Judge(sent, &ServerPins{}, Reports{}, OfferTerms{}, day, nil).Pins
	if _, a := look(t, Judge(changed, pins, Reports{}, OfferTerms{}, day, nil)); !a.Frozen || !strings.Contains(a.Why, "(words: description)") {
		t.Errorf("a changed text: %+v", a)
	}
}
