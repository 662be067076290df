package catalog

import (
	"cmp"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// hints are what the annotations of a definition say, and that counts: that a
// tool is not read-only, idempotent or destructive says nothing.
type hints struct{ readOnly, idempotent, destructive bool }

// readHints reads the annotations of the definition that t holds.
func readHints(t *tree) (h hints) {
	annotations := t.object(0, "annotations")
	if annotations == none {
		return h
	}
	said := func(name string) bool {
		n := t.member(annotations, name)
		return n != none && t.nodes[n].kind == 't'
	}
	return hints{readOnly: said("readOnlyHint"), idempotent: said("idempotentHint"), destructive: said("destructiveHint")}
}

// contractOf gives the tool's contract: what the operator's overlay says, else
// what its capabilities and its annotations do. Of annotations that contradict
// each other or the capabilities, what makes the tool less free counts.
func contractOf(t *switchboard.Tool, h hints, overlay switchboard.Contract) switchboard.Contract {
	vouched := t.Trust == switchboard.TrustOperator
	hint := func(said bool) (f switchboard.Fact) {
		if said {
			f = switchboard.Fact{Holds: true, Source: switchboard.FromHint, Trusted: vouched}
		}
		return f
	}
	c := switchboard.Contract{
		ReadOnly:   readOnly(t),
		Idempotent: hint(h.idempotent),
		Stateful:   hint(h.destructive),
	}
	if !c.ReadOnly.Trusted && h.readOnly && !h.destructive && !acts(t) && (vouched || !c.ReadOnly.Said()) {
		c.ReadOnly = hint(true)
	}
	c.Idempotent = cmp.Or(overlay.Idempotent, c.Idempotent)
	c.Stateful = cmp.Or(overlay.Stateful, c.Stateful)
	c.Deterministic, c.Timeout = overlay.Deterministic, overlay.Timeout
	return c
}

// readOnly says what the tool's capabilities say of it: that it changes
// nothing, where each of them does. The fact is as good as the weakest of those
// who say so.
func readOnly(t *switchboard.Tool) (f switchboard.Fact) {
	for _, k := range t.Capabilities {
		if !k.Carries(switchboard.ReadOnly) {
			return switchboard.Fact{}
		}
		f.Source = k.Source
	}
	for _, k := range t.Kept {
		same := func(c switchboard.Capability) bool { return c.Verb == k.Verb && c.Resource == k.Resource }
		if slices.ContainsFunc(t.Capabilities, same) {
			continue // only what it restricts was kept
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

// acts reports whether some source says that the tool does more than read.
func acts(t *switchboard.Tool) bool {
	return slices.ContainsFunc(slices.Concat(t.Capabilities, t.Kept), func(k switchboard.Capability) bool {
		switch k.Verb {
		case switchboard.Write, switchboard.Execute, switchboard.Notify:
			return !k.Carries(switchboard.ReadOnly)
		}
		return false
	})
}

// narrowed gives the contract with what a tenant's overlay says, which makes it
// less free or is not heard.
func narrowed(c, tenant switchboard.Contract) switchboard.Contract {
	if tenant.Stateful.Holds {
		c.Stateful = tenant.Stateful
	}
	for _, f := range []struct {
		fact *switchboard.Fact
		said switchboard.Fact
	}{{&c.Idempotent, tenant.Idempotent}, {&c.Deterministic, tenant.Deterministic}} {
		if f.said.Said() && !f.said.Holds {
			*f.fact = f.said
		}
	}
	if tenant.Timeout > 0 && (c.Timeout == 0 || tenant.Timeout < c.Timeout) {
		c.Timeout, c.Hurried = tenant.Timeout, true
	}
	return c
}
