package surface

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// ours are the capabilities whose methods Switchboard answers itself, or sends
// on by what they name.
var ours = map[string]bool{
	"tools": true, "resources": true, "prompts": true, "completions": true, "logging": true,
	extensions: true, experimental: true,
}

// The capabilities that hold others.
const (
	extensions   = "extensions"
	experimental = "experimental"
)

// WithoutExtensions returns the offer without the capabilities by which a server
// has methods of its own. Nobody has said what those do: they are for tasks that
// take the server whatever it does.
func WithoutExtensions(o switchboard.Offer) switchboard.Offer {
	o.Capabilities = wire.Without(nil, o.Capabilities, func(name string) bool {
		return !ours[name] || name == extensions || name == experimental
	})
	return o
}

// maxDeclared bounds what one server can declare. What is beyond it is not known
// here.
const maxDeclared = 64

// A declared capability is one that some server of the task has besides what
// everybody knows.
type declared struct {
	group string // extensions, experimental, or "" for one that stands by itself
	name  string
	value []byte
	by    switchboard.ServerID // "" where several have it: no request could say whose is meant
}

// declare returns what the servers of the era declare, in their order.
func declare(offers []switchboard.Offer, modern bool) (all []declared) {
	type key struct{ group, name string }
	at := map[key]int{}
	add := func(d declared) {
		k := key{d.group, d.name}
		if i, ok := at[k]; ok {
			all[i].by = ""
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
					add(declared{name, inner, value, o.Server})
				}
			case !ours[name] && len(all) < most:
				add(declared{"", name, value, o.Server})
			}
		}
	}
	return all
}

// Extension says whose an unknown method is: the server's that alone has
// declared the capability, or the extension, by whose name the method begins. It
// speaks the client's era.
func (s *Surface) Extension(method string, modern bool) (by switchboard.ServerID, ok bool) {
	prefix, _, ok := strings.Cut(method, "/")
	if !ok || ours[prefix] {
		return "", false
	}
	for _, d := range s.declared(modern) {
		switch {
		case d.name != prefix && (d.group == "" || !strings.HasSuffix(d.name, "/"+prefix)):
		case d.by == "" || by != "" && by != d.by:
			return "", false
		default:
			by = d.by
		}
	}
	return by, by != ""
}

// Capabilities returns ours, an object, with what single servers of the client's
// era declare besides, each as its server spells it.
func (s *Surface) Capabilities(ours []byte, modern bool) []byte {
	groups := map[string][]byte{}
	var edits []wire.Edit
	for _, d := range s.declared(modern) {
		switch {
		case d.by == "" || len(edits) == wire.MaxEdits/2:
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

func (s *Surface) declared(modern bool) []declared {
	if modern {
		return s.extensions[1]()
	}
	return s.extensions[0]()
}
