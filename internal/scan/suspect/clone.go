package suspect

import (
	"hash/maphash"
	"slices"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Peers are the tools that a definition is compared with.
type Peers struct {
	servers map[string][]switchboard.ServerID // by the name of a tool
	alike   map[string][]*PeerTool            // by skeleton
	said    map[uint64][]*PeerTool            // by the words of the description; only tools that the operator vouches for
	trusted map[switchboard.ServerID]bool     // servers that the operator vouches for
}

// A PeerTool is a tool of a server. Trust is that of the server. The zero value of Trust means that the operator does not vouch for it.
type PeerTool struct {
	ID         switchboard.ToolID
	Trust      switchboard.Trust
	Definition []byte
}

// NewPeers returns the peers for these tools. It keeps the definitions.
func NewPeers(tools []PeerTool) *Peers {
	p := &Peers{servers: map[string][]switchboard.ServerID{}, alike: map[string][]*PeerTool{}, said: map[uint64][]*PeerTool{}, trusted: map[switchboard.ServerID]bool{}}
	for i := range tools {
		t := &tools[i]
		p.servers[t.ID.Name] = append(p.servers[t.ID.Name], t.ID.Server)
		form := skeleton(t.ID.Name)
		p.alike[form] = append(p.alike[form], t)
		if t.Trust == switchboard.TrustOperator {
			p.trusted[t.ID.Server] = true
			if words := descriptionWords(t.Definition); len(words) >= minClone {
				key := hashWords(words)
				p.said[key] = append(p.said[key], t)
			}
		}
	}
	return p
}

const (
	minClone     = 4       // different words of the shortest description that says whose tool it is
	maxCloneText = 4 << 10 // bytes of a description that count
)

// cloned returns a tool of a server that the operator vouches for, if id belongs to a server for which the operator does not, and repeats that tool: it has nearly the
// same description under the same name, or the same one under any name.
func (p *Peers) cloned(id switchboard.ToolID, definition []byte) (*PeerTool, bool) {
	if len(p.trusted) == 0 || p.trusted[id.Server] {
		return nil, false
	}
	words := descriptionWords(definition)
	if len(words) < minClone {
		return nil, false
	}
	for _, t := range p.alike[skeleton(id.Name)] {
		if p.trusted[t.ID.Server] && nearlySame(words, descriptionWords(t.Definition)) {
			return t, true
		}
	}
	if same := p.said[hashWords(words)]; len(same) > 0 {
		return same[0], true
	}
	return nil, false
}

// descriptionWords returns the words of a definition's description, in small letters, sorted, each once.
func descriptionWords(definition []byte) []string {
	raw, _ := wire.Field(definition, "description")
	text, _ := wire.String(raw)
	text = text[:min(len(text), maxCloneText)]
	words := strings.FieldsFunc(strings.ToLower(normalize(text)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	slices.Sort(words)
	return slices.Compact(words)
}

var wordSeed = maphash.MakeSeed()

func hashWords(words []string) uint64 {
	var h maphash.Hash
	h.SetSeed(wordSeed)
	for _, w := range words {
		_, _ = h.WriteString(w)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// nearlySame reports whether two sorted lists share three quarters of all their words.
func nearlySame(a, b []string) bool {
	shared := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch strings.Compare(a[i], b[j]) {
		case 0:
			shared++
			i++
			j++
		case -1:
			i++
		default:
			j++
		}
	}
	return 4*shared >= 3*(len(a)+len(b)-shared)
}

// A nameKind says which tool a name in a text belongs to.
type nameKind int

const (
	nameUnknown nameKind = iota
	nameOwn              // a tool of the same server, or a property of the definition
	nameOfPeer           // only tools of other servers
)

func (p *Peers) kindOf(own switchboard.ServerID, name string) nameKind {
	servers := p.servers[name]
	if len(servers) == 0 {
		return nameUnknown
	}
	if slices.Contains(servers, own) {
		return nameOwn
	}
	return nameOfPeer
}

// imitated returns a tool with a name that looks like the name of id and is another one.
func (p *Peers) imitated(id switchboard.ToolID) (switchboard.ToolID, bool) {
	for _, t := range p.alike[skeleton(id.Name)] {
		if t.ID.Name != id.Name {
			return t.ID, true
		}
	}
	return switchboard.ToolID{}, false
}
