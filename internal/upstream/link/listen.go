package link

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An OfferListener notices that the server's offer has changed.
type OfferListener struct {
	link     *Link
	onChange func(switchboard.Kinds) // called with the kinds that must be listed again

	// MustPoll says that the offer must be listed from time to time, because the server may not
	// announce changes.
	MustPoll bool

	streamOpen      bool          // a stream for notifications and requests of the server is open
	acknowledged    chan struct{} // closed once a modern server has acknowledged subscriptions/listen
	acknowledgeOnce sync.Once
	offerListed     atomic.Bool // the offer may have been listed already
}

// openStream keeps a stream open until the link ends. The server announces changes of its offer on it.
// open does not block. Legacy pipes need no stream.
func (c *OfferListener) openStream(w *httpPort) {
	switch h := c.link.Hello(); {
	case h.Modern() && h.notifies != 0:
		go c.listenModern()
	case !h.Modern() && w != nil:
		w.tasks.Run(w.listenLegacy)
	}
}

// listenModern sends subscriptions/listen, again whenever the stream ends.
func (c *OfferListener) listenModern() {
	ctx, cancel := c.link.lifetime()
	defer cancel()
	for fails := 0; ctx.Err() == nil; {
		opened := time.Now()
		params := c.link.withMeta(append(append([]byte(`{"notifications":`), c.link.Hello().listenFilter()...), '}'), c.link.Hello().Version)
		_, err := c.link.request(ctx, wire.MethodListen, params)
		if err != nil && AsError(err).code != 0 {
			c.link.log.Debug("a server does not announce changes of its offer", "error", err)
			if fails > 0 { // it worked before, so the server may have been replaced
				c.onChange(switchboard.AllKinds)
			}
			return
		}
		if fails = task.FailsInRow(fails, opened); task.Sleep(ctx, task.Backoff(fails)) != nil {
			return
		}
		c.onChange(switchboard.AllKinds) // earlier changes were missed
	}
}

// acknowledge passes the acknowledgement m of subscriptions/listen to its request f, which may be nil.
// For our own stream it lists the offer again if changes may have been missed before.
func (c *OfferListener) acknowledge(m wire.Message, f *Request) {
	if f == nil {
		return
	}
	if f.Method == wire.MethodListen && f.notifications.notify == nil {
		first := false
		c.acknowledgeOnce.Do(func() { close(c.acknowledged); first = true })
		if !first || c.offerListed.Load() {
			c.onChange(switchboard.AllKinds)
		}
	}
	f.enqueue(switchboard.Notification{Method: m.Method, Params: m.Params})
}

// announceMissed lists the offer again and notifies all subscribers, because notifications of the
// server may have been missed.
func (c *OfferListener) announceMissed() {
	c.onChange(switchboard.AllKinds)
	for _, s := range c.link.Subscriptions.allSubscriptions() {
		s.Updated(s.Target)
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
		resp, err := w.openStream(ctx, last, false)
		first()
		if err != nil {
			switch f := AsError(err); {
			case f.Status == http.StatusNotFound && fails+len(last) > 0:
				w.link.Fail(Errorf(KindGone, true, "it no longer knows our session"))
				return
			case f.Kind == KindRefused && opens > 0 && f.Status != http.StatusMethodNotAllowed:
				last = "" // the server may have forgotten that event, or not noticed yet that our last stream ended
			case f.Kind == KindRefused:
				if f.Status == http.StatusBadRequest || f.Status == http.StatusNotFound {
					w.link.Listener.onChange(switchboard.AllKinds) // the listing finds out whether the server has forgotten the session
				}
				return // the server offers no stream
			}
		} else {
			switch opens++; {
			case opens > 1 && last == "":
				w.link.Listener.announceMissed()
			case opens > 1: // a server that stores events sends the missed ones now
				w.link.Listener.onChange(switchboard.AllKinds)
			}
			var next string
			var retry time.Duration
			next, retry, err = w.readEvents(resp.Body, nil)
			last = cmp.Or(next, last)
			_ = resp.Body.Close()
			if err != nil && ctx.Err() == nil {
				w.link.log.Warn("a server's stream was closed", "error", err)
			}
			if task.Sleep(ctx, retry) != nil {
				return
			}
		}
		if err != nil {
			w.link.Listener.onChange(switchboard.AllKinds) // the listing finds out whether the server is down
		}
		if fails = task.FailsInRow(fails, opened); task.Sleep(ctx, task.Backoff(fails)) != nil {
			return
		}
	}
}
