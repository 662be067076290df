package session

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits on the events that are kept for clients that resume their streams. The oldest are dropped
// first.
const (
	maxKeptEvents  = 4096      // of one stream
	maxKeptStreams = 64        // finished ones of one session
	maxKeptBytes   = 4 << 20   // of one session
	maxKeptInAll   = 256 << 20 // bytes, of all sessions

	// replayedFor is how long a finished stream can be resumed.
	replayedFor = 5 * time.Minute

	// maxFraming is more than the framing of an event takes.
	maxFraming = 16 << 10

	// PrimeAfter is how long a call is silent before the client gets a primer. A call that ends
	// sooner is answered with plain JSON.
	PrimeAfter = time.Second
)

// Replays holds the events of one legacy session's streams, so that a client which has lost a
// stream can resume it. Event ids are valid only within the session. It is safe for concurrent use.
type Replays struct {
	totalBytes *atomic.Int64 // kept bytes of all sessions

	// sendsPrimers is set if the client takes an event that has an id and no data. The protocol has
	// such events since 2025-11-25.
	sendsPrimers bool

	// first is an upper bound on the numbers of the events and streams of earlier owners, which
	// this replica does not have. 0 means that there was no earlier owner.
	first int

	mu     sync.Mutex
	closed bool
	last   int
	tracks map[int]*Track
	ended  []*Track // in the order in which they ended
	bytes  int
}

// A Track is one event stream, which may need several connections. Track 0 is the session's
// notification stream. Each other track belongs to one request.
type Track struct {
	replays *Replays
	number  int

	// The replays' mu guards the fields below.
	next     int      // number of the next event; the first is 1
	events   [][]byte // the latest, as written
	finished bool
	grown    chan struct{} // closed when there are more events or the track has finished; nil if no reader waits
	detach   func()        // stops writing on the current connection
}

// SendsPrimers reports whether the client takes primers.
func (rs *Replays) SendsPrimers() bool { return rs.sendsPrimers }

// Open begins the stream of a request. detach stops the writing on its first connection.
func (rs *Replays) Open(detach func()) *Track {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.last++
	return rs.newTrack(rs.last, detach)
}

// newTrack begins the track of that number. The caller holds rs.mu.
func (rs *Replays) newTrack(number int, detach func()) *Track {
	k := &Track{replays: rs, number: number, next: 1, detach: detach}
	if rs.tracks == nil {
		rs.tracks = map[int]*Track{}
	}
	rs.tracks[number] = k
	return k
}

// Own returns the session's notification stream.
func (rs *Replays) Own() *Track {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if k := rs.tracks[0]; k != nil {
		return k
	}
	k := rs.newTrack(0, func() {})
	k.next += rs.first
	return k
}

// Find returns the track and the number of the event that an id names. ours is false if the id
// has not the form of an event id.
func (rs *Replays) Find(id string) (k *Track, event int, ours bool) {
	a, b, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(a, 10, 62)
	at, err2 := strconv.ParseUint(b, 10, 62)
	if err != nil || err2 != nil {
		return nil, 0, false
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	k = rs.tracks[int(number)]
	if number == 0 && rs.first > 0 && k == nil {
		return nil, 0, false // the client starts again, and is told that everything may have changed
	}
	if k == nil || int(at) >= k.next {
		return nil, 0, true
	}
	return k, int(at), true
}

// close drops all tracks.
func (rs *Replays) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	for _, k := range rs.tracks {
		rs.dropTrack(k)
	}
}

// dropTrack drops a track and its events. The caller holds rs.mu.
func (rs *Replays) dropTrack(k *Track) {
	for len(k.events) > 0 {
		k.dropOldest()
	}
	delete(rs.tracks, k.number)
}

// dropOldest drops the oldest event. The caller holds k.replays.mu.
func (k *Track) dropOldest() {
	k.addBytes(-len(k.events[0]))
	k.events[0] = nil
	k.events = k.events[1:]
}

