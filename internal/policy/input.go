package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/policy/cost"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxArguments is the largest size, in bytes, of arguments that a policy judges. Calls with longer
// arguments are denied.
const MaxArguments = 1 << 20

// The keys of input.
var (
	keyPhase       = ast.InternedTerm("phase")
	keyNow         = ast.InternedTerm("now")
	keyTenant      = ast.InternedTerm("tenant_id")
	keySettings    = ast.InternedTerm("tenant_policy")
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
	keyCost        = ast.InternedTerm("cost")
	keyRun         = ast.InternedTerm("run")
	keyTouched     = ast.InternedTerm("touched")
	keyFlows       = ast.InternedTerm("flows")
	keyAsk         = ast.InternedTerm("ask")
	keyApprover    = ast.InternedTerm("approver")
)

// effectiveMode returns how much an agent of the principal may do without a person in the task.
func effectiveMode(p switchboard.Principal, t *switchboard.Task) switchboard.Mode {
	m := p.Mode.Narrower(switchboard.Autopilot)
	if t != nil && t.Mode != "" {
		m = m.Narrower(t.Mode)
	}
	return m
}

// An inputFrame holds the parts of input that are equal in all questions about one requirement of a
// task.
type inputFrame struct{ tier, mode, principal, task, requirement *ast.Term }

func newFrame(q *CandidateQuestion) *inputFrame {
	return &inputFrame{
		tier:        textTerm(q.Principal.Tier),
		mode:        textTerm(effectiveMode(q.Principal, q.Task)),
		principal:   objectTerm("id", textTerm(q.Principal.ID), "roles", textTerms(q.Principal.Roles), "auth", textTerm(q.Principal.Auth)),
		task:        objectTerm("task_id", textTerm(taskID(q))),
		requirement: requirementTerm(q.Requirement),
	}
}

func taskID(q *CandidateQuestion) switchboard.TaskID {
	if q.Task == nil {
		return ""
	}
	return q.Task.ID
}

// buildInput builds the input document for q. It uses the terms of q if they exist.
func (p *Policy) buildInput(q *CandidateQuestion) (*ast.Term, error) {
	terms := q.terms
	if terms == nil {
		var err error
		if terms, err = candidateTerms(q.Candidates); err != nil {
			return nil, err
		}
	}
	f := q.frame
	if f == nil {
		f = newFrame(q)
	}
	o := ast.NewObjectWithCapacity(17)
	o.Insert(keyPhase, textTerm(q.Phase))
	o.Insert(keyNow, ast.StringTerm(q.Now.UTC().Format(time.RFC3339Nano)))
	o.Insert(keyTenant, p.id)
	o.Insert(keySettings, p.settings)
	o.Insert(keyTier, f.tier)
	o.Insert(keyMode, f.mode)
	o.Insert(keyLeastTrust, textTerm(p.tenant.TrustFor(q.Principal)))
	o.Insert(keyFlows, textTerm(p.tenant.Flows.OrDefault()))
	o.Insert(keyPrincipal, f.principal)
	o.Insert(keyTask, f.task)
	o.Insert(keyRequirement, f.requirement)
	o.Insert(keyCandidates, ast.ArrayTerm(terms...))
	if q.concernsCall() {
		args, err := argumentsTerm(q.Arguments)
		if err != nil {
			return nil, err
		}
		call := ast.NewObject(ast.Item(keyArguments, args))
		if q.URI != "" {
			call.Insert(keyURI, ast.StringTerm(q.URI))
		}
		if q.Cost != nil {
			call.Insert(keyCost, amountTerm(*q.Cost))
		}
		o.Insert(keyCall, ast.NewTerm(call))
	}
	if q.Phase == PhaseCall && q.Touched.Known {
		o.Insert(keyRun, ast.ObjectTerm(ast.Item(keyTouched, flowTerms[q.Touched.Bits&switchboard.AllFlows])))
	}
	if q.Ask != nil {
		params, err := argumentsTerm(q.Ask.Params)
		if err != nil {
			return nil, err
		}
		o.Insert(keyAsk, objectTerm("method", textTerm(q.Ask.Method), "params", params))
	}
	if q.Approver != nil {
		o.Insert(keyApprover, objectTerm("id", textTerm(q.Approver.ID), "auth", textTerm(q.Approver.Auth),
			"offices", textTerms(q.Approver.Offices[p.tenant.ID]), "roles", textTerms(q.Approver.Roles[p.tenant.ID])))
	}
	return ast.NewTerm(o), nil
}

