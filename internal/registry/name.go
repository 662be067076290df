package registry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
)

// CheckNames looks for entries whose names deceive. entries are those of all listings, and configured are the ids and the packages of the servers that are
// configured. Two names that are easily taken for each other (suspect.AlikeNames) give a remark on each entry that has one of them. A name that is alike to a configured
// one is the imitation. So is the one of two whose namespace does not own its package, if the namespace of the other one does. Else nothing says which of them is the
// original. Among the entries, the first 20,000 names are compared; each further one gets a remark.
//
// A namespace is said to own a scope if both have the same name: io.github.alice and @alice, com.acme and @acme. That is a hint. OwnsPackage looks at proof.
func CheckNames(entries []Entry, configured []string) []Remark {
	c := nameCheck{entries: entries, names: map[string][]int{}, packages: map[string][]int{}, said: map[remarkKey]bool{}}
	for _, name := range configured {
		c.configured.Add(name)
	}
	for i := range entries {
		e := &entries[i]
		if scope := scopeOf(e); scope != "" && !ownsScope(e) {
			c.add(i, RuleNamespace, "", fmt.Sprintf("its namespace %s does not own the scope @%s of its package %s; whether the package belongs to it, only the package itself can say", namespaceOf(e), scope, e.Package.Name))
		}
		_, short, _ := strings.Cut(e.Name, "/")
		for _, name := range []string{e.Package.Name, e.Name, short} {
			if at, ok := c.configured.Alike(name); ok && name != "" {
				c.add(i, RuleImitates, configured[at], fmt.Sprintf("%s looks like %s, which is configured here, and is another one", name, shown(configured[at], maxName)))
			}
		}
		note(c.names, e.Name, i)
		note(c.packages, e.Package.Name, i)
	}
	c.compare(c.names)
	c.compare(c.packages)
	return c.remarks
}

// OwnsPackage returns an error unless the package says itself that it belongs to the entry. mcpName is the member of that name in the package's package.json
// (npm.PackageFacts); the publisher of the package writes it.
func OwnsPackage(e Entry, mcpName string) error {
	switch {
	case e.Package.Name == "":
		return errors.New("the entry has no package")
	case mcpName == "":
		return fmt.Errorf("the package %s does not name its server (mcpName in its package.json), so nothing proves that it belongs to %s", e.Package, e.Name)
	case mcpName != e.Name:
		return fmt.Errorf("the package %s says that it belongs to %s, and not to %s", e.Package, shown(mcpName, maxName), e.Name)
	}
	return nil
}

// nameCheck is the state of CheckNames.
type nameCheck struct {
	entries         []Entry
	configured      suspect.NameIndex
	names, packages map[string][]int // the indexes of the entries with a name, in order
	said            map[remarkKey]bool
	remarks         []Remark
}

// A remarkKey is what makes a remark another one.
type remarkKey struct {
	entry int
	rule  RemarkRule
	other string
}

func note(to map[string][]int, name string, entry int) {
	if name != "" {
		to[name] = append(to[name], entry)
	}
}

// maxCompared limits the names of one kind that are compared with each other: names that are alike in many places cost time with the square of their number.
const maxCompared = 20_000

// compare compares all names of one kind with each other.
func (c *nameCheck) compare(entries map[string][]int) {
	var names []string // in the order of the entries: equal inputs give equal remarks
	for i := range c.entries {
		for _, name := range []string{c.entries[i].Name, c.entries[i].Package.Name} {
			switch at := entries[name]; {
			case len(at) == 0 || at[0] != i:
			case len(names) < maxCompared:
				names = append(names, name)
			default:
				for _, entry := range at {
					c.add(entry, RuleUnchecked, "", fmt.Sprintf("%s was not compared with the names of other entries, since there are more than %d", name, maxCompared))
				}
			}
		}
	}
	for earlier, later := range suspect.AlikeNames(names) {
		a, b := names[earlier], names[later]
		ownsA, ownsB := c.anyOwns(entries[a]), c.anyOwns(entries[b])
		c.addAlike(entries[a], a, b, !ownsA && ownsB)
		c.addAlike(entries[b], b, a, !ownsB && ownsA)
	}
}

// addAlike adds a remark to the entries with the name.
func (c *nameCheck) addAlike(entries []int, name, other string, imitates bool) {
	for _, i := range entries {
		if imitates {
			c.add(i, RuleImitates, other, fmt.Sprintf("%s looks like %s, whose namespace owns its package; the namespace of this one does not", name, other))
		} else {
			c.add(i, RuleAlike, other, fmt.Sprintf("%s looks like %s, and is another one; take care to take the one that you mean", name, other))
		}
	}
}

func (c *nameCheck) anyOwns(entries []int) bool {
	for _, i := range entries {
		if ownsScope(&c.entries[i]) {
			return true
		}
	}
	return false
}

func (c *nameCheck) add(entry int, rule RemarkRule, other, text string) {
	key := remarkKey{entry, rule, other}
	if c.said[key] {
		return
	}
	c.said[key] = true
	e := &c.entries[entry]
	c.remarks = append(c.remarks, Remark{Registry: e.Registry, Entry: e.Name, Version: e.Version, Rule: rule, Other: other, Text: text})
}

func namespaceOf(e *Entry) string {
	namespace, _, _ := strings.Cut(e.Name, "/")
	return namespace
}

// scopeOf returns the scope of the entry's package, without the @; "" if it has none.
func scopeOf(e *Entry) string {
	scope, _, scoped := strings.Cut(e.Package.Name, "/")
	if !scoped {
		return ""
	}
	return strings.TrimPrefix(scope, "@")
}

// ownsScope reports whether the entry's package has a scope with the name of the namespace. A namespace below a domain, such as com.example.acme, does not
// count: the owner of example.com can have each of these.
func ownsScope(e *Entry) bool {
	labels := strings.Split(namespaceOf(e), ".")
	if len(labels) == 3 && strings.EqualFold(labels[0], "io") && strings.EqualFold(labels[1], "github") {
		labels = labels[1:]
	}
	scope := scopeOf(e)
	return scope != "" && len(labels) == 2 && strings.EqualFold(labels[1], scope)
}
