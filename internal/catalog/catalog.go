// Package catalog knows what the servers offer now. From each server's offer,
// its manifest and the operator's overlays it makes a Snapshot: every usable
// tool with its capabilities, immutable and digested; and from that, per
// tenant, a View with an index by verb and resource.
//
// It decides which tools are fit to be offered at all, who says what of a tool,
// and which word counts. It does not choose between tools, and does no I/O.
//
// # Who is heard
//
// Blocks named x-summit-capabilities, and overlays, speak of tools. The
// strongest source that speaks of a tool gives its capabilities; an empty block
// speaks too, and says that the tool has none. What weaker sources add that
// makes the tool less free is kept beside: human_in_the_loop, rate_limited,
// and capabilities on a verb and resource that the winner does not name. An
// operator's overlay with Replace keeps nothing: weaker blocks are not read.
//
// # What is refused
//
// Whatever cannot be read with certainty is refused, that tool alone, and is
// in Faults: a malformed, contradictory or almost-named block of any source
// that is heard; a definition that is not strict JSON, is too large, or whose
// schema could cost a reader dear; a name that two different definitions
// share. A manifest, or a capabilities object that mentions our block, that
// cannot be read as a whole refuses every tool of its server that no overlay
// with Replace speaks of: what it would have restricted is not known.
//
// # Contracts
//
// The facts of a tool's contract come from the operator's overlay, else from the
// capabilities that count, else from the annotations of its definition. Each
// has its source, and is trusted where that is the operator, or where the
// operator vouches for the server (trust: operator). A tenant's overlay only
// takes away.
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

// A Manifest is what a server's configuration names as its manifest.
type Manifest struct {
	Name string // the file or URL, for faults
	Data []byte

	// Fault, if set, is why there are no Data: nobody knows what the manifest says.
	Fault string
}

// A Source is all that is known of one server.
type Source struct {
	// Offer is the server's last known word. Nil Tools mean that it has not
	// said yet which tools it has; then nobody is blamed for naming others.
	Offer switchboard.Offer

	Class    string
	Trust    switchboard.Trust
	Manifest *Manifest // nil means none
}

// A Snapshot is what all servers offer at one moment. It is immutable and safe
// for concurrent use.
type Snapshot struct {
	tax     *switchboard.Taxonomy
	words   string // the taxonomy in the form that the digest reads
	digest  switchboard.Digest
	servers []*server // sorted by id
	tools   []*switchboard.Tool
	faults  []Fault
}

// Build makes the snapshot of sources. overlays are the operator's. The order
// of sources, of a server's tools and of what blocks list does not matter.
// What is passed in must not be modified afterwards.
func Build(sources []Source, overlays map[switchboard.ToolID]switchboard.Overlay, tax *switchboard.Taxonomy) *Snapshot {
	return (&Snapshot{}).Rebuild(sources, overlays, tax)
}

// Rebuild is Build, and equal to it in its result, but does not do again what
// s has done: it costs a comparison of bytes for what has not changed.
func (s *Snapshot) Rebuild(sources []Source, overlays map[switchboard.ToolID]switchboard.Overlay, tax *switchboard.Taxonomy) *Snapshot {
	next := &Snapshot{tax: tax, words: taxonomyWords(tax)}
	said := byServer(overlays)
	sorted := slices.Clone(sources)
	slices.SortStableFunc(sorted, func(a, b Source) int {
		return strings.Compare(string(a.Offer.Server), string(b.Offer.Server))
	})

	var todo []*server
	for i := 0; i < len(sorted); {
		id := sorted[i].Offer.Server
		j := i + 1
		for j < len(sorted) && sorted[j].Offer.Server == id {
			j++
		}
		v := &server{id: id, source: sorted[i], overlays: said[id], words: next.words, twice: j-i > 1}
		i = j
		old := s.server(id)
		if old != nil && old.sameInputs(v) {
			v = old
		} else {
			v.old = old
			todo = append(todo, v)
		}
		next.servers = append(next.servers, v)
	}
	buildAll(todo, tax)

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
	next.digest = digestOf(next.words, func(yield func(switchboard.ServerID, switchboard.Digest)) {
		for _, v := range next.servers {
			if len(v.tools) > 0 {
				yield(v.id, v.digest)
			}
		}
	})
	return next
}

// buildAll builds the servers on all processors, the largest first, so that
// the last to finish is a small one.
func buildAll(todo []*server, tax *switchboard.Taxonomy) {
	todo = slices.Clone(todo)
	slices.SortStableFunc(todo, func(a, b *server) int { return b.size() - a.size() })
	workers := min(runtime.GOMAXPROCS(0), len(todo))
	var taken atomic.Int64
	work := func() {
		var t tree
		for {
			i := int(taken.Add(1)) - 1
			if i >= len(todo) {
				return
			}
			todo[i].build(&t, tax)
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

// server finds the server with this id, or nil.
func (s *Snapshot) server(id switchboard.ServerID) *server {
	i, ok := slices.BinarySearchFunc(s.servers, id, func(v *server, id switchboard.ServerID) int {
		return strings.Compare(string(v.id), string(id))
	})
	if !ok {
		return nil
	}
	return s.servers[i]
}

// Digest is of every tool's id, definition, capabilities, what is kept,
// contract, redaction, class and trust, its server's version, and of the taxonomy. A server
// that is away but offered the same before gives the same digest.
func (s *Snapshot) Digest() switchboard.Digest { return s.digest }

// Faults are what is wrong with what servers, manifests and the operator's
// overlays say, sorted. The slice is shared; do not modify it.
func (s *Snapshot) Faults() []Fault { return s.faults }

// Heard reports whether the server has said which tools it has.
func (s *Snapshot) Heard(id switchboard.ServerID) bool {
	v := s.server(id)
	return v != nil && v.source.Offer.Tools != nil
}

// Tools are all usable tools, sorted by id. The slice is shared; do not modify
// it.
func (s *Snapshot) Tools() []*switchboard.Tool { return s.tools }

// Tool returns the tool with this id, as it is without any tenant's overlay.
func (s *Snapshot) Tool(id switchboard.ToolID) (*switchboard.Tool, bool) {
	return find(s.tools, id)
}

func find(tools []*switchboard.Tool, id switchboard.ToolID) (*switchboard.Tool, bool) {
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

// byServer parts overlays by server, each sorted by tool.
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

// overlayOf finds what list says of the tool.
func overlayOf(list []namedOverlay, tool string) (switchboard.Overlay, bool) {
	i, ok := slices.BinarySearchFunc(list, tool, func(o namedOverlay, tool string) int {
		return strings.Compare(o.tool, tool)
	})
	if !ok {
		return switchboard.Overlay{}, false
	}
	return list[i].Overlay, true
}

// digestOf digests the taxonomy and the servers, which each gives in order.
func digestOf(words string, each func(yield func(switchboard.ServerID, switchboard.Digest))) switchboard.Digest {
	buf := appendField(nil, "switchboard catalog 2")
	buf = appendField(buf, words)
	each(func(id switchboard.ServerID, d switchboard.Digest) {
		buf = appendField(buf, string(id))
		buf = appendField(buf, string(d))
	})
	return canonical.Sum(buf)
}
