package catalog

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// statements gives what each source that speaks of the tool says, strongest
// first. ok is false where the tool must be refused; why is in v.faults.
func (v *server) statements(d *definition, words []word, tax *switchboard.Taxonomy) (said [][]switchboard.Capability, ok bool) {
	overlay, found := overlayOf(v.overlays, d.name)
	if overlay.Fault != "" {
		v.faults = append(v.faults, problemf("", "%s", overlay.Fault).of(v.id, d.name, switchboard.FromOverlay, ""))
		return nil, false
	}
	if found && (overlay.Capabilities != nil || overlay.Replace) {
		said = append(said, normal(overlay.Capabilities, switchboard.FromOverlay))
	}
	if overlay.Replace {
		return said, true
	}
	ok = true
	hear := func(blocks []block, source switchboard.Source, where string) {
		caps, spoke, ps := agree(blocks, source, tax)
		for _, p := range ps {
			v.faults = append(v.faults, p.of(v.id, d.name, source, where))
			ok = false
		}
		if spoke {
			said = append(said, caps)
		}
	}
	for _, w := range words {
		if w.fault != nil {
			ok = false // the fault is the server's, and is there already
			continue
		}
		hear(w.blocks[d.name], w.source, w.where)
	}
	hear(d.blocks, switchboard.FromTool, "")
	return said, ok
}

// agree gives what the blocks of one source say of one tool. They may stand in
// several places, but must say the same.
func agree(blocks []block, source switchboard.Source, tax *switchboard.Taxonomy) (caps []switchboard.Capability, spoke bool, ps []problem) {
	for _, b := range blocks {
		these, faults := b.resolve(tax, source)
		switch {
		case len(faults) > 0:
			ps = append(ps, faults...)
		case !spoke:
			caps, spoke = these, true
		case !slices.EqualFunc(caps, these, func(x, y switchboard.Capability) bool { return compareCapabilities(x, y) == 0 }):
			ps = append(ps, *problemf(b.field, "says something else than %s", blocks[0].field))
		}
	}
	return caps, spoke && len(ps) == 0, ps
}

// lessFree gives of weaker what makes a tool with caps less free: capabilities
// on a verb and resource that caps does not name, whole; of the others, the
// constraints that restrict.
func lessFree(caps, weaker []switchboard.Capability) (kept []switchboard.Capability) {
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

// blameStrangers notes the tools that overlays, manifest or handshake speak of
// and that the server does not have: most are mistyped, and what they were to
// restrict is not restricted.
func (v *server) blameStrangers(offered map[string]*definition, words []word) {
	blame := func(tool string, source switchboard.Source, where string) {
		if _, ok := offered[tool]; !ok {
			v.faults = append(v.faults, problemf("", "the server has no such tool").of(v.id, tool, source, where))
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
