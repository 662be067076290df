package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A FaultyPart is a part of the configuration with faults that affect only that part: a tenant's
// folder, a file of the operator's overlays or one tool in it, a manifest.
type FaultyPart struct {
	// Name names the part: "tenant acme", "overlays/brave.yaml", "tool brave/search", "manifest of
	// brave".
	Name string

	// Tenant is the tenant that the part belongs to; "" means the operator.
	Tenant switchboard.TenantID

	// KeepsLastGood means that the last good state of the part stays in force. If it is false, the part is not
	// served.
	KeepsLastGood bool

	Faults Faults // sorted
}

// State says in words what happens to the part.
func (p FaultyPart) State() string {
	if p.KeepsLastGood {
		return "its last good state stays in force"
	}
	return "it is not served"
}

// Err returns the faults of all parts as Faults, or nil, for callers that accept no faulty part.
func (c *Config) Err() error {
	var all Faults
	for _, p := range c.Faulty {
		all = append(all, p.Faults...)
	}
	if all == nil {
		return nil
	}
	return document.SortFaults(all)
}

// RecallManifest replaces the unreadable manifest of a server by a copy. The caller must have c to
// itself.
func (c *Config) RecallManifest(id switchboard.ServerID, data []byte) {
	now := c.Manifests[id]
	c.Manifests[id] = Manifest{Name: now.Name, Digest: now.Digest, Data: data}
	for i := range c.Faulty {
		if c.Faulty[i].Name == manifestPart(id) {
			c.Faulty[i].KeepsLastGood = true
		}
	}
}

func manifestPart(id switchboard.ServerID) string { return "manifest of " + string(id) }

// Keyless reports whether no key exists. A key that could not be read counts as existing, unless no
// key existed before.
func (c *Config) Keyless() bool { return len(c.Keys) == 0 && !c.keysUnknown }

// lastGood is the last good state of each part, as its files gave it. A later Load falls back to it.
type lastGood struct {
	tenants  map[switchboard.TenantID]tenantReading
	overlays map[string]overlayReading // by file
}

func newGood() lastGood {
	return lastGood{map[switchboard.TenantID]tenantReading{}, map[string]overlayReading{}}
}

// A tenantReading is what was read from a tenant's folder.
type tenantReading struct {
	out      *switchboard.Tenant
	keys     []Key
	people   []PersonKey
	claims   []PersonClaim
	policies []switchboard.PolicyFile // nil if there is no such folder
}

// partState is the state of reading one part.
type partState struct {
	FaultyPart
	sink    *document.Sink
	refuses bool // its faults refuse the whole configuration
}

func (l *loader) newPart(name string, tenant switchboard.TenantID) *partState {
	p := &partState{FaultyPart: FaultyPart{Name: name, Tenant: tenant}, sink: &document.Sink{}}
	l.parts = append(l.parts, p)
	return p
}

// collectInto collects faults in the part until leave is called.
func (l *loader) collectInto(p *partState) (leave func()) {
	before := l.sink
	l.sink = p.sink
	return func() { l.sink = before }
}

// previous returns the configuration in force, or an empty one.
func (l *loader) previous() *Config {
	if l.opts.Previous == nil {
		return &Config{}
	}
	return l.opts.Previous
}

// checkPolicies calls Options.CheckPolicies with the tenant's policy files.
func (l *loader) checkPolicies(t *tenantFolder) {
	if t.policies == nil || l.opts.CheckPolicies == nil {
		return
	}
	if err := l.opts.CheckPolicies(t.out.ID, t.policies); err != nil {
		faults, ok := err.(Faults) //nolint:errorlint // as CheckPolicies is declared
		if !ok {
			faults = Faults{{File: l.displayPath("tenants"), Text: err.Error()}}
		}
		for _, f := range faults {
			t.part.sink.Add(f)
		}
	}
}

// settleParts puts the tenants into the configuration, in their present or their last good state, and
// lists the faulty parts. settleKeys comes first. callers, if not nil, is a configuration with the same keys, people and claims.
func (l *loader) settleParts(callers *Config) {
	for _, t := range l.tenantFolders {
		l.settleTenant(t, callers == nil)
	}
	if callers != nil {
		l.cfg.Keys, l.cfg.People, l.cfg.Claims = callers.Keys, callers.People, callers.Claims
	} else {
		sortCallers(l.cfg)
	}
	if l.previous().Keyless() && l.opts.Previous != nil && len(l.cfg.Keys) == 0 {
		l.cfg.keysUnknown = false
	}
	for _, p := range l.parts {
		switch {
		case p.refuses:
			l.sink.AddAll(p.sink)
		case p.sink.Faulty():
			p.Faults = document.SortFaults(p.sink.Faults)
			l.cfg.Faulty = append(l.cfg.Faulty, p.FaultyPart)
		default:
			l.sink.AddAll(p.sink) // its warnings
		}
	}
	slices.SortFunc(l.cfg.Faulty, func(a, b FaultyPart) int { return cmp.Compare(a.Name, b.Name) })
}

