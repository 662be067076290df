// Package health tracks the health of each server. The selection of tools skips servers and tools that are unfit, and
// failing calls move to declared equivalents, never so that a call is executed twice.
//
// # States
//
//	starting → healthy → lost → quarantine → probation → healthy
//	disabled, by an operator, from and to any of them
//
// A server is healthy once it has connected and listed its tools. It is lost while its process has ended or its port
// refuses connections; a lost server is not chosen. It is quarantined when its connection stays lost for longer than
// blink, or when its breaker trips: too many calls in a row, or too large a share of them, fail by the server's own
// fault. After a pause that doubles each time, a probe is sent. If the server answers, it is on probation, and one
// call or one further probe at a time is its trial. A server of unknown health is unfit.
//
// A tool that fails while other tools of its server work is quarantined alone. Its quarantine is the same but without
// probes, because a probe does not call the tool.
//
// # Readers and writers
//
// The selection of tools reads the published states and changes nothing (Monitor.Unfit, Stage). A call takes the
// trial (Monitor.Admit). The states change by the results of calls, by probes, and by reports of package upstream
// about its connections. This package sends nothing to servers: a function in Options probes them.
package health

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A State is the health of a server or of one of its tools.
type State string

// The states.
const (
	Starting   State = "starting" // the server has not answered yet
	Healthy    State = "healthy"
	Lost       State = "lost"       // its process has ended, or its port refuses connections, for less than blink
	Quarantine State = "quarantine" // no calls are sent
	Probation  State = "probation"  // one call at a time is sent, as a trial
	Disabled   State = "disabled"   // an operator has disabled it

	// NeedsConnection is for a server that demands a sign-in, which a person has to do first. Nothing has failed: calls are sent, and are told so.
	NeedsConnection State = "needs_connection"
)

// States lists all states.
var States = []State{Starting, Healthy, Lost, Quarantine, Probation, Disabled, NeedsConnection}

// A Cause is the reason why a server is not healthy. It contains no secrets.
type Cause struct {
	// Stage is the step that failed: connect, list or serve as in package upstream, or call, probe or operator.
	Stage   string    `json:"stage"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"` // when the failures began

	// Gone says that no program is at the other end of the connection: the process has ended, or the port refuses
	// connections.
	Gone bool `json:"-"`

	// NeedsConnection says that nothing has failed: a person has to sign in at the server's provider first.
	NeedsConnection bool `json:"-"`
}

// The stages of causes, besides those of connections.
const (
	StageCall     = "call"
	StageProbe    = "probe"
	StageOperator = "operator"
)

// A Status is the health of one server.
type Status struct {
	State State     `json:"state"`
	Since time.Time `json:"since"`
	Cause *Cause    `json:"last_failure,omitempty"` // nil while it is healthy

	// NextProbe is when the server is probed next; zero if that depends on something else, such as its connection.
	NextProbe time.Time `json:"next_probe,omitzero"`

	Calls     int64 `json:"calls"`      // calls of its tools
	MovedAway int64 `json:"moved_away"` // of these, calls that another server has served
	MovedHere int64 `json:"moved_here"` // calls of other servers' tools that it has served

	Tools []ToolStatus `json:"tools,omitempty"` // tools that fail alone, sorted
}

// WithoutMessages returns the status without the messages of causes. Those contain texts of servers, of the operating
// system and of operators.
func (s Status) WithoutMessages() Status {
	mute := func(c *Cause) *Cause {
		if c == nil {
			return nil
		}
		return &Cause{Stage: c.Stage, Since: c.Since}
	}
	s.Cause = mute(s.Cause)
	s.Tools = slices.Clone(s.Tools)
	for i := range s.Tools {
		s.Tools[i].Cause = mute(s.Tools[i].Cause)
	}
	return s
}

// A ToolStatus is the health of a tool that fails alone.
type ToolStatus struct {
	Tool  string    `json:"tool"`
	State State     `json:"state"`
	Cause *Cause    `json:"last_failure,omitempty"`
	Until time.Time `json:"until,omitzero"` // the end of its quarantine
}

// A Transition is a change of the state of a server or of a tool.
type Transition struct {
	Server   switchboard.ServerID
	Tool     string // "" for the server itself
	From, To State
	Cause    *Cause // nil for a change to healthy
}

// Options are the settings of a Monitor. The zero Options work.
type Options struct {
	Log *slog.Logger // nil means no log output

	// Probe sends a request without side effects to the server and waits for the answer; nil means that servers are
	// not probed.
	Probe func(ctx context.Context, s *switchboard.Server) error

	// Changed receives each transition, one after the other. It must not block.
	Changed func(Transition)

	// Probed receives the result of each probe.
	Probed func(id switchboard.ServerID, err error)

	// Moved receives each call that another server has served, soon after its end, one after the other.
	Moved func(Move)

	// Store shares the health of servers between the replicas that reach them at the same address, and keeps which
	// servers an operator has disabled. nil means that nothing is shared, and that nothing outlives the Monitor.
	Store Store

	// Replica is this replica's id among several; "" for a single process.
	Replica string

	// Patience is how long calls of a server with a lost connection wait for the connection, if no other server can
	// take them; 0 means 10s.
	Patience time.Duration
}

// A Monitor keeps the state of each server. Use New. It is safe for concurrent use.
type Monitor struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	moves  moveLog

	setLock sync.Mutex // held while servers or stored are replaced
	servers atomic.Pointer[map[switchboard.ServerID]*serverMonitor]
	stored  storedHealth // as last read from the store
	reads   atomic.Int64 // counts reads of the store, to put them in order

	unfitLock sync.Mutex // held while unfit is replaced
	unfit     atomic.Pointer[map[switchboard.ToolID]State]
}

