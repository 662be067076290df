package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An answerMemo remembers the answers of layers. It is for callers that ask the same question for
// many principals, tasks and instants.
type answerMemo struct {
	parts   map[LayerKind][]layerPart
	answers map[string]*rawAnswer
}

// A layerPart is a group of a layer's rules that depend on the same parts of the input. The answers
// of all parts together are the answer of the layer.
type layerPart struct {
	layerView        // a layer with a query for these rules alone
	name      string // unique among all parts
	dependsOn inputSet
}

// Memoized returns a Policy that answers as p does, but asks each part of a layer only once for
// all questions that are equal in everything the part reads. It is for replays of decisions: for
// one goroutine and for tools that do not change. It forgets only answers that depend on the clock.
func (p *Policy) Memoized() *Policy {
	own := *p
	own.memo = &answerMemo{parts: map[LayerKind][]layerPart{}, answers: map[string]*rawAnswer{}}
	for _, v := range p.layers {
		own.memo.parts[v.kind] = v.splitParts(knownInputs(p))
	}
	return &own
}

// ObligationsOf returns the obligations that a Recalling policy put on a candidate when it was
// selected.
func ObligationsOf(c decide.Candidate) (o switchboard.Obligations) {
	if c.Judgment == nil {
		return o
	}
	m, ok := c.Judgment.Memory.(*judgmentMemory)
	at := slices.IndexFunc(c.Judgment.Candidates, func(t *switchboard.Tool) bool { return t.ID == c.Tool.ID })
	if !ok || at < 0 {
		return o
	}
	if m.lastingObligations != nil {
		addObligations(&o, m.lastingObligations[at])
	}
	if m.otherObligations != nil {
		addObligations(&o, m.otherObligations[at])
	}
	return o
}

// splitParts divides the layer by the inputs that its rules depend on, for the settings of one
// tenant. A layer that cannot be divided is one part.
func (v layerView) splitParts(word tenantInputs) []layerPart {
	whole := layerPart{layerView: v, name: string(v.kind)}
	for r := range v.liveRules(word) {
		whole.dependsOn |= r.reads
	}
	pieces := v.pieces()
	if pieces == nil || whole.dependsOn&readsChance != 0 {
		return []layerPart{whole}
	}
	by := map[inputSet]*layerPart{}
	queries := map[inputSet]ast.Body{}
	for _, r := range pieces.rules {
		answer := r.pieceAnswer()
		if answer == "" {
			continue
		}
		looks, brisk := inputSet(0), true
		for n := range liveRules(word, r) {
			looks |= n.reads
			brisk = brisk && n.quick
		}
		p := by[looks]
		if p == nil {
			own := *pieces
			p = &layerPart{layerView{Layer: &own, quick: true}, fmt.Sprint(v.kind, " ", looks), looks}
			by[looks] = p
		}
		p.quick = p.quick && brisk
		name := ast.Var(fmt.Sprint("piece", len(p.variables)))
		p.variables = append(p.variables, answerVariable{name, answer})
		queries[looks] = append(queries[looks], mustParseBody(fmt.Sprintf("%s = [x | x := %s[%q]]", name, v.kind.rootRef(), r.Head.Reference[0].Value))[0])
	}
	var parts []layerPart
	for _, looks := range slices.Sorted(maps.Keys(by)) {
		p := by[looks]
		var err error
		if p.query, err = p.queries.Compile(queries[looks]); err != nil {
			return []layerPart{whole}
		}
		parts = append(parts, *p)
	}
	return parts
}

// pieceName is the format of a second name for a rule, which no author can write: its number, and
// the answer it belongs to.
const pieceName = "rule %d of %s"

// pieceAnswer returns the answer that a rule with a second name belongs to; "" for other rules.
func (r *CompiledRule) pieceAnswer() (answer string) {
	var n int
	name, _ := r.Head.Reference[0].Value.(ast.Var)
	if _, err := fmt.Sscanf(string(name), pieceName, &n, &answer); err != nil {
		return ""
	}
	return answer
}

// compileApart compiles the files of a layer so that each rule of an answer can be asked alone. It
// returns nil if an answer is not simply the union of its rules. The second names are invisible to
// other rules: a rule that reads a whole package would read itself, which does not compile.
func compileApart(kind LayerKind, files []switchboard.PolicyFile) *Layer {
	n, apart := 0, true
	l, err := compileModules(kind, files, func(m *ast.Module) {
		for _, name := range AnswerNames {
			apart = apart && !m.Package.Path.HasPrefix(kind.rootRef().Append(ast.StringTerm(name)))
		}
		if !m.Package.Path.Equal(kind.rootRef()) {
			return
		}
		for _, r := range slices.Clone(m.Rules) {
			name, _ := r.Head.Reference[0].Value.(ast.Var)
			if !slices.Contains(AnswerNames, string(name)) {
				continue
			}
			apart = apart && r.Head.RuleKind() == ast.MultiValue
			own := r.Copy()
			own.Head.Reference[0] = ast.VarTerm(fmt.Sprintf(pieceName, n, name))
			if own.Head.Name != "" {
				own.Head.Name = own.Head.Reference[0].Value.(ast.Var)
			}
			m.Rules = append(m.Rules, own)
			n++
		}
	})
	if err != nil || !apart {
		return nil
	}
	return l
}

