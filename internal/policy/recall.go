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

// A recall remembers what layers answered, for who asks the same again and again
// of other principals, tasks and instants.
type recall struct {
	parts   map[Kind][]part
	answers map[string]*raw
}

// A part is some of a layer's rules, which all look at the same. The answers of
// all parts together are the layer's.
type part struct {
	view         // a layer with a query for these rules alone
	name  string // tells it from all other parts
	looks reads
}

// Recalling returns a Policy that answers as p does, and asks each part of a layer
// once about what differs in nothing that a rule of it looks at. It is for
// replays of decisions: for one goroutine, for tools that do not change, and it
// forgets nothing but what will not be asked again.
func (p *Policy) Recalling() *Policy {
	own := *p
	own.recall = &recall{parts: map[Kind][]part{}, answers: map[string]*raw{}}
	for _, v := range p.layers {
		own.recall.parts[v.kind] = v.parts(p.word.Value)
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

// parts cuts the layer up by what its rules look at, as the tenant's word leaves
// them. What cannot be cut is one part.
func (v view) parts(word ast.Value) []part {
	whole := part{view: v, name: string(v.kind)}
	for r := range v.live(word) {
		whole.looks |= r.reads
	}
	pieces := v.pieces()
	if pieces == nil || whole.looks&readsChance != 0 {
		return []part{whole}
	}
	by := map[reads]*part{}
	queries := map[reads]ast.Body{}
	for _, r := range pieces.rules {
		answer := r.piece()
		if answer == "" {
			continue
		}
		looks, brisk := reads(0), true
		for n := range live(word, r) {
			looks |= n.reads
			brisk = brisk && n.brisk
		}
		p := by[looks]
		if p == nil {
			own := *pieces
			p = &part{view{Layer: &own, brisk: true}, fmt.Sprint(v.kind, " ", looks), looks}
			by[looks] = p
		}
		p.brisk = p.brisk && brisk
		name := ast.Var(fmt.Sprint("piece", len(p.asks)))
		p.asks = append(p.asks, asked{name, answer})
		queries[looks] = append(queries[looks], ast.MustParseExpr(fmt.Sprintf("%s = [x | x := %s[%q]]", name, v.kind.root(), r.Head.Reference[0].Value)))
	}
	var parts []part
	for _, looks := range slices.Sorted(maps.Keys(by)) {
		p := by[looks]
		var err error
		if p.query, err = p.queries.Compile(queries[looks]); err != nil {
			return []part{whole}
		}
		parts = append(parts, *p)
	}
	return parts
}

// pieceOf is the second name of a rule, which nobody could write: its number, and
// which answer it is part of.
const pieceOf = "rule %d of %s"

// piece returns of which answer a rule is a piece; "" where it is none.
func (r *rule) piece() (answer string) {
	var n int
	name, _ := r.Head.Reference[0].Value.(ast.Var)
	if _, err := fmt.Sscanf(string(name), pieceOf, &n, &answer); err != nil {
		return ""
	}
	return answer
}

// takenApart compiles files of a layer so that each rule of an answer can be asked
// alone. It returns nil where an answer is more than what its rules say each by
// itself. No rule finds another's second name: whoever asks for all that there is
// in a package asks for itself, and is no layer.
func takenApart(kind Kind, files []switchboard.PolicyFile) *Layer {
	n, apart := 0, true
	l, err := compile(kind, files, func(m *ast.Module) {
		for _, name := range answers {
			apart = apart && !m.Package.Path.HasPrefix(kind.root().Append(ast.StringTerm(name)))
		}
		if !m.Package.Path.Equal(kind.root()) {
			return
		}
		for _, r := range slices.Clone(m.Rules) {
			name, _ := r.Head.Reference[0].Value.(ast.Var)
			if !slices.Contains(answers, string(name)) {
				continue
			}
			apart = apart && r.Head.RuleKind() == ast.MultiValue
			own := r.Copy()
			own.Head.Reference[0] = ast.VarTerm(fmt.Sprintf(pieceOf, n, name))
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

// ask asks one layer, or recalls what it answered.
func (p *Policy) ask(ctx context.Context, v view, in *ast.Term, q *Question) (*raw, error) {
	if p.recall == nil {
		return p.engine.eval(ctx, p.share, v, in, q.Now)
	}
	var all *raw
	for _, part := range p.recall.parts[v.kind] {
		r, err := p.askPart(ctx, part, in, q)
		ok := err == nil
		if ok && all != nil {
			r, ok = all.join(r)
		}
		if !ok { // the layer as a whole says why
			return p.eval(ctx, v, in, q)
		}
		all = r
	}
	if all == nil { // no rule is left
		all = &raw{none, none, none}
	}
	return all, nil
}

func (p *Policy) askPart(ctx context.Context, of part, in *ast.Term, q *Question) (*raw, error) {
	lasting := of.looks&(readsClock|readsAll) == 0 // else it will hardly be asked the same again
	var key string
	if lasting {
		key = of.question(q)
		if r, ok := p.recall.answers[key]; ok {
			return r, nil
		}
	}
	r, err := p.eval(ctx, of.view, in, q)
	if err == nil && lasting {
		p.recall.answers[key] = r
	}
	return r, err
}

// eval evaluates, of an input that may have to be made yet.
func (p *Policy) eval(ctx context.Context, v view, in *ast.Term, q *Question) (*raw, error) {
	if in == nil {
		var err error
		if in, err = p.input(q); err != nil {
			return nil, err
		}
	}
	return p.engine.eval(ctx, p.share, v, in, q.Now)
}

// question is all of q that the part can look at.
func (of *part) question(q *Question) string {
	var b strings.Builder
	r, who := q.Requirement, &q.Principal
	fmt.Fprintf(&b, "%s %q %q %q %q ", of.name, r.Verb, r.Resource, r.Constraints, r.Tools)
	fmt.Fprintf(&b, "%q %q %q %q", who.Auth, who.Roles, who.Tier, mode(*who, q.Task))
	if of.looks&readsWho != 0 {
		fmt.Fprintf(&b, " id %q", who.ID)
	}
	if of.looks&readsTask != 0 {
		fmt.Fprintf(&b, " task %q", taskID(q))
	}
	if of.looks&readsPhase != 0 {
		fmt.Fprintf(&b, " phase %q", q.Phase)
	}
	if of.looks&readsCall != 0 {
		fmt.Fprintf(&b, " call %q %q", q.Phase, q.Arguments)
	}
	for _, c := range q.Candidates {
		b.WriteByte('\n')
		b.WriteString(string(c.ID.Server))
		b.WriteByte('/')
		b.WriteString(c.ID.Name)
	}
	return b.String()
}

// join puts what other rules answer to r. It cannot where they answer in another
// shape.
func (r *raw) join(more *raw) (all *raw, ok bool) {
	if !adds(r.allowed, more.allowed) && !adds(r.deny, more.deny) && !adds(r.obligations, more.obligations) {
		return r, true
	}
	all = &raw{r.allowed, r.deny, r.obligations}
	for _, a := range []struct {
		all  **ast.Term
		more *ast.Term
	}{{&all.allowed, more.allowed}, {&all.deny, more.deny}, {&all.obligations, more.obligations}} {
		switch one := only(*a.all); {
		case !adds(*a.all, a.more):
		case size(one) == 0:
			*a.all = a.more
		default:
			both := together(one, only(a.more))
			if both == nil {
				return nil, false
			}
			*a.all = ast.ArrayTerm(both)
		}
	}
	return all, true
}

// adds reports whether more says anything that one does not: an empty answer says
// no more than that there is one.
func adds(one, more *ast.Term) bool {
	said := only(more)
	return said != nil && (size(said) > 0 || only(one) == nil)
}

// size is how many elements a set or an object has; of anything else, and of
// nothing, it is 0.
func size(t *ast.Term) int {
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

// together is the union of two sets, or of two objects of what has one; nil
// where there is none.
func together(a, b *ast.Term) *ast.Term {
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
			t := together(x, y)
			return t, t == nil
		})
		if ok {
			return ast.NewTerm(both)
		}
	}
	return nil
}
