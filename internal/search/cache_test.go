package search

import (
	"fmt"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func offered(name, digest, description string) *switchboard.Tool {
	return &switchboard.Tool{
		ID: switchboard.ToolID{Server: "s", Name: name}, Digest: switchboard.Digest(digest),
		Definition: fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{}}`, name, description),
	}
}

func TestOnlyChangedDefinitionsAreAnalysedAgain(t *testing.T) {
	var c Cache
	a, b := c.Doc(offered("a", "1", "old")), c.Doc(offered("b", "1", "same"))
	if c.Doc(offered("b", "1", "same")) != b {
		t.Error("the same definition was analysed twice")
	}
	now := c.Doc(offered("a", "2", "new"))
	if now == a || found(New([]*Doc{now}), "new") != "a" {
		t.Error("a changed definition was not analysed again")
	}
	if other := c.Doc(&switchboard.Tool{ID: switchboard.ToolID{Server: "t", Name: "b"}, Digest: "1"}); other == b {
		t.Error("another server's tool was taken for this one")
	}
}

func TestTheCacheEvictsUnusedDocs(t *testing.T) {
	const most = 1000
	c := Cache{limit: most}
	first, kept := c.Doc(offered("first", "1", "")), c.Doc(offered("kept", "1", ""))
	for i := range 200 {
		c.Doc(offered(fmt.Sprint("t", i), "1", "one two three four five six seven eight nine ten"))
		if c.Doc(offered("kept", "1", "")) != kept {
			t.Fatal("a requested Doc was evicted")
		}
		held := 0
		for _, docs := range []map[cacheKey]*Doc{c.young, c.old} {
			for _, d := range docs {
				held += docWords + len(d.words)
			}
		}
		if held > 2*most+100 {
			t.Fatalf("the cache holds %d words", held)
		}
	}
	if c.Doc(offered("first", "1", "")) == first {
		t.Error("the cache evicts nothing")
	}
}

func TestTheCacheIsSafeForConcurrentUse(t *testing.T) {
	var c Cache
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				name := fmt.Sprint("t", i%50)
				if d := c.Doc(offered(name, "1", "text")); d.ID().Name != name {
					t.Errorf("%s is %v", name, d.ID())
				}
			}
		})
	}
	all.Wait()
}
