package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of a mailbox.
const (
	maxLetters = 1024
	maxBytes   = 1 << 20

	maxAge = 24 * time.Hour // then a notice is given up

	// keptFor is longer than maxAge, so that a notice that is given up is still there to be logged.
	keptFor = maxAge + 2*time.Hour

	maxSubmissions = 256 // that wait to be written, of one process
	maxBatch       = store.MaxWrites - 1

	writeTimeout = 5 * time.Second
	maxConflicts = 20 // of one batch; each means that another process has written
)

// The names in the group of a mailbox.
const (
	stateName    = "state"
	ownerName    = "owner" // the lease of the replica that empties it
	letterPrefix = "n/"
)

// groupOf returns the group of the mailbox in the store. It is also the topic on which a replica says that it has put something in.
func groupOf(recipient string) string { return "notices/" + recipient }

// A letter is a notice in the mailbox of one recipient, as it is stored.
type letter struct {
	ID     string               `json:"id"`
	Tenant switchboard.TenantID `json:"tenant"`
	At     time.Time            `json:"at"`
	Body   json.RawMessage      `json:"body"`
}

// A mailboxState says what is in a mailbox. Each change of the mailbox replaces it by compare-and-set, so it is exact, except that letters
// that have expired still count until recount.
type mailboxState struct {
	Last   uint64                         `json:"last"` // the number of the last letter
	Counts map[switchboard.TenantID]share `json:"counts,omitempty"`
}

// A share is what one tenant has in a mailbox.
type share struct {
	Letters int `json:"letters"`
	Bytes   int `json:"bytes"`
}

// total returns the sum of all shares.
func (s *mailboxState) total() (all share) {
	for _, c := range s.Counts {
		all.Letters += c.Letters
		all.Bytes += c.Bytes
	}
	return all
}

// hasRoom reports whether a letter of the tenant fits. A tenant may have as much as is free then, so no tenant fills the mailbox alone.
func (s *mailboxState) hasRoom(tenant switchboard.TenantID, bytes int) bool {
	all, own := s.total(), s.Counts[tenant]
	return own.Letters+1 <= maxLetters-all.Letters && own.Bytes+bytes <= maxBytes-all.Bytes
}

// add adds letters and bytes to the tenant's share; they may be negative.
func (s *mailboxState) add(tenant switchboard.TenantID, letters, bytes int) {
	c := s.Counts[tenant]
	c.Letters, c.Bytes = max(0, c.Letters+letters), max(0, c.Bytes+bytes)
	if s.Counts == nil {
		s.Counts = map[switchboard.TenantID]share{}
	}
	if s.Counts[tenant] = c; c == (share{}) {
		delete(s.Counts, tenant)
	}
}

// ErrPartly says that some recipients have a notice, and that the mailboxes of all others are full.
var ErrPartly = errors.New("not all recipients have the notice")

// errFull says that a mailbox has no room for a notice.
var errFull = errors.New("too many notices wait for this recipient")

// A mailbox keeps the notices of one recipient. It is safe for concurrent use.
type mailbox struct {
	outbox *Outbox
	name   string
	wake   chan struct{} // of capacity one: something has been put in
	mended chan struct{} // of capacity one: the recipient has another address or secret, so the next attempt need not wait

	turn chan struct{} // of capacity one: has an element while somebody writes; guards state and version

	state   mailboxState
	version store.Version // of state in the store; 0 if there is none or it is not known

	mu        sync.Mutex
	submitted []*submission // that wait to be written
	seen      Backlog       // for people
}

// A submission is one change of a mailbox.
type submission struct {
	put  *letter
	drop *storedLetter

	done chan struct{} // closed when it was written, or err says why not
	err  error         // read it after done
}

// A storedLetter is a letter with its place in the store.
type storedLetter struct {
	letter
	value store.NamedValue
}

