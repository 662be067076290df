package upstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

// A connectorSet has the connectors of one server by scope. Use newConnectorSet.
type connectorSet struct {
	ctx   context.Context // ends when the server is to be closed
	limit int             // of connectors
	tasks *task.Tracker   // runs what closes connectors

	// connect opens a link for the scope. It is a field so that tests need no server.
	connect func(ctx context.Context, o linkScope) (*link.Link, error)

	onePrincipal bool // see Options.OnePrincipal

	startAfter <-chan struct{} // no link is opened before it is closed; nil means no wait
	main       *connector      // Switchboard's own; it is never closed as unused

	mu      sync.Mutex
	byScope map[linkScope]*connector
}

func newConnectorSet(ctx context.Context, limit int, tasks *task.Tracker, connect func(context.Context, linkScope) (*link.Link, error)) *connectorSet {
	s := &connectorSet{ctx: ctx, limit: limit, tasks: tasks, connect: connect, byScope: map[linkScope]*connector{}}
	s.main = s.add(linkScope{own: true})
	return s
}

// add adds a connector for the scope. The caller holds s.mu, or is the only one that knows s.
func (s *connectorSet) add(o linkScope) *connector {
	c := newConnector(s.ctx, func(ctx context.Context) (*link.Link, error) {
		if s.startAfter != nil {
			select {
			case <-s.startAfter:
			case <-ctx.Done():
				return nil, link.OwnError(link.KindLost, false, "it is being closed")
			}
		}
		return s.connect(ctx, o)
	})
	s.byScope[o] = c
	return c
}

// get returns the connector of the scope, with one more user.
func (s *connectorSet) get(o linkScope) (*connector, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, link.OwnError(link.KindUnreachable, false, "it is being closed")
	}
	if c, ok := s.byScope[o]; ok && c.acquire() {
		return c, nil
	}
	if len(s.byScope) >= s.limit && !s.evictIdle() {
		return nil, overloadedError("serves as many clients as it may at once")
	}
	c := s.add(o)
	c.acquire()
	return c, nil
}

// evictIdle closes the connector that has been idle longest, if one is idle. The caller holds s.mu.
func (s *connectorSet) evictIdle() bool {
	var oldest linkScope
	var since time.Time
	for o, c := range s.byScope {
		if t, idle := c.idleSince(); idle && c != s.main && (since.IsZero() || t.Before(since)) {
			oldest, since = o, t
		}
	}
	return !since.IsZero() && s.closeUnused(oldest)
}

// closeIdle closes the connectors that have been idle for that time. A connector of a client session
// stays open as long as the session, because a child process may hold state for it.
func (s *connectorSet) closeIdle(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, c := range s.byScope {
		if t, idle := c.idleSince(); idle && c != s.main && o.session == "" && time.Since(t) >= after {
			s.closeUnused(o)
		}
	}
}

// closeUnused closes the connector of the scope unless it just got a user. The caller holds s.mu.
func (s *connectorSet) closeUnused(o linkScope) bool {
	if !s.byScope[o].close(false) {
		return false
	}
	delete(s.byScope, o)
	return true
}

// closeSession closes the connectors of the client session.
func (s *connectorSet) closeSession(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, c := range s.byScope {
		if o.session == session {
			delete(s.byScope, o)
			s.tasks.Run(func() { c.close(true) })
		}
	}
}

// closeOwned closes the connectors of the principal alone, and stops the principal's requests that are in flight, also over shared links.
func (s *connectorSet) closeOwned(p *switchboard.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, c := range s.byScope {
		if l := c.current(); l != nil && o.own {
			l.Requests.HaltOf(p)
		}
		if !o.own && o.tenant == p.Tenant && o.principal == p.ID {
			delete(s.byScope, o)
			s.tasks.Run(func() { c.close(true); c.haltLink() })
		}
	}
}

// closeAll closes all connectors. With cut it also stops the requests that are in flight.
func (s *connectorSet) closeAll(cut bool) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.byScope))
	s.byScope = map[linkScope]*connector{}
	s.mu.Unlock()
	for _, c := range all {
		c.close(true)
		if cut {
			c.haltLink()
		}
	}
}

// links returns the open links of the scopes that of reports, in any order. nil means all scopes.
func (s *connectorSet) links(of func(linkScope) bool) (open []*link.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, c := range s.byScope {
		if l := c.current(); l != nil && (of == nil || of(o)) {
			open = append(open, l)
		}
	}
	return open
}
