package config

import (
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An operatorReading is the state of a Load that found no fault in the operator's files. It lets one tenant's folder be read again without the rest. The meaning of
// that folder depends on the operator's files alone, except that two tenants cannot own one key. An operatorReading is not modified once it is kept.
type operatorReading struct {
	loader   *loader
	own      Config // without what the folders of tenants add
	warnings Faults // of no part
	whole    *Config
}

// newOperatorReading returns the state of l before it settles the parts.
func newOperatorReading(l *loader) *operatorReading {
	r := &operatorReading{loader: l, own: *l.cfg, warnings: slices.Clone(l.sink.Warnings)}
	r.own.People, r.own.Claims = slices.Clone(r.own.People), slices.Clone(r.own.Claims) // settling sorts them
	return r
}

// keep keeps the reading in the configuration that it has led to, unless a rereading could differ from a reading of everything.
func (r *operatorReading) keep() {
	l := r.loader
	ofOperator := func(p FaultyPart) bool { return p.Tenant == "" }
	if slices.ContainsFunc(l.cfg.Faulty, ofOperator) || len(l.claims)+len(l.disputed) > 0 || l.noTenantRows || l.opts.Replace != nil || l.opts.Text != nil {
		return
	}
	// The configuration before, and the text of the files, are not needed any more.
	l.opts, l.keyring, l.overlaySeen, l.printed, l.watched, l.variables = Options{}, nil, nil, printedSecrets{}, nil, nil
	for _, t := range l.tenantFolders {
		t.tasks, t.tools = nil, nil
	}
	r.whole, l.cfg.operator = l.cfg, r
}

// rereadTenant returns the configuration with files replaced, if all of them are in the folder of one tenant and opts say that nothing else has changed. If it
// returns nil, everything must be read.
func rereadTenant(file string, opts Options) *Config {
	if !opts.Unchanged || opts.Previous == nil || opts.Watch != nil || opts.Text != nil {
		return nil
	}
	was := opts.Previous.operator
	if was == nil || was.whole != opts.Previous || was.loader.file != file {
		return nil
	}
	if len(opts.Replace) == 0 {
		return opts.Previous
	}
	old := was.folderOf(opts.Replace)
	if old == nil {
		return nil
	}
	l := was.loaderWithout(old, opts)
	defer l.close()
	readTenant(l, string(old.out.ID))
	last := len(l.tenantFolders) - 1
	now := l.tenantFolders[last]
	l.tenantFolders = slices.Insert(l.tenantFolders[:last], slices.Index(was.loader.tenantFolders, old), now) // in the order of the folders
	if reflect.DeepEqual(now.tenantReading, old.tenantReading) {
		now.tenantReading = old.tenantReading // so that it is seen to be the same
	}
	if len(opts.Previous.Faulty) > 0 && slices.ContainsFunc(now.keys, func(k Key) bool { owner, ok := l.keyOwner(k.Hash); return !ok || owner != k.Tenant }) {
		return nil // a tenant whose files are faulty may have the key, too
	}
	l.settleKeys(l.tenantFolders)
	var callers *Config
	if now.hasCallersOf(old) {
		callers = opts.Previous
	}
	l.settleParts(callers)
	if l.cfg.Keyless() {
		return nil // whether the addresses allow that depends on the operator's files
	}
	finish(l)
	l.cfg.keepCallers(opts.Previous)
	l.cfg.operator = was
	if l.cfg.Equal(opts.Previous) {
		return opts.Previous
	}
	return l.cfg
}

// hasCallersOf reports whether two folders have the same keys, people and claims, and no faults. A folder with faults may still have the keys of its
// last good state, so it never has the callers of another.
func (t *tenantFolder) hasCallersOf(other *tenantFolder) bool {
	return !t.part.sink.Faulty() && !other.part.sink.Faulty() && t.keysUnknown == other.keysUnknown &&
		reflect.DeepEqual(t.keys, other.keys) && reflect.DeepEqual(t.people, other.people) && reflect.DeepEqual(t.claims, other.claims)
}

// keepCallers takes the keys, people and claims of a configuration if its own are equal, so that they are seen to be the same.
func (c *Config) keepCallers(was *Config) {
	if reflect.DeepEqual(c.Keys, was.Keys) && reflect.DeepEqual(c.People, was.People) && reflect.DeepEqual(c.Claims, was.Claims) {
		c.Keys, c.People, c.Claims = was.Keys, was.People, was.Claims
	}
}

// SharesCallers reports whether the keys, people and claims of both are the same.
func (c *Config) SharesCallers(other *Config) bool {
	return sameList(c.Keys, other.Keys) && sameList(c.People, other.People) && sameList(c.Claims, other.Claims) && c.keysUnknown == other.keysUnknown
}

// sameList reports whether both are one list in memory.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// folderOf returns the tenant's folder that holds all the files; nil if there is none.
func (r *operatorReading) folderOf(files map[string][]byte) *tenantFolder {
	for _, t := range r.loader.tenantFolders {
		prefix := tenantPath(t) + "/"
		outside := func(name string) bool { return !strings.HasPrefix(name, prefix) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), outside) {
			return t
		}
	}
	return nil
}

