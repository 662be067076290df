package verdict

import (
	"context"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/decide"
)

// StageName is the name of the stage in explanations.
const StageName = "verdict"

// Stage returns the stage that drops the tools of a capability if its verdict is No: an atom is red, or no version of a
// required capability is active. The stage of policy has applied the boundaries before. A stale or unknown atom drops
// nothing: it is probed before the call. r is not nil.
func Stage(r *capability.Registry) decide.Stage {
	s := &noStage{needs: map[string]Dependencies{}}
	for _, id := range r.IDs() {
		for _, v := range r.Versions(id) {
			s.needs[v.Name()] = Needs(r, v)
		}
	}
	return s
}

type noStage struct {
	needs map[string]Dependencies // by ID@VERSION
}

// Name implements decide.Stage.
func (*noStage) Name() string { return StageName }

// Apply implements decide.Stage.
func (s *noStage) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	out := in[:0]
	for _, c := range in {
		if why := s.blocking(c.Tool.Contract.Capability, q.Atoms); len(why) > 0 {
			drop(c, decide.Reason{Text: strings.Join(why, "; ")})
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// blocking returns why no tool of the version, ID@VERSION, may be used now. A tool without a capability has no atoms.
func (s *noStage) blocking(version string, atoms decide.Atoms) (why []string) {
	if version == "" {
		return nil
	}
	needs, ok := s.needs[version]
	if !ok {
		return []string{version + ": the registry has no such version"}
	}
	why = append(why, needs.Lacking...)
	for _, id := range needs.Atoms {
		if atoms[id] == capability.Red {
			why = append(why, id+": red")
		}
	}
	return why
}
