// Package health knows how each server fares, passes over those that are not fit
// when tools are chosen, and moves calls that fail to declared equivalents, never
// so that one is executed twice.
//
// # States
//
//	starting → healthy → lost → quarantine → probation → healthy
//	disabled, by an operator, from and to any of them
//
// A server is healthy once it has been reached and has listed its tools. It is lost
// while its process has ended or its port refuses connections: it is not chosen then. It is
// quarantined when its connection stays lost for longer than a blink, or when its
// breaker trips: too many calls in a row, or too large a share of them, fail by
// the server's own fault. After a while that grows with each time, a probe asks
// it something; where it answers it is on probation, and one call, or one more
// probe, at a time is its trial. What is not known to be healthy is not fit.
//
// A tool that fails while others of its server work is quarantined alone, in the
// same way but for the probes, which would not tell.
//
// # Who reads, who acts
//
// Choosing reads what is published here and changes nothing (Monitor.Unfit, Stage).
// Calling takes the trial (Monitor.Admit). Both are fed by the calls themselves, by
// probes, and by what package upstream says of its connections. This package speaks
// to no server: how one is probed, it is told.
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

// A State is how fit a server is, or one of its tools.
type State string

// The states.
const (
	Starting   State = "starting" // it has not answered yet
	Healthy    State = "healthy"
	Lost       State = "lost"       // its process has ended, or its port refuses connections, for less than a blink
	Quarantine State = "quarantine" // it takes no calls
	Probation  State = "probation"  // it takes one at a time, to see
	Disabled   State = "disabled"   // an operator has taken it out of service
)

// States are all states.
var States = []State{Starting, Healthy, Lost, Quarantine, Probation, Disabled}

// A Cause is why a server is not healthy. It holds no secret.
type Cause struct {
	// Stage is what was being done: connect, list and serve as package upstream
	// has them, or call, probe or operator.
	Stage   string    `json:"stage"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"` // when the trouble began

	// Gone says of a connection that no program is there: the process has ended, or the port refuses
	// connections.
	Gone bool `json:"-"`
}

// The stages of causes, besides those of connections.
const (
	StageCall     = "call"
	StageProbe    = "probe"
	StageOperator = "operator"
)

// A Status is how one server fares.
type Status struct {
	State State     `json:"state"`
	Since time.Time `json:"since"`
	Cause *Cause    `json:"last_failure,omitempty"` // nil while it is healthy

	// NextProbe is when it is asked again; zero where that hangs on something
	// else, such as its connection.
	NextProbe time.Time `json:"next_probe,omitzero"`

	Calls     int64 `json:"calls"`      // that were meant for it
	MovedAway int64 `json:"moved_away"` // of these, were served by another
	MovedHere int64 `json:"moved_here"` // were meant for another

	Tools []ToolStatus `json:"tools,omitempty"` // those that fail alone, sorted
}

// WithoutWords is the status without the messages of causes, which hold the words
// of servers and of the system, nor what an operator has said.
func (s Status) WithoutWords() Status {
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

// A ToolStatus is how a tool fares that fails alone.
type ToolStatus struct {
	Tool  string    `json:"tool"`
	State State     `json:"state"`
	Cause *Cause    `json:"last_failure,omitempty"`
	Until time.Time `json:"until,omitzero"` // the end of its quarantine
}

// A Transition is a change of a server's state, or of a tool's.
type Transition struct {
	Server   switchboard.ServerID
	Tool     string // "" for the server itself
	From, To State
	Cause    *Cause // nil where it is healthy now
}

// Options are the settings of a Monitor. The zero Options work.
type Options struct {
	Log *slog.Logger // nil means nowhere

	// Probe asks the server something that changes nothing and waits for the
	// answer; nil means that servers are not probed.
	Probe func(ctx context.Context, s *switchboard.Server) error

	// Changed is told of each transition, one after the other. It does not wait
	// for anything.
	Changed func(Transition)

	// Probed is told how each probe ended.
	Probed func(id switchboard.ServerID, err error)

	// Moved is told of each call that was moved to where it was not meant, soon
	// after it has ended, and of one after the other.
	Moved func(Move)

	// Store is where replicas tell each other how the servers fare that all of them
	// reach at one address, and where it stands what an operator has disabled. nil means
	// that nobody else is told, and that nothing outlasts the Monitor.
	Store Store

	// Self is this replica's name among several; "" where there are no others.
	Self string

	// Patience is for how long after its connection was lost a server's calls wait
	// for it to come back, where there is nowhere else to go; 0 means 10s.
	Patience time.Duration
}

// A Monitor keeps the state of each server. Use New. It is safe for concurrent
// use.
type Monitor struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	moves  moves

	setting sync.Mutex // held while servers, or what is known of them, is replaced
	servers atomic.Pointer[map[switchboard.ServerID]*server]
	known   known        // by the store
	turn    atomic.Int64 // counts what was heard of the store

	publishing sync.Mutex // held while unfit is replaced
	unfit      atomic.Pointer[map[switchboard.ToolID]State]
}

