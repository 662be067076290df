// Package upstream speaks MCP to the servers behind the gateway: over the pipes
// of a child process or over Streamable HTTP, to servers of either era.
//
// It decides how a server is reached and for whom: which process or session
// serves which principal, when a connection is made, kept, made anew and given
// up, and whether a request may have reached its server. What a server says
// about its tools it hands on as bytes, and what is called it takes as decided:
// which tools exist, who may call them and under what name is left to others.
//
// Nothing that a server does holds up another one: each has its own goroutines,
// its own bound on calls, and limits on all that it sends. A call is sent at
// most once; it is sent again only where no byte of it has left, or the server
// has said that it knew nothing of the session.
package upstream

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Options are the settings of a Fleet. The zero Options work.
type Options struct {
	// Log takes what happens to servers, and what they write to stderr; nil
	// means nowhere.
	Log *slog.Logger

	// Name and Version are what servers are told that we are.
	Name    string
	Version string

	// StartDeadline is how long Ready waits, and a call for a server that has
	// answered before and is not ready; 0 means 10s.
	StartDeadline time.Duration

	// StartWait is how long a call waits for a server that has not answered since it was
	// started; 0 means 50s. Most clients give a call a minute.
	StartWait time.Duration

	// OnePrincipal says that there is only one user, so that no server needs
	// more than one connection.
	OnePrincipal bool

	// Neighbors says with whom a principal shares the servers. nil means that nobody does.
	Neighbors func(switchboard.Principal) Neighbors

	// OnChange is called some time after what a server offers has changed, or
	// has become stale; several changes may be one call. It is not called
	// concurrently with itself. nil means that nobody wants to know.
	OnChange func()

	// OnOffer is called when a server offers something else than before, so that
	// others who have the same server can ask it too: see Relist. It must not wait
	// for anything. nil means that nobody wants to know.
	OnOffer func(id switchboard.ServerID)

	// OnAnswer is called after the first offer of a server since it was started, and after
	// each offer that differs from the one before. Remembered returns the offer. OnAnswer
	// must not block. nil means that no offer is kept.
	OnAnswer func(id switchboard.ServerID)

	// Recall returns the memory of a server with the same configuration, if there is one.
	// Its offer counts as stale until the server answers. nil means that there is none.
	Recall func(s *switchboard.Server) (Memory, bool)

	// OnLink is called when our own connection to a server is up and what the
	// server offers is known, and when it was lost or could not be made: why
	// is nil in the first case. Of one server it is called in the order in which
	// that happens. It must not wait for anything. nil means that nobody wants to
	// know.
	OnLink func(id switchboard.ServerID, up bool, why *Failure)

	// Guard is a command that runs the function Guard with the arguments that
	// follow, such as this program with an argument. Each server's program is
	// started by one, which ends all that the program has started, also when
	// we are killed; nil leaves that to the parent-death signal, which reaches
	// only the programs themselves.
	Guard []string

	MaxInFlight    int           // calls under way at one server that is not configured otherwise; 0 means 256
	MaxConnections int           // processes or sessions of one server; 0 means 64
	IdleAfter      time.Duration // until a principal's own connection is closed; 0 means 10min

	// hurry is closed when nothing may take its time any more.
	hurry <-chan struct{}
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = "switchboard"
	}
	if o.StartDeadline <= 0 {
		o.StartDeadline = 10 * time.Second
	}
	if o.StartWait <= 0 {
		o.StartWait = 50 * time.Second
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 256
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = 64
	}
	if o.IdleAfter <= 0 {
		o.IdleAfter = 10 * time.Minute
	}
	return o
}

// changeQuiet is how long OnChange waits for further changes.
const changeQuiet = 50 * time.Millisecond

// A Fleet is all servers behind us. Its methods are safe for concurrent use.
type Fleet struct {
	opts    Options
	ours    identity
	spawner *spawner
	changed chan struct{} // holds one signal when an offer has changed
	hurry   chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	busy   group // servers, also those that are going, and our own goroutine

	mu      sync.Mutex
	servers map[switchboard.ServerID]*server
	since   time.Time // of the last Set
	closed  chan struct{}

	telling sync.Mutex // held while OnLink is called
}

// New returns a Fleet without servers.
func New(o Options) *Fleet {
	f := &Fleet{
		opts:    o.withDefaults(),
		changed: make(chan struct{}, 1),
		hurry:   make(chan struct{}),
	}
	f.opts.hurry = f.hurry
	f.ours = newIdentity(f.opts.Name, f.opts.Version)
	f.spawner = newSpawner(o.Guard)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.busy.run(f.keep)
	return f
}

// Set makes servers the servers of the fleet. Those that are new are started,
// all at once; those that are as they were are left alone; those that have
// changed or gone are closed when the calls under way have ended. It does not
// wait. After Close it does nothing.
func (f *Fleet) Set(servers []switchboard.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return
	}
	next := make(map[switchboard.ServerID]*server, len(servers))
	for _, cfg := range servers {
		old := f.servers[cfg.ID]
		if old != nil {
			if was := old.config(); sameConnection(&was, &cfg) {
				old.update(cfg)
				next[cfg.ID] = old
				continue
			}
		}
		s := newServer(f, cfg, old)
		next[cfg.ID] = s
		s.links.run(s.run)
	}
	for id, old := range f.servers {
		if next[id] != old {
			f.busy.run(func() { old.drain(0) })
		}
	}
	f.servers, f.since = next, time.Now()
	f.touch()
}

