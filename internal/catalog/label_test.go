package catalog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// given is an overlay that names a definition.
func given(digest switchboard.Digest) switchboard.Overlay {
	trusted := func(holds bool) switchboard.Fact {
		return switchboard.Fact{Holds: holds, Source: switchboard.FromOverlay, Trusted: true}
	}
	return switchboard.Overlay{
		Capabilities: parse("read fs readonly", "write fs human_in_the_loop"), For: digest,
		Contract: switchboard.Contract{
			Deterministic: trusted(true), Idempotent: trusted(true), SideEffects: []string{"deletes"}, RiskLevel: "high", CostClass: switchboard.CostPaid,
			Timeout: 5 * time.Second, Flow: switchboard.Flow{Source: switchboard.FromOverlay},
		},
		Redact: []switchboard.Detector{"email"}, Replace: true,
	}
}

func TestALabelCountsForTheDefinitionThatItWasGivenTo(t *testing.T) {
	const first, other = `{"name":"look","description":"looks","inputSchema":{"type":"object"}}`, `{"name":"look","description":"deletes","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"read","resource":"fs","constraints":["readonly"]}]}}`
	id := switchboard.ToolID{Server: "a", Name: "look"}
	digest := only(t, catalog.Build([]catalog.Source{{Offer: switchboard.Offer{Server: "a", Tools: [][]byte{[]byte(first)}}}}, nil, taxonomy(t))).Digest
	const elsewhere = switchboard.Digest("sha256:0000000000000000000000000000000000000000000000000000000000000000")
	suspended := &switchboard.Admission{State: switchboard.LifeSuspended, Why: "changed"}
	for _, c := range []struct {
		name       string
		definition string
		named      switchboard.Digest // by the overlay
		alike      []switchboard.Digest
		admission  *switchboard.Admission
		diff       string
		ended      bool
		why        string
	}{
		{name: "any definition", definition: other},
		{name: "the same definition", definition: first, named: digest},
		{name: "another definition", definition: other, named: digest, ended: true, why: "its labels have ended"},
		{name: "a definition with other words", definition: other, named: digest, alike: []switchboard.Digest{elsewhere, digest}},
		{name: "a definition that is like others", definition: other, named: digest, alike: []switchboard.Digest{elsewhere}, ended: true, why: "its labels have ended"},
		{name: "while a freer one is offered", definition: first, named: digest, admission: suspended, diff: "freer", why: "its labels end"},
		{name: "while a narrower one is offered", definition: first, named: digest, admission: suspended, diff: "narrower", why: "its labels end"},
		{name: "while other words are suspended", definition: first, named: digest, admission: suspended, diff: "words"},
		{name: "while a person has suspended it", definition: first, named: digest, admission: suspended},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := switchboard.Offer{Server: "a", Tools: [][]byte{[]byte(c.definition)}, OfferStanding: switchboard.OfferStanding{Alike: map[string][]switchboard.Digest{"look": c.alike}}}
			if c.admission != nil {
				o.Admissions = map[string]*switchboard.Admission{"look": c.admission}
				o.Evidence = map[string]*switchboard.ToolEvidence{"look": {Diff: c.diff}}
			}
			s := catalog.Build([]catalog.Source{{Offer: o}}, map[switchboard.ToolID]switchboard.Overlay{id: given(c.named)}, taxonomy(t))
			tool := only(t, s)
			why, ended := s.LabelEnd(id)
			if ended != c.ended || !strings.HasPrefix(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("it has ended: %v, %q", ended, why)
			}
			if faults := texts(s.Faults()); (len(faults) > 0) != (why != "") || len(faults) > 0 && !strings.Contains(faults[0], why) {
				t.Errorf("the faults are %q", faults)
			}
			k := tool.Contract
			if k.RiskLevel != "high" || k.CostClass != switchboard.CostPaid || !slices.Equal(k.SideEffects, []string{"deletes"}) || k.Timeout != 5*time.Second || k.Hurried || len(tool.Redact) != 1 {
				t.Errorf("what restricts is lost: %+v", k)
			}
			if !c.ended {
				if len(tool.Capabilities) != 2 || !k.Deterministic.Holds || !k.Idempotent.Holds || k.Flow.Bits != 0 {
					t.Errorf("what frees is lost: %v %+v", tool.Capabilities, k)
				}
				return
			}
			if len(tool.Capabilities) > 0 || k.Deterministic.Holds || k.Idempotent.Holds || k.Flow.Bits != switchboard.AllFlows || k.ReadOnly.Holds {
				t.Errorf("what frees counts still: %v %+v", tool.Capabilities, k)
			}
			if kept := show(tool.Kept); !slices.ContainsFunc(kept, func(text string) bool {
				return strings.Contains(text, "write fs") && strings.Contains(text, "human_in_the_loop")
			}) {
				t.Errorf("the constraint that restricts is lost: %q", kept)
			}
			if kept := show(tool.Kept); strings.Contains(c.definition, "x-summit") && !slices.ContainsFunc(kept, func(text string) bool { return strings.HasPrefix(text, "tool: ") }) {
				t.Errorf("what the server says of the tool is not heard, though replace has ended: %q", kept)
			}
			tenant := &switchboard.Tenant{ID: "t", Servers: []switchboard.ServerID{"a"}, Overlays: map[switchboard.ToolID]switchboard.Overlay{id: {Capabilities: parse("read fs readonly")}}}
			if own, _ := s.For(tenant).Tool(id); len(own.Capabilities) > 0 || own.Contract.Flow.Bits != switchboard.AllFlows {
				t.Errorf("a tenant's label takes its place: %v", own)
			}
		})
	}
}

