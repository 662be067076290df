package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
)

// A servingState is everything that a decision reads: one reading of the configuration and the
// servers' offers at one moment. It is immutable, and is replaced as a whole.
type servingState struct {
	*loadedConfig
	ring                *identity.Ring
	catalog             *catalog.Snapshot
	declaredEquivalents *contract.Set // equivalents that the operator declares
	offers              map[switchboard.ServerID]switchboard.Offer
	tenants             map[switchboard.TenantID]*servedTenant
	servers             map[switchboard.ServerID]*switchboard.Server
	wholeResults        bool // clients get results of any length in full

	// starting are the servers that are starting and have no known offer.
	starting []switchboard.ServerID

	tokens *token.Counter
}

// A servedTenant holds everything that the decisions of one tenant's tasks need.
type servedTenant struct {
	*switchboard.Tenant
	view     *catalog.View
	pipeline decide.Pipeline
	snapshot decide.Snapshot
	policy   *policy.Policy
	taxonomy *switchboard.Taxonomy

	equivalents *contract.Set // including the operator's

	basisTexts func() basisTexts // the basis of decisions, for the archive
}

// newState builds the state of this App.
func (a *App) newState(r *loadedConfig, offers []switchboard.Offer, starting []switchboard.ServerID, was *servingState) *servingState {
	s := newServingState(r, a.options.Tenant, offers, starting, was)
	s.wholeResults = a.options.WholeResults
	return s
}

// newServingState builds a state. was, if not nil, is the state before: unchanged parts are taken
// from it.
func newServingState(r *loadedConfig, local switchboard.TenantID, offers []switchboard.Offer, starting []switchboard.ServerID, was *servingState) *servingState {
	c := r.config
	s := &servingState{loadedConfig: r, servers: map[switchboard.ServerID]*switchboard.Server{}, starting: starting, offers: map[switchboard.ServerID]switchboard.Offer{}, tenants: map[switchboard.TenantID]*servedTenant{}}
	keys := make([]identity.Key, len(c.Keys))
	for i, k := range c.Keys {
		keys[i] = identity.Key(k)
	}
	mine := c.Tenants[local]
	if mine == nil {
		mine = &switchboard.Tenant{ID: local} // all callers have keys
	}
	s.ring = identity.New(keys, mine, c.Keyless())

	for i := range c.Servers {
		s.servers[c.Servers[i].ID] = &c.Servers[i]
	}
	var sources []catalog.Source
	for _, o := range offers {
		server := s.servers[o.Server]
		if server == nil {
			continue // the reload that builds this state removed it
		}
		s.offers[o.Server] = o
		src := catalog.Source{Offer: o, Class: server.Class, Trust: server.Trust}
		if m, ok := c.Manifests[o.Server]; ok {
			src.Manifest = &catalog.Manifest{Name: m.Name, Data: m.Data, Fault: m.Fault}
		}
		sources = append(sources, src)
	}
	if was == nil {
		s.catalog = catalog.Build(sources, c.Overlays, c.Taxonomy)
	} else {
		s.catalog = was.catalog.Rebuild(sources, c.Overlays, c.Taxonomy)
	}
	if was == nil {
		was = &servingState{}
	}
	if s.tokens = was.tokens; s.tokens == nil || was.config.Tokenizer != c.Tokenizer {
		s.tokens = newTokenCounter(c.Tokenizer)
	}
	s.declaredEquivalents = contract.New(s.catalog, c.Overlays, s.catalog.Heard, nil, was.declaredEquivalents)
	taxonomy := digestJSON(taxonomyTerms(c.Taxonomy))
	for id, t := range c.Tenants {
		view := s.catalog.For(t)
		s.tenants[id] = newServedTenant(t, view, c.Taxonomy, taxonomy, r.policies[id])
		var before *contract.Set
		if old := was.tenants[id]; old != nil {
			before = old.equivalents
		}
		s.tenants[id].equivalents = contract.New(view, t.Overlays, s.catalog.Heard, s.declaredEquivalents, before)
		s.tenants[id].basisTexts = sync.OnceValue(func() basisTexts { return r.basisTexts(s.tenants[id]) })
	}
	return s
}

