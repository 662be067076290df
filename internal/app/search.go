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

// Found is what a search over everything that is configured has found.
type Found struct {
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

// everything finds tools among all of a catalog. Its index is made when the
// first operator asks: nobody else needs it.
type everything struct {
	mu   sync.Mutex
	docs search.Cache // also of those who search in a group
	of   *catalog.Snapshot
	in   *search.Index
}

func (e *everything) index(c *catalog.Snapshot) *search.Index {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of != c {
		docs := make([]*search.Doc, len(c.Tools()))
		for i, t := range c.Tools() {
			docs[i] = e.docs.Doc(t)
		}
		e.of, e.in = c, search.New(docs)
	}
	return e.in
}

// Search finds the tools of all servers that fit the query, for the operator:
// whatever any tenant or task may see of them. It waits for no server: see Found.Starting.
func (a *App) Search(query string) *Found {
	s := a.state.Load()
	c := s.catalog
	f := &Found{Tools: []FoundTool{}, Of: len(c.Tools()), Starting: s.starting}
	for _, m := range a.everything.index(c).Search(query, search.MaxMatches) {
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
	return encode(a.Search(q.Get("query"))), nil
}

// description is what the tool says of itself; one that is no text is none.
func description(t *switchboard.Tool) string {
	var def struct {
		Description string `json:"description"`
	}
	_ = json.Unmarshal(t.Definition, &def)
	return def.Description
}
