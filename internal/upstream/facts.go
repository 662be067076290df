package upstream

import (
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// serverFacts is what is known of a server: its offer, and its state for Status. Use newServerFacts.
type serverFacts struct {
	tried     chan struct{} // closed when the first attempt is over
	triedOnce sync.Once

	mu             sync.Mutex
	state          ServerState
	hello          link.Hello
	attemptBegan   time.Time // when the current attempt began
	offer          *switchboard.Offer
	notes          link.ListNotes
	failure        *Failure
	restarts       int
	failedAttempts int // attempts since it was ready last
	nextAttempt    time.Time
	dropped        int64                 // messages dropped on links that have ended
	stderr         *process.StderrReader // of the last process of the main link; nil means none
}

func newServerFacts() *serverFacts {
	return &serverFacts{tried: make(chan struct{}), state: StateStarting}
}

// inherit takes over what an earlier server with the same program or address has offered.
func (f *serverFacts) inherit(old *serverFacts) {
	old.mu.Lock()
	defer old.mu.Unlock()
	f.restarts = old.restarts
	if old.offer != nil {
		f.offer = staleCopy(old.offer)
	}
}

// staleCopy returns the offer, marked as stale.
func staleCopy(o *switchboard.Offer) *switchboard.Offer {
	stale := *o
	stale.Stale = true
	return &stale
}

// recordAttempt records that an attempt to connect begins.
func (f *serverFacts) recordAttempt(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attemptBegan, f.nextAttempt = now, time.Time{}
}

// endFirstAttempt records that the first attempt is over, and reports whether that is new.
func (f *serverFacts) endFirstAttempt() (ended bool) {
	f.triedOnce.Do(func() { close(f.tried); ended = true })
	return ended
}

// starting reports whether the first attempt is still running.
func (f *serverFacts) starting() bool {
	select {
	case <-f.tried:
		return false
	default:
		return true
	}
}

// awaitsOffer reports whether the server is starting without a known offer.
func (f *serverFacts) awaitsOffer() bool {
	if !f.starting() {
		return false
	}
	offer, _ := f.current()
	return offer == nil
}

// current returns the last offer, or nil, and its notes.
func (f *serverFacts) current() (*switchboard.Offer, link.ListNotes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offer, f.notes
}

// ready reports whether the server is ready, and otherwise the failure, which may be nil.
func (f *serverFacts) ready() (bool, *Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == StateReady, f.failure
}

// needsConnection reports whether a person has to connect the server first.
func (f *serverFacts) needsConnection() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == StateNeedsConnection
}

// publish records a new offer of the server, which is ready. changed says that the offer was unknown
// or stale, or differs from the last one; other says that it differs.
func (f *serverFacts) publish(offer *switchboard.Offer, notes link.ListNotes, h *link.Hello) (changed, other bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	other = f.offer != nil && !link.SameOffer(f.offer, offer)
	changed = f.offer == nil || f.offer.Stale || other
	if changed {
		f.offer = offer
	}
	if f.state == StateRetrying && f.hello.Version != "" {
		f.restarts++
	}
	f.state, f.hello, f.notes, f.failure, f.failedAttempts, f.nextAttempt = StateReady, *h, notes, nil, 0, time.Time{}
	return changed, other
}

// restore sets an offer that is valid until the server answers.
func (f *serverFacts) restore(o *switchboard.Offer) { f.offer = staleCopy(o) }

// recordFailure records why, with the time of the first failure and the last lines of stderr. It keeps
// the last offer and marks it as stale. repeated says that the last failure was the same; changed says
// that the offer was not stale before.
func (f *serverFacts) recordFailure(why Failure) (repeated, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	repeated = f.failure != nil && f.failure.Stage == why.Stage && f.failure.Message == why.Message
	why.Since = time.Now()
	if f.failure != nil {
		why.Since = f.failure.Since
	}
	why.Stderr = f.stderr.LastLines()
	f.failure = &why
	changed = f.offer != nil && !f.offer.Stale
	if changed {
		f.offer = staleCopy(f.offer)
	}
	return repeated, changed
}

// recordDown records that the server is away, and that the next attempt comes after wait. It returns
// the last failure.
func (f *serverFacts) recordDown(stage FailureStage, wait time.Duration) *Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.nextAttempt, f.attemptBegan = StateRetrying, time.Now().Add(wait), time.Time{}
	if f.failure.NeedsConnection {
		f.state, f.nextAttempt = StateNeedsConnection, time.Time{} // a person decides when
	}
	if stage != StageServe {
		f.failedAttempts++
	}
	return f.failure
}

// setStderr stores the stderr of the main link's process; nil means none.
func (f *serverFacts) setStderr(s *process.StderrReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stderr = s
}

// addDropped counts the dropped messages of a link that has ended.
func (f *serverFacts) addDropped(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped += n
}

// status returns the status of the server, as far as it is known here. slow is when a start counts as
// slow.
func (f *serverFacts) status(slow time.Duration) (st ServerStatus, slowStart *Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st = ServerStatus{
		State: f.state, Version: f.hello.Version, Name: f.hello.Name, Release: f.hello.Release,
		Note: f.notes.String(), LastFailure: f.failure, Restarts: f.restarts, Failed: f.failedAttempts, NextAttempt: f.nextAttempt,
		Dropped: f.dropped,
	}
	if f.offer != nil {
		st.Tools, st.Stale = len(f.offer.Tools), f.offer.Stale
		st.Resources, st.Prompts = len(f.offer.Resources)+len(f.offer.Templates), len(f.offer.Prompts)
	}
	if age := time.Since(f.attemptBegan); f.failure == nil && f.state == StateStarting && !f.attemptBegan.IsZero() && age > slow {
		slowStart = &Failure{Stage: StageConnect, Since: f.attemptBegan, Stderr: f.stderr.LastLines()}
	}
	return st, slowStart
}
