package surface

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// MaxNameBytes is the maximum length of a tool's name that clients see.
	MaxNameBytes = 64

	// Reserved is the prefix of the names of Switchboard's own tools, and of no others.
	Reserved = "switchboard_"

	// separator is between a server's id and a tool's name. Ids have no underscore, so the first separator in a long
	// name ends the id: each long name belongs to one tool.
	separator = "__"

	// hashDigits is the number of hexadecimal digits of the SHA-256 at the end of a shortened name. lastDigits is the
	// same for a name of last resort, which then has the maximum length.
	hashDigits = 10
	lastDigits = MaxNameBytes - switchboard.MaxIDBytes - len(separator)
)

// Shorten returns name in the form that a client may see. It returns a name unchanged if it has at most MaxNameBytes
// characters out of [A-Za-z0-9_-] and does not look reserved. It changes any other name as follows:
//
//  1. It replaces each other character by _.
//  2. It cuts the name after 53 characters.
//  3. It appends _ and the first 10 hexadecimal digits of the SHA-256 of name.
//  4. It puts "tool-" in front if the name looks reserved.
func Shorten(name string) string {
	if isShowable(name) {
		return name
	}
	short := strings.Map(func(r rune) rune {
		if r < 0x80 && allowedByte(byte(r)) {
			return r
		}
		return '_'
	}, name)
	limit := MaxNameBytes - hashDigits - 1
	if looksReserved(short) {
		limit -= len("tool-")
	}
	short = short[:min(len(short), limit)]
	return avoidReserved(short + "_" + hexDigest(name)[:hashDigits])
}

func isShowable(name string) bool {
	if name == "" || len(name) > MaxNameBytes || looksReserved(name) {
		return false
	}
	for i := range len(name) {
		if !allowedByte(name[i]) {
			return false
		}
	}
	return true
}

func allowedByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// avoidReserved changes a name that looks like one of our own. No id ends in a hyphen, so its result is never the
// long name of another server's tool.
func avoidReserved(name string) string {
	if looksReserved(name) {
		return "tool-" + name[:min(len(name), MaxNameBytes-len("tool-"))]
	}
	return name
}

// looksReserved reports whether a reader may take name for one of Switchboard's own: it begins with Reserved in upper
// or lower case, with hyphens or underscores.
func looksReserved(name string) bool {
	return len(name) >= len(Reserved) && strings.EqualFold(strings.ReplaceAll(name[:len(Reserved)], "-", "_"), Reserved)
}

func hexDigest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The ranks of the names that a tool can have. It moves to the next rank when another tool
// claims the same.
const (
	ownName  = iota // the requirement's as, or else the tool's own name
	longName        // <server>__<tool>, or <capability>__<tool>
	lastName        // <server>__<hash of both>, only if a server's names imitate shortened ones
)

// A nameClaim is one tool that needs a name.
type nameClaim struct {
	id     switchboard.ToolID
	wanted string // the requirement's as, or the tool's own name
	within string // what the long name begins with: the server, or the capability that the tool provides
	tool   string // what it ends with
	rank   int
	name   string // "" while the tool has no name
}

// applyRank sets the name for the claim's rank.
func (c *nameClaim) applyRank() {
	switch c.rank {
	case ownName:
		c.name = Shorten(c.wanted)
	case longName:
		c.name = Shorten(c.within + separator + c.tool)
	default:
		c.name = avoidReserved(string(c.id.Server) + separator + hexDigest(c.id.String())[:lastDigits])
	}
}

// newClaim returns the claim of a selected tool. The names of provided tools say nothing about their servers, so that they stay
// the same when another server provides them.
func newClaim(task *switchboard.Task, sel decide.Selected) *nameClaim {
	t := sel.Tool
	c := &nameClaim{id: t.Key(), wanted: wantedName(task, sel), within: string(t.ID.Server), tool: t.Name()}
	if t.Provides != nil {
		id, _, _ := strings.Cut(t.Provides.Capability, "@")
		c.within = strings.ReplaceAll(id, ".", "_")
	}
	return c
}

// assignNames gives each claim a unique name that is not taken. A claim loses its name when another claims it at the
// same rank or a later one, and then moves to its next rank. A name counts as claimed even after the claim has moved
// on. So the result does not depend on the order of claims, and each claim moves at most twice.
//
// A claim ends without a name only if 120 bits of SHA-256 collide.
func assignNames(claims []*nameClaim, taken map[string]bool) {
	type nameState struct {
		rank int        // the latest rank at which the name has been claimed
		by   *nameClaim // the claim that has the name now; nil after a conflict
	}
	names := make(map[string]*nameState, len(claims))
	todo := make([]*nameClaim, 0, len(claims))
	for _, c := range claims {
		if c.applyRank(); looksReserved(c.wanted) {
			c.rank = longName
			c.applyRank()
		}
		todo = append(todo, c)
	}
	move := func(c *nameClaim) {
		if c.rank == lastName {
			c.name = ""
			return
		}
		c.rank++
		c.applyRank()
		todo = append(todo, c)
	}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if taken[c.name] {
			move(c)
			continue
		}
		h := names[c.name]
		if h == nil {
			names[c.name] = &nameState{rank: c.rank, by: c}
			continue
		}
		if h.by != nil && h.by.rank <= c.rank {
			loser := h.by
			h.by = nil
			move(loser)
		}
		if h.rank >= c.rank {
			move(c)
			continue
		}
		h.rank, h.by = c.rank, c
	}
}
