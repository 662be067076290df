package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/budget/price"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxRecordedArguments limits the recorded values of a call's arguments, in bytes.
const maxRecordedArguments = 64 << 10

// A callRuling is policy's ruling on one call as it is recorded: in canonical form, without empty
// members.
type callRuling struct {
	V         int                    `json:"v"`
	Tenant    switchboard.TenantID   `json:"tenant"`
	Principal recordedPrincipal      `json:"principal"`
	Task      switchboard.TaskID     `json:"task"`
	Snapshot  decide.SnapshotDigests `json:"snapshot"`
	Now       time.Time              `json:"now,omitzero"` // if a policy reads it
	Method    string                 `json:"method"`
	Server    switchboard.ServerID   `json:"server"`
	Tool      string                 `json:"tool,omitempty"`
	Item      *recordedItem          `json:"item,omitempty"` // of a call that is not a tool's
	Needs     []string               `json:"requirements"`   // the requirements that selected it
	Arguments recordedArguments      `json:"arguments"`
	rulingRefusal
	rulingDemands

	Mixed bool `json:"mixed,omitempty"` // the configuration was replaced between selection and call
}

// A rulingRefusal says why a call was refused.
type rulingRefusal struct {
	Code switchboard.Code `json:"code,omitempty"` // of the refusal; "" means that the call is allowed
	Why  string           `json:"why,omitempty"`
}

// rulingDemands are what the ruling demands before the call, and what it has read besides the call.
type rulingDemands struct {
	Asks *switchboard.Obligations `json:"obligations,omitempty"`

	// Touched is what the run had touched before the call; nil if policy was not told.
	Touched *switchboard.FlowBits `json:"touched,omitempty"`
}

// rulingVersion is the format version of a callRuling.
const rulingVersion = 1

type recordedPrincipal struct {
	Auth  switchboard.Auth `json:"auth"`
	ID    string           `json:"id"`
	Mode  switchboard.Mode `json:"mode"`
	Roles []string         `json:"roles,omitempty"`
	Tier  string           `json:"tier"`
}

// recordedArguments are the digest of a call's arguments, as in receipts. If the tenant wants it
// (record: policy_inputs), they also hold the values at the paths that its policies read. Values is
// nil if no values are kept.
type recordedArguments struct {
	Digest string          `json:"digest"`
	Paths  [][]string      `json:"paths,omitempty"`
	Values json.RawMessage `json:"values,omitempty"`

	// Elements are the numbers of elements that the price depends on, by pointer. See price.CountElements.
	Elements map[string]int `json:"elements,omitempty"`
}

// A recordedItem is the object of a call that is not a tool's: a resource or a prompt. A URI is
// kept only if the tenant wants arguments kept and the URI holds no secret.
type recordedItem struct {
	Kind switchboard.CandidateKind `json:"kind"`
	Name string                    `json:"name,omitempty"` // not of a resource, because its name is its URI
	URI  string                    `json:"uri,omitempty"`
}

// whyNoURI says why a ruling on a resource cannot be replayed.
const whyNoURI = "its URI was not recorded; record: policy_inputs in tenant.yaml keeps URIs"

// lacksURI reports whether policy needs the URI of the item and it was not kept. The id of a listed
// resource contains its URI.
func (r *recordedItem) lacksURI(p *policy.Policy) bool {
	return r != nil && r.URI == "" && (r.Kind == switchboard.KindResource || r.Kind == switchboard.KindTemplate && p.ReadsURI())
}

// recordItem returns the recorded form of the item of a call, or nil for a tool's call.
func recordItem(t *bind.Tenant, c *switchboard.Call, hide []string) *recordedItem {
	if c.Tool != nil || c.Item.Kind == "" {
		return nil
	}
	out := &recordedItem{Kind: c.Item.Kind, Name: c.Item.Name}
	if out.Kind == switchboard.KindResource {
		out.Name = ""
	}
	if t.RecordInputs && (t.Rules.ReadsURI() || out.Kind == switchboard.KindResource) && !holdsSecret(canonical.Encode(c.Item.URI), hide) {
		out.URI = c.Item.URI
	}
	return out
}

