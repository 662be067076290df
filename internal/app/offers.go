package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A server may send its notification of a changed offer to one replica only, for example
// to the one that made the call that changed it. That replica publishes a notice, and the
// others list the server too. A replica that finds no change publishes nothing, so the exchange ends.

const topicOffers = "offers"

// offerNotice says that a server's offer has changed.
type offerNotice struct {
	Server switchboard.ServerID `json:"server"`
	From   string               `json:"from"`
}

func decodeOfferNotice(data []byte) (id switchboard.ServerID, from string, err error) {
	var n offerNotice
	err = json.Unmarshal(data, &n)
	return n.Server, n.From, err
}

// followOffers lists the servers again that other replicas publish, until ctx is done.
func (a *App) followOffers(ctx context.Context, self string) {
	f := feed.Open(a.store, feed.Options[switchboard.ServerID]{Topic: topicOffers, Decode: decodeOfferNotice, Self: self})
	defer f.Close()
	for {
		changed, all, err := f.Next(ctx)
		switch {
		case err != nil:
			return
		case all:
			a.fleet.Relist("") // all servers
		default:
			for id := range changed {
				a.fleet.Relist(id)
			}
		}
	}
}

// publishOffers publishes to the other replicas which servers have changed their offers, and follows
// the offers that others publish, until ctx is done.
func (a *App) publishOffers(ctx context.Context) {
	self := rand.Text()
	var following sync.WaitGroup
	following.Go(func() { a.followOffers(ctx, self) })
	defer following.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changedOffers.Wake:
		}
		for id := range a.changedOffers.Take() {
			notice, err := json.Marshal(offerNotice{id, self})
			if err == nil {
				err = a.store.Publish(ctx, topicOffers, notice)
			}
			if err != nil {
				a.log.Warn("the notice that a server's offer has changed is not published to the other replicas", "server", id, "err", err)
			}
		}
	}
}
