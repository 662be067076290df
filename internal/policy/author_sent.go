package policy

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// A flow finds the values of a layer that come from a client: input.call.arguments, input.call.uri, and all that rules make of
// them. It follows variables, functions and the values of rules. A number or a boolean that a builtin makes does not count: it is small.
type flow struct {
	layer   *Layer
	vars    map[sentVar]bool
	values  map[*ast.Rule]bool // rules with such a value
	changed bool
}

type sentVar struct {
	rule *ast.Rule
	name ast.Var
}

// follow returns the flow of the layer. Each pass adds to it until a pass adds nothing.
func follow(l *Layer) *flow {
	f := &flow{layer: l, vars: map[sentVar]bool{}, values: map[*ast.Rule]bool{}, changed: true}
	for f.changed {
		f.changed = false
		for _, r := range l.rules {
			f.rule(r.Rule)
		}
	}
	return f
}

func (f *flow) rule(r *ast.Rule) {
	ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
		if every, ok := e.Terms.(*ast.Every); ok && f.sent(r, every.Domain) {
			f.mark(r, every.Key)
			f.mark(r, every.Value)
		}
		if e.IsCall() {
			f.call(r, e.Operator(), e.Operands())
		}
		return false
	})
	ast.WalkTerms(r, func(t *ast.Term) bool {
		if call, ok := t.Value.(ast.Call); ok {
			if op, ok := call[0].Value.(ast.Ref); ok {
				f.call(r, op, call[1:])
			}
		}
		return false
	})
	made := f.sent(r, r.Head.Value) || f.sent(r, r.Head.Key)
	for _, t := range r.Head.Reference[1:] {
		made = made || f.sent(r, t)
	}
	if made && !f.values[r] {
		f.values[r], f.changed = true, true
	}
}

// call follows the values of one call into a function, and into the variable of its result.
func (f *flow) call(r *ast.Rule, op ast.Ref, operands []*ast.Term) {
	if op.Equal(ast.Equality.Ref()) || op.Equal(ast.Assign.Ref()) {
		for i := range 2 {
			if f.sent(r, operands[i]) {
				f.mark(r, operands[1-i])
			}
		}
		return
	}
	arity, made := 0, false
	if b, ok := ast.BuiltinMap[op.String()]; ok {
		arity = b.Decl.Arity()
		for _, t := range inputs(op, operands) {
			made = made || f.sent(r, t)
		}
		switch b.Decl.Result().(type) {
		case types.Number, types.Boolean:
			made = false
		}
	}
	for _, other := range f.layer.compiler.GetRules(op) {
		arity = len(other.Head.Args)
		for i, arg := range other.Head.Args {
			if i < len(operands) && f.sent(r, operands[i]) {
				f.mark(other, arg)
			}
		}
		made = made || f.values[other]
	}
	if made && len(operands) > arity {
		f.mark(r, operands[arity])
	}
}

// inputs are the operands without the variable that takes the result of the builtin.
func inputs(op ast.Ref, operands []*ast.Term) []*ast.Term {
	if b, ok := ast.BuiltinMap[op.String()]; ok && len(operands) > b.Decl.Arity() {
		return operands[:b.Decl.Arity()]
	}
	return operands
}

// mark notes the variables that take a value from a client, also where the term takes the value apart.
func (f *flow) mark(r *ast.Rule, t *ast.Term) {
	if t == nil {
		return
	}
	switch v := t.Value.(type) {
	case ast.Var:
		if at := (sentVar{r, v}); !f.vars[at] {
			f.vars[at], f.changed = true, true
		}
	case *ast.Array:
		v.Foreach(func(t *ast.Term) { f.mark(r, t) })
	case ast.Object:
		v.Foreach(func(_, t *ast.Term) { f.mark(r, t) })
	}
}

// sent reports whether a part of the term comes from a client.
func (f *flow) sent(r *ast.Rule, t *ast.Term) (found bool) {
	if t == nil {
		return false
	}
	ast.WalkTerms(t, func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case ast.Var:
			found = found || f.vars[sentVar{r, v}]
		case ast.Ref:
			found = found || ofClient(v)
			for _, other := range f.layer.compiler.GetRules(v) {
				found = found || len(other.Head.Args) == 0 && f.values[other]
			}
			if head, ok := v[0].Value.(ast.Var); ok {
				found = found || f.vars[sentVar{r, head}]
			}
			return true // a key does not make the value longer
		}
		return found
	})
	return found
}

// ofClient reports whether a reference reads the arguments or the URI of a call.
func ofClient(ref ast.Ref) bool {
	if !ref[0].Equal(ast.InputRootDocument) || ofInput(ref)&(readsCall|readsAll) == 0 {
		return false
	}
	if len(ref) < 3 {
		return true
	}
	_, constant := ref[2].Value.(ast.String)
	return !constant || ref[2].Equal(keyArguments) || ref[2].Equal(keyURI)
}

// bounds reports whether the rule counts the value of the term or compares it, as a rule does that bounds it first.
func (c *linter) bounds(r *rule, t *ast.Term) (found bool) {
	want := c.resolve(r, t)
	ast.WalkExprs(r.Body, func(e *ast.Expr) bool {
		if !e.IsCall() {
			return false
		}
		switch e.Operator().String() {
		case ast.Count.Name, ast.LessThan.Name, ast.LessThanEq.Name, ast.GreaterThan.Name, ast.GreaterThanEq.Name:
			for _, of := range inputs(e.Operator(), e.Operands()) {
				found = found || of.Equal(t) || want != nil && want.Equal(c.resolve(r, of))
			}
		}
		return false
	})
	return found
}