func newServedTenant(t *switchboard.Tenant, view *catalog.View, tax *switchboard.Taxonomy, taxDigest switchboard.Digest, p *policy.Policy) *servedTenant {
	index := matcher.New(view)
	return &servedTenant{
		Tenant: t,
		view:   view,
		pipeline: decide.Pipeline{
			index.Filter(),
			matcher.Prune(),
			p.Stage(),
			ranking.New(t.Ranking, view.Named("*/*")),
			health.Stage,
		},
		snapshot: decide.Snapshot{Catalog: view.Digest(), Tenant: digestJSON(t), Taxonomy: taxDigest, Policy: p.Digest()},
		policy:   p,
		taxonomy: tax,
	}
}

// taxonomyTerms returns the form of a taxonomy that digests cover.
func taxonomyTerms(t *switchboard.Taxonomy) any {
	parents := map[switchboard.Resource]switchboard.Resource{}
	for _, r := range t.Resources() {
		parents[r] = t.Parent(r)
	}
	return []any{parents, t.Constraints()}
}

// digestJSON returns a digest of v's JSON.
func digestJSON(v any) switchboard.Digest { return canonical.Sum(encodeJSON(v)) }

// currentPrincipal returns p by the present configuration. A run can outlive the configuration that
// its principal was authenticated by.
func (s *servingState) currentPrincipal(p switchboard.Principal) (switchboard.Principal, error) {
	return s.ring.Current(p)
}

// tenant returns the tenant of a principal, or an error if it is not served.
func (s *servingState) tenant(id switchboard.TenantID) (*servedTenant, error) {
	switch t := s.tenants[id]; {
	case t != nil:
		return t, nil
	case s.config.Refused[id]:
		err := switchboard.Refuse(switchboard.CodeConfig, "tenant %q is not served, because its configuration is faulty", id)
		err.Hint = "the owner of the tenant's files finds the faults with: switchboard validate"
		return nil, err
	}
	return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "tenant %q is not served here", id)
}

// resolveTask returns the task that p means; see run.Binder.
func (s *servingState) resolveTask(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	p, err := s.currentPrincipal(p)
	if err != nil {
		return "", err
	}
	t, err := s.tenant(p.Tenant)
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
		if mine := t.taskNames(p); len(mine) > 0 {
			err.Hint = "your tasks are " + strings.Join(mine, ", ")
		}
		return "", err
	}
	return task, nil
}

// taskNames returns the tasks that p may bind, sorted, but no more than 20.
func (t *servedTenant) taskNames(p switchboard.Principal) (names []string) {
	const most = 20
	for id := range t.Tasks {
		if slices.Contains(p.Tasks, id) || len(p.Tasks) == 0 && (p.Auth == switchboard.AuthLocal || id == t.DefaultTask) {
			names = append(names, string(id))
		}
	}
	slices.Sort(names)
	return names[:min(len(names), most)]
}

// decideConfigured decides for a configured task that resolveTask returned. It checks the principal
// and the task by the present configuration.
func (s *servingState) decideConfigured(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, unfit decide.Unfit, now time.Time) (*decide.Decision, error) {
	p, err := s.currentPrincipal(p)
	if err != nil {
		return nil, err
	}
	t := s.tenants[p.Tenant]
	if t == nil || t.Tasks[task] == nil {
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "there is no task %.40q for you", task)
	}
	return t.runPipeline(ctx, p, t.Tasks[task], unfit, now)
}

// decideTask decides for the declared task if it is not nil, within the operator's limits, and for
// the configured task otherwise.
func (s *servingState) decideTask(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, declared *switchboard.Task, unfit decide.Unfit, now time.Time) (*decide.Decision, error) {
	if declared == nil {
		return s.decideConfigured(ctx, p, task, unfit, now)
	}
	p, err := s.currentPrincipal(p)
	if err != nil {
		return nil, err
	}
	t, err := s.tenant(p.Tenant)
	if err != nil {
		return nil, err
	}
	if err := checkMayDeclare(p); err != nil {
		return nil, err
	}
	if declared, err = t.allowedTask(declared); err != nil {
		return nil, err
	}
	return t.runPipeline(ctx, p, declared, unfit, now)
}

