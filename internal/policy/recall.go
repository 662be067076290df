package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A recall remembers what layers answered, for who asks the same again and again
// of other principals.
type recall struct {
	personal map[Kind]bool // those whose answers are of one principal, task or instant
	answers  map[string]*raw
}

// Recalling returns a Policy that answers as p does, and asks each layer once
// about what differs in nothing that a rule of the layer looks at. It is for
// replays of decisions: for one goroutine, for tools that do not change, and it
// forgets nothing.
func (p *Policy) Recalling() *Policy {
	own := *p
	own.recall = &recall{personal: map[Kind]bool{}, answers: map[string]*raw{}}
	for _, v := range p.layers {
		own.recall.personal[v.kind] = v.reads&(readsClock|readsAll) != 0 || slices.ContainsFunc(v.rules, func(r *rule) bool { return personal(r.Rule) })
	}
	return &own
}

// ObligationsOf returns what was asked of calls of a candidate when it was
// selected, by a Recalling policy.
func ObligationsOf(c decide.Candidate) (o switchboard.Obligations) {
	if c.Judgment == nil {
		return o
	}
	m, ok := c.Judgment.Memory.(*memory)
	at := slices.IndexFunc(c.Judgment.Candidates, func(t *switchboard.Tool) bool { return t.ID == c.Tool.ID })
	if !ok || at < 0 {
		return o
	}
	if m.kept != nil {
		combine(&o, m.kept[at])
	}
	if m.asked != nil {
		combine(&o, m.asked[at])
	}
	return o
}

// personal reports whether a rule reads a path that may lead to the principal's
// id or to the task. Whatever reads input under other names is readsAll.
func personal(r *ast.Rule) (yes bool) {
	ast.WalkRefs(r, func(ref ast.Ref) bool {
		if !ref[0].Equal(ast.InputRootDocument) || len(ref) < 2 {
			return false
		}
		switch {
		case ref[1].Equal(keyTask):
			yes = true
		case ref[1].Equal(keyPrincipal):
			yes = yes || len(ref) < 3 || !ref[2].Equal(keyRoles) && !ref[2].Equal(keyAuth)
		}
		return false
	})
	return yes
}

var (
	keyRoles = ast.InternedTerm("roles")
	keyAuth  = ast.InternedTerm("auth")
)

// ask asks one layer, or recalls what it answered.
func (p *Policy) ask(ctx context.Context, v view, in *ast.Term, q *Question) (*raw, error) {
	if p.recall == nil || p.recall.personal[v.kind] {
		return p.engine.eval(ctx, v, in, q.Now)
	}
	key := v.question(q)
	if r, ok := p.recall.answers[key]; ok {
		return r, nil
	}
	r, err := p.engine.eval(ctx, v, in, q.Now)
	if err == nil {
		p.recall.answers[key] = r
	}
	return r, err
}

// question is all of q that a layer can look at which is not personal.
func (v view) question(q *Question) string {
	var b strings.Builder
	r, who := q.Requirement, &q.Principal
	fmt.Fprintf(&b, "%q %q %q %q %q %q ", v.kind, q.Phase, r.Verb, r.Resource, r.Constraints, r.Tools)
	fmt.Fprintf(&b, "%q %q %q %q %q", who.Auth, who.Roles, who.Tier, mode(*who, q.Task), q.Arguments)
	for _, c := range q.Candidates {
		b.WriteByte('\n')
		b.WriteString(c.ID.String())
	}
	return b.String()
}
