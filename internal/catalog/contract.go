package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// annotationHints are the annotations of a definition that count. The values that mean "not read-only" or "not idempotent" are ignored, and undoable
// ("not destructive") counts in the class of risk alone.
type annotationHints struct {
	readOnly, idempotent, destructive, undoable bool
	reach                                       reach
}

// readHints reads the annotations of the definition in t.
func readHints(t *tree) (h annotationHints) {
	annotations := t.memberObject(0, "annotations")
	if annotations == none {
		return h
	}
	kind := func(name string) jsontext.Kind {
		if n := t.member(annotations, name); n != none {
			return t.nodes[n].kind
		}
		return 0
	}
	said := func(name string) bool { return kind(name) == 't' }
	h = annotationHints{readOnly: said("readOnlyHint"), idempotent: said("idempotentHint"), destructive: said("destructiveHint"), undoable: kind("destructiveHint") == 'f'}
	switch kind("openWorldHint") {
	case 't':
		h.reach = openWorld
	case 'f':
		h.reach = closedHint
	}
	return h
}

// contractOf returns the tool's contract: from the operator's overlay, or else from its capabilities and annotations.
// If annotations contradict each other or the capabilities, the statement that makes the tool less free counts.
func contractOf(t *switchboard.Tool, h annotationHints, overlay switchboard.Contract, tax *switchboard.Taxonomy) switchboard.Contract {
	vouched := t.Trust == switchboard.TrustOperator
	hint := func(said bool) (f switchboard.Fact) {
		if said {
			f = switchboard.Fact{Holds: true, Source: switchboard.FromHint, Trusted: vouched}
		}
		return f
	}
	c := switchboard.Contract{
		ReadOnly:   readOnlyFact(t),
		Idempotent: hint(h.idempotent),
		Stateful:   hint(h.destructive),
	}
	if !c.ReadOnly.Trusted && h.readOnly && !h.destructive && !doesMoreThanRead(t) && (vouched || !c.ReadOnly.Stated()) {
		c.ReadOnly = hint(true)
	}
	c.Idempotent = cmp.Or(overlay.Idempotent, c.Idempotent)
	c.Stateful = cmp.Or(overlay.Stateful, c.Stateful)
	c.Deterministic, c.Timeout, c.CostClass = overlay.Deterministic, overlay.Timeout, overlay.CostClass
	c.SideEffects, c.RiskLevel, c.ApprovalRequired = overlay.SideEffects, overlay.RiskLevel, overlay.ApprovalRequired
	c.Flow = flowOf(t, h.reach, overlay.Flow, tax)
	return c
}

// readOnlyFact returns the fact that the tool changes nothing, if each of its capabilities is readonly. The fact is as
// strong as its weakest source.
func readOnlyFact(t *switchboard.Tool) (f switchboard.Fact) {
	for _, k := range t.Capabilities {
		if !k.Carries(switchboard.ReadOnly) {
			return switchboard.Fact{}
		}
		f.Source = k.Source
	}
	for _, k := range t.Kept {
		same := func(c switchboard.Capability) bool { return c.Verb == k.Verb && c.Resource == k.Resource }
		if slices.ContainsFunc(t.Capabilities, same) {
			continue // only the restrictions of this source were kept
		}
		if !k.Carries(switchboard.ReadOnly) {
			return switchboard.Fact{}
		}
		if slices.Index(switchboard.Sources, k.Source) > slices.Index(switchboard.Sources, f.Source) {
			f.Source = k.Source
		}
	}
	if f.Source == "" {
		return switchboard.Fact{}
	}
	f.Holds = true
	f.Trusted = f.Source == switchboard.FromOverlay || t.Trust == switchboard.TrustOperator && f.Source != switchboard.FromTenantOverlay
	return f
}

// doesMoreThanRead reports whether some source states that the tool does more than read.
func doesMoreThanRead(t *switchboard.Tool) bool {
	return slices.ContainsFunc(slices.Concat(t.Capabilities, t.Kept), func(k switchboard.Capability) bool {
		switch k.Verb {
		case switchboard.Write, switchboard.Execute, switchboard.Notify:
			return !k.Carries(switchboard.ReadOnly)
		}
		return false
	})
}

// narrowContract returns the contract with the tenant's overlay applied. The overlay's statements count only if they make the
// tool less free.
func narrowContract(c, tenant switchboard.Contract) switchboard.Contract {
	if tenant.Stateful.Holds {
		c.Stateful = tenant.Stateful
	}
	for _, f := range []struct {
		fact *switchboard.Fact
		said switchboard.Fact
	}{{&c.Idempotent, tenant.Idempotent}, {&c.Deterministic, tenant.Deterministic}} {
		if f.said.Stated() && !f.said.Holds {
			*f.fact = f.said
		}
	}
	if tenant.Timeout > 0 && (c.Timeout == 0 || tenant.Timeout < c.Timeout) {
		c.Timeout, c.Hurried = tenant.Timeout, true
	}
	c.Flow = addFlow(c.Flow, tenant.Flow)
	return capability.Stricter(c, tenant)
}

// RaisePrice returns the operator's price, raised to the tenant's: of each part the higher one counts. Either may be nil.
func RaisePrice(operator, tenant *switchboard.Price) *switchboard.Price {
	if operator == nil || tenant == nil {
		return cmp.Or(operator, tenant)
	}
	p := switchboard.Price{
		Call: max(operator.Call, tenant.Call), Most: max(operator.Most, tenant.Most), Reported: operator.Reported,
		Each: slices.Clone(operator.Each),
	}
	for _, e := range tenant.Each {
		i := slices.IndexFunc(p.Each, func(o switchboard.ElementPrice) bool { return o.Pointer == e.Pointer })
		if i < 0 {
			p.Each = append(p.Each, e)
			continue
		}
		p.Each[i].Micros = max(p.Each[i].Micros, e.Micros)
	}
	slices.SortFunc(p.Each, func(a, b switchboard.ElementPrice) int { return strings.Compare(a.Pointer, b.Pointer) })
	return &p
}