// New returns a Monitor without servers. The caller must Close it.
func New(o Options) *Monitor {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	m := &Monitor{o: o}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.servers.Store(&map[switchboard.ServerID]*serverMonitor{})
	m.unfit.Store(&map[switchboard.ToolID]State{})
	return m
}

// Close ends the probes, waits for those in flight, and reports the remaining moved calls.
func (m *Monitor) Close() {
	m.cancel()
	m.setLock.Lock()   // a concurrent Set has then started all its goroutines
	m.setLock.Unlock() //nolint:staticcheck // the lock is only awaited
	m.work.Wait()
	m.moves.close(m.reportMove)
}

// SetServers replaces the set of monitored servers. The state of a server stays while its program or address stays the same.
func (m *Monitor) SetServers(servers []switchboard.Server) {
	m.setLock.Lock()
	defer m.setLock.Unlock()
	if m.ctx.Err() != nil {
		return
	}
	was := *m.servers.Load()
	next := make(map[switchboard.ServerID]*serverMonitor, len(servers))
	for _, cfg := range servers {
		if old := was[cfg.ID]; old != nil && old.sameTarget(&cfg) {
			old.configure(cfg)
			next[cfg.ID] = old
			continue
		}
		s := newServerMonitor(m, cfg)
		s.inherit(m.stored.disabled[cfg.ID], m.stored.shared(sharedName(&m.o, &cfg)))
		next[cfg.ID] = s
	}
	m.servers.Store(&next)
	for id, old := range was {
		if next[id] == old {
			continue
		}
		old.cancel()
		if next[id] == nil {
			m.resetPublished(id, Healthy)
		}
	}
	for id, s := range next {
		if was[id] != s {
			s.mu.Lock() // calls and reports may arrive already
			m.resetPublished(id, s.state.shown)
			s.mu.Unlock()
			m.work.Go(s.run)
		}
	}
}

func (m *Monitor) server(id switchboard.ServerID) *serverMonitor { return (*m.servers.Load())[id] }

// ReportLink reports the connection to the server: up means that it is connected and its tools are listed; otherwise it is
// lost or could not be made, and why is the reason.
func (m *Monitor) ReportLink(id switchboard.ServerID, up bool, why Cause) {
	if s := m.server(id); s != nil {
		s.reportLink(up, why)
	}
}

// Disable takes the server out of service for all replicas, permanently: calls in flight continue, new calls are
// refused. SB-ROUT-004 says that the store could not save this and nothing was done.
func (m *Monitor) Disable(ctx context.Context, id switchboard.ServerID, why string) error {
	return m.setDisabled(ctx, id, &Cause{Stage: StageOperator, Message: why, Since: time.Now()})
}

// Enable returns a disabled server to service. The errors are as for Disable.
func (m *Monitor) Enable(ctx context.Context, id switchboard.ServerID) error {
	return m.setDisabled(ctx, id, nil)
}

func (m *Monitor) setDisabled(ctx context.Context, id switchboard.ServerID, off *Cause) error {
	m.setLock.Lock()
	defer m.setLock.Unlock()
	if err := m.saveDisabled(ctx, id, off); err != nil {
		return err
	}
	next := maps.Clone(m.stored.disabled)
	if next == nil {
		next = map[switchboard.ServerID]*Cause{}
	}
	if next[id] = off; off == nil {
		delete(next, id)
	}
	m.stored.disabled = next
	if s := m.server(id); s != nil {
		s.disable(off)
	}
	return nil
}

// Status returns the health of the server.
func (m *Monitor) Status(id switchboard.ServerID) (Status, bool) {
	s := m.server(id)
	if s == nil {
		return Status{}, false
	}
	return s.status(), true
}

// Unfit returns the unfit servers, with an empty tool name, and the tools that fail alone. The map must not be
// modified.
func (m *Monitor) Unfit() map[switchboard.ToolID]State { return *m.unfit.Load() }

// Fit reports whether the tool may be called now, without a trial.
func (m *Monitor) Fit(id switchboard.ToolID) bool {
	unfit := m.Unfit()
	if len(unfit) == 0 {
		return true
	}
	_, server := unfit[switchboard.ToolID{Server: id.Server}]
	_, tool := unfit[id]
	return !server && !tool
}

// publish puts the state of the server, or of one of its tools, into the map of Unfit.
func (m *Monitor) publish(s *serverMonitor, tool string, state State) {
	m.unfitLock.Lock()
	defer m.unfitLock.Unlock()
	if m.server(s.id) != s {
		return
	}
	next := maps.Clone(m.Unfit())
	id := switchboard.ToolID{Server: s.id, Name: tool}
	if next[id] = state; state == Healthy {
		delete(next, id)
	}
	m.unfit.Store(&next)
}

// resetPublished removes the server and its tools from the map of Unfit, and then puts in the server's state.
func (m *Monitor) resetPublished(id switchboard.ServerID, state State) {
	m.unfitLock.Lock()
	defer m.unfitLock.Unlock()
	next := maps.Clone(m.Unfit())
	maps.DeleteFunc(next, func(t switchboard.ToolID, _ State) bool { return t.Server == id })
	if state != Healthy {
		next[switchboard.ToolID{Server: id}] = state
	}
	m.unfit.Store(&next)
}
