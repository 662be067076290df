package pin

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Frozen is the state of a definition in reports that stays in use while its server offers another one.
const Frozen = "frozen"

// KeptOut is the state in counts of tools that pins let in and the operator's rules keep out.
const KeptOut = "kept_out"

// States are the states of definitions in reports and counts, the ones that a person must see first in front.
var States = []string{
	string(switchboard.LifeSuspended), string(switchboard.LifeRetired), string(switchboard.LifeNew), Frozen,
	string(switchboard.LifeTesting), string(switchboard.LifeDeprecated), string(switchboard.LifeActive),
}

const (
	groupReported = "pin_reported" // a value for each server

	settleTime     = time.Second // changes that come soon after the first one are in the same report
	reportInterval = time.Minute // between two reports of one server
	retryInterval  = 5 * time.Second

	maxNamed         = 100      // changes that a report names
	maxNamedBytes    = 24 << 10 // of the texts of these
	maxReportedBytes = 4 << 20  // of the names and digests that the store keeps for one server
	maxPending       = 10_000   // definitions of one server with changes that are not reported yet
)

// A StateChange is a change of the state of one definition that no person has made.
type StateChange struct {
	Key   admission.PinKey
	State string // one of States
	Class string // what the offered definition means; "" if there is none

	Admitted, Offered string // digests; "" if there is no such definition
	Why               string
}

// A machineState is what a machine has decided about a definition. It is zero if the definition is plainly active, or if a person has decided about it.
type machineState struct {
	State    string `json:"state"` // one of States
	Admitted string `json:"admitted,omitempty"`
	Offered  string `json:"offered,omitempty"` // unless the state is testing or retired
}

// machineStateOf returns what a machine has decided by a verdict.
func machineStateOf(v *admission.PinVerdict) machineState {
	m := machineState{Admitted: v.Pin.Digest}
	if v.Other != nil {
		m.Offered = v.Other.Digest
	}
	switch {
	case v.Frozen:
		m.State = Frozen
	case v.State == switchboard.LifeNew, v.State == switchboard.LifeSuspended && v.Pin.State != switchboard.LifeSuspended:
		m.State = string(v.State)
	case v.Pin.By == "" && (v.State == switchboard.LifeTesting || v.State == switchboard.LifeRetired):
		m.State, m.Offered = string(v.State), ""
	default:
		return machineState{}
	}
	return m
}

// An offerView is what Judge says of one offer.
type offerView struct {
	counts   map[string]int // of the offered definitions, by their state
	verdicts map[admission.PinKey]admission.PinVerdict
	states   map[admission.PinKey]machineState // without zero ones
}

func newOfferView() *offerView {
	v := &offerView{make(map[string]int, len(States)), map[admission.PinKey]admission.PinVerdict{}, map[admission.PinKey]machineState{}}
	for _, state := range States {
		v.counts[state] = 0
	}
	return v
}

// add takes a verdict of Judge.
func (v *offerView) add(one admission.PinVerdict) {
	if state := string(one.State); one.Frozen {
		v.counts[Frozen]++
	} else {
		v.counts[state]++
	}
	if m := machineStateOf(&one); m != (machineState{}) {
		v.verdicts[one.Key], v.states[one.Key] = one, m
	}
}

// addGone adds the pins that the server does not offer and that a machine has retired or put on trial.
func (v *offerView) addGone(pins *admission.ServerPins) {
	for k, p := range pins.Pins {
		if _, offered := v.states[k]; offered || p.Gone.IsZero() {
			continue
		}
		one := admission.PinVerdict{Key: k, State: p.State, Pin: p}
		if m := machineStateOf(&one); m != (machineState{}) {
			if p.State == switchboard.LifeRetired {
				one.Why = "its server has not offered it for 30 days"
			}
			v.verdicts[k], v.states[k] = one, m
		}
	}
}

// A reportedStates is what the last report of a server has left: the states that are not zero. It is in the store, so that one of all replicas writes each report.
type reportedStates struct {
	At     time.Time                         `json:"at"` // of the report
	States map[admission.PinKey]machineState `json:"states,omitempty"`
}

// A changeBook collects the changes of definitions, and reports them: at most once in reportInterval for each server, however often its definitions change. It is safe for
// concurrent use.
type changeBook struct {
	store  Store
	count  func(id switchboard.ServerID, state, class string)
	report func(*ChangeReport) // nil: there are no reports
	log    *slog.Logger
	wake   chan struct{} // something is due at another time than before

	failing atomic.Bool // the last request to the store has failed

	mu      sync.Mutex
	servers map[switchboard.ServerID]*changesOfServer
}

// changesOfServer are the changes of one server.
type changesOfServer struct {
	counts  map[string]int                    // of the offered definitions, by their state; nil if there was no offer
	states  map[admission.PinKey]machineState // as this replica sees them now
	pending map[admission.PinKey]pendingChange
	since   time.Time // the first of pending
	extra   int       // changes of definitions that pending has no room for
	due     time.Time // the next report; zero if nothing is pending
	last    time.Time // the last report
}