// New returns a Monitor without servers. Call Close in the end.
func New(o Options) *Monitor {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	m := &Monitor{o: o}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.servers.Store(&map[switchboard.ServerID]*server{})
	m.unfit.Store(&map[switchboard.ToolID]State{})
	return m
}

// Close ends the probes, waits for those under way, and says what is left to be
// said of calls that were moved.
func (m *Monitor) Close() {
	m.cancel()
	m.setting.Lock()   // whoever is just setting servers has then begun all that is waited for
	m.setting.Unlock() //nolint:staticcheck // as said
	m.work.Wait()
	m.moves.close(m.tell)
}

// Set makes servers those that are kept watch of. What is known of one holds on
// while it is the same program or address.
func (m *Monitor) Set(servers []switchboard.Server) {
	m.setting.Lock()
	defer m.setting.Unlock()
	if m.ctx.Err() != nil {
		return
	}
	was := *m.servers.Load()
	next := make(map[switchboard.ServerID]*server, len(servers))
	for _, cfg := range servers {
		if old := was[cfg.ID]; old != nil && old.same(&cfg) {
			old.configure(cfg)
			next[cfg.ID] = old
			continue
		}
		s := newServer(m, cfg)
		s.inherit(m.known.off[cfg.ID], m.known.words[s.place])
		next[cfg.ID] = s
	}
	m.servers.Store(&next)
	for id, old := range was {
		if next[id] == old {
			continue
		}
		old.stop()
		if next[id] == nil {
			m.restate(id, Healthy)
		}
	}
	for id, s := range next {
		if was[id] != s {
			s.mu.Lock() // it may be called and heard of already
			m.restate(id, s.state)
			s.mu.Unlock()
			m.work.Go(s.run)
		}
	}
}

func (m *Monitor) server(id switchboard.ServerID) *server { return (*m.servers.Load())[id] }

// Link says that the connection to the server is there, and its tools are listed;
// or that it is lost, or could not be made, and why.
func (m *Monitor) Link(id switchboard.ServerID, up bool, why Cause) {
	if s := m.server(id); s != nil {
		s.linked(up, why)
	}
}

// Disable takes the server out of service, for all replicas and for as long as the
// store lasts: calls under way go on, new ones are not taken. SB-ROUT-004 says that
// nothing was done, since it could not be kept.
func (m *Monitor) Disable(ctx context.Context, id switchboard.ServerID, why string) error {
	return m.operate(ctx, id, &Cause{Stage: StageOperator, Message: why, Since: time.Now()})
}

// Enable puts a server back into service that was disabled. Its errors are those of
// Disable.
func (m *Monitor) Enable(ctx context.Context, id switchboard.ServerID) error {
	return m.operate(ctx, id, nil)
}

func (m *Monitor) operate(ctx context.Context, id switchboard.ServerID, off *Cause) error {
	m.setting.Lock()
	defer m.setting.Unlock()
	if err := m.keepOff(ctx, id, off); err != nil {
		return err
	}
	next := maps.Clone(m.known.off)
	if next == nil {
		next = map[switchboard.ServerID]*Cause{}
	}
	if next[id] = off; off == nil {
		delete(next, id)
	}
	m.known.off = next
	if s := m.server(id); s != nil {
		s.disable(off)
	}
	return nil
}

// Status returns how the server fares.
func (m *Monitor) Status(id switchboard.ServerID) (Status, bool) {
	s := m.server(id)
	if s == nil {
		return Status{}, false
	}
	return s.status(), true
}

// Unfit returns what is not fit to serve now: servers, with no name of a tool, and
// tools that fail alone. It must not be modified.
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

// publish makes the state of the server, or of one of its tools, what others read.
func (m *Monitor) publish(s *server, tool string, state State) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
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

// restate forgets what was published of the server and its tools, and begins with
// the state.
func (m *Monitor) restate(id switchboard.ServerID, state State) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	next := maps.Clone(m.Unfit())
	maps.DeleteFunc(next, func(t switchboard.ToolID, _ State) bool { return t.Server == id })
	if state != Healthy {
		next[switchboard.ToolID{Server: id}] = state
	}
	m.unfit.Store(&next)
}

func (s *server) status() Status {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		State: s.state, Since: s.since, Cause: s.why(),
		Calls: s.calls.Load(), MovedAway: s.away.Load(), MovedHere: s.here.Load(),
	}
	if next, _ := s.plan(now); s.state != Healthy && s.state != Starting && next > 0 {
		st.NextProbe = now.Add(next)
	}
	if tools := s.tools.Load(); tools != nil {
		for _, name := range slices.Sorted(maps.Keys(*tools)) {
			if t := (*tools)[name]; t.state != Healthy {
				st.Tools = append(st.Tools, ToolStatus{name, t.state, t.cause, t.until})
			}
		}
	}
	return st
}
