package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxTools limits the tools of one server. If a server has more, the catalog takes the first ones by name.
const MaxTools = 4_096

// A serverState is the part of a snapshot for one server: its inputs and its results. It is not modified once it is built.
type serverState struct {
	id          switchboard.ServerID
	source      Source
	overlays    []namedOverlay
	taxonomyKey string // the taxonomy
	duplicateID bool   // more than one source has this id

	previous *serverState // the previous state, to reuse its definitions; nil once built

	definitions definitionCache
	tools       []usableTool       // sorted by name
	faults      []ToolFault        // sorted
	digest      switchboard.Digest // of tools

	gated gateAnswers
}

// A usableTool is a tool that may be offered.
type usableTool struct {
	tool *switchboard.Tool

	// labelled says that the operator, the manifest, the handshake or the tool mentions the tool, even if only to state
	// that it has no capability.
	labelled bool

	// The inputs of the contract, besides the tool.
	hints annotationHints
	said  switchboard.Contract // from the operator's overlay

	end labelEnd // of the operator's overlay
}

// sameInputs reports whether v was built from the same inputs that o has.
func (v *serverState) sameInputs(o *serverState) bool {
	a, b := &v.source, &o.source
	return v.duplicateID == o.duplicateID && v.taxonomyKey == o.taxonomyKey &&
		a.Budgeted == b.Budgeted && a.Class == b.Class && a.Trust == b.Trust && a.Offer.Stale == b.Offer.Stale && sameAdmissions(a.Offer.Admissions, b.Offer.Admissions) &&
		maps.EqualFunc(a.Offer.Evidence, b.Offer.Evidence, (*switchboard.ToolEvidence).Equal) &&
		a.Offer.Version == b.Offer.Version && bytes.Equal(a.Offer.Capabilities, b.Offer.Capabilities) && bytes.Equal(a.Offer.Beside, b.Offer.Beside) &&
		maps.EqualFunc(a.Offer.Alike, b.Offer.Alike, slices.Equal[[]switchboard.Digest]) &&
		(a.Offer.Tools == nil) == (b.Offer.Tools == nil) &&
		slices.EqualFunc(a.Offer.Tools, b.Offer.Tools, bytes.Equal) &&
		(a.Manifest == nil) == (b.Manifest == nil) &&
		(a.Manifest == nil || a.Manifest.Name == b.Manifest.Name && a.Manifest.Fault == b.Manifest.Fault && bytes.Equal(a.Manifest.Data, b.Manifest.Data)) &&
		slices.EqualFunc(v.overlays, o.overlays, sameOverlay)
}

func sameAdmissions(a, b map[string]*switchboard.Admission) bool {
	return maps.EqualFunc(a, b, func(x, y *switchboard.Admission) bool { return *x == *y })
}

func sameOverlay(a, b namedOverlay) bool {
	return a.tool == b.tool && a.For == b.For && a.Replace == b.Replace && a.Fault == b.Fault && a.Contract.Equal(&b.Contract) && slices.Equal(a.Redact, b.Redact) &&
		reflect.DeepEqual(a.Price, b.Price) && reflect.DeepEqual(a.Budget, b.Budget) &&
		(a.Capabilities == nil) == (b.Capabilities == nil) &&
		slices.EqualFunc(a.Capabilities, b.Capabilities, func(x, y switchboard.Capability) bool {
			return compareCapabilities(x, y) == 0
		})
}

// inputBytes returns how many bytes must be read.
func (v *serverState) inputBytes() int {
	n := len(v.source.Offer.Capabilities) + len(v.source.Offer.Beside)
	if v.source.Manifest != nil {
		n += len(v.source.Manifest.Data)
	}
	for _, t := range v.source.Offer.Tools {
		n += len(t)
	}
	return n
}

// build computes the results.
func (v *serverState) build(t *tree, g ToolGate, tax *switchboard.Taxonomy) {
	defer func() { v.previous = nil }()
	if v.duplicateID {
		v.faults = []ToolFault{{Server: v.id, Reason: "more than one server has this id; none of them is used"}}
		return
	}
	offered := v.readDefinitions(t)
	var words []toolLabels
	if v.source.Manifest != nil {
		words = append(words, readManifest(t, v.source.Manifest))
	}
	names := slices.Sorted(maps.Keys(offered))
	words = append(words, readHandshake(t, v.source.Offer.Capabilities, v.source.Offer.Beside))

	for _, w := range words {
		if w.fault != nil {
			v.faults = append(v.faults, w.fault.toFault(v.id, "", w.source, w.where))
		}
	}
	if len(names) > MaxTools {
		v.faults = append(v.faults, problemf("", "offers %d tools; %d are taken, the first by name", len(names), MaxTools).toFault(v.id, "", "", ""))
		names = names[:MaxTools]
	}
	v.tools = make([]usableTool, 0, len(names))
	for _, name := range names {
		if d := offered[name]; d.fault == nil {
			v.addTool(d, words, tax)
		}
	}
	if v.source.Offer.Tools != nil {
		v.reportUnknownTools(offered, words)
	}
	v.keepOut(g)
	v.finishFaults()
}

