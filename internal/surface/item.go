package surface

import (
	"bytes"
	"maps"
	"regexp"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// URIPrefix begins the URIs that say whose resource they name.
const URIPrefix = "switchboard://"

// idMembers are the members of a definition by which clients ask for it.
var idMembers = [switchboard.NKinds]string{"name", "uri", "uriTemplate", "name"}

// An Item is one resource, template or prompt that the client sees.
type Item struct {
	Name   string // the URI, the template, or the prompt's name, as the client sees it
	Server switchboard.ServerID
	Own    string // the same as its server spells it

	definition []byte
}

// append appends the item's definition as the client sees it.
func (it Item) append(dst []byte, k switchboard.Kind) []byte {
	if it.Name == it.Own {
		return append(dst, it.definition...)
	}
	return wire.Rewrite(dst, it.definition, wire.Edit{Name: idMembers[k], Value: wire.AppendString(nil, it.Name)})
}

// Qualify returns the name of the server's own thing that is no other's,
// whatever else there is: <server>__<prompt> or switchboard://<server>/<uri>.
func Qualify(k switchboard.Kind, server switchboard.ServerID, own string) string {
	if k == switchboard.Prompts {
		return string(server) + separator + own
	}
	return URIPrefix + string(server) + "/" + own
}

// qualified takes such a name apart.
func qualified(k switchboard.Kind, name string) (server switchboard.ServerID, own string, ok bool) {
	var id string
	if k == switchboard.Prompts {
		id, own, ok = strings.Cut(name, separator)
	} else if rest, has := strings.CutPrefix(name, URIPrefix); has {
		id, own, ok = strings.Cut(rest, "/")
	}
	return switchboard.ServerID(id), own, ok && switchboard.CheckID(id) == nil
}

// A thing is what an Item stands for. The zero thing is none.
type thing struct {
	server switchboard.ServerID
	own    string
}

// A shelf holds the items of one kind. It is immutable once made.
type shelf struct {
	items []Item
	at    map[string]int

	// owners are of all names of servers' own that have been used since the
	// task was bound: nobody else gets them. Those that several servers used
	// at once are the zero thing's, for good.
	owners map[string]thing
}

// newShelf gives each thing its own name where no other has it, had it, or
// could be taken to have it; else the qualified one. That depends on no order:
// where two come at once, neither gets it. A thing never changes its name.
func newShelf(k switchboard.Kind, offers []switchboard.Offer, prev *shelf) *shelf {
	s := &shelf{at: map[string]int{}, owners: prev.remembered()}
	claims := map[string]int{} // own names, by how many servers offer them
	var items []Item
	for i := range offers {
		seen := map[string]bool{}
		for _, def := range offers[i].List(k) {
			raw, _ := wire.Field(def, idMembers[k])
			own, ok := wire.String(raw)
			if !ok || own == "" || seen[own] {
				continue // nobody could ask for it
			}
			seen[own] = true
			claims[own]++
			items = append(items, Item{Server: offers[i].Server, Own: own, definition: def})
		}
	}
	for _, it := range items {
		is := thing{it.Server, it.Own}
		_, _, looks := qualified(k, it.Own)
		owner, known := s.owners[it.Own]
		if !known && !looks {
			if claims[it.Own] == 1 {
				owner = is
			}
			s.owners[it.Own] = owner
		}
		it.Name = it.Own
		if looks || owner != is {
			it.Name = Qualify(k, it.Server, it.Own)
		}
		s.at[it.Name] = len(s.items)
		s.items = append(s.items, it)
	}
	return s
}

// remembered returns the owners that the next shelf begins with: all, unless
// servers have changed their names so often that nobody can rely on those that
// have gone.
func (s *shelf) remembered() map[string]thing {
	switch {
	case s == nil:
		return map[string]thing{}
	case len(s.owners)-len(s.items) <= MaxRemembered:
		return maps.Clone(s.owners)
	}
	owners := make(map[string]thing, len(s.items))
	for _, it := range s.items {
		if owner, ok := s.owners[it.Own]; ok {
			owners[it.Own] = owner
		}
	}
	return owners
}

func (s *shelf) lookup(name string) (Item, bool) {
	i, ok := s.at[name]
	if !ok {
		return Item{}, false
	}
	return s.items[i], true
}

func (s *shelf) equal(other *shelf) bool {
	if len(s.items) != len(other.items) {
		return false
	}
	for i, it := range s.items {
		if o := other.items[i]; it.Name != o.Name || it.Server != o.Server || !bytes.Equal(it.definition, o.definition) {
			return false
		}
	}
	return true
}

// Prompt returns the prompt that the client sees under name.
func (s *Surface) Prompt(name string) (Item, bool) {
	return s.shelves[switchboard.Prompts].lookup(name)
}

// Template returns the template that the client sees as such.
func (s *Surface) Template(uri string) (Item, bool) {
	return s.shelves[switchboard.Templates].lookup(uri)
}

// Resource says whose resource a client means by uri, which need not be listed:
// servers mention resources in results, and describe them by templates. It is
// the server that lists it, or did; else the one that the URI names; else the
// one whose templates fit; else the only one that has resources at all. Between
// two it does not guess.
func (s *Surface) Resource(uri string) (Item, bool) {
	shelf := s.shelves[switchboard.Resources]
	if it, ok := shelf.lookup(uri); ok {
		return it, true
	}
	if server, own, ok := qualified(switchboard.Resources, uri); ok {
		return Item{Name: uri, Server: server, Own: own}, own != "" && s.readable[server]
	}
	owner, known := shelf.owners[uri]
	by := owner.server
	if !known && len(uri) <= maxPattern {
		for _, p := range s.patterns() {
			switch {
			case known && p.by == by || !p.MatchString(uri):
			case known:
				return Item{}, false
			default:
				by, known = p.by, true
			}
		}
	}
	if !known && len(s.readable) == 1 {
		for only := range s.readable {
			by = only
		}
	}
	return Item{Name: uri, Server: by, Own: uri}, s.readable[by]
}

// Spell returns the URI by which the client reaches the server's own one.
func (s *Surface) Spell(server switchboard.ServerID, own string) string {
	if it, ok := s.Resource(own); ok && it.Server == server && it.Own == own {
		return own
	}
	return Qualify(switchboard.Resources, server, own)
}

// Bounds of the templates that are held against URIs, and of those.
const (
	maxPattern  = 4 << 10 // bytes
	maxPatterns = 1 << 10
)

// A pattern matches the URIs that a template describes.
type pattern struct {
	*regexp.Regexp
	by switchboard.ServerID // whose the template is; "" where it could be several servers'
}

// patterns reads the templates in their servers' own spelling.
func (s *shelf) patterns() (ps []pattern) {
	for _, it := range s.items {
		owner, ok := s.owners[it.Own]
		if !ok || len(it.Own) > maxPattern || len(ps) == maxPatterns {
			continue
		}
		if re := compile(it.Own); re != nil {
			ps = append(ps, pattern{re, owner.server})
		}
	}
	return ps
}

// compile returns nil for a template that is none, or more than regexp takes:
// there Regexp panics.
func compile(template string) (re *regexp.Regexp) {
	defer func() { _ = recover() }()
	t, err := uritemplate.New(template)
	if err != nil {
		return nil
	}
	return t.Regexp()
}
