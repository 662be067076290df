// Package archive keeps the texts that receipts refer to by their digest, each once:
// what was decided, and what from.
//
// It decides when a text is written, and for how long it is kept. Nobody waits for
// it: where the store takes nothing, or not soon enough, a text is missing, is counted, and
// what refers to it cannot be replayed.
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

// A Store keeps archives. A store.Store is one.
type Store interface {
	Reader
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// ErrNone says that there is no text of the digest, or none any more.
var ErrNone = errors.New("it is not archived any more")

// Bounds.
const (
	maxText  = 1 << 30 // bytes of a text, unpacked
	maxKnown = 1 << 16 // texts of which is remembered when they were written

	// again is after what time a text that is still referred to is written again, which
	// is how it is kept for longer.
	again = 24 * time.Hour

	patience  = 5 * time.Second // with the store, for one text
	hush      = time.Minute     // between two words in the log on the same trouble
	maxQueue  = 4096            // texts that wait
	queueSize = 16 << 20        // bytes that they say that they hold
)

// A Text is one that is archived.
type Text struct {
	Digest switchboard.Digest
	Data   func() []byte // the text; called, soon, where it is not there yet
	Holds  int           // bytes that are kept in memory for Data until then
}

// Of returns the Text of what is in memory anyway.
func Of(data []byte) Text {
	return Text{canonical.Sum(data), func() []byte { return data }, len(data)}
}

// Status says how archiving goes.
type Status struct {
	Written int    `json:"written"`
	Lost    int    `json:"lost"`            // what could not be written, or not soon enough
	Fault   string `json:"fault,omitempty"` // why nothing can be written now
}

// An Archive writes texts. Use New. A nil Archive takes nothing. It is safe for
// concurrent use.
type Archive struct {
	store Store
	keep  time.Duration
	log   *slog.Logger
	done  chan struct{}

	mu     sync.Mutex
	queue  chan Text // nil once closed
	held   int
	known  map[switchboard.Digest]time.Time
	status Status
	spoken time.Time
}

// New returns an Archive that keeps texts for so long after they were last put, and a
// day more. A nil log means none.
func New(st Store, keep time.Duration, log *slog.Logger) *Archive {
	a := &Archive{
		store: st, keep: keep + again, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		done: make(chan struct{}), queue: make(chan Text, maxQueue), known: map[switchboard.Digest]time.Time{},
	}
	go a.run(a.queue)
	return a
}

// Put has the texts written, those that were not lately. It does not wait.
func (a *Archive) Put(texts ...Text) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range texts {
		if a.queue == nil || time.Since(a.known[t.Digest]) < again {
			continue
		}
		if a.held+t.Holds > queueSize {
			a.lost("more is decided than is written", nil)
			continue
		}
		select {
		case a.queue <- t:
			a.held += t.Holds
			a.remember(t.Digest)
		default:
			a.lost("more is decided than is written", nil)
		}
	}
}

// remember notes that a text is there, or will be. The caller holds a.mu.
func (a *Archive) remember(d switchboard.Digest) {
	if len(a.known) >= maxKnown {
		maps.DeleteFunc(a.known, func(_ switchboard.Digest, when time.Time) bool { return time.Since(when) > again })
		if len(a.known) >= maxKnown {
			clear(a.known)
		}
	}
	a.known[d] = time.Now()
}

// lost counts a text that is not written, and says so. The caller holds a.mu.
func (a *Archive) lost(why string, err error) {
	a.status.Lost++
	if err != nil {
		a.status.Fault = err.Error()
	}
	if time.Since(a.spoken) > hush {
		a.spoken = time.Now()
		a.log.Warn("what was decided from is not archived, and cannot be replayed", "why", why, "err", err, "lost", a.status.Lost)
	}
}

func (a *Archive) run(queue <-chan Text) {
	defer close(a.done)
	for t := range queue {
		err := a.write(t)
		a.mu.Lock()
		a.held -= t.Holds
		if err == nil {
			a.status.Written++
			a.status.Fault = ""
		} else {
			delete(a.known, t.Digest) // the next time
			a.lost("the store does not take it", err)
		}
		a.mu.Unlock()
	}
}

func (a *Archive) write(t Text) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(t.Data()); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	k := key(t.Digest)
	_, err := a.store.Apply(ctx, store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: store.Any, Data: b.Bytes(), TTL: a.keep}}})
	return err
}

// Status says how it goes.
func (a *Archive) Status() Status {
	if a == nil {
		return Status{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Close writes what waits, unless the store takes too long.
func (a *Archive) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	if a.queue != nil {
		close(a.queue)
		a.queue = nil
	}
	a.mu.Unlock()
	select {
	case <-a.done:
	case <-time.After(patience):
	}
}

// Groups begins the names of the groups in which texts stand.
const Groups = "archive/"

func key(d switchboard.Digest) store.Key {
	return store.Key{Group: Groups + string(d), Name: "text"}
}

// Read returns the text of the digest.
func Read(ctx context.Context, st Reader, d switchboard.Digest) ([]byte, error) {
	v, err := st.Value(ctx, key(d))
	if err != nil {
		return nil, err
	}
	if v.Version == 0 {
		return nil, ErrNone
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
		return nil, fmt.Errorf("archive %s: it holds something else", d)
	}
	return text, nil
}