// item returns the item as policy saw it.
func (r *recordedItem) item(arguments []byte) switchboard.Item {
	it := switchboard.Item{Kind: r.Kind, Name: r.Name, URI: r.URI, Arguments: arguments}
	if r.Kind == switchboard.KindResource {
		it.Name = r.URI
	}
	return it
}

// An archivedRuling is a ruling and the digest of its basis, in the form of the archive.
type archivedRuling struct {
	Basis  switchboard.Digest `json:"basis"`
	Ruling json.RawMessage    `json:"ruling"`
}

// Ruling records policy's ruling on a call, in the present state.
func (r *Recorder) Ruling(s *bind.State, c *switchboard.Call, p *policy.Policy, now time.Time, ruling policy.Ruling) {
	t := s.Tenants[c.Principal.Tenant]
	if t == nil || r.addReceipt == nil {
		return
	}
	var hide []string
	if t.RecordInputs {
		hide = serverSecrets(s.Config)
	}
	e := newRulingRecord(t, r.basisOf(t), c, p, now, ruling, r.digests.Request(c), hide)
	c.Trail.Ruled(r.recordOnce(e, nil).digest)
}

// newRulingRecord makes the record of policy's ruling on a call. arguments is the digest of the
// call's arguments.
func newRulingRecord(t *bind.Tenant, texts basisTexts, c *switchboard.Call, p *policy.Policy, now time.Time, r policy.Ruling, arguments string, hide []string) *decisionRecord {
	own := newCallRuling(t, c, now, r)
	own.Mixed = r.Mixed || t.Rules != p || !knowsJudged(t, c)
	own.Arguments, own.Item = recordArguments(t, argumentsOf(c), hide), recordItem(t, c, hide)
	own.Arguments.Digest = arguments
	if c.Tool != nil {
		own.Arguments.Elements = price.CountElements(c.Tool, c.Params)
	}
	if own.Arguments.Values == nil && len(p.Arguments()) > 0 || own.Item.lacksURI(p) {
		own.Why, own.Asks = "", nil // they may contain arguments
	}
	text := own.canonical()
	same := canonical.Sum(text)
	if !own.Now.IsZero() {
		timeless := own
		timeless.Now = time.Time{}
		same = canonical.Sum(timeless.canonical())
	}
	of := []string{"call", string(own.Tenant), own.Principal.ID, string(own.Task), own.Method, string(own.Server), own.Tool, arguments}
	e := addBasis(texts, &decisionRecord{kind: kindCall, when: now, subject: strings.Join(of, "/"), content: same}, nil)
	e.text = canonical.Encode(archivedRuling{e.basis, text})
	e.digest = canonical.Sum(e.text)
	return e
}

// newCallRuling returns policy's ruling on a call, without its arguments.
func newCallRuling(t *bind.Tenant, c *switchboard.Call, now time.Time, r policy.Ruling) callRuling {
	p := c.Principal
	own := callRuling{
		V: rulingVersion, Tenant: p.Tenant, Task: c.Task, Snapshot: t.Snapshot, Method: c.Method, Server: c.Server,
		Principal: recordedPrincipal{p.Auth, p.ID, p.Mode.Narrower(switchboard.Autopilot), p.Roles, p.Tier},
	}
	if c.Tool != nil {
		own.Tool = c.Tool.ID.String()
	}
	if t.Rules.ReadsClock() {
		own.Now = now.UTC()
	}
	if c.Touched.Known {
		own.Touched = &c.Touched.Bits
	}
	for _, j := range c.Judgments {
		own.Needs = append(own.Needs, j.Requirement.String())
	}
	if r.Err == nil {
		if !r.Obligations.Empty() {
			own.Asks = &r.Obligations
		}
		return own
	}
	own.Code, own.Why = switchboard.CodePolicyFailed, r.Err.Error()
	if e, ok := errors.AsType[*switchboard.Error](r.Err); ok {
		own.Code = e.Code
		if e.Cause != nil {
			own.Why = e.Cause.Error()
		}
	}
	return own
}

// knowsJudged reports whether all tools that the call was judged with belong to this state.
func knowsJudged(t *bind.Tenant, c *switchboard.Call) bool {
	return !slices.ContainsFunc(c.Judgments, func(j *switchboard.Judgment) bool {
		return slices.ContainsFunc(j.Candidates, func(tool *switchboard.Tool) bool { return presentTool(t, tool) != tool })
	})
}

