package upstream

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An asker asks a client something, like switchboard.Client.Ask.
type asker = func(ctx context.Context, method string, params []byte) (result []byte, err error)

// RootsChanged tells the servers which have a link for the client of that session
// alone (see switchboard.Client), and were told that it tells of such changes,
// that its roots have changed. They will want to know the new ones while no call
// is under way: ask asks the client then.
//
// Links that clients share are told nothing: nobody knows whose roots a server
// there goes by.
func (f *Fleet) RootsChanged(session string, ask asker) {
	for _, s := range f.all() {
		s.mu.Lock()
		for o, sl := range s.slots {
			if l := sl.current(); l != nil && o.session == session && session != "" {
				l.rootsChanged(ask)
			}
		}
		s.mu.Unlock()
	}
}

// rootsChanged tells the server, unless it is modern: those ask in each call
// anew.
func (l *link) rootsChanged(ask asker) {
	roots, _ := wire.Field([]byte(l.asks), capRoots)
	if l.hello().modern() || !says(roots, capChanges) {
		return
	}
	l.mu.Lock()
	l.aside = ask
	l.mu.Unlock()
	l.port.tell(wire.AppendNotification(nil, wire.MethodRootsChanged, nil))
}

// besides returns what asks the client while no call is under way; nil where it
// is not asked this.
func (l *link) besides(method string) asker {
	if method != wire.MethodRootsList {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aside
}
