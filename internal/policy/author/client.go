package author

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/summit-switchboard/switchboard/internal/policy"
)

// A clientFlow finds the values of a layer that come from a client: input.call.arguments,
// input.call.uri, and everything that rules make from them. It follows variables, functions and the
// values of rules. A number or a boolean that a builtin returns does not count, because it is
// small.
type clientFlow struct {
	layer   *policy.Layer
	vars    map[clientVar]bool
	values  map[*ast.Rule]bool // rules with such a value
	changed bool
}

type clientVar struct {
	rule *ast.Rule
	name ast.Var
}

// followClientValues returns the flow of the layer. It repeats its pass over the rules until a pass
// adds nothing.
func followClientValues(l *policy.Layer) *clientFlow {
	f := &clientFlow{layer: l, vars: map[clientVar]bool{}, values: map[*ast.Rule]bool{}, changed: true}
	for f.changed {
		f.changed = false
		for _, r := range l.Rules() {
			f.followRule(r.Rule)
		}
	}
	return f
}

func (f *clientFlow) followRule(r *ast.Rule) {
	ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
		if every, ok := e.Terms.(*ast.Every); ok && f.comesFromClient(r, every.Domain) {
			f.markVars(r, every.Key)
			f.markVars(r, every.Value)
		}
		if e.IsCall() {
			f.followCall(r, e.Operator(), e.Operands())
		}
		return false
	})
	ast.WalkTerms(r, func(t *ast.Term) bool {
		if call, ok := t.Value.(ast.Call); ok {
			if op, ok := call[0].Value.(ast.Ref); ok {
				f.followCall(r, op, call[1:])
			}
		}
		return false
	})
	made := f.comesFromClient(r, r.Head.Value) || f.comesFromClient(r, r.Head.Key)
	for _, t := range r.Head.Reference[1:] {
		made = made || f.comesFromClient(r, t)
	}
	if made && !f.values[r] {
		f.values[r], f.changed = true, true
	}
}

// followCall follows the values of one call into the parameters of a function, and into the
// variable of the result.
func (f *clientFlow) followCall(r *ast.Rule, op ast.Ref, operands []*ast.Term) {
	if op.Equal(ast.Equality.Ref()) || op.Equal(ast.Assign.Ref()) {
		for i := range 2 {
			if f.comesFromClient(r, operands[i]) {
				f.markVars(r, operands[1-i])
			}
		}
		return
	}
	arity, made := 0, false
	if b, ok := ast.BuiltinMap[op.String()]; ok {
		arity = b.Decl.Arity()
		for _, t := range inputOperands(op, operands) {
			made = made || f.comesFromClient(r, t)
		}
		switch b.Decl.Result().(type) {
		case types.Number, types.Boolean:
			made = false
		}
	}
	for _, other := range f.layer.RulesAt(op) {
		arity = len(other.Head.Args)
		for i, arg := range other.Head.Args {
			if i < len(operands) && f.comesFromClient(r, operands[i]) {
				f.markVars(other, arg)
			}
		}
		made = made || f.values[other]
	}
	if made && len(operands) > arity {
		f.markVars(r, operands[arity])
	}
}

// inputOperands returns the operands of a builtin without the variable of the result.
func inputOperands(op ast.Ref, operands []*ast.Term) []*ast.Term {
	if b, ok := ast.BuiltinMap[op.String()]; ok && len(operands) > b.Decl.Arity() {
		return operands[:b.Decl.Arity()]
	}
	return operands
}

// markVars records the variables that take a value from a client, including those in an array or
// object that the value is matched with.
func (f *clientFlow) markVars(r *ast.Rule, t *ast.Term) {
	if t == nil {
		return
	}
	switch v := t.Value.(type) {
	case ast.Var:
		if at := (clientVar{r, v}); !f.vars[at] {
			f.vars[at], f.changed = true, true
		}
	case *ast.Array:
		v.Foreach(func(t *ast.Term) { f.markVars(r, t) })
	case ast.Object:
		v.Foreach(func(_, t *ast.Term) { f.markVars(r, t) })
	}
}

// comesFromClient reports whether a part of the term comes from a client.
func (f *clientFlow) comesFromClient(r *ast.Rule, t *ast.Term) (found bool) {
	if t == nil {
		return false
	}
	ast.WalkTerms(t, func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case ast.Var:
			found = found || f.vars[clientVar{r, v}]
		case ast.Ref:
			found = found || readsClientValue(v)
			for _, other := range f.layer.RulesAt(v) {
				found = found || len(other.Head.Args) == 0 && f.values[other]
			}
			if head, ok := v[0].Value.(ast.Var); ok {
				found = found || f.vars[clientVar{r, head}]
			}
			return true // a key does not make the value longer
		}
		return found
	})
	return found
}

// readsClientValue reports whether a reference reads the arguments or the URI of a call.
func readsClientValue(ref ast.Ref) bool {
	if !ref[0].Equal(ast.InputRootDocument) || !policy.ReadsCall(ref) {
		return false
	}
	if len(ref) < 3 {
		return true
	}
	_, constant := ref[2].Value.(ast.String)
	return !constant || ref[2].Equal(keyArguments) || ref[2].Equal(keyURI)
}

// isBounded reports whether the rule counts or compares the value of the term, as a rule does that
// limits it first.
func (c *linter) isBounded(r *policy.CompiledRule, t *ast.Term) (found bool) {
	want := c.resolve(r, t)
	ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
		if !e.IsCall() {
			return false
		}
		switch e.Operator().String() {
		case ast.Count.Name, ast.LessThan.Name, ast.LessThanEq.Name, ast.GreaterThan.Name, ast.GreaterThanEq.Name:
			for _, of := range inputOperands(e.Operator(), e.Operands()) {
				found = found || of.Equal(t) || want != nil && want.Equal(c.resolve(r, of))
			}
		}
		return false
	})
	return found
}
