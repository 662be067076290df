// Package upstream has the servers behind the gateway, and the connections to them.
//
// It decides which process or session serves which principal, when to open, reopen and close a
// connection, when to list the offer of a server again, and when a call is sent again. Package link
// speaks to a server over one connection. Other packages decide which tools exist, who may call them and
// under which name.
//
// No server can block another one. Each server has its own goroutines, its own limit of calls in
// flight, and limits on everything that it sends. A call is sent at most once. It is sent again
// only if no byte of it has left, or if the server has said that it does not know the session.
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
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

// Options are the settings of a Fleet. The zero Options work.
type Options struct {
	// Log receives what happens to servers, and their stderr. nil discards it.
	Log *slog.Logger

	// KeepStderr keeps a line that a server has written to its stderr, without the server's secrets. leftOut is the
	// number of lines before it that were left out. It must not block. nil means that lines are only logged.
	KeepStderr func(id switchboard.ServerID, line string, leftOut int)

	// Name and Version identify Switchboard to servers.
	Name    string
	Version string

	// StartDeadline limits how long Ready waits, and how long a call waits for a server that was
	// ready before and is not ready now. 0 means 10s.
	StartDeadline time.Duration

	// StartWait limits how long a call waits for a server that has not answered since it was
	// started. 0 means 50s, because most clients give a call a minute.
	StartWait time.Duration

	// OnePrincipal says that there is only one user, so that no server needs more than one
	// connection. See Fleet.SetOnePrincipal.
	OnePrincipal bool

	// Neighbors says which other users share the servers with a principal. nil means that there are
	// none.
	Neighbors func(switchboard.Principal) slot.Neighbors

	// OnChange is called some time after the offer of a server has changed or become stale. One
	// call may stand for several changes. Calls do not overlap. nil means no call.
	OnChange func()

	// OnOffer is called when the offer of a server differs from the one before, so that other
	// replicas with the same server can list it again: see Relist. It must not block. nil means no
	// call.
	OnOffer func(id switchboard.ServerID)

	// OnAnswer is called after the first offer of a server since it was started, and after each
	// offer that differs from the one before. Remembered returns the offer. OnAnswer must not
	// block. nil means that no offer is kept.
	OnAnswer func(id switchboard.ServerID)

	// Recall returns the memory of a server with the same configuration, if there is one. Its offer
	// counts as stale until the server answers. nil means that there is none.
	Recall func(s *switchboard.Server) (ServerMemory, bool)

	// OnLink is called with why == nil when Switchboard's own connection to a server is up and the
	// offer of the server is known. It is called with a failure when the connection is lost or
	// cannot be made. The calls for one server arrive in the order of the events. OnLink must not
	// block. nil means no call.
	OnLink func(id switchboard.ServerID, up bool, why *Failure)

	// Credentials returns what gives the requests to a server their credentials; nil if the server takes no tokens. A nil
	// function stands for one that always returns nil.
	Credentials func(s *switchboard.Server) link.Credentials

	// Guard is a command that runs the function Guard with the arguments that follow, such as this
	// program with an argument. A guard starts each server's program, and ends everything that the
	// program has started, even if Switchboard is killed. With nil only the parent-death signal
	// does that, and it reaches the programs themselves alone.
	Guard []string

	// Own returns Switchboard's own files and folders, which no program of a server sees. It is called at each start of a program. nil means that there
	// are none.
	Own func() []string

	// Prepare returns the row with which the program of a server is started: with the command of its package's program, say. Its error says why it must not be
	// started. It is called before each start. nil means that rows are used as they are.
	Prepare func(ctx context.Context, s *switchboard.Server) (*switchboard.Server, error)

	MaxInFlight    int           // calls in flight at a server without a limit of its own; 0 means 256
	MaxConnections int           // processes or sessions of one server; 0 means 64
	IdleAfter      time.Duration // until the unused connection of a principal is closed; 0 means 10min

	// hurry is closed when Close must no longer wait for servers.
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

// changeDelay is how long OnChange waits for further changes.
const changeDelay = 50 * time.Millisecond

// A Fleet is all servers behind Switchboard. Its methods are safe for concurrent use.
type Fleet struct {
	opts       Options
	clientInfo link.ClientInfo
	spawner    *process.Spawner
	changed    chan struct{} // holds one signal when an offer has changed
	hurry      chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	tasks  task.Tracker // the servers, those that are being closed too, and maintain

	mu           sync.Mutex
	servers      map[switchboard.ServerID]*server
	onePrincipal bool      // see SetOnePrincipal
	setAt        time.Time // when Set was called last
	closed       chan struct{}

	onLinkMu sync.Mutex // held while OnLink is called
}

// New returns a Fleet without servers.
func New(o Options) *Fleet {
	f := &Fleet{
		opts:         o.withDefaults(),
		onePrincipal: o.OnePrincipal,
		changed:      make(chan struct{}, 1),
		hurry:        make(chan struct{}),
	}
	f.opts.hurry = f.hurry
	f.clientInfo = link.NewClientInfo(f.opts.Name, f.opts.Version)
	f.spawner = process.NewSpawner(o.Guard)
	f.spawner.Own, f.spawner.Prepare = o.Own, o.Prepare
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.tasks.Run(f.maintain)
	return f
}

// Set replaces the servers of the fleet. It starts all new servers at once, leaves unchanged ones
// alone, and closes changed and removed ones when their calls in flight have ended. It does not
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
			if was := old.config(); sameConnection(&was, &cfg) && old.connectors.onePrincipal == f.onePrincipal {
				old.update(cfg)
				next[cfg.ID] = old
				continue
			}
		}
		s := newServer(f, cfg, old)
		next[cfg.ID] = s
		s.tasks.Run(s.run)
	}
	for id, old := range f.servers {
		if next[id] != old {
			f.tasks.Run(func() { old.drain(0) })
		}
	}
	f.servers, f.setAt = next, time.Now()
	f.signalChange()
}

