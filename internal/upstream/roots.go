package upstream

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An askFunc asks a client, like switchboard.Client.Ask.
type askFunc = func(ctx context.Context, method string, params []byte) (result []byte, err error)

// RootsChanged sends notifications/roots/list_changed to the servers that have a link for that
// client session alone (see switchboard.Client), and that were told that the client announces such
// changes. The servers may then request the roots outside a call: ask asks the client.
//
// Servers get no such notification on links that clients share, because it would not say which
// client has new roots.
func (f *Fleet) RootsChanged(session string, ask askFunc) {
	for _, s := range f.sortedServers() {
		s.mu.Lock()
		for o, sl := range s.connectors {
			if l := sl.current(); l != nil && o.session == session && session != "" {
				l.notifyRootsChanged(ask)
			}
		}
		s.mu.Unlock()
	}
}

// notifyRootsChanged notifies the server unless it is modern: modern servers request the roots in
// each call.
func (l *link) notifyRootsChanged(ask askFunc) {
	roots, _ := wire.Field([]byte(l.askable), capRoots)
	if l.hello().modern() || !memberIsTrue(roots, capChanges) {
		return
	}
	l.mu.Lock()
	l.rootsAsker = ask
	l.mu.Unlock()
	l.port.post(wire.AppendNotification(nil, wire.MethodRootsChanged, nil))
}

// rootsAskerFor returns the function that asks the client outside a call. It is nil for methods
// other than roots/list.
func (l *link) rootsAskerFor(method string) askFunc {
	if method != wire.MethodRootsList {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rootsAsker
}
