package search

import (
	"cmp"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of a Cache, in words of its docs, of 16 bytes each.
const (
	cacheWords = 1 << 20 // of young, and as many of old; those of 938 real servers have half as many
	docWords   = 16      // what a Doc takes beside its words
)

// A Cache keeps Docs by tool and digest, so that a change of one server's tools
// analyses no other. The zero value is empty, and safe for concurrent use.
type Cache struct {
	mu sync.Mutex

	// What is asked for goes into young. Once that is full it is old, and what
	// was old and not asked for since is forgotten.
	young, old map[cacheKey]*Doc
	words      int // in young
	most       int // 0 means cacheWords
}

type cacheKey struct {
	id     switchboard.ToolID
	digest switchboard.Digest
}

// Doc is Analyse for the tool.
func (c *Cache) Doc(t *switchboard.Tool) *Doc {
	k := cacheKey{t.ID, t.Digest}
	if d := c.find(k); d != nil {
		return d
	}
	d := Analyse(t.ID, t.Definition)
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.young[k]; other != nil {
		return other // somebody was quicker; one of the two is enough
	}
	c.keep(k, d)
	return d
}

func (c *Cache) find(k cacheKey) *Doc {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.young[k]
	if d == nil {
		if d = c.old[k]; d != nil {
			c.keep(k, d)
		}
	}
	return d
}

func (c *Cache) keep(k cacheKey, d *Doc) {
	if c.words > cmp.Or(c.most, cacheWords) {
		c.young, c.old, c.words = nil, c.young, 0
	}
	if c.young == nil {
		c.young = map[cacheKey]*Doc{}
	}
	c.young[k] = d
	c.words += len(d.words) + docWords
}
