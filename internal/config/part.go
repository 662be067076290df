package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A FaultyPart is a part of the configuration that has faults of its own, and that they do not
// leave: a tenant's folder, a file of the operator's overlays or one tool in it, a manifest.
type FaultyPart struct {
	// Name says what it is: "tenant acme", "overlays/brave.yaml", "tool brave/search",
	// "manifest of brave".
	Name string

	// Tenant is whose part it is; "" means the operator's.
	Tenant switchboard.TenantID

	// Keeps says that the part's last good state stays in force. If it is false, nothing of the
	// part is served.
	Keeps bool

	Faults Faults // sorted
}

// State says in words what becomes of the part.
func (p FaultyPart) State() string {
	if p.Keeps {
		return "its last good state stays in force"
	}
	return "it is not served"
}

// Err returns the faults of all parts, or nil: for who wants a configuration without any. It is Faults.
func (c *Config) Err() error {
	var all Faults
	for _, p := range c.Faulty {
		all = append(all, p.Faults...)
	}
	if all == nil {
		return nil
	}
	return inOrder(all)
}

// RecallManifest puts a copy in the place of the manifest of a server that cannot be read. It may be called
// only while nobody else uses c.
func (c *Config) RecallManifest(id switchboard.ServerID, data []byte) {
	now := c.Manifests[id]
	c.Manifests[id] = Manifest{Name: now.Name, Of: now.Of, Data: data}
	for i := range c.Faulty {
		if c.Faulty[i].Name == manifestPart(id) {
			c.Faulty[i].Keeps = true
		}
	}
}

func manifestPart(id switchboard.ServerID) string { return "manifest of " + string(id) }

// Keyless reports whether no key exists. A key that could not be read exists, unless none existed before.
func (c *Config) Keyless() bool { return len(c.Keys) == 0 && !c.keysUnknown }

// good is what a later Load falls back to: the last good state of each part, as its files say it.
type good struct {
	tenants  map[switchboard.TenantID]tenantReading
	overlays map[string]map[switchboard.ToolID]switchboard.Overlay // by file
}

func newGood() good {
	return good{map[switchboard.TenantID]tenantReading{}, map[string]map[switchboard.ToolID]switchboard.Overlay{}}
}

// A tenantReading is what a tenant's folder says.
type tenantReading struct {
	out      *switchboard.Tenant
	keys     []Key
	policies []switchboard.PolicyFile // nil where there is no such folder
}

// partState is the state of reading one part.
type partState struct {
	FaultyPart
	sink    *sink
	refuses bool // its faults are the operator's: they refuse everything
}

func (l *loader) newPart(name string, tenant switchboard.TenantID) *partState {
	p := &partState{FaultyPart: FaultyPart{Name: name, Tenant: tenant}, sink: &sink{}}
	l.parts = append(l.parts, p)
	return p
}

// within lays the faults of what is read to the part, until leave is called.
func (l *loader) within(p *partState) (leave func()) {
	before := l.sink
	l.sink = p.sink
	return func() { l.sink = before }
}

// was is the configuration in force, or an empty one.
func (l *loader) was() *Config {
	if l.opts.Was == nil {
		return &Config{}
	}
	return l.opts.Was
}

// checkPolicies has the tenant's files of policy looked into.
func (l *loader) checkPolicies(t *tenant) {
	if t.policies == nil || l.opts.CheckPolicies == nil {
		return
	}
	if err := l.opts.CheckPolicies(t.out.ID, t.policies); err != nil {
		faults, ok := err.(Faults) //nolint:errorlint // as it is declared
		if !ok {
			faults = Faults{{File: l.path("tenants"), Text: err.Error()}}
		}
		for _, f := range faults {
			t.part.sink.add(f)
		}
	}
}

// A keyRow is where a key stands.
type keyRow struct {
	value
	tenant switchboard.TenantID
}

// A keyClaim is a row of a tenant for a key that was another's by the configuration in force.
type keyClaim struct {
	keyRow
	hash  [32]byte
	owner switchboard.TenantID
}

// ownKey notes whose key it is. One that is in two rows is a fault of both, but for the tenant whose
// key it was: nobody gets at another's key, or takes it out of service, by naming it. It reports whether
// the key may be the tenant's. Whether its owner has let go of it is known once all files are read: see settleKeys.
func (l *loader) ownKey(hash [32]byte, v value, t *tenant) bool {
	owner, owned := l.ownerOf(hash)
	owned = owned && !l.was().Refused[t.out.ID] // it may have been this one's while nobody could read that
	first, again := l.hashes[hash]
	switch {
	case again && first.tenant == t.out.ID:
		v.fault(keyTwice, first.file, first.line)
		return false
	case owned && owner != t.out.ID:
		l.claims = append(l.claims, keyClaim{keyRow{v, t.out.ID}, hash, owner})
		return true
	case again && !owned:
		v.fault(keyTwice, first.file, first.line)
		first.fault(keyTwice, v.file, v.line)
		l.disputed[hash] = true
		return false
	}
	l.hashes[hash] = keyRow{v, t.out.ID}
	return true
}

const keyTwice = "this key has another row already, at %s:%d; make one for each"

// ownerOf returns the tenant whose key it is by the configuration in force. A tenant that is refused owns none: nobody
// has looked whether another has the same.
func (l *loader) ownerOf(hash [32]byte) (switchboard.TenantID, bool) {
	for _, k := range l.was().Keys {
		if k.Hash == hash && !l.was().Refused[k.Tenant] {
			return k.Tenant, true
		}
	}
	return "", false
}

