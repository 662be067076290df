// Package event tells officers' programs that something has changed, so that they need not ask again and again.
//
// Recent keeps the last events of this process and of the other replicas. A reader has a cursor, and nothing else: it reads at its own pace, and a
// slow reader slows no other. If events that a reader has not read are gone, or may have been missed, the reader is told to look at everything again
// (Resync). An event is a hint, and never the only place of a fact.
package event

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The types of events.
const (
	Server        = "server"             // the state of a server has changed
	Configuration = "configuration"      // another configuration is in force, or one was refused
	File          = "file"               // an officer has changed a file of the configuration
	Key           = "key"                // a key was revoked
	Person        = "person"             // a person was blocked, or a block was lifted
	Approval      = "approval"           // a request for approval was made, decided, used or ended
	Proposal      = "proposal"           // a proposal was made, decided, applied or taken back
	Acquisition   = "acquisition"        // a dossier was opened, passed a gate, was stopped or reviewed
	Pin           = "pin"                // a machine has frozen or suspended definitions of a server, or that has ended
	Capability    = "capability_request" // an agent asks for a capability; see CapabilityRequest
	Resync        = "resync"             // events are missing: look at everything again
)

const (
	topic = "events"

	// maxKept is how many events are kept.
	maxKept = 1024

	maxWaiting = 256 // events that wait to be published

	publishRetry = time.Second // until the others are told that events are missing
)

// An Occurrence says that something has changed.
type Occurrence struct {
	Time    time.Time            `json:"time"`
	Type    string               `json:"type"`
	Tenant  switchboard.TenantID `json:"tenant,omitempty"` // that it is about; "" is none
	Server  switchboard.ServerID `json:"server,omitempty"`
	Subject string               `json:"subject,omitempty"` // the state of the server, the path of the file, the digest of the configuration, the digits of the key, the person, the request for approval, the proposal
	By      string               `json:"by,omitempty"`      // the officer
	Replica string               `json:"replica,omitempty"` // where it happened, if not here

	// Request is set if Type is Capability. Readers then get it in place of the whole.
	Request *CapabilityRequest `json:"request,omitempty"`
}

// A CapabilityRequest says that an agent asks for a capability.
type CapabilityRequest struct {
	EventType   string               `json:"event_type"` // Capability
	PrincipalID string               `json:"principal_id"`
	Capability  string               `json:"capability"`
	Reason      string               `json:"reason"` // the agent's words
	Status      string               `json:"status"`
	ID          string               `json:"id"`
	Tenant      switchboard.TenantID `json:"tenant"`
	Task        switchboard.TaskID   `json:"task"`
	At          time.Time            `json:"at"`
}

// Text returns the event as readers get it, in JSON.
func (e *Occurrence) Text() []byte {
	var text []byte
	if e.Request != nil {
		text, _ = json.Marshal(e.Request) // texts and a time can be encoded
	} else {
		text, _ = json.Marshal(e)
	}
	return text
}

// A Store carries events between replicas. See store.Store.
type Store interface {
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// Recent keeps events. Use NewRecent. It is safe for concurrent use.
type Recent struct {
	boot    string // begins the ids of this process
	self    string // this replica; "" if there are no others
	waiting chan Occurrence

	mu     sync.Mutex
	last   uint64 // the number of the last event
	events []Occurrence
	more   chan struct{} // closed when there is another event
}

// NewRecent returns an empty Recent. self names this replica, and is "" if there are no others.
func NewRecent(self string) *Recent {
	var b [6]byte
	rand.Read(b[:])
	return &Recent{boot: hex.EncodeToString(b[:]), self: self, waiting: make(chan Occurrence, maxWaiting), more: make(chan struct{})}
}

// Add adds an event, and makes Share publish it. It never waits.
func (l *Recent) Add(e Occurrence) {
	e.Time = time.Now().UTC()
	l.append(e)
	if l.self == "" {
		return
	}
	e.Replica = l.self
	select {
	case l.waiting <- e:
	default: // the store is slow or away; the others are told so when it is back
	}
}

func (l *Recent) append(e Occurrence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	if len(l.events) == maxKept {
		l.events = append(l.events[:0], l.events[1:]...)
	}
	l.events = append(l.events, e)
	close(l.more)
	l.more = make(chan struct{})
}

// A Numbered is an event with its id.
type Numbered struct {
	ID string
	Occurrence
}

// End returns the id of the last event, to read from there on.
func (l *Recent) End() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id(l.last)
}

func (l *Recent) id(n uint64) string { return l.boot + "-" + strconv.FormatUint(n, 10) }

// Read returns the events after the id, and a channel that is closed when there are more. If events after the id are gone, or the id is not one of this
// process, the only event is a Resync, and reading goes on from now.
func (l *Recent) Read(after string) (events []Numbered, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	boot, number, _ := strings.Cut(after, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	first := l.last - uint64(len(l.events)) + 1 // of those that are kept
	if err != nil || boot != l.boot || n > l.last || n+1 < first {
		return []Numbered{{l.id(l.last), Occurrence{Time: time.Now().UTC(), Type: Resync}}}, l.more
	}
	for i := n + 1; i <= l.last; i++ {
		events = append(events, Numbered{l.id(i), l.events[i-first]})
	}
	return events, l.more
}

// Share publishes the events of this replica, and adds those of the others, until ctx is done. catchUp, if not nil, is called before an event about keys
// or persons is added: readers look at once, and must find here what has happened elsewhere.
func (l *Recent) Share(ctx context.Context, s Store, catchUp func(ctx context.Context)) {
	if l.self == "" {
		return
	}
	heard := make(chan Occurrence, maxKept)
	defer s.Subscribe(topic, func(data []byte) {
		var e Occurrence
		if data == nil || json.Unmarshal(data, &e) != nil {
			e = Occurrence{Time: time.Now().UTC(), Type: Resync}
		}
		if e.Replica == l.self {
			return
		}
		select {
		case heard <- e:
		case <-ctx.Done():
		}
	})()
	var adding sync.WaitGroup
	adding.Go(func() { l.addHeard(ctx, heard, catchUp) })
	defer adding.Wait()
	missing := false           // the others miss events, and do not know it
	var again <-chan time.Time // when to tell them
	for {
		e := Occurrence{Time: time.Now().UTC(), Type: Resync, Replica: l.self}
		select {
		case <-ctx.Done():
			return
		case one := <-l.waiting:
			missing = missing || len(l.waiting) >= maxWaiting-1 // others may not have fitted
			if !missing {
				e = one
			}
		case <-again:
		}
		text, _ := json.Marshal(e) // texts and a time can be encoded
		missing, again = s.Publish(ctx, topic, text) != nil, nil
		if missing {
			again = time.After(publishRetry)
		}
	}
}

// addHeard adds the events of other replicas until ctx is done. One catch-up is enough for all that have been heard.
func (l *Recent) addHeard(ctx context.Context, heard <-chan Occurrence, catchUp func(ctx context.Context)) {
	for {
		var all []Occurrence
		select {
		case e := <-heard:
			all = append(all, e)
		case <-ctx.Done():
			return
		}
		for range len(heard) {
			all = append(all, <-heard)
		}
		if catchUp != nil && slices.ContainsFunc(all, func(e Occurrence) bool { return e.Type == Key || e.Type == Person || e.Type == Resync }) {
			catchUp(ctx)
		}
		for _, e := range all {
			l.append(e)
		}
	}
}