// runPipeline runs the stages for one task of the tenant, without any check of the principal.
func (t *servedTenant) runPipeline(ctx context.Context, p switchboard.Principal, task *switchboard.Task, unfit decide.Unfit, now time.Time) (*decide.Decision, error) {
	in := decide.Input{Tenant: t.Tenant, Principal: p, Task: task, Snapshot: t.snapshot, Unfit: t.ownUnfit(unfit)}
	if t.policy.ReadsClock() {
		in.Now = now
	}
	d, err := t.pipeline.Decide(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("tenant %s, task %s: %w", t.ID, task.ID, err)
	}
	return d, nil
}

// bindTask decides for a task, passes the decision to record, and returns its surface; see
// run.Binder.
func (s *servingState) bindTask(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before, unfit decide.Unfit, serverInfo []byte, record func(*servedTenant, *decide.Decision, error) func() lastRecord) (*surface.Surface, error) {
	d, err := s.decideTask(ctx, p, task, was.Declared, unfit, time.Now())
	if err != nil {
		return nil, err
	}
	if d.Err() != nil {
		if servers := s.tenants[p.Tenant].ownServers(s.starting); len(servers) > 0 {
			instructions := lazyexpand.Instructions(nil, servers, nil, nil, 0, s.tokens.Count)
			return surface.New(surface.Input{Own: []*switchboard.Tool{gateway.Status}, Info: serverInfo, Instructions: instructions}), &run.Starting{Task: d.Task.ID, Servers: servers}
		}
	}
	var shown *surface.Surface
	var decided func() lastRecord
	if err = d.Err(); err == nil {
		shown, err = s.makeSurface(d, was.Surface, serverInfo, 0, func() (decision, basis switchboard.Digest) {
			was := decided()
			return was.digest, was.basis
		})
	}
	if decided = record(s.tenants[p.Tenant], d, err); err != nil {
		return nil, switchboard.Receipted(err, decided().receipt)
	}
	return s.collapseDenied(ctx, p, shown), nil
}

// collapseDenied returns the surface without the expansions that policy denies now.
func (s *servingState) collapseDenied(ctx context.Context, p switchboard.Principal, shown *surface.Surface) *surface.Surface {
	if len(shown.Expanded()) == 0 {
		return shown
	}
	p, err := s.currentPrincipal(p)
	if err != nil {
		return shown // the principal cannot call anything
	}
	var entries []surface.Entry
	for _, e := range shown.Entries() {
		if e.Expanded != nil {
			entries = append(entries, e)
		}
	}
	denied := permitWith(ctx, s.tenants[p.Tenant].policy, lazyexpand.PhaseExpand, p, entries)
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
	return shown.With(left, shown.Withheld())
}

// wholeOffers returns the offers of the servers that the decision uses as a whole.
func (s *servingState) wholeOffers(id switchboard.TenantID, d *decide.Decision) []switchboard.Offer {
	var toolless []switchboard.ServerID
	for _, server := range s.tenants[id].Servers {
		if o, ok := s.offers[server]; ok && len(o.Tools) == 0 {
			toolless = append(toolless, server)
		}
	}
	var offers []switchboard.Offer
	for _, use := range decide.Whole(d.Task, d.Selected, toolless) {
		o := s.offers[use.Server]
		if !use.Named {
			o = surface.WithoutExtensions(o)
		}
		offers = append(offers, o)
	}
	return offers
}

// ownServers returns the servers of the list that the tenant may use.
func (t *servedTenant) ownServers(servers []switchboard.ServerID) (own []switchboard.ServerID) {
	for _, id := range servers {
		if t.mayUseServer(id) {
			own = append(own, id)
		}
	}
	return own
}

// mayUseServer reports whether the tenant may use the server.
func (t *servedTenant) mayUseServer(id switchboard.ServerID) bool {
	_, ok := slices.BinarySearch(t.Servers, id)
	return ok
}
