package document

import (
	"slices"
	"strings"
)

// UnknownPath ends the path of a part that no row describes.
const UnknownPath = "?"

// Paths returns the paths of all keys of files whose content has the type, as Reference spells them: "servers.ID.url", "budgets[].limit".
func Paths(content Type) []string {
	var all []string
	content.addPaths(content.below, &all)
	return all
}

func (t Type) addPaths(path string, all *[]string) {
	if t.keys == nil {
		return
	}
	for _, r := range t.keys().Rows {
		own := joinPath(path, r.Key)
		*all = append(*all, own)
		r.Type.addPaths(r.Type.inner(own), all)
	}
}

// inner returns the path of the maps that a value of the type at the path holds.
func (t Type) inner(path string) string {
	if t.below == "" || t.below == "[]" {
		return path + t.below
	}
	return joinPath(path, t.below)
}

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// A PathChange is a part that differs between two readings of a file.
type PathChange struct {
	Path  string // of the key, as Paths spells it; or it ends in UnknownPath
	After *Node  // the new value; nil if it is gone

	Entries [2]*Node // the outermost entry of a map or a list that has the part, before and after; nil if there is none
}

// ChangedPaths returns the parts that differ between two readings of a file whose content has the type; nil means that there is no file. It returns rather too many
// than too few: all parts of an entry that is new or gone, and all that follow an item that was put into a list. Comments, order of keys and spelling do not count.
func ChangedPaths(content Type, before, after *Node) []PathChange {
	var c pathComparison
	c.compare(content, "", content.below, before, after)
	return c.changes
}

type pathComparison struct {
	changes []PathChange
	entries [2]*Node // see PathChange
}

func (c *pathComparison) add(path string, after *Node) {
	c.changes = append(c.changes, PathChange{path, after, c.entries})
}

// compareEntries compares two entries of a map or a list.
func (c *pathComparison) compareEntries(keys *Keys, path string, a, b *Node) {
	if c.entries == [2]*Node{} {
		c.entries = [2]*Node{a, b}
		defer func() { c.entries = [2]*Node{} }()
	}
	c.compareMaps(keys, path, a, b)
}

// compare compares two values of a type at the path own. inner is the path of the maps in them.
func (c *pathComparison) compare(t Type, own, inner string, a, b *Node) {
	switch {
	case equalNodes(a, b):
	case t.keys == nil:
		c.add(own, b)
	case t.below == "":
		c.compareMaps(t.keys(), inner, a, b)
	case !isShape(a, t.below) || !isShape(b, t.below):
		c.add(joinPath(own, UnknownPath), b)
	case t.below == "[]":
		x, y := itemsOf(a), itemsOf(b)
		if len(x) != len(y) {
			c.add(own, b)
		}
		for i := range max(len(x), len(y)) {
			c.compareEntries(t.keys(), inner, at(x, i), at(y, i))
		}
	default:
		for _, name := range keyNames(a, b) {
			x, y := a.Member(name), b.Member(name)
			if (x == nil) != (y == nil) {
				c.add(own, b)
			}
			c.compareEntries(t.keys(), inner, x, y)
		}
	}
}

// compareMaps compares two maps with fixed keys.
func (c *pathComparison) compareMaps(keys *Keys, path string, a, b *Node) {
	if equalNodes(a, b) {
		return
	}
	if !isShape(a, "") || !isShape(b, "") || hasRepeats(a) || hasRepeats(b) {
		c.add(joinPath(path, UnknownPath), b)
		return
	}
	for _, name := range keyNames(a, b) {
		x, y := a.Member(name), b.Member(name)
		i := slices.IndexFunc(keys.Rows, func(r Row) bool { return r.Key == name })
		if i < 0 {
			if !equalNodes(x, y) {
				c.add(joinPath(path, UnknownPath), y)
			}
			continue
		}
		own := joinPath(path, name)
		t := keys.Rows[i].Type
		if (x == nil) != (y == nil) && t.keys != nil {
			c.add(own, y) // an empty one counts too
		}
		c.compare(t, own, t.inner(own), x, y)
	}
}

// isShape reports whether a value can hold maps: a list for "[]", else a map. What is absent or has no value can.
func isShape(n *Node, below string) bool {
	switch {
	case n == nil || n.Kind == KindNull:
		return true
	case below == "[]":
		return n.Kind == KindList
	}
	return n.Kind == KindMap
}

func itemsOf(n *Node) []Node {
	if n == nil {
		return nil
	}
	return n.Items
}

func at(items []Node, i int) *Node {
	if i >= len(items) {
		return nil
	}
	return &items[i]
}

// keyNames returns the keys of both maps, sorted.
func keyNames(maps ...*Node) []string {
	var out []string
	for _, m := range maps {
		if m != nil {
			for _, p := range m.Pairs {
				out = append(out, p.Key.Text)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func hasRepeats(m *Node) bool { return m != nil && len(keyNames(m)) != len(m.Pairs) }

// Member returns the value of a key of a map; nil if there is none, or no map.
func (n *Node) Member(name string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Pairs {
		if n.Pairs[i].Key.Text == name {
			return &n.Pairs[i].Value
		}
	}
	return nil
}

// equalNodes reports whether two values mean the same. The order of a map does not count.
func equalNodes(a, b *Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Text != b.Text || len(a.Items) != len(b.Items) || len(a.Pairs) != len(b.Pairs) || hasRepeats(a) || hasRepeats(b) {
		return false
	}
	for i := range a.Items {
		if !equalNodes(&a.Items[i], &b.Items[i]) {
			return false
		}
	}
	for i := range a.Pairs {
		if !equalNodes(&a.Pairs[i].Value, b.Member(a.Pairs[i].Key.Text)) {
			return false
		}
	}
	return true
}
