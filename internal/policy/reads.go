package policy

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// reads says what an answer can hang on that differs between questions about the
// same candidates. 0 is nothing.
type reads uint8

const (
	readsPhase reads = 1 << iota
	readsCall
	readsClock // or what is random, which is made of it
	readsAll   // input as a whole, or under other names: it could be anything

	readsWho    // the principal's id
	readsTask   // the task
	readsChance // what is random, and hangs on the order in which it is asked for

	// readsLate is what was not known when a call's tool was selected.
	readsLate = readsPhase | readsCall | readsClock | readsAll
)

// A rule is one compiled rule, or one else of it, and what it looks at.
type rule struct {
	*ast.Rule
	answer string // which of answers it adds to; "" for none
	reads  reads
	needs  []*rule // whom it asks

	// words are the paths below input.tenant_policy without which the rule
	// cannot fire: they are read before anything that could fail.
	words [][]*ast.Term

	// arguments are the paths below input.call.arguments that it reads: as far
	// as they are known, so that an empty one is all of them.
	arguments [][]string

	uri bool // it reads input.call.uri

	// candidates is how often it reads input.candidate_tools, and alone that it
	// does so once, to say something about that candidate.
	candidates int
	alone      bool

	brisk bool // see view

	// asks says that the rule cannot fire without input.ask: it has a part in no answer but one of the phase ask, for which every
	// layer is asked anew.
	asks bool
}

// analyse finds what each rule looks at. Everything that it does not understand
// counts as looking at everything.
func (l *Layer) analyse() {
	of := map[*ast.Rule]*rule{}
	for _, name := range sorted(l.compiler.Modules) {
		m := l.compiler.Modules[name]
		ast.WalkRules(m, func(r *ast.Rule) bool {
			found := look(r)
			if m.Package.Path.Equal(l.kind.root()) {
				if name, ok := r.Head.Reference[0].Value.(ast.Var); ok && slices.Contains(answers, string(name)) {
					found.answer = string(name)
				}
			}
			found.alone = found.alone && found.answer != ""
			l.rules = append(l.rules, found)
			of[r] = found
			return false
		})
	}
	for _, r := range l.rules {
		for d := range l.compiler.Graph.Dependencies(r.Rule) {
			r.needs = append(r.needs, of[d.(*ast.Rule)])
		}
	}
}

