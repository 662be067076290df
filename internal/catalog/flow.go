package catalog

import (
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A reach says whether a tool may exchange data with strangers.
type reach byte

const (
	unsaid     reach = iota // openWorldHint is absent; the protocol then takes it as true
	openWorld               // openWorldHint is true
	closedHint              // openWorldHint is false
)

// A dataPlace says what a resource is, as far as the data in it is concerned.
type dataPlace struct {
	public bool // nothing in it is private, and every request to it can reach a stranger
	closed bool // no stranger reaches it, unless openWorldHint says so
}

// places are the built-in resources. A resource that is not here, and that has no ancestor here, is a place that is neither
// public nor closed.
var places = map[switchboard.Resource]dataPlace{
	"internet":        {public: true},
	"fs":              {closed: true},
	"knowledge_graph": {closed: true},
	"codebase":        {}, // often a hosted one, where strangers open issues
	"slack":           {},
	"aws":             {},
}

// flowOf returns where the data of the tool's calls comes from and goes to: what the operator's overlay states, or else what follows
// from each capability and from openWorldHint. A tool without capabilities may do everything that its reach allows.
func flowOf(t *switchboard.Tool, h reach, overlay switchboard.Flow, tax *switchboard.Taxonomy) switchboard.Flow {
	if overlay.Source != "" {
		return overlay
	}
	if h == closedHint && t.Trust != switchboard.TrustOperator {
		h = unsaid // it would make the tool more free
	}
	if len(t.Capabilities)+len(t.Kept) == 0 {
		if h == closedHint {
			return switchboard.Flow{Bits: switchboard.Sees}
		}
		return switchboard.Flow{Bits: switchboard.AllFlows}
	}
	var bits switchboard.FlowBits
	for _, list := range [][]switchboard.Capability{t.Capabilities, t.Kept} {
		for _, c := range list {
			bits |= flowOfCapability(c.Verb, placeOf(c.Resource, tax), h)
		}
	}
	return switchboard.Flow{Bits: bits}
}

// placeOf returns the place of the resource, or else that of its nearest ancestor that has one.
func placeOf(r switchboard.Resource, tax *switchboard.Taxonomy) dataPlace {
	if p, ok := places[r]; ok {
		return p
	}
	for _, up := range tax.Ancestors(r) {
		if p, ok := places[up]; ok {
			return p
		}
	}
	return dataPlace{}
}

// flowOfCapability returns the bits of one capability. A program that is executed can do everything, also with the network.
func flowOfCapability(v switchboard.Verb, p dataPlace, h reach) (b switchboard.FlowBits) {
	open := p.public || h == openWorld || h == unsaid && (!p.closed || v == switchboard.Execute)
	reads, sends := true, v == switchboard.Notify
	switch v {
	case switchboard.Write, switchboard.Notify:
		reads, sends = false, sends || open
	case switchboard.Execute:
		sends = open
	default:
		sends = p.public // the address or the query of a request can hold data
	}
	if reads && open {
		b |= switchboard.Brings
	}
	if reads && !p.public {
		b |= switchboard.Sees
	}
	if sends {
		b |= switchboard.Carries
	}
	return b
}

// addFlow returns the flow with the bits that a tenant's overlay states. A tenant can only add bits.
func addFlow(f, tenant switchboard.Flow) switchboard.Flow {
	if tenant.Bits&^f.Bits != 0 {
		f = switchboard.Flow{Bits: f.Bits | tenant.Bits, Source: tenant.Source}
	}
	return f
}

// ProvidedFlow returns the flow of a tool that provides a contract with this capability. The contract is the operator's word: it
// counts where no source has labelled the tool. The tool's own flow counts otherwise, with the bits of the contract.
func ProvidedFlow(own *switchboard.Tool, c switchboard.Capability) switchboard.Flow {
	f := own.Contract.Flow
	p, known := places[c.Resource]
	if f.Source != "" || !known {
		return f
	}
	h := reachOf(own.Definition)
	if h == closedHint && own.Trust != switchboard.TrustOperator {
		h = unsaid
	}
	bits := flowOfCapability(c.Verb, p, h)
	if len(own.Capabilities)+len(own.Kept) > 0 {
		bits |= f.Bits
	}
	return switchboard.Flow{Bits: bits}
}

// FlowOfLabel returns the flow that follows from a verb and a resource for a tool with the definition, if the operator does not vouch for its server.
func FlowOfLabel(v switchboard.Verb, r switchboard.Resource, definition []byte, tax *switchboard.Taxonomy) switchboard.FlowBits {
	h := reachOf(definition)
	if h == closedHint {
		h = unsaid
	}
	return flowOfCapability(v, placeOf(r, tax), h)
}

// reachOf reads openWorldHint in a definition.
func reachOf(definition []byte) reach {
	annotations, _ := wire.Field(definition, "annotations")
	switch raw, _ := wire.Field(annotations, "openWorldHint"); string(raw) {
	case "true":
		return openWorld
	case "false":
		return closedHint
	}
	return unsaid
}
