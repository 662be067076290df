package surface

import (
	"bytes"
	"maps"
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

// A thing is what an Item stands for.
type thing struct {
	server switchboard.ServerID
	own    string
}

// A shelf holds the items of one kind. It is immutable once made.
type shelf struct {
	items []Item
	at    map[string]int

	// owners are of all unqualified names that have been shown since the task
	// was bound: nobody else gets them.
	owners map[string]thing
}

// newShelf gives each thing its own name where no other has it, had it, or
// could be taken to have it; else the qualified one. That depends on no order:
// where two come at once, neither gets it.
func newShelf(k switchboard.Kind, offers []switchboard.Offer, prev *shelf) *shelf {
	s := &shelf{at: map[string]int{}, owners: map[string]thing{}}
	if prev != nil && len(prev.owners)-len(prev.items) <= MaxRemembered {
		s.owners = maps.Clone(prev.owners)
	}
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
		it.Name = it.Own
		_, _, looks := qualified(k, it.Own)
		owner, known := s.owners[it.Own]
		if looks || known && owner != is || !known && claims[it.Own] > 1 {
			it.Name = Qualify(k, it.Server, it.Own)
		} else {
			s.owners[it.Own] = is
		}
		s.at[it.Name] = len(s.items)
		s.items = append(s.items, it)
	}
	return s
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
// the server that lists it; else the one that the URI names; else the one whose
// templates fit; else the only one that has resources at all. Between two it
// does not guess.
func (s *Surface) Resource(uri string) (Item, bool) {
	if it, ok := s.shelves[switchboard.Resources].lookup(uri); ok {
		return it, true
	}
	if server, own, ok := qualified(switchboard.Resources, uri); ok && s.readable[server] {
		return Item{Name: uri, Server: server, Own: own}, true
	}
	var by switchboard.ServerID
	for i, t := range s.templates() {
		server := s.shelves[switchboard.Templates].items[i].Server
		if t == nil || server == by || !t.Regexp().MatchString(uri) {
			continue
		}
		if by != "" {
			return Item{}, false
		}
		by = server
	}
	if by == "" && len(s.readable) == 1 {
		for server := range s.readable {
			by = server
		}
	}
	return Item{Name: uri, Server: by, Own: uri}, by != ""
}

// parse reads the templates in their own spelling; nil stands for one that is
// none.
func (s *shelf) parse() []*uritemplate.Template {
	ts := make([]*uritemplate.Template, len(s.items))
	for i, it := range s.items {
		if t, err := uritemplate.New(it.Own); err == nil && it.Name == it.Own && len(it.Own) <= maxTemplate {
			ts[i] = t
		}
	}
	return ts
}

// maxTemplate bounds the templates that are matched against URIs, in bytes.
const maxTemplate = 4 << 10
