package policy

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/policy/cost"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// inputSet says which varying inputs an answer depends on: inputs that differ between questions
// about the same candidates. 0 means none.
type inputSet uint8

const (
	readsPhase inputSet = 1 << iota
	readsCall
	readsClock // or random values, which depend on the clock
	readsAll   // input as a whole, or in an unknown way: it could be anything

	readsWho    // the principal's id
	readsTask   // the task
	readsChance // random values, which depend on the order of their use

	// readsTouched is what the run has touched. It is known at a call only, and has four values, so it is no part of readsLate:
	// see touched.go.
	readsTouched

	// readsLate are the inputs that are not known when a tool is selected.
	readsLate = readsPhase | readsCall | readsClock | readsAll
)

// A CompiledRule is one compiled rule, or one else branch, with its dependencies.
type CompiledRule struct {
	*ast.Rule
	Answer       string // the answer that it adds to; "" if none
	KeepsOut     bool   // it adds to AnswerKeepOut, which is asked apart from the answers
	reads        inputSet
	Dependencies []*CompiledRule // the rules that it refers to

	// neededSettings are the paths below input.tenant_policy that must exist for the rule to fire.
	// The rule reads them before anything that could fail.
	neededSettings [][]*ast.Term

	// needs are the other values that the rule needs to fire.
	needs ruleNeeds

	// arguments are the paths below input.call.arguments that it reads, as far as they are known.
	// An empty path means all of them.
	arguments [][]string

	readsURI  bool // it reads input.call.uri
	readsCost bool // it reads input.call.cost

	// candidateReads counts its reads of input.candidate_tools. judgesAlone says that there is one
	// read, and that the rule decides about the candidate it reads.
	candidateReads int
	judgesAlone    bool

	quick bool // see view

	// inOnePhase says that the rule cannot fire without input.ask, or without input.approver. So it
	// matters in the phase ask or approve alone, and in these phases every layer is asked again.
	inOnePhase bool
}

// analyseRules finds the dependencies of each rule. A construct that it does not understand counts
// as a dependency on everything.
func (l *Layer) analyseRules() {
	of := map[*ast.Rule]*CompiledRule{}
	for _, name := range slices.Sorted(maps.Keys(l.compiler.Modules)) {
		m := l.compiler.Modules[name]
		ast.WalkRules(m, func(r *ast.Rule) bool {
			found := analyseRule(r)
			if m.Package.Path.Equal(l.kind.rootRef()) {
				if name, ok := r.Head.Reference[0].Value.(ast.Var); ok && slices.Contains(AnswerNames, string(name)) {
					found.Answer = string(name)
				}
				found.KeepsOut = l.kind == Operator && r.Head.Reference[0].Value.Compare(ast.Var(AnswerKeepOut)) == 0
			}
			found.judgesAlone = found.judgesAlone && (found.Answer != "" || found.KeepsOut)
			l.rules = append(l.rules, found)
			of[r] = found
			return false
		})
	}
	for _, r := range l.rules {
		for d := range l.compiler.Graph.Dependencies(r.Rule) {
			r.Dependencies = append(r.Dependencies, of[d.(*ast.Rule)])
		}
	}
}

// DisplayName returns the rule's name, as the files of its layer write it.
func (r *CompiledRule) DisplayName() string {
	if r.Answer != "" {
		return r.Answer
	}
	if r.KeepsOut {
		return AnswerKeepOut
	}
	return r.Head.Ref().GroundPrefix().String()
}

// ReadsCall reports whether the rule may depend on the arguments of a call.
func (r *CompiledRule) ReadsCall() bool { return r.reads&(readsCall|readsAll) != 0 }

// Unreached returns the rules that no answer depends on, for example a veto with a mistyped name.
func (l *Layer) Unreached() (out []*CompiledRule) {
	reached := map[*CompiledRule]bool{}
	var visit func(r *CompiledRule)
	visit = func(r *CompiledRule) {
		if !reached[r] {
			reached[r] = true
			for _, n := range r.Dependencies {
				visit(n)
			}
		}
	}
	for _, r := range l.rules {
		if r.Answer != "" || r.KeepsOut {
			visit(r)
		}
	}
	for _, r := range l.rules {
		if !reached[r] {
			out = append(out, r)
		}
	}
	return out
}

