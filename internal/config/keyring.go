package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// keyring decides which tenant each API key belongs to.
type keyring struct {
	inForce  *Config             // the configuration in force, or an empty one
	rows     map[[32]byte]keyRow // of all tenants
	claims   []keyClaim
	disputed map[[32]byte]bool // keys that several tenants have, and that therefore none may use
}

func newKeyring(inForce *Config) *keyring {
	return &keyring{inForce: inForce, rows: map[[32]byte]keyRow{}, disputed: map[[32]byte]bool{}}
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
func (k *keyring) assignKey(hash [32]byte, v document.Value, t *tenantFolder) bool {
	owner, owned := k.keyOwner(hash)
	owned = owned && !k.inForce.Refused[t.out.ID] // t may have had the key while its folder could not be read
	first, again := k.rows[hash]
	switch {
	case again && first.tenant == t.out.ID:
		v.Fault(keyTwice, first.File, first.Line)
		return false
	case owned && owner != t.out.ID:
		k.claims = append(k.claims, keyClaim{keyRow{v, t.out.ID}, hash, owner})
		return true
	case again && !owned:
		v.Fault(keyTwice, first.File, first.Line)
		first.Fault(keyTwice, v.File, v.Line)
		k.disputed[hash] = true
		return false
	}
	k.rows[hash] = keyRow{v, t.out.ID}
	return true
}

const keyTwice = "this key has another row already, at %s:%d; make one for each"

// keyOwner returns the tenant that has the key in the configuration in force. A refused tenant owns no
// key, because its keys were not compared with those of other tenants.
func (k *keyring) keyOwner(hash [32]byte) (switchboard.TenantID, bool) {
	for _, key := range k.inForce.Keys {
		if key.Hash == hash && !k.inForce.Refused[key.Tenant] {
			return key.Tenant, true
		}
	}
	return "", false
}

// settleKeys reports each row whose key still belongs to another tenant. If several tenants claim a
// key that has become free, it reports all their rows.
func (k *keyring) settleKeys(folders []*tenantFolder) {
	for i, c := range k.claims {
		rival := slices.IndexFunc(k.claims, func(o keyClaim) bool { return o.hash == c.hash && o.tenant != c.tenant })
		switch {
		case stillOwns(folders, k.inForce, c.owner, c.hash):
			c.Fault("this key is another tenant's; make one for this tenant: switchboard key new")
		case rival >= 0:
			c.Fault(keyTwice, k.claims[rival].File, k.claims[rival].Line)
		case slices.ContainsFunc(k.claims[:i], func(o keyClaim) bool { return o.hash == c.hash }):
			c.Fault(keyTwice, c.File, c.Line)
		}
	}
}

// stillOwns reports whether the tenant has a row for the key in its files. If the files are faulty,
// their last good state counts as well.
func stillOwns(folders []*tenantFolder, previous *Config, id switchboard.TenantID, hash [32]byte) bool {
	at := slices.IndexFunc(folders, func(t *tenantFolder) bool { return t.out.ID == id })
	if at < 0 {
		return false
	}
	has := func(keys []Key) bool { return slices.ContainsFunc(keys, func(k Key) bool { return k.Hash == hash }) }
	t := folders[at]
	return has(t.keys) || t.part.sink.Faulty() && has(previous.good.tenants[id].keys)
}
