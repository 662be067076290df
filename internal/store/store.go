// Package store holds small values under keys, counts against limits, and appends to logs: in memory, in one
// file or in Redis. It decides which of several concurrent changes comes first. The packages that use it
// decide what the values mean.
//
// All backends keep one contract, and suite_test.go checks it. They differ in what a Store survives:
//
//	NewMemory   nothing
//	OpenFile    the process, killed at any instant; and the machine, for durable changes
//	OpenRedis   this process and this machine; Redis itself as far as its own settings say
package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/store/segment"
)

// The errors that callers branch on. Every other error wraps ErrUnavailable, and says why.
var (
	// ErrConflict says that another change came first. Nothing has changed.
	ErrConflict = errors.New("it has been changed meanwhile")

	// ErrUnavailable says that the store cannot do it now: the disk is full, Redis does not answer. It is
	// then unknown whether a change was made.
	ErrUnavailable = errors.New("the store is unavailable")

	// ErrInvalid says that the request can never succeed: a key without a name, a value that is too large.
	ErrInvalid = errors.New("invalid use of the store")
)

// Limits on requests and values.
const (
	MaxKey     = 1 << 10           // bytes of a group, of a name, of a log's name, of a topic
	MaxValue   = 16 << 20          // bytes of a value
	MaxEntry   = 1 << 20           // bytes of an entry of a log
	MaxWrites  = 16                // of one Change
	MaxLimits  = 16                // of one Take
	MaxPermits = 1 << 20           // of a Take's Now, and of its Ahead
	MaxAmount  = 1 << 50           // of a maximum and an amount; a Lua number holds the sum of several
	MaxNotice  = 64 << 10          // bytes of a notice
	MaxAppend  = 4096              // entries at once
	MaxBytes   = segment.MaxAppend // of the entries at once
	MaxEntries = 10_000            // that one Read or List returns, and names of one Accounts

	MaxAccounts    = 20  // of one Hold
	MaxSettlements = 256 // at once
)

// A Key identifies a value. The values of one group can be changed in one Change, and are stored together.
type Key struct{ Group, Name string }

// A Version identifies one state of a value. No two states have the same version, even if the value was
// deleted between them. 0 means that there is no value.
type Version uint64

// Any matches every version, in a Write.
const Any Version = 1<<64 - 1

// A Value is the value of a key. The zero Value means that there is none.
type Value struct {
	Data    []byte
	Version Version
	Expires time.Time // zero: never
}

// A NamedValue is a value with its name in its group.
type NamedValue struct {
	Name string
	Value
}

// A Change writes values of one group: all of them, or none.
type Change struct {
	Group  string
	Writes []Write

	// Durable says that the change must survive the machine, and not only the process. Apply then waits for
	// the disk. All earlier changes become durable with it.
	Durable bool

	sealed bool // the data of each write is SealBytes longer than the caller's data
}

// A Write is the change of one value.
type Write struct {
	Name string

	// Was is the version that the write replaces: 0 if there must be no value, Any for every version.
	Was Version

	Data []byte        // nil deletes
	TTL  time.Duration // the value expires after TTL; 0 means never
}

// A Limit says how often something may be done: Burst times at once, and once more after each Every.
type Limit struct {
	Name  string
	Every time.Duration
	Burst int
}

// A Want says how many permits to take from limits.
type Want struct {
	Now int // at least 1

	// Ahead is how many more permits to take, for use within Hold from the request. Permits that are not used
	// by then are lost. They are counted as if all of them were used at the end of Hold.
	Ahead int
	Hold  time.Duration
}

// An Entry is an entry of a log. Entries are numbered from 1, without gaps.
type Entry struct {
	Seq  uint64
	Data []byte
}

// A Span says which entries a log holds: First to Last. If it holds none, First is Last+1. Last counts all
// entries that were ever appended.
type Span struct{ First, Last uint64 }

