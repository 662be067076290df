package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Bounds of what is kept of event streams, for clients that resume them. What
// is oldest goes first.
const (
	maxKeptEvents  = 4096      // of one stream
	maxKeptStreams = 64        // of one session, that have ended
	maxKeptBytes   = 4 << 20   // of one session
	maxKeptInAll   = 256 << 20 // bytes

	// replayedFor is how long a stream can be resumed once it has ended.
	replayedFor = 5 * time.Minute

	// primeAfter is how long a call is quiet before a client that can resume is
	// told from where: what ends sooner is plain JSON.
	primeAfter = time.Second
)

// Replays are what has been said on the event streams of one legacy session, so
// that a client that has lost one hears the rest. Events have ids that mean
// something only within the session. The zero value keeps nothing that it is
// not given. They are safe for concurrent use.
type replays struct {
	totalBytes *atomic.Int64 // bytes kept, of all sessions

	// sendsPrimers is set where the client takes an event that has an id and no data,
	// as the protocol has it since 2025-11-25.
	sendsPrimers bool

	// first is which events and streams there were where the session was before, at
	// most: of what was said there nothing is known. 0 means that it was nowhere.
	first int

	mu     sync.Mutex
	closed bool
	last   int
	tracks map[int]*track
	ended  []*track // in the order of their ends
	bytes  int
}

// A track is one event stream, over as many connections as it takes. Number 0 is
// that of the session itself, each other is of one request.
type track struct {
	replays *replays
	number  int

	// What follows is guarded by of.mu.
	next     int      // number of the event that comes next; 0 is where it begins
	events   [][]byte // the last ones, as they are written
	finished bool
	grown    chan struct{} // closed once there is more, or it is over; nil where nobody waits
	detach   func()        // makes the connection on which it is written the last but one
}

// openTrack begins the stream of one more request. leave ends its being written
// where it was begun.
func (rs *replays) openTrack(leave func()) *track {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.last++
	return rs.newTrack(rs.last, leave)
}

// newTrack returns the track of that number, which it begins. The caller holds
// rs.mu.
func (rs *replays) newTrack(number int, leave func()) *track {
	k := &track{replays: rs, number: number, next: 1, detach: leave}
	if rs.tracks == nil {
		rs.tracks = map[int]*track{}
	}
	rs.tracks[number] = k
	return k
}

// ownTrack returns the session's own stream.
func (rs *replays) ownTrack() *track {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if k := rs.tracks[0]; k != nil {
		return k
	}
	k := rs.newTrack(0, func() {})
	k.next += rs.first
	return k
}

// findEvent returns the stream that an event id is of, and the event's number. ours
// is not set for what is no such id at all.
func (rs *replays) findEvent(id string) (k *track, event int, ours bool) {
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
		return nil, 0, false // it begins anew, with all that may have changed
	}
	if k == nil || int(at) >= k.next {
		return nil, 0, true
	}
	return k, int(at), true
}

// close lets go of everything.
func (rs *replays) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	for _, k := range rs.tracks {
		rs.dropTrack(k)
	}
}

// dropTrack lets go of a track. The caller holds rs.mu.
func (rs *replays) dropTrack(k *track) {
	for len(k.events) > 0 {
		k.dropOldest()
	}
	delete(rs.tracks, k.number)
}

// dropOldest lets go of the oldest event. The caller holds k.of.mu.
func (k *track) dropOldest() {
	k.addBytes(-len(k.events[0]))
	k.events[0] = nil
	k.events = k.events[1:]
}

// addBytes counts bytes that are kept. The caller holds k.of.mu.
func (k *track) addBytes(n int) {
	k.replays.bytes += n
	k.replays.totalBytes.Add(int64(n))
}

// eventID is the id of the event of that number.
func (k *track) eventID(event int) []byte {
	return strconv.AppendInt(append(strconv.AppendInt(nil, int64(k.number), 10), '-'), int64(event), 10)
}

// primer is the event by which the client learns where the stream is; nil where
// it would not understand it.
func (k *track) primer() []byte {
	if !k.replays.sendsPrimers {
		return nil
	}
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	return append(append([]byte("id: "), k.eventID(k.next-1)...), "\ndata: \n\n"...)
}

// appendMessage keeps one more event and returns it as it is written.
func (k *track) appendMessage(message []byte) []byte {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	event := appendEvent(nil, k.eventID(k.next), message)
	k.retain(event)
	return event
}

// finish ends the track, with the last message where there is one, and returns
// the id of that.
func (k *track) finish(last ...[]byte) (id []byte) {
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
	if size > 0 && size < maxKeptBytes-smallPart {
		event = appendEvent(nil, id, last...) // a copy: the memory of results is used again
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

// retain keeps an event, nil for one that is too long, and what else there is
// room for. The caller holds k.of.mu.
func (k *track) retain(event []byte) {
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

// forgetEvent forgets an event: its connection was lost as it was written, and what it
// tells will be told again.
func (k *track) forgetEvent(event []byte) {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	for i, e := range k.events {
		if len(e) > 0 && &e[0] == &event[0] {
			k.addBytes(-len(e))
			k.events[i] = nil
		}
	}
}

// attach makes leave the end of the connection on which the track is written from
// now on, and ends the one before: nothing is said on two.
func (k *track) attach(leave func()) {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	k.detach()
	k.detach = leave
}

// eventsSince returns the events after that of the number, and the number of the last;
// whether there will be more, and otherwise when.
func (k *track) eventsSince(event int) (events [][]byte, last int, over bool, grown <-chan struct{}) {
	k.replays.mu.Lock()
	defer k.replays.mu.Unlock()
	first := k.next - len(k.events)
	events = append(events, k.events[max(0, min(event+1-first, len(k.events))):]...)
	if k.grown == nil && !k.finished {
		k.grown = make(chan struct{})
	}
	return events, k.next - 1, k.finished, k.grown
}

// errNotResumable is the answer to an id of which nothing is kept. It is not 404,
// which would mean that the session is over.
var errNotResumable = invalidRequest("Last-Event-ID names nothing that can be resumed, or can be no longer; open a stream without it")

// replay writes the rest of the stream of a request, up to its result.
func (g *Gateway) replay(w http.ResponseWriter, r *http.Request, p switchboard.Principal, s *session, k *track, event int) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	k.attach(stop)
	e := events{w: w, c: http.NewResponseController(w)}
	if e.start() != nil {
		return
	}
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	for {
		rung := g.rechecked.wait()
		all, last, over, grown := k.eventsSince(event)
		for _, text := range all {
			if ctx.Err() != nil || text != nil && e.write(text) != nil {
				return
			}
		}
		if event = last; over {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-grown:
		case <-rung:
			if !g.isStillAllowed(r, p) {
				return
			}
		case <-tick.C:
			if !g.isStillAllowed(r, p) || e.comment() != nil {
				return
			}
		}
	}
}

// appendEvent appends an event; an id of no bytes is none.
func appendEvent(dst, id []byte, message ...[]byte) []byte {
	if len(id) > 0 {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	dst = append(dst, "event: message\ndata: "...)
	for _, part := range message {
		dst = append(dst, wire.OneLine(part)...)
	}
	return append(dst, "\n\n"...)
}
