// Package catalog holds what the servers offer now. From each server's offer, its manifest and the operator's overlays
// it builds a Snapshot: every usable tool with its capabilities, immutable and with a digest. From the Snapshot it
// builds a View for each tenant, with an index by verb and resource.
//
// It decides which tools may be offered at all, and which source decides about a tool. It does not choose between
// tools, and does no I/O.
//
// # Sources
//
// Blocks named x-summit-capabilities and overlays make statements about tools. The strongest source that mentions a
// tool decides its capabilities; an empty block also counts, and states that the tool has none. From weaker sources the
// catalog keeps only what makes the tool less free: human_in_the_loop, rate_limited, and capabilities for a verb and
// resource that the strongest source does not mention. An operator's overlay with Replace turns this off: weaker blocks
// are not read.
//
// # What is refused
//
// A tool is refused, and reported in Faults, if anything about it cannot be read with certainty: a malformed,
// contradictory or misspelt block of a source that counts; a definition that is not strict JSON, is too large, or has a
// schema that is costly to apply; a name that two different definitions share. If a manifest cannot be read as a whole,
// or a capabilities object that mentions our block, every tool of the server is refused, because the restrictions in it
// are unknown. Only tools with an operator's overlay with Replace are then offered.
//
// # Contracts
//
// The facts of a tool's contract come from the operator's overlay, or else from the capabilities that count, or else
// from the annotations of its definition. Each fact has its source. It is trusted if the source is the operator, or if
// the operator vouches for the server (trust: operator). A tenant's overlay can only make the contract narrower.
package catalog

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Manifest is the manifest that a server's configuration names.
type Manifest struct {
	Name string // the file or URL, for faults
	Data []byte

	// Fault, if set, says why Data is missing. The contents of the manifest are then unknown.
	Fault string
}

// A Source is everything that is known about one server.
type Source struct {
	// Offer is the server's last known offer. If Tools is nil, the server has not listed its tools yet, and names of
	// unknown tools are no faults.
	Offer switchboard.Offer

	Class    string
	Trust    switchboard.Trust
	Manifest *Manifest // nil means none

	// Budgeted says that each tenant that has the server has a budget that counts all calls of its tools.
	Budgeted bool
}

// A Snapshot is what all servers offer at one moment. It is immutable and safe for concurrent use.
type Snapshot struct {
	tax         *switchboard.Taxonomy
	taxonomyKey string // the taxonomy in the form that the digest covers
	digest      switchboard.Digest
	servers     []*serverState // sorted by id
	tools       []*switchboard.Tool
	faults      []ToolFault
}

// Build builds the snapshot of sources. overlays are the operator's. The order of the sources, of a server's tools and
// of the lists in blocks does not matter. Do not modify the arguments afterwards.
func Build(sources []Source, overlays map[switchboard.ToolID]switchboard.Overlay, tax *switchboard.Taxonomy) *Snapshot {
	return (&Snapshot{}).Rebuild(sources, overlays, tax)
}

// Rebuild returns the same result as Build, but reuses the work of s: what has not changed costs only a comparison of
// bytes.
func (s *Snapshot) Rebuild(sources []Source, overlays map[switchboard.ToolID]switchboard.Overlay, tax *switchboard.Taxonomy) *Snapshot {
	return s.RebuildBehind(nil, sources, overlays, tax)
}

// RebuildBehind is like Rebuild. The tools that the gate keeps out are in the state switchboard.LifeNew. nil keeps nothing out.
func (s *Snapshot) RebuildBehind(g ToolGate, sources []Source, overlays map[switchboard.ToolID]switchboard.Overlay, tax *switchboard.Taxonomy) *Snapshot {
	var gateKey switchboard.Digest
	if g != nil {
		gateKey = g.Key()
	}
	next := &Snapshot{tax: tax, taxonomyKey: taxonomyFields(tax)}
	said := byServer(overlays)
	sorted := make([]*Source, len(sources))
	for i := range sources {
		sorted[i] = &sources[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Source) int {
		return strings.Compare(string(a.Offer.Server), string(b.Offer.Server))
	})

	next.servers = make([]*serverState, 0, len(sorted))
	var todo []*serverState
	for i := 0; i < len(sorted); {
		id := sorted[i].Offer.Server
		j := i + 1
		for j < len(sorted) && sorted[j].Offer.Server == id {
			j++
		}
		v := &serverState{id: id, source: *sorted[i], overlays: said[id], taxonomyKey: next.taxonomyKey, duplicateID: j-i > 1}
		i = j
		old := s.server(id)
		if old != nil && old.gated.key == gateKey && !old.gated.undecided && old.sameInputs(v) {
			v = old
		} else {
			v.previous = old
			todo = append(todo, v)
		}
		next.servers = append(next.servers, v)
	}
	if s.digest != "" && s.tax == tax && len(todo) == 0 && len(next.servers) == len(s.servers) {
		return s // which is immutable
	}
	buildAll(todo, g, tax)

	count := 0
	for _, v := range next.servers {
		count += len(v.tools)
	}
	next.tools = make([]*switchboard.Tool, 0, count)
	for _, v := range next.servers {
		for _, e := range v.tools {
			next.tools = append(next.tools, e.tool)
		}
		next.faults = append(next.faults, v.faults...)
	}
	next.digest = digestServers(next.taxonomyKey, func(yield func(switchboard.ServerID, switchboard.Digest)) {
		for _, v := range next.servers {
			if len(v.tools) > 0 {
				yield(v.id, v.digest)
			}
		}
	})
	return next
}