func newMailbox(o *Outbox, name string) *mailbox {
	return &mailbox{outbox: o, name: name, wake: make(chan struct{}, 1), mended: make(chan struct{}, 1), turn: make(chan struct{}, 1), seen: Backlog{Recipient: name}}
}

// put puts a letter in, durably.
func (b *mailbox) put(ctx context.Context, l letter) error {
	if err := b.submit(ctx, &submission{put: &l}); err != nil {
		return err
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	_ = b.outbox.o.Store.Publish(ctx, groupOf(b.name), nil) // a replica that misses it looks soon
	return nil
}

// submit makes the change, together with others that wait. Whoever has the turn writes for all.
func (b *mailbox) submit(ctx context.Context, s *submission) error {
	s.done = make(chan struct{})
	b.mu.Lock()
	if len(b.submitted) >= maxSubmissions {
		b.mu.Unlock()
		return errors.New("too many notices are being written")
	}
	b.submitted = append(b.submitted, s)
	b.mu.Unlock()
	for {
		select {
		case <-s.done:
			return s.err
		case b.turn <- struct{}{}:
			b.writeBatch(ctx)
			<-b.turn
		case <-ctx.Done():
			if b.withdraw(s) {
				return ctx.Err()
			}
			<-s.done // it is being written, which ends soon
			return s.err
		}
	}
}

// withdraw takes a submission back that is not being written yet.
func (b *mailbox) withdraw(s *submission) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.submitted {
		if other == s {
			b.submitted = append(b.submitted[:i:i], b.submitted[i+1:]...)
			return true
		}
	}
	return false
}

// writeBatch writes the first of the submissions. The caller has the turn.
func (b *mailbox) writeBatch(ctx context.Context) {
	b.mu.Lock()
	n := min(len(b.submitted), maxBatch)
	batch := b.submitted[:n:n]
	b.submitted = b.submitted[n:]
	b.mu.Unlock()
	if n == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout) // others have submitted too
	defer cancel()
	b.apply(ctx, batch)
	for _, s := range batch {
		close(s.done)
	}
	b.mu.Lock()
	b.seen.Notices = b.state.total().Letters
	b.mu.Unlock()
}

// apply writes a batch in one change of the store.
func (b *mailbox) apply(ctx context.Context, batch []*submission) {
	fail := func(err error) {
		b.version = 0 // what the store has is not known
		for _, s := range batch {
			if s.err == nil {
				s.err = err
			}
		}
	}
	for range maxConflicts {
		if b.version == 0 {
			if err := b.read(ctx); err != nil {
				fail(err)
				return
			}
		}
		next, change := b.plan(batch)
		if len(change.Writes) == 0 {
			return
		}
		version, err := b.outbox.o.Store.Apply(ctx, change)
		if err == nil {
			b.state, b.version = next, version
			return
		}
		if !errors.Is(err, store.ErrConflict) {
			fail(err)
			return
		}
		b.version = 0
		if err := b.dropDropped(ctx, batch); err != nil {
			fail(err)
			return
		}
	}
	fail(errors.New("other processes change the mailbox all the time"))
}

// plan returns the change that makes the batch, and the state after it. A letter without room has the error errFull.
func (b *mailbox) plan(batch []*submission) (mailboxState, store.Change) {
	next := mailboxState{Last: b.state.Last}
	for tenant, c := range b.state.Counts {
		next.add(tenant, c.Letters, c.Bytes)
	}
	c := store.Change{Group: groupOf(b.name)}
	for _, s := range batch {
		switch {
		case s.drop != nil && s.err == nil && s.drop.value.Version != 0:
			next.add(s.drop.Tenant, -1, -len(s.drop.value.Data))
			c.Writes = append(c.Writes, store.Write{Name: s.drop.value.Name, Was: s.drop.value.Version})
		case s.put != nil:
			data, _ := json.Marshal(s.put) // its body is JSON
			if s.err = nil; !next.hasRoom(s.put.Tenant, len(data)) {
				s.err = errFull
				continue
			}
			next.Last++
			next.add(s.put.Tenant, 1, len(data))
			c.Writes = append(c.Writes, store.Write{Name: fmt.Sprintf("%s%016x", letterPrefix, next.Last), Data: data, TTL: keptFor})
			c.Durable = true
		}
	}
	if len(c.Writes) > 0 {
		data, _ := json.Marshal(next)
		c.Writes = append(c.Writes, store.Write{Name: stateName, Was: b.version, Data: data, TTL: keptFor})
	}
	return next, c
}

