package app

import (
	"context"
	"encoding/json"
	"net/url"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// SearchResult is what a search over everything that is configured has found.
type SearchResult struct {
	Tools []FoundTool `json:"tools"` // the best first
	Of    int         `json:"of"`    // tools in all

	// Starting are the servers that are starting and have no known offer.
	Starting []switchboard.ServerID `json:"starting,omitempty"`
}

// A FoundTool is a tool, and how well it fits beside the others.
type FoundTool struct {
	Server      switchboard.ServerID `json:"server"`
	Tool        string               `json:"tool"`
	Score       float64              `json:"score"`
	Description string               `json:"description,omitempty"`
}

// toolSearch finds tools among all of a catalog. Its index is made when the
// first operator asks: nobody else needs it.
type toolSearch struct {
	mu      sync.Mutex
	docs    search.Cache // also of those who search in a group
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

// Search finds the tools of all servers that fit the query, for the operator:
// whatever any tenant or task may see of them. It waits for no server: see Found.Starting.
func (a *App) Search(query string) *SearchResult {
	s := a.state.Load()
	c := s.catalog
	f := &SearchResult{Tools: []FoundTool{}, Of: len(c.Tools()), Starting: s.starting}
	for _, m := range a.toolSearch.index(c).Search(query, search.MaxMatches) {
		t, _ := c.Tool(m.ID)
		f.Tools = append(f.Tools, FoundTool{m.ID.Server, m.ID.Name, m.Score, description(t)})
	}
	return f
}

// inspectSearch is Search over HTTP, for the local principal: others have no
// business with what is not their tenant's.
func (a *App) inspectSearch(_ context.Context, p switchboard.Principal, q url.Values) ([]byte, error) {
	if p.Auth != switchboard.AuthLocal {
		return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "only whoever runs Switchboard, on its machine and while no key exists, may search the tools of all servers")
	}
	return encodeJSON(a.Search(q.Get("query"))), nil
}

// description is what the tool says of itself; one that is no text is none.
func description(t *switchboard.Tool) string {
	var def struct {
		Description string `json:"description"`
	}
	_ = json.Unmarshal(t.Definition, &def)
	return def.Description
}