// presentTool returns the tool that takes the place of the tool in this state, or nil.
func presentTool(t *bind.Tenant, tool *switchboard.Tool) *switchboard.Tool {
	if tool.Provides == nil {
		now, _ := t.View.Tool(tool.ID)
		return now
	}
	for _, now := range t.Providers.Tools()[tool.Provides.Capability] {
		if now.Key() == tool.Key() {
			return now
		}
	}
	return nil
}

// argumentsOf returns the arguments of a call as policies read them.
func argumentsOf(c *switchboard.Call) []byte {
	raw, ok := c.Item.Arguments, c.Item.Arguments != nil
	if c.Tool != nil {
		raw, ok = wire.Field(c.Params, "arguments")
	}
	if !ok {
		return []byte("{}")
	}
	return raw
}

// recordArguments returns the recorded form of a call's arguments, without their digest.
func recordArguments(t *bind.Tenant, raw []byte, hide []string) (out recordedArguments) {
	paths := t.Rules.Arguments()
	if !t.RecordInputs || len(paths) == 0 {
		return out
	}
	values, err := policy.SelectArguments(raw, paths)
	if err != nil || len(values) > maxRecordedArguments || holdsSecret(values, hide) {
		return out
	}
	out.Paths, out.Values = paths, values
	return out
}

// minSecretLength is the length of the shortest secret that is searched for: shorter ones ("1",
// "true") occur everywhere.
const minSecretLength = 6

// serverSecrets returns the secrets that servers get.
func serverSecrets(c *config.Config) (all []string) {
	add := func(name, text string) {
		for word := range strings.FieldsSeq(text) {
			if len(word) >= minSecretLength && (name == "" || switchboard.CredentialName(name) || switchboard.CredentialValue(text)) {
				all = append(all, word)
			}
		}
	}
	for i := range c.Servers {
		for _, s := range c.Servers[i].Headers {
			add("", s.Reveal())
		}
		for name, s := range c.Servers[i].Env {
			add(name, s.Reveal())
		}
		for _, s := range c.Servers[i].Network.ProxyPassword() {
			add("", s.Reveal())
		}
	}
	return all
}

// holdsSecret reports whether a JSON text holds one of the secrets, a Switchboard key, or a text
// that looks like a credential.
func holdsSecret(text []byte, secrets []string) bool {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return true
	}
	var in func(name string, v any) bool
	in = func(name string, v any) bool {
		switch v := v.(type) {
		case float64:
			return switchboard.CredentialName(name)
		case string:
			return v != "" && switchboard.CredentialName(name) || switchboard.CredentialValue(v) || strings.Contains(v, identity.AgentPrefix) || strings.Contains(v, identity.PersonPrefix) ||
				slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(v, s) })
		case []any:
			return slices.ContainsFunc(v, func(v any) bool { return in(name, v) })
		case map[string]any:
			for k, v := range v {
				if in("", k) || in(k, v) {
					return true
				}
			}
		}
		return false
	}
	return in("", v)
}

func (r *callRuling) canonical() []byte { return canonicalOf(r) }

// canonicalOf returns the canonical form of v.
func canonicalOf(v any) []byte {
	text, err := canonical.Append(nil, canonical.Encode(v))
	if err != nil {
		panic("canonical form: " + err.Error()) // its parts were parsed strictly
	}
	return text
}

func readRuling(text []byte) (r callRuling, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("record of a call: %w", err)
	}
	if r.V != rulingVersion {
		return r, fmt.Errorf("record of a call: its format is version %d; this program reads version %d", r.V, rulingVersion)
	}
	return r, nil
}

func (r *callRuling) principal() switchboard.Principal {
	p := r.Principal
	return switchboard.Principal{Tenant: r.Tenant, Auth: p.Auth, ID: p.ID, Mode: p.Mode, Roles: p.Roles, Tier: p.Tier}
}

// covers reports whether the kept arguments are all that the policy reads.
func (a *recordedArguments) covers(p *policy.Policy) bool {
	return !slices.ContainsFunc(p.Arguments(), func(path []string) bool {
		return !slices.ContainsFunc(a.Paths, func(kept []string) bool {
			return len(kept) <= len(path) && slices.Equal(kept, path[:len(kept)])
		})
	})
}