// SetOnePrincipal changes Options.OnePrincipal. At the next Set, servers with connections that were opened under the other rule are replaced, as if
// their configuration had changed: so no connection that one user had becomes another user's.
func (f *Fleet) SetOnePrincipal(one bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onePrincipal = one
}

// sameConnection reports whether a connection for the configuration a also serves b.
func sameConnection(a, b *switchboard.Server) bool {
	return a.Transport == b.Transport && a.URL == b.URL && a.Dir == b.Dir && a.Share == b.Share && a.MaxResult == b.MaxResult && a.Network.Equal(b.Network) &&
		slices.Equal(a.Command, b.Command) && a.Package == b.Package && a.Walls.Equal(&b.Walls) &&
		a.Credential.Equal(&b.Credential) &&
		maps.EqualFunc(a.Headers, b.Headers, switchboard.Secret.Equal) &&
		maps.EqualFunc(a.Env, b.Env, switchboard.Secret.Equal)
}

// Restart ends all connections and processes of a server and opens new ones. Calls in flight get
// restartGrace to end. New calls wait for the new connection. Restart does not wait.
func (f *Fleet) Restart(id switchboard.ServerID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.servers[id]
	if old == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %q", id)
	}
	s := newServer(f, old.config(), old)
	ended := make(chan struct{})
	s.connectors.startAfter = ended
	f.servers[id] = s
	f.tasks.Run(func() {
		defer close(ended)
		old.drain(restartGrace)
	})
	s.tasks.Run(s.run)
	f.signalChange()
	return nil
}

// restartGrace is how long calls in flight at a server may take after its restart.
const restartGrace = 5 * time.Second

// Shut ends the connections that carry the credential of the principal alone. Calls in flight over them end.
func (f *Fleet) Shut(id switchboard.ServerID, p *switchboard.Principal) {
	if s := f.server(id); s != nil {
		s.connectors.closeOwned(p)
	}
}

// Relink ends Switchboard's own link to a server, and opens another one. Calls in flight over it end by themselves.
func (f *Fleet) Relink(id switchboard.ServerID) {
	if s := f.server(id); s != nil {
		if l := s.connectors.main.current(); l != nil {
			l.Fail(link.Errorf(link.KindGone, false, "its connection was made anew"))
		}
	}
}

// Probe checks over Switchboard's own connection that a server answers: a ping, or server/discover
// in the modern era, which has no ping. It opens the connection first if it is down, but no sooner
// after a failure than a call would. nil means that the server has answered correctly.
func (f *Fleet) Probe(ctx context.Context, id switchboard.ServerID) error {
	s := f.server(id)
	if s == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %q", id)
	}
	return s.probe(ctx)
}