// tenantInputs are the parts of the input that are equal in all questions of a tenant.
type tenantInputs struct {
	settings ast.Value // input.tenant_policy
	flows    switchboard.Flows
}

// viewFor returns the layer for a tenant with these inputs. It ignores rules that cannot fire
// with them, and rules that only those refer to.
func (l *Layer) viewFor(word tenantInputs) layerView {
	v := layerView{Layer: l, judgesAlone: true, quick: true, touchRules: l.touchRules(word)}
	for r := range l.liveRules(word) {
		v.reads |= r.reads & readsLate
		v.quick = v.quick && r.quick
		v.arguments = append(v.arguments, r.arguments...)
		v.readsURI = v.readsURI || r.readsURI || r.reads&readsAll != 0
		v.readsCost = v.readsCost || r.readsCost || r.reads&readsAll != 0
		if r.reads&readsAll != 0 {
			v.arguments = append(v.arguments, nil)
		}
		if r.candidateReads > 0 && !r.judgesAlone || r.reads&readsAll != 0 {
			v.judgesAlone = false
		}
		for _, n := range r.Dependencies {
			if n.Answer != "" { // it depends on the answer about other candidates
				v.judgesAlone = false
			}
		}
	}
	return v
}

// liveRules returns the rules that can contribute to an answer.
func (l *Layer) liveRules(word tenantInputs) map[*CompiledRule]bool {
	var all []*CompiledRule
	for _, r := range l.rules {
		if r.Answer != "" {
			all = append(all, r)
		}
	}
	return liveRules(word, all...)
}

// liveRules returns the given rules that can fire, and the rules they refer to.
func liveRules(word tenantInputs, rules ...*CompiledRule) map[*CompiledRule]bool {
	found := map[*CompiledRule]bool{}
	var visit func(r *CompiledRule)
	visit = func(r *CompiledRule) {
		if found[r] || r.inOnePhase || r.cannotFire(word) {
			return
		}
		found[r] = true
		for _, n := range r.Dependencies {
			visit(n)
		}
	}
	for _, r := range rules {
		visit(r)
	}
	return found
}

// cannotFire reports whether the rule needs a setting that the tenant does not have.
func (r *CompiledRule) cannotFire(word tenantInputs) bool {
	return r.needs.flows != "" && r.needs.flows != word.flows.OrDefault() || slices.ContainsFunc(r.neededSettings, func(path []*ast.Term) bool {
		v := word.settings
		for _, key := range path {
			obj, ok := v.(ast.Object)
			if !ok {
				// An array may contain the setting: count the rule.
				_, list := v.(*ast.Array)
				return !list
			}
			t := obj.Get(key)
			if t == nil {
				return true
			}
			v = t.Value
		}
		return false
	})
}

// analyseRule finds the dependencies of one rule.
func analyseRule(r *ast.Rule) *CompiledRule {
	found := &CompiledRule{Rule: r, quick: true}
	call := func(op ast.Ref, operands []*ast.Term) {
		found.reads |= builtinReads(op)
		found.quick = found.quick && cost.IsQuick(op, operands)
	}
	vars := map[ast.Var]int{}
	v := &ast.GenericVisitor{}
	visit := func(x any) bool {
		switch x := x.(type) {
		case *ast.Rule:
			return x != r // an else branch is a rule of its own
		case *ast.Expr:
			if len(x.With) > 0 {
				found.reads |= readsAll
			}
			if x.IsCall() {
				call(x.Operator(), x.Operands())
			}
		case ast.Call:
			if op, ok := x[0].Value.(ast.Ref); ok {
				call(op, x[1:])
			}
		case ast.Var:
			vars[x]++
			if x.Equal(ast.InputRootDocument.Value) {
				found.reads |= readsAll
			}
		case ast.Ref:
			if !x[0].Equal(ast.InputRootDocument) {
				return false
			}
			found.reads |= inputReads(x)
			if path, ok := argumentPath(x); ok {
				found.arguments = append(found.arguments, path)
			}
			found.readsURI = found.readsURI || readsMember(x, keyURI)
			found.readsCost = found.readsCost || readsMember(x, keyCost)
			if len(x) > 1 && x[1].Equal(keyCandidates) {
				found.candidateReads++
			}
			for _, t := range x[1:] {
				v.Walk(t)
			}
			return true
		}
		return false
	}
	*v = *ast.NewGenericVisitor(visit)
	v.Walk(r.Head)
	v.Walk(r.Body)
	found.neededSettings, found.inOnePhase = requiredSettings(r.Body), requiresOnePhase(r.Body)
	found.judgesAlone = found.candidateReads == 1 && judgesOne(r, vars)
	found.needs = needsOf(r.Body)
	return found
}

