package app

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	maxLoggedFindings = 20          // of one pass
	suspectInterval   = time.Second // between the beginnings of passes
)

// A suspectLog looks at the definitions and instructions that are let in, and logs what should make people look. It works beside the building of states, so that no state waits
// for it.
type suspectLog struct {
	log     *slog.Logger
	state   func() *servingState
	changed signal // there is a new state

	seen   map[suspectKey]seenDefinition
	counts atomic.Pointer[map[switchboard.ServerID]int]
}

// A suspectKey names a text of a server. what is a word for it: tool, resource, template, prompt or instructions. Instructions have no name.
type suspectKey struct {
	what string
	id   switchboard.ToolID
}

// A seenDefinition is what was found in the definition with the digest.
type seenDefinition struct {
	digest   [sha256.Size]byte
	findings int
}

// newSuspectLog returns a suspectLog that has seen nothing. state returns the newest state.
func newSuspectLog(log *slog.Logger, state func() *servingState) *suspectLog {
	s := &suspectLog{log: log, state: state, changed: make(signal, 1)}
	s.counts.Store(&map[switchboard.ServerID]int{})
	return s
}

// run looks at each new state until ctx is done. It skips states that are replaced within suspectInterval.
func (s *suspectLog) run(ctx context.Context) {
	var was *servingState
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		pause := time.After(suspectInterval)
		st := s.state()
		before := func(switchboard.ToolID) (*switchboard.Tool, bool) { return nil, false }
		if was != nil {
			before = was.Catalog.Tool
		}
		logAdmissions(ctx, s.log, before, st.Catalog.Tools())
		was = st
		s.look(ctx, st.Catalog.Tools(), st.Offers)
		select {
		case <-ctx.Done():
			return
		case <-pause:
		}
	}
}

// otherKinds are the kinds of objects beside tools, with their words and the member that names one.
var otherKinds = []struct {
	kind        switchboard.Kind
	what, named string
}{{switchboard.Resources, "resource", "uri"}, {switchboard.Templates, "template", "uriTemplate"}, {switchboard.Prompts, "prompt", "name"}}

// eachText calls f with each text that a model may read of a server: definitions of tools, resources, templates and prompts, and instructions. A text is as the server
// sent it. What the operator wrote is left out.
func eachText(tools []*switchboard.Tool, offers map[switchboard.ServerID]switchboard.Offer, f func(key suspectKey, definition []byte)) {
	for _, t := range tools {
		if t.Provides != nil {
			continue
		}
		f(suspectKey{"tool", t.ID}, longer(offers[t.ID.Server].Uncleaned[t.ID.Name], t.Definition))
	}
	for _, server := range slices.Sorted(maps.Keys(offers)) {
		o := offers[server]
		for _, k := range otherKinds {
			for _, item := range o.List(k.kind) {
				raw, _ := wire.Field(item, k.named)
				name, _ := wire.String(raw)
				f(suspectKey{k.what, switchboard.ToolID{Server: server, Name: name}}, longer(o.UncleanedOthers[switchboard.SentKey(k.kind, name)], item))
			}
		}
		if o.Instructions != "" {
			text := longer(o.UncleanedOthers[switchboard.SentInstructions], wire.AppendString(nil, o.Instructions))
			f(suspectKey{"instructions", switchboard.ToolID{Server: server}}, slices.Concat([]byte(`{"instructions":`), text, []byte("}")))
		}
	}
}

// longer returns what a server sent, or cleaned if nothing was removed from it.
func longer(sent, cleaned []byte) []byte {
	if sent != nil {
		return sent
	}
	return cleaned
}

// look logs the findings of each text that is new or has changed since the last pass.
func (s *suspectLog) look(ctx context.Context, tools []*switchboard.Tool, offers map[switchboard.ServerID]switchboard.Offer) {
	peers := sync.OnceValue(func() *suspect.Peers { return suspect.NewPeers(peerTools(tools)) })
	seen, counts, logged, more := make(map[suspectKey]seenDefinition, len(tools)), map[switchboard.ServerID]int{}, 0, 0
	eachText(tools, offers, func(key suspectKey, definition []byte) {
		if ctx.Err() != nil {
			return
		}
		now := seenDefinition{digest: sha256.Sum256(definition)}
		if was, ok := s.seen[key]; ok && was.digest == now.digest {
			now.findings = was.findings
		} else {
			found := suspect.Find(key.id, definition, peers())
			now.findings = len(found)
			for _, f := range found {
				if logged == maxLoggedFindings {
					more++
					continue
				}
				logged++
				s.logFinding(ctx, key, f)
			}
		}
		seen[key] = now
		counts[key.id.Server] += now.findings
	})
	if ctx.Err() != nil {
		return
	}
	s.seen = seen
	s.counts.Store(&counts)
	if more > 0 {
		s.log.Warn("more findings in what servers offer", "findings", more)
	}
}

func (s *suspectLog) logFinding(ctx context.Context, key suspectKey, f suspect.TextFinding) {
	level := slog.LevelInfo
	if f.Tier == suspect.Blocking {
		level = slog.LevelWarn
	}
	message, attrs := "a finding in the instructions of a server", []any{"server", key.id.Server}
	if key.what != "instructions" {
		message, attrs = "a finding in the definition of a "+key.what, append(attrs, key.what, cutName(key.id.Name))
	}
	s.log.Log(ctx, level, message, append(attrs, "rule", f.Rule, "tier", f.Tier, "where", f.Where, "text", f.Text)...)
}

// cutName returns the name of a tool as far as the log has room.
func cutName(name string) string {
	if len(name) > maxLoggedMember {
		name = strings.ToValidUTF8(name[:maxLoggedMember], "") + "…"
	}
	return scan.Spell(name)
}

// findings returns how many findings the texts of the server have.
func (s *suspectLog) findings(id switchboard.ServerID) int { return (*s.counts.Load())[id] }

func peerTools(tools []*switchboard.Tool) []suspect.PeerTool {
	all := make([]suspect.PeerTool, 0, len(tools))
	for _, t := range tools {
		if t.Provides == nil {
			all = append(all, suspect.PeerTool{ID: t.ID, Trust: t.Trust, Definition: t.Definition})
		}
	}
	return all
}