// reportLink calls OnLink for s, unless s has left the fleet.
func (f *Fleet) reportLink(s *server, up bool, why *Failure) {
	if f.opts.OnLink == nil {
		return
	}
	f.onLinkMu.Lock()
	defer f.onLinkMu.Unlock()
	if f.server(s.id) == s {
		f.opts.OnLink(s.id, up, why)
	}
}

// signalChange records that an offer has changed.
func (f *Fleet) signalChange() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// maintain calls OnChange and closes unused connections.
func (f *Fleet) maintain() {
	idle := time.NewTicker(max(f.opts.IdleAfter/4, time.Second))
	defer idle.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-idle.C:
			for _, s := range f.sortedServers() {
				s.connectors.closeIdle(f.opts.IdleAfter)
			}
		case <-f.changed:
			if task.Sleep(f.ctx, changeDelay) != nil {
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

// sortedServers returns the servers of the last Set, sorted by id.
func (f *Fleet) sortedServers() []*server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.servers), func(a, b *server) int { return strings.Compare(string(a.id), string(b.id)) })
}

func (f *Fleet) server(id switchboard.ServerID) *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers[id]
}

// Relist lists the offer of a server again, or of all servers if id is "". It ignores servers that
// are away or not in the fleet.
func (f *Fleet) Relist(id switchboard.ServerID) {
	for _, s := range f.sortedServers() {
		if id == "" || s.id == id {
			s.stale.request(switchboard.AllKinds)
		}
	}
}

// AwaitList lists the offer of a server again at once, and waits until that is done. It reports whether the tools were listed: Offers then has them. It waits no longer than ctx, and not
// for a server that is not in the fleet.
func (f *Fleet) AwaitList(ctx context.Context, id switchboard.ServerID) (listed bool) {
	s := f.server(id)
	if s == nil {
		return false
	}
	for next, _ := s.listings.nextNumber(); ; {
		ended, again := s.listings.lastEnded()
		if ended >= next {
			return s.listings.hasListed(next)
		}
		s.stale.requestNow() // again, if another listing was just beginning
		select {
		case <-again:
		case <-ctx.Done():
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// Forget closes the connections that belong to one client session alone (see switchboard.Client).
// The session has ended.
func (f *Fleet) Forget(session string) {
	for _, s := range f.sortedServers() {
		s.connectors.closeSession(session)
	}
}

// Ready returns when each server of the last Set has answered or has failed once. It returns
// earlier if ctx ends, or if the start deadline, counted from that Set, has passed. It does not wait for
// the servers in except. Status says how each server is.
func (f *Fleet) Ready(ctx context.Context, except ...switchboard.ServerID) {
	servers := f.sortedServers()
	f.mu.Lock()
	deadline := f.setAt.Add(f.opts.StartDeadline)
	f.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for _, s := range servers {
		if slices.Contains(except, s.id) {
			continue
		}
		select {
		case <-s.facts.tried:
		case <-ctx.Done():
			return
		}
	}
}

// Starting returns the servers of the last Set that are starting and have no known offer, sorted by
// id. link.Opener limits how long each start lasts.
func (f *Fleet) Starting() (ids []switchboard.ServerID) {
	for _, s := range f.sortedServers() {
		if s.facts.awaitsOffer() {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// Offers returns the offers of the servers of the last Set, sorted by id. Servers that are away
// have their last known offer, marked as stale. Servers that have never answered have none. The
// result is immutable.
func (f *Fleet) Offers() []switchboard.Offer {
	var offers []switchboard.Offer
	for _, s := range f.sortedServers() {
		if offer, _ := s.facts.current(); offer != nil {
			offers = append(offers, *offer)
		}
	}
	return offers
}

// Close waits for the calls in flight and then closes all connections. A child process first gets
// the end of its stdin, then SIGTERM, then SIGKILL. After ctx has ended, Close waits for the kernel
// alone. When it returns, no child process and no goroutine is left.
func (f *Fleet) Close(ctx context.Context) {
	f.mu.Lock()
	if f.closed != nil { // another Close is running
		f.mu.Unlock()
		<-f.closed
		return
	}
	f.closed = make(chan struct{})
	for _, s := range f.servers {
		f.tasks.Run(func() { s.drain(0) })
	}
	f.servers = nil
	f.mu.Unlock()
	f.cancel()

	stop := context.AfterFunc(ctx, func() { close(f.hurry) })
	<-f.tasks.Close()
	if !stop() {
		<-f.hurry
	}
	f.spawner.Close()
	close(f.closed)
}
