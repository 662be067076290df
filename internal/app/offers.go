package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A server may tell one replica alone that it offers something else: the one whose
// call has changed it, say. That one tells the others, who ask the server too. Who
// finds nothing new says nothing, so that it ends.

const topicOffers = "offers"

// offerNotice says that a server offers something else.
type offerNotice struct {
	Server switchboard.ServerID `json:"server"`
	From   string               `json:"from"`
}

// changedServers are the servers of which the others are to be told. Use newNews.
type changedServers struct {
	mu      sync.Mutex
	servers map[switchboard.ServerID]bool
	wake    chan struct{}
}

func newChangedServers() *changedServers {
	return &changedServers{servers: map[switchboard.ServerID]bool{}, wake: make(chan struct{}, 1)}
}

// add notes that a server offers something else.
func (n *changedServers) add(id switchboard.ServerID) {
	n.mu.Lock()
	n.servers[id] = true
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns what was noted since it was last taken.
func (n *changedServers) take() map[switchboard.ServerID]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	servers := n.servers
	n.servers = map[switchboard.ServerID]bool{}
	return servers
}

// publishOffers tells the other replicas of servers that offer something else, and asks
// servers of which they tell, until ctx is done.
func (a *App) publishOffers(ctx context.Context) {
	self := rand.Text()
	defer a.store.Subscribe(topicOffers, func(data []byte) {
		var n offerNotice
		switch {
		case data == nil || json.Unmarshal(data, &n) != nil:
			a.fleet.Relist("") // some may have been missed
		case n.From != self:
			a.fleet.Relist(n.Server)
		}
	})()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changedOffers.wake:
		}
		for id := range a.changedOffers.take() {
			notice, err := json.Marshal(offerNotice{id, self})
			if err == nil {
				err = a.store.Publish(ctx, topicOffers, notice)
			}
			if err != nil {
				a.log.Warn("the other replicas are not told that a server offers something else", "server", id, "err", err)
			}
		}
	}
}