// requirementNamed returns the requirement that a text spells, and the task that has it: as configured, or as people may have added to it.
// The requirement is nil if there is none.
func requirementNamed(t *bind.Tenant, task *switchboard.Task, need string) (*switchboard.Requirement, *switchboard.Task) {
	named := func(n switchboard.Requirement) bool { return n.String() == need }
	at := slices.IndexFunc(task.Requirements, named)
	if at < 0 {
		task = lazyexpand.AddRequested(task, []switchboard.Addition{{Capability: need}}, t.Request, t.Taxonomy, t.FindNamed)
		if at = slices.IndexFunc(task.Requirements, named); at < 0 {
			return nil, task
		}
	}
	return &task.Requirements[at], task
}

// ruleAgain asks t's policy about the recorded call, made by the principal who. The error says why
// the call is no longer possible.
func ruleAgain(t *bind.Tenant, ctx context.Context, r *callRuling, who switchboard.Principal, when time.Time) (*switchboard.Call, policy.Ruling, error) {
	c, elements, err := rebuildCall(t, ctx, r, who)
	if err != nil {
		return nil, policy.Ruling{}, err
	}
	return c, t.Rules.JudgeRecordedCall(ctx, c, elements, when), nil
}

// rebuildCall returns the recorded call, made by the principal who of the tenant t, and the numbers of elements in its arguments. The error says why
// the call is no longer possible.
func rebuildCall(t *bind.Tenant, ctx context.Context, r *callRuling, who switchboard.Principal) (*switchboard.Call, map[string]int, error) {
	task := t.Tasks[r.Task]
	if task == nil {
		return nil, nil, errors.New("its task does not exist any more")
	}
	c := &switchboard.Call{
		Principal: who, Task: r.Task, Server: r.Server, Method: r.Method,
		Params: fmt.Appendf(nil, `{"arguments":%s}`, cmp.Or(string(r.Arguments.Values), "{}")),
	}
	if r.Touched != nil {
		c.Touched = switchboard.Touched{Bits: *r.Touched, Known: true}
	}
	if r.Item != nil {
		c.Item = r.Item.item([]byte(cmp.Or(string(r.Arguments.Values), "{}")))
	}
	for _, need := range r.Needs {
		n, task := requirementNamed(t, task, need)
		if n == nil {
			continue
		}
		candidates, err := policyCandidates(t, ctx, who, task, n)
		if err != nil {
			return nil, nil, err
		}
		at := slices.IndexFunc(candidates, func(tool *switchboard.Tool) bool { return tool.ID.String() == r.Tool })
		if at < 0 && r.Tool != "" {
			continue
		}
		if at >= 0 {
			c.Tool = candidates[at]
		}
		c.Judgments = append(c.Judgments, policy.NewJudgment(task, n, candidates))
	}
	if len(c.Judgments) < len(r.Needs) {
		return nil, nil, errors.New("the tool no longer meets its requirement")
	}
	elements := r.Arguments.Elements
	if elements == nil {
		elements = map[string]int{} // Params holds only a part of the arguments, so that nothing in it can be counted
	}
	return c, elements, nil
}

// policyCandidates returns the tools that policy is asked about for a requirement.
func policyCandidates(t *bind.Tenant, ctx context.Context, who switchboard.Principal, task *switchboard.Task, r *switchboard.Requirement) ([]*switchboard.Tool, error) {
	q := &decide.Question{Tenant: t.Tenant, Principal: who, Task: task, Requirement: r}
	var in []decide.Candidate
	for _, s := range t.Pipeline {
		if s.Name() == policy.StageName {
			break
		}
		var err error
		if in, err = s.Apply(ctx, q, in, decide.Ignore); err != nil {
			return nil, err
		}
	}
	tools := make([]*switchboard.Tool, len(in))
	for i, c := range in {
		tools[i] = c.Tool
	}
	return tools, nil
}

// Why a call cannot be judged again.
const (
	whyMixed       = "the configuration was replaced during the call"
	whyNoArguments = "their arguments were not recorded; record: policy_inputs in tenant.yaml records them, but never a value that looks like a credential"
	whyArguments   = "the proposed policies look at arguments that were not recorded"
	whyPrice       = "the proposed price depends on arguments that were not recorded"
)