// What an ended row keeps must not say by the operator's word that a tool only reads.
func TestAnEndedLabelDoesNotMakeAToolReadonly(t *testing.T) {
	id := switchboard.ToolID{Server: "a", Name: "look"}
	const named = switchboard.Digest("sha256:1111111111111111111111111111111111111111111111111111111111111111")
	o := switchboard.Overlay{Capabilities: parse("read fs rate_limited readonly"), For: named}
	s := catalog.Build([]catalog.Source{{Offer: switchboard.Offer{Server: "a", Tools: [][]byte{[]byte(define("look", ""))}}, Trust: switchboard.TrustOperator}}, map[switchboard.ToolID]switchboard.Overlay{id: o}, taxonomy(t))
	if tool := only(t, s); tool.Contract.ReadOnly.Holds || !slices.Equal(show(tool.Kept), []string{"overlay: read fs rate_limited"}) {
		t.Errorf("readonly %v, kept %q", tool.Contract.ReadOnly, show(tool.Kept))
	}
}

// The server's own words take the place of no label that has ended.
func TestAnEndedLabelLetsNoHintCount(t *testing.T) {
	id := switchboard.ToolID{Server: "a", Name: "look"}
	const named = switchboard.Digest("sha256:1111111111111111111111111111111111111111111111111111111111111111")
	definition := `{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"destructiveHint":false}}`
	for _, label := range []string{"write fs", "execute codebase"} {
		o := switchboard.Overlay{Capabilities: parse(label), For: named}
		s := catalog.Build([]catalog.Source{{Offer: switchboard.Offer{Server: "a", Tools: [][]byte{[]byte(definition)}}, Trust: switchboard.TrustOperator}}, map[switchboard.ToolID]switchboard.Overlay{id: o}, taxonomy(t))
		c := only(t, s).Contract
		if c.OnlyReads() || c.ReadOnly.Holds || c.Idempotent.Holds || c.Risk != switchboard.RiskHigh || c.Flow.Bits != switchboard.AllFlows || c.Flow.Source == "" {
			t.Errorf("%s: readonly %v, idempotent %v, risk %s, flow %v", label, c.ReadOnly, c.Idempotent, c.Risk, c.Flow)
		}
	}
}

// The end of a label is an input of the snapshot like all others: a rebuilt snapshot is the one that is built anew.
func TestARebuiltSnapshotSeesTheEndOfALabel(t *testing.T) {
	id := switchboard.ToolID{Server: "a", Name: "look"}
	source := func(alike ...switchboard.Digest) []catalog.Source {
		return []catalog.Source{{Offer: switchboard.Offer{Server: "a", Tools: [][]byte{[]byte(`{"name":"look","inputSchema":{"type":"object"}}`)}, OfferStanding: switchboard.OfferStanding{Alike: map[string][]switchboard.Digest{"look": alike}}}}}
	}
	const named = switchboard.Digest("sha256:1111111111111111111111111111111111111111111111111111111111111111")
	tax := taxonomy(t)
	overlays := map[switchboard.ToolID]switchboard.Overlay{id: given(named)}
	ended := catalog.Build(source(), overlays, tax)
	counts := ended.Rebuild(source(named), overlays, tax)
	if _, over := counts.LabelEnd(id); over || counts.Digest() == ended.Digest() || counts.Digest() != catalog.Build(source(named), overlays, tax).Digest() {
		t.Error("the label does not count again")
	}
	free := ended.Rebuild(source(), map[switchboard.ToolID]switchboard.Overlay{id: given("")}, tax)
	if _, over := free.LabelEnd(id); over || free.Digest() != counts.Digest() {
		t.Error("a row that names no definition does not count")
	}
	if again := counts.Rebuild(source(), overlays, tax); again.Digest() != ended.Digest() {
		t.Error("the label counts still")
	}
}
