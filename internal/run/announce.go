package run

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An announcedName is a name that one client is being told is served differently now.
type announcedName struct{ client, name string }

// announceGrace is how long after the announcement a client's calls of the name still count as written before it.
const announceGrace = time.Second

// maxAnnounced limits the announced names of one run.
const maxAnnounced = 1024

// announcements are the announced names of one run. The zero value has none. They are safe for concurrent use.
type announcements struct {
	latest atomic.Int64 // unix nanoseconds until which any name counts

	mu    sync.Mutex
	until map[announcedName]time.Time // when the announcement stops counting; zero while it is in flight
}

// Announce notes that the client is being told that the names are served differently now. Until done is called, and for
// announceGrace after it, the client's calls of these names count as written before it knew.
func (r *Run) Announce(client string, names ...string) (done func()) {
	r.announced.set(client, names, time.Time{})
	return func() { r.announced.set(client, names, time.Now().Add(announceGrace)) }
}

// MayPredateAnnouncement reports whether a call that arrived at that time may have been written before its client knew that a name is
// served differently. It is a cheap check before Told.
func (r *Run) MayPredateAnnouncement(arrived time.Time) bool { return r.announced.count(arrived) }

// PredatesAnnouncement reports whether the client wrote a call of the name, which arrived at that time, before it knew that the name is
// served differently.
func (r *Run) PredatesAnnouncement(client, name string, arrived time.Time) bool {
	return r.announced.count(arrived) && r.announced.predate(client, name, arrived)
}

// set sets the time until which calls of the names count as written before the client knew. The zero time means that
// the announcement is still in flight.
func (a *announcements) set(client string, names []string, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[announcedName]time.Time{}
	}
	now, latest := time.Now(), int64(0)
	for _, name := range names {
		of := announcedName{client, name}
		if _, begun := a.until[of]; begun || len(a.until) < maxAnnounced {
			a.until[of] = until
		}
	}
	for of, end := range a.until {
		switch {
		case end.IsZero():
			latest = math.MaxInt64
		case end.Before(now):
			delete(a.until, of)
		default:
			latest = max(latest, end.UnixNano())
		}
	}
	a.latest.Store(latest)
}

// count reports whether any announcement counted at that time.
func (a *announcements) count(at time.Time) bool { return at.UnixNano() < a.latest.Load() }

// predate reports whether the client's call of the name, which arrived at that time, counts as written before the
// announcement.
func (a *announcements) predate(client, name string, arrived time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	end, told := a.until[announcedName{client, name}]
	return told && (end.IsZero() || arrived.Before(end))
}

// names returns the names that are being announced to the client, sorted.
func (a *announcements) names(client string) (names []string) {
	if !a.count(time.Now()) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, end := range a.until {
		if of.client == client && (end.IsZero() || time.Now().Before(end)) {
			names = append(names, of.name)
		}
	}
	slices.Sort(names)
	return names
}
