package upstream

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// listen keeps a stream open on which the server says that what it offers has
// changed, until the link ends. It returns at once. Legacy pipes need none.
func (l *link) listen(w *web) {
	switch h := l.hello(); {
	case h.modern() && h.tells != 0:
		go l.listenModern()
	case !h.modern() && w != nil:
		w.busy.run(w.listenLegacy)
	}
}

// until returns a context that ends with the link.
func (l *link) until() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-l.done:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// listenModern asks subscriptions/listen, again whenever the stream ends.
func (l *link) listenModern() {
	ctx, cancel := l.until()
	defer cancel()
	for fails := 0; ctx.Err() == nil; {
		opened := time.Now()
		params := l.params(append(append([]byte(`{"notifications":`), l.hello().wishes()...), '}'), l.hello().version)
		_, err := l.ask(ctx, wire.MethodListen, params)
		if err != nil && asFault(err).code != 0 {
			l.log.Debug("a server does not tell when what it offers changes", "error", err)
			if fails > 0 { // it did before: is it still the same?
				l.relist(switchboard.AllKinds)
			}
			return
		}
		if fails = again(fails, opened); sleep(ctx, backoff(fails)) != nil {
			return
		}
		l.relist(switchboard.AllKinds) // what was said in between is lost
	}
}

// listenLegacy keeps the GET stream open, which a server need not offer.
func (w *web) listenLegacy() {
	ctx, cancel := w.link.until()
	defer cancel()
	last := ""
	opens := 0
	first := sync.OnceFunc(func() { close(w.listening) })
	defer first()
	for fails := 0; ctx.Err() == nil; {
		opened := time.Now()
		resp, err := w.get(ctx, last)
		first()
		if err != nil {
			switch f := asFault(err); {
			case f.status == http.StatusNotFound && fails+len(last) > 0:
				w.link.fail(faultf(kindGone, true, "it no longer knows our session"))
				return
			case f.kind == kindRefused && opens > 0 && f.status != http.StatusMethodNotAllowed:
				last = "" // it may have forgotten that, or not know yet that our last stream has ended
			case f.kind == kindRefused:
				if f.status == http.StatusBadRequest || f.status == http.StatusNotFound {
					w.link.relist(switchboard.AllKinds) // which finds out whether it forgot us
				}
				return // it offers none
			}
		} else {
			switch opens++; {
			case opens > 1 && last == "":
				w.link.missed()
			case opens > 1: // what was said in between is told now, if the server keeps it
				w.link.relist(switchboard.AllKinds)
			}
			var next string
			var retry time.Duration
			next, retry, err = w.events(resp.Body, nil)
			last = cmp.Or(next, last)
			_ = resp.Body.Close()
			if err != nil && ctx.Err() == nil {
				w.link.log.Warn("a server's stream was closed", "error", err)
			}
			if sleep(ctx, retry) != nil {
				return
			}
		}
		if err != nil {
			w.link.relist(switchboard.AllKinds) // which finds out whether the server has gone
		}
		if fails = again(fails, opened); sleep(ctx, backoff(fails)) != nil {
			return
		}
	}
}

// changes are the kinds that have to be listed again. Use newChanges.
type changes struct {
	ready chan struct{} // holds one signal while there are some
	kinds *atomic.Uint32
}

func newChanges() changes { return changes{make(chan struct{}, 1), &atomic.Uint32{}} }

// keep notes kinds for the next time that somebody asks.
func (c changes) keep(ks switchboard.Kinds) { c.kinds.Or(uint32(ks)) }

// add notes kinds, and has them asked for.
func (c changes) add(ks switchboard.Kinds) {
	c.keep(ks)
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// take returns what was noted.
func (c changes) take() switchboard.Kinds {
	select {
	case <-c.ready:
	default:
	}
	return switchboard.Kinds(c.kinds.Swap(0))
}