func argumentsTerm(raw []byte) (*ast.Term, error) {
	if len(raw) == 0 {
		return ast.ObjectTerm(), nil
	}
	if len(raw) > MaxArguments {
		return nil, fmt.Errorf("the arguments have %d bytes; a policy judges up to %d", len(raw), MaxArguments)
	}
	v, err := ParseValue(raw)
	if err != nil {
		return nil, fmt.Errorf("the arguments %w", err)
	}
	return ast.NewTerm(v), nil
}

// maxExponent limits the numbers that policies compute with: a few bytes such as 1e999999999 would
// become a number of gigabytes.
const maxExponent = 3 // digits

// ParseValue parses JSON from outside.
func ParseValue(raw []byte) (ast.Value, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw)) // a Buffer is read in place, another Reader is copied
	v, err := readValue(d)
	if err == nil {
		_, err = d.ReadToken()
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.New("are not JSON that every parser reads alike")
	}
	if hasHugeNumber(v) {
		return nil, fmt.Errorf("hold a number with too large an exponent, or with more than %d digits", cost.MaxDigits)
	}
	return v, nil
}

// readValue reads the next value of d. It is several times as fast as ast.ValueFromReader. jsontext
// limits the depth.
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

// noEOF turns the end of the text within a value into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func hasHugeNumber(v ast.Value) bool {
	switch v := v.(type) {
	case ast.Number:
		i := strings.IndexAny(string(v), "eE")
		return len(v) > cost.MaxDigits || i >= 0 && len(strings.TrimLeft(string(v)[i+1:], "+-0")) > maxExponent
	case *ast.Array:
		return v.Until(func(t *ast.Term) bool { return hasHugeNumber(t.Value) })
	case ast.Object:
		return v.Until(func(_, t *ast.Term) bool { return hasHugeNumber(t.Value) })
	}
	return false
}

func requirementTerm(r *switchboard.Requirement) *ast.Term {
	if r.ByName() {
		return objectTerm("tools", textTerms(r.Tools), "constraints", textTerms(r.Constraints))
	}
	if r.Capability != "" {
		return objectTerm("capability", ast.StringTerm(r.Capability), "verb", textTerm(r.Verb), "resource", textTerm(r.Resource), "constraints", textTerms(r.Constraints))
	}
	return objectTerm("verb", textTerm(r.Verb), "resource", textTerm(r.Resource), "constraints", textTerms(r.Constraints))
}

// A termBuilder builds the terms of candidates. Equal capabilities, facts and annotations share one term, so a term must not
// be changed once it is built. The zero termBuilder is ready. It is not safe for concurrent use.
type termBuilder struct {
	capabilities map[capabilityKey]*ast.Term
	evidence     map[evidenceKey]*ast.Term // of tools without findings
	contracts    map[contractKey]*ast.Term
	annotations  map[string]*ast.Term // by their JSON
}

// A capabilityKey is a capability as a key of a map.
type capabilityKey struct {
	verb        switchboard.Verb
	resource    switchboard.Resource
	source      switchboard.Source
	constraints string // each followed by a zero byte
}

// A contractKey holds the parts of a contract that contractTerm reads.
type contractKey struct {
	readOnly, idempotent, stateful, deterministic switchboard.Fact
	timeout                                       time.Duration
}

