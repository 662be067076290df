package surface

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// MaxNameBytes is how long the name of a tool may be that clients see.
	MaxNameBytes = 64

	// Reserved begins the names of Switchboard's own tools, and no others.
	Reserved = "switchboard_"

	// separator stands between a server's id and a tool's name. Ids have no
	// underscore, so that the first one in a long name ends the id: a long name
	// is of one tool only.
	separator = "__"

	// hashDigits are the hexadecimal digits of the SHA-256 that end a shortened
	// name, and lastDigits those of a name of last resort, which is full then.
	hashDigits = 10
	lastDigits = MaxNameBytes - switchboard.MaxIDBytes - len(separator)
)

// Shorten returns name as a client may see it. A name of at most MaxNameBytes
// characters out of [A-Za-z0-9_-] that does not look reserved is returned
// as it is. Any other has
//
//  1. each character outside of the set replaced by _,
//  2. what is then beyond 53 characters cut off,
//  3. _ and the first 10 hexadecimal digits of the SHA-256 of name appended,
//  4. "tool-" put before it where it looks reserved.
func Shorten(name string) string {
	if fits(name) {
		return name
	}
	short := strings.Map(func(r rune) rune {
		if r < 0x80 && allowed(byte(r)) {
			return r
		}
		return '_'
	}, name)
	limit := MaxNameBytes - hashDigits - 1
	if looksReserved(short) {
		limit -= len("tool-")
	}
	short = short[:min(len(short), limit)]
	return unreserved(short + "_" + hash(name)[:hashDigits])
}

func fits(name string) bool {
	if name == "" || len(name) > MaxNameBytes || looksReserved(name) {
		return false
	}
	for i := range len(name) {
		if !allowed(name[i]) {
			return false
		}
	}
	return true
}

func allowed(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// unreserved keeps off the names of our own, and what looks like them. No id ends in
// a hyphen, so that what it returns is no other server's long name.
func unreserved(name string) string {
	if looksReserved(name) {
		return "tool-" + name[:min(len(name), MaxNameBytes-len("tool-"))]
	}
	return name
}

// looksReserved reports whether a reader may take name for one of Switchboard's own: it
// begins as Reserved does, in upper or lower case and with a hyphen or an underscore.
func looksReserved(name string) bool {
	return len(name) >= len(Reserved) && strings.EqualFold(strings.ReplaceAll(name[:len(Reserved)], "-", "_"), Reserved)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The ranks of a name that a tool claims. It claims the next when another tool
// claims the same.
const (
	ownName  = iota // what the requirement says, else what the server says
	longName        // <server>__<tool>
	lastName        // <server>__<hash of both>: only when a server's names imitate shortened ones
)

// A claim is one tool in want of a name.
type claim struct {
	id   switchboard.ToolID
	own  string // the requirement's as, or the tool's own name
	rank int
	name string // "" while it has none
}

// next moves the claim on to the name of its rank.
func (c *claim) next() {
	switch c.rank {
	case ownName:
		c.name = Shorten(c.own)
	case longName:
		c.name = Shorten(string(c.id.Server) + separator + c.id.Name)
	default:
		c.name = unreserved(string(c.id.Server) + separator + hash(c.id.String())[:lastDigits])
	}
}

// settle gives each claim a name that no other has and that is not taken. A
// claim keeps a name unless another comes to claim it at the same rank or a
// further one: then it goes on to its next. Who comes when does not matter, for
// it counts that a name has been claimed, not that it still is. So the outcome
// does not depend on the order of claims, and each claim moves at most twice.
//
// A claim ends without a name only if 120 bits of SHA-256 collide.
func settle(claims []*claim, taken map[string]bool) {
	type held struct {
		rank int    // the furthest at which it has been claimed
		by   *claim // who has it now; nil after a dispute
	}
	names := make(map[string]*held, len(claims))
	todo := make([]*claim, 0, len(claims))
	for _, c := range claims {
		if c.next(); looksReserved(c.own) {
			c.rank = longName
			c.next()
		}
		todo = append(todo, c)
	}
	move := func(c *claim) {
		if c.rank == lastName {
			c.name = ""
			return
		}
		c.rank++
		c.next()
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
			names[c.name] = &held{rank: c.rank, by: c}
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
