package upstream

import (
	"context"
	"log/slog"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

// A Caller says who uses a link.
type linkUser struct {
	Main bool   // Switchboard itself, which lists the offer over it; others may use it too
	Asks string // the client capabilities that the server is given; "" means none
}

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

	tasks    *task.Group                 // open links
	onChange func(switchboard.Kinds)     // called with the kinds that must be listed again
	onStderr func(*process.StderrReader) // called with the stderr of the main link's process, or nil
	onEnd    func(dropped int64)         // called with the number of dropped messages of a link that has ended
	hurry    <-chan struct{}             // closed when links must close without waiting
}

// open opens a link for c: it starts the process or opens the session, and does the handshake.
func (o *linkOpener) open(ctx context.Context, c linkUser) (*link, error) {
	cfg := o.config()
	if cfg.Transport == switchboard.TransportHTTP {
		return o.openHTTP(ctx, &cfg, c)
	}
	l, err := o.openProcess(ctx, &cfg, c)
	if era, shy := o.era.get(); err != nil && era == "" && shy && l != nil {
		// The process ended because it was probed: start it once more, with initialize first.
		l, err = o.openProcess(ctx, &cfg, c)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openProcess starts the process. With an error it returns the link only if the process ended
// because it was probed.
func (o *linkOpener) openProcess(ctx context.Context, cfg *switchboard.Server, c linkUser) (*link, error) {
	if c.Main {
		o.onStderr(nil)
	}
	proc, err := o.spawner.Start(cfg)
	if err != nil {
		return nil, &exchangeError{kind: kindUnreachable, gone: true, text: o.mask.Text(err.Error()), remedy: process.StartRemedy(cfg)}
	}
	l := o.newLink(c)
	port := newStdioPort(l, proc, o.stderrLog)
	if c.Main {
		o.onStderr(port.stderr)
	}
	_, wasShy := o.era.get()
	got, err := o.handshake(l, c, nil, func() (serverHello, error) { return greetStdio(ctx, l, o.era) })
	if _, shy := o.era.get(); err != nil && shy && !wasShy {
		return l, err
	}
	return got, err
}

func (o *linkOpener) newLink(c linkUser) *link {
	l := newLink(o.log, o.mask, o.clientInfo, c.Asks, o.onChange)
	if most := o.config().MaxResult; most > 0 {
		l.maxBytes = most
	}
	return l
}

// handshake makes an opened link usable, and arranges that its port is shut down when the link
// ends.
func (o *linkOpener) handshake(l *link, c linkUser, w *httpPort, handshake func() (serverHello, error)) (*link, error) {
	if !o.tasks.Run(func() {
		<-l.requests.done
		l.port.shutDown(o.hurry)
		o.onEnd(l.inbox.dropped.Load())
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
	if c.Main || c.Asks != "" {
		l.changes.streamOpen = true
		l.changes.open(w)
		if w != nil && !h.modern() {
			task.WaitFor(w.streamOpened, listenTimeout) // earlier notifications and requests of the server are lost
		}
		if h.modern() && h.notifies != 0 {
			task.WaitFor(l.changes.acknowledged, acknowledgeTimeout)
			l.changes.offerListed.Store(true)
		}
	}
	return l, nil
}
