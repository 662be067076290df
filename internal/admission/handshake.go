package admission

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// handshakeKey is the key of what a server says about the capabilities of its tools when it is connected.
var handshakeKey = PinKey{Kind: switchboard.PinHandshake}

// silence is the definition of a handshake that says nothing about tools.
const silence = "{}"

// CompareHandshakes compares what two handshakes say about the capabilities of tools; see catalog.HandshakeStatements. The worst difference gives the class. What a handshake
// says first about a tool is Freer: it may come before what the tool says itself.
func CompareHandshakes(admitted, offered json.RawMessage) (Class, []Difference) {
	places, ok := catalog.DiffHandshakes(admitted, offered)
	if !ok {
		return Freer, []Difference{{"", Freer}}
	}
	var all []Difference
	for _, p := range places {
		d := Difference{strings.Join(p.Path, "."), Words}
		switch {
		case p.Counts && p.Before == nil && p.After == nil:
			d.Class = Narrower // a restriction may be meant
		case p.Counts:
			d.Class = compareBlocks(p.Before, p.After)
		}
		all = append(all, d)
	}
	return worst(all), all
}

// A handshakeEffect is what the verdict on a handshake means for the tools of its server. The zero value means nothing.
type handshakeEffect struct {
	state switchboard.LifeState // "": tools keep theirs
	why   string
	all   bool            // all tools
	tools map[string]bool // by name
}

// handshake judges what the server says about the capabilities of its tools when it is connected, and leaves the admitted statements in the offer. Nothing that is not let in
// gives a tool a capability or a constraint: the tools that it is about are out.
func (j *offerJudge) handshake(o *switchboard.Offer) {
	var unknown bool
	var names []string
	for k := range j.lists[switchboard.Tools].first {
		names = append(names, k.Name)
	}
	if o.Capabilities, o.Beside, unknown = catalog.ResolveHandshake(o.Capabilities, o.Beside, names); unknown {
		o.Capabilities, o.Beside = catalog.ReplaceStatements(o.Capabilities, nil) // the server has not listed the only tool yet
		return
	}
	offered := catalog.HandshakeStatements(o.Capabilities, o.Beside)
	_, known := j.pins.Pins[handshakeKey]
	_, named := j.terms.Entries[handshakeKey]
	_, reported := j.reports.Others[handshakeKey]
	if offered == nil {
		if !known && !named && (!reported || j.terms.Rules.Strict()) {
			if reported { // this replica is offered nothing that a person could let in
				j.said = j.newHandshake()
			}
			return
		}
		offered = []byte(silence)
	}
	v, _ := j.judge(handshakeKey, offered, CompareHandshakes)
	switch _, another := j.own[handshakeKey]; {
	case v.Pin.Definition != "":
		o.Capabilities, o.Beside = catalog.ReplaceStatements(o.Capabilities, []byte(v.Pin.Definition))
	case another || v.Pin.Digest == "":
		o.Capabilities, o.Beside = catalog.ReplaceStatements(o.Capabilities, nil) // the offered statements were not let in
	}
	if isPassed(v.State) {
		return
	}
	if v.State == switchboard.LifeNew {
		j.said = j.newHandshake()
		return
	}
	e := handshakeEffect{state: switchboard.LifeSuspended, tools: map[string]bool{}}
	switch {
	case isCandidate(v.Pin.State) && v.Other != nil:
		e.why = saidByServer + "is not what was let in (" + describe(v.Other) + "); see switchboard pins diff " + string(o.Server) + " --kind handshake"
	default:
		e.why = saidByServer + "is " + string(v.State) + ": " + v.Why
	}
	switch admitted := v.Pin.Definition; {
	case v.Other != nil && v.Pin.Digest != "" && admitted == "": // what was let in is not known
		e.all = true
	case v.Other != nil && isCandidate(v.Pin.State) && v.Pin.Digest != "":
		j.addOthers(&e, admitted, v.Pin.Digest)
	default: // all that it is about
		e.add(cmp.Or(admitted, silence), silence)
		e.add(silence, string(offered))
		j.addOthers(&e, silence, v.Pin.Digest)
	}
	j.said = e
}

const saidByServer = "what its server says about its capabilities when it is connected "

// newHandshake returns the effect of statements that no person has let in, of this replica and of all others.
func (j *offerJudge) newHandshake() handshakeEffect {
	e := handshakeEffect{state: switchboard.LifeNew, tools: map[string]bool{}}
	e.why = saidByServer + "was not let in by a person; see switchboard pins diff " + string(j.offer.Server) + " --kind handshake"
	j.addOthers(&e, silence, "")
	return e
}

// addOthers compares each other offer, of this replica and of all others, with the statements before, which have the digest. It adds the tools of the differences. Several replicas
// can be offered different statements, and all replicas suspend alike.
func (j *offerJudge) addOthers(e *handshakeEffect, before, digest string) {
	all := j.reports.Handshakes
	for _, of := range []OtherOffers{j.own, j.reports.Others} {
		if o, ok := of[handshakeKey]; ok {
			all = append(slices.Clip(all), o)
		}
	}
	for _, o := range all {
		if o.Digest == "" || o.Digest != digest {
			e.add(before, o.Definition)
		}
	}
}

// add compares two handshakes, and adds the tools of the differences.
func (e *handshakeEffect) add(before, after string) {
	places, ok := catalog.DiffHandshakes([]byte(before), []byte(after))
	e.all = e.all || !ok
	for _, p := range places {
		if p.Counts {
			e.all = e.all || p.Tool == ""
			e.tools[p.Tool] = true
		}
	}
}

// apply sets the state of a tool that its server's handshake is about.
func (e *handshakeEffect) apply(v *PinVerdict) {
	if e.state != "" && (e.all || e.tools[v.Key.Name]) && isCandidate(v.State) {
		v.State, v.Frozen, v.Why = e.state, false, e.why
	}
}
