package upstream

import (
	"context"
	"log/slog"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// A linkOpener opens the links to one server: it starts the process or opens the session, and does the
// handshake in the era of the server.
type linkOpener struct {
	config      func() switchboard.Server
	spawner     *process.Spawner
	httpClients *httpClients
	stderrLog   *process.StderrLog
	log         *slog.Logger
	mask        *mask.Mask
	clientInfo  clientInfo
	era         *eraMemory

	tasks    *taskGroup              // open links
	facts    *serverFacts            // stderr and dropped messages go there
	onChange func(switchboard.Kinds) // called with the kinds that must be listed again
	hurry    <-chan struct{}         // closed when links must close without waiting
}

// open connects for the scope: it starts the process or opens the session, and does the handshake.
func (o *linkOpener) open(ctx context.Context, scope linkScope) (*link, error) {
	cfg := o.config()
	if cfg.Transport == switchboard.TransportHTTP {
		return o.openHTTP(ctx, &cfg, scope)
	}
	l, err := o.openProcess(ctx, &cfg, scope)
	if era, shy := o.era.get(); err != nil && era == "" && shy && l != nil {
		// The process ended because it was probed: start it once more, with initialize first.
		l, err = o.openProcess(ctx, &cfg, scope)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openProcess starts the process. With an error it returns the link only if the process ended
// because it was probed.
func (o *linkOpener) openProcess(ctx context.Context, cfg *switchboard.Server, scope linkScope) (*link, error) {
	if scope.own {
		o.facts.setStderr(nil)
	}
	proc, err := o.spawner.Start(cfg)
	if err != nil {
		return nil, &exchangeError{kind: kindUnreachable, gone: true, text: o.mask.Text(err.Error()), remedy: process.StartRemedy(cfg)}
	}
	l := o.newLink(scope)
	port := newStdioPort(l, proc, o.stderrLog)
	if scope.own {
		o.facts.setStderr(port.stderr)
	}
	_, wasShy := o.era.get()
	got, err := o.handshake(l, scope, nil, func() (serverHello, error) { return greetStdio(ctx, l, o.era) })
	if _, shy := o.era.get(); err != nil && shy && !wasShy {
		return l, err
	}
	return got, err
}

func (o *linkOpener) newLink(scope linkScope) *link {
	l := newLink(o.log, o.mask, o.clientInfo, scope.asks, o.onChange)
	if most := o.config().MaxResult; most > 0 {
		l.maxBytes = most
	}
	return l
}

// handshake makes an opened link usable, and arranges that its port is shut down when the link
// ends.
func (o *linkOpener) handshake(l *link, scope linkScope, w *httpPort, handshake func() (serverHello, error)) (*link, error) {
	if !o.tasks.run(func() {
		<-l.requests.done
		l.port.shutDown(o.hurry)
		o.facts.addDropped(l.inbox.dropped.Load())
	}) {
		l.close()
		l.port.shutDown(o.hurry)
		return nil, ownError(kindLost, false, "it is being closed")
	}
	h, err := handshake()
	if err != nil {
		l.fail(err)
		return nil, err
	}
	l.greeting.Store(&h)
	l.changes.mustPoll = w != nil || h.modern() && h.notifies != h.offers
	if scope.own || scope.asks != "" {
		l.changes.streamOpen = true
		l.changes.open(w)
		if w != nil && !h.modern() {
			waitFor(w.streamOpened, listenTimeout) // earlier notifications and requests of the server are lost
		}
		if h.modern() && h.notifies != 0 {
			waitFor(l.changes.acknowledged, acknowledgeTimeout)
			l.changes.offerListed.Store(true)
		}
	}
	return l, nil
}