// build returns a candidate as policies see it. A tool lists every capability that counts, including
// those from weaker sources that restrict the tool. Each capability has the constraints that
// Switchboard enforces. Of a provided tool, policies see the tool that is called. A candidate that is not a tool has only an id, a server and the facts about the server.
func (b *termBuilder) build(t *switchboard.Tool, kind switchboard.CandidateKind) (*ast.Term, error) {
	t = t.Called()
	caps := make([]*ast.Term, 0, len(t.Capabilities)+len(t.Kept))
	enforced := enforcedConstraints(t)
	for _, c := range slices.Concat(t.Capabilities, t.Kept) {
		if len(enforced) > 0 {
			c.Constraints = union(c.Constraints, enforced)
		}
		caps = append(caps, b.capabilityTerm(&c))
	}
	annotations, err := b.annotationsTerm(t)
	if err != nil {
		return nil, err
	}
	trust := t.Trust
	if trust == "" {
		trust = switchboard.TrustDeclared
	}
	o := objectTerm(
		"id", ast.StringTerm(t.ID.String()),
		"kind", textTerm(kind),
		"server", textTerm(t.ID.Server),
		"tool", ast.StringTerm(t.ID.Name),
		"version", ast.StringTerm(t.Version),
		"class", textTerm(t.Class),
		"trust", textTerm(trust),
		"capabilities", ast.ArrayTerm(caps...),
		"annotations", annotations,
		"contract", addBoundaryFacts(b.contractTerm(&t.Contract), t),
		"enforced", textTerms(enforced),
		"flow", flowTerms[t.Contract.Flow.Bits&switchboard.AllFlows],
	)
	if kind == switchboard.KindTool {
		o.Value.(ast.Object).Insert(keyEvidence, b.evidenceTerm(t))
	}
	return o, nil
}

// CandidateInput returns an input that has only candidates: tools, as policies see them. It is for layers that read nothing
// else, such as Boundaries.
func CandidateInput(tools []*switchboard.Tool) (*ast.Term, error) {
	terms, err := candidateTerms(tools)
	if err != nil {
		return nil, err
	}
	return ast.ObjectTerm(ast.Item(keyCandidates, ast.ArrayTerm(terms...))), nil
}

func candidateTerms(tools []*switchboard.Tool) ([]*ast.Term, error) {
	terms := make([]*ast.Term, len(tools))
	var b termBuilder
	for i, t := range tools {
		var err error
		if terms[i], err = b.build(t, switchboard.KindTool); err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.ID, err)
		}
	}
	return terms, nil
}

// enforcedConstraints returns the constraints that Switchboard enforces on the tool. A capability of
// the tool need not have them.
func enforcedConstraints(t *switchboard.Tool) (all []switchboard.Constraint) {
	for _, c := range switchboard.BuiltinConstraints {
		if t.Enforces(c) {
			all = append(all, c)
		}
	}
	return all
}

// An evidenceKey holds the parts of the evidence that evidenceTerm reads, without the findings.
type evidenceKey struct {
	state  switchboard.LifeState
	frozen bool
	diff   string
	person bool
	read   bool
	risk   switchboard.RiskClass
}

// evidenceTerm returns what admission knows about a tool. What nobody knows is left out: it is undefined, and not false or 0.
func (b *termBuilder) evidenceTerm(t *switchboard.Tool) *ast.Term {
	key := evidenceKey{state: switchboard.LifeActive, risk: t.Contract.Risk}
	if a := t.Admission; a != nil {
		key.state, key.frozen = a.State, a.Frozen
	}
	var found []switchboard.RuleFinding
	var report *switchboard.ReportFacts
	if e := t.Evidence; e != nil {
		key.diff, key.person, key.read, found, report = e.Diff, e.Person, e.Read, e.Findings, e.Report
	}
	if known := b.evidence[key]; known != nil && len(found) == 0 && report == nil {
		return known
	}
	o := ast.NewObject(ast.Item(keyState, textTerm(key.state)))
	if key.frozen {
		o.Insert(keyFrozen, ast.InternedTerm(true))
	}
	addText(o, keyDiff, key.diff)
	addText(o, keyRisk, string(key.risk))
	if key.person {
		o.Insert(keyLetInBy, ast.InternedTerm("person"))
	}
	if key.read {
		terms := make([]*ast.Term, len(found))
		for i, f := range found {
			terms[i] = objectTerm("rule", ast.StringTerm(f.Rule), "tier", ast.StringTerm(f.Tier))
		}
		o.Insert(keyFindings, ast.ArrayTerm(terms...))
	}
	if report != nil {
		o.Insert(keyReport, reportTerm(report))
	}
	made := ast.NewTerm(o)
	if len(found) == 0 && report == nil {
		if b.evidence == nil {
			b.evidence = map[evidenceKey]*ast.Term{}
		}
		b.evidence[key] = made
	}
	return made
}

