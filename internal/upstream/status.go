package upstream

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

// A ServerState is the state of a server's main connection.
type ServerState string

// The states.
const (
	StateStarting ServerState = "starting" // has neither answered nor failed yet
	StateReady    ServerState = "ready"
	StateRetrying ServerState = "retrying" // has failed, and is tried again

	// StateNeedsConnection is for a server that demands a token: a person has to sign in at its provider first.
	StateNeedsConnection ServerState = "needs_connection"
)

// A FailureStage says what was being done when a server failed.
type FailureStage string

// The stages.
const (
	StageConnect FailureStage = "connect" // starting its process or reaching it, and the handshake
	StageList    FailureStage = "list"    // listing its offer
	StageServe   FailureStage = "serve"   // after it was ready
)

// A Failure says what is wrong with a server. It holds no secret.
type Failure struct {
	Stage   FailureStage `json:"stage"`
	Message string       `json:"message,omitempty"`
	Since   time.Time    `json:"since"` // when the failure was first seen

	// Gone says that no program is there: the process has ended, or the port refuses connections.
	Gone bool `json:"-"`

	// NeedsConnection says that the server demands a token, and that a person has to sign in at its provider first.
	NeedsConnection bool `json:"needs_connection,omitempty"`

	// Remedy tells operators what to do: which program to install, for example. "" means that none
	// is known. It must not be shown to clients.
	Remedy string `json:"remedy,omitempty"`

	// Stderr are the last lines of the server's stderr, masked and escaped. They are for operators
	// and must not be shown to clients.
	Stderr []string `json:"stderr,omitempty"`
}

// A ServerStatus is the status of one server.
type ServerStatus struct {
	ID        switchboard.ServerID  `json:"id"`
	Transport switchboard.Transport `json:"transport"`
	State     ServerState           `json:"state"`

	// Era is "" until it is known. Version is the protocol version in use.
	Era     link.Era `json:"era,omitempty"`
	Version string   `json:"protocol,omitempty"`

	// SSE says that a server over HTTP uses HTTP with SSE, the transport of 2024-11-05, with any
	// protocol version.
	SSE bool `json:"sse,omitempty"`

	// Name and Release are the server's name and version of its software. They are never used for
	// identity.
	Name    string `json:"name,omitempty"`
	Release string `json:"release,omitempty"`

	Tools int `json:"tools"` // number in its last list

	// Resources (with templates) and Prompts are the numbers in its other lists.
	Resources int `json:"resources,omitempty"`
	Prompts   int `json:"prompts,omitempty"`

	Stale bool   `json:"stale,omitempty"` // the server is away, and the lists are its last ones
	Note  string `json:"note,omitempty"`  // what was left out of the lists, and why

	// LastFailure is nil if nothing is wrong. It also says so if a server takes long to start.
	LastFailure *Failure  `json:"last_failure,omitempty"`
	Restarts    int       `json:"restarts"`              // how often it became ready again
	Failed      int       `json:"failed_attempts"`       // to start or reach it, since it was ready last
	NextAttempt time.Time `json:"next_attempt,omitzero"` // zero if none is planned

	Connections int   `json:"connections"`    // processes or sessions
	PIDs        []int `json:"pids,omitempty"` // of its processes, sorted
	// Walls are those around each of its processes, as the guards report them.
	Walls []wall.InEffect `json:"walls,omitempty"`

	InFlight int   `json:"in_flight"`         // calls in flight or waiting
	Waiting  int   `json:"waiting,omitempty"` // calls that wait for a slot
	Dropped  int64 `json:"dropped"`           // messages that matched nothing
}

// slowStartTime is when Status reports a start as slow. Half of the start deadline counts instead
// if that is shorter.
const slowStartTime = 5 * time.Second

// Status returns the status of each server of the last Set, sorted by id.
func (f *Fleet) Status() []ServerStatus {
	servers := f.sortedServers()
	list := make([]ServerStatus, 0, len(servers))
	for _, s := range servers {
		list = append(list, s.status())
	}
	return list
}

func (s *server) status() ServerStatus {
	cfg := s.config()
	slow := min(s.opts.StartDeadline/2, slowStartTime)
	st, slowStart := s.facts.status(slow)
	if slowStart != nil {
		age := time.Since(slowStart.Since)
		slowStart.Message = fmt.Sprintf("it was started %s ago and has not answered yet", age.Round(100*time.Millisecond))
		slowStart.Remedy = s.opener.Mask.Text(process.SlowStartRemedy(cfg.Command))
		st.LastFailure = slowStart
	}
	st.ID, st.Transport = s.id, cfg.Transport
	st.Era, _ = s.opener.Era.Get()
	st.SSE = s.opener.Era.UsesSSE()
	st.InFlight, st.Waiting = s.calls.Size(), s.gate.Waiting()
	for _, l := range s.connectors.links(nil) {
		st.Connections++
		st.Dropped += l.Dropped()
		if w := l.Walls(); w != nil {
			st.PIDs, st.Walls = append(st.PIDs, w.PID), append(st.Walls, *w)
		}
	}
	slices.Sort(st.PIDs)
	slices.SortFunc(st.Walls, func(a, b wall.InEffect) int { return cmp.Compare(a.PID, b.PID) })
	return st
}
