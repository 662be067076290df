package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// A State is the immutable snapshot that decisions read: one reading of the configuration and the
// servers' offers at one moment. It is immutable, and is replaced as a whole.
type State struct {
	Config              *config.Config
	Ring                *identity.Ring
	Officers            *identity.Officers
	Catalog             *catalog.Snapshot
	declaredEquivalents *contract.Set // equivalents that the operator declares
	Offers              map[switchboard.ServerID]switchboard.Offer
	Tenants             map[switchboard.TenantID]*Tenant
	Servers             map[switchboard.ServerID]*switchboard.Server
	statusTool          *switchboard.Tool
	wholeResults        bool

	// Starting are the servers that are starting and have no known offer.
	Starting []switchboard.ServerID

	Tokens      *token.Counter
	offerTokens map[switchboard.ServerID]func() int // the tokens of all definitions that each server offers
}

// A Tenant holds everything that the decisions of one tenant's tasks need.
type Tenant struct {
	*switchboard.Tenant
	View     *catalog.View
	Pipeline decide.Pipeline
	Snapshot decide.SnapshotDigests
	Rules    *policy.Policy
	Taxonomy *switchboard.Taxonomy

	Equivalents *contract.Set // including the operator's
	Providers   *contract.ProviderSet
	answers     *boundary.Answers // of the boundaries, about what Providers provides

	// OperatorFiles and OwnFiles are the policy files that Rules were compiled from. OwnFiles is nil if
	// the tenant has no layer.
	OperatorFiles, OwnFiles []switchboard.PolicyFile
}

// An Input holds the parts that a State is made of.
type Input struct {
	Config   *config.Config
	Operator []switchboard.PolicyFile // the files of the operator's layer
	Policies map[switchboard.TenantID]*policy.Policy

	Boundaries *policy.Layer // of the registry's rows; nil if there are none

	// Gate keeps tools out by the operator's rules; nil keeps nothing out.
	Gate *policy.AdmitGate

	Local        switchboard.TenantID // the tenant of keyless callers
	WholeResults bool                 // clients get results of any length in full
	StatusTool   *switchboard.Tool    // the tool of our own that clients can always list

	// The states of one process have the same Local, Revoked and Persons.
	Revoked identity.KeyCheck  // says which keys are revoked; nil means none
	Persons *identity.SignedIn // who can call tools on the page

	Offers []switchboard.Offer

	// SameOffers says that the state before has the same offers.
	SameOffers bool

	Starting []switchboard.ServerID // see State
}

