// Package archive stores the texts that receipts refer to by their digest, each once: decisions,
// and the inputs that they were made from.
//
// It decides when a text is written, and how long it is kept. No caller waits for it. If the store
// does not take a text, the archive tries again for a while, and the texts behind it wait. A text
// that the store does not take in that time, or that finds the queue full, is missing and counted
// as lost, and decisions that refer to it cannot be replayed.
package archive

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Reader reads archives. A store.Store is one.
type Reader interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
}

// A Store stores archives. A store.Store is one.
type Store interface {
	Reader
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// ErrNotArchived says that the archive has no text with that digest: the text has expired, or it was
// never written.
var ErrNotArchived = errors.New("it is not archived: it has expired, or could not be written")

// Bounds.
const (
	maxText  = 1 << 30 // bytes of a text, unpacked
	maxKnown = 1 << 16 // texts with a remembered time of writing

	// rewriteInterval: a text that is still referred to is written again after a day, which moves its
	// expiry.
	rewriteInterval = 24 * time.Hour

	writeTimeout   = 5 * time.Second  // for one attempt to write a text
	retryInterval  = 5 * time.Second  // between two attempts
	retryPeriod    = 10 * time.Minute // from the first attempt to the last one, so that a text that the store never takes does not block the others
	logInterval    = time.Minute      // between two log lines on the same failure
	maxQueue       = 4096             // texts in the queue
	maxQueuedBytes = 16 << 20         // the sum of their Holds
)

// A Text is a text to be archived.
type Text struct {
	Digest switchboard.Digest
	Data   func() []byte // returns the text; it is called soon if the text has to be written
	Holds  int           // bytes that Data keeps in memory until then
}

// TextOf returns the Text of bytes that are in memory already.
func TextOf(data []byte) Text {
	return Text{canonical.Sum(data), func() []byte { return data }, len(data)}
}

// Status is the status of archiving.
type Status struct {
	Written int    `json:"written"`
	Lost    int    `json:"lost"`            // texts that could not be written, or not soon enough
	Fault   string `json:"fault,omitempty"` // why the store does not take a text that waits; "" if none waits
}

// An Archive writes texts. Use New. A nil Archive ignores them. It is safe for concurrent use.
type Archive struct {
	store     Store
	retention time.Duration
	log       *slog.Logger
	closing   chan struct{} // closed by Close: nothing is tried again
	done      chan struct{}

	mu          sync.Mutex
	queue       chan Text // nil once closed
	queuedBytes int
	queued      uint64        // texts that were ever queued
	ended       uint64        // those of them that were written, or lost
	oneEnded    chan struct{} // closed when ended grows, or the store does not take a text; nil while nothing waits for that
	writtenAt   map[switchboard.Digest]time.Time
	status      Status
	loggedAt    time.Time
}

// New returns an Archive that keeps each text until keep and one day have passed since its last
// Put. A nil log means none.
func New(st Store, keep time.Duration, log *slog.Logger) *Archive {
	a := &Archive{
		store: st, retention: keep + rewriteInterval, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		closing: make(chan struct{}), done: make(chan struct{}), queue: make(chan Text, maxQueue), writtenAt: map[switchboard.Digest]time.Time{},
	}
	go a.writeQueued(a.queue)
	return a
}

// Put queues the texts that were not written in the last day. It does not wait.
func (a *Archive) Put(texts ...Text) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range texts {
		if a.queue == nil || time.Since(a.writtenAt[t.Digest]) < rewriteInterval {
			continue
		}
		if a.queuedBytes+t.Holds > maxQueuedBytes {
			a.countLost("the queue is full", nil)
			continue
		}
		select {
		case a.queue <- t:
			a.queuedBytes += t.Holds
			a.queued++
			a.markWritten(t.Digest)
		default:
			a.countLost("the queue is full", nil)
		}
	}
}

// markWritten notes that a text is written, or will be. The caller holds a.mu.
func (a *Archive) markWritten(d switchboard.Digest) {
	if len(a.writtenAt) >= maxKnown {
		maps.DeleteFunc(a.writtenAt, func(_ switchboard.Digest, when time.Time) bool { return time.Since(when) > rewriteInterval })
		if len(a.writtenAt) >= maxKnown {
			clear(a.writtenAt)
		}
	}
	a.writtenAt[d] = time.Now()
}