// builtinReads returns what a call of a builtin depends on.
func builtinReads(op ast.Ref) inputSet {
	b, ok := ast.BuiltinMap[op.String()]
	switch {
	case !ok || !b.Nondeterministic:
		return 0
	case b == ast.NowNanos:
		return readsClock
	}
	return readsClock | readsChance
}

// inputReads returns what a path into input depends on.
func inputReads(ref ast.Ref) inputSet {
	if len(ref) < 2 {
		return readsAll
	}
	name, ok := ref[1].Value.(ast.String)
	if !ok {
		return readsAll
	}
	switch name {
	case "phase":
		return readsPhase
	case "call":
		return readsCall
	case "now":
		return readsClock
	case "run":
		return readsTouched
	case "task":
		return readsTask
	case "principal":
		if len(ref) < 3 || !ref[2].Equal(keyRoles) && !ref[2].Equal(keyAuth) {
			return readsWho
		}
	}
	return 0
}

// readsMember reports whether a reference into input may read that member of input.call.
func readsMember(ref ast.Ref, member *ast.Term) bool {
	if inputReads(ref)&(readsCall|readsAll) == 0 {
		return false
	}
	if len(ref) < 3 || inputReads(ref)&readsAll != 0 {
		return true
	}
	_, constant := ref[2].Value.(ast.String)
	return !constant || ref[2].Equal(member)
}

// ReadsCall reports whether a reference into input may read the call.
func ReadsCall(ref ast.Ref) bool { return inputReads(ref)&(readsCall|readsAll) != 0 }

var (
	keyRoles = ast.InternedTerm("roles")
	keyAuth  = ast.InternedTerm("auth")
)

// argumentPath returns the part of a path into input that is below input.call.arguments, as far as
// it is constant. ok is false if the path does not read arguments.
func argumentPath(ref ast.Ref) (path []string, ok bool) {
	switch {
	case len(ref) < 2 || !ref[1].Equal(keyCall):
		return nil, false
	case len(ref) == 2:
		return nil, true
	case !ref[2].Equal(keyArguments):
		_, other := ref[2].Value.(ast.String)
		return nil, !other
	}
	for _, t := range constantPrefix(ref[3:]) {
		path = append(path, string(t.Value.(ast.String)))
	}
	return path, true
}

// requiresOnePhase reports whether the body needs input.ask or input.approver. It looks at the same expressions as words
// does.
func requiresOnePhase(body ast.Body) bool {
	for _, e := range body {
		if len(e.With) > 0 || !cannotFail(e) {
			return false
		}
		if e.Negated {
			continue
		}
		for _, t := range requiredTerms(e) {
			if ref, ok := t.Value.(ast.Ref); ok && len(ref) > 1 && ref[0].Equal(ast.InputRootDocument) && (ref[1].Equal(keyAsk) || ref[1].Equal(keyApprover)) {
				return true
			}
		}
	}
	return false
}

