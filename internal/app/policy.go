package app

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/policies"
)

// A reading is one reading of all files, and what was checked and made of them
// before anything live is touched.
type reading struct {
	config   *config.Config
	when     time.Time
	faulty   map[string]time.Time // by name of a part, since which reading it is
	layers   *layers
	policies map[switchboard.TenantID]*policy.Policy
	since    map[switchboard.TenantID]time.Time // of which reading each of the policies is
	digest   switchboard.Digest                 // see sum
}

// configurationKey is for what the replicas' key for digests of configurations is.
const configurationKey = "digests of configurations"

// sum is the digest of all that replicas have to have in common, so that they can be
// compared: what the files say, but for the addresses and paths that are each replica's
// own. It covers secrets that could be guessed, and so is made with a key that nobody else
// has.
func (r *reading) sum(key []byte) switchboard.Digest {
	c := *r.config
	values, manifests, judges := map[string]string{}, map[switchboard.ServerID]switchboard.Digest{}, map[switchboard.TenantID]switchboard.Digest{}
	for _, s := range c.Servers {
		for name, v := range s.Headers {
			values[fmt.Sprintf("%s header %s", s.ID, name)] = v.Reveal()
		}
		for name, v := range s.Env {
			values[fmt.Sprintf("%s variable %s", s.ID, name)] = v.Reveal()
		}
	}
	for id, m := range c.Manifests {
		manifests[id] = canonical.Sum(m.Data)
	}
	for id, p := range r.policies {
		judges[id] = p.Digest()
	}
	all := []any{values, manifests, judges, terms(c.Taxonomy)}
	c.Manifests, c.Policies, c.TenantPolicies, c.Taxonomy = nil, nil, nil, nil
	c.Faulty, c.Warnings = nil, nil // they name files of this machine
	c.Listen, c.Cluster, c.Store.URL, c.Receipts.Anchor, c.Watch = "", config.Cluster{}, switchboard.Secret{}, "", nil
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(encode(append(all, c))) // it never fails
	return canonical.Sum(mac.Sum(nil))
}

// inherit notes which policies are those of the reading before, and which parts were faulty in it.
func (r *reading) inherit(was *reading) {
	for name := range r.faulty {
		if since, ok := was.faulty[name]; ok {
			r.faulty[name] = since
		}
	}
	for id, p := range r.policies {
		if before := was.policies[id]; before != nil && before.Digest() == p.Digest() {
			r.since[id] = was.since[id]
		}
	}
}

// status says which policies the tenant has, "" meaning all of them.
func (r *reading) status(id switchboard.TenantID) []PolicyStatus {
	all := []PolicyStatus{}
	for _, t := range slices.Sorted(maps.Keys(r.policies)) {
		if id == "" || id == t {
			all = append(all, PolicyStatus{t, r.policies[t].Digest(), r.since[t]})
		}
	}
	return all
}

// Check loads a configuration and reports every fault of it, also those that leave the rest as it
// is, and those of its policies. The error is switchboard.Faults.
func Check(ctx context.Context, load func(context.Context, config.Options) (*config.Config, error)) (*config.Config, error) {
	l := newLayers(nil)
	c, err := load(ctx, config.Options{CheckPolicies: l.check})
	if err != nil {
		return nil, err
	}
	_, err = read(c, policy.NewEngine(0, 0), l)
	if parts, ok := errors.AsType[switchboard.Faults](c.Err()); ok {
		found, _ := errors.AsType[switchboard.Faults](err)
		return nil, append(parts, found...)
	}
	return c, err
}

// layers are the compiled layers of policy of one reading. A layer whose files are those of the
// reading before is not compiled again.
type layers struct {
	was, now map[switchboard.TenantID]compiled // "" is the operator
}

// compiled are files and the layer that they make.
type compiled struct {
	files []switchboard.PolicyFile
	layer *policy.Layer
}

func newLayers(was *layers) *layers {
	l := &layers{now: map[switchboard.TenantID]compiled{}}
	if was != nil {
		l.was = was.now
	}
	return l
}

