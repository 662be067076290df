package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/recall"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
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

// An offerFeed exchanges notices of changed offers with the other replicas.
type offerFeed struct {
	changed *recall.ServerSet // servers with a change that is not published yet
	store   store.Store
	log     *slog.Logger
}

// follow lists the servers again that other replicas publish, until ctx is done.
func (f *offerFeed) follow(ctx context.Context, fleet *upstream.Fleet, self string) {
	notices := feed.Open(f.store, feed.Options[switchboard.ServerID]{Topic: topicOffers, Decode: decodeOfferNotice, Self: self})
	defer notices.Close()
	for {
		changed, all, err := notices.Next(ctx)
		switch {
		case err != nil:
			return
		case all:
			fleet.Relist("") // all servers
		default:
			for id := range changed {
				fleet.Relist(id)
			}
		}
	}
}

// publish publishes to the other replicas which servers have changed their offers, and follows
// the offers that others publish, until ctx is done.
func (f *offerFeed) publish(ctx context.Context, fleet *upstream.Fleet) {
	self := rand.Text()
	var following sync.WaitGroup
	following.Go(func() { f.follow(ctx, fleet, self) })
	defer following.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed.Wake:
		}
		for id := range f.changed.Take() {
			notice, err := json.Marshal(offerNotice{id, self})
			if err == nil {
				err = f.store.Publish(ctx, topicOffers, notice)
			}
			if err != nil {
				f.log.Warn("the notice that a server's offer has changed is not published to the other replicas", "server", id, "err", err)
			}
		}
	}
}

// offersKeyPurpose is the purpose of the key for digests of servers' configurations.
const offersKeyPurpose = "offers"

// SeenOffers returns the present offers of the servers of an App, for KeepOffers.
func SeenOffers(a *App) recall.SeenOffers { return recall.See(a.fleet, a.state.Load().config.Servers) }

// KeepOffers writes offers to the store of a data folder, beside processes that use it. They are in the first list after the next start with the
// configuration c, unless that keeps its store in memory.
func KeepOffers(ctx context.Context, data string, c *config.Config, seen recall.SeenOffers, log *slog.Logger) error {
	if err := checkPrivate(data); err != nil {
		return err
	}
	o := Options{Data: data, Log: log}
	st, err := openStore(ctx, o, c)
	if err != nil {
		return err
	}
	key, err := receipt.KeyOf(ctx, receipt.LedgerOptions{Store: st, Folder: filepath.Dir(storePath(o, c.Store)), Secret: c.Cluster.Secret}, offersKeyPurpose)
	if err == nil {
		err = recall.New(st, key, log).KeepSeen(ctx, seen, c.Servers)
	}
	return errors.Join(err, st.Close())
}
