package app

import (
	"context"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// offerSignals say that the state must be built again, or that runs must look for servers.
type offerSignals struct {
	changed <-chan struct{} // the offer of a server
	moved   <-chan struct{} // the health of a server
	pins    <-chan struct{} // what other processes have let in or taken out
}

// followServers rebuilds the state whenever a server's offer changes. It closes ready when all
// servers have answered or the start deadline is over.
func (a *App) followServers(ctx context.Context, on offerSignals) {
	settled := make(chan struct{})
	a.work.Go(func() {
		a.fleet.Ready(ctx)
		close(settled)
	})
	for {
		var undecided <-chan time.Time
		if a.state.Load().Catalog.Undecided() {
			undecided = time.After(gateRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-undecided:
			a.rebuildState(ctx)
		case <-settled:
			a.rebuildState(ctx)
			close(a.ready)
			settled = nil
		case <-on.changed:
			awaitStarting(ctx, a.fleet, on.changed)
			a.rebuildState(ctx)
		case <-on.pins:
			a.rebuildState(ctx)
		case <-on.moved:
			a.runs.ReplaceServers(ctx, a.binder.Lost)
		}
	}
}

// gateRetry is how long the operator's rules about what is let in are not asked again after they have failed.
const gateRetry = 10 * time.Second

// startWait is how long a new state waits for more servers to answer while some are starting. It
// avoids decisions that hold only for a moment.
const startWait = 500 * time.Millisecond

// awaitStarting waits until no server is starting, for startWait at most.
func awaitStarting(ctx context.Context, fleet *upstream.Fleet, changed <-chan struct{}) {
	over := time.NewTimer(startWait)
	defer over.Stop()
	for len(fleet.Starting()) > 0 {
		select {
		case <-changed:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sweepExpired renews the values in the store that are in use and evicts those that are not, every
// few minutes. It runs apart from everything else because it waits for the store.
func (a *App) sweepExpired(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.runs.Sweep(ctx)
		forgetRevoked(ctx, a)
		a.gateway.Sweep(ctx)
		if f := a.reloading.fault.Load(); f != nil {
			a.log.Error("the configuration is refused; the one that runs is older", "since", f.since, "running_from", a.state.Load().loadedAt, "err", f.err)
		}
		a.state.Load().logFaultyParts(a.log)
	}
}

// forgetRevoked deletes revocations of keys that no file names any more.
func forgetRevoked(ctx context.Context, a *App) {
	c := a.state.Load().config
	if len(c.Faulty) > 0 { // a faulty file may name keys that were not read
		return
	}
	err := a.admin.revoked.Forget(ctx, func(hash [32]byte) bool {
		return slices.ContainsFunc(c.Keys, func(k config.Key) bool { return k.Hash == hash }) ||
			slices.ContainsFunc(c.People, func(p config.PersonKey) bool { return p.Hash == hash })
	})
	if err != nil && ctx.Err() == nil {
		a.log.Warn("old revocations stay in the store", "err", err)
	}
}

// followClock binds runs again where policy reads the clock, so that clients learn of a changed
// list. It does so at the beginning of each minute, when most rules of that kind change.
func (a *App) followClock(ctx context.Context) {
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-time.After(now.Truncate(clockInterval).Add(clockInterval).Sub(now)):
			a.runs.Refresh(ctx, a.runs.All()...)
		}
	}
}

// A signal wakes one goroutine, once for any number of sends before it looks. It has the capacity one.
type signal chan struct{}

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// followKeys ends the streams of clients when their key is removed, is revoked or expires.
func (a *App) followKeys(ctx context.Context) {
	revoked := make(signal, 1)
	a.work.Go(func() { endRevoked(ctx, a, revoked) })
	for {
		var due <-chan time.Time
		if end := a.state.Load().Ring.NextExpiry(time.Now()); !end.IsZero() {
			due = time.After(min(time.Until(end), clockInterval)) // also if the clock is set meanwhile
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-a.keysChanged:
		}
		a.gateway.RecheckStreams()
		a.admin.api.RecheckStreams()
		revoked.send()
	}
}
