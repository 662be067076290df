package upstream

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// listen keeps a stream open on which the server says that its tools have
// changed, until the link ends. It returns at once. Legacy pipes need none.
func (l *link) listen(w *web) {
	switch h := l.hello(); {
	case h.modern() && h.listChanged:
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
		params := l.params([]byte(`{"notifications":{"toolsListChanged":true}}`), l.hello().version)
		_, err := l.ask(ctx, wire.MethodListen, params)
		if err != nil && asFault(err).code != 0 {
			l.log.Debug("a server does not tell when its tools change", "error", err)
			if fails > 0 { // it did before: is it still the same?
				l.relist()
			}
			return
		}
		if fails = again(fails, opened); sleep(ctx, backoff(fails)) != nil {
			return
		}
		l.relist() // what was said in between is lost
	}
}

// listenLegacy keeps the GET stream open, which a server need not offer.
func (w *web) listenLegacy() {
	ctx, cancel := w.link.until()
	defer cancel()
	last := ""
	for fails := 0; ctx.Err() == nil; {
		opened := time.Now()
		resp, err := w.get(ctx, last)
		if err != nil {
			switch f := asFault(err); {
			case f.status == http.StatusNotFound && fails+len(last) > 0:
				w.link.fail(faultf(kindGone, true, "it no longer knows our session"))
				return
			case f.kind == kindRefused:
				if f.status == http.StatusBadRequest {
					w.link.relist() // which finds out whether it forgot us
				}
				return // it offers none
			}
		} else {
			if fails > 0 {
				w.link.relist() // what was said in between is lost
			}
			var retry time.Duration
			last, retry, err = w.events(resp.Body, nil)
			_ = resp.Body.Close()
			if err != nil && ctx.Err() == nil {
				w.link.log.Warn("a server's stream was closed", "error", err)
			}
			if sleep(ctx, min(retry, maxResume)) != nil {
				return
			}
		}
		if err != nil {
			w.link.relist() // which finds out whether the server has gone
		}
		if fails = again(fails, opened); sleep(ctx, backoff(fails)) != nil {
			return
		}
	}
}