// reportTerm returns what the report of a verification says.
func reportTerm(r *switchboard.ReportFacts) *ast.Term {
	failed := make([]*ast.Term, len(r.Failed))
	for i, name := range r.Failed {
		failed[i] = ast.StringTerm(name)
	}
	walls := make([]*ast.Term, len(r.Walls))
	for i, name := range r.Walls {
		walls[i] = ast.StringTerm(name)
	}
	return objectTerm("score", ast.FloatNumberTerm(float64(r.Score)/1000), "leave", ast.StringTerm(r.Leave), "verified", ast.BooleanTerm(r.Verified), "failed", ast.ArrayTerm(failed...), "walls", ast.ArrayTerm(walls...))
}

func (b *termBuilder) capabilityTerm(c *switchboard.Capability) *ast.Term {
	key := capabilityKey{verb: c.Verb, resource: c.Resource, source: c.Source}
	for _, constraint := range c.Constraints {
		key.constraints += string(constraint) + "\x00"
	}
	if known := b.capabilities[key]; known != nil {
		return known
	}
	if b.capabilities == nil {
		b.capabilities = map[capabilityKey]*ast.Term{}
	}
	made := objectTerm("verb", textTerm(c.Verb), "resource", textTerm(c.Resource), "constraints", textTerms(c.Constraints), "source", textTerm(c.Source))
	b.capabilities[key] = made
	return made
}

// annotationsTerm returns the annotations of the tool's own definition.
func (b *termBuilder) annotationsTerm(t *switchboard.Tool) (*ast.Term, error) {
	raw, ok := wire.Field(t.Definition, "annotations")
	if !ok || raw[0] != '{' {
		raw = []byte("{}")
	}
	if known := b.annotations[string(raw)]; known != nil {
		return known, nil
	}
	v, err := ParseValue(raw)
	if err != nil {
		return nil, fmt.Errorf("its annotations %w", err)
	}
	if b.annotations == nil {
		b.annotations = map[string]*ast.Term{}
	}
	made := ast.NewTerm(v)
	b.annotations[string(raw)] = made
	return made, nil
}