// A Store is safe for concurrent use, also by several processes that have opened the same store. Its errors
// wrap one of the errors above, or are the error of ctx.
type Store interface {
	// Value returns the value of the key; the zero Value if there is none.
	Value(ctx context.Context, k Key) (Value, error)

	// List returns the values of a group, sorted by name: at most MaxEntries.
	List(ctx context.Context, group string) ([]NamedValue, error)

	// Apply makes the change if each value has the version that its write replaces, and returns the new
	// version of all of them. Otherwise the error is ErrConflict.
	Apply(ctx context.Context, c Change) (Version, error)

	// Take counts against all limits, which belong to the group. It takes the same number from each: up to
	// Now, as many as every limit has, and up to Ahead more, as long as at least half of each limit's burst
	// is left. It returns the number taken and, if that is less than Now, how long it takes until one more is
	// free. It uses the clock of the store.
	Take(ctx context.Context, group string, want Want, limits ...Limit) (got int, wait time.Duration, err error)

	// Hold adds each account's Amount to what is held there, if the sums of all accounts stay within their Max.
	// Otherwise it changes nothing, and held is false. It returns the accounts' sums after that. If there is a hold
	// of that id in the group, or was one within its TTL, Hold changes nothing, and held is true: so a Hold may be
	// repeated. After its TTL, what was held and not settled counts as settled, and the id is forgotten. It uses the
	// clock of the store.
	Hold(ctx context.Context, group, id string, terms HoldTerms, accounts ...Account) (sums []AccountState, held bool, err error)

	// Settle ends holds of a group: what was held is taken away, and the amounts are settled. For each settlement
	// it reports whether it has ended the hold. It has not if the id is unknown, has expired or was settled before. If an amount is
	// invalid, no hold is ended.
	Settle(ctx context.Context, group string, settlements ...Settlement) (settled []bool, err error)

	// Accounts returns the accounts of a group with these names, or all accounts if there are no names, sorted by name. A
	// missing account is left out.
	Accounts(ctx context.Context, group string, names ...string) ([]AccountState, error)

	// Append appends entries to a log with the last entry after: ErrConflict if after is not its last entry.
	// The entries are durable when Append returns.
	Append(ctx context.Context, log string, after uint64, entries ...[]byte) error

	// Read returns up to limit entries after the entry after, in order. after itself need not exist. Read
	// returns fewer if they are long or the log ends, and none only after the last entry.
	Read(ctx context.Context, log string, after uint64, limit int) ([]Entry, error)

	// Span returns which entries the log holds; {1, 0} for a log without any entry ever.
	Span(ctx context.Context, log string) (Span, error)

	// Logs returns the names of all logs, sorted.
	Logs(ctx context.Context) ([]string, error)

	// Trim deletes the entries before first.
	Trim(ctx context.Context, log string, first uint64) error

	// Publish sends a notice to all subscribers of the topic. A notice is a hint: it can be lost if the store
	// fails, and the subscribers are told that they may have missed some.
	Publish(ctx context.Context, topic string, data []byte) error

	// Subscribe calls heard with each notice of the topic, one after the other, until stop is called. It
	// calls heard with nil if notices may have been missed. heard must not wait for the store.
	Subscribe(topic string, heard func(data []byte)) (stop func())

	// Check reads everything that is stored, and returns what is damaged.
	Check(ctx context.Context) error

	// Dump calls see with everything that is stored and has not expired, as of one instant. Redis has no such
	// instant: it gives what is there while Dump reads.
	Dump(ctx context.Context, see func(Record) error) error

	// Load stores records, in the order of Dump, in an empty store: ErrConflict if the store is not empty. If
	// records ends with an error, nothing is stored.
	Load(ctx context.Context, records iter.Seq2[Record, error]) error

	// Status returns the state of the store.
	Status() Status

	// Close waits for the calls in flight, and closes the store. Later calls return ErrUnavailable.
	Close() error
}

// A Status describes the state of a store.
type Status struct {
	Kind  string `json:"kind"`  // memory, file or redis
	Where string `json:"where"` // its path or URL, without any secret

	// ID identifies the store: another store at the same path or URL has another ID. "" for one in memory.
	ID string `json:"id,omitempty"`

	// Survives says what keeps acknowledged changes: "nothing", "process", "machine" or, for a Redis that may
	// lose some, "redis, but for the last two seconds". After a semicolon it says what may lose more, and
	// which setting causes that.
	Survives string `json:"survives"`

	Fault string    `json:"fault,omitempty"` // why it is unavailable
	Since time.Time `json:"since,omitzero"`  // when it became unavailable

	// Lost says that the store has lost acknowledged changes, or is another store than the one that was
	// opened. It stays unavailable until a person does what Fault says.
	Lost bool `json:"lost,omitempty"`

	// Unopened counts values that this process read and that did not open. See Sealed.
	Unopened int64 `json:"unopened,omitempty"`
}

// newVersion returns a random version, different from all others.
func newVersion() Version {
	for {
		if v := Version(rand.Uint64()); v != 0 && v != Any {
			return v
		}
	}
}

// mayReplace reports whether the write may replace a value of version v.
func (w *Write) mayReplace(v Version) bool { return w.Was == Any || w.Was == v }

func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s has no name", ErrInvalid, what)
	case len(name) > MaxKey:
		return fmt.Errorf("%w: the name of %s has %d bytes; at most %d", ErrInvalid, what, len(name), MaxKey)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name of %s is not UTF-8", ErrInvalid, what)
	}
	return nil
}

func checkSize(what string, n, most int) error {
	if n > most {
		return fmt.Errorf("%w: %s has %d; at most %d", ErrInvalid, what, n, most)
	}
	return nil
}

func (k Key) check() error {
	return errors.Join(checkName("a group", k.Group), checkName("a key", k.Name))
}

