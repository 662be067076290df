package catalog

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// collectStatements returns the statement of each source that mentions the tool, strongest first. If ok is false, the tool
// must be refused, and v.faults says why.
func (v *serverState) collectStatements(d *parsedDefinition, words []toolLabels, end labelEnd, tax *switchboard.Taxonomy) (said [][]switchboard.Capability, ok bool) {
	overlay, found := overlayOf(v.overlays, d.name)
	if overlay.Fault != "" {
		v.faults = append(v.faults, problemf("", "%s", overlay.Fault).toFault(v.id, d.name, switchboard.FromOverlay, ""))
		return nil, false
	}
	switch {
	case end.ended:
		said = append(said, nil) // no weaker source takes its place
	case found && (overlay.Capabilities != nil || overlay.Replace):
		said = append(said, normalize(overlay.Capabilities, switchboard.FromOverlay))
	}
	if overlay.Replace && !end.ended {
		return said, true
	}
	ok = true
	hear := func(blocks []block, source switchboard.Source, where string) {
		caps, spoke, ps := mergeBlocks(blocks, source, tax)
		for _, p := range ps {
			v.faults = append(v.faults, p.toFault(v.id, d.name, source, where))
			ok = false
		}
		if spoke {
			said = append(said, caps)
		}
	}
	for _, w := range words {
		if w.fault != nil {
			ok = false // this fault of the server has been reported already
			continue
		}
		hear(w.blocks[d.name], w.source, w.where)
	}
	hear(d.blocks, switchboard.FromTool, "")
	return said, ok
}

// mergeBlocks returns the statement of one source about one tool. The source may have several blocks for it, but they must be
// equal.
func mergeBlocks(blocks []block, source switchboard.Source, tax *switchboard.Taxonomy) (caps []switchboard.Capability, spoke bool, ps []problem) {
	for _, b := range blocks {
		these, faults := b.resolveCapabilities(tax, source)
		switch {
		case len(faults) > 0:
			ps = append(ps, faults...)
		case !spoke:
			caps, spoke = these, true
		case !slices.EqualFunc(caps, these, func(x, y switchboard.Capability) bool { return compareCapabilities(x, y) == 0 }):
			ps = append(ps, *problemf(b.field, "contradicts %s", blocks[0].field))
		}
	}
	return caps, spoke && len(ps) == 0, ps
}

// Restrictions returns the part of weaker that makes a tool with caps less free: complete capabilities for a verb and
// resource that caps does not mention, and only the restricting constraints of the others.
func Restrictions(caps, weaker []switchboard.Capability) (kept []switchboard.Capability) {
	for _, w := range weaker {
		same := func(c switchboard.Capability) bool { return c.Verb == w.Verb && c.Resource == w.Resource }
		if !slices.ContainsFunc(caps, same) {
			kept = append(kept, w)
			continue
		}
		if i := slices.IndexFunc(w.Constraints, switchboard.Constraint.Restricts); i >= 0 {
			w.Constraints = slices.DeleteFunc(slices.Clone(w.Constraints), func(c switchboard.Constraint) bool { return !c.Restricts() })
			kept = append(kept, w)
		}
	}
	return kept
}

// reportUnknownTools reports the tools that an overlay, manifest or handshake mentions although the server does not have
// them. Most are misspelt names, so the intended restriction does not apply.
func (v *serverState) reportUnknownTools(offered map[string]*parsedDefinition, words []toolLabels) {
	blame := func(tool string, source switchboard.Source, where string) {
		if _, ok := offered[tool]; !ok {
			v.faults = append(v.faults, problemf("", "the server has no such tool").toFault(v.id, tool, source, where))
		}
	}
	for _, o := range v.overlays {
		blame(o.tool, switchboard.FromOverlay, "")
	}
	for _, w := range words {
		for tool := range w.blocks {
			blame(tool, w.source, w.where)
		}
	}
}