func tenantPath(t *tenantFolder) string { return path.Join("tenants", string(t.out.ID)) }

// loaderWithout returns a loader that has read everything but the folder of one tenant.
func (r *operatorReading) loaderWithout(t *tenantFolder, opts Options) *loader {
	l := new(loader)
	*l = *r.loader
	own, id := r.own, t.out.ID
	l.opts, l.cfg, l.keyring = opts, &own, newKeyring(opts.Previous)
	l.configFolder = newConfigFolder(r.loader.file, opts)
	l.sink.Warnings = slices.Clone(r.warnings)
	folder := l.displayPath(tenantPath(t))
	l.watched = slices.DeleteFunc(slices.Clone(r.whole.Watch), func(name string) bool {
		return name == folder || strings.HasPrefix(name, folder+string(filepath.Separator))
	})
	l.variables = slices.Clone(r.whole.Variables)
	l.parts = slices.DeleteFunc(slices.Clone(l.parts), func(p *partState) bool { return p == t.part })
	l.tenantFolders = slices.DeleteFunc(slices.Clone(l.tenantFolders), func(other *tenantFolder) bool { return other == t })
	for i, other := range l.tenantFolders {
		if other.part.sink.Faulty() { // settling it again modifies it
			folder, part, sink := *other, *other.part, *other.part.sink
			sink.Faults = slices.Clone(part.Faults)
			part.sink, folder.part = &sink, &part
			l.parts[slices.Index(l.parts, other.part)], l.tenantFolders[i] = &part, &folder
		}
	}

	own.People, own.Claims = slices.Clone(own.People), slices.Clone(own.Claims)
	own.Tenants, own.TenantPolicies = maps.Clone(r.whole.Tenants), make(map[switchboard.TenantID][]switchboard.PolicyFile, len(r.whole.TenantPolicies))
	own.Refused = map[switchboard.TenantID]bool{}
	own.good.tenants = make(map[switchboard.TenantID]tenantReading, len(r.loader.tenantFolders))
	own.Tenants[id] = newTenant(l, id, t.bound)
	return l
}

// SharesOperator reports whether both come from one reading of the operator's files, so that only the folder of a tenant may differ. Tenants whose files
// mean the same are the same pointers then.
func (c *Config) SharesOperator(other *Config) bool {
	return c == other || c.operator != nil && c.operator == other.operator
}

// Equal reports whether both mean the same.
func (c *Config) Equal(other *Config) bool {
	a, b := *c, *other
	a.operator, b.operator = nil, nil
	return reflect.DeepEqual(&a, &b)
}