// compile returns the layer of a tenant, or, for "", the operator's. The error is switchboard.Faults.
func (l *layers) compile(id switchboard.TenantID, files []switchboard.PolicyFile) (*policy.Layer, error) {
	for _, known := range []compiled{l.now[id], l.was[id]} {
		if known.layer != nil && slices.EqualFunc(known.files, files, samePolicyFile) {
			l.now[id] = known
			return known.layer, nil
		}
	}
	kind := policy.Tenant
	if id == "" {
		kind = policy.Operator
	}
	layer, err := policy.Compile(kind, files)
	if err != nil {
		if _, ok := errors.AsType[switchboard.Faults](err); !ok {
			err = switchboard.Faults{{File: "policies", Text: err.Error()}}
		}
		return nil, err
	}
	l.now[id] = compiled{files, layer}
	return layer, nil
}

// check is config.Options.CheckPolicies.
func (l *layers) check(id switchboard.TenantID, files []switchboard.PolicyFile) error {
	_, err := l.compile(id, files)
	return err
}

func samePolicyFile(a, b switchboard.PolicyFile) bool {
	return a.Name == b.Name && a.Path == b.Path && bytes.Equal(a.Data, b.Data)
}

// read makes the policy of every tenant. The error is switchboard.Faults: all that
// there are, of all layers.
func read(c *config.Config, engine *policy.Engine, l *layers) (*reading, error) {
	files := c.Policies
	if files == nil {
		files = shipped()
	}
	var faults switchboard.Faults
	layer := func(id switchboard.TenantID, files []switchboard.PolicyFile) *policy.Layer {
		layer, err := l.compile(id, files)
		if found, ok := errors.AsType[switchboard.Faults](err); ok {
			faults = append(faults, found...)
		}
		return layer
	}
	operator := layer("", files)
	r := &reading{config: c, when: time.Now(), faulty: map[string]time.Time{}, layers: l, policies: map[switchboard.TenantID]*policy.Policy{}, since: map[switchboard.TenantID]time.Time{}}
	for _, p := range c.Faulty {
		r.faulty[p.Name] = r.when
	}
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		var own *policy.Layer
		if files, ok := c.TenantPolicies[id]; ok {
			own = layer(id, files)
		}
		if len(faults) > 0 {
			continue
		}
		p, err := engine.New(c.Tenants[id], operator, own)
		if err != nil {
			return nil, err
		}
		r.policies[id], r.since[id] = p, r.when
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return r, nil
}

// shipped are the files of the operator's layer where there are none.
func shipped() (files []switchboard.PolicyFile) {
	names, err := fs.Glob(policies.Shipped, "*")
	if err != nil {
		panic(err) // the pattern is good
	}
	for _, name := range names {
		text, err := policies.Shipped.ReadFile(name)
		if err != nil {
			panic(err) // it is in the binary
		}
		files = append(files, switchboard.PolicyFile{Name: "policies/" + name, Path: name, Data: text})
	}
	return files
}

// current is what decides about calls; see policy.Current.
func (a *App) current(p switchboard.Principal) (switchboard.Principal, *policy.Policy, error) {
	s := a.state.Load()
	p, err := s.current(p)
	if err != nil {
		return p, nil, err
	}
	t, err := s.tenant(p.Tenant)
	if err != nil {
		return p, nil, err
	}
	return p, t.policy, nil
}

// cleans reports whether the operator wants a server's results cleaned (results: clean).
func (a *App) cleans(id switchboard.ServerID) bool {
	s := a.state.Load().servers[id]
	return s != nil && s.CleanResults
}

// mayAsk says whether the client of a call may be asked something by the call's server. It is a question.Permit.
func (a *App) mayAsk(ctx context.Context, c *switchboard.Call, method string, params []byte) error {
	who, p, err := a.current(c.Principal)
	if err != nil {
		return err
	}
	own := *c
	own.Principal = who
	return p.PermitAsk(ctx, &own, policy.Ask{Method: method, Params: params}, time.Now())
}

// subscribe is the fleet's, where policy has nothing against it.
func (a *App) subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	who, p, err := a.current(c.Principal)
	if err != nil {
		return nil, err
	}
	own := *c
	own.Principal = who
	now := time.Now()
	r := p.Rule(ctx, &own, now)
	if r.Asked || r.Err != nil {
		a.noteRuling(&own, p, now, r)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return a.fleet.Subscribe(ctx, c, updated)
}
