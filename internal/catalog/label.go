package catalog

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A labelEnd says whether an operator's overlay that names a definition (Overlay.For) still counts. The zero value: it does.
type labelEnd struct {
	ended bool // the tool has another meaning than the definition that the overlay names

	// why says in words that it has ended, or that it ends once the definition that the server offers is let in; "" if neither is true.
	why string
}

// endedClasses are the classes of a changed offer that end a label once a person lets the offered definition in.
var endedClasses = []string{"narrower", "freer", "poisoned"}

// findLabelEnd decides whether the overlay of the tool still counts, and notes a fault if it does not. It depends on the overlay and on the offer alone. The overlay
// counts for the definition that it names, and for those that differ from it in words alone. While the server offers another definition that is not let in, the tool is suspended, and
// its labels stay, so that decisions can name what is suspended.
func (v *serverState) findLabelEnd(d *parsedDefinition) (end labelEnd) {
	overlay, _ := overlayOf(v.overlays, d.name)
	offer := &v.source.Offer
	a, e := offer.Admissions[d.name], offer.Evidence[d.name]
	const again = "; look at it again: switchboard annotate "
	switch {
	case overlay.For == "" || overlay.Fault != "":
	case overlay.For != d.digest && !slices.Contains(offer.Alike[d.name], overlay.For):
		end = labelEnd{true, "its labels have ended: they were given to another definition (" + string(overlay.For) + ", now " + string(d.digest) +
			"), and only what restricts it counts" + again + string(v.id)}
	case a != nil && a.State == switchboard.LifeSuspended && e != nil && slices.Contains(endedClasses, e.Diff):
		end.why = "its labels end: its server offers a definition that is " + e.Diff + " than the one that they were given to. Look at it: switchboard pins diff " + string(v.id) +
			"/" + safeText(d.name) + "; once it is let in, the tool has no labels until you give it new ones: switchboard annotate " + string(v.id)
	}
	if end.why != "" {
		f := problemf("", "%s", end.why).toFault(v.id, d.name, switchboard.FromOverlay, "")
		f.Offered = true
		v.faults = append(v.faults, f)
	}
	return end
}

// restrictionsOfEnded returns the capabilities of an overlay that has ended, as far as they make the tool less free: those with a restricting constraint, and
// without the other constraints.
func restrictionsOfEnded(caps []switchboard.Capability) []switchboard.Capability {
	restrict := slices.Clone(caps)
	for i := range restrict {
		restrict[i].Source = switchboard.FromOverlay
		restrict[i].Constraints = slices.DeleteFunc(slices.Clone(restrict[i].Constraints), func(c switchboard.Constraint) bool { return !c.Restricts() })
	}
	return slices.DeleteFunc(restrict, func(c switchboard.Capability) bool { return len(c.Constraints) == 0 })
}

// contractFor returns the contract of the tool by the operator's overlay and the definition. If the overlay has ended, its facts count only where they restrict, as
// a tenant's facts do. A call may then do anything with data.
func (e *usableTool) contractFor(t *switchboard.Tool, tax *switchboard.Taxonomy) switchboard.Contract {
	if !e.end.ended {
		return contractOf(t, e.hints, e.said, tax)
	}
	c := narrowContract(contractOf(t, e.hints, switchboard.Contract{}, tax), e.said)
	c.Timeout, c.Hurried = e.said.Timeout, false // it is the operator's own
	c.Flow = switchboard.Flow{Bits: switchboard.AllFlows, Source: switchboard.FromOverlay}
	return c
}

// hintsThatCount returns the annotations that count of a tool. Where the operator's overlay has ended, those that make the tool more free do not: no weaker source takes the place of the
// operator's word.
func (end labelEnd) hintsThatCount(h annotationHints) annotationHints {
	if end.ended {
		h.readOnly, h.idempotent, h.undoable = false, false, false
	}
	return h
}

// LabelEnd says in words that the labels of the operator's overlay for the tool have ended, or that they end once the definition that the server offers is let in. It returns
// "" if they count.
func (s *Snapshot) LabelEnd(id switchboard.ToolID) (why string, ended bool) {
	v := s.server(id.Server)
	if v == nil {
		return "", false
	}
	i, ok := slices.BinarySearchFunc(v.tools, id.Name, func(e usableTool, name string) int { return strings.Compare(e.tool.ID.Name, name) })
	if !ok {
		return "", false
	}
	return v.tools[i].end.why, v.tools[i].end.ended
}