// contractTerm returns the facts about the tool's calls. A fact that no source states is false or
// left out. sources names the source of each other fact.
func (b *termBuilder) contractTerm(c *switchboard.Contract) *ast.Term {
	key := contractKey{c.ReadOnly, c.Idempotent, c.Stateful, c.Deterministic, c.Timeout}
	if known := b.contracts[key]; known != nil {
		return known
	}
	sources := ast.NewObject()
	fact := func(name string, f switchboard.Fact) *ast.Term {
		if f.Stated() {
			sources.Insert(ast.InternedTerm(name), objectTerm("source", textTerm(f.Source), "trusted", ast.InternedTerm(f.Trusted)))
		}
		return ast.InternedTerm(f.Holds)
	}
	o := objectTerm(
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
	if b.contracts == nil {
		b.contracts = map[contractKey]*ast.Term{}
	}
	b.contracts[key] = o
	return o
}

// addBoundaryFacts returns the contract with what is known about the costs, the risk and the side effects of the tool's
// calls, and about the capability that the tool provides. What no source states is left out.
func addBoundaryFacts(contract *ast.Term, t *switchboard.Tool) *ast.Term {
	o := ast.NewObject()
	addText(o, keyCostClass, string(t.CostClass()))
	if p := t.Price; p != nil {
		o.Insert(keyCostPerCall, amountTerm(p.Call))
		o.Insert(keyPrice, priceTerm(p))
	}
	if t.Budget != nil {
		o.Insert(keyBudget, budgetTerm(t.Budget))
	}
	c := &t.Contract
	addText(o, keyCapability, c.Capability)
	id, _, _ := strings.Cut(c.Capability, "@")
	addText(o, keyID, id)
	addText(o, keyRiskLevel, c.RiskLevel)
	addTexts(o, keySideEffects, c.SideEffects)
	addTexts(o, keyAccounts, c.Accounts)
	addTexts(o, keyApprovalRequired, c.ApprovalRequired)
	if o.Len() == 0 {
		return contract
	}
	contract.Value.(ast.Object).Foreach(o.Insert)
	return ast.NewTerm(o)
}

func addText(o ast.Object, key *ast.Term, s string) {
	if s != "" {
		o.Insert(key, ast.StringTerm(s))
	}
}

func addTexts(o ast.Object, key *ast.Term, list []string) {
	if len(list) > 0 {
		o.Insert(key, textTerms(list))
	}
}

// budgetTerm returns the tool's or the capability's own budget: what it limits, not what is left of it.
func budgetTerm(b *switchboard.Budget) *ast.Term {
	of := objectTerm("per", textTerm(string(cmp.Or(b.Per, switchboard.PerTenant))), "window", textTerm(string(b.Window)))
	limit, value := keyLimit, amountTerm(switchboard.Micros(b.Limit))
	if b.Calls {
		limit, value = keyCalls, ast.NumberTerm(json.Number(strconv.FormatInt(b.Limit, 10)))
	}
	of.Value.(ast.Object).Insert(limit, value)
	return of
}

func priceTerm(p *switchboard.Price) *ast.Term {
	each := ast.NewObject()
	for _, e := range p.Each {
		each.Insert(ast.StringTerm(e.Pointer), amountTerm(e.Micros))
	}
	of := objectTerm("call", amountTerm(p.Call), "each", ast.NewTerm(each), "reported", ast.InternedTerm(p.Reported))
	if p.Most > 0 {
		of.Value.(ast.Object).Insert(keyMost, amountTerm(p.Most))
	}
	return of
}

var (
	keyEvidence         = ast.InternedTerm("evidence")
	keyReport           = ast.InternedTerm("report")
	keyState            = ast.InternedTerm("state")
	keyFrozen           = ast.InternedTerm("frozen")
	keyRisk             = ast.InternedTerm("risk")
	keyDiff             = ast.InternedTerm("diff")
	keyFindings         = ast.InternedTerm("findings")
	keyLetInBy          = ast.InternedTerm("let_in_by")
	keyCostClass        = ast.InternedTerm("cost_class")
	keyCostPerCall      = ast.InternedTerm("cost_per_call")
	keyPrice            = ast.InternedTerm("price")
	keyBudget           = ast.InternedTerm("budget")
	keyLimit            = ast.InternedTerm("limit")
	keyCalls            = ast.InternedTerm("calls")
	keyMost             = ast.InternedTerm("most")
	keyCapability       = ast.InternedTerm("capability")
	keyRiskLevel        = ast.InternedTerm("risk_level")
	keySideEffects      = ast.InternedTerm("side_effects")
	keyAccounts         = ast.InternedTerm("accounts")
	keyApprovalRequired = ast.InternedTerm("approval_required")
)

// amountTerm returns an amount as a number of the currency, which is exact.
func amountTerm(m switchboard.Micros) *ast.Term {
	return ast.NumberTerm(json.Number(strings.TrimSuffix(strings.TrimRight(m.String(), "0"), ".")))
}

// objectTerm builds an object from alternating keys and terms.
func objectTerm(pairs ...any) *ast.Term {
	o := ast.NewObjectWithCapacity(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		o.Insert(ast.InternedTerm(pairs[i].(string)), pairs[i+1].(*ast.Term))
	}
	return ast.NewTerm(o)
}

func textTerm[T ~string](s T) *ast.Term { return ast.StringTerm(string(s)) }

func textTerms[T ~string](list []T) *ast.Term {
	terms := make([]*ast.Term, len(list))
	for i, s := range list {
		terms[i] = textTerm(s)
	}
	return ast.ArrayTerm(terms...)
}
