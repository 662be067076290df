// Package memory keeps what receipts say about tools, by day: for each tenant and tool the calls, their outcomes and codes, their latencies and
// what they cost; and for each tenant the gaps: requirements that no tool met, and capabilities that agents asked for.
//
// It decides how a receipt counts, what is kept, and how much. It decides nothing about who may read what: package admin does. No decision reads it.
//
// Receipts are folded into pages. A page is one value of the store: one UTC day of one part of a tenant. Beside its totals, a page has the number of the last
// entry of each chain that it has counted, and both change in one compare-and-set. So an entry counts once, however often it is read, and whoever reads it:
// after a kill, and with several replicas. A mark of each chain says that all pages have counted the chain up to there. It only saves reading, and is written
// after the pages. A lease lets one replica fold at a time, which only saves work.
//
// A page has no argument, result or error text: receipts have none. Names that are longer or stranger than those of configured tools are left out.
package memory

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// A Store has the receipts, and keeps the pages. See store.Store.
type Store interface {
	receipt.ChainReader
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Status() store.Status
}

// Keep is how long a day is kept.
const Keep = 400 * 24 * time.Hour

// Bounds of the memory. A day of a tenant has at most parts × maxTools tools.
const (
	parts       = 16  // of a tenant's tools
	maxTools    = 32  // of a part and a day; calls of further tools are counted together
	maxPatterns = 24  // of a tool and a day
	maxGaps     = 128 // of a tenant, a day and a kind
	maxChanges  = 64  // of a tenant and a day; the oldest ones are dropped
	maxName     = 256 // bytes of a name
	maxTold     = 256 // pages that the log has named as unreadable
)

// How receipts are read: in pieces, with a pause after each that is three times as long as the piece took, up to maxRest. So at most one processor is used, for a quarter of the time while a piece takes at most 5 ms.
const (
	pieceEntries = 512                   // of one read
	headEntries  = 128                   // of one read that looks for the first entry with a time
	maxRest      = 15 * time.Millisecond // also if the store was slow
	chunkEntries = 16_384                // counted before the pages are written
	interval     = 10 * time.Second
	leaseTime    = 30 * time.Second
	storeTimeout = time.Minute // for one chunk to be written
	maxConflicts = 100         // of one page, with replicas that write it at the same time
)

// Options are the parts that a Memory needs.
type Options struct {
	Store Store
	Log   *slog.Logger
}

// A Memory folds receipts, and answers what they say. Use New. It is safe for concurrent use.
type Memory struct {
	o      Options
	failed bool // the last fold has failed; only Run uses it

	mu   sync.Mutex
	told map[pageKey]bool // the pages that the log has named as unreadable
}

// New returns a Memory. It folds nothing until Run.
func New(o Options) *Memory { return &Memory{o: o, told: map[pageKey]bool{}} }

// A Day is a UTC day: the number of days since 1970-01-01.
type Day int64

const daySeconds = 24 * 60 * 60

// DayOf returns the day of the instant.
func DayOf(t time.Time) Day {
	s := t.Unix()
	if s < 0 {
		s -= daySeconds - 1
	}
	return Day(s / daySeconds)
}

// Start returns the first instant of the day.
func (d Day) Start() time.Time { return time.Unix(int64(d)*daySeconds, 0).UTC() }

// String returns the day as 2006-01-02.
func (d Day) String() string { return d.Start().Format(time.DateOnly) }

// MarshalText implements encoding.TextMarshaler.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// month returns the month of the day, as 2006-01.
func (d Day) month() string { return d.Start().Format("2006-01") }

// oldest returns the first day that is kept at now.
func oldest(now time.Time) Day { return DayOf(now.Add(-Keep)) }