// settleKeys refuses the rows for keys that are still another tenant's, and those of several for one that no longer is.
func (l *loader) settleKeys() {
	for i, c := range l.claims {
		rival := slices.IndexFunc(l.claims, func(o keyClaim) bool { return o.hash == c.hash && o.tenant != c.tenant })
		switch {
		case l.stillHas(c.owner, c.hash):
			c.fault("this key is another tenant's; make one for this tenant: switchboard key new")
		case rival >= 0:
			c.fault(keyTwice, l.claims[rival].file, l.claims[rival].line)
		case slices.ContainsFunc(l.claims[:i], func(o keyClaim) bool { return o.hash == c.hash }):
			c.fault(keyTwice, c.file, c.line)
		}
	}
}

// stillHas reports whether the tenant has a row for the key: in its files, or, where these are faulty, in their last good
// state.
func (l *loader) stillHas(id switchboard.TenantID, hash [32]byte) bool {
	at := slices.IndexFunc(l.homes, func(t *tenant) bool { return t.out.ID == id })
	if at < 0 {
		return false
	}
	has := func(keys []Key) bool { return slices.ContainsFunc(keys, func(k Key) bool { return k.Hash == hash }) }
	t := l.homes[at]
	return has(t.keys) || t.part.sink.faulty() && has(l.was().good.tenants[id].keys)
}

// settle puts the tenants in place, as their files say or as they last said it, and names the parts
// that are faulty.
func (l *loader) settle() {
	l.settleKeys()
	for _, t := range l.homes {
		l.settleTenant(t)
	}
	if l.was().Keyless() && l.opts.Was != nil && len(l.cfg.Keys) == 0 {
		l.cfg.keysUnknown = false
	}
	slices.SortFunc(l.cfg.Keys, func(a, b Key) int {
		return strings.Compare(string(a.Tenant)+"/"+a.ID, string(b.Tenant)+"/"+b.ID)
	})
	for _, p := range l.parts {
		switch {
		case p.refuses:
			l.sink.take(p.sink)
		case p.sink.faulty():
			p.Faults = inOrder(p.sink.faults)
			l.cfg.Faulty = append(l.cfg.Faulty, p.FaultyPart)
		default:
			l.sink.take(p.sink) // its warnings
		}
	}
	slices.SortFunc(l.cfg.Faulty, func(a, b FaultyPart) int { return cmp.Compare(a.Name, b.Name) })
}

func (l *loader) settleTenant(t *tenant) {
	id := t.out.ID
	reading := t.tenantReading
	if t.part.sink.faulty() {
		last, ok := l.was().good.tenants[id]
		if !ok || t.bound.unknown {
			delete(l.cfg.Tenants, id)
			l.cfg.Keys = append(l.cfg.Keys, t.keys...) // so that its callers learn why
			l.cfg.Refused[id] = true
			l.cfg.keysUnknown = l.cfg.keysUnknown || t.keysUnknown
			return
		}
		t.part.Keeps = true
		l.cfg.good.tenants[id] = last
		reading = l.clip(last, t.bound)
	} else {
		l.cfg.good.tenants[id] = reading
	}
	l.cfg.Tenants[id] = reading.out
	l.cfg.Keys = append(l.cfg.Keys, reading.keys...)
	if reading.policies != nil {
		l.cfg.TenantPolicies[id] = reading.policies
	}
}

// clip returns a last good state without what the operator does not give the tenant any more.
func (l *loader) clip(last tenantReading, b *bound) tenantReading {
	out := *last.out
	given := l.enabled(b.servers)
	out.Servers = inBoth(out.Servers, given)
	out.ByName, out.Tier, out.Roles, out.Declare, out.VetoForTask, out.Trust = b.byName, b.tier(), b.roles, b.ceiling, l.vetoForTask, b.trust
	out.TokenBudget, out.ResultBytes = least(out.TokenBudget, b.tokens), least(out.ResultBytes, b.resultBytes)
	out.Tasks = map[switchboard.TaskID]*switchboard.Task{}
	for id, task := range last.out.Tasks {
		own := *task
		if own.TokenBudget > 0 {
			own.TokenBudget = least(own.TokenBudget, out.TokenBudget)
		}
		if own.ResultBytes > 0 {
			own.ResultBytes = least(own.ResultBytes, out.ResultBytes)
		}
		out.Tasks[id] = &own
	}
	out.Overlays = maps.Clone(out.Overlays)
	for id, o := range out.Overlays {
		if !slices.Contains(out.Servers, id.Server) {
			delete(out.Overlays, id)
			continue
		}
		o.Contract.Timeout = min(o.Contract.Timeout, l.longest(id))
		out.Overlays[id] = o
	}
	keys := slices.DeleteFunc(slices.Clone(last.keys), func(k Key) bool { return l.disputed[k.Hash] })
	for i := range keys {
		k := &keys[i]
		k.Roles = inBoth(k.Roles, b.roles)
		if !slices.Contains(b.tiers, k.Tier) {
			k.Tier = ""
		}
	}
	return tenantReading{&out, keys, last.policies}
}

// inBoth returns what stands in both lists, in the order of the first.
func inBoth[T comparable](a, b []T) []T {
	var out []T
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// least returns the smaller of two bounds, of which 0 is none.
func least(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