// coversPrice reports whether the call can be priced as t prices it, if its policies look at the price.
func (r *callRuling) coversPrice(t *bind.Tenant) bool {
	id, err := switchboard.ParseToolID(r.Tool)
	if err != nil || !t.Rules.ReadsCost() {
		return true
	}
	tool, ok := t.View.Tool(id)
	return !ok || tool.Price == nil || !slices.ContainsFunc(tool.Price.Each, func(e switchboard.ElementPrice) bool {
		_, known := r.Arguments.Elements[e.Pointer]
		return !known
	})
}

// replayCall replays policy's ruling on one call.
func (c *comparison) replayCall(ctx context.Context, r *replayer, e *decisionRecord) {
	was, err := readRuling(e.text)
	switch {
	case err != nil:
		c.skipDecisions(err.Error(), e.kind, 1)
		return
	case was.Mixed:
		c.skipDecisions(whyMixed, e.kind, 1)
		return
	case !was.Arguments.covers(r.before.Rules):
		c.skipDecisions(whyNoArguments, e.kind, 1)
		return
	case was.Item.lacksURI(r.before.Rules):
		c.skipDecisions(whyNoURI, e.kind, 1)
		return
	}
	again, now, err := ruleAgain(r.before, ctx, &was, was.principal(), was.Now)
	var text []byte
	if err == nil {
		same := newCallRuling(r.before, again, was.Now, now)
		same.Arguments, same.Item = was.Arguments, was.Item
		text = same.canonical()
	}
	if !bytes.Equal(text, e.text) {
		c.countDifference(e, text, BrokenReplay{Tenant: was.Tenant, Task: was.Task})
		return
	}
	if r.after != nil && r.after.Snapshot != r.before.Snapshot {
		switch {
		case !was.Arguments.covers(r.after.Rules):
			c.skipDecisions(whyArguments, e.kind, 1)
			return
		case !was.coversPrice(r.after):
			c.skipDecisions(whyPrice, e.kind, 1)
			return
		}
	}
	c.countChanges(was.Tenant, was.principal().ID, c.nameTask(was.Task, r.callChanges(ctx, &was, cmp.Or(was.Now, e.when))))
}

// callChanges returns the changes that the proposal makes to the ruling on a call.
func (r *replayer) callChanges(ctx context.Context, was *callRuling, when time.Time) map[DecisionChange]bool {
	out := changeSet{DecisionChange{Tenant: was.Tenant, Of: kindCall}, map[DecisionChange]bool{}}
	if r.after != nil && r.proposed == nil && r.after.Snapshot == r.before.Snapshot {
		return nil
	}
	now, err := r.ruleProposed(ctx, was, when)
	if err != nil {
		now = callRuling{rulingRefusal: rulingRefusal{switchboard.CodeNoSuchTool, err.Error()}}
	}
	of := cmp.Or(was.Tool, was.Method+" at "+string(was.Server))
	switch {
	case was.Code == "" && now.Code != "":
		out.add(DecisionChange{Kind: ChangeDenied, Tool: of, Why: fmt.Sprintf("%s: %s", now.Code, now.Why)})
	case was.Code != "" && now.Code == "":
		out.add(DecisionChange{Kind: ChangeAllowed, Tool: of, Why: fmt.Sprintf("it was not: %s: %s", was.Code, was.Why)})
	case was.Code == "":
		out.compareObligations(of, was.obligations(), now.obligations())
	}
	return out.found
}

// ruleProposed returns the ruling on a call under the proposal.
func (r *replayer) ruleProposed(ctx context.Context, was *callRuling, when time.Time) (now callRuling, err error) {
	if r.after == nil {
		return now, errGone
	}
	who := was.principal()
	if r.proposed != nil {
		if _, err := r.proposed.ResolveTask(who, was.Task); err != nil {
			return now, err
		}
		if who, err = r.proposed.CurrentPrincipal(who); err != nil {
			return now, err
		}
	}
	c, said, err := ruleAgain(r.after, ctx, was, who, when)
	if err != nil {
		return now, err
	}
	return newCallRuling(r.after, c, when, said), nil
}

func (r *callRuling) obligations() (o switchboard.Obligations) {
	if r.Asks != nil {
		o = *r.Asks
	}
	return o
}