// askLayer asks one layer, or recalls its answer.
func (p *Policy) askLayer(ctx context.Context, v layerView, in *ast.Term, q *CandidateQuestion) (*rawAnswer, error) {
	if p.memo == nil {
		return p.engine.eval(ctx, p.share, v, in, q.Now)
	}
	var all *rawAnswer
	for _, part := range p.memo.parts[v.kind] {
		r, err := p.askPart(ctx, part, in, q)
		ok := err == nil
		if ok && all != nil {
			r, ok = all.joinAnswers(r)
		}
		if !ok { // asking the whole layer reports the reason
			return p.evalLayer(ctx, v, in, q)
		}
		all = r
	}
	if all == nil { // no rule is left
		all = &rawAnswer{undefinedAnswer, undefinedAnswer, undefinedAnswer}
	}
	return all, nil
}

func (p *Policy) askPart(ctx context.Context, of layerPart, in *ast.Term, q *CandidateQuestion) (*rawAnswer, error) {
	lasting := of.dependsOn&(readsClock|readsAll) == 0 // otherwise the same question is unlikely to come again
	var key string
	if lasting {
		key = of.memoKey(q)
		if r, ok := p.memo.answers[key]; ok {
			return r, nil
		}
	}
	r, err := p.evalLayer(ctx, of.layerView, in, q)
	if err == nil && lasting {
		p.memo.answers[key] = r
	}
	return r, err
}

// evalLayer evaluates a layer. It builds the input if in is nil.
func (p *Policy) evalLayer(ctx context.Context, v layerView, in *ast.Term, q *CandidateQuestion) (*rawAnswer, error) {
	if in == nil {
		var err error
		if in, err = p.buildInput(q); err != nil {
			return nil, err
		}
	}
	return p.engine.eval(ctx, p.share, v, in, q.Now)
}

// memoKey returns a key of everything in q that the part can read.
func (of *layerPart) memoKey(q *CandidateQuestion) string {
	var b strings.Builder
	r, who := q.Requirement, &q.Principal
	fmt.Fprintf(&b, "%s %q %q %q %q %q ", of.name, r.Verb, r.Resource, r.Constraints, r.Tools, r.Capability)
	fmt.Fprintf(&b, "%q %q %q %q", who.Auth, who.Roles, who.Tier, effectiveMode(*who, q.Task))
	if of.dependsOn&readsWho != 0 {
		fmt.Fprintf(&b, " id %q", who.ID)
	}
	if of.dependsOn&readsTask != 0 {
		fmt.Fprintf(&b, " task %q", taskID(q))
	}
	if of.dependsOn&readsPhase != 0 {
		fmt.Fprintf(&b, " phase %q", q.Phase)
	}
	if of.dependsOn&readsCall != 0 {
		fmt.Fprintf(&b, " call %q %q", q.Phase, q.Arguments)
		if q.Cost != nil {
			fmt.Fprintf(&b, " cost %d", int64(*q.Cost))
		}
	}
	if of.dependsOn&readsTouched != 0 {
		fmt.Fprintf(&b, " touched %t %d", q.Touched.Known, q.Touched.Bits)
	}
	for _, c := range q.Candidates {
		b.WriteByte('\n')
		key := c.Key()
		b.WriteString(string(key.Server))
		b.WriteByte('/')
		b.WriteString(key.Name)
	}
	return b.String()
}

// joinAnswers combines the answers of different rules. It fails if they have different shapes.
func (r *rawAnswer) joinAnswers(more *rawAnswer) (all *rawAnswer, ok bool) {
	if !addsTo(r.allowed, more.allowed) && !addsTo(r.deny, more.deny) && !addsTo(r.obligations, more.obligations) {
		return r, true
	}
	all = &rawAnswer{r.allowed, r.deny, r.obligations}
	for _, a := range []struct {
		all  **ast.Term
		more *ast.Term
	}{{&all.allowed, more.allowed}, {&all.deny, more.deny}, {&all.obligations, more.obligations}} {
		switch one := soleElement(*a.all); {
		case !addsTo(*a.all, a.more):
		case elementCount(one) == 0:
			*a.all = a.more
		default:
			both := unionTerms(one, soleElement(a.more))
			if both == nil {
				return nil, false
			}
			*a.all = ast.ArrayTerm(both)
		}
	}
	return all, true
}

// addsTo reports whether more contains anything that one does not. An empty answer only adds that
// there is an answer.
func addsTo(one, more *ast.Term) bool {
	said := soleElement(more)
	return said != nil && (elementCount(said) > 0 || soleElement(one) == nil)
}

// elementCount returns the number of elements of a set or an object; 0 for anything else and for
// nil.
func elementCount(t *ast.Term) int {
	if t == nil {
		return 0
	}
	switch v := t.Value.(type) {
	case ast.Set:
		return v.Len()
	case ast.Object:
		return v.Len()
	}
	return 0
}

// unionTerms returns the union of two sets, or of two objects of sets; nil for anything else.
func unionTerms(a, b *ast.Term) *ast.Term {
	switch one := a.Value.(type) {
	case ast.Set:
		if two, ok := b.Value.(ast.Set); ok {
			return ast.NewTerm(one.Union(two))
		}
	case ast.Object:
		two, ok := b.Value.(ast.Object)
		if !ok {
			return nil
		}
		both, ok := one.MergeWith(two, func(x, y *ast.Term) (*ast.Term, bool) {
			t := unionTerms(x, y)
			return t, t == nil
		})
		if ok {
			return ast.NewTerm(both)
		}
	}
	return nil
}
