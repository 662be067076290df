package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxArguments is how long the arguments of a call may be, in bytes, that a
// policy judges. Longer ones are denied.
const MaxArguments = 1 << 20

// The keys of input.
var (
	keyPhase       = ast.InternedTerm("phase")
	keyNow         = ast.InternedTerm("now")
	keyTenant      = ast.InternedTerm("tenant_id")
	keyWord        = ast.InternedTerm("tenant_policy")
	keyTier        = ast.InternedTerm("user_tier")
	keyMode        = ast.InternedTerm("mode")
	keyLeastTrust  = ast.InternedTerm("least_trust")
	keyPrincipal   = ast.InternedTerm("principal")
	keyTask        = ast.InternedTerm("task")
	keyRequirement = ast.InternedTerm("requirement")
	keyCandidates  = ast.InternedTerm("candidate_tools")
	keyCall        = ast.InternedTerm("call")
	keyArguments   = ast.InternedTerm("arguments")
	keyURI         = ast.InternedTerm("uri")
	keyAsk         = ast.InternedTerm("ask")
)

// mode is how much an agent of the principal may do alone in the task.
func mode(p switchboard.Principal, t *switchboard.Task) switchboard.Mode {
	m := p.Mode.Narrower(switchboard.Autopilot)
	if t != nil && t.Mode != "" {
		m = m.Narrower(t.Mode)
	}
	return m
}

// A frame is what is the same in all questions about a requirement of a
// principal's task.
type frame struct{ tier, mode, principal, task, requirement *ast.Term }

func newFrame(q *Question) *frame {
	return &frame{
		tier:        text(q.Principal.Tier),
		mode:        text(mode(q.Principal, q.Task)),
		principal:   object("id", text(q.Principal.ID), "roles", texts(q.Principal.Roles), "auth", text(q.Principal.Auth)),
		task:        object("task_id", text(taskID(q))),
		requirement: requirement(q.Requirement),
	}
}

func taskID(q *Question) switchboard.TaskID {
	if q.Task == nil {
		return ""
	}
	return q.Task.ID
}

// input makes what a layer reads as input. What it reads as a candidate has been
// made before, where q has it.
func (p *Policy) input(q *Question) (*ast.Term, error) {
	terms := q.terms
	if terms == nil {
		terms = make([]*ast.Term, len(q.Candidates))
		for i, c := range q.Candidates {
			t, err := candidate(c)
			if err != nil {
				return nil, fmt.Errorf("tool %s: %w", c.ID, err)
			}
			terms[i] = t
		}
	}
	f := q.frame
	if f == nil {
		f = newFrame(q)
	}
	o := ast.NewObjectWithCapacity(14)
	o.Insert(keyPhase, text(q.Phase))
	o.Insert(keyNow, ast.StringTerm(q.Now.UTC().Format(time.RFC3339Nano)))
	o.Insert(keyTenant, p.id)
	o.Insert(keyWord, p.word)
	o.Insert(keyTier, f.tier)
	o.Insert(keyMode, f.mode)
	o.Insert(keyLeastTrust, text(p.tenant.TrustFor(q.Principal)))
	o.Insert(keyPrincipal, f.principal)
	o.Insert(keyTask, f.task)
	o.Insert(keyRequirement, f.requirement)
	o.Insert(keyCandidates, ast.ArrayTerm(terms...))
	if q.late() {
		args, err := arguments(q.Arguments)
		if err != nil {
			return nil, err
		}
		call := ast.NewObject(ast.Item(keyArguments, args))
		if q.URI != "" {
			call.Insert(keyURI, ast.StringTerm(q.URI))
		}
		o.Insert(keyCall, ast.NewTerm(call))
	}
	if q.Ask != nil {
		params, err := arguments(q.Ask.Params)
		if err != nil {
			return nil, err
		}
		o.Insert(keyAsk, object("method", text(q.Ask.Method), "params", params))
	}
	return ast.NewTerm(o), nil
}

func arguments(raw []byte) (*ast.Term, error) {
	if len(raw) == 0 {
		return ast.ObjectTerm(), nil
	}
	if len(raw) > MaxArguments {
		return nil, fmt.Errorf("the arguments have %d bytes; a policy judges up to %d", len(raw), MaxArguments)
	}
	v, err := value(raw)
	if err != nil {
		return nil, fmt.Errorf("the arguments %w", err)
	}
	return ast.NewTerm(v), nil
}

// maxExponent bounds the numbers that policies reckon with: a few bytes such as
// 1e999999999 would become a number of gigabytes.
const maxExponent = 3 // digits

// value reads JSON from outside.
func value(raw []byte) (ast.Value, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw)) // a Buffer is read where it is, a Reader is copied
	v, err := readValue(d)
	if err == nil {
		_, err = d.ReadToken()
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.New("are no JSON that every reader takes for the same")
	}
	if huge(v) {
		return nil, fmt.Errorf("hold a number with too large an exponent, or with more than %d digits", maxDigits)
	}
	return v, nil
}