// sameConnection reports whether a connection to a serves b as well.
func sameConnection(a, b *switchboard.Server) bool {
	return a.Transport == b.Transport && a.URL == b.URL && a.Dir == b.Dir && a.Share == b.Share && a.MaxResult == b.MaxResult &&
		slices.Equal(a.Command, b.Command) &&
		maps.EqualFunc(a.Headers, b.Headers, switchboard.Secret.Equal) &&
		maps.EqualFunc(a.Env, b.Env, switchboard.Secret.Equal)
}

// Restart ends all connections and processes of a server and makes them anew. The
// calls under way have restartGrace to end; new ones wait for the new connection.
// It does not wait.
func (f *Fleet) Restart(id switchboard.ServerID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.servers[id]
	if old == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %q", id)
	}
	s := newServer(f, old.config(), old)
	ended := make(chan struct{})
	s.after = ended
	f.servers[id] = s
	f.busy.run(func() {
		defer close(ended)
		old.drain(restartGrace)
	})
	s.links.run(s.run)
	f.touch()
	return nil
}

// restartGrace is how long calls may go on at a server that is restarted.
const restartGrace = 5 * time.Second

// Probe asks a server, over our own connection, whether it is there: for a ping,
// or in the modern era, which has none, for what it is. Where the connection is
// down it is made first, though not sooner after a failure than calls would. nil
// means that the server has answered as it should.
func (f *Fleet) Probe(ctx context.Context, id switchboard.ServerID) error {
	s := f.server(id)
	if s == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %q", id)
	}
	return s.probe(ctx)
}

// linked says how our own connection to s fares, unless s is no longer of the
// fleet.
func (f *Fleet) linked(s *server, up bool, why *Failure) {
	if f.opts.OnLink == nil {
		return
	}
	f.telling.Lock()
	defer f.telling.Unlock()
	if f.server(s.id) == s {
		f.opts.OnLink(s.id, up, why)
	}
}

// touch notes that an offer has changed.
func (f *Fleet) touch() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// keep calls OnChange, and closes connections that nobody uses.
func (f *Fleet) keep() {
	idle := time.NewTicker(max(f.opts.IdleAfter/4, time.Second))
	defer idle.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-idle.C:
			for _, s := range f.all() {
				s.reap(f.opts.IdleAfter)
			}
		case <-f.changed:
			if sleep(f.ctx, changeQuiet) != nil {
				return
			}
			select {
			case <-f.changed:
			default:
			}
			if f.opts.OnChange != nil {
				f.opts.OnChange()
			}
		}
	}
}

// all returns the servers of the last Set, sorted by id.
func (f *Fleet) all() []*server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.servers), func(a, b *server) int { return strings.Compare(string(a.id), string(b.id)) })
}

func (f *Fleet) server(id switchboard.ServerID) *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers[id]
}

// Relist has a server say again what it offers, or all servers if id is "". One that
// is away, or that is not of the fleet, is left alone.
func (f *Fleet) Relist(id switchboard.ServerID) {
	for _, s := range f.all() {
		if id == "" || s.id == id {
			s.relist.add(switchboard.AllKinds)
		}
	}
}

// Forget closes the connections that were only for the client of that session
// (see switchboard.Client), which is over.
func (f *Fleet) Forget(session string) {
	for _, s := range f.all() {
		s.forget(session)
	}
}

// Ready returns when each server of the last Set has answered, or failed once,
// or the start deadline, counted from that Set, or ctx is over. Status says
// how each fares.
func (f *Fleet) Ready(ctx context.Context) {
	servers := f.all()
	f.mu.Lock()
	deadline := f.since.Add(f.opts.StartDeadline)
	f.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for _, s := range servers {
		select {
		case <-s.tried:
		case <-ctx.Done():
			return
		}
	}
}

// Starting returns the servers of the last Set that are starting and have no known offer,
// sorted by id. Each server answers or fails within a minute.
func (f *Fleet) Starting() (ids []switchboard.ServerID) {
	for _, s := range f.all() {
		if s.unknown() {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// Offers returns what the servers of the last Set offer, sorted by id: the last
// known word of those that are away, marked as stale, and nothing of those
// that have never answered. What it returns is not modified.
func (f *Fleet) Offers() []switchboard.Offer {
	var offers []switchboard.Offer
	for _, s := range f.all() {
		s.mu.Lock()
		if s.offer != nil {
			offers = append(offers, *s.offer)
		}
		s.mu.Unlock()
	}
	return offers
}

// Close lets the calls under way end and then closes all connections: children
// are asked to end, then told, then killed. Once ctx is over nothing is waited
// for but the kernel. When it returns there is no child left, and no goroutine.
func (f *Fleet) Close(ctx context.Context) {
	f.mu.Lock()
	if f.closed != nil { // somebody else is at it
		f.mu.Unlock()
		<-f.closed
		return
	}
	f.closed = make(chan struct{})
	for _, s := range f.servers {
		f.busy.run(func() { s.drain(0) })
	}
	f.servers = nil
	f.mu.Unlock()
	f.cancel()

	stop := context.AfterFunc(ctx, func() { close(f.hurry) })
	<-f.busy.close()
	if !stop() {
		<-f.hurry
	}
	f.spawner.close()
	close(f.closed)
}
