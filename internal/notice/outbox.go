package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store keeps notices. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// Options describe an Outbox.
type Options struct {
	Store Store

	// Count, if not nil, counts for a recipient how attempts to deliver end (Delivered, Failed), and the notices that are given up (GivenUp).
	Count func(recipient, outcome string)

	// Transport, if not nil, sends the requests. It is for tests.
	Transport http.RoundTripper

	Log *slog.Logger
}

// The outcomes that Options.Count gets.
const (
	Delivered = "delivered"
	Failed    = "failed"
	GivenUp   = "given_up"
)

// An Outbox keeps notices until they are delivered. Use New. It is safe for concurrent use.
type Outbox struct {
	o       Options
	client  *http.Client
	known   atomic.Pointer[[]switchboard.Recipient]
	changed chan struct{} // of capacity one: known has changed
	told    chan Notice   // for Run to put

	mu    sync.Mutex
	boxes map[string]*mailbox // by recipient
}

// New returns an Outbox for the recipients. It does not use the store yet.
func New(o Options, recipients []switchboard.Recipient) *Outbox {
	b := &Outbox{o: o, client: newClient(o.Transport), changed: make(chan struct{}, 1), told: make(chan Notice, maxTold), boxes: map[string]*mailbox{}}
	b.Set(recipients)
	return b
}

// Set replaces the recipients. Notices that wait for one keep waiting if it is still there. One with another address or secret is tried at once.
func (o *Outbox) Set(recipients []switchboard.Recipient) {
	was := o.known.Swap(&recipients)
	for _, r := range recipients {
		if was == nil || !slices.ContainsFunc(*was, func(old switchboard.Recipient) bool {
			return old.Name == r.Name && (!old.URL.Equal(r.URL) || !old.Secret.Equal(r.Secret))
		}) {
			continue
		}
		select {
		case o.box(r.Name).mended <- struct{}{}:
		default:
		}
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Put logs the notice, and keeps it durably for each of its recipients. After an error, some of several recipients may be told all the
// same. Without recipients, Put only logs. The error wraps errUnknown if To has an unknown name, and ErrPartly if only full mailboxes are the reason.
func (o *Outbox) Put(ctx context.Context, n Notice) error {
	to, err := n.recipientsOf(*o.known.Load())
	if err != nil {
		return err
	}
	n.log(o.o.Log, to)
	if len(to) == 0 {
		return nil
	}
	id, body, err := n.encode(time.Now())
	if err != nil {
		return err
	}
	failed := make([]error, len(to))
	var writing sync.WaitGroup
	for i, name := range to {
		writing.Go(func() {
			failed[i] = o.box(name).put(ctx, letter{ID: id, Tenant: n.Tenant, At: time.Now().UTC(), Body: body})
		})
	}
	writing.Wait()
	var first error
	full := 0
	for i, err := range failed {
		if err == nil {
			continue
		}
		o.o.Log.Warn("a notice is not kept, and its recipient is not told", "to", to[i], "type", n.Type, "err", err)
		if errors.Is(err, errFull) {
			full++
		}
		if first == nil || errors.Is(first, errFull) {
			first = fmt.Errorf("the notice for %s is not kept: %w", to[i], err)
		}
	}
	if full < len(to) && errors.Is(first, errFull) {
		return fmt.Errorf("%w: %w", ErrPartly, first)
	}
	return first
}

const (
	maxTold      = 1024 // notices that wait for Run
	tellTimeout  = 2 * writeTimeout
	drainTimeout = 5 * time.Second // for all that wait when Run stops
)

// Tell is Put for those who must not wait, and for notices that nothing depends on. Run puts the notice soon, also if it is just stopping. If the process
// is killed before that, or the store is too slow for a stop, its recipients are not told.
func (o *Outbox) Tell(n Notice) {
	select {
	case o.told <- n:
	default:
		n.log(o.o.Log, nil)
		o.o.Log.Warn("too many notices are being written, and nobody is told", "type", n.Type, "tenant", n.Tenant)
	}
}

// putTold puts what others tell, until ctx is done and nothing is left, or not much later.
func (o *Outbox) putTold(ctx context.Context) {
	all, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTimeout, end) })()
	lost := 0
	defer func() {
		if lost > 0 {
			o.o.Log.Warn("Switchboard stops before these notices are kept, and their recipients are not told", "notices", lost)
		}
	}()
	for {
		var n Notice
		select {
		case n = <-o.told:
		default:
			select {
			case n = <-o.told:
			case <-ctx.Done():
				return
			}
		}
		if all.Err() != nil {
			n.log(o.o.Log, nil)
			lost++
			continue
		}
		own, cancel := context.WithTimeout(all, tellTimeout)
		_ = o.Put(own, n) // it is in the log
		cancel()
	}
}

// box returns the mailbox of a recipient.
func (o *Outbox) box(name string) *mailbox {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.boxes[name]
	if b == nil {
		b = newMailbox(o, name)
		o.boxes[name] = b
	}
	return b
}

// find returns the recipient of a name as the configuration has it now.
func (o *Outbox) find(name string) (switchboard.Recipient, bool) {
	all := *o.known.Load()
	i := slices.IndexFunc(all, func(r switchboard.Recipient) bool { return r.Name == name })
	if i < 0 {
		return switchboard.Recipient{}, false
	}
	return all[i], true
}

// Run delivers notices until ctx is done.
func (o *Outbox) Run(ctx context.Context) {
	var carriers sync.WaitGroup
	defer carriers.Wait()
	carriers.Go(func() { o.putTold(ctx) })
	running := map[string]context.CancelFunc{}
	for {
		for _, r := range *o.known.Load() {
			if running[r.Name] == nil {
				own, cancel := context.WithCancel(ctx)
				running[r.Name] = cancel
				carriers.Go(func() { o.box(r.Name).run(own) })
			}
		}
		for name, cancel := range running {
			if _, ok := o.find(name); !ok {
				cancel()
				delete(running, name)
			}
		}
		select {
		case <-ctx.Done():
			for _, cancel := range running {
				cancel()
			}
			return
		case <-o.changed:
		}
	}
}

// A Backlog describes the mailbox of a recipient, as this process knows it.
type Backlog struct {
	Recipient string    `json:"recipient"`
	Notices   int       `json:"notices"`         // that wait
	Fault     string    `json:"fault,omitempty"` // why the last attempt of this process failed
	Since     time.Time `json:"since,omitzero"`  // when attempts began to fail
	Next      time.Time `json:"next,omitzero"`   // the next attempt
}

// Undelivered reports whether notices wait for the recipient because attempts fail. A fault alone may be old: another process may have delivered since.
func (b *Backlog) Undelivered() bool { return b.Notices > 0 && b.Fault != "" }

// String says how many notices wait, and why.
func (b *Backlog) String() string {
	text := fmt.Sprintf("%d wait", b.Notices)
	if b.Fault == "" {
		return text
	}
	text += "; the last attempt failed: " + b.Fault
	if b.Notices > 0 && !b.Next.IsZero() {
		text += "; next at " + b.Next.UTC().Format(time.RFC3339)
	}
	return text
}

// Backlogs returns the mailboxes of all recipients, sorted by name. It does not use the store.
func (o *Outbox) Backlogs() []Backlog {
	o.mu.Lock()
	boxes := maps.Clone(o.boxes)
	o.mu.Unlock()
	all := []Backlog{}
	for _, r := range *o.known.Load() {
		w := Backlog{Recipient: r.Name}
		if b := boxes[r.Name]; b != nil {
			w = b.backlog()
		}
		all = append(all, w)
	}
	return all
}