// A pendingChange is what has happened to one definition since the last report.
type pendingChange struct {
	from    machineState // before the first change
	newest  *StateChange // nil: people alone have changed the state
	changes int
	at      time.Time
	own     bool // this process has let the definition in, and so no other one reports that
}

func newChangeBook(o *Options) *changeBook {
	b := &changeBook{store: o.Store, count: o.Count, report: o.Report, log: o.Log, wake: make(chan struct{}, 1), servers: map[switchboard.ServerID]*changesOfServer{}}
	if b.count == nil {
		b.count = func(switchboard.ServerID, string, string) {}
	}
	return b
}

// server returns the changes of a server. The caller holds b.mu.
func (b *changeBook) server(id switchboard.ServerID) *changesOfServer {
	s := b.servers[id]
	if s == nil {
		s = &changesOfServer{states: map[admission.PinKey]machineState{}, pending: map[admission.PinKey]pendingChange{}}
		b.servers[id] = s
	}
	return s
}

// read reads what is reported already, so that a restart reports no change again.
func (b *changeBook) read(ctx context.Context) error {
	all, err := b.store.List(ctx, groupReported)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range all {
		var r reportedStates
		if err := unpack(v.Data, &r); err != nil {
			b.log.Warn("which changes of the definitions of a server have receipts cannot be read; some may get one more", "server", v.Name, "err", err)
			continue
		}
		s := b.server(switchboard.ServerID(v.Name))
		s.last = r.At
		if r.States != nil {
			s.states = r.States
		}
	}
	return nil
}

// observe takes what Judge says of an offer. before are the pins that it was judged by, and pins those that it has led to, which this process has written.
func (b *changeBook) observe(o *switchboard.Offer, before, pins *admission.ServerPins, view *offerView) {
	view.addGone(pins)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.server(o.Server)
	if pins != before {
		for k, p := range pins.Pins {
			if _, known := before.Pins[k]; !known && p.State == switchboard.LifeActive && p.Digest != "" && p.By == "" {
				b.add(o.Server, s, k, pendingChange{newest: &StateChange{Key: k, State: string(p.State), Admitted: p.Digest, Why: "it is let in at first sight"}, own: true})
			}
		}
	}
	for k, m := range view.states {
		if was := s.states[k]; was != m {
			v := view.verdicts[k]
			c := &StateChange{Key: k, State: m.State, Admitted: m.Admitted, Offered: m.Offered, Why: v.Why}
			if v.Other != nil && m.Offered != "" && m.State != string(switchboard.LifeNew) {
				c.Class = v.Other.Class.String()
			}
			b.add(o.Server, s, k, pendingChange{from: was, newest: c})
		}
	}
	for k, was := range s.states {
		if _, is := view.states[k]; is {
			continue
		}
		if !k.Kind.OfServer() && o.List(listOf(k.Kind)) == nil {
			view.states[k] = was // the list is not known now
			continue
		}
		b.add(o.Server, s, k, pendingChange{from: was, newest: endOf(k, was, pins.Pins[k])})
	}
	s.states, s.counts = view.states, view.counts
}

// listOf returns the list that has definitions of the kind.
func listOf(k switchboard.PinKind) switchboard.Kind {
	switch k {
	case switchboard.PinPrompt:
		return switchboard.Prompts
	case switchboard.PinTemplate:
		return switchboard.Templates
	}
	return switchboard.Tools
}

// endOf returns the change of a definition that has no machineState any more, or nil if a person has ended it.
func endOf(k admission.PinKey, was machineState, p admission.Pin) *StateChange {
	stopped := was.State == Frozen || was.State == string(switchboard.LifeSuspended)
	serves := p.State == switchboard.LifeActive || p.State == switchboard.LifeTesting || p.State == switchboard.LifeDeprecated
	if !stopped || !serves || p.Digest != was.Admitted {
		return nil
	}
	c := &StateChange{Key: k, State: string(p.State), Admitted: p.Digest, Why: "its server offers the admitted definition again"}
	switch {
	case !p.Gone.IsZero():
		c.Why = "its server does not offer it any more"
	case was.Offered == "":
		c.Why = "what its server says about its capabilities is let in"
	}
	return c
}

// add adds a change of a definition. The caller holds b.mu.
func (b *changeBook) add(id switchboard.ServerID, s *changesOfServer, k admission.PinKey, p pendingChange) {
	p.at = time.Now()
	if p.newest != nil {
		p.changes = 1
		b.count(id, p.newest.State, p.newest.Class)
	}
	if b.report != nil {
		b.join(s, k, p)
	}
}

// join adds a later change to those that are pending. The caller holds b.mu.
func (b *changeBook) join(s *changesOfServer, k admission.PinKey, later pendingChange) {
	p, known := s.pending[k]
	switch {
	case !known && len(s.pending) >= maxPending:
		s.extra += later.changes
		return
	case !known:
		p = later
	default:
		p.newest, p.changes, p.at, p.own = cmp.Or(later.newest, p.newest), p.changes+later.changes, later.at, p.own || later.own
	}
	s.pending[k] = p
	if s.due.IsZero() {
		s.since, s.due = p.at, latest(p.at.Add(settleTime), s.last.Add(reportInterval))
		b.send()
	}
}