// dropDropped marks the letters of the batch that another process has removed, or that have expired.
func (b *mailbox) dropDropped(ctx context.Context, batch []*submission) error {
	for _, s := range batch {
		if s.drop == nil {
			continue
		}
		v, err := b.outbox.o.Store.Value(ctx, store.Key{Group: groupOf(b.name), Name: s.drop.value.Name})
		if err != nil && !errors.Is(err, store.ErrUnopened) {
			return err
		}
		if v.Version != s.drop.value.Version {
			s.drop.value.Version = 0
		}
	}
	return nil
}

// read reads the state of the mailbox. The caller has the turn.
func (b *mailbox) read(ctx context.Context) error {
	v, err := b.outbox.o.Store.Value(ctx, store.Key{Group: groupOf(b.name), Name: stateName})
	if errors.Is(err, store.ErrUnopened) {
		err = nil
	}
	if err != nil {
		return err
	}
	b.state = mailboxState{}
	if v.Version == 0 || json.Unmarshal(v.Data, &b.state) != nil { // what is in the mailbox says it
		if _, b.state, err = b.list(ctx); err != nil {
			return err
		}
	}
	b.version = v.Version
	return nil
}

// list returns the letters in the mailbox, oldest first, and the state that it should have.
func (b *mailbox) list(ctx context.Context) (letters []*storedLetter, is mailboxState, err error) {
	values, err := b.outbox.o.Store.List(ctx, groupOf(b.name))
	if err != nil {
		return nil, is, err
	}
	for _, v := range values {
		number, ok := strings.CutPrefix(v.Name, letterPrefix)
		if !ok {
			continue
		}
		l := &storedLetter{value: v}
		_ = json.Unmarshal(v.Data, &l.letter) // one without a body is given up
		_, _ = fmt.Sscanf(number, "%x", &is.Last)
		is.add(l.Tenant, 1, len(v.Data))
		letters = append(letters, l)
	}
	return letters, is, nil
}

// recount corrects the state where letters have expired, or were lost with a part of the store. It returns the letters.
func (b *mailbox) recount(ctx context.Context) (letters []*storedLetter, err error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := b.read(ctx); err != nil {
		return nil, err
	}
	letters, is, err := b.list(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.seen.Notices = len(letters)
	b.mu.Unlock()
	counted, found := b.state.total(), is.total()
	if counted == found {
		return letters, nil
	}
	is.Last = max(is.Last, b.state.Last)
	data, _ := json.Marshal(is)
	version, err := b.outbox.o.Store.Apply(ctx, store.Change{Group: groupOf(b.name), Writes: []store.Write{{Name: stateName, Was: b.version, Data: data, TTL: keptFor}}})
	switch {
	case errors.Is(err, store.ErrConflict): // something was put in or taken out between the two reads
		b.version = 0
		return letters, nil
	case err != nil:
		b.version = 0
		return nil, err
	}
	b.state, b.version = is, version
	if lost := counted.Letters - found.Letters; lost > 0 {
		b.outbox.o.Log.Warn("notices have expired, and were not delivered", "to", b.name, "notices", lost)
		for range lost {
			b.outbox.count(b.name, GivenUp)
		}
	}
	return letters, nil
}

// backlog describes the mailbox.
func (b *mailbox) backlog() Backlog {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}
