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

// A declared capability is one that exactly one server of the task has.
type declared struct {
	group string // extensions, experimental, or "" for one that stands by itself
	name  string
	value []byte
	by    switchboard.ServerID
}

// declare returns what the servers of the era declare besides what everybody
// knows, where only one does: no request could say which one is meant.
func declare(offers []switchboard.Offer, modern bool) (only []declared) {
	type key struct{ group, name string }
	count := map[key]int{}
	var all []declared
	add := func(d declared) {
		count[key{d.group, d.name}]++
		all = append(all, d)
	}
	for _, o := range offers {
		if o.Modern != modern {
			continue
		}
		for name, value := range wire.Members(o.Capabilities) {
			switch {
			case name == extensions || name == experimental:
				for inner, value := range wire.Members(value) {
					add(declared{name, inner, value, o.Server})
				}
			case !ours[name]:
				add(declared{"", name, value, o.Server})
			}
		}
	}
	for _, d := range all {
		if count[key{d.group, d.name}] == 1 {
			only = append(only, d)
		}
	}
	return only
}

// Extension says whose an unknown method is: the server's that alone has
// declared the capability, or the extension, by whose name the method begins. It
// speaks the client's era.
func (s *Surface) Extension(method string, modern bool) (by switchboard.ServerID, ok bool) {
	prefix, _, ok := strings.Cut(method, "/")
	if !ok {
		return "", false
	}
	for _, d := range declare(s.servers, modern) {
		if d.name == prefix || d.group != "" && strings.HasSuffix(d.name, "/"+prefix) {
			if by != "" && by != d.by {
				return "", false
			}
			by = d.by
		}
	}
	return by, by != ""
}

// Capabilities returns ours, an object, with what the servers of the client's
// era declare besides, each as its server spells it.
func (s *Surface) Capabilities(ours []byte, modern bool) []byte {
	groups := map[string][]byte{}
	var edits []wire.Edit
	for _, d := range declare(s.servers, modern) {
		if len(edits)+len(groups) == wire.MaxEdits/2 {
			break
		}
		if d.group == "" {
			edits = append(edits, wire.Edit{Name: d.name, Value: d.value})
			continue
		}
		groups[d.group] = wire.Rewrite(nil, groups[d.group], wire.Edit{Name: d.name, Value: d.value})
	}
	for _, name := range []string{extensions, experimental} {
		if groups[name] != nil {
			edits = append(edits, wire.Edit{Name: name, Value: groups[name]})
		}
	}
	return wire.Rewrite(nil, ours, edits...)
}
