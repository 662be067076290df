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

	// Template is the server's own template that describes a resource which is not listed; "" where it is.
	Template string

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

// Resource says whose resource a client means by uri: that of the server that lists it, or of the one of which a listed
// template describes it. A URI that says whose it is (Qualify) means no other server's. Between two servers it does not guess. What is
// neither listed nor described does not exist, so that policies and people know what can be read.
func (s *Surface) Resource(uri string) (Item, bool) {
	shelf := s.shelves[switchboard.Resources]
	if it, ok := shelf.lookup(uri); ok {
		return it, true
	}
	by, own, named := qualified(switchboard.Resources, uri)
	if named {
		for _, it := range shelf.items {
			if it.Server == by && it.Own == own {
				return Item{Name: uri, Server: by, Own: own}, true
			}
		}
	} else {
		own = uri
		if owner, known := shelf.owners[uri]; known {
			by, named = owner.server, true
		}
	}
	if len(own) > maxPattern {
		return Item{}, false
	}
	found := Item{Name: uri, Own: own}
	for _, p := range s.patterns() {
		switch {
		case named && p.by != by, !named && !p.own && !p.shared, p.by == found.Server, !p.MatchString(own):
		case found.Template != "", !named && p.shared:
			return Item{}, false
		default:
			found.Server, found.Template = p.by, p.template
		}
	}
	return found, found.Template != ""
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
	template string
	by       switchboard.ServerID
	own      bool // its server alone goes by the template; else a URI has to say whose it is
	shared   bool // several servers go by it
}

// patterns reads the templates in their servers' own spelling.
func (s *shelf) patterns() (ps []pattern) {
	for _, it := range s.items {
		owner, ok := s.owners[it.Own]
		if !ok || len(it.Own) > maxPattern || len(ps) == maxPatterns {
			continue
		}
		if re := compile(it.Own); re != nil {
			ps = append(ps, pattern{re, it.Own, it.Server, owner == thing{it.Server, it.Own}, owner == thing{}})
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