// NewState makes a State. was, if not nil, is the state before: unchanged parts are taken from it.
func NewState(in Input, was *State) *State {
	c := in.Config
	s := &State{
		Config: c, statusTool: in.StatusTool, wholeResults: in.WholeResults, Starting: in.Starting,
		Tenants: make(map[switchboard.TenantID]*Tenant, len(c.Tenants)),
	}
	mine := c.Tenants[in.Local]
	if was != nil && was.Ring != nil && c.SharesCallers(was.Config) && mine == was.Config.Tenants[in.Local] {
		s.Ring, s.Officers = was.Ring, was.Officers
	} else {
		s.Ring, s.Officers = newRing(&in, mine)
	}
	if was != nil && in.SameOffers && c.SharesOperator(was.Config) && !was.Catalog.Undecided() && sameBudgeting(c, was.Config) {
		s.Servers, s.Offers, s.Catalog, s.Tokens, s.offerTokens = was.Servers, was.Offers, was.Catalog, was.Tokens, was.offerTokens
	} else {
		s.addCatalog(&in, was)
	}
	shares := was != nil && s.Catalog == was.Catalog && c.SharesOperator(was.Config)
	if was == nil {
		was = &State{}
	}
	if s.declaredEquivalents = was.declaredEquivalents; !shares {
		s.declaredEquivalents = contract.New(s.Catalog, countingOverlays(c.Overlays, s.Catalog), s.Catalog.Heard, nil, was.declaredEquivalents)
	}
	taxonomy := canonical.SumOf(TaxonomyTerms(c.Taxonomy))
	for id, t := range c.Tenants {
		old := was.Tenants[id]
		if shares && old != nil && old.Tenant == t && old.Rules == in.Policies[id] {
			s.Tenants[id] = old
			continue
		}
		var view *catalog.View
		if shares && old != nil && slices.Equal(old.Servers, t.Servers) && len(old.Overlays)+len(t.Overlays) == 0 {
			view = old.View
		} else {
			view = s.Catalog.For(t)
		}
		var before *contract.Set
		var provided *contract.ProviderSet
		if old != nil {
			before, provided = old.Equivalents, old.Providers
		}
		provided = contract.Provide(c.Registry, c.Providers, grantedTo(t), view, s.Catalog, provided)
		s.Tenants[id] = NewTenant(t, view, provided, c.Taxonomy, taxonomy, in.Policies[id])
		s.Tenants[id].answers = boundary.NewAnswers(in.Boundaries, provided.Registry(), provided.Tools())
		s.Tenants[id].Equivalents = contract.New(view, countingOverlays(t.Overlays, s.Catalog), s.Catalog.Heard, s.declaredEquivalents, before)
		s.Tenants[id].OperatorFiles, s.Tenants[id].OwnFiles = in.Operator, c.TenantPolicies[id]
	}
	return s
}

// countingOverlays leaves out each equivalent that an overlay declares for a tool with an ended label, or that names such a tool. The tool has another meaning now, and the overlay was
// written for the old one. The overlays are those of the operator or of a tenant.
func countingOverlays(all map[switchboard.ToolID]switchboard.Overlay, c *catalog.Snapshot) map[switchboard.ToolID]switchboard.Overlay {
	hasEnded := func(id switchboard.ToolID) bool {
		_, ended := c.LabelEnd(id)
		return ended
	}
	leadsToEnded := func(e switchboard.DeclaredEquivalent) bool { return hasEnded(e.Tool) }
	var own map[switchboard.ToolID]switchboard.Overlay
	for id, o := range all {
		if len(o.Equivalents) == 0 {
			continue
		}
		switch {
		case hasEnded(id):
			o.Equivalents = nil
		case slices.ContainsFunc(o.Equivalents, leadsToEnded):
			o.Equivalents = slices.DeleteFunc(slices.Clone(o.Equivalents), leadsToEnded)
		default:
			continue
		}
		if own == nil {
			own = maps.Clone(all)
		}
		own[id] = o
	}
	if own != nil {
		return own
	}
	return all
}

// sameBudgeting reports whether isBudgeted says the same of each server by both configurations.
func sameBudgeting(a, b *config.Config) bool {
	return maps.EqualFunc(a.Tenants, b.Tenants, func(x, y *switchboard.Tenant) bool {
		return x == y || slices.Equal(x.Servers, y.Servers) && reflect.DeepEqual(x.Budgets, y.Budgets)
	})
}