// addBytes counts n more kept bytes. The caller holds k.replays.mu.
func (k *Track) addBytes(n int) {
	k.replays.bytes += n
	k.replays.totalBytes.Add(int64(n))
}

// eventID returns the id of the event of that number.
func (k *Track) eventID(event int) []byte {
	return strconv.AppendInt(append(strconv.AppendInt(nil, int64(k.number), 10), '-'), int64(event), 10)
}

// IsOwn reports whether k is the notification stream of the session.
func (k *Track) IsOwn() bool { return k.number == 0 }

// Primer returns an event that gives the client an id to resume from; nil if the client takes no
// primers.
func (k *Track) Primer() []byte {
	if !k.replays.sendsPrimers {
		return nil
	}
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	return append(append([]byte("id: "), k.eventID(k.next-1)...), "\ndata: \n\n"...)
}

// Append keeps one more event, and returns it as it is written.
func (k *Track) Append(message []byte) []byte {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	event := AppendEvent(nil, k.eventID(k.next), message)
	k.retain(event)
	return event
}

// Finish ends the track, with the last message if there is one, and returns the id of that event.
func (k *Track) Finish(last ...[]byte) (id []byte) {
	rs := k.replays
	rs.mu.Lock()
	defer rs.mu.Unlock()
	size := 0
	for _, part := range last {
		size += len(part)
	}
	id = k.eventID(k.next)
	k.finished = true
	var event []byte
	if size > 0 && size < maxKeptBytes-maxFraming {
		event = AppendEvent(nil, id, last...) // a copy, because the memory of results is reused
	}
	k.retain(event)
	if rs.tracks[k.number] != k {
		return id
	}
	rs.ended = append(rs.ended, k)
	if len(rs.ended) > maxKeptStreams {
		rs.dropTrack(rs.ended[0])
		rs.ended = rs.ended[1:]
	}
	time.AfterFunc(replayedFor, func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.dropTrack(k)
	})
	return id
}

// retain keeps an event, or nil in place of one that is too long, and drops old events that exceed
// the limits. The caller holds k.replays.mu.
func (k *Track) retain(event []byte) {
	rs := k.replays
	if k.grown != nil {
		close(k.grown)
		k.grown = nil
	}
	k.next++
	if rs.closed {
		return
	}
	k.events = append(k.events, event)
	k.addBytes(len(event))
	for rs.bytes > maxKeptBytes && len(rs.ended) > 0 {
		rs.dropTrack(rs.ended[0])
		rs.ended = rs.ended[1:]
	}
	for len(k.events) > maxKeptEvents || len(k.events) > 0 && (rs.bytes > maxKeptBytes || rs.totalBytes.Load() > maxKeptInAll) {
		k.dropOldest()
	}
}

// Forget drops an event that could not be written. The change that it reports is reported
// again.
func (k *Track) Forget(event []byte) {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	for i, e := range k.events {
		if len(e) > 0 && &e[0] == &event[0] {
			k.addBytes(-len(e))
			k.events[i] = nil
		}
	}
}

// Attach makes the writing move to another connection, which detach stops, and stops the writing on
// the one before. A track is written on one connection only.
func (k *Track) Attach(detach func()) {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	k.detach()
	k.detach = detach
}

// Since returns the events after the given one and the number of the last, and whether the
// track is finished. If it is not, grown is closed when there are more events.
func (k *Track) Since(event int) (events [][]byte, last int, finished bool, grown <-chan struct{}) {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	first := k.next - len(k.events)
	events = append(events, k.events[max(0, min(event+1-first, len(k.events))):]...)
	if k.grown == nil && !k.finished {
		k.grown = make(chan struct{})
	}
	return events, k.next - 1, k.finished, k.grown
}

// AppendEvent appends an event; without an id if id is empty.
func AppendEvent(dst, id []byte, message ...[]byte) []byte {
	if len(id) > 0 {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	dst = append(dst, "event: message\ndata: "...)
	for _, part := range message {
		dst = append(dst, wire.OneLine(part)...)
	}
	return append(dst, "\n\n"...)
}
