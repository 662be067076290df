package upstream

import "github.com/summit-switchboard/switchboard/internal/upstream/link"

// RootsChanged sends notifications/roots/list_changed to the servers that have a link for that
// client session alone (see switchboard.Client), and that were told that the client announces such
// changes. The servers may then request the roots outside a call: ask asks the client.
//
// Servers get no such notification on links that clients share, because it would not say which
// client has new roots.
func (f *Fleet) RootsChanged(session string, ask link.AskFunc) {
	own := func(o linkScope) bool { return o.session == session && session != "" }
	for _, s := range f.sortedServers() {
		for _, l := range s.connectors.links(own) {
			l.Questions.NotifyRootsChanged(ask)
		}
	}
}
