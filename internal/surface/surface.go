// Package surface is what the client of one bound task sees: which tools,
// resources and prompts, under which names, in which order, and the finished
// bytes of their lists.
//
// # Names
//
// A tool is shown under the requirement's as, else its own name. When two share
// a name, every one of them becomes <server>__<tool>. Names that are too long,
// or have characters that clients do not take, are shortened (see Shorten);
// names that begin as Reserved are Switchboard's own, and a server's tool with
// such a name becomes <server>__<tool>. Should even that be no name of its own,
// because a server's tools imitate our shortened names, <server>__ and a hash
// is.
//
// Names do not change while a task is bound. A Surface that follows another
// keeps the names that were shown, and gives none of them to another tool, even
// after the first has gone: a client that does not list again would call the
// wrong one. So a newcomer whose name was ever shown takes its long name.
//
// Resources, their templates and prompts keep the names that their servers give
// them, which clients show to people and servers mention in results. Only where
// two servers use the same name does each of them get its server's (see
// Qualify).
//
// It decides nothing: what is selected, and in which order, it is told.
package surface

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxRemembered bounds how many names of tools that have gone are kept for
// them, besides those that were shown just before. Beyond it all are forgotten:
// nobody relies on the names of a server that has changed them so often.
const MaxRemembered = 4096

// An Entry is one tool that the client sees.
type Entry struct {
	Name string
	Tool *switchboard.Tool

	// Judgments are policy's, of the requirements that selected the tool.
	Judgments []*switchboard.Judgment
}

// Append appends the tool's definition as the client sees it: the server's own
// bytes, but for the name where it is shown under another.
func (e Entry) Append(dst []byte) []byte {
	if raw, ok := wire.Field(e.Tool.Definition, "name"); ok {
		if name, ok := wire.String(raw); ok && name == e.Name {
			return append(dst, e.Tool.Definition...)
		}
	}
	return wire.Rewrite(dst, e.Tool.Definition, wire.Edit{Name: "name", Value: wire.AppendString(nil, e.Name)})
}

// A Surface is immutable and safe for concurrent use.
type Surface struct {
	entries []Entry
	at      map[string]int // of entries, by name

	// names are of all tools that have been shown since the task was bound,
	// and of is the other way round.
	names map[string]switchboard.ToolID
	of    map[switchboard.ToolID]string

	// shelves hold what is not a tool, and readable is whose resources may be
	// read.
	shelves  [switchboard.NKinds]*shelf
	readable map[switchboard.ServerID]bool
	patterns func() []pattern

	servers    []switchboard.Offer
	extensions [2]func() []declared                 // by era
	lists      [switchboard.NKinds][2]func() []byte // by kind and era
}

// New returns the surface of a task's selected tools, in the order in which
// they are given, and of what else the servers offer that the task uses as a
// whole. prev, where not nil, is what the same client saw until now. task may
// be nil when nothing is selected. serverInfo is the JSON object that tells
// modern clients who answers; nil means that nothing does.
func New(task *switchboard.Task, selected []decide.Selected, whole []switchboard.Offer, prev *Surface, serverInfo []byte) *Surface {
	s := &Surface{names: map[string]switchboard.ToolID{}, of: map[switchboard.ToolID]string{}, servers: whole}
	if prev != nil {
		s.follow(prev, selected)
	}

	var newcomers []*claim
	for _, sel := range selected {
		if _, ok := s.of[sel.Tool.ID]; !ok {
			newcomers = append(newcomers, &claim{id: sel.Tool.ID, own: wish(task, sel)})
		}
	}
	settle(newcomers, s.names)
	for _, c := range newcomers {
		if c.name != "" {
			s.names[c.name], s.of[c.id] = c.id, c.name
		}
	}

	s.entries = make([]Entry, 0, len(selected))
	for _, sel := range selected {
		if name, ok := s.of[sel.Tool.ID]; ok {
			s.entries = append(s.entries, Entry{Name: name, Tool: sel.Tool, Judgments: sel.Judgments})
		}
	}
	s.at = make(map[string]int, len(s.entries))
	for i, e := range s.entries {
		s.at[e.Name] = i
	}
	s.readable = map[switchboard.ServerID]bool{}
	for _, o := range whole {
		if _, ok := wire.Field(o.Capabilities, "resources"); ok {
			s.readable[o.Server] = true
		}
	}
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		var before *shelf
		if prev != nil {
			before = prev.shelves[k]
		}
		s.shelves[k] = newShelf(k, whole, before)
	}
	s.patterns = sync.OnceValue(s.shelves[switchboard.Templates].patterns)
	for era := range s.extensions {
		s.extensions[era] = sync.OnceValue(func() []declared { return declare(whole, era == 1) })
	}
	for k := range switchboard.NKinds {
		s.lists[k][0] = sync.OnceValue(func() []byte { return s.list(k, nil) })
		s.lists[k][1] = sync.OnceValue(func() []byte { return s.list(k, modernMembers(serverInfo)) })
	}
	return s
}