// buildAll builds the servers on all processors, the largest first, so that the last one to finish is small.
func buildAll(todo []*serverState, g ToolGate, tax *switchboard.Taxonomy) {
	todo = slices.Clone(todo)
	slices.SortStableFunc(todo, func(a, b *serverState) int { return b.inputBytes() - a.inputBytes() })
	workers := min(runtime.GOMAXPROCS(0), len(todo))
	var taken atomic.Int64
	work := func() {
		var t tree
		for {
			i := int(taken.Add(1)) - 1
			if i >= len(todo) {
				return
			}
			todo[i].build(&t, g, tax)
		}
	}
	if workers <= 1 {
		work()
		return
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(work)
	}
	wg.Wait()
}

// server returns the server with this id, or nil.
func (s *Snapshot) server(id switchboard.ServerID) *serverState {
	i, ok := slices.BinarySearchFunc(s.servers, id, func(v *serverState, id switchboard.ServerID) int {
		return strings.Compare(string(v.id), string(id))
	})
	if !ok {
		return nil
	}
	return s.servers[i]
}

// Digest covers every tool's id, definition, capabilities, Kept, contract, redaction, class and trust, its server's
// version, and the taxonomy. A server that is away, with the same last known offer, does not change it.
func (s *Snapshot) Digest() switchboard.Digest { return s.digest }

// Faults returns the mistakes in the offers of servers, in manifests and in the operator's overlays, sorted. The slice
// is shared; do not modify it.
func (s *Snapshot) Faults() []ToolFault { return s.faults }

// Heard reports whether the server has listed its tools.
func (s *Snapshot) Heard(id switchboard.ServerID) bool {
	v := s.server(id)
	return v != nil && v.source.Offer.Tools != nil
}

// Tools returns all usable tools, sorted by id. The slice is shared; do not modify it.
func (s *Snapshot) Tools() []*switchboard.Tool { return s.tools }

// Tool returns the tool with this id, without any tenant's overlay.
func (s *Snapshot) Tool(id switchboard.ToolID) (*switchboard.Tool, bool) {
	return findTool(s.tools, id)
}

func findTool(tools []*switchboard.Tool, id switchboard.ToolID) (*switchboard.Tool, bool) {
	i, ok := slices.BinarySearchFunc(tools, id, func(t *switchboard.Tool, id switchboard.ToolID) int {
		return t.ID.Compare(id)
	})
	if !ok {
		return nil, false
	}
	return tools[i], true
}

// A namedOverlay is one entry of a map of overlays.
type namedOverlay struct {
	tool string
	switchboard.Overlay
}

// byServer groups overlays by server, and sorts each group by tool.
func byServer(overlays map[switchboard.ToolID]switchboard.Overlay) map[switchboard.ServerID][]namedOverlay {
	said := map[switchboard.ServerID][]namedOverlay{}
	for id, o := range overlays {
		said[id.Server] = append(said[id.Server], namedOverlay{id.Name, o})
	}
	for _, list := range said {
		slices.SortFunc(list, func(a, b namedOverlay) int { return strings.Compare(a.tool, b.tool) })
	}
	return said
}

// overlayOf returns the overlay for the tool.
func overlayOf(list []namedOverlay, tool string) (switchboard.Overlay, bool) {
	i, ok := slices.BinarySearchFunc(list, tool, func(o namedOverlay, tool string) int {
		return strings.Compare(o.tool, tool)
	})
	if !ok {
		return switchboard.Overlay{}, false
	}
	return list[i].Overlay, true
}

// digestServers returns the digest of the taxonomy and of the servers that each yields, in order.
func digestServers(words string, each func(yield func(switchboard.ServerID, switchboard.Digest))) switchboard.Digest {
	buf := appendField(nil, "switchboard catalog 2")
	buf = appendField(buf, words)
	each(func(id switchboard.ServerID, d switchboard.Digest) {
		buf = appendField(buf, string(id))
		buf = appendField(buf, string(d))
	})
	return canonical.Sum(buf)
}
