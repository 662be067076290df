package author

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxMadeTexts limits how many texts of the rules are used to make candidates.
const maxMadeTexts = 60

// Try asks a layer about made-up tools and about the real ones, in every mode, at selection and at
// call, for the tenant's local principal and for one without an id. It warns if the answer is
// always no, or always yes. Neither is certain: rules can depend on something that was not tried.
func Try(ctx context.Context, e *policy.Engine, t *switchboard.Tenant, s *Sources, l *policy.Layer, there []*switchboard.Tool) []Warning {
	p, err := e.NewPolicy(t, l, nil)
	if err != nil {
		return []Warning{{File: s.Name, About: "settings", Text: err.Error()}}
	}
	settings := ast.ObjectTerm()
	if t.Policy != nil {
		if v, err := ast.ValueFromReader(bytes.NewReader(t.Policy)); err == nil { // NewPolicy has read it
			settings = ast.NewTerm(v)
		}
	}
	tools := slices.Concat(madeUpTools(l, settings), there)
	mine := switchboard.Principal{Tenant: t.ID, ID: switchboard.LocalID, Auth: switchboard.AuthLocal, Tier: t.Tier, Roles: t.Roles}
	allowed, restrained := 0, 0
	why := map[string]int{}
	for _, mode := range switchboard.Modes {
		for _, who := range []switchboard.Principal{mine, {Tenant: t.ID}} {
			for _, phase := range []policy.Phase{policy.PhaseSelect, policy.PhaseCall} {
				for _, constraints := range [][]switchboard.Constraint{nil, {switchboard.ReadOnly}} {
					who.Mode = mode
					a := p.Judge(ctx, &policy.CandidateQuestion{
						Phase: phase, Principal: who, Task: &switchboard.Task{ID: "made-up"}, Candidates: tools, Now: time.Now(),
						Requirement: &switchboard.Requirement{Verb: switchboard.Read, Resource: "fs", Constraints: constraints},
					})
					for _, v := range a.Verdicts {
						if v.Denied == nil {
							allowed++
						} else {
							why[strings.Join(v.Denied.Reasons, "; ")]++
						}
						if v.Denied != nil || !v.Obligations.Empty() {
							restrained++
						}
					}
				}
			}
		}
	}
	warn := func(about, text string) []Warning {
		return []Warning{{File: s.Name, About: about, Text: fmt.Sprintf("tenant %s: %s", t.ID, text)}}
	}
	switch {
	case allowed == 0:
		return warn("denies-all", fmt.Sprintf("nothing that was tried is allowed (%s, in every mode, when selecting and when calling); most often because: %s", describeTools(tools, there), commonestReason(why)))
	case restrained == 0 && !dependsOnCalls(l):
		return warn("allows-all", fmt.Sprintf("nothing that was tried is denied or has an obligation (%s, in every mode, when selecting and when calling); is a rule missing, or do the rules depend on something that was not tried?", describeTools(tools, there)))
	}
	return nil
}

func describeTools(tools, there []*switchboard.Tool) string {
	if len(there) == 0 {
		return fmt.Sprintf("%d made-up tools", len(tools))
	}
	return fmt.Sprintf("%d made-up tools and %d real ones", len(tools)-len(there), len(there))
}

// commonestReason returns the commonest reason; of equally common ones the first in order.
func commonestReason(why map[string]int) string {
	best, n := "", 0
	for reason, times := range why {
		if times > n || times == n && reason < best {
			best, n = reason, times
		}
	}
	return best
}

// madeUpTools returns tools of every verb, readonly or not, of a server that the operator trusts
// and of one without trust. For each text in the layer's rules and in the tenant's settings, it
// also returns tools with that text as id, name, server, class, resource or constraint.
func madeUpTools(l *policy.Layer, settings *ast.Term) []*switchboard.Tool {
	var tools []*switchboard.Tool
	add := func(id switchboard.ToolID, class string, trust switchboard.Trust, caps ...switchboard.Capability) {
		tools = append(tools, &switchboard.Tool{ID: id, Definition: []byte(`{}`), Class: class, Trust: trust, Capabilities: caps})
	}
	n := 0
	id := func() switchboard.ToolID {
		n++
		return switchboard.ToolID{Server: "made-up", Name: fmt.Sprintf("tool_%d", n)}
	}
	add(id(), "", switchboard.TrustDeclared)
	for _, verb := range switchboard.Verbs {
		for _, constraints := range [][]switchboard.Constraint{nil, {switchboard.ReadOnly}} {
			add(id(), "", switchboard.TrustDeclared, switchboard.Capability{Verb: verb, Resource: "fs", Constraints: constraints, Source: switchboard.FromTool})
			add(id(), "", switchboard.TrustOperator, switchboard.Capability{Verb: verb, Resource: "fs", Constraints: constraints, Source: switchboard.FromOverlay})
		}
	}
	for _, text := range textsIn(l, settings) {
		if tool, err := switchboard.ParseToolID(text); err == nil {
			add(tool, "", switchboard.TrustDeclared)
			continue
		}
		other := id()
		if switchboard.CheckID(text) == nil {
			other.Server = switchboard.ServerID(text)
		}
		add(switchboard.ToolID{Server: "made-up", Name: text}, "", switchboard.TrustDeclared,
			switchboard.Capability{Verb: switchboard.Read, Resource: switchboard.Resource(text), Source: switchboard.FromTool})
		add(other, text, switchboard.TrustDeclared,
			switchboard.Capability{Verb: switchboard.Write, Resource: "fs", Constraints: []switchboard.Constraint{switchboard.Constraint(text)}, Source: switchboard.FromTool})
	}
	return tools
}

// textsIn returns the texts in the layer's rules and in the tenant's settings that could be a name,
// sorted. A * in a pattern becomes one letter.
func textsIn(l *policy.Layer, settings *ast.Term) []string {
	found := map[string]bool{}
	add := func(t *ast.Term) bool {
		if s, ok := t.Value.(ast.String); ok && s != "" && len(s) <= 128 && !strings.ContainsAny(string(s), " \t\n%^$\\") {
			found[strings.ReplaceAll(string(s), "*", "x")] = true
		}
		return false
	}
	ast.WalkTerms(settings, add)
	for _, r := range l.Rules() {
		ast.WalkTerms(r.Body, add)
	}
	out := slices.Sorted(maps.Keys(found))
	return out[:min(len(out), maxMadeTexts)]
}

// dependsOnCalls reports whether a rule depends on the arguments of a call, which Try does not make
// up.
func dependsOnCalls(l *policy.Layer) bool {
	return slices.ContainsFunc(l.Rules(), (*policy.CompiledRule).ReadsCall)
}
