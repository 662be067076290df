package search

import (
	"cmp"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of a Cache, in words of its docs. A word takes 16 bytes.
const (
	cacheWords = 1 << 20 // for young, and the same for old; the docs of 938 real servers have half as many
	docWords   = 16      // the memory of a Doc besides its words
)

// A Cache holds Docs by tool and digest, so that a change of one server's tools does not analyze the tools of the
// others again. The zero value is empty. It is safe for concurrent use.
type Cache struct {
	mu sync.Mutex

	// A requested Doc is added to young. When young is full it becomes old, and the previous old is evicted. A Doc in
	// old that is requested moves to young.
	young, old map[cacheKey]*Doc
	youngWords int // the words in young
	limit      int // 0 means cacheWords
}

type cacheKey struct {
	id     switchboard.ToolID
	digest switchboard.Digest
}

// Doc returns the result of Analyse for the tool.
func (c *Cache) Doc(t *switchboard.Tool) *Doc {
	k := cacheKey{t.ID, t.Digest}
	if d := c.lookup(k); d != nil {
		return d
	}
	d := Analyse(t.ID, t.Definition)
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.young[k]; other != nil {
		return other // another goroutine was first; keep its Doc
	}
	c.add(k, d)
	return d
}

func (c *Cache) lookup(k cacheKey) *Doc {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.young[k]
	if d == nil {
		if d = c.old[k]; d != nil {
			c.add(k, d)
		}
	}
	return d
}

func (c *Cache) add(k cacheKey, d *Doc) {
	if c.youngWords > cmp.Or(c.limit, cacheWords) {
		c.young, c.old, c.youngWords = nil, c.young, 0
	}
	if c.young == nil {
		c.young = map[cacheKey]*Doc{}
	}
	c.young[k] = d
	c.youngWords += len(d.words) + docWords
}
