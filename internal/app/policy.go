package app

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/watch"
)

// A loadedConfig is one reading of all files, with everything that is checked and compiled before
// anything live is changed.
type loadedConfig struct {
	config       *config.Config
	read         *watch.ReadFiles // the files; nil if this is a trial
	loadedAt     time.Time
	faultySince  map[string]time.Time // by the name of the part, the reading that found it faulty first
	layers       *compiledLayers
	operator     []switchboard.PolicyFile // of the operator's layer: the shipped ones if the configuration has none
	boundaries   *policy.Layer            // nil if there are none
	gate         *policy.AdmitGate        // nil if no rule keeps anything out
	policies     map[switchboard.TenantID]*policy.Policy
	verification *policy.Policy                     // for calls that verify tools: the operator's layers
	policySince  map[switchboard.TenantID]time.Time // the reading that brought each of the policies
	digest       switchboard.Digest                 // see digestWith
}

// configurationKeyPurpose is the purpose of the replicas' key for digests of configurations.
const configurationKeyPurpose = "digests of configurations"

// digestWith returns a digest of everything that replicas must have in common, so that they can be
// compared: the content of the files without the addresses and paths that belong to one replica. It
// covers secrets that could be guessed, so it needs a key that only the replicas have.
func (r *loadedConfig) digestWith(key []byte) switchboard.Digest {
	c := *r.config
	values, manifests, judges := map[string]string{}, map[switchboard.ServerID]switchboard.Digest{}, map[switchboard.TenantID]switchboard.Digest{}
	for _, s := range c.Servers {
		for name, v := range s.Headers {
			values[fmt.Sprintf("%s header %s", s.ID, name)] = v.Reveal()
		}
		for name, v := range s.Env {
			values[fmt.Sprintf("%s variable %s", s.ID, name)] = v.Reveal()
		}
		if v := s.Network.Proxy.Reveal(); v != "" {
			values[fmt.Sprintf("%s proxy", s.ID)] = v
		}
	}
	for id, m := range c.Manifests {
		manifests[id] = canonical.Sum(m.Data)
	}
	for id, p := range r.policies {
		judges[id] = p.Digest()
	}
	for _, to := range c.Recipients {
		values["recipient "+to.Name] = to.URL.Reveal() + " " + to.Secret.Reveal()
	}
	all := []any{values, manifests, judges, bind.TaxonomyTerms(c.Taxonomy), c.Pins()}
	c.Manifests, c.Policies, c.TenantPolicies, c.Taxonomy = nil, nil, nil, nil
	c.Faulty, c.Warnings = nil, nil // they name files of this machine
	c.TLS = config.CertificateFiles{}
	c.Listen, c.Cluster, c.Store.URL, c.Receipts.Anchor, c.Watch, c.Folder = "", config.Cluster{}, switchboard.Secret{}, "", nil, ""
	c.Admin = config.Admin{}          // each replica has its own address
	c.Variables, c.Secrets = nil, nil // their values count, in the places that refer to them
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(canonical.Encode(append(all, c))) // it never fails
	return canonical.Sum(mac.Sum(nil))
}

// inheritTimes keeps the times of was for policies that have not changed and for parts that were
// faulty before.
func (r *loadedConfig) inheritTimes(was *loadedConfig) {
	for name := range r.faultySince {
		if since, ok := was.faultySince[name]; ok {
			r.faultySince[name] = since
		}
	}
	for id, p := range r.policies {
		if before := was.policies[id]; before != nil && before.Digest() == p.Digest() {
			r.policySince[id] = was.policySince[id]
		}
	}
}

// Check loads a configuration and reports every fault in it, also those that affect only one part,
// and those of its policies. The error is switchboard.Faults.
func Check(ctx context.Context, load func(context.Context, config.Options) (*config.Config, error)) (*config.Config, error) {
	l := newCompiledLayers(nil)
	c, err := load(ctx, config.Options{CheckPolicies: l.check})
	if err != nil {
		return nil, err
	}
	_, err = compilePolicies(c, policy.NewEngine(0, 0), l, nil)
	c.Warnings = append(c.Warnings, bind.FlowWarnings(c)...)
	if parts, ok := errors.AsType[switchboard.Faults](c.Err()); ok {
		found, _ := errors.AsType[switchboard.Faults](err)
		return nil, append(parts, found...)
	}
	return c, err
}

// compiledLayers are the policy layers of one reading. A layer with the same files as in the
// reading before is not compiled again.
type compiledLayers struct {
	was, now map[switchboard.TenantID]compiledLayer // "" is the operator
}

