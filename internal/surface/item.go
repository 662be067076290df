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

// URIPrefix begins the URIs that name the server of a resource.
const URIPrefix = "switchboard://"

// idMembers are the members of a definition that identify the item in requests.
var idMembers = [switchboard.NKinds]string{"name", "uri", "uriTemplate", "name"}

// An Item is one resource, template or prompt that the client sees.
type Item struct {
	Name   string // the URI, the template, or the prompt's name, as the client sees it
	Server switchboard.ServerID
	Own    string // the same in its server's spelling

	// Template is the server's own template that describes a resource which is not listed; "" for a listed one.
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

// Qualify returns the unique name of the server's item: <server>__<prompt> or switchboard://<server>/<uri>.
func Qualify(k switchboard.Kind, server switchboard.ServerID, own string) string {
	if k == switchboard.Prompts {
		return string(server) + separator + own
	}
	return URIPrefix + string(server) + "/" + own
}

// splitQualified splits a name that Qualify has made.
func splitQualified(k switchboard.Kind, name string) (server switchboard.ServerID, own string, ok bool) {
	var id string
	if k == switchboard.Prompts {
		id, own, ok = strings.Cut(name, separator)
	} else if rest, has := strings.CutPrefix(name, URIPrefix); has {
		id, own, ok = strings.Cut(rest, "/")
	}
	return switchboard.ServerID(id), own, ok && switchboard.CheckID(id) == nil
}

// An itemKey identifies an item by its server and the name there. The zero itemKey identifies none.
type itemKey struct {
	server switchboard.ServerID
	own    string
}

// An itemIndex holds the items of one kind. It is immutable once built.
type itemIndex struct {
	items  []Item
	byName map[string]int

	// owners has every server's own name that was used since the task was bound, and the item that owns the name. A
	// name that several servers used at once has the zero itemKey as its owner forever.
	owners map[string]itemKey
}

// newItemIndex gives each item its own name if no other item has the name now, has had it, or could be mistaken for
// it; otherwise the qualified name. The result does not depend on the order: if two items claim a name at once,
// neither gets it. An item never changes its name.
func newItemIndex(k switchboard.Kind, offers []switchboard.Offer, prev *itemIndex) *itemIndex {
	s := &itemIndex{byName: map[string]int{}, owners: prev.rememberedOwners()}
	claims := map[string]int{} // by own name: how many servers offer it
	var items []Item
	for i := range offers {
		seen := map[string]bool{}
		for _, def := range offers[i].List(k) {
			raw, _ := wire.Field(def, idMembers[k])
			own, ok := wire.String(raw)
			if !ok || own == "" || seen[own] {
				continue // no request could name it
			}
			seen[own] = true
			claims[own]++
			items = append(items, Item{Server: offers[i].Server, Own: own, definition: def})
		}
	}
	for _, it := range items {
		is := itemKey{it.Server, it.Own}
		_, _, looks := splitQualified(k, it.Own)
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
		s.byName[it.Name] = len(s.items)
		s.items = append(s.items, it)
	}
	return s
}

// rememberedOwners returns the owners to begin the next index with: all of them, unless servers have changed so many
// names that clients cannot rely on the removed ones.
func (s *itemIndex) rememberedOwners() map[string]itemKey {
	switch {
	case s == nil:
		return map[string]itemKey{}
	case len(s.owners)-len(s.items) <= MaxRemembered:
		return maps.Clone(s.owners)
	}
	owners := make(map[string]itemKey, len(s.items))
	for _, it := range s.items {
		if owner, ok := s.owners[it.Own]; ok {
			owners[it.Own] = owner
		}
	}
	return owners
}

func (s *itemIndex) lookup(name string) (Item, bool) {
	i, ok := s.byName[name]
	if !ok {
		return Item{}, false
	}
	return s.items[i], true
}

func (s *itemIndex) sameItems(other *itemIndex) bool {
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
func (set *itemSet) Prompt(name string) (Item, bool) {
	return set.items[switchboard.Prompts].lookup(name)
}

// Template returns the template that the client sees under that URI template.
func (set *itemSet) Template(uri string) (Item, bool) {
	return set.items[switchboard.Templates].lookup(uri)
}

// Resource returns the resource that a client means by uri: the one that a server lists, or the one that a listed
// template describes. A qualified URI (see Qualify) means a resource of the named server only. Resource does not
// choose between two servers. A resource that is neither listed nor described does not exist, so that policies and
// people know which resources can be read.
func (set *itemSet) Resource(uri string) (Item, bool) {
	resources := set.items[switchboard.Resources]
	if it, ok := resources.lookup(uri); ok {
		return it, true
	}
	by, own, named := splitQualified(switchboard.Resources, uri)
	if named {
		for _, it := range resources.items {
			if it.Server == by && it.Own == own {
				return Item{Name: uri, Server: by, Own: own}, true
			}
		}
	} else {
		own = uri
		if owner, known := resources.owners[uri]; known {
			by, named = owner.server, true
		}
	}
	if len(own) > maxPattern {
		return Item{}, false
	}
	found := Item{Name: uri, Own: own}
	for _, p := range set.uriPatterns() {
		switch {
		case named && p.server != by, !named && !p.ofOwner && !p.shared, p.server == found.Server, !p.MatchString(own):
		case found.Template != "", !named && p.shared:
			return Item{}, false
		default:
			found.Server, found.Template = p.server, p.template
		}
	}
	return found, found.Template != ""
}

// ClientURI returns the URI that reaches the server's own URI.
func (set *itemSet) ClientURI(server switchboard.ServerID, own string) string {
	if it, ok := set.Resource(own); ok && it.Server == server && it.Own == own {
		return own
	}
	return Qualify(switchboard.Resources, server, own)
}

// Limits of the templates and URIs that are matched against each other.
const (
	maxPattern  = 4 << 10 // bytes
	maxPatterns = 1 << 10
)

// A uriPattern matches the URIs that a template describes.
type uriPattern struct {
	*regexp.Regexp
	template string
	server   switchboard.ServerID
	ofOwner  bool // its server owns the template's name; otherwise only a qualified URI matches
	shared   bool // several servers have the same template
}

// compilePatterns compiles the templates in their servers' own spelling.
func (s *itemIndex) compilePatterns() (ps []uriPattern) {
	for _, it := range s.items {
		owner, ok := s.owners[it.Own]
		if !ok || len(it.Own) > maxPattern || len(ps) == maxPatterns {
			continue
		}
		if re := compileTemplate(it.Own); re != nil {
			ps = append(ps, uriPattern{re, it.Own, it.Server, owner == itemKey{it.Server, it.Own}, owner == itemKey{}})
		}
	}
	return ps
}

// compileTemplate returns nil for an invalid template, and for one that exceeds the limits of package regexp: there
// Regexp panics.
func compileTemplate(template string) (re *regexp.Regexp) {
	defer func() { _ = recover() }()
	t, err := uritemplate.New(template)
	if err != nil {
		return nil
	}
	return t.Regexp()
}
