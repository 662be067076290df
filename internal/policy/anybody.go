package policy

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Anybody reports whether no rule looks at who the principal is, beyond roles,
// tier, mode and how it became known, nor at which task it is: questions that
// differ in nothing else then have one answer.
func (p *Policy) Anybody() bool {
	for _, v := range p.layers {
		if slices.ContainsFunc(v.rules, func(r *rule) bool { return r.reads&readsAll != 0 || personal(r.Rule) }) {
			return false
		}
	}
	return true
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