// follow begins with the names that were shown since the task was bound, but for
// those that nobody will miss.
func (s *Surface) follow(prev *Surface, selected []decide.Selected) {
	s.names, s.of = maps.Clone(prev.names), maps.Clone(prev.of)
	if len(s.names)-len(prev.at) <= MaxRemembered {
		return
	}
	wanted := make(map[switchboard.ToolID]bool, len(selected))
	for _, sel := range selected {
		wanted[sel.Tool.ID] = true
	}
	maps.DeleteFunc(s.names, func(name string, id switchboard.ToolID) bool {
		_, shown := prev.at[name]
		return !shown && !wanted[id]
	})
	maps.DeleteFunc(s.of, func(_ switchboard.ToolID, name string) bool {
		_, stays := s.names[name]
		return !stays
	})
}

// wish is the name that the tool is to have if nothing stands against it.
func wish(task *switchboard.Task, sel decide.Selected) string {
	for _, r := range sel.Requirements {
		if as := task.Requirements[r].As; as != "" {
			return as
		}
	}
	return sel.Tool.ID.Name
}

// Lookup returns the tool that the client sees under name, by its very bytes.
func (s *Surface) Lookup(name string) (Entry, bool) {
	i, ok := s.at[name]
	if !ok {
		return Entry{}, false
	}
	return s.entries[i], true
}

// Name returns the name under which the client sees the tool.
func (s *Surface) Name(id switchboard.ToolID) (string, bool) {
	name := s.of[id]
	_, shown := s.at[name]
	return name, shown
}

// Entries returns what the client sees, in the list's order. The slice must not
// be modified.
func (s *Surface) Entries() []Entry { return s.entries }

// Servers are what the servers offer that the task uses as a whole, in the order
// of its tools. The slice must not be modified.
func (s *Surface) Servers() []switchboard.Offer { return s.servers }

// Judgments are policy's, of the requirements that selected tools of the server.
func (s *Surface) Judgments(id switchboard.ServerID) (all []*switchboard.Judgment) {
	for _, e := range s.entries {
		if e.Tool.ID.Server != id {
			continue
		}
		for _, j := range e.Judgments {
			if !slices.Contains(all, j) {
				all = append(all, j)
			}
		}
	}
	return all
}

// List returns the result of the kind's list for a client of the modern or the
// legacy era. It is made once, and must not be modified.
func (s *Surface) List(k switchboard.Kind, modern bool) []byte {
	if modern {
		return s.lists[k][1]()
	}
	return s.lists[k][0]()
}

// Differs returns the kinds of which a client does not see the same in both:
// the same things with the same names and definitions, in the same order.
func (s *Surface) Differs(other *Surface) (ks switchboard.Kinds) {
	if !slices.EqualFunc(s.entries, other.entries, func(a, b Entry) bool {
		return a.Name == b.Name && bytes.Equal(a.Tool.Definition, b.Tool.Definition)
	}) {
		ks = ks.With(switchboard.Tools)
	}
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		if !s.shelves[k].equal(other.shelves[k]) {
			ks = ks.With(k)
		}
	}
	return ks
}

// listMembers are the members of a list's result that hold it.
var listMembers = [switchboard.NKinds]string{"tools", "resources", "resourceTemplates", "prompts"}

// list makes the result; members follow the list and begin with a comma.
func (s *Surface) list(k switchboard.Kind, members []byte) []byte {
	const slack = MaxNameBytes + 8 // a definition grows by a name at most
	n := len(members) + 32
	for _, e := range s.entries {
		if k == switchboard.Tools {
			n += len(e.Tool.Definition) + slack
		}
	}
	b := append(wire.AppendString(append(make([]byte, 0, n), '{'), listMembers[k]), ":["...)
	first := len(b)
	if k == switchboard.Tools {
		for _, e := range s.entries {
			b = e.Append(comma(b, first))
		}
	} else {
		for _, it := range s.shelves[k].items {
			b = it.append(comma(b, first), k)
		}
	}
	b = append(b, ']')
	b = append(b, members...)
	return append(b, '}')
}

// comma parts an element from the one before it.
func comma(b []byte, first int) []byte {
	if len(b) > first {
		b = append(b, ',')
	}
	return b
}

// modernMembers are what a result of the modern era has besides. The list may
// differ by client, and we say when it changes: nobody is to keep it.
func modernMembers(serverInfo []byte) []byte {
	b := []byte(`,"resultType":"complete","ttlMs":0,"cacheScope":"private"`)
	if serverInfo == nil {
		return b
	}
	b = append(b, `,"_meta":{`...)
	b = wire.AppendString(b, wire.MetaServerInfo)
	b = append(b, ':')
	b = append(b, serverInfo...)
	return append(b, '}')
}
