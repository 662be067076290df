package join

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of a Listener.
const (
	MaxJoiners    = 512
	maxHandshakes = 64 // at the same time; others wait in the kernel
	maxOperators  = 16

	// firstWait is the least time that a process waits for its first joiner.
	firstWait = 30 * time.Second
)

// A Listener lets clients join this process. Use Listen.
type Listener struct {
	o        Options
	listener *net.TCPListener
	rooms    chan struct{} // one for each handshake

	mu        sync.Mutex
	variables []string
	joiners   map[*Joined]map[string]bool // the variables that have been compared
	operators int
	closed    bool
	emptied   *time.Timer   // closes idle; nil while there are joiners, or without Linger
	idle      chan struct{} // closed when there has been no joiner for Linger; then no more are let in
	handling  sync.WaitGroup
}

// Options of a Listener.
type Options struct {
	Token    switchboard.Secret
	Identity string // of this process
	Env      Lookup // of this process

	// Linger is how long the process stays after its last joiner has left. Negative means for ever.
	Linger time.Duration

	// RefusePeer returns why the process at the other end may not join, before anything is sent to it; nil means that it may.
	RefusePeer func(net.Conn) error

	// Handle serves a joiner, and returns when the joiner has left or ctx is done, and soon after Joined.Leave is closed. It need not
	// close the connection.
	Handle func(context.Context, Joiner, *Joined)

	// Operate serves a joiner with the purpose Operate until ctx is done. It need not close the connection.
	Operate func(context.Context, *Joined)

	Log *slog.Logger
}

// Listen opens a free port of loopback.
func Listen(o Options) (*Listener, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	j := newListener(o)
	j.listener = l
	j.mu.Lock()
	j.startLinger(max(o.Linger, firstWait))
	j.mu.Unlock()
	return j, nil
}

func newListener(o Options) *Listener {
	return &Listener{o: o, rooms: make(chan struct{}, maxHandshakes), joiners: map[*Joined]map[string]bool{}, idle: make(chan struct{})}
}

// SetVariables sets which environment variables a joiner must have in common with this process. If one of them was not compared when
// a joiner came, that joiner is made to join again.
func (l *Listener) SetVariables(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.variables = names
	leave := 0
	for c, compared := range l.joiners {
		if len(notCompared(names, compared)) == 0 {
			continue
		}
		select {
		case <-c.leave:
		default:
			close(c.leave)
			leave++
		}
	}
	if leave > 0 {
		l.o.Log.Info("the configuration refers to more environment variables; the clients join again", "clients", leave)
	}
}

// notCompared returns up to maxAsked of the names that are not in compared.
func notCompared(names []string, compared map[string]bool) (out []string) {
	for _, name := range names {
		if !compared[name] && len(out) < maxAsked {
			out = append(out, name)
		}
	}
	return out
}

// Addr returns the address, HOST:PORT.
func (l *Listener) Addr() string { return l.listener.Addr().String() }

// Idle is closed when no joiner has been here for Options.Linger.
func (l *Listener) Idle() <-chan struct{} { return l.idle }

// Serve lets clients in until ctx is done or Idle is closed. Then it closes the listener, and returns when all joiners have been served.
func (l *Listener) Serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	go func() {
		select {
		case <-l.idle:
			l.close()
		case <-ctx.Done():
		}
	}()
	for {
		conn, err := l.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil { // too many open files, for instance
			l.o.Log.Warn("a client could not join", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		l.rooms <- struct{}{}
		l.handling.Go(func() { l.serveConn(ctx, conn) })
	}
	l.handling.Wait()
}

func (l *Listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.emptied != nil {
		l.emptied.Stop()
	}
	_ = l.listener.Close()
}

// startLinger starts the time without joiners. The caller holds l.mu.
func (l *Listener) startLinger(linger time.Duration) {
	if l.o.Linger < 0 || l.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(linger, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.emptied != timer || l.closed { // a joiner has come in this instant, and may have left again
			return
		}
		l.closed = true
		close(l.idle)
	})
	l.emptied = timer
}

