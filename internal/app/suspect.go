package app

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	maxLoggedFindings = 20          // of one pass
	suspectInterval   = time.Second // between the beginnings of passes
)

// A suspectLog looks at the definitions that are let in, and logs what should make people look. It works beside the building of states, so that no state waits
// for it.
type suspectLog struct {
	log     *slog.Logger
	state   func() *servingState
	changed signal // there is a new state

	seen   map[switchboard.ToolID]seenDefinition
	counts atomic.Pointer[map[switchboard.ServerID]int]
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
		s.look(ctx, st.Catalog.Tools(), func(id switchboard.ToolID) []byte { return st.Offers[id.Server].Uncleaned[id.Name] })
		select {
		case <-ctx.Done():
			return
		case <-pause:
		}
	}
}

// look logs the findings of each tool that is new or has another definition than in the last pass. uncleaned returns the definition as its server sent
// it, or nil if nothing was removed from it.
func (s *suspectLog) look(ctx context.Context, tools []*switchboard.Tool, uncleaned func(switchboard.ToolID) []byte) {
	var peers *suspect.Peers
	seen, counts, logged, more := make(map[switchboard.ToolID]seenDefinition, len(tools)), map[switchboard.ServerID]int{}, 0, 0
	for _, t := range tools {
		if t.Provides != nil {
			continue // the operator wrote it
		}
		if ctx.Err() != nil {
			return
		}
		definition := t.Definition
		if sent := uncleaned(t.ID); sent != nil {
			definition = sent
		}
		now := seenDefinition{digest: sha256.Sum256(definition)}
		if was, ok := s.seen[t.ID]; ok && was.digest == now.digest {
			now.findings = was.findings
		} else {
			if peers == nil {
				peers = suspect.NewPeers(peerTools(tools))
			}
			found := suspect.Find(t.ID, definition, peers)
			now.findings = len(found)
			for _, f := range found {
				if logged == maxLoggedFindings {
					more++
					continue
				}
				logged++
				s.logFinding(ctx, t.ID, f)
			}
		}
		seen[t.ID] = now
		counts[t.ID.Server] += now.findings
	}
	s.seen = seen
	s.counts.Store(&counts)
	if more > 0 {
		s.log.Warn("more findings in the definitions of tools", "findings", more)
	}
}

func (s *suspectLog) logFinding(ctx context.Context, tool switchboard.ToolID, f suspect.TextFinding) {
	level := slog.LevelInfo
	if f.Tier == suspect.Blocking {
		level = slog.LevelWarn
	}
	s.log.Log(ctx, level, "a finding in the definition of a tool", "server", tool.Server, "tool", cutName(tool.Name), "rule", f.Rule, "tier", f.Tier, "where", f.Where, "text", f.Text)
}

// cutName returns the name of a tool as far as the log has room.
func cutName(name string) string {
	if len(name) > maxLoggedMember {
		name = strings.ToValidUTF8(name[:maxLoggedMember], "") + "…"
	}
	return suspect.Spell(name)
}

// findings returns how many findings the definitions of the server have.
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
