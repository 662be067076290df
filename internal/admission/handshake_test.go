package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// saying is the offer of a server with two tools that states a block for each tool of the map when it is connected.
func saying(blocks map[string]string) switchboard.Offer {
	o := switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(`{"name":"look"}`), []byte(`{"name":"send"}`)}}
	var tools []string
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		tools = append(tools, fmt.Sprintf(`%q:{"x-summit-capabilities":%s}`, name, blocks[name]))
	}
	o.Capabilities = fmt.Appendf(nil, `{"logging":{},"tools":{"listChanged":true,%s}}`, strings.Join(tools, ","))
	if tools == nil {
		o.Capabilities = []byte(`{"logging":{}}`)
	}
	return o
}

const (
	reads     = `[{"verb":"read","resource":"fs"}]`
	onlyReads = `[{"verb":"read","resource":"fs","constraints":["readonly"]}]`
	writes    = `[{"verb":"read","resource":"fs"},{"verb":"write","resource":"fs"}]`
)

// statesIn returns the states of the tools that are not plainly active, and the state and class of the handshake.
func statesIn(j JudgedOffer, verdicts []PinVerdict) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(j.Offer.Admissions)) {
		all = append(all, name+" "+string(j.Offer.Admissions[name].State))
	}
	for _, v := range verdicts {
		if v.Key == handshakeKey && (v.Other != nil || v.State != switchboard.LifeActive) {
			text := "handshake " + string(v.State)
			if v.Frozen {
				text = "handshake frozen"
			}
			if v.Other != nil {
				text += " " + v.Other.Class.String()
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// blockIn returns what is passed on that says something about capabilities.
func blockIn(j JudgedOffer) string {
	return string(catalog.HandshakeStatements(j.Offer.Capabilities, j.Offer.Beside))
}

// judged returns what Judge makes of an offer.
func judged(o switchboard.Offer, pins *ServerPins, reports Reports, terms OfferTerms) (JudgedOffer, string) {
	var verdicts []PinVerdict
	j := Judge(o, pins, reports, terms, day, func(v PinVerdict) { verdicts = append(verdicts, v) })
	return j, statesIn(j, verdicts)
}

func TestAnotherHandshakeGivesNoToolACapability(t *testing.T) {
	suspend := OfferTerms{Rules: switchboard.AdmissionRules{Changed: switchboard.ChangedSuspend}}
	none := map[string]string(nil)
	for _, tt := range []struct {
		name          string
		before, after map[string]string
		terms         OfferTerms
		want          string
	}{
		{"the same", map[string]string{"look": reads}, map[string]string{"look": reads}, OfferTerms{}, ""},
		{"it promises more", map[string]string{"look": reads}, map[string]string{"look": onlyReads}, OfferTerms{}, "handshake frozen words"},
		{"it promises more where each change suspends", map[string]string{"look": reads}, map[string]string{"look": onlyReads}, suspend, "look suspended, handshake suspended words"},
		{"it promises less", map[string]string{"look": onlyReads}, map[string]string{"look": reads}, OfferTerms{}, "look suspended, handshake suspended freer"},
		{"one more capability", map[string]string{"look": reads, "send": reads}, map[string]string{"look": reads, "send": writes}, OfferTerms{}, "send suspended, handshake suspended freer"},
		{"one more tool", map[string]string{"look": reads}, map[string]string{"look": reads, "send": reads}, OfferTerms{}, "send suspended, handshake suspended freer"},
		{"the first words about any tool", none, map[string]string{"send": onlyReads}, OfferTerms{}, "send suspended, handshake suspended freer"},
		{"nothing any more", map[string]string{"look": reads}, none, OfferTerms{}, "look suspended, handshake suspended freer"},
		{"what cannot be read", map[string]string{"look": reads}, map[string]string{"look": `[1]`}, OfferTerms{}, "look suspended, handshake suspended freer"},
		{"a tool that is not there", map[string]string{"look": reads}, map[string]string{"look": reads, "gone": writes}, OfferTerms{}, "handshake suspended freer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen, states := judged(saying(tt.before), &ServerPins{}, Reports{}, tt.terms)
			if states != "" || !seen.FirstSeen || !seen.Pins.Met {
				t.Fatalf("at first sight: %s, met %v", states, seen.Pins.Met)
			}
			j, states := judged(saying(tt.after), seen.Pins, Reports{}, tt.terms)
			if states != tt.want {
				t.Errorf("it is %q, want %q", states, tt.want)
			}
			if was, is := blockIn(seen), blockIn(j); was != is {
				t.Errorf("the capabilities that count were %s, and are %s", was, is)
			}
			there, elsewhere := judged(saying(tt.before), seen.Pins, Reports{Others: j.Others}, tt.terms)
			if elsewhere != tt.want || blockIn(there) != blockIn(seen) {
				t.Errorf("a replica that is offered the admitted handshake has %q, want %q", elsewhere, tt.want)
			}
			if back, states := judged(saying(tt.before), j.Pins, Reports{Own: j.Others}, tt.terms); states != "" || len(back.Others) > 0 {
				t.Errorf("once the admitted handshake is offered again: %s", states)
			}
		})
	}
}

func TestUnderStrictTrustAPersonLetsTheHandshakeIn(t *testing.T) {
	o := saying(map[string]string{"look": reads})
	terms := OfferTerms{Rules: switchboard.AdmissionRules{Trust: switchboard.TrustStrict}, Entries: map[PinKey]switchboard.AdmittedPin{}}
	letIn := func(k PinKey, definition string, state switchboard.LifeState) {
		digest, err := DigestOf([]byte(definition))
		if err != nil {
			t.Fatal(err)
		}
		terms.Entries[k] = switchboard.AdmittedPin{Digest: digest, State: state, By: "ann", At: day}
	}
	letIn(tool("look"), string(o.Tools[0]), switchboard.LifeActive)
	letIn(tool("send"), string(o.Tools[1]), switchboard.LifeActive)
	j, states := judged(o, &ServerPins{}, Reports{}, terms)
	if why := j.Offer.Admissions["look"]; states != "look new, handshake new narrower" || why == nil || !strings.Contains(why.Why, "switchboard pins diff s --kind handshake") {
		t.Errorf("without a line: %s, %+v", states, why)
	}
	const statements = `{"capabilities":{"tools":{"listChanged":true,"look":{"x-summit-capabilities":` + reads + `}}}}`
	letIn(handshakeKey, statements, switchboard.LifeActive)
	if j, states := judged(o, &ServerPins{}, Reports{}, terms); states != "" || !strings.Contains(string(j.Offer.Capabilities), `"look"`) {
		t.Errorf("with a line: %s; %s", states, j.Offer.Capabilities)
	}
	if _, states := judged(saying(map[string]string{"look": reads, "send": reads}), &ServerPins{}, Reports{}, terms); states != "look suspended, send suspended, handshake suspended narrower" {
		t.Errorf("of bytes that are not known: %s", states)
	}
	for state, want := range map[switchboard.LifeState]string{
		switchboard.LifeSuspended: "look suspended, handshake suspended", switchboard.LifeRetired: "look suspended, handshake retired", switchboard.LifeDeprecated: "handshake deprecated",
	} {
		letIn(handshakeKey, statements, state)
		if _, states := judged(o, &ServerPins{}, Reports{}, terms); states != want {
			t.Errorf("a person has said %s: %s, want %s", state, states, want)
		}
	}
}

// A store of an older version has pins of tools, and none of handshakes: what its servers say at the next start is the first sight.
func TestAHandshakeIsSeenFirstWhereOnlyToolsWerePinned(t *testing.T) {
	o := saying(map[string]string{"look": reads})
	old, _ := judged(saying(nil), &ServerPins{}, Reports{}, OfferTerms{})
	j, states := judged(o, &ServerPins{Listed: old.Pins.Listed, Pins: old.Pins.Pins}, Reports{}, OfferTerms{})
	if states != "" || !j.FirstSeen || j.Pins.Pins[handshakeKey].State != switchboard.LifeActive {
		t.Errorf("it is %q, with the pin %+v", states, j.Pins.Pins[handshakeKey])
	}
	later := Judge(saying(nil), j.Pins, Reports{}, OfferTerms{}, day.Add(goneRetires), nil)
	later = Judge(saying(nil), later.Pins, Reports{}, OfferTerms{}, day.Add(3*goneRetires), nil)
	if p := later.Pins.Pins[handshakeKey]; p.State != switchboard.LifeActive || !p.Gone.IsZero() {
		t.Errorf("a handshake that is silent for long is %+v", p)
	}
}

func withTools(o switchboard.Offer, names ...string) switchboard.Offer {
	o.Tools = nil
	for _, name := range names {
		o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":%q}`, name))
	}
	return o
}

func TestTheListOfTheOnlyToolIsPinnedForThatTool(t *testing.T) {
	o := switchboard.Offer{Server: "s", Beside: []byte(reads)}
	if j, _ := judged(withTools(o), &ServerPins{}, Reports{}, OfferTerms{}); blockIn(j) != "" || len(j.Pins.Pins) > 0 {
		t.Errorf("before the tools are listed, %s is passed on, and there are the pins %v", blockIn(j), j.Pins.Pins)
	}
	seen, states := judged(withTools(o, "look"), &ServerPins{}, Reports{}, OfferTerms{})
	const want = `{"x-summit-capabilities":{"tools":{"look":` + reads + `}}}`
	if blockIn(seen) != want || states != "" {
		t.Fatalf("at first sight %s is passed on, with %s", blockIn(seen), states)
	}
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{[]string{"look"}, ""},
		{[]string{"send"}, "send suspended, handshake suspended freer"},
		{[]string{"look", "send"}, "look suspended, send suspended, handshake suspended freer"},
	} {
		j, states := judged(withTools(o, tt.names...), seen.Pins, Reports{}, OfferTerms{})
		if states != tt.want || blockIn(j) != want {
			t.Errorf("with the tools %v: %s, and %s is passed on; want %s", tt.names, states, blockIn(j), tt.want)
		}
	}
}

func TestStatementsThatWereNotLetInAreNotPassedOn(t *testing.T) {
	one, other := saying(map[string]string{"look": reads}), saying(map[string]string{"look": writes})
	seen, _ := judged(one, &ServerPins{}, Reports{}, OfferTerms{})
	withoutBytes := &ServerPins{Met: true, Listed: seen.Pins.Listed, Pins: maps.Clone(seen.Pins.Pins)}
	p := withoutBytes.Pins[handshakeKey]
	withoutBytes.Pins[handshakeKey] = p.With(p.Digest, "")
	deceiving := OfferTerms{FindBlocking: func(k PinKey, definition []byte) string {
		return deceives(k, []byte(strings.ReplaceAll(string(definition), "write", "evil")))
	}}
	twice := one
	twice.Capabilities = []byte(`{"x-summit-capabilities":{"look":` + reads + `,"look":[]}}`)
	for _, tt := range []struct {
		name    string
		offered switchboard.Offer
		pins    *ServerPins
		terms   OfferTerms
		want    string
	}{
		{"the admitted ones, of which the digest alone is known", one, withoutBytes, OfferTerms{}, blockIn(seen)},
		{"others than those of which the digest alone is known", other, withoutBytes, OfferTerms{}, ""},
		{"what no person has let in", one, &ServerPins{}, OfferTerms{Rules: switchboard.AdmissionRules{Trust: switchboard.TrustStrict}}, ""},
		{"a blocking finding", other, &ServerPins{}, deceiving, ""},
		{"a member twice", twice, &ServerPins{}, OfferTerms{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if j, states := judged(tt.offered, tt.pins, Reports{}, tt.terms); blockIn(j) != tt.want || (tt.want == "") != strings.HasPrefix(states, "look ") {
				t.Errorf("%s is passed on, want %q; %s", blockIn(j), tt.want, states)
			}
		})
	}
}

// reported are the reports of replicas.
func reported(js ...JudgedOffer) Reports {
	var all []OtherOffers
	for _, j := range js {
		all = append(all, j.Others)
	}
	return Reports{Others: Merge(all...), Handshakes: MergeHandshakes(slices.Values(all))}
}

func TestUnderStrictTrustANewHandshakeCountsOnAllReplicas(t *testing.T) {
	terms := OfferTerms{Rules: switchboard.AdmissionRules{Trust: switchboard.TrustStrict}, Entries: map[PinKey]switchboard.AdmittedPin{}}
	for _, definition := range saying(nil).Tools {
		digest, err := DigestOf(definition)
		if err != nil {
			t.Fatal(err)
		}
		k, _ := keyOf(switchboard.Tools, definition)
		terms.Entries[k] = switchboard.AdmittedPin{Digest: digest, State: switchboard.LifeActive, By: "ann", At: day}
	}
	look, send := saying(map[string]string{"look": reads}), saying(map[string]string{"send": reads})
	a, _ := judged(look, &ServerPins{}, Reports{}, terms)
	b, states := judged(saying(nil), &ServerPins{}, reported(a), terms)
	if states != "look new" || len(b.Others) > 0 {
		t.Errorf("a replica that is offered no statements has %q, and reports %v", states, b.Others)
	}
	if _, states := judged(send, &ServerPins{}, reported(a), terms); states != "look new, send new, handshake new narrower" {
		t.Errorf("a replica that is offered other statements has %q", states)
	}
}

func TestEachOfSeveralHandshakesSuspends(t *testing.T) {
	seen, _ := judged(withTools(saying(nil), "a", "b", "c"), &ServerPins{}, Reports{}, OfferTerms{})
	var js []JudgedOffer
	var offers []switchboard.Offer
	for _, name := range []string{"a", "b", "c"} {
		o := withTools(saying(map[string]string{name: reads}), "a", "b", "c")
		j, states := judged(o, seen.Pins, Reports{}, OfferTerms{})
		if states != name+" suspended, handshake suspended freer" {
			t.Fatalf("alone it is %q", states)
		}
		offers, js = append(offers, o), append(js, j)
	}
	const want = "a suspended, b suspended, c suspended, handshake suspended freer"
	for i, o := range offers {
		r := reported(js[(i+1)%3], js[(i+2)%3])
		r.Own = js[i].Others
		if _, states := judged(o, seen.Pins, r, OfferTerms{}); states != want {
			t.Errorf("replica %d has %q", i, states)
		}
	}
	if _, states := judged(withTools(saying(nil), "a", "b", "c"), seen.Pins, reported(js...), OfferTerms{}); states != want {
		t.Errorf("a replica that is offered the admitted handshake has %q", states)
	}
}

func TestADefinitionThatCannotBeReadSaysSo(t *testing.T) {
	o := first
	o.Capabilities = []byte(`{"x-summit-capabilities":{"look":` + reads + `,"look":[]}}`)
	o.Prompts = [][]byte{[]byte(`{"name":"deep","_meta":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`)}
	var whys []string
	j := Judge(o, &ServerPins{}, Reports{}, OfferTerms{}, day, func(v PinVerdict) {
		if v.State == switchboard.LifeSuspended && v.Key.Kind != switchboard.PinTool {
			whys = append(whys, string(v.Key.Kind)+" "+v.Why)
		}
	})
	const want = "its definition cannot be read: "
	if len(whys) != 2 || !strings.HasPrefix(whys[0], "handshake "+want+"jsontext: duplicate object member name") || !strings.HasPrefix(whys[1], "prompt "+want+"objects and arrays stand more than 64 deep in each other") {
		t.Errorf("the reasons are %q", whys)
	}
	if _, a := look(t, j); a.State != switchboard.LifeSuspended || !strings.Contains(a.Why, "is suspended: "+want) {
		t.Errorf("the tool is %+v", a)
	}
}