// addCatalog adds what the servers offer.
func (s *State) addCatalog(in *Input, was *State) {
	c, offers := in.Config, in.Offers
	if in.SameOffers {
		offers = slices.Collect(maps.Values(was.Offers))
	}
	s.Servers, s.Offers = make(map[switchboard.ServerID]*switchboard.Server, len(c.Servers)), make(map[switchboard.ServerID]switchboard.Offer, len(offers))
	for i := range c.Servers {
		s.Servers[c.Servers[i].ID] = &c.Servers[i]
	}
	sources := make([]catalog.Source, 0, len(offers))
	for _, o := range offers {
		server := s.Servers[o.Server]
		if server == nil {
			continue // the reload that builds this state removed it
		}
		s.Offers[o.Server] = o
		src := catalog.Source{Offer: o, Class: server.Class, Trust: server.Trust, Budgeted: isBudgeted(server, c.Tenants)}
		if m, ok := c.Manifests[o.Server]; ok {
			src.Manifest = &catalog.Manifest{Name: m.Name, Data: m.Data, Fault: m.Fault}
		}
		sources = append(sources, src)
	}
	before := &catalog.Snapshot{}
	if was != nil {
		before, s.Tokens = was.Catalog, was.Tokens
	}
	var gate catalog.ToolGate
	if in.Gate != nil {
		gate = in.Gate
	}
	s.Catalog = before.RebuildBehind(gate, sources, c.Overlays, c.Taxonomy)
	if s.Tokens == nil || was.Config.Tokenizer != c.Tokenizer {
		s.Tokens = newTokenCounter(c.Tokenizer)
	}
	s.offerTokens = countOffers(s.Offers, s.Tokens)
}

// newRing returns who may call and who may manage by a configuration. mine is the local tenant; nil if all callers have keys.
func newRing(in *Input, mine *switchboard.Tenant) (*identity.Ring, *identity.Officers) {
	c := in.Config
	keys := make([]identity.Key, len(c.Keys))
	for i, k := range c.Keys {
		keys[i] = identity.Key(k)
	}
	if mine == nil {
		mine = &switchboard.Tenant{ID: in.Local} // all callers have keys
	}
	ring := identity.New(keys, mine, c.Keyless(), in.Revoked)
	people := make([]identity.OfficerKey, len(c.People))
	for i, p := range c.People {
		people[i] = identity.OfficerKey(p)
	}
	claims := make([]identity.OfficerClaim, len(c.Claims))
	for i, p := range c.Claims {
		claims[i] = identity.OfficerClaim(p)
	}
	officers := identity.NewOfficers(people, claims, in.Revoked)
	return identity.LetPersonsCall(ring, officers, in.Persons), officers
}

// isBudgeted reports whether each tenant that has the server has a budget that counts all calls of its tools. It is false if no tenant has it.
func isBudgeted(s *switchboard.Server, tenants map[switchboard.TenantID]*switchboard.Tenant) (budgeted bool) {
	for _, t := range tenants {
		if _, has := slices.BinarySearch(t.Servers, s.ID); !has {
			continue
		}
		budgeted = slices.ContainsFunc(t.Budgets, func(b *switchboard.Budget) bool {
			m := &b.Match
			return len(m.Tools)+len(m.Verbs)+len(m.Resources)+len(m.CostClasses)+len(m.Capabilities) == 0 &&
				(len(m.Classes) == 0 || slices.Contains(m.Classes, s.Class)) &&
				(len(m.Servers) == 0 || slices.ContainsFunc(m.Servers, func(pattern string) bool { return switchboard.MatchPattern(pattern, string(s.ID)) }))
		})
		if !budgeted {
			return false
		}
	}
	return budgeted
}

// NewTenant returns a tenant that decides with these policies. It has no equivalents.
func NewTenant(t *switchboard.Tenant, view *catalog.View, providers *contract.ProviderSet, tax *switchboard.Taxonomy, taxDigest switchboard.Digest, p *policy.Policy) *Tenant {
	index := matcher.New(view, providers)
	return &Tenant{
		Tenant: t,
		View:   view,

		Providers: providers,
		Pipeline: decide.Pipeline{
			index.Filter(),
			matcher.Prune(),
			admission.Stage,
			p.Stage(),
			verdict.Stage(providers.Registry()),
			ranking.New(t.Ranking, view.Named("*/*")),
			health.Stage,
		},
		Snapshot: decide.SnapshotDigests{Catalog: view.Digest(), Tenant: canonical.SumOf(t), Taxonomy: taxDigest, Policy: p.Digest(), Capabilities: providers.Digest()},
		Rules:    p,
		Taxonomy: tax,
	}
}