// A compiledLayer is a layer and the files that it was compiled from.
type compiledLayer struct {
	files []switchboard.PolicyFile
	layer *policy.Layer
}

func newCompiledLayers(was *compiledLayers) *compiledLayers {
	l := &compiledLayers{now: map[switchboard.TenantID]compiledLayer{}}
	if was != nil {
		l.was = was.now
	}
	return l
}

// compile returns the layer of a tenant; "" means the operator. The error is switchboard.Faults.
func (l *compiledLayers) compile(id switchboard.TenantID, files []switchboard.PolicyFile) (*policy.Layer, error) {
	for _, known := range []compiledLayer{l.now[id], l.was[id]} {
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
	l.now[id] = compiledLayer{files, layer}
	return layer, nil
}

// keep returns the layer that the tenant had in the reading before, and still has; nil if it had none.
func (l *compiledLayers) keep(id switchboard.TenantID) *policy.Layer {
	known, ok := l.was[id]
	if ok {
		l.now[id] = known
	}
	return known.layer
}

// check is config.Options.CheckPolicies.
func (l *compiledLayers) check(id switchboard.TenantID, files []switchboard.PolicyFile) error {
	_, err := l.compile(id, files)
	return err
}

func samePolicyFile(a, b switchboard.PolicyFile) bool {
	return a.Name == b.Name && a.Path == b.Path && bytes.Equal(a.Data, b.Data)
}

// compilePolicies compiles the policy of every tenant. was, if not nil, is a loadedConfig whose policies are taken where c shares everything that they
// depend on. The error is switchboard.Faults, with the faults of all layers.
func compilePolicies(c *config.Config, engine *policy.Engine, l *compiledLayers, was *loadedConfig) (*loadedConfig, error) {
	r := &loadedConfig{config: c, loadedAt: time.Now(), faultySince: map[string]time.Time{}, layers: l, policies: make(map[switchboard.TenantID]*policy.Policy, len(c.Tenants)), policySince: make(map[switchboard.TenantID]time.Time, len(c.Tenants))}
	var faults switchboard.Faults
	layer := func(id switchboard.TenantID, files []switchboard.PolicyFile) *policy.Layer {
		layer, err := l.compile(id, files)
		if found, ok := errors.AsType[switchboard.Faults](err); ok {
			faults = append(faults, found...)
		}
		return layer
	}
	shares := was != nil && c.SharesOperator(was.config)
	var operator *policy.Layer
	if shares {
		r.operator, r.boundaries, r.gate, r.verification = was.operator, was.boundaries, was.gate, was.verification
		operator = l.keep("")
	} else {
		if r.operator = c.Policies; c.Policies == nil {
			r.operator = policysource.Shipped()
		}
		var err error
		if r.boundaries, err = boundary.ForTenants(c.Registry.Boundaries); err != nil {
			return nil, fmt.Errorf("capabilities/boundaries.yaml: %w", err)
		}
		operator = layer("", r.operator)
		if r.gate, err = engine.NewGate(operator); err != nil {
			return nil, err
		}
	}
	if r.verification == nil && operator != nil {
		var err error
		if r.verification, err = engine.NewPolicy(&switchboard.Tenant{ID: verification.Tenant}, r.boundaries, operator, nil); err != nil {
			return nil, err
		}
	}
	for _, p := range c.Faulty {
		r.faultySince[p.Name] = r.loadedAt
	}
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		if shares && c.Tenants[id] == was.config.Tenants[id] { // so its files are the same, too
			l.keep(id)
			r.policies[id], r.policySince[id] = was.policies[id], was.policySince[id]
			continue
		}
		var own *policy.Layer
		if files, ok := c.TenantPolicies[id]; ok {
			own = layer(id, files)
		}
		if len(faults) > 0 {
			continue
		}
		p, err := engine.NewPolicy(c.Tenants[id], r.boundaries, operator, own)
		if err != nil {
			return nil, err
		}
		r.policies[id], r.policySince[id] = p, r.loadedAt
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return r, nil
}

// logWarnings logs the faulty parts of the configuration and its probable mistakes.
func (r *loadedConfig) logWarnings(log *slog.Logger) {
	r.logFaultyParts(log)
	for _, w := range r.config.Warnings {
		log.Warn("the configuration", "warning", w.String())
	}
}

// logFaultyParts logs the faulty parts of the configuration.
func (r *loadedConfig) logFaultyParts(log *slog.Logger) {
	for _, p := range r.config.Faulty {
		log.Error("a part of the configuration is faulty; the rest is in force", "part", p.Name, "so", p.State(), "since", r.faultySince[p.Name], "err", p.Faults)
	}
}