func (c *Change) check() error {
	err := errors.Join(checkName("a group", c.Group), checkSize("the number of writes", len(c.Writes), MaxWrites))
	if len(c.Writes) == 0 {
		err = errors.Join(err, fmt.Errorf("%w: a change without writes", ErrInvalid))
	}
	most := MaxValue
	if c.sealed {
		most += SealBytes
	}
	seen := map[string]bool{}
	for _, w := range c.Writes {
		err = errors.Join(err, checkName("a key", w.Name), checkSize("the bytes of a value", len(w.Data), most))
		if seen[w.Name] {
			err = errors.Join(err, fmt.Errorf("%w: two writes of one key", ErrInvalid))
		}
		seen[w.Name] = true
		if w.TTL < 0 {
			err = errors.Join(err, fmt.Errorf("%w: a value with a negative TTL", ErrInvalid))
		}
	}
	return err
}

func checkTake(group string, want Want, limits []Limit) error {
	err := errors.Join(checkName("a group", group), checkSize("the number of limits", len(limits), MaxLimits),
		checkSize("the number wanted now", want.Now, MaxPermits), checkSize("the number wanted ahead", want.Ahead, MaxPermits))
	if want.Now < 1 || want.Ahead < 0 || want.Hold < 0 || want.Hold > maxPeriod {
		err = errors.Join(err, fmt.Errorf("%w: to take %d now and %d ahead for %s", ErrInvalid, want.Now, want.Ahead, want.Hold))
	}
	seen := map[string]bool{}
	for _, l := range limits {
		err = errors.Join(err, checkName("a limit", l.Name))
		if l.Every < time.Microsecond || l.Burst < 1 || l.Every > maxPeriod/time.Duration(l.Burst) {
			err = errors.Join(err, fmt.Errorf("%w: a limit of %d at once and one each %s", ErrInvalid, l.Burst, l.Every))
		}
		if seen[l.Name] {
			err = errors.Join(err, fmt.Errorf("%w: two limits of one name", ErrInvalid))
		}
		seen[l.Name] = true
	}
	return err
}

// maxPeriod is the longest time until a limit that was used up is fully available again.
const maxPeriod = 10 * 365 * 24 * time.Hour

func checkAppend(log string, entries [][]byte) error {
	err := errors.Join(checkName("a log", log), checkSize("the number of entries", len(entries), MaxAppend))
	if len(entries) == 0 {
		err = errors.Join(err, fmt.Errorf("%w: no entries", ErrInvalid))
	}
	bytes := 0
	for _, e := range entries {
		err = errors.Join(err, checkSize("the bytes of an entry", len(e), MaxEntry))
		bytes += len(e)
	}
	return errors.Join(err, checkSize("the bytes of all entries", bytes, MaxBytes))
}

// A limitState is the state of a limit in the generic cell rate algorithm (ITU-T I.371): the only thing to
// store is the instant when the limit is fully available again, in microseconds, as in Redis.
//
// Permits taken ahead are counted at now+Hold. So no limit is exceeded, whenever they are used until then and
// whatever other processes take in the meantime. Proof: let permits be used at instants t and be counted at s
// >= t, in any order. fullAt is the maximum over all s of s plus the time of all permits that are counted
// from then on. Among the permits used from some t on, the first one to be counted has s >= t, and all others
// are counted after it: so fullAt is never less than if each permit were counted when it is used, and each
// use that this other count would refuse was refused.
type limitState struct{ fullAt int64 }

// takeFromLimits takes permits at now from all limits. states are the states of the limits. It returns their
// next states, the number taken, and how long to wait if that is less than want.Now. A stored instant that is
// too far ahead, because a clock went back or the limit was larger before, counts as a limit that is used up
// now: so the wait ends. Therefore the next state must be stored even if nothing was taken.
func takeFromLimits(meters []limitState, limits []Limit, want Want, now int64) (next []limitState, got int, wait time.Duration) {
	next = make([]limitState, len(limits))
	n := int64(want.Now)
	for i, l := range limits {
		every, all := l.microseconds()
		next[i].fullAt = min(meters[i].fullAt, now+all)
		n = min(n, (now+all-max(next[i].fullAt, now))/every)
	}
	ahead, later := int64(want.Ahead), now+want.Hold.Microseconds()
	if len(limits) == 0 {
		ahead = 0
	}
	for i, l := range limits {
		every, all := l.microseconds()
		whole := max(next[i].fullAt, now) + n*every
		if n < int64(want.Now) {
			wait = max(wait, time.Duration(whole+every-all-now)*time.Microsecond)
		}
		ahead = max(0, min(ahead, (now+all/2-max(whole, later))/every))
	}
	for i, l := range limits {
		every, _ := l.microseconds()
		if n > 0 {
			next[i].fullAt = max(next[i].fullAt, now) + n*every
		}
		if ahead > 0 {
			next[i].fullAt = max(next[i].fullAt, later) + ahead*every
		}
	}
	return next, int(n + ahead), wait
}

// microseconds returns Every, and the time until the whole burst is free again.
func (l Limit) microseconds() (every, all int64) {
	every = l.Every.Microseconds()
	return every, every * int64(l.Burst)
}

// bytes returns v as it is stored in front of a value.
func (v Version) bytes() []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