func sortCallers(c *Config) {
	slices.SortFunc(c.Keys, func(a, b Key) int {
		return strings.Compare(string(a.Tenant)+"/"+a.ID, string(b.Tenant)+"/"+b.ID)
	})
	slices.SortFunc(c.People, comparePeople)
	slices.SortFunc(c.Claims, compareClaims)
}

// settleTenant puts one tenant into the configuration, with its keys, people and claims if withCallers is set.
func (l *loader) settleTenant(t *tenantFolder, withCallers bool) {
	id := t.out.ID
	reading := t.tenantReading
	if t.part.sink.Faulty() {
		last, ok := l.previous().good.tenants[id]
		if !ok || t.bound.rowUnreadable {
			delete(l.cfg.Tenants, id)
			if withCallers {
				l.cfg.Keys = append(l.cfg.Keys, t.keys...) // so that its callers are told why they are refused
			}
			l.cfg.Refused[id] = true
			l.cfg.keysUnknown = l.cfg.keysUnknown || t.keysUnknown
			return
		}
		t.part.KeepsLastGood = true
		l.cfg.good.tenants[id] = last
		reading = l.clipReading(last, t.bound)
	} else {
		l.cfg.good.tenants[id] = reading
	}
	l.cfg.Tenants[id] = reading.out
	if withCallers {
		l.cfg.Keys = append(l.cfg.Keys, reading.keys...)
		l.cfg.People = append(l.cfg.People, reading.people...)
		l.cfg.Claims = append(l.cfg.Claims, reading.claims...)
	}
	if reading.policies != nil {
		l.cfg.TenantPolicies[id] = reading.policies
	}
}

// clipReading returns a last good state without the rights that the operator no longer grants.
func (l *loader) clipReading(last tenantReading, b *bound) tenantReading {
	out := *last.out
	given := l.enabledServers(b.servers)
	out.Servers = intersect(out.Servers, given)
	out.Request, out.Permissions, out.Models = b.requests, b.permissions, b.models
	out.Trial = intersectTrials(out.Trial, mostTrials(l, b))
	out.ByName, out.Tier, out.Tiers, out.Roles, out.Declare, out.VetoForTask, out.Trust = b.byName, b.defaultTier(), b.tiers, b.roles, b.ceiling, l.vetoForTask, b.trust
	out.Recipients = recipientsFor(l.cfg, out.ID)
	out.TokenBudget, out.ResultBytes = smallerLimit(out.TokenBudget, b.tokenBudget), smallerLimit(out.ResultBytes, b.resultBytes)
	if b.flows.StricterThan(out.Flows) {
		out.Flows = b.flows
	}
	out.Approvals = tighter(out.Approvals, b.approvals)
	own := slices.DeleteFunc(slices.Clone(out.Budgets), func(b *switchboard.Budget) bool { return b.Owner != switchboard.OwnerTenant })
	out.Budgets = slices.Concat(l.budgets, b.budgets, own)
	out.Tasks = map[switchboard.TaskID]*switchboard.Task{}
	for id, task := range last.out.Tasks {
		own := *task
		if own.TokenBudget > 0 {
			own.TokenBudget = smallerLimit(own.TokenBudget, out.TokenBudget)
		}
		if own.ResultBytes > 0 {
			own.ResultBytes = smallerLimit(own.ResultBytes, out.ResultBytes)
		}
		out.Tasks[id] = &own
	}
	out.Overlays = maps.Clone(out.Overlays)
	for id, o := range out.Overlays {
		if !slices.Contains(out.Servers, id.Server) {
			delete(out.Overlays, id)
			continue
		}
		o.Contract.Timeout = min(o.Contract.Timeout, l.timeoutLimit(id))
		out.Overlays[id] = o
	}
	keys := slices.DeleteFunc(slices.Clone(last.keys), func(k Key) bool { return l.disputed[k.Hash] })
	for i := range keys {
		k := &keys[i]
		k.Roles = intersect(k.Roles, b.roles)
		if !slices.Contains(b.tiers, k.Tier) {
			k.Tier = ""
		}
	}
	return tenantReading{&out, keys, clipOffices(last.people, b), clipClaims(last.claims, b), last.policies}
}

// intersect returns the elements that are in both lists, in the order of the first.
func intersect[T comparable](a, b []T) []T {
	var out []T
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// smallerLimit returns the smaller of two limits; 0 is no limit.
func smallerLimit(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
