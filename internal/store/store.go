// Package store keeps small values under keys, counts against limits, and
// appends to logs, in memory, in one file or in Redis. It decides who comes first
// where several want to change the same; what anything means is for others to say.
//
// All backends keep one contract, which suite_test.go checks. What differs is how
// much a Store outlives:
//
//	NewMemory   nothing
//	OpenFile    the process, killed at any instant; and the machine, for what is durable
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
)

// The errors that callers branch on. Whatever else goes wrong is ErrUnavailable, and
// says why.
var (
	// ErrConflict says that somebody else was first: nothing has changed.
	ErrConflict = errors.New("it has been changed meanwhile")

	// ErrUnavailable says that the store cannot do it now: the disk is full, Redis
	// does not answer. Whether a change was made is then unknown.
	ErrUnavailable = errors.New("the store is unavailable")

	// ErrInvalid says that it was asked for what is never done: a key without a
	// name, more bytes than there may be.
	ErrInvalid = errors.New("not to be stored")
)

// Bounds of what is stored.
const (
	MaxKey     = 1 << 10  // bytes of a group, of a name, and of the name of a log or a topic
	MaxValue   = 16 << 20 // bytes of a value
	MaxEntry   = 1 << 20  // bytes of an entry of a log
	MaxWrites  = 16       // of one Change
	MaxLimits  = 16       // of one Take
	MaxTake    = 1 << 20  // that a Take wants now, and that it wants ahead
	MaxNotice  = 64 << 10 // bytes of a notice
	MaxAppend  = 4096     // entries at once
	MaxEntries = 10_000   // that Read and List give at once
)

// A Key is where a value stands. The keys of one group can be changed together, and
// are kept together.
type Key struct{ Group, Name string }

// A Version is one state of a value. No two states have the same, also where the
// value was deleted in between. 0 is that of no value.
type Version uint64

// Any stands for whatever version there is, in a Write.
const Any Version = 1<<64 - 1

// A Value is what stands under a key. The zero Value is none.
type Value struct {
	Data    []byte
	Version Version
	Expires time.Time // zero: never
}

// A Named is a value with the name that it has in its group.
type Named struct {
	Name string
	Value
}

// A Change is what shall become of values of one group: all of it, or nothing.
type Change struct {
	Group  string
	Writes []Write

	// Durable says that the change shall survive the machine, and not only the
	// process. It waits for the disk, and everything that was changed before
	// becomes durable with it.
	Durable bool

	sealed bool // the data of each write is SealBytes longer than what the caller wrote
}

// A Write is what shall become of one value.
type Write struct {
	Name string

	// Was is what it replaces: 0 where nothing may be there, Any where that does not
	// matter.
	Was Version

	Data []byte        // nil deletes
	TTL  time.Duration // how long it is kept; 0 means for ever
}

// A Limit is how often something may be done: Burst times at once, and once more
// each time that Every is over.
type Limit struct {
	Name  string
	Every time.Duration
	Burst int
}

// A Want is how often something shall be counted against limits.
type Want struct {
	Now int // at least 1

	// Ahead is how many more, to be spent within Hold from when they were asked for;
	// what is not spent then is lost. They are counted as if all were spent when
	// Hold ends.
	Ahead int
	Hold  time.Duration
}

// An Entry is one of a log. They are numbered from 1, without gaps.
type Entry struct {
	Seq  uint64
	Data []byte
}

// A Span is what a log holds: the entries from First to Last. Where there are none,
// First is Last+1; Last counts all that there ever were.
type Span struct{ First, Last uint64 }

// A Store keeps the contract. It is safe for concurrent use, also by several
// processes that have opened the same. Its errors wrap one of those above, or are
// that of ctx.
type Store interface {
	// Value returns what stands under the key; the zero Value where nothing does.
	Value(ctx context.Context, k Key) (Value, error)

	// List returns the values of a group by name, at most MaxEntries.
	List(ctx context.Context, group string) ([]Named, error)

	// Apply makes the change, if each value is of the version that it replaces,
	// and returns the version that all have then. ErrConflict says that one was
	// not.
	Apply(ctx context.Context, c Change) (Version, error)

	// Take counts against each of the limits, which are of the group, as often as all
	// of them allow: of Now as many as there are, and of Ahead as many as leave at least
	// half of each limit's burst. It returns how many that are; and where they are
	// fewer than Now, how long it takes until there is one more. The clock is the
	// store's.
	Take(ctx context.Context, group string, want Want, limits ...Limit) (got int, wait time.Duration, err error)

	// Append puts entries behind the log's entry after, which has to be its last
	// one: ErrConflict where it is not. They are durable when it returns.
	Append(ctx context.Context, log string, after uint64, entries ...[]byte) error

	// Read returns up to limit entries behind after, which need not be there, in
	// their order: fewer where they are long or the log ends, and none only behind the
	// last one.
	Read(ctx context.Context, log string, after uint64, limit int) ([]Entry, error)

	// Span says what the log holds; a log that was never appended to is {1, 0}.
	Span(ctx context.Context, log string) (Span, error)

	// Logs returns the names of all logs, sorted.
	Logs(ctx context.Context) ([]string, error)

	// Trim lets go of the entries before first.
	Trim(ctx context.Context, log string, first uint64) error

	// Publish tells all who subscribe to the topic. It is a hint: it may be lost
	// where the store breaks, but not without their being told so.
	Publish(ctx context.Context, topic string, data []byte) error

	// Subscribe has heard called with each notice of the topic, one after the
	// other, until stop is called; with nil where some may have been missed.
	// heard must not wait for the store.
	Subscribe(topic string, heard func(data []byte)) (stop func())

	// Check looks at all that is kept, and returns what of it is damaged.
	Check(ctx context.Context) error

	// Dump gives see all that is kept and has not expired, as it stood at one instant,
	// but for Redis, which gives what is there while it looks.
	Dump(ctx context.Context, see func(Record) error) error

	// Load puts records, as Dump gives them, into a store that is empty:
	// ErrConflict where it is not. Where they end with an error, nothing is kept.
	Load(ctx context.Context, records iter.Seq2[Record, error]) error

	// Status says how the store fares.
	Status() Status

	// Close ends it. What was asked for before is done; what is asked for later is
	// ErrUnavailable.
	Close() error
}

