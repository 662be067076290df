package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxTools bounds the tools of one server. Of a server with more, the first by
// name are taken.
const MaxTools = 4_096

// A server is what a snapshot holds of one: what went in, and what came out. It
// is not modified once built.
type server struct {
	id       switchboard.ServerID
	source   Source
	overlays []namedOverlay
	words    string // the taxonomy's
	twice    bool   // more than one source has this id

	old *server // what its definitions may be taken from; nil once built

	definitions shelves
	tools       []entry            // sorted by name
	faults      []Fault            // sorted
	digest      switchboard.Digest // of tools
}

// An entry is one usable tool.
type entry struct {
	tool *switchboard.Tool

	// labelled says that the operator, the manifest, the handshake or the tool
	// has spoken of it, though perhaps to say that it has no capability.
	labelled bool

	// What the contract was made of, besides the tool.
	hints hints
	said  switchboard.Contract // by the operator's overlay
}

// sameInputs reports whether v was built from what o is to be built from.
func (v *server) sameInputs(o *server) bool {
	a, b := &v.source, &o.source
	return v.twice == o.twice && v.words == o.words &&
		a.Class == b.Class && a.Trust == b.Trust && a.Offer.Stale == b.Offer.Stale &&
		a.Offer.Version == b.Offer.Version && bytes.Equal(a.Offer.Capabilities, b.Offer.Capabilities) && bytes.Equal(a.Offer.Beside, b.Offer.Beside) &&
		(a.Offer.Tools == nil) == (b.Offer.Tools == nil) &&
		slices.EqualFunc(a.Offer.Tools, b.Offer.Tools, bytes.Equal) &&
		(a.Manifest == nil) == (b.Manifest == nil) &&
		(a.Manifest == nil || a.Manifest.Name == b.Manifest.Name && a.Manifest.Fault == b.Manifest.Fault && bytes.Equal(a.Manifest.Data, b.Manifest.Data)) &&
		slices.EqualFunc(v.overlays, o.overlays, sameOverlay)
}

func sameOverlay(a, b namedOverlay) bool {
	return a.tool == b.tool && a.Replace == b.Replace && a.Fault == b.Fault && a.Contract == b.Contract && slices.Equal(a.Redact, b.Redact) &&
		(a.Capabilities == nil) == (b.Capabilities == nil) &&
		slices.EqualFunc(a.Capabilities, b.Capabilities, func(x, y switchboard.Capability) bool {
			return compareCapabilities(x, y) == 0
		})
}

// size is how much there is to read.
func (v *server) size() int {
	n := len(v.source.Offer.Capabilities) + len(v.source.Offer.Beside)
	if v.source.Manifest != nil {
		n += len(v.source.Manifest.Data)
	}
	for _, t := range v.source.Offer.Tools {
		n += len(t)
	}
	return n
}

// build fills in what comes out.
func (v *server) build(t *tree, tax *switchboard.Taxonomy) {
	defer func() { v.old = nil }()
	if v.twice {
		v.faults = []Fault{{Server: v.id, Reason: "more than one server has this id; none of them is used"}}
		return
	}
	offered := v.readDefinitions(t)
	var words []word
	if v.source.Manifest != nil {
		words = append(words, readManifest(t, v.source.Manifest))
	}
	names := slices.Sorted(maps.Keys(offered))
	words = append(words, readHandshake(t, v.source.Offer.Capabilities, v.source.Offer.Beside, names))

	for _, w := range words {
		if w.fault != nil {
			v.faults = append(v.faults, w.fault.of(v.id, "", w.source, w.where))
		}
	}
	if len(names) > MaxTools {
		v.faults = append(v.faults, problemf("", "offers %d tools; %d are taken, the first by name", len(names), MaxTools).of(v.id, "", "", ""))
		names = names[:MaxTools]
	}
	v.tools = make([]entry, 0, len(names))
	for _, name := range names {
		if d := offered[name]; d.fault == nil {
			v.addTool(d, words, tax)
		}
	}
	if v.source.Offer.Tools != nil {
		v.blameStrangers(offered, words)
	}
	v.finish()
}