// TaxonomyTerms returns the form of a taxonomy that digests cover.
func TaxonomyTerms(t *switchboard.Taxonomy) any {
	parents := map[switchboard.Resource]switchboard.Resource{}
	for _, r := range t.Resources() {
		parents[r] = t.Parent(r)
	}
	return []any{parents, t.Constraints()}
}

// CurrentPrincipal returns p by the present configuration. A run can outlive the configuration that
// its principal was authenticated by.
func (s *State) CurrentPrincipal(p switchboard.Principal) (switchboard.Principal, error) {
	return s.Ring.Current(p)
}

// ServedTenant returns the tenant of a principal, or an error if it is not served.
func (s *State) ServedTenant(id switchboard.TenantID) (*Tenant, error) {
	switch t := s.Tenants[id]; {
	case t != nil:
		return t, nil
	case s.Config.Refused[id]:
		err := switchboard.Refuse(switchboard.CodeConfig, "tenant %q is not served, because its configuration is faulty", id)
		err.Hint = "the owner of the tenant's files finds the faults with: switchboard validate"
		return nil, err
	}
	return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "tenant %q is not served here", id)
}

// ResolveTask returns the task that p means; see run.Binder.
func (s *State) ResolveTask(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	p, err := s.CurrentPrincipal(p)
	if err != nil {
		return "", err
	}
	t, err := s.ServedTenant(p.Tenant)
	if err != nil {
		return "", err
	}
	if task == "" {
		return t.DefaultTask, nil
	}
	_, exists := t.Tasks[task]
	may := slices.Contains(p.Tasks, task) || // its key names it
		len(p.Tasks) == 0 && (p.Auth == switchboard.AuthLocal || task == t.DefaultTask)
	if !exists || !may {
		err := switchboard.Refuse(switchboard.CodeNoSuchTask, "there is no task %.40q for you", task)
		if mine := t.TaskNames(p); len(mine) > 0 {
			err.Hint = "your tasks are " + strings.Join(mine, ", ")
		}
		return "", err
	}
	return task, nil
}

// PresentTool returns the tool as calls of the task use it now: under the contract if the task requires a named capability that it
// provides. A tool that is not offered any more has only its id.
func (t *Tenant) PresentTool(task switchboard.TaskID, id switchboard.ToolID) *switchboard.Tool {
	if of := t.Tasks[task]; of != nil {
		for i := range of.Requirements {
			if v := t.Providers.Version(refOf(&of.Requirements[i])); v != nil {
				if called := t.Providers.Called(v.Name(), id); called != nil {
					return called
				}
			}
		}
	}
	if tool, ok := t.View.Tool(id); ok {
		return tool
	}
	return &switchboard.Tool{ID: id}
}

// refOf returns the named capability of a requirement; the zero Ref if it has none.
func refOf(r *switchboard.Requirement) capability.Ref {
	ref, err := capability.ParseRef(r.Capability)
	if err != nil {
		return capability.Ref{}
	}
	return ref
}

// TaskIDs returns all tasks, sorted.
func (t *Tenant) TaskIDs() []switchboard.TaskID { return slices.Sorted(maps.Keys(t.Tasks)) }

// TaskNames returns the tasks that p may bind, sorted, but no more than 20.
func (t *Tenant) TaskNames(p switchboard.Principal) (names []string) {
	const most = 20
	for id := range t.Tasks {
		if slices.Contains(p.Tasks, id) || len(p.Tasks) == 0 && (p.Auth == switchboard.AuthLocal || id == t.DefaultTask) {
			names = append(names, string(id))
		}
	}
	slices.Sort(names)
	return names[:min(len(names), most)]
}

// DecideConfigured decides for a configured task that resolveTask returned. It checks the principal
// and the task by the present configuration.
func (s *State) DecideConfigured(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, seen decide.Observed, now time.Time) (*decide.Decision, error) {
	p, err := s.CurrentPrincipal(p)
	if err != nil {
		return nil, err
	}
	t := s.Tenants[p.Tenant]
	if t == nil || t.Tasks[task] == nil {
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "there is no task %.40q for you", task)
	}
	return t.RunPipeline(ctx, p, t.Tasks[task], seen, now)
}