// readValue reads the next value of d, and is several times as fast as ast.ValueFromReader. jsontext bounds the depth.
func readValue(d *jsontext.Decoder) (ast.Value, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, noEOF(err)
	}
	switch t.Kind() {
	case 'n':
		return ast.NullValue, nil
	case 't', 'f':
		return ast.Boolean(t.Bool()), nil
	case '"':
		return ast.String(t.String()), nil
	case '0':
		return ast.Number(t.String()), nil
	case '[':
		var all []*ast.Term
		for d.PeekKind() != ']' {
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			all = append(all, ast.NewTerm(v))
		}
		_, err := d.ReadToken()
		return ast.NewArray(all...), noEOF(err)
	case '{':
		o := ast.NewObject()
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, noEOF(err)
			}
			key := ast.StringTerm(name.String())
			v, err := readValue(d)
			if err != nil {
				return nil, err
			}
			o.Insert(key, ast.NewTerm(v))
		}
		_, err := d.ReadToken()
		return o, noEOF(err)
	}
	return nil, errors.New("a value was expected")
}

// noEOF tells an end within a value from the end behind it.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func huge(v ast.Value) bool {
	switch v := v.(type) {
	case ast.Number:
		i := strings.IndexAny(string(v), "eE")
		return len(v) > maxDigits || i >= 0 && len(strings.TrimLeft(string(v)[i+1:], "+-0")) > maxExponent
	case *ast.Array:
		return v.Until(func(t *ast.Term) bool { return huge(t.Value) })
	case ast.Object:
		return v.Until(func(_, t *ast.Term) bool { return huge(t.Value) })
	}
	return false
}

func requirement(r *switchboard.Requirement) *ast.Term {
	if r.ByName() {
		return object("tools", texts(r.Tools), "constraints", texts(r.Constraints))
	}
	return object("verb", text(r.Verb), "resource", text(r.Resource), "constraints", texts(r.Constraints))
}

// candidate is a tool as policies see it. Its capabilities are all that any
// source says of it which counts: also what weaker ones add to make it less
// free. Each carries what Switchboard enforces.
func candidate(t *switchboard.Tool) (*ast.Term, error) { return asCandidate(t, switchboard.KindTool) }

// asCandidate is a candidate of any kind. One that is no tool has an id, a server, and what is said of that.
func asCandidate(t *switchboard.Tool, kind switchboard.CandidateKind) (*ast.Term, error) {
	caps := make([]*ast.Term, 0, len(t.Capabilities)+len(t.Kept))
	enforced := enforcedOn(t)
	for _, c := range slices.Concat(t.Capabilities, t.Kept) {
		if len(enforced) > 0 {
			c.Constraints = union(c.Constraints, enforced)
		}
		caps = append(caps, object("verb", text(c.Verb), "resource", text(c.Resource), "constraints", texts(c.Constraints), "source", text(c.Source)))
	}
	annotations := ast.ObjectTerm()
	if raw, ok := wire.Field(t.Definition, "annotations"); ok && raw[0] == '{' {
		v, err := value(raw)
		if err != nil {
			return nil, fmt.Errorf("its annotations %w", err)
		}
		annotations = ast.NewTerm(v)
	}
	trust := t.Trust
	if trust == "" {
		trust = switchboard.TrustDeclared
	}
	return object(
		"id", ast.StringTerm(t.ID.String()),
		"kind", text(kind),
		"server", text(t.ID.Server),
		"tool", ast.StringTerm(t.ID.Name),
		"version", ast.StringTerm(t.Version),
		"class", text(t.Class),
		"trust", text(trust),
		"capabilities", ast.ArrayTerm(caps...),
		"annotations", annotations,
		"contract", contract(&t.Contract),
		"enforced", texts(enforced),
	), nil
}

// enforcedOn are the constraints that Switchboard enforces on the tool, whatever its capabilities say.
func enforcedOn(t *switchboard.Tool) (all []switchboard.Constraint) {
	for _, c := range switchboard.BuiltinConstraints {
		if t.Enforces(c) {
			all = append(all, c)
		}
	}
	return all
}

// contract is what is said of the tool's calls. What nobody says is false, or
// not there; sources has who says the rest.
func contract(c *switchboard.Contract) *ast.Term {
	sources := ast.NewObject()
	fact := func(name string, f switchboard.Fact) *ast.Term {
		if f.Said() {
			sources.Insert(ast.InternedTerm(name), object("source", text(f.Source), "trusted", ast.InternedTerm(f.Trusted)))
		}
		return ast.InternedTerm(f.Holds)
	}
	o := object(
		"readonly", fact("readonly", c.ReadOnly),
		"idempotent", fact("idempotent", c.Idempotent),
		"stateful", fact("stateful", c.Stateful),
		"deterministic", fact("deterministic", c.Deterministic),
		"repeatable", ast.InternedTerm(c.Repeatable()),
		"sources", ast.NewTerm(sources),
	)
	if c.Timeout > 0 {
		o.Value.(ast.Object).Insert(ast.InternedTerm("timeout_ms"), ast.InternedTerm(int(c.Timeout.Milliseconds())))
	}
	return o
}

// object takes keys and terms in turns.
func object(pairs ...any) *ast.Term {
	o := ast.NewObjectWithCapacity(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		o.Insert(ast.InternedTerm(pairs[i].(string)), pairs[i+1].(*ast.Term))
	}
	return ast.NewTerm(o)
}

func text[T ~string](s T) *ast.Term { return ast.StringTerm(string(s)) }

func texts[T ~string](list []T) *ast.Term {
	terms := make([]*ast.Term, len(list))
	for i, s := range list {
		terms[i] = text(s)
	}
	return ast.ArrayTerm(terms...)
}