// readDefinitions reads the offer's tools, and gives those that have a name
// by it.
func (v *server) readDefinitions(t *tree) map[string]*definition {
	v.definitions = make(shelves, len(v.source.Offer.Tools))
	offered := make(map[string]*definition, len(v.source.Offer.Tools))
	for _, raw := range v.source.Offer.Tools {
		if v.definitions.find(raw) != nil {
			continue // the same, twice: there is nothing to choose
		}
		d := v.old.definition(raw)
		if d == nil {
			d = readDefinition(t, raw)
		}
		v.definitions.put(d)
		if d.fault != nil {
			v.faults = append(v.faults, d.fault.of(v.id, d.name, switchboard.FromTool, ""))
		}
		if d.name == "" {
			continue
		}
		other, ok := offered[d.name]
		switch {
		case !ok:
			offered[d.name] = d
		case other.fault == nil && d.fault == nil && other.digest == d.digest:
			// The same, spelt differently. Any will do, but always the same one.
			if bytes.Compare(d.raw, other.raw) < 0 {
				offered[d.name] = d
			}
		case other != ambiguous:
			offered[d.name] = ambiguous
			v.faults = append(v.faults, ambiguous.fault.of(v.id, d.name, switchboard.FromTool, ""))
		}
	}
	return offered
}

// definition finds what has been read of raw before, or nil. v may be nil.
func (v *server) definition(raw []byte) *definition {
	if v == nil {
		return nil
	}
	return v.definitions.find(raw)
}

// shelves hold definitions by a hash of their bytes. Where two collide, one is
// forgotten.
type shelves map[uint64]*definition

var seed = maphash.MakeSeed()

func (s shelves) find(raw []byte) *definition {
	if d := s[maphash.Bytes(seed, raw)]; d != nil && bytes.Equal(d.raw, raw) {
		return d
	}
	return nil
}

func (s shelves) put(d *definition) { s[maphash.Bytes(seed, d.raw)] = d }

// ambiguous stands for the definitions that have one name and are not the same.
var ambiguous = &definition{fault: problemf("name", "is that of more than one definition")}

// addTool adds the tool, unless what is said of it cannot be understood.
func (v *server) addTool(d *definition, words []word, tax *switchboard.Taxonomy) {
	said, ok := v.statements(d, words, tax)
	if !ok {
		return
	}
	tool := &switchboard.Tool{
		ID:         switchboard.ToolID{Server: v.id, Name: d.name},
		Definition: d.raw,
		Digest:     d.digest,
		Class:      v.source.Class,
		Trust:      cmp.Or(v.source.Trust, switchboard.TrustDeclared),
		Version:    v.source.Offer.Version,
		Structured: d.structured,
		Stale:      v.source.Offer.Stale,
	}
	for i, caps := range said {
		if i == 0 {
			tool.Capabilities = caps
		} else {
			tool.Kept = append(tool.Kept, lessFree(tool.Capabilities, caps)...)
		}
	}
	tool.Kept = ordered(tool.Kept)
	overlay, _ := overlayOf(v.overlays, d.name)
	tool.Contract = contractOf(tool, d.hints, overlay.Contract)
	tool.Redact = overlay.Redact
	v.tools = append(v.tools, entry{tool, len(said) > 0, d.hints, overlay.Contract})
}

// finish sorts and bounds the faults, and digests the tools.
func (v *server) finish() {
	slices.SortFunc(v.faults, Fault.compare)
	v.faults = slices.Compact(v.faults)
	if more := len(v.faults) - MaxFaults; more > 0 {
		rest := Fault{Server: v.id, Reason: fmt.Sprintf("has %d faults more", more)}
		v.faults = append([]Fault{rest}, v.faults[:MaxFaults]...)
		slices.SortFunc(v.faults, Fault.compare)
	}
	v.digest = digestTools(v.tools)
}

func digestTools(tools []entry) switchboard.Digest {
	var buf []byte
	for _, e := range tools {
		buf = appendTool(buf, e.tool)
	}
	return canonical.Sum(buf)
}
