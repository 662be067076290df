package policy

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// Values share their parts: with a1 := [a0, a0], a2 := [a1, a1] and so on, thirty short rules make a value that is larger
// than memory as soon as something compares it. No builtin needs to be called for that, and nothing stops it. So it is
// found in the compiled rules.

// maxGrowth is how often a value may contain one and the same part.
const maxGrowth = 1 << 20

// growths are the builtins whose result contains all their operands. The result of any other contains one of them at most.
var growths = map[string]bool{
	"array.concat": true, "array.flatten": true, "object.union": true, "object.union_n": true,
	"or": true, "and": true, "union": true, "intersection": true, "json.patch": true,
}

// A growth finds how often the values of rules contain one and the same part, at most.
type growth struct {
	compiler *ast.Compiler
	of       map[*ast.Rule]float64
}

// refuseGrowth is a stage of compilation, ahead of the check of types: such a value has a type that is as large. Its error names a
// rule that grows too much and refers to none that does.
func refuseGrowth(c *ast.Compiler) *ast.Error {
	g := growth{compiler: c, of: map[*ast.Rule]float64{}}
	var all []*ast.Rule
	for _, name := range sorted(c.Modules) {
		ast.WalkRules(c.Modules[name], func(r *ast.Rule) bool {
			g.rule(r)
			all = append(all, r)
			return false
		})
	}
	for _, r := range all {
		refers := false
		for other := range c.Graph.Dependencies(r) {
			refers = refers || g.of[other.(*ast.Rule)] > maxGrowth
		}
		if n := g.of[r]; n > maxGrowth && !refers {
			return ast.NewError(ast.CompileErr, r.Location, "rule %v puts a value into itself %.0f times over, through what it refers to; the most is %d; let it refer to fewer values",
				r.Head.Ref().GroundPrefix(), n, maxGrowth)
		}
	}
	return nil
}

// rule returns the growth of a rule's value, and of all that its body makes.
func (g growth) rule(r *ast.Rule) float64 {
	if n, ok := g.of[r]; ok {
		return n
	}
	g.of[r] = 1 // rules are not recursive
	known := map[ast.Var]float64{}
	for _, arg := range r.Head.Args {
		define(arg, 1, known)
	}
	n := g.body(r.Body, known)
	for _, t := range slices.Concat(ast.Ref{r.Head.Key, r.Head.Value}, r.Head.Reference) {
		if t != nil {
			n = max(n, g.term(t, known))
		}
	}
	if r.Else != nil {
		n = max(n, g.rule(r.Else))
	}
	g.of[r] = n
	return n
}

// body notes the growth of the variables that the expressions define, and returns the largest.
func (g growth) body(b ast.Body, known map[ast.Var]float64) float64 {
	most := 1.0
	for _, e := range b {
		within := 1.0 // what `with` puts in the place of input
		for _, w := range e.With {
			within *= max(1, g.term(w.Value, known))
		}
		n := 1.0
		switch terms := e.Terms.(type) {
		case *ast.Term:
			n = g.term(terms, known)
		case *ast.Every:
			n = g.term(terms.Domain, known)
			define(terms.Value, n, known)
			n = max(n, g.body(terms.Body, known))
		case []*ast.Term:
			n = within * g.call(terms[0].Value, terms[1:], known)
		}
		most = max(most, n)
	}
	return most
}

// call is the growth of what a call of a builtin or of a function gives. What stands for its result is defined by it.
func (g growth) call(op ast.Value, operands []*ast.Term, known map[ast.Var]float64) float64 {
	name, _ := op.(ast.Ref)
	if name.Equal(ast.Equality.Ref()) || name.Equal(ast.Assign.Ref()) {
		a, b := operands[0], operands[1]
		n := max(g.term(a, known), g.term(b, known))
		define(a, n, known)
		define(b, n, known)
		return n
	}
	args := operands
	var result *ast.Term
	if arity := g.compiler.GetArity(name); arity >= 0 && len(operands) > arity {
		args, result = operands[:arity], operands[arity]
	}
	n := 1.0
	if makesScalar(name) {
		args = nil
	}
	for _, t := range args {
		if m := g.term(t, known); growths[name.String()] {
			n += m
		} else {
			n = max(n, m)
		}
	}
	function := 1.0
	for _, r := range g.compiler.GetRulesDynamicWithOpts(name, ast.RulesOptions{IncludeHiddenModules: false}) {
		function = max(function, g.rule(r))
	}
	n *= function
	if result != nil {
		define(result, n, known)
	}
	return n
}

// makesScalar reports whether a builtin gives a text, a number or a boolean. Such a value contains no part twice.
func makesScalar(name ast.Ref) bool {
	b, ok := ast.BuiltinMap[name.String()]
	if !ok {
		return false
	}
	switch b.Decl.Result().(type) {
	case types.String, types.Number, types.Boolean:
		return true
	}
	return false
}

// define notes the growth of the variables of a term that have none yet.
func define(t *ast.Term, n float64, known map[ast.Var]float64) {
	if t == nil {
		return
	}
	ast.WalkVars(t, func(v ast.Var) bool {
		if _, ok := known[v]; !ok {
			known[v] = n
		}
		return false
	})
}

// term is how often the value of a term contains one and the same part.
func (g growth) term(t *ast.Term, known map[ast.Var]float64) float64 {
	n := 0.0
	add := func(t *ast.Term) { n += g.term(t, known) }
	switch v := t.Value.(type) {
	case ast.Var:
		return max(1, known[v])
	case ast.Ref:
		if head, ok := v[0].Value.(ast.Var); ok {
			n = known[head]
		} else {
			n = g.term(v[0], known)
		}
		for _, r := range g.compiler.GetRulesDynamicWithOpts(v, ast.RulesOptions{IncludeHiddenModules: false}) {
			n = max(n, g.rule(r))
		}
	case ast.Call:
		return g.call(v[0].Value, v[1:], known)
	case *ast.Array:
		v.Foreach(add)
	case ast.Set:
		v.Foreach(add)
	case ast.Object:
		v.Foreach(func(k, t *ast.Term) { add(k); add(t) })
	case *ast.ArrayComprehension:
		return max(g.body(v.Body, known), g.term(v.Term, known))
	case *ast.SetComprehension:
		return max(g.body(v.Body, known), g.term(v.Term, known))
	case *ast.ObjectComprehension:
		return max(g.body(v.Body, known), g.term(v.Key, known)+g.term(v.Value, known))
	default:
		return 0
	}
	return max(1, n)
}
