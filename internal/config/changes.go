package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/lockfile"
)

// maxListedChanges limits the names of one kind that Changes lists.
const maxListedChanges = 5

// otherSettings stands for the changes that Changes does not name.
const otherSettings = "other settings"

// Changes says in one line what a reload has changed: which servers, tenants, keys, tasks,
// policies and so on were added (+), removed (-) or changed (~).
func Changes(was, now *Config) string {
	if was == now {
		return otherSettings
	}
	var parts []string
	add := func(kind string, before, after map[string]any) {
		var names []string
		all := maps.Clone(before)
		maps.Copy(all, after)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			old, had := before[name]
			next, has := after[name]
			switch {
			case !had:
				names = append(names, "+"+name)
			case !has:
				names = append(names, "-"+name)
			case !reflect.DeepEqual(old, next):
				names = append(names, "~"+name)
			}
		}
		if more := len(names) - maxListedChanges; more > 0 {
			names = append(names[:maxListedChanges], fmt.Sprintf("and %d more", more))
		}
		if names != nil {
			parts = append(parts, kind+" "+strings.Join(names, ", "))
		}
	}
	shares := now.SharesOperator(was)
	ofOperator := func(kind string, of func(*Config) map[string]any) {
		if !shares {
			add(kind, of(was), of(now))
		}
	}
	ofOperator("servers", serversOf)
	ofOperator("secrets", secretsOf)
	ofOperator("pins", pinsOf)
	if !reflect.DeepEqual(was.Keys, now.Keys) { // most changes change none of thousands
		add("keys", keysOf(was), keysOf(now))
	}
	if !sameList(was.People, now.People) || !sameList(was.Claims, now.Claims) {
		add("officers", officersOf(was), officersOf(now))
	}
	ofOperator("issuers", issuersOf)
	ofOperator("recipients of notices", recipientsOf)
	ofOperator("registries", registriesOf)
	add("tenants", tenantsOf(was, now), tenantsOf(now, was))
	add("tasks", tasksOf(was, now), tasksOf(now, was))
	add("policies", policiesOf(was), policiesOf(now))
	ofOperator("manifests", manifestsOf)
	add("faulty parts", faultyOf(was), faultyOf(now))
	if !shares && !reflect.DeepEqual(was.Overlays, now.Overlays) {
		parts = append(parts, "overlays")
	}
	if (was.Policies == nil) != (now.Policies == nil) {
		parts = append(parts, map[bool]string{true: "the shipped policies count", false: "the shipped policies do not count"}[now.Policies == nil])
	}
	if !shares && !reflect.DeepEqual(was.Taxonomy, now.Taxonomy) {
		parts = append(parts, "taxonomy")
	}
	if parts == nil || !sameSettings(was, now) {
		parts = append(parts, otherSettings)
	}
	return strings.Join(parts, "; ")
}

// sameSettings compares the settings of Switchboard itself in the operator's file.
func sameSettings(a, b *Config) bool {
	return a.Listen == b.Listen && a.TLS == b.TLS && slices.Equal(a.Hosts, b.Hosts) && slices.Equal(a.Origins, b.Origins) && a.StartDeadline == b.StartDeadline &&
		a.Grace == b.Grace && a.Tokenizer == b.Tokenizer && a.Currency == b.Currency && reflect.DeepEqual(a.Store, b.Store) && reflect.DeepEqual(a.Cluster, b.Cluster) &&
		a.Log == b.Log && reflect.DeepEqual(a.Receipts, b.Receipts) && reflect.DeepEqual(a.Cache, b.Cache) && a.Admin == b.Admin &&
		a.Admission.Equal(b.Admission)
}

// ChangedStartSettings names the settings that differ and count from the next start on.
func ChangedStartSettings(was, now *Config) (names []string) {
	for name, same := range map[string]bool{
		"listen":       was.Listen == now.Listen,
		"admin.listen": was.Admin.Listen == now.Admin.Listen,
		"receipts":     was.Receipts == now.Receipts,
	} {
		if !same {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func recipientsOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, r := range c.Recipients {
		all[r.Name] = r
	}
	return all
}

func registriesOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, r := range c.ServerRegistries {
		all[r.ID] = r
	}
	return all
}

func manifestsOf(c *Config) map[string]any {
	all := map[string]any{}
	for id, m := range c.Manifests {
		all[string(id)] = m
	}
	return all
}

func faultyOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, p := range c.Faulty {
		all[p.Name] = p.Faults
	}
	return all
}

func serversOf(c *Config) map[string]any {
	all := map[string]any{}
	for i := range c.Servers {
		all[string(c.Servers[i].ID)] = c.Servers[i]
	}
	return all
}

// pinsOf returns the pins by their names in admitted.lock.
func pinsOf(c *Config) map[string]any {
	all := map[string]any{}
	for id, p := range c.Admitted {
		all[lockfile.Spell(id)] = p
	}
	return all
}

func secretsOf(c *Config) map[string]any {
	all := map[string]any{}
	for name, s := range c.Secrets {
		all[name] = s
	}
	return all
}

func keysOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, k := range c.Keys {
		name := string(k.Tenant) + "/" + k.ID
		one, _ := all[name].([]Key)
		all[name] = append(one, k) // a key and the next one
	}
	return all
}

func issuersOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, is := range c.Issuers {
		all[is.ID] = is
	}
	return all
}

// officersOf returns the rows of persons by the persons' names, or by the claim that they match.
func officersOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, p := range c.People {
		name := p.ID
		if !p.Operator {
			name = string(p.Tenant) + "/" + p.ID
		}
		rows, _ := all[name].([]PersonKey)
		all[name] = append(rows, p)
	}
	for _, p := range c.Claims {
		name := p.Issuer + ": " + p.Claim + " " + p.Value
		if !p.Operator {
			name = string(p.Tenant) + "/" + name
		}
		rows, _ := all[name].([]PersonClaim)
		all[name] = append(rows, p)
	}
	return all
}

// tenantsOf returns the tenants' own settings, without their tasks. It leaves out tenants that are the same in other.
func tenantsOf(c, other *Config) map[string]any {
	all := map[string]any{}
	for id, t := range c.Tenants {
		if other.Tenants[id] == t {
			continue
		}
		own := *t
		own.Tasks = nil
		all[string(id)] = own
	}
	return all
}

// tasksOf returns the tasks of the tenants that tenantsOf returns.
func tasksOf(c, other *Config) map[string]any {
	all := map[string]any{}
	for id, t := range c.Tenants {
		if other.Tenants[id] == t {
			continue
		}
		for name, task := range t.Tasks {
			all[string(id)+"/"+string(name)] = task
		}
	}
	return all
}

// policiesOf returns the policy files by their names in the configuration.
func policiesOf(c *Config) map[string]any {
	all := map[string]any{}
	for _, f := range c.Policies {
		all[f.Name] = f.Data
	}
	for _, files := range c.TenantPolicies {
		for _, f := range files {
			all[f.Name] = f.Data
		}
	}
	return all
}
