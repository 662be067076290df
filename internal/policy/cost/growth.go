package cost

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// Values share their parts. With a1 := [a0, a0], a2 := [a1, a1] and so on, thirty short rules make
// a value that is larger than memory as soon as something compares it. No builtin is called for
// that, so nothing stops it. Such rules are therefore found in the compiled rules.

// maxGrowth limits how often a value may contain the same part.
const maxGrowth = 1 << 20

// growingBuiltins lists the builtins with a result that contains all their operands. The result of
// every other builtin contains at most one of them.
var growingBuiltins = map[string]bool{
	"array.concat": true, "array.flatten": true, "object.union": true, "object.union_n": true,
	"or": true, "and": true, "union": true, "intersection": true, "json.patch": true,
}

// A growthFinder computes how often the values of rules contain the same part, at most.
type growthFinder struct {
	compiler *ast.Compiler
	known    map[*ast.Rule]float64
}

// RefuseGrowth is a stage of compilation. It runs before the type check, because the type of such a
// value is as large as the value. Its error names a rule that grows too much and refers to no other
// such rule.
func RefuseGrowth(c *ast.Compiler) *ast.Error {
	g := growthFinder{compiler: c, known: map[*ast.Rule]float64{}}
	var all []*ast.Rule
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		ast.WalkRules(c.Modules[name], func(r *ast.Rule) bool {
			g.ruleGrowth(r)
			all = append(all, r)
			return false
		})
	}
	for _, r := range all {
		refers := false
		for other := range c.Graph.Dependencies(r) {
			refers = refers || g.known[other.(*ast.Rule)] > maxGrowth
		}
		if n := g.known[r]; n > maxGrowth && !refers {
			return ast.NewError(ast.CompileErr, r.Location, "rule %v puts a value into itself %.0f times over, through what it refers to; the most is %d; let it refer to fewer values",
				r.Head.Ref().GroundPrefix(), n, maxGrowth)
		}
	}
	return nil
}

// ruleGrowth returns the growth of a rule's value and of everything its body makes.
func (g growthFinder) ruleGrowth(r *ast.Rule) float64 {
	if n, ok := g.known[r]; ok {
		return n
	}
	g.known[r] = 1 // rules are not recursive
	known := map[ast.Var]float64{}
	for _, arg := range r.Head.Args {
		setGrowth(arg, 1, known)
	}
	n := g.bodyGrowth(r.Body, known)
	for _, t := range slices.Concat(ast.Ref{r.Head.Key, r.Head.Value}, r.Head.Reference) {
		if t != nil {
			n = max(n, g.termGrowth(t, known))
		}
	}
	if r.Else != nil {
		n = max(n, g.ruleGrowth(r.Else))
	}
	g.known[r] = n
	return n
}

// bodyGrowth records the growth of the variables that the expressions define, and returns the
// largest.
func (g growthFinder) bodyGrowth(b ast.Body, known map[ast.Var]float64) float64 {
	most := 1.0
	for _, e := range b {
		within := 1.0 // the values that `with` puts in place of input
		for _, w := range e.With {
			within *= max(1, g.termGrowth(w.Value, known))
		}
		n := 1.0
		switch terms := e.Terms.(type) {
		case *ast.Term:
			n = g.termGrowth(terms, known)
		case *ast.Every:
			n = g.termGrowth(terms.Domain, known)
			setGrowth(terms.Value, n, known)
			n = max(n, g.bodyGrowth(terms.Body, known))
		case []*ast.Term:
			n = within * g.callGrowth(terms[0].Value, terms[1:], known)
		}
		most = max(most, n)
	}
	return most
}

// callGrowth returns the growth of the result of a builtin or function, and records it for the
// variable that takes the result.
func (g growthFinder) callGrowth(op ast.Value, operands []*ast.Term, known map[ast.Var]float64) float64 {
	name, _ := op.(ast.Ref)
	if name.Equal(ast.Equality.Ref()) || name.Equal(ast.Assign.Ref()) {
		a, b := operands[0], operands[1]
		n := max(g.termGrowth(a, known), g.termGrowth(b, known))
		setGrowth(a, n, known)
		setGrowth(b, n, known)
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
		if m := g.termGrowth(t, known); growingBuiltins[name.String()] {
			n += m
		} else {
			n = max(n, m)
		}
	}
	function := 1.0
	for _, r := range g.compiler.GetRulesDynamicWithOpts(name, ast.RulesOptions{IncludeHiddenModules: false}) {
		function = max(function, g.ruleGrowth(r))
	}
	n *= function
	if result != nil {
		setGrowth(result, n, known)
	}
	return n
}

// makesScalar reports whether a builtin returns a text, a number or a boolean. Such a value
// contains no part twice.
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

// setGrowth records the growth of the variables of a term that have none yet.
func setGrowth(t *ast.Term, n float64, known map[ast.Var]float64) {
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

// termGrowth returns how often the value of a term contains the same part.
func (g growthFinder) termGrowth(t *ast.Term, known map[ast.Var]float64) float64 {
	n := 0.0
	add := func(t *ast.Term) { n += g.termGrowth(t, known) }
	switch v := t.Value.(type) {
	case ast.Var:
		return max(1, known[v])
	case ast.Ref:
		if head, ok := v[0].Value.(ast.Var); ok {
			n = known[head]
		} else {
			n = g.termGrowth(v[0], known)
		}
		for _, r := range g.compiler.GetRulesDynamicWithOpts(v, ast.RulesOptions{IncludeHiddenModules: false}) {
			n = max(n, g.ruleGrowth(r))
		}
	case ast.Call:
		return g.callGrowth(v[0].Value, v[1:], known)
	case *ast.Array:
		v.Foreach(add)
	case ast.Set:
		v.Foreach(add)
	case ast.Object:
		v.Foreach(func(k, t *ast.Term) { add(k); add(t) })
	case *ast.ArrayComprehension:
		return max(g.bodyGrowth(v.Body, known), g.termGrowth(v.Term, known))
	case *ast.SetComprehension:
		return max(g.bodyGrowth(v.Body, known), g.termGrowth(v.Term, known))
	case *ast.ObjectComprehension:
		return max(g.bodyGrowth(v.Body, known), g.termGrowth(v.Key, known)+g.termGrowth(v.Value, known))
	default:
		return 0
	}
	return max(1, n)
}