// DecideTask decides for a task that a client has declared, or that people have added to, within the operator's
// limits.
func (s *State) DecideTask(ctx context.Context, p switchboard.Principal, task *switchboard.Task, seen decide.Observed, now time.Time) (*decide.Decision, error) {
	p, err := s.CurrentPrincipal(p)
	if err != nil {
		return nil, err
	}
	t, err := s.ServedTenant(p.Tenant)
	if err != nil {
		return nil, err
	}
	if base, _ := splitAdded(task); task.ID == switchboard.DeclaredTask && len(base.Requirements) > 0 {
		if err := checkMayDeclare(p); err != nil {
			return nil, err
		}
	}
	allowed, err := t.AllowedTask(task)
	if err != nil {
		return nil, err
	}
	if allowed == nil {
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "there is no task %.40q for you", task.ID)
	}
	return t.RunPipeline(ctx, p, allowed, seen, now)
}

// decideRun decides for the task of a run, with what people have added to it.
func (s *State) decideRun(ctx context.Context, p switchboard.Principal, id switchboard.TaskID, was run.Before, seen decide.Observed) (*decide.Decision, error) {
	task, now := was.Declared, time.Now()
	t := s.Tenants[p.Tenant]
	if len(was.Added) > 0 && t != nil {
		if task == nil {
			task = cmp.Or(t.Tasks[id], &switchboard.Task{ID: cmp.Or(id, switchboard.DeclaredTask)})
		}
		task = lazyexpand.AddRequested(task, was.Added, t.Request, t.Taxonomy, t.FindNamed)
	}
	if task == nil || t != nil && task == t.Tasks[id] {
		return s.DecideConfigured(ctx, p, id, seen, now)
	}
	return s.DecideTask(ctx, p, task, seen, now)
}

// RunPipeline runs the stages for one task of the tenant, without any check of the principal.
func (t *Tenant) RunPipeline(ctx context.Context, p switchboard.Principal, task *switchboard.Task, seen decide.Observed, now time.Time) (*decide.Decision, error) {
	in := decide.Input{Tenant: t.Tenant, Principal: p, Task: task, Snapshot: t.Snapshot, Unfit: t.ownUnfit(seen.Unfit), Atoms: t.ownAtoms(task, seen.Atoms)}
	if t.Rules.ReadsClock() {
		in.Now = now
	}
	d, err := t.Pipeline.Decide(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("tenant %s, task %s: %w", t.ID, task.ID, err)
	}
	return d, nil
}

// bindTask decides for a task, passes the decision to record, and returns its surface; see
// run.Binder. ailing are the servers and tools that are not healthy.
func (s *State) bindTask(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before, seen decide.Observed, ailing map[switchboard.ToolID]health.State, serverInfo []byte, record RecordDecision) (*surface.Surface, error) {
	d, err := s.decideRun(ctx, p, task, was, seen)
	if err != nil {
		return nil, err
	}
	// whileWaiting shows our own tools until a server has answered, or a person has connected one.
	whileWaiting := func(away lazyexpand.AwayServers) *surface.Surface {
		instructions := lazyexpand.Instructions(nil, away, nil, nil, 0, s.Tokens.Count)
		return surface.New(surface.Input{Own: []*switchboard.Tool{s.statusTool}, ServerInfo: serverInfo, Instructions: instructions})
	}
	t := s.Tenants[p.Tenant]
	away := lazyexpand.AwayServers{Unconnected: t.awaitingConnection(ailing)}
	if d.Err() != nil {
		away.Failed = s.failed(t, ailing)
		if away.Starting = t.OwnServers(s.Starting); len(away.Starting) > 0 {
			return whileWaiting(away), &run.Waiting{Task: d.Task.ID, Servers: away.Starting}
		}
	}
	var shown *surface.Surface
	var decided func() Record
	if err = d.Err(); err == nil {
		shown, err = s.MakeSurface(d, was.Surface, serverInfo, 0, func() (decision, basis switchboard.Digest) {
			was := decided()
			return was.Decision, was.Basis
		})
	}
	unmet, waits := errors.AsType[*switchboard.Error](err)
	if waits = waits && unmet.Code == switchboard.CodeUnmet && len(away.Unconnected)+len(away.Failed) > 0; waits {
		unmet.Hint = hintOfAway(away, unmet.Hint)
	}
	if decided = record(t, d, err); err != nil {
		err = switchboard.WithReceipt(err, decided().Receipt)
	}
	if told, ok := errors.AsType[*switchboard.Error](err); ok && waits {
		return whileWaiting(away), &run.Waiting{Task: d.Task.ID, Unmet: told} // a client that is refused would not come again
	}
	if err != nil {
		return nil, err
	}
	return s.collapseDenied(ctx, p, shown), nil
}

