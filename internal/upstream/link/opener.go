package link

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

// A Usage says which calls use a link.
type Usage struct {
	Main bool   // Switchboard itself, which lists the offer over it; others may use it too
	Asks string // the client capabilities that the server is given; "" means none

	Owner *switchboard.Principal // whose credential the link's own requests carry; nil for Switchboard's own
}

// An Opener opens the links to one server: it starts the process or opens the session, and does the
// handshake in the era of the server.
type Opener struct {
	Config  func() switchboard.Server // the current configuration of the server
	Spawner *process.Spawner
	HTTP    *HTTPClients // shared by the links

	Credentials Credentials // for the requests to a server over HTTP; nil if it takes no tokens

	StderrLog  *process.StderrLog
	Log        *slog.Logger
	Mask       *mask.Mask
	ClientInfo ClientInfo
	Era        *EraMemory // outlives the links

	Tasks    *task.Tracker               // open links
	OnChange func(switchboard.Kinds)     // called with the kinds that must be listed again
	OnStderr func(*process.StderrReader) // called with the stderr of the main link's process, or nil
	OnEnd    func(dropped int64)         // called with the number of dropped messages of a link that has ended
	Hurry    <-chan struct{}             // closed when links must close without waiting
}

// Open opens a link for the usage: it starts the process or opens the session, and does the handshake.
// Each process that it starts has its own limit (boundStart); a session over HTTP has process.StartTimeout.
func (o *Opener) Open(ctx context.Context, c Usage) (*Link, error) {
	cfg := o.Config()
	if cfg.Transport == switchboard.TransportHTTP {
		ctx, cancel := context.WithTimeout(ctx, process.StartTimeout)
		defer cancel()
		return o.openHTTP(ctx, &cfg, c)
	}
	l, err := o.openProcess(ctx, &cfg, c)
	if era, shy := o.Era.Get(); err != nil && era == "" && shy && l != nil {
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
func (o *Opener) openProcess(ctx context.Context, cfg *switchboard.Server, c Usage) (*Link, error) {
	if c.Main {
		o.OnStderr(nil)
	}
	if o.Spawner.Prepare != nil {
		prepared, err := o.Spawner.Prepare(ctx, cfg)
		if err != nil {
			return nil, &ExchangeError{Kind: KindUnreachable, Gone: true, Text: o.Mask.Text(err.Error())}
		}
		cfg = prepared
	}
	proc, err := o.Spawner.Start(cfg)
	if err != nil {
		if _, ok := errors.AsType[*wall.UnavailableError](err); ok {
			return nil, &ExchangeError{Kind: KindNoWalls, Gone: true, Text: o.Mask.Text(err.Error()), Remedy: noWallsRemedy}
		}
		return nil, &ExchangeError{Kind: KindUnreachable, Gone: true, Text: o.Mask.Text(err.Error()), Remedy: process.StartRemedy(cfg)}
	}
	l := o.newLink(c)
	port := newStdioPort(l, proc, o.StderrLog)
	if c.Main {
		o.OnStderr(port.stderr)
	}
	ctx, cancel := boundStart(ctx, proc.HasUnread)
	defer cancel()
	_, wasShy := o.Era.Get()
	got, err := o.handshake(l, c, nil, func() (Hello, error) {
		h, err := greetStdio(ctx, l, o.Era)
		if err != nil && errors.Is(context.Cause(ctx), errUnread) {
			err = Errorf(KindSilent, false, "%v within %v; it may still be downloading a package: run its command by hand once, to see what it waits for", errUnread, process.DownloadTimeout)
		}
		return h, err
	})
	if _, shy := o.Era.Get(); err != nil && shy && !wasShy {
		return l, err
	}
	return got, err
}

// noWallsRemedy is the remedy for a program that was not started because of a missing wall.
const noWallsRemedy = `use a newer kernel or a container, or write "sandbox: standard": then the program has the walls that this machine has`

// errUnread says why boundStart has ended a start: the program has read nothing.
var errUnread = errors.New("its program has not read its first message")

// boundStart returns a context for the start of a program. It ends process.DownloadTimeout after the start, with the cause
// errUnread, if the program has not read its first message by then; else process.StartTimeout after the program has read it.
func boundStart(ctx context.Context, hasUnread func() bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		began := time.Now()
		read, unread := began, true
		for time.Since(read) < process.StartTimeout {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			if unread = unread && hasUnread(); !unread { // later messages may wait for longer
				continue
			}
			if read = time.Now(); read.Sub(began) >= process.DownloadTimeout {
				cancel(errUnread)
				return
			}
		}
		cancel(context.DeadlineExceeded)
	}()
	return ctx, func() { cancel(nil) }
}

func (o *Opener) newLink(c Usage) *Link {
	l := New(o.Log, o.Mask, o.ClientInfo, c.Asks, o.OnChange)
	l.owner = c.Owner
	if most := o.Config().MaxResult; most > 0 {
		l.maxBytes = most
	}
	return l
}

// handshake makes an opened link usable, and arranges that its port is shut down when the link
// ends.
func (o *Opener) handshake(l *Link, c Usage, w *httpPort, handshake func() (Hello, error)) (*Link, error) {
	if !o.Tasks.Run(func() {
		<-l.Requests.Done
		l.port.ShutDown(o.Hurry)
		o.OnEnd(l.inbox.dropped.Load())
	}) {
		l.Close()
		l.port.ShutDown(o.Hurry)
		return nil, OwnError(KindLost, false, "it is being closed")
	}
	h, err := handshake()
	if err != nil {
		l.Fail(err)
		return nil, err
	}
	l.SetHello(h)
	l.Listener.MustPoll = w != nil || h.notifies != h.offers
	if c.Main || c.Asks != "" {
		l.Listener.streamOpen = true
		l.Listener.openStream(w)
		if w != nil && !h.Modern() {
			task.WaitFor(w.streamOpened, listenTimeout) // earlier notifications and requests of the server are lost
		}
		if h.Modern() && h.notifies != 0 {
			task.WaitFor(l.Listener.acknowledged, acknowledgeTimeout)
			l.Listener.offerListed.Store(true)
		}
	}
	return l, nil
}
