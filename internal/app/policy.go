package app

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

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
	policies map[switchboard.TenantID]*policy.Policy
	since    map[switchboard.TenantID]time.Time // of which reading each of the policies is
}

// inherit notes which policies are those of the reading before.
func (r *reading) inherit(was *reading) {
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

// CheckPolicies compiles the policies of a configuration, as New does. The error
// is config.Faults.
func CheckPolicies(c *config.Config) error {
	_, err := read(c, policy.NewEngine(0, 0))
	return err
}

// read makes the policy of every tenant. The error is config.Faults: all that
// there are, of all layers.
func read(c *config.Config, engine *policy.Engine) (*reading, error) {
	files := c.Policies
	if files == nil {
		files = shipped()
	}
	var faults config.Faults
	layer := func(kind policy.Kind, files []switchboard.PolicyFile) *policy.Layer {
		l, err := policy.Compile(kind, files)
		var found policy.Faults
		switch {
		case errors.As(err, &found):
			for _, f := range found {
				faults = append(faults, config.Fault{File: f.File, Line: f.Line, Column: f.Column, Text: f.Text})
			}
		case err != nil:
			faults = append(faults, config.Fault{File: "policies", Text: err.Error()})
		}
		return l
	}
	operator := layer(policy.Operator, files)
	r := &reading{config: c, when: time.Now(), policies: map[switchboard.TenantID]*policy.Policy{}, since: map[switchboard.TenantID]time.Time{}}
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		var own *policy.Layer
		if files, ok := c.TenantPolicies[id]; ok {
			own = layer(policy.Tenant, files)
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
	t := s.tenants[p.Tenant]
	if t == nil {
		return p, nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "tenant %q is not served here", p.Tenant)
	}
	return p, t.policy, nil
}

// subscribe is the fleet's, where policy has nothing against it.
func (a *App) subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	who, p, err := a.current(c.Principal)
	if err != nil {
		return nil, err
	}
	own := *c
	own.Principal = who
	if err := p.Permit(ctx, &own); err != nil {
		return nil, err
	}
	return a.fleet.Subscribe(ctx, c, updated)
}
