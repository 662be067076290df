package surface

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// ownCapabilities are the capabilities with methods that Switchboard answers itself or routes by the item that they
// name.
var ownCapabilities = map[string]bool{
	"tools": true, "resources": true, "prompts": true, "completions": true, "logging": true,
	extensions: true, experimental: true,
}

// The capabilities that contain other capabilities.
const (
	extensions   = "extensions"
	experimental = "experimental"
)

// WithoutExtensions returns the offer without the capabilities that give a server methods of its own. Their effect is
// not described, so only tasks that take the server as a whole get them.
func WithoutExtensions(o switchboard.Offer) switchboard.Offer {
	o.Capabilities = wire.Without(nil, o.Capabilities, func(name string) bool {
		return !ownCapabilities[name] || name == extensions || name == experimental
	})
	return o
}

// maxDeclared limits the capabilities that one server can declare. Further ones are ignored.
const maxDeclared = 64

// A declaredCapability is a capability that a server of the task declares beyond the standard ones.
type declaredCapability struct {
	group  string // extensions, experimental, or "" for a top-level capability
	name   string
	value  []byte
	server switchboard.ServerID // "" if several servers declare it, because a request could not say which one it means
}

// collectDeclared returns the declared capabilities of the servers of the era, in the order of the servers.
func collectDeclared(offers []switchboard.Offer, modern bool) (all []declaredCapability) {
	type key struct{ group, name string }
	at := map[key]int{}
	add := func(d declaredCapability) {
		k := key{d.group, d.name}
		if i, ok := at[k]; ok {
			all[i].server = ""
			return
		}
		at[k] = len(all)
		all = append(all, d)
	}
	for _, o := range offers {
		if o.Modern != modern {
			continue
		}
		most := len(all) + maxDeclared
		for name, value := range wire.Members(o.Capabilities) {
			switch {
			case name == extensions || name == experimental:
				for inner, value := range wire.Members(value) {
					if len(all) == most {
						break
					}
					add(declaredCapability{name, inner, value, o.Server})
				}
			case !ownCapabilities[name] && len(all) < most:
				add(declaredCapability{"", name, value, o.Server})
			}
		}
	}
	return all
}

// ExtensionServer returns the server that answers a method unknown to Switchboard: the only server that has declared the
// capability or extension with the method's prefix. The server speaks the client's era.
func (o *offerSet) ExtensionServer(method string, modern bool) (by switchboard.ServerID, ok bool) {
	prefix, _, ok := strings.Cut(method, "/")
	if !ok || ownCapabilities[prefix] {
		return "", false
	}
	for _, d := range o.declaredFor(modern) {
		switch {
		case d.name != prefix && (d.group == "" || !strings.HasSuffix(d.name, "/"+prefix)):
		case d.server == "" || by != "" && by != d.server:
			return "", false
		default:
			by = d.server
		}
	}
	return by, by != ""
}

// Capabilities returns the object ours, extended by capabilities that exactly one server of the client's era
// declares. Each is spelled as its server spells it.
func (o *offerSet) Capabilities(ours []byte, modern bool) []byte {
	groups := map[string][]byte{}
	var edits []wire.Edit
	for _, d := range o.declaredFor(modern) {
		switch {
		case d.server == "" || len(edits) == wire.MaxEdits/2:
		case d.group == "":
			edits = append(edits, wire.Edit{Name: d.name, Value: d.value})
		default:
			groups[d.group] = wire.Rewrite(nil, groups[d.group], wire.Edit{Name: d.name, Value: d.value})
		}
	}
	for _, name := range []string{extensions, experimental} {
		if groups[name] != nil {
			edits = append(edits, wire.Edit{Name: name, Value: groups[name]})
		}
	}
	return wire.Rewrite(nil, ours, edits...)
}

func (o *offerSet) declaredFor(modern bool) []declaredCapability {
	if modern {
		return o.declaredByEra[1]()
	}
	return o.declaredByEra[0]()
}