// A Status says how a store fares.
type Status struct {
	Kind  string `json:"kind"`  // memory, file or redis
	Where string `json:"where"` // without any secret

	// ID tells it apart from all others, those that take its place too; "" of one in memory.
	ID string `json:"id,omitempty"`

	// Survives is what is acknowledged and kept: "nothing", "process", "machine",
	// or, of Redis that may lose some, "redis, but for the last two seconds". Behind a
	// semicolon stands what may make it less, and which setting that is due to.
	Survives string `json:"survives"`

	Fault string    `json:"fault,omitempty"` // why it is unavailable
	Since time.Time `json:"since,omitzero"`  // when that began

	// Lost says that it has lost something that it was to keep, or is another store than the one
	// that was opened: it stays unavailable until a person does what Fault says.
	Lost bool `json:"lost,omitempty"`

	// Unopened counts values that this process has read and that did not open; see Sealed.
	Unopened int64 `json:"unopened,omitempty"`
}

// newVersion makes up a version that no other state has.
func newVersion() Version {
	for {
		if v := Version(rand.Uint64()); v != 0 && v != Any {
			return v
		}
	}
}

// matches reports whether a value of version v may be replaced.
func (w *Write) matches(v Version) bool { return w.Was == Any || w.Was == v }

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
		err = errors.Join(err, fmt.Errorf("%w: a change of nothing", ErrInvalid))
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
			err = errors.Join(err, fmt.Errorf("%w: a value that expired before it was written", ErrInvalid))
		}
	}
	return err
}

func checkTake(group string, want Want, limits []Limit) error {
	err := errors.Join(checkName("a group", group), checkSize("the number of limits", len(limits), MaxLimits),
		checkSize("what is wanted now", want.Now, MaxTake), checkSize("what is wanted ahead", want.Ahead, MaxTake))
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

// maxPeriod is the longest time after which a limit that was used up is whole again.
const maxPeriod = 10 * 365 * 24 * time.Hour

func checkAppend(log string, entries [][]byte) error {
	err := errors.Join(checkName("a log", log), checkSize("the number of entries", len(entries), MaxAppend))
	if len(entries) == 0 {
		err = errors.Join(err, fmt.Errorf("%w: no entries", ErrInvalid))
	}
	for _, e := range entries {
		err = errors.Join(err, checkSize("the bytes of an entry", len(e), MaxEntry))
	}
	return err
}

// meter is the state of a limit: the generic cell rate algorithm (ITU-T I.371), which
// keeps nothing but the instant at which the limit would be whole again. All is in
// microseconds, as in Redis.
//
// What is taken ahead is counted at now+Hold, so that no limit is exceeded, whenever it is
// spent until then, whatever others take meanwhile. For let some be spent at the instants t,
// and be counted at s >= t, in whatever order. whole is the latest that any s leads to with all
// that is counted from there on. Of those that are spent from some t on, the one that was
// counted first has s >= t, and all others come behind it: so whole is never less than
// where each is counted as it is spent, and what that would refuse, this has refused.
type meter struct{ whole int64 }

// take says how often it is counted at now against all the limits, of which meters are the
// states, what these become, and how long to wait where that is less than Now. An instant
// that a clock put too far ahead, and then went back, or that was of a larger limit, counts
// as no more than a limit that is used up: from then on, so that the wait comes to
// an end. So what a meter is has to be kept also where it was not counted.
func take(meters []meter, limits []Limit, want Want, now int64) (next []meter, got int, wait time.Duration) {
	next = make([]meter, len(limits))
	n := int64(want.Now)
	for i, l := range limits {
		every, all := l.micros()
		next[i].whole = min(meters[i].whole, now+all)
		n = min(n, (now+all-max(next[i].whole, now))/every)
	}
	ahead, later := int64(want.Ahead), now+want.Hold.Microseconds()
	if len(limits) == 0 {
		ahead = 0
	}
	for i, l := range limits {
		every, all := l.micros()
		whole := max(next[i].whole, now) + n*every
		if n < int64(want.Now) {
			wait = max(wait, time.Duration(whole+every-all-now)*time.Microsecond)
		}
		ahead = max(0, min(ahead, (now+all/2-max(whole, later))/every))
	}
	for i, l := range limits {
		every, _ := l.micros()
		if n > 0 {
			next[i].whole = max(next[i].whole, now) + n*every
		}
		if ahead > 0 {
			next[i].whole = max(next[i].whole, later) + ahead*every
		}
	}
	return next, int(n + ahead), wait
}

// micros returns Every, and how long it takes until all of the burst is free again.
func (l Limit) micros() (every, all int64) {
	every = l.Every.Microseconds()
	return every, every * int64(l.Burst)
}

// bytes gives v as it is kept in front of a value.
func (v Version) bytes() []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