// countLost counts a text that is not written, and logs it. The caller holds a.mu.
func (a *Archive) countLost(why string, err error) {
	a.status.Lost++
	a.logFault("inputs of decisions are not archived, and these decisions cannot be replayed", "why", why, "err", err, "lost", a.status.Lost)
}

// logFault logs a fault, unless it has logged one a short time ago. The caller holds a.mu.
func (a *Archive) logFault(text string, args ...any) {
	if time.Since(a.loggedAt) > logInterval {
		a.loggedAt = time.Now()
		a.log.Warn(text, args...)
	}
}

func (a *Archive) writeQueued(queue <-chan Text) {
	defer close(a.done)
	for t := range queue {
		err := a.writeText(t)
		a.mu.Lock()
		a.queuedBytes -= t.Holds
		if err == nil {
			a.status.Written++
			a.status.Fault = ""
		} else {
			delete(a.writtenAt, t.Digest) // so that the next Put writes it
			a.countLost("the store does not take it", err)
			if len(queue) == 0 {
				a.status.Fault = "" // no text waits
			}
		}
		a.ended++
		a.wakeSettlers()
		a.mu.Unlock()
	}
}

// wakeSettlers wakes the callers of Settle. The caller holds a.mu.
func (a *Archive) wakeSettlers() {
	if a.oneEnded != nil {
		close(a.oneEnded)
		a.oneEnded = nil
	}
}

// writeText writes a text, and tries again until the store takes it. It gives up after retryPeriod, when the archive is
// closed, and if the store calls the text invalid.
func (a *Archive) writeText(t Text) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(t.Data()); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	k := textKey(t.Digest)
	change := store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: store.Any, Data: b.Bytes(), TTL: a.retention}}}
	for first := time.Now(); ; {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		_, err := a.store.Apply(ctx, change)
		cancel()
		if err == nil || errors.Is(err, store.ErrInvalid) || time.Since(first) >= retryPeriod {
			return err
		}
		a.noteFault(err)
		select {
		case <-time.After(retryInterval):
		case <-a.closing:
			return err
		}
	}
}

// noteFault notes that the store does not take a text now.
func (a *Archive) noteFault(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Fault = err.Error()
	a.logFault("inputs of decisions cannot be archived now; they wait in memory, and Switchboard tries again", "err", err)
	a.wakeSettlers()
}

// Settle waits until the texts that were put before are written, or lost. It does not wait longer than until ctx ends, for
// writeTimeout, or until the store does not take a text.
func (a *Archive) Settle(ctx context.Context) {
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	for before := a.queued; a.ended < before && a.status.Fault == "" && ctx.Err() == nil; {
		if a.oneEnded == nil {
			a.oneEnded = make(chan struct{})
		}
		ended := a.oneEnded
		a.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
}

// Status returns the present status.
func (a *Archive) Status() Status {
	if a == nil {
		return Status{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Close writes the queued texts, unless the store takes too long. It tries each of them once.
func (a *Archive) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	if a.queue != nil {
		close(a.queue)
		close(a.closing)
		a.queue = nil
	}
	a.mu.Unlock()
	select {
	case <-a.done:
	case <-time.After(writeTimeout):
	}
}

// GroupPrefix is the prefix of the groups that hold texts.
const GroupPrefix = "archive/"

func textKey(d switchboard.Digest) store.Key {
	return store.Key{Group: GroupPrefix + string(d), Name: "text"}
}

// Read returns the text with that digest.
func Read(ctx context.Context, st Reader, d switchboard.Digest) ([]byte, error) {
	v, err := st.Value(ctx, textKey(d))
	if err != nil {
		return nil, err
	}
	if v.Version == 0 {
		return nil, ErrNotArchived
	}
	z, err := gzip.NewReader(bytes.NewReader(v.Data))
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", d, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxText))
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", d, err)
	}
	if canonical.Sum(text) != d {
		return nil, fmt.Errorf("archive %s: it holds another text", d)
	}
	return text, nil
}
