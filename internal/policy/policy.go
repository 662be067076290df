// Package policy asks Rego whether a task may have a tool and whether a call of
// it may be made. It can take tools away and ask something of their calls, and
// can never add any.
//
// Policy has two layers: the operator's (package switchboard) and the tenant's
// (package switchboard.tenant). Each is asked about all candidates of a
// requirement at once, and answers with
//
//	allowed_tools   set of candidate ids
//	deny            candidate id → set of reasons       (optional)
//	obligations     candidate id → set of obligations   (optional)
//
// What every layer allows, and none denies, is left. Whatever cannot be
// evaluated, in time and without an error, is denied: see Denial.
//
// Policy stands in both shapes of the house: as a Stage of every decision, and
// as a guard around every call, since what is not shown can still be named. One
// answer serves both where that is provable from the compiled rules (reads.go);
// else the guard asks again, with the arguments as they will be sent.
//
// What rules are written with, and what they can read, is in docs/policies.md.
package policy

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Phase is what policy is asked for.
type Phase string

// The phases.
const (
	PhaseSelect  Phase = "select"
	PhaseList    Phase = "list"
	PhaseSearch  Phase = "search"
	PhaseExpand  Phase = "expand"
	PhaseCall    Phase = "call"
	PhaseApprove Phase = "approve"
	PhaseAsk     Phase = "ask"
)

// A Policy is all that is asked about one tenant's tools. It is immutable and
// safe for concurrent use. Without layers it allows everything.
type Policy struct {
	engine *Engine
	share  *share // the tenant's
	tenant *switchboard.Tenant
	id     *ast.Term // of the tenant
	layers []view
	word   *ast.Term // the tenant's own, input.tenant_policy
	reads  reads     // of all layers
	digest switchboard.Digest

	arguments [][]string
	uri       bool

	recall *recall // nil: nothing is remembered
}

// A view is a layer as one tenant's own word leaves it: some of its rules can
// never fire.
type view struct {
	*Layer
	reads reads
	alone bool // it judges each candidate by itself

	// brisk says that every builtin that is called is done soon, however large
	// its operands, so that an evaluation ends where it is cancelled.
	brisk bool

	arguments [][]string // see Policy.Arguments
	uri       bool       // see Policy.ReadsURI
}

// New returns the policy of a tenant. A layer that is nil is none.
func (e *Engine) New(t *switchboard.Tenant, operator, tenant *Layer) (*Policy, error) {
	word := t.Policy
	if word == nil {
		word = []byte("{}")
	}
	v, err := ast.ValueFromReader(bytes.NewReader(word))
	if err != nil {
		return nil, fmt.Errorf("tenant %s: policy: %w", t.ID, err)
	}
	p := &Policy{engine: e, share: e.share(t.ID), tenant: t, id: text(t.ID), word: ast.NewTerm(v)}
	sum := append([]byte(t.ID), t.Trust...)
	for _, l := range []*Layer{operator, tenant} {
		if l == nil {
			continue
		}
		under := l.under(v)
		p.layers = append(p.layers, under)
		p.reads |= under.reads
		p.arguments = append(p.arguments, under.arguments...)
		p.uri = p.uri || under.uri
		sum = append(append(append(sum, 0), l.kind...), l.digest...)
	}
	p.digest = canonical.Sum(append(append(sum, 0), word...))
	p.arguments = shortest(p.arguments)
	return p, nil
}

// Digest tells policies apart that could answer differently.
func (p *Policy) Digest() switchboard.Digest { return p.digest }

// Lasting reports whether an answer holds for as long as what was decided about
// does not change: no layer looks at the phase, the arguments or the clock.
func (p *Policy) Lasting() bool { return p.reads == 0 }

// ReadsClock reports whether answers change with time.
func (p *Policy) ReadsClock() bool { return p.reads&(readsClock|readsAll) != 0 }

// Arguments returns the paths below a call's arguments at which an answer looks,
// sorted, and none that another leads to. An empty one stands for all arguments,
// also where it cannot be told which are looked at.
func (p *Policy) Arguments() [][]string { return p.arguments }

// ReadsURI reports whether an answer looks at the URI that a call reads.
func (p *Policy) ReadsURI() bool { return p.uri }

// shortest sorts paths, and leaves out those to which others lead.
func shortest(paths [][]string) (out [][]string) {
	slices.SortFunc(paths, slices.Compare)
	for _, path := range paths {
		if n := len(out); n == 0 || !leads(out[n-1], path) {
			out = append(out, path)
		}
	}
	return out
}

// leads reports whether what stands at to is part of what stands at from.
func leads(from, to []string) bool { return len(from) <= len(to) && slices.Equal(from, to[:len(from)]) }

