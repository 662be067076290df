package admin

import (
	"encoding/json"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SearchResult holds the tools that a search over all servers has found.
type SearchResult struct {
	Tools []FoundTool `json:"tools"` // best first
	Of    int         `json:"of"`    // the number of all tools

	// Starting are the servers that are starting and have no known offer.
	Starting []switchboard.ServerID `json:"starting,omitempty"`
}

// A FoundTool is a tool and its score for the query.
type FoundTool struct {
	Server      switchboard.ServerID `json:"server"`
	Tool        string               `json:"tool"`
	Score       float64              `json:"score"`
	Description string               `json:"description,omitempty"`
}

// A toolSearch finds tools in a whole catalog. It builds its index at the first search, because
// only operators need it.
type toolSearch struct {
	mu      sync.Mutex
	docs    search.Cache // shared with searches in groups
	catalog *catalog.Snapshot
	built   *search.Index
}

func (e *toolSearch) index(c *catalog.Snapshot) *search.Index {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.catalog != c {
		docs := make([]*search.Doc, len(c.Tools()))
		for i, t := range c.Tools() {
			docs[i] = e.docs.Doc(t)
		}
		e.catalog, e.built = c, search.New(docs)
	}
	return e.built
}

// Search finds the tools of all servers that fit the query, for the operator: whether or not a
// tenant or task may use them. It does not wait for servers: see SearchResult.Starting.
func (r *Reader) Search(query string) *SearchResult {
	s := r.o.Configuration()
	c := s.Catalog
	f := &SearchResult{Tools: []FoundTool{}, Of: len(c.Tools()), Starting: s.Starting}
	for _, m := range r.search.index(c).Search(query, search.MaxMatches) {
		t, _ := c.Tool(m.ID)
		f.Tools = append(f.Tools, FoundTool{m.ID.Server, m.ID.Name, m.Score, description(t)})
	}
	return f
}

// description returns the tool's own description, or "" if that is not a string.
func description(t *switchboard.Tool) string {
	var def struct {
		Description string `json:"description"`
	}
	_ = json.Unmarshal(t.Definition, &def)
	return def.Description
}
