package proposal

import (
	_ "embed"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Risk says how much can go wrong with a change, and so who must say yes to it.
type Risk string

// The risks, the smallest first.
const (
	Low      Risk = "low"      // only notes and comments: needs no person
	Medium   Risk = "medium"   // labels, tools, trials: needs the office that may change the files
	High     Risk = "high"     // replacing, permissions, ranking: needs another person than the proposer
	Critical Risk = "critical" // keys, listeners, bounds, the operator's policies, trust, walls: needs two; no agent may propose it
)

var risks = []Risk{Low, Medium, High, Critical}

// exceeds reports whether the risk is larger than another. What is no risk is the largest.
func (r Risk) exceeds(other Risk) bool {
	n, m := slices.Index(risks, r), slices.Index(risks, other)
	return m >= 0 && (n < 0 || n > m)
}

// A RiskyPart is a part of the configuration that a proposal touches.
type RiskyPart struct {
	File string `json:"file"`
	Part string `json:"part"` // the path of a key, as in the reference; or what it is otherwise
	Risk Risk   `json:"risk"`
}

//go:embed risks.txt
var riskText string

// riskTable has the risk of each key, by the kind of file and the path.
var riskTable = sync.OnceValue(func() map[string]Risk {
	table := map[string]Risk{}
	for line := range strings.Lines(riskText) {
		if f := strings.Fields(line); len(f) == 3 && f[0] != "#" {
			table[f[0]+" "+f[1]] = Risk(f[2])
		}
	}
	return table
})

var fileKinds = sync.OnceValue(func() map[string]config.FileKind {
	out := map[string]config.FileKind{}
	for _, k := range config.FileKinds() {
		out[k.Name] = k
	}
	return out
})

// riskOfKey returns the risk of a part of a file. A part without a row is critical.
func riskOfKey(kind string, c *document.PathChange) Risk {
	if kind == "switchboard" && c.Path == "servers.ID.sandbox" && c.After != nil && c.After.Text == "strict" {
		return High // the strictest walls: no other change of them is harmless
	}
	if slices.Contains(goesWhere[kind], c.Path) && (hasSecrets(c.Entries[0]) || hasSecrets(c.Entries[1])) {
		return Critical
	}
	if r := riskTable()[kind+" "+c.Path]; slices.Contains(risks, r) {
		return r
	}
	return Critical
}

// goesWhere has, by the kind of file, the keys that say to whom the secrets of their entry go.
var goesWhere = map[string][]string{
	"switchboard": {
		"servers.ID.transport", "servers.ID.url", "servers.ID.proxy", "servers.ID.command", "servers.ID.package", "servers.ID.package.npm", "servers.ID.dir",
	},
	"atoms": {"ID.probe.http"},
}

// hasSecrets reports whether a server or an atom has secrets, or is trusted as the operator is.
func hasSecrets(entry *document.Node) bool {
	if trust := entry.Member("trust"); trust != nil && trust.Text == string(switchboard.TrustOperator) {
		return true
	}
	for _, of := range []*document.Node{entry, entry.Member("probe")} {
		for _, key := range []string{"headers", "env", "allow_env", "credential", "tls", "oauth"} {
			if of.Member(key) != nil {
				return true
			}
		}
	}
	return hasReference(entry)
}

// hasReference reports whether a text of a value refers to a secret: ${env:NAME}.
func hasReference(n *document.Node) bool {
	if n == nil {
		return false
	}
	return strings.Contains(n.Text, "${") || slices.ContainsFunc(n.Items, func(i document.Node) bool { return hasReference(&i) }) ||
		slices.ContainsFunc(n.Pairs, func(p document.NodePair) bool { return hasReference(&p.Value) })
}

// identities has, by the kind of file, the key that says which thing the file is about.
var identities = map[string]string{"overlay": "server", "task": "task_id", "capability": "id", "tenant": "tenant"}

// changedPaths returns the parts of a file that differ. A text about another thing ends everything that the old one said, and says all of the new anew.
func changedPaths(kind string, before, after []byte) (changed []document.PathChange, ok bool) {
	k := fileKinds()[kind]
	changed, ok = k.ChangedPaths(before, after)
	if ok && slices.ContainsFunc(changed, func(c document.PathChange) bool { return c.Path == identities[kind] }) && before != nil && after != nil {
		gone, _ := k.ChangedPaths(before, nil)
		made, _ := k.ChangedPaths(nil, after)
		changed = append(gone, made...)
	}
	return changed, ok
}

// partsOf returns the parts that a change of a file touches, the riskiest first. main is the name of the main file. real is the path of the file with all links
// followed; it decides the kind of the file, and name does not.
func partsOf(main, name, real string, before, after []byte) []RiskyPart {
	if string(before) == string(after) && (before == nil) == (after == nil) {
		return []RiskyPart{{name, "nothing", Low}}
	}
	kind := kindOf(main, real)
	switch kind {
	case "operator policy", "pins", "":
		return []RiskyPart{{name, cmpText(kind, "an unknown file"), Critical}}
	case "tenant policy", "package lock": // the programs of a package
		return []RiskyPart{{name, kind, High}}
	}
	changed, ok := changedPaths(kind, before, after)
	if !ok {
		return []RiskyPart{{name, "a text that cannot be read", Critical}}
	}
	var parts []RiskyPart
	for i := range changed {
		p := RiskyPart{name, changed[i].Path, riskOfKey(kind, &changed[i])}
		if !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	if before == nil || after == nil {
		parts = append(parts, RiskyPart{name, "the whole file", Medium})
	}
	if len(parts) == 0 {
		return []RiskyPart{{name, "comments", Low}}
	}
	slices.SortStableFunc(parts, func(a, b RiskyPart) int { return slices.Index(risks, b.Risk) - slices.Index(risks, a.Risk) })
	return parts
}

func cmpText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// kindOf returns the kind of a file of a configuration, as in config.FileKinds, or else what it is; "" if it is none.
func kindOf(main, real string) string {
	switch real {
	case main:
		return "switchboard"
	case "taxonomy.yaml":
		return "taxonomy"
	case config.AdmittedFile:
		return "pins"
	case "capabilities/atoms.yaml", config.BoundariesPath, "capabilities/parties.yaml":
		return strings.TrimSuffix(path.Base(real), ".yaml")
	}
	parts := strings.Split(real, "/")
	switch {
	case len(parts) == 2 && parts[0] == config.CapabilitiesFolder && path.Ext(real) == ".yaml":
		return "capability"
	case len(parts) == 2 && parts[0] == config.PackageLocks && strings.HasSuffix(real, config.PackageLockSuffix):
		return "package lock"
	case len(parts) == 2 && parts[0] == "overlays" && path.Ext(real) == ".yaml":
		return "overlay"
	case len(parts) >= 2 && parts[0] == "policies":
		return "operator policy"
	case len(parts) < 3 || parts[0] != "tenants" || switchboard.CheckID(parts[1]) != nil:
		return ""
	case len(parts) == 3 && parts[2] == "tenant.yaml":
		return "tenant"
	case len(parts) == 4 && parts[2] == "tasks" && path.Ext(real) == ".yaml":
		return "task"
	case len(parts) == 4 && parts[2] == "overlays" && path.Ext(real) == ".yaml":
		return "overlay"
	case len(parts) >= 4 && parts[2] == "policies":
		return "tenant policy"
	}
	return ""
}

// riskOf returns the largest risk of the parts.
func riskOf(parts []RiskyPart) Risk {
	worst := Low
	for _, p := range parts {
		if p.Risk.exceeds(worst) {
			worst = p.Risk
		}
	}
	return worst
}

// need names the people that must say yes.
func (r Risk) need() string {
	switch r {
	case Low:
		return "nobody"
	case Medium:
		return "somebody who may change the files"
	case High:
		return "a person other than the proposer who may change the files"
	}
	return "two persons other than the proposer who may change the files"
}