// A Question is what is asked about candidates.
type Question struct {
	Phase       Phase
	Principal   switchboard.Principal
	Task        *switchboard.Task
	Requirement *switchboard.Requirement
	Candidates  []*switchboard.Tool
	Now         time.Time

	// Arguments are those of the call, as they will be sent; nil where there
	// are none. URI is what it reads or subscribes to; "" where it names none.
	Arguments []byte
	URI       string

	// Ask is what the server of the call asks its client, in the phase ask.
	Ask *Ask

	terms []*ast.Term // of Candidates; nil means that they have not been made
	frame *frame      // the same
}

// An Ask is one question of a server's: elicitation/create, sampling/createMessage or roots/list, with its params.
type Ask struct {
	Method string
	Params []byte
}

// late reports whether the question is about one call, and not about what can be selected.
func (q *Question) late() bool {
	return q.Phase == PhaseCall || q.Phase == PhaseApprove || q.Phase == PhaseAsk
}

// An Answer has a Verdict for each candidate of the question, in its order.
type Answer struct {
	Verdicts []Verdict

	// Unknown are ids that a layer named and that were no candidates, sorted.
	// They are ignored.
	Unknown []string
}

// A Verdict is policy's word on one candidate.
type Verdict struct {
	// Denied says why not; nil means that every layer allows it.
	Denied *Denial

	// Obligations are what a call of it has to keep to.
	Obligations switchboard.Obligations
}

// A Denial says why policy does not allow something. It is for the operator:
// callers learn no more than the code.
type Denial struct {
	// Code is SB-POL-001 where a layer says no, SB-POL-002 where it could not
	// be evaluated, and SB-POL-003 where it asks for what cannot be done.
	Code    switchboard.Code
	Layer   Kind
	Reasons []string // sorted

	// own says that the reason is in Switchboard's own words, and so repeats nothing of a call's arguments.
	own bool

	// Veto says that a rule has named the candidate to deny it. Else none has allowed it.
	Veto bool
}

// String gives the reason in words, for the operator.
func (d *Denial) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "the %s's policy ", d.Layer)
	switch d.Code {
	case switchboard.CodePolicyFailed:
		b.WriteString("could not be evaluated: ")
	case switchboard.CodeObligation:
		b.WriteString("asks for what is not known: ")
	default:
		b.WriteString("denies it: ")
	}
	for i, r := range d.Reasons {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(r)
	}
	return b.String()
}

// Judge asks every layer. It always answers: what cannot be told is denied.
func (p *Policy) Judge(ctx context.Context, q *Question) *Answer {
	return p.judge(ctx, q, func(view) bool { return true })
}

// judge asks the layers that ask says.
func (p *Policy) judge(ctx context.Context, q *Question, ask func(view) bool) *Answer {
	a := &Answer{Verdicts: make([]Verdict, len(q.Candidates))}
	if len(q.Candidates) == 0 || !slices.ContainsFunc(p.layers, ask) {
		return a
	}
	var in *ast.Term // nil: made where it is needed, which cannot fail then
	if p.recall == nil || q.terms == nil || q.late() {
		var err error
		if in, err = p.input(q); err != nil {
			a.fail(p.layers[0].kind, err)
			return a
		}
	}
	for _, v := range p.layers {
		if !ask(v) {
			continue
		}
		v.brisk = v.brisk && q.Phase != PhaseAsk // which more rules answer: see rule.asks
		raw, err := p.ask(ctx, v, in, q)
		switch {
		case err == nil:
			a.add(v.Layer, raw, q.Candidates)
		case v.alone && len(q.Candidates) > 1 && !stopped(err):
			p.each(ctx, v, q, a)
		default:
			a.fail(v.kind, err)
		}
	}
	slices.Sort(a.Unknown)
	a.Unknown = slices.Compact(a.Unknown)
	return a
}

// each asks a layer that judges each candidate alone about one after the other,
// since one of them makes it fail: what one server offers must not take away
// what others do.
func (p *Policy) each(ctx context.Context, v view, q *Question, a *Answer) {
	for i, c := range q.Candidates {
		one := *q
		one.Candidates, one.terms = []*switchboard.Tool{c}, nil
		if q.terms != nil {
			one.terms = q.terms[i : i+1]
		}
		sub := &Answer{Verdicts: a.Verdicts[i : i+1]}
		in, err := p.input(&one)
		var raw *raw
		if err == nil {
			raw, err = p.ask(ctx, v, in, &one)
		}
		if stopped(err) { // so would the others be
			(&Answer{Verdicts: a.Verdicts[i:]}).fail(v.kind, err)
			return
		}
		if err != nil {
			sub.fail(v.kind, err)
			continue
		}
		sub.add(v.Layer, raw, one.Candidates)
		a.Unknown = append(a.Unknown, sub.Unknown...)
	}
}
