// Package policy asks Rego whether a task may have a tool and whether a call of it may be made. It
// can remove candidates and put obligations on calls. It can never add a candidate.
//
// It decides how rules are compiled, evaluated within limits of time and size, and combined. Who
// writes them, how layers are loaded and how an approval is obtained is decided elsewhere.
//
// Policy has three layers: the boundaries (package switchboard.boundaries), the operator's (package
// switchboard) and the tenant's (package switchboard.tenant). Each is asked about all candidates of a requirement at once, and answers
// with
//
//	allowed_tools   set of candidate ids
//	deny            candidate id → set of reasons       (optional)
//	obligations     candidate id → set of obligations   (optional)
//
// A candidate remains if every layer allows it and none denies it. A candidate is denied if a layer
// cannot be evaluated in time and without an error: see Denial.
//
// Policy is a Stage of every decision, and a guard around every call, because a client can name a
// tool that was never shown to it. One answer serves both if the compiled rules prove that it
// cannot change between them (reads.go). Otherwise the guard asks again, with the arguments as they
// will be sent.
//
// docs/policies.md says how rules are written and what they can read.
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

// A Phase says when policy is asked: when a tool is let in, when it is selected or listed, or when it is called.
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
	PhaseAdmit   Phase = "admit" // see AdmitGate
)

// A Policy answers all questions about the tools of one tenant. It is immutable and safe for
// concurrent use. Without layers it allows everything.
type Policy struct {
	engine   *Engine
	share    *tenantShare // of the tenant
	tenant   *switchboard.Tenant
	id       *ast.Term // of the tenant
	layers   []layerView
	settings *ast.Term // the tenant's settings, input.tenant_policy
	reads    inputSet  // of all layers
	digest   switchboard.Digest

	arguments [][]string
	readsURI  bool
	readsCost bool
	asksLate  bool // see Layer.asksLate

	memo *answerMemo // nil: nothing is remembered
}

// A layerView is a layer as the settings of one tenant restrict it: with some settings, some rules
// can never fire.
type layerView struct {
	*Layer
	reads       inputSet
	judgesAlone bool // it judges each candidate independently of the others

	// quick says that every builtin it calls ends soon, however large its operands. So an
	// evaluation ends when it is cancelled.
	quick bool

	arguments [][]string // see Policy.Arguments
	readsURI  bool       // see Policy.ReadsURI
	readsCost bool       // see Policy.ReadsCost

	touchRules []touchRule // those that read what the run has touched
}

// NewPolicy returns the policy of a tenant, with at most one layer of each kind, in their order. A nil layer is left out.
func (e *Engine) NewPolicy(t *switchboard.Tenant, layers ...*Layer) (*Policy, error) {
	word := t.Policy
	if word == nil {
		word = []byte("{}")
	}
	v, err := ast.ValueFromReader(bytes.NewReader(word))
	if err != nil {
		return nil, fmt.Errorf("tenant %s: policy: %w", t.ID, err)
	}
	p := &Policy{engine: e, share: e.shareOf(t.ID), tenant: t, id: textTerm(t.ID), settings: ast.NewTerm(v)}
	known := knownInputs(p)
	sum := append([]byte(t.ID), t.Trust...)
	for _, l := range layers {
		if l == nil {
			continue
		}
		under := l.viewFor(known)
		p.layers = append(p.layers, under)
		p.reads |= under.reads
		p.arguments = append(p.arguments, under.arguments...)
		p.readsURI = p.readsURI || under.readsURI
		p.readsCost = p.readsCost || under.readsCost
		p.asksLate = p.asksLate || l.asksLate(known)
		sum = append(append(append(sum, 0), l.kind...), l.digest...)
	}
	sum = append(append(sum, 0), word...)
	for _, name := range t.Recipients {
		sum = append(append(sum, 0), name...)
	}
	if t.Flows != "" {
		sum = append(append(sum, 1), t.Flows...)
	}
	p.digest = canonical.Sum(sum)
	p.arguments = minimalPaths(p.arguments)
	return p, nil
}

// Digest returns the same value for policies that always answer alike.
func (p *Policy) Digest() switchboard.Digest { return p.digest }

// Lasting reports whether an answer holds as long as the candidates and the task do not change: no
// layer reads the phase, the arguments or the clock.
func (p *Policy) Lasting() bool { return p.reads == 0 }

// ReadsClock reports whether answers change with time.
func (p *Policy) ReadsClock() bool { return p.reads&(readsClock|readsAll) != 0 }

// Arguments returns the paths below a call's arguments that an answer depends on, sorted. It leaves
// out paths below another one in the list. An empty path stands for all arguments. It is also there
// if the paths cannot be determined.
func (p *Policy) Arguments() [][]string { return p.arguments }

// ReadsURI reports whether an answer depends on the URI that a call reads.
func (p *Policy) ReadsURI() bool { return p.readsURI }

// ReadsCost reports whether an answer depends on the price of a call.
func (p *Policy) ReadsCost() bool { return p.readsCost }

// minimalPaths sorts paths, and removes those below another path in the list.
func minimalPaths(paths [][]string) (out [][]string) {
	slices.SortFunc(paths, slices.Compare)
	for _, path := range paths {
		if n := len(out); n == 0 || !isPrefix(out[n-1], path) {
			out = append(out, path)
		}
	}
	return out
}

// isPrefix reports whether the value at path to is part of the value at path from.
func isPrefix(from, to []string) bool {
	return len(from) <= len(to) && slices.Equal(from, to[:len(from)])
}