// hintOfAway says which servers may meet a requirement later.
func hintOfAway(away lazyexpand.AwayServers, otherwise string) string {
	if len(away.Unconnected) > 0 {
		return fmt.Sprintf("a server may have it that demands a sign-in first; the operator connects it with: switchboard server connect %s", away.Unconnected[0])
	}
	return fmt.Sprintf("no answer yet from servers that may have it: %s; Switchboard tries them again by itself; the operator sees why with: switchboard status; %s", lazyexpand.JoinServers(away.Failed), otherwise)
}

// collapseDenied returns the surface without the expansions that policy denies now.
func (s *State) collapseDenied(ctx context.Context, p switchboard.Principal, shown *surface.Surface) *surface.Surface {
	if len(shown.Expanded()) == 0 {
		return shown
	}
	p, err := s.CurrentPrincipal(p)
	if err != nil {
		return shown // the principal cannot call anything
	}
	var entries []surface.Entry
	for _, e := range shown.Entries() {
		if e.Expanded != nil {
			entries = append(entries, e)
		}
	}
	denied := PermitEntries(ctx, s.Tenants[p.Tenant].Rules, lazyexpand.PhaseExpand, p, entries)
	var left []*surface.Expansion
	for _, x := range shown.Expanded() {
		i := slices.IndexFunc(entries, func(e surface.Entry) bool { return e.Expanded == x })
		if denied[i] == nil {
			left = append(left, x)
		}
	}
	if len(left) == len(shown.Expanded()) {
		return shown
	}
	return shown.WithExpanded(left, shown.Withheld())
}

// WholeOffers returns the offers of the servers that the decision uses as a whole.
func (s *State) WholeOffers(id switchboard.TenantID, d *decide.Decision) []switchboard.Offer {
	var toolless []switchboard.ServerID
	for _, server := range s.Tenants[id].Servers {
		if o, ok := s.Offers[server]; ok && len(o.Tools) == 0 {
			toolless = append(toolless, server)
		}
	}
	var offers []switchboard.Offer
	for _, use := range decide.Whole(d.Task, d.Selected, toolless) {
		o := s.Offers[use.Server]
		if !use.Named {
			o = surface.WithoutExtensions(o)
		}
		offers = append(offers, o)
	}
	return offers
}

// OwnServers returns the servers of the list that the tenant may use.
func (t *Tenant) OwnServers(servers []switchboard.ServerID) (own []switchboard.ServerID) {
	for _, id := range servers {
		if t.MayUseServer(id) {
			own = append(own, id)
		}
	}
	return own
}

// MayUseServer reports whether the tenant may use the server.
func (t *Tenant) MayUseServer(id switchboard.ServerID) bool {
	_, ok := slices.BinarySearch(t.Servers, id)
	return ok
}