func sorted(modules map[string]*ast.Module) []string {
	names := make([]string, 0, len(modules))
	for n := range modules {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// under is the layer where the tenant's own word is this one. Rules that cannot
// fire do not count, nor what only they ask.
func (l *Layer) under(word ast.Value) view {
	v := view{Layer: l, alone: true, brisk: true}
	for r := range l.live(word) {
		v.reads |= r.reads & readsLate
		v.brisk = v.brisk && r.brisk
		v.arguments = append(v.arguments, r.arguments...)
		v.uri = v.uri || r.uri || r.reads&readsAll != 0
		if r.reads&readsAll != 0 {
			v.arguments = append(v.arguments, nil)
		}
		if r.candidates > 0 && !r.alone || r.reads&readsAll != 0 {
			v.alone = false
		}
		for _, n := range r.needs {
			if n.answer != "" { // it asks what became of other candidates
				v.alone = false
			}
		}
	}
	return v
}

// live returns the rules that can have a part in an answer.
func (l *Layer) live(word ast.Value) map[*rule]bool {
	var all []*rule
	for _, r := range l.rules {
		if r.answer != "" {
			all = append(all, r)
		}
	}
	return live(word, all...)
}

// live returns those of the rules that can fire, and whom they ask.
func live(word ast.Value, rules ...*rule) map[*rule]bool {
	found := map[*rule]bool{}
	var visit func(r *rule)
	visit = func(r *rule) {
		if found[r] || r.asks || r.dead(word) {
			return
		}
		found[r] = true
		for _, n := range r.needs {
			visit(n)
		}
	}
	for _, r := range rules {
		visit(r)
	}
	return found
}

// dead reports whether the rule needs something of the tenant's word that is not
// there.
func (r *rule) dead(word ast.Value) bool {
	return slices.ContainsFunc(r.words, func(path []*ast.Term) bool {
		v := word
		for _, key := range path {
			obj, ok := v.(ast.Object)
			if !ok {
				// What lies in an array may be there: leave it.
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

// look finds what one rule looks at.
func look(r *ast.Rule) *rule {
	found := &rule{Rule: r, brisk: true}
	call := func(op ast.Ref, operands []*ast.Term) {
		found.reads |= called(op)
		found.brisk = found.brisk && brisk(op, operands)
	}
	vars := map[ast.Var]int{}
	v := &ast.GenericVisitor{}
	visit := func(x any) bool {
		switch x := x.(type) {
		case *ast.Rule:
			return x != r // an else is a rule of its own
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
			found.reads |= ofInput(x)
			if path, ok := ofArguments(x); ok {
				found.arguments = append(found.arguments, path)
			}
			found.uri = found.uri || len(x) < 3 && ofInput(x)&(readsCall|readsAll) != 0 || len(x) > 2 && x[1].Equal(keyCall) && x[2].Equal(keyURI)
			if len(x) > 1 && x[1].Equal(keyCandidates) {
				found.candidates++
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
	found.words, found.asks = words(r.Body), needsAsk(r.Body)
	found.alone = found.candidates == 1 && judgesOne(r, vars)
	return found
}

// called says what a call of a builtin looks at.
func called(op ast.Ref) reads {
	b, ok := ast.BuiltinMap[op.String()]
	switch {
	case !ok || !b.Nondeterministic:
		return 0
	case b == ast.NowNanos:
		return readsClock
	}
	return readsClock | readsChance
}

// soon are the builtins that take time in proportion to their operands at most,
// give or take a logarithm, and that make nothing much larger of them.
var soon = map[string]bool{}

func init() {
	for name := range strings.FieldsSeq(`
		eq assign equal neq lt lte gt gte internal.member_2 internal.member_3
		plus minus mul div rem abs round ceil floor
		count sum max min sort and or intersection union
		array.concat array.reverse array.slice
		object.get object.keys object.remove object.filter object.union
		startswith endswith contains indexof lower upper substring split concat
		trim trim_left trim_right trim_prefix trim_suffix trim_space strings.reverse
		strings.any_prefix_match strings.any_suffix_match strings.count format_int
		is_array is_boolean is_null is_number is_object is_set is_string type_name to_number
		json.marshal json.unmarshal json.is_valid base64.decode base64.is_valid urlquery.decode
		net.cidr_contains net.cidr_is_valid units.parse units.parse_bytes
		time.now_ns time.parse_rfc3339_ns time.parse_duration_ns time.parse_ns
		time.clock time.date time.weekday time.add_date time.diff time.format
		rand.intn uuid.rfc4122 uuid.parse crypto.sha256
		walk`) {
		soon[name] = true
	}
}

// brisk reports whether a call of a builtin is done soon. Of other rules it is
// known by themselves.
func brisk(op ast.Ref, operands []*ast.Term) bool {
	name := op.String()
	if name == ast.Sprintf.Name { // a format can ask for any width
		_, constant := operands[0].Value.(ast.String)
		return constant
	}
	return soon[name] || op[0].Equal(ast.DefaultRootDocument)
}

// ofInput says what a path into input looks at.
func ofInput(ref ast.Ref) reads {
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
	case "task":
		return readsTask
	case "principal":
		if len(ref) < 3 || !ref[2].Equal(keyRoles) && !ref[2].Equal(keyAuth) {
			return readsWho
		}
	}
	return 0
}

var (
	keyRoles = ast.InternedTerm("roles")
	keyAuth  = ast.InternedTerm("auth")
)

// ofArguments returns which path below input.call.arguments a path into input
// leads to: as far as that is known. It may lead to none.
func ofArguments(ref ast.Ref) (path []string, ok bool) {
	switch {
	case len(ref) < 2 || !ref[1].Equal(keyCall):
		return nil, false
	case len(ref) == 2:
		return nil, true
	case !ref[2].Equal(keyArguments):
		_, other := ref[2].Value.(ast.String)
		return nil, !other
	}
	for _, t := range constant(ref[3:]) {
		path = append(path, string(t.Value.(ast.String)))
	}
	return path, true
}

// needsAsk reports whether the body cannot do without input.ask. It looks as far as words does.
func needsAsk(body ast.Body) bool {
	for _, e := range body {
		if len(e.With) > 0 || !harmless(e) {
			return false
		}
		if e.Negated {
			continue
		}
		for _, t := range operands(e) {
			if ref, ok := t.Value.(ast.Ref); ok && len(ref) > 1 && ref[0].Equal(ast.InputRootDocument) && ref[1].Equal(keyAsk) {
				return true
			}
		}
	}
	return false
}

// words returns the paths below input.tenant_policy that the body cannot do
// without. It looks no further than the first expression that could fail with an
// error, which would be a denial too.
func words(body ast.Body) (paths [][]*ast.Term) {
	for _, e := range body {
		if len(e.With) > 0 || !harmless(e) {
			break
		}
		if e.Negated {
			continue
		}
		for _, t := range operands(e) {
			ref, ok := t.Value.(ast.Ref)
			if !ok || len(ref) < 3 || !ref[0].Equal(ast.InputRootDocument) || !ref[1].Equal(keyWord) {
				continue
			}
			if path := constant(ref[2:]); len(path) > 0 {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// constant returns the beginning of a path that is no variable.
func constant(ref []*ast.Term) []*ast.Term {
	for i, t := range ref {
		if _, ok := t.Value.(ast.String); !ok {
			return ref[:i]
		}
	}
	return ref
}

// operands returns what an expression must have a value for: the term that it
// is, or both sides of an equation.
func operands(e *ast.Expr) []*ast.Term {
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

// harmless reports whether evaluating the expression cannot end in an error: it
// calls nothing, and asks no other rule.
func harmless(e *ast.Expr) bool {
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

// judgesOne reports whether a rule of an answer, which reads the candidates
// once, says what it says about the very candidate that it reads: it binds one
// element, never looks at its place, and its key is the element's id.
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
		a, b, ok := equation(e)
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
		a, b, ok := equation(e)
		is := func(t *ast.Term) bool { ref, ok := t.Value.(ast.Ref); return ok && ref.Equal(id) }
		return ok && (a.Equal(key) && is(b) || b.Equal(key) && is(a))
	})
}

func equation(e *ast.Expr) (a, b *ast.Term, ok bool) {
	t, ok := e.Terms.([]*ast.Term)
	if !ok || !e.IsEquality() || e.Negated || len(t) != 3 {
		return nil, nil, false
	}
	return t[1], t[2], true
}

var keyID = ast.InternedTerm("id")
