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

// openListenStream keeps a stream open, until the link ends, on which the server announces changes
// of its offer. It does not block. Legacy pipes need no stream.
func (l *link) openListenStream(w *httpPort) {
	switch h := l.hello(); {
	case h.modern() && h.notifies != 0:
		go l.listenModern()
	case !h.modern() && w != nil:
		w.tasks.run(w.listenLegacy)
	}
}

// lifetime returns a context that ends with the link.
func (l *link) lifetime() (context.Context, context.CancelFunc) {
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

// listenModern sends subscriptions/listen, again whenever the stream ends.
func (l *link) listenModern() {
	ctx, cancel := l.lifetime()
	defer cancel()
	for fails := 0; ctx.Err() == nil; {
		opened := time.Now()
		params := l.withMeta(append(append([]byte(`{"notifications":`), l.hello().listenFilter()...), '}'), l.hello().version)
		_, err := l.request(ctx, wire.MethodListen, params)
		if err != nil && asExchangeError(err).code != 0 {
			l.log.Debug("a server does not announce changes of its offer", "error", err)
			if fails > 0 { // it worked before, so the server may have been replaced
				l.onListChanged(switchboard.AllKinds)
			}
			return
		}
		if fails = failsInRow(fails, opened); sleep(ctx, backoff(fails)) != nil {
			return
		}
		l.onListChanged(switchboard.AllKinds) // earlier changes were missed
	}
}

// listenLegacy keeps the GET stream open, if the server offers one.
func (w *httpPort) listenLegacy() {
	ctx, cancel := w.link.lifetime()
	defer cancel()
	last := ""
	opens := 0
	first := sync.OnceFunc(func() { close(w.streamOpened) })
	defer first()
	for fails := 0; ctx.Err() == nil; {
		opened := time.Now()
		resp, err := w.openStream(ctx, last)
		first()
		if err != nil {
			switch f := asExchangeError(err); {
			case f.status == http.StatusNotFound && fails+len(last) > 0:
				w.link.fail(exchangeErrorf(kindGone, true, "it no longer knows our session"))
				return
			case f.kind == kindRefused && opens > 0 && f.status != http.StatusMethodNotAllowed:
				last = "" // the server may have forgotten that event, or not noticed yet that our last stream ended
			case f.kind == kindRefused:
				if f.status == http.StatusBadRequest || f.status == http.StatusNotFound {
					w.link.onListChanged(switchboard.AllKinds) // the listing finds out whether the server has forgotten the session
				}
				return // the server offers no stream
			}
		} else {
			switch opens++; {
			case opens > 1 && last == "":
				w.link.announceMissed()
			case opens > 1: // a server that stores events sends the missed ones now
				w.link.onListChanged(switchboard.AllKinds)
			}
			var next string
			var retry time.Duration
			next, retry, err = w.readEvents(resp.Body, nil)
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
			w.link.onListChanged(switchboard.AllKinds) // the listing finds out whether the server is down
		}
		if fails = failsInRow(fails, opened); sleep(ctx, backoff(fails)) != nil {
			return
		}
	}
}

// staleKinds are the kinds that must be listed again. Use newStaleKinds.
type staleKinds struct {
	ready chan struct{} // holds one signal when kinds are requested
	kinds *atomic.Uint32
}

func newStaleKinds() staleKinds { return staleKinds{make(chan struct{}, 1), &atomic.Uint32{}} }

// record adds kinds for the next takeAll.
func (c staleKinds) record(ks switchboard.Kinds) { c.kinds.Or(uint32(ks)) }

// request adds kinds and signals ready.
func (c staleKinds) request(ks switchboard.Kinds) {
	c.record(ks)
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// takeAll returns the kinds and forgets them.
func (c staleKinds) takeAll() switchboard.Kinds {
	select {
	case <-c.ready:
	default:
	}
	return switchboard.Kinds(c.kinds.Swap(0))
}