// requiredSettings returns the paths below input.tenant_policy that the body needs. It stops at the
// first expression that could fail with an error, because an error is a denial too.
func requiredSettings(body ast.Body) (paths [][]*ast.Term) {
	for _, e := range body {
		if len(e.With) > 0 || !cannotFail(e) {
			break
		}
		if e.Negated {
			continue
		}
		for _, t := range requiredTerms(e) {
			ref, ok := t.Value.(ast.Ref)
			if !ok || len(ref) < 3 || !ref[0].Equal(ast.InputRootDocument) || !ref[1].Equal(keySettings) {
				continue
			}
			if path := constantPrefix(ref[2:]); len(path) > 0 {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// constantPrefix returns the beginning of a path, up to its first variable.
func constantPrefix(ref []*ast.Term) []*ast.Term {
	for i, t := range ref {
		if _, ok := t.Value.(ast.String); !ok {
			return ref[:i]
		}
	}
	return ref
}

// requiredTerms returns the terms that must have a value for the expression to hold: the term
// itself, or both sides of an equation.
func requiredTerms(e *ast.Expr) []*ast.Term {
	switch t := e.Terms.(type) {
	case *ast.Term:
		return []*ast.Term{t}
	case []*ast.Term:
		if e.IsEquality() {
			return t[1:]
		}
	}
	return nil
}

// cannotFail reports whether the expression cannot fail with an error: it calls nothing, and refers
// to no other rule.
func cannotFail(e *ast.Expr) bool {
	switch e.Terms.(type) {
	case *ast.Every:
		return false
	}
	ok := e.IsEquality() || !e.IsCall()
	ast.WalkNodes(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Expr:
			if n != e && n.IsCall() && !n.IsEquality() {
				ok = false
			}
		case *ast.Term:
			switch x := n.Value.(type) {
			case ast.Call:
				ok = false
			case ast.Ref:
				if x[0].Equal(ast.DefaultRootDocument) {
					ok = false
				}
			}
		}
		return false
	})
	return ok
}

// judgesOne reports whether a rule of an answer, which reads the candidates once, decides only
// about the candidate it reads: it binds one element, does not use its index, and its key is the id
// of the element.
func judgesOne(r *ast.Rule, vars map[ast.Var]int) bool {
	key := r.Head.Key
	if len(r.Head.Reference) > 1 {
		key = r.Head.Reference[1]
	}
	if key == nil || len(r.Head.Reference) > 2 || r.Else != nil {
		return false
	}
	var one *ast.Term // the candidate
	for _, e := range r.Body {
		a, b, ok := EquationSides(e)
		if !ok {
			continue
		}
		for _, side := range [][2]*ast.Term{{a, b}, {b, a}} {
			ref, ok := side[1].Value.(ast.Ref)
			if !ok || len(ref) < 3 || !ref[0].Equal(ast.InputRootDocument) || !ref[1].Equal(keyCandidates) {
				continue
			}
			place, ok := ref[2].Value.(ast.Var)
			if !ok || vars[place] != 1 {
				return false
			}
			if len(ref) == 4 && ref[3].Equal(keyID) {
				return side[0].Equal(key)
			}
			if _, ok := side[0].Value.(ast.Var); !ok || len(ref) != 3 {
				return false
			}
			one = side[0]
		}
	}
	if one == nil {
		return false
	}
	id := ast.Ref{one, keyID}
	return slices.ContainsFunc(r.Body, func(e *ast.Expr) bool {
		a, b, ok := EquationSides(e)
		is := func(t *ast.Term) bool { ref, ok := t.Value.(ast.Ref); return ok && ref.Equal(id) }
		return ok && (a.Equal(key) && is(b) || b.Equal(key) && is(a))
	})
}

// EquationSides returns both sides of an equation or assignment that is not negated.
func EquationSides(e *ast.Expr) (a, b *ast.Term, ok bool) {
	t, ok := e.Terms.([]*ast.Term)
	if !ok || !e.IsEquality() || e.Negated || len(t) != 3 {
		return nil, nil, false
	}
	return t[1], t[2], true
}

var keyID = ast.InternedTerm("id")
