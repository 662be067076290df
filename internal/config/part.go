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

	// Keeps means that the last good state of the part stays in force. If it is false, the part is not
	// served.
	Keeps bool

	Faults Faults // sorted
}

// State says in words what happens to the part.
func (p FaultyPart) State() string {
	if p.Keeps {
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
	c.Manifests[id] = Manifest{Name: now.Name, Of: now.Of, Data: data}
	for i := range c.Faulty {
		if c.Faulty[i].Name == manifestPart(id) {
			c.Faulty[i].Keeps = true
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
	overlays map[string]map[switchboard.ToolID]switchboard.Overlay // by file
}

func newGood() lastGood {
	return lastGood{map[switchboard.TenantID]tenantReading{}, map[string]map[switchboard.ToolID]switchboard.Overlay{}}
}

// A tenantReading is what was read from a tenant's folder.
type tenantReading struct {
	out      *switchboard.Tenant
	keys     []Key
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
	if l.opts.Was == nil {
		return &Config{}
	}
	return l.opts.Was
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

// A keyRow is the position of a key's row.
type keyRow struct {
	document.Value
	tenant switchboard.TenantID
}

// A keyClaim is a tenant's row for a key that belongs to another tenant in the configuration in force.
type keyClaim struct {
	keyRow
	hash  [32]byte
	owner switchboard.TenantID
}

// assignKey records the tenant that a key belongs to, and reports whether the key may belong to t. If
// two tenants have a row for the same key, both rows are faults. There is one exception: if the key
// belonged to one of them before, that tenant keeps it. Otherwise a tenant could take over or disable
// another tenant's key by naming its hash. settleKeys decides, after all files are read, whether the
// earlier owner still has its row.
func (l *loader) assignKey(hash [32]byte, v document.Value, t *tenantFolder) bool {
	owner, owned := l.keyOwner(hash)
	owned = owned && !l.previous().Refused[t.out.ID] // t may have had the key while its folder could not be read
	first, again := l.keyRows[hash]
	switch {
	case again && first.tenant == t.out.ID:
		v.Fault(keyTwice, first.File, first.Line)
		return false
	case owned && owner != t.out.ID:
		l.keyClaims = append(l.keyClaims, keyClaim{keyRow{v, t.out.ID}, hash, owner})
		return true
	case again && !owned:
		v.Fault(keyTwice, first.File, first.Line)
		first.Fault(keyTwice, v.File, v.Line)
		l.disputedKeys[hash] = true
		return false
	}
	l.keyRows[hash] = keyRow{v, t.out.ID}
	return true
}

const keyTwice = "this key has another row already, at %s:%d; make one for each"

// keyOwner returns the tenant that has the key in the configuration in force. A refused tenant owns no
// key, because its keys were not compared with those of other tenants.
func (l *loader) keyOwner(hash [32]byte) (switchboard.TenantID, bool) {
	for _, k := range l.previous().Keys {
		if k.Hash == hash && !l.previous().Refused[k.Tenant] {
			return k.Tenant, true
		}
	}
	return "", false
}

// settleKeys reports each row whose key still belongs to another tenant. If several tenants claim a
// key that has become free, it reports all their rows.
func (l *loader) settleKeys() {
	for i, c := range l.keyClaims {
		rival := slices.IndexFunc(l.keyClaims, func(o keyClaim) bool { return o.hash == c.hash && o.tenant != c.tenant })
		switch {
		case l.stillOwns(c.owner, c.hash):
			c.Fault("this key is another tenant's; make one for this tenant: switchboard key new")
		case rival >= 0:
			c.Fault(keyTwice, l.keyClaims[rival].File, l.keyClaims[rival].Line)
		case slices.ContainsFunc(l.keyClaims[:i], func(o keyClaim) bool { return o.hash == c.hash }):
			c.Fault(keyTwice, c.File, c.Line)
		}
	}
}

// stillOwns reports whether the tenant has a row for the key in its files. If the files are faulty,
// their last good state counts as well.
func (l *loader) stillOwns(id switchboard.TenantID, hash [32]byte) bool {
	at := slices.IndexFunc(l.tenantFolders, func(t *tenantFolder) bool { return t.out.ID == id })
	if at < 0 {
		return false
	}
	has := func(keys []Key) bool { return slices.ContainsFunc(keys, func(k Key) bool { return k.Hash == hash }) }
	t := l.tenantFolders[at]
	return has(t.keys) || t.part.sink.Faulty() && has(l.previous().good.tenants[id].keys)
}

// settleParts puts the tenants into the configuration, in their present or their last good state, and
// lists the faulty parts.
func (l *loader) settleParts() {
	l.settleKeys()
	for _, t := range l.tenantFolders {
		l.settleTenant(t)
	}
	if l.previous().Keyless() && l.opts.Was != nil && len(l.cfg.Keys) == 0 {
		l.cfg.keysUnknown = false
	}
	slices.SortFunc(l.cfg.Keys, func(a, b Key) int {
		return strings.Compare(string(a.Tenant)+"/"+a.ID, string(b.Tenant)+"/"+b.ID)
	})
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

func (l *loader) settleTenant(t *tenantFolder) {
	id := t.out.ID
	reading := t.tenantReading
	if t.part.sink.Faulty() {
		last, ok := l.previous().good.tenants[id]
		if !ok || t.bound.rowUnreadable {
			delete(l.cfg.Tenants, id)
			l.cfg.Keys = append(l.cfg.Keys, t.keys...) // so that its callers are told why they are refused
			l.cfg.Refused[id] = true
			l.cfg.keysUnknown = l.cfg.keysUnknown || t.keysUnknown
			return
		}
		t.part.Keeps = true
		l.cfg.good.tenants[id] = last
		reading = l.clipReading(last, t.bound)
	} else {
		l.cfg.good.tenants[id] = reading
	}
	l.cfg.Tenants[id] = reading.out
	l.cfg.Keys = append(l.cfg.Keys, reading.keys...)
	if reading.policies != nil {
		l.cfg.TenantPolicies[id] = reading.policies
	}
}

// clipReading returns a last good state without the rights that the operator no longer grants.
func (l *loader) clipReading(last tenantReading, b *bound) tenantReading {
	out := *last.out
	given := l.enabledServers(b.servers)
	out.Servers = intersect(out.Servers, given)
	out.ByName, out.Tier, out.Roles, out.Declare, out.VetoForTask, out.Trust = b.byName, b.defaultTier(), b.roles, b.ceiling, l.vetoForTask, b.trust
	out.TokenBudget, out.ResultBytes = smallerLimit(out.TokenBudget, b.tokenBudget), smallerLimit(out.ResultBytes, b.resultBytes)
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
	keys := slices.DeleteFunc(slices.Clone(last.keys), func(k Key) bool { return l.disputedKeys[k.Hash] })
	for i := range keys {
		k := &keys[i]
		k.Roles = intersect(k.Roles, b.roles)
		if !slices.Contains(b.tiers, k.Tier) {
			k.Tier = ""
		}
	}
	return tenantReading{&out, keys, last.policies}
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