// A CandidateQuestion asks policy about candidates.
type CandidateQuestion struct {
	Phase       Phase
	Principal   switchboard.Principal
	Task        *switchboard.Task
	Requirement *switchboard.Requirement
	Candidates  []*switchboard.Tool
	Now         time.Time

	// Arguments are those of the call, as they will be sent; nil if there are none. URI is the
	// resource that the call reads or subscribes to; "" if there is none.
	Arguments []byte
	URI       string

	// Cost is what the call costs; nil if it cannot be priced, or calls no tool.
	Cost *switchboard.Micros

	// Touched is what the run has touched before the call, input.run; only in the phase call.
	Touched switchboard.Touched

	// Ask is the question of the call's server to its client, in the phase ask.
	Ask *ServerQuestion

	// Approver is the person who says yes to the call, in the phase approve.
	Approver *switchboard.Officer

	terms []*ast.Term // of Candidates; nil means that they are made when needed
	frame *inputFrame // nil means that it is made when needed
}

// A ServerQuestion is one question of a server to its client: elicitation/create, sampling/createMessage or
// roots/list, with its params.
type ServerQuestion struct {
	Method string
	Params []byte
}

// concernsCall reports whether the question is about one call, and not about a selection.
func (q *CandidateQuestion) concernsCall() bool {
	return q.Phase == PhaseCall || q.Phase == PhaseApprove || q.Phase == PhaseAsk
}

// An Answer has a CandidateVerdict for each candidate of the question, in its order.
type Answer struct {
	Verdicts []CandidateVerdict

	// Unknown lists the ids in a layer's answer that were not candidates, sorted. They are ignored.
	Unknown []string
}

// A CandidateVerdict is policy's decision on one candidate.
type CandidateVerdict struct {
	// Denied says why the candidate is denied; nil means that every layer allows it.
	Denied *Denial

	// Obligations apply to each call of the candidate.
	Obligations switchboard.Obligations
}

// A Denial says why policy does not allow something. It is for the operator: callers see only the
// code.
type Denial struct {
	// Code is SB-POL-001 if a layer denies, SB-POL-002 if a layer could not be evaluated, and
	// SB-POL-003 if a layer asks for an obligation that is not known.
	Code    switchboard.Code
	Layer   LayerKind
	Reasons []string // sorted

	// ownWords says that Switchboard wrote the reason itself, so that it repeats nothing of a call's
	// arguments.
	ownWords bool

	// Veto says that a rule has denied the candidate by name. Otherwise no rule has allowed it.
	Veto bool
}

// String returns the reason in words, for the operator.
func (d *Denial) String() string {
	var b bytes.Buffer
	switch d.Layer {
	case "": // all layers together
		b.WriteString("policy ")
	case Boundaries:
		b.WriteString("the policy of boundaries ")
	default:
		fmt.Fprintf(&b, "the %s's policy ", d.Layer)
	}
	switch d.Code {
	case switchboard.CodePolicyFailed:
		b.WriteString("could not be evaluated: ")
	case switchboard.CodeObligation:
		b.WriteString("asks for what cannot be done: ")
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

// Judge asks every layer. It always answers: a candidate that cannot be judged is denied.
func (p *Policy) Judge(ctx context.Context, q *CandidateQuestion) *Answer {
	return p.judgeLayers(ctx, q, func(layerView) bool { return true })
}

// judgeLayers asks the layers that ask selects.
func (p *Policy) judgeLayers(ctx context.Context, q *CandidateQuestion, ask func(layerView) bool) *Answer {
	a := &Answer{Verdicts: make([]CandidateVerdict, len(q.Candidates))}
	if len(q.Candidates) == 0 || !slices.ContainsFunc(p.layers, ask) {
		return a
	}
	var in *ast.Term // nil: made when needed, which cannot fail then
	if p.memo == nil || q.terms == nil || q.concernsCall() {
		var err error
		if in, err = p.buildInput(q); err != nil {
			a.denyRest(p.layers[0].kind, err)
			return a
		}
	}
	for _, v := range p.layers {
		if !ask(v) {
			continue
		}
		v.quick = v.quick && q.Phase != PhaseAsk && q.Phase != PhaseApprove // see CompiledRule.inOnePhase: more rules apply in these phases
		raw, err := p.askLayer(ctx, v, in, q)
		switch {
		case err == nil:
			a.addLayer(v.Layer, raw, q.Candidates)
		case v.judgesAlone && len(q.Candidates) > 1 && !wasStopped(err):
			p.judgeOneByOne(ctx, v, q, a)
		default:
			a.denyRest(v.kind, err)
		}
	}
	slices.Sort(a.Unknown)
	a.Unknown = slices.Compact(a.Unknown)
	return a
}

// judgeOneByOne asks a layer about one candidate after another, because one of them makes the layer
// fail. It is used for layers that judge each candidate alone: a tool of one server must not remove
// the tools of others.
func (p *Policy) judgeOneByOne(ctx context.Context, v layerView, q *CandidateQuestion, a *Answer) {
	for i, c := range q.Candidates {
		one := *q
		one.Candidates, one.terms = []*switchboard.Tool{c}, nil
		if q.terms != nil {
			one.terms = q.terms[i : i+1]
		}
		sub := &Answer{Verdicts: a.Verdicts[i : i+1]}
		in, err := p.buildInput(&one)
		var raw *rawAnswer
		if err == nil {
			raw, err = p.askLayer(ctx, v, in, &one)
		}
		if wasStopped(err) { // the other candidates would fail in the same way
			(&Answer{Verdicts: a.Verdicts[i:]}).denyRest(v.kind, err)
			return
		}
		if err != nil {
			sub.denyRest(v.kind, err)
			continue
		}
		sub.addLayer(v.Layer, raw, one.Candidates)
		a.Unknown = append(a.Unknown, sub.Unknown...)
	}
}
