package upstream

import (
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A State is how a server fares.
type State string

// The states.
const (
	StateStarting State = "starting" // has not answered yet, nor failed
	StateReady    State = "ready"
	StateRetrying State = "retrying" // failed, and is tried again
)

// A Stage is what was being done when a server failed.
type Stage string

// The stages.
const (
	StageConnect Stage = "connect" // start its process or reach it, and agree on a protocol
	StageList    Stage = "list"    // ask for its tools
	StageServe   Stage = "serve"   // after it was ready
)

// A Failure is what is wrong with a server. It holds no secret.
type Failure struct {
	Stage   Stage     `json:"stage"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"` // when the trouble began

	// Gone says that no program is there: the process has ended, or the port refuses connections.
	Gone bool `json:"-"`

	// Remedy tells operators how to mend it: which program to install, say. It is "" where we
	// know no way. No client may see it.
	Remedy string `json:"remedy,omitempty"`

	// Stderr is the last lines that the server's process wrote there, masked and escaped.
	// They are for operators alone: no client may see them.
	Stderr []string `json:"stderr,omitempty"`
}

// A ServerStatus is how one server fares.
type ServerStatus struct {
	ID        switchboard.ServerID  `json:"id"`
	Transport switchboard.Transport `json:"transport"`
	State     State                 `json:"state"`

	// Era is "" until it is known. Version is the protocol's that is spoken.
	Era     Era    `json:"era,omitempty"`
	Version string `json:"protocol,omitempty"`

	// SSE says that a server over HTTP speaks by the transport of 2024-11-05,
	// HTTP with SSE, in whatever version of the protocol.
	SSE bool `json:"sse,omitempty"`

	// Name and Release are what the server calls its software. They are never
	// used for identity.
	Name    string `json:"name,omitempty"`
	Release string `json:"release,omitempty"`

	Tools int `json:"tools"` // that it listed last

	// Resources, with their templates, and Prompts are what else it listed.
	Resources int `json:"resources,omitempty"`
	Prompts   int `json:"prompts,omitempty"`

	Stale bool   `json:"stale,omitempty"` // the lists are its last known word
	Note  string `json:"note,omitempty"`  // what was left out of them, and why

	// LastFailure is nil while all is well. Of a server that should have
	// answered long ago it says so.
	LastFailure *Failure  `json:"last_failure,omitempty"`
	Restarts    int       `json:"restarts"`              // how often it came back
	Failed      int       `json:"failed_attempts"`       // to start or reach it, since it was ready last
	NextAttempt time.Time `json:"next_attempt,omitzero"` // zero while none is planned

	Connections int   `json:"connections"`       // processes, or sessions
	PIDs        []int `json:"pids,omitempty"`    // of its processes, sorted
	InFlight    int   `json:"in_flight"`         // calls under way
	Waiting     int   `json:"waiting,omitempty"` // those of them that wait for a place
	Dropped     int64 `json:"dropped"`           // messages of its that meant nothing
}

// slowStart is how long a server may start before status calls it slow. It is half of the start
// deadline where that is shorter.
const slowStart = 5 * time.Second

// Status returns how each server of the last Set fares, sorted by id.
func (f *Fleet) Status() []ServerStatus {
	servers := f.all()
	list := make([]ServerStatus, 0, len(servers))
	for _, s := range servers {
		list = append(list, s.status())
	}
	return list
}

func (s *server) status() ServerStatus {
	era, _ := s.known.recall()
	sse := s.known.overSSE()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ServerStatus{
		ID: s.id, Transport: s.cfg.Transport, State: s.state,
		Era: era, Version: s.hello.version, SSE: sse, Name: s.hello.name, Release: s.hello.release,
		Note: s.notes.String(), LastFailure: s.failure, Restarts: s.restarts, Failed: s.failed, NextAttempt: s.next,
		InFlight: s.calls.size(), Waiting: s.gate.waiting(), Dropped: s.dropped,
	}
	if s.offer != nil {
		st.Tools, st.Stale = len(s.offer.Tools), s.offer.Stale
		st.Resources, st.Prompts = len(s.offer.Resources)+len(s.offer.Templates), len(s.offer.Prompts)
	}
	slow := min(s.opts.StartDeadline/2, slowStart)
	if age := time.Since(s.began); s.failure == nil && s.state == StateStarting && !s.began.IsZero() && age > slow {
		st.LastFailure = &Failure{
			Stage:   StageConnect,
			Message: fmt.Sprintf("it was started %s ago and has not answered yet", age.Round(100*time.Millisecond)),
			Since:   s.began,
			Remedy:  s.mask.text(waitRemedy(s.cfg.Command)),
			Stderr:  s.says.last(),
		}
	}
	for _, sl := range s.slots {
		sl.mu.Lock()
		l := sl.link
		sl.mu.Unlock()
		if l == nil || l.failure() != nil {
			continue
		}
		st.Connections++
		st.Dropped += l.dropped.Load()
		if p, ok := l.port.(*stdio); ok {
			st.PIDs = append(st.PIDs, p.proc.pid)
		}
	}
	slices.Sort(st.PIDs)
	return st
}