// readDefinitions parses the offer's tools, and returns those with a name, by name.
func (v *serverState) readDefinitions(t *tree) map[string]*parsedDefinition {
	v.definitions = make(definitionCache, len(v.source.Offer.Tools))
	offered := make(map[string]*parsedDefinition, len(v.source.Offer.Tools))
	for _, raw := range v.source.Offer.Tools {
		if v.definitions.find(raw) != nil {
			continue // an exact duplicate
		}
		d := v.previous.cachedDefinition(raw)
		if d == nil {
			d = readDefinition(t, raw)
		}
		v.definitions.put(d)
		if d.fault != nil {
			v.faults = append(v.faults, d.fault.toFault(v.id, d.name, switchboard.FromTool, ""))
		}
		if d.name == "" {
			continue
		}
		other, ok := offered[d.name]
		switch {
		case !ok:
			offered[d.name] = d
		case other.fault == nil && d.fault == nil && other.digest == d.digest:
			// The same definition in another spelling. Either will do, but the choice must not depend on the order.
			if bytes.Compare(d.raw, other.raw) < 0 {
				offered[d.name] = d
			}
		case other != ambiguous:
			offered[d.name] = ambiguous
			v.faults = append(v.faults, ambiguous.fault.toFault(v.id, d.name, switchboard.FromTool, ""))
		}
	}
	return offered
}

// cachedDefinition returns the earlier result of parsing raw, or nil. v may be nil.
func (v *serverState) cachedDefinition(raw []byte) *parsedDefinition {
	if v == nil {
		return nil
	}
	return v.definitions.find(raw)
}

// definitionCache holds definitions by a hash of their bytes. If two hashes collide, one definition is lost.
type definitionCache map[uint64]*parsedDefinition

var hashSeed = maphash.MakeSeed()

func (s definitionCache) find(raw []byte) *parsedDefinition {
	if d := s[maphash.Bytes(hashSeed, raw)]; d != nil && bytes.Equal(d.raw, raw) {
		return d
	}
	return nil
}

func (s definitionCache) put(d *parsedDefinition) { s[maphash.Bytes(hashSeed, d.raw)] = d }

// ambiguous stands for definitions that share a name and differ.
var ambiguous = &parsedDefinition{fault: problemf("name", "belongs to more than one definition")}

// addTool adds the tool, unless a statement about it cannot be understood.
func (v *serverState) addTool(d *parsedDefinition, words []toolLabels, tax *switchboard.Taxonomy) {
	end := v.findLabelEnd(d)
	said, ok := v.collectStatements(d, words, end, tax)
	if !ok {
		return
	}
	tool := &switchboard.Tool{
		ID:           switchboard.ToolID{Server: v.id, Name: d.name},
		Definition:   d.shown,
		Digest:       d.digest,
		Class:        v.source.Class,
		Trust:        cmp.Or(v.source.Trust, switchboard.TrustDeclared),
		Version:      v.source.Offer.Version,
		Structured:   d.structured,
		ToolStanding: switchboard.ToolStanding{Admission: v.source.Offer.Admissions[d.name], Evidence: v.source.Offer.Evidence[d.name], Stale: v.source.Offer.Stale},
	}
	for i, caps := range said {
		if i == 0 {
			tool.Capabilities = caps
		} else {
			tool.Kept = append(tool.Kept, Restrictions(tool.Capabilities, caps)...)
		}
	}
	overlay, _ := overlayOf(v.overlays, d.name)
	if end.ended {
		tool.Kept = append(tool.Kept, restrictionsOfEnded(overlay.Capabilities)...)
	}
	tool.Kept = sortUnique(tool.Kept)
	e := usableTool{tool, len(said) > 0, end.hintsThatCount(d.hints), overlay.Contract, end}
	tool.Contract = e.contractFor(tool, tax)
	tool.Redact, tool.Price, tool.Budget = overlay.Redact, overlay.Price, overlay.Budget
	tool.Contract.Risk = riskOf(tool, e.hints, v.source.Budgeted)
	v.tools = append(v.tools, e)
}

// finishFaults sorts the faults, limits their number, and computes the digest of the tools.
func (v *serverState) finishFaults() {
	slices.SortFunc(v.faults, ToolFault.compare)
	v.faults = slices.Compact(v.faults)
	if more := len(v.faults) - MaxFaults; more > 0 {
		rest := ToolFault{Server: v.id, Reason: fmt.Sprintf("has %d more faults", more)}
		v.faults = append([]ToolFault{rest}, v.faults[:MaxFaults]...)
		slices.SortFunc(v.faults, ToolFault.compare)
	}
	v.digest = digestTools(v.tools)
}

func digestTools(tools []usableTool) switchboard.Digest {
	var buf []byte
	for _, e := range tools {
		buf = appendTool(buf, e.tool)
	}
	return canonical.Sum(buf)
}