// enter lets a joiner in, or returns why not. If it returns names, these variables must be compared first.
func (l *Listener) enter(c *Joined, compared map[string]bool) (compare []string, refused string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, "it is stopping"
	case len(l.joiners) >= MaxJoiners:
		return nil, "it serves as many clients as it may"
	}
	if compare = notCompared(l.variables, compared); len(compare) > 0 {
		return compare, ""
	}
	l.joiners[c] = compared
	if l.emptied != nil {
		l.emptied.Stop()
		l.emptied = nil
	}
	return nil, ""
}

// enterOperator lets a command in, or returns why not. A process does not stay longer because of commands.
func (l *Listener) enterOperator() (refused string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return "it is stopping"
	case l.operators >= maxOperators:
		return "it serves as many commands as it may"
	}
	l.operators++
	return ""
}

func (l *Listener) leaveOperator() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.operators--
}

func (l *Listener) leave(c *Joined) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.joiners, c); len(l.joiners) == 0 {
		l.startLinger(l.o.Linger)
	}
}

// serveConn serves one connection, from the handshake to its end.
func (l *Listener) serveConn(ctx context.Context, raw *net.TCPConn) {
	defer raw.Close() //nolint:errcheck // Handle reports errors
	c, r, ok := l.admit(ctx, raw)
	if !ok {
		return
	}
	if r.Purpose == Operate {
		defer l.leaveOperator()
		l.o.Operate(ctx, c)
		return
	}
	defer l.leave(c)
	l.o.Log.Info("a client has joined", "task", r.Task, "connection", r.Connection)
	l.o.Handle(ctx, r, c)
	l.o.Log.Info("a client has left", "task", r.Task)
}

// admit makes the handshake. If ok, the caller must call leave or leaveOperator.
func (l *Listener) admit(ctx context.Context, raw *net.TCPConn) (c *Joined, r Joiner, ok bool) {
	defer func() { <-l.rooms }()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Now()) })
	defer stop()
	c, err := newConn(raw)
	if err != nil {
		return nil, r, false
	}
	if l.o.RefusePeer != nil {
		if why := l.o.RefusePeer(raw); why != nil {
			l.o.Log.Warn("a program may not join", "why", why)
			return nil, r, false
		}
	}
	switch r, err = c.accept(l.o.Token); {
	case errors.Is(err, errOnlyProbed):
		return nil, r, false
	case err != nil:
		l.o.Log.Warn("a program that tried to join was not let in", "why", err)
		return nil, r, false
	}
	forget, ok := l.decide(c, r)
	if !ok {
		return nil, r, false
	}
	if err := c.decide(decision{}); err != nil || !stop() {
		forget()
		return nil, r, false
	}
	return c, r, true
}

// decide lets the joiner in, or tells it why not. forget undoes it.
func (l *Listener) decide(c *Joined, r Joiner) (forget func(), ok bool) {
	refuse := func(d decision) (func(), bool) {
		_ = c.decide(d)
		return nil, false
	}
	switch {
	case r.Purpose == Operate:
		if why := l.enterOperator(); why != "" {
			return refuse(decision{Refused: why})
		}
		return l.leaveOperator, true
	case r.Purpose != "":
		return refuse(decision{Refused: "it does not know what this program wants"})
	case r.Identity != l.o.Identity:
		return refuse(decision{Refused: "it has another version, configuration, tenant or --results than this client"})
	}
	for compared := map[string]bool{}; ; {
		names, why := l.enter(c, compared)
		if why != "" {
			return refuse(decision{Refused: why})
		}
		if len(names) == 0 {
			return func() { l.leave(c) }, true
		}
		differ, err := c.compareVariables(l.o.Token, names, l.o.Env)
		if err != nil {
			l.o.Log.Warn("a program that tried to join was not let in", "why", err)
			return nil, false
		}
		if len(differ) > 0 {
			return refuse(decision{Differ: differ[:min(len(differ), maxNamed)]})
		}
		for _, name := range names {
			compared[name] = true
		}
	}
}
