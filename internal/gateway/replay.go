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

	// keptFor is how long a stream can be resumed once it has ended.
	keptFor = 5 * time.Minute

	// primeAfter is how long a call is quiet before a client that can resume is
	// told from where: what ends sooner is plain JSON.
	primeAfter = time.Second
)

// Replays are what has been said on the event streams of one legacy session, so
// that a client that has lost one hears the rest. Events have ids that mean
// something only within the session. The zero value keeps nothing that it is
// not given. They are safe for concurrent use.
type replays struct {
	inAll *atomic.Int64 // bytes kept, of all sessions

	// primes is set where the client takes an event that has an id and no data,
	// as the protocol has it since 2025-11-25.
	primes bool

	// first is which events and streams there were where the session was before, at
	// most: of what was said there nothing is known. 0 means that it was nowhere.
	first int

	mu     sync.Mutex
	over   bool
	last   int
	tracks map[int]*track
	ended  []*track // in the order of their ends
	bytes  int
}

// A track is one event stream, over as many connections as it takes. Number 0 is
// that of the session itself, each other is of one request.
type track struct {
	of     *replays
	number int

	// What follows is guarded by of.mu.
	next   int      // number of the event that comes next; 0 is where it begins
	events [][]byte // the last ones, as they are written
	over   bool
	grown  chan struct{} // closed once there is more, or it is over; nil where nobody waits
	leave  func()        // makes the connection on which it is written the last but one
}

// open begins the stream of one more request. leave ends its being written
// where it was begun.
func (rs *replays) open(leave func()) *track {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.last++
	return rs.track(rs.last, leave)
}

// track returns the track of that number, which it begins. The caller holds
// rs.mu.
func (rs *replays) track(number int, leave func()) *track {
	k := &track{of: rs, number: number, next: 1, leave: leave}
	if rs.tracks == nil {
		rs.tracks = map[int]*track{}
	}
	rs.tracks[number] = k
	return k
}

// own returns the session's own stream.
func (rs *replays) own() *track {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if k := rs.tracks[0]; k != nil {
		return k
	}
	k := rs.track(0, func() {})
	k.next += rs.first
	return k
}

// find returns the stream that an event id is of, and the event's number. ours
// is not set for what is no such id at all.
func (rs *replays) find(id string) (k *track, event int, ours bool) {
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

// end lets go of everything.
func (rs *replays) end() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.over = true
	for _, k := range rs.tracks {
		rs.drop(k)
	}
}

// drop lets go of a track. The caller holds rs.mu.
func (rs *replays) drop(k *track) {
	for len(k.events) > 0 {
		k.shed()
	}
	delete(rs.tracks, k.number)
}

// shed lets go of the oldest event. The caller holds k.of.mu.
func (k *track) shed() {
	k.count(-len(k.events[0]))
	k.events[0] = nil
	k.events = k.events[1:]
}

// count counts bytes that are kept. The caller holds k.of.mu.
func (k *track) count(n int) {
	k.of.bytes += n
	k.of.inAll.Add(int64(n))
}

// eventID is the id of the event of that number.
func (k *track) eventID(event int) []byte {
	return strconv.AppendInt(append(strconv.AppendInt(nil, int64(k.number), 10), '-'), int64(event), 10)
}

// primer is the event by which the client learns where the stream is; nil where
// it would not understand it.
func (k *track) primer() []byte {
	if !k.of.primes {
		return nil
	}
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	return append(append([]byte("id: "), k.eventID(k.next-1)...), "\ndata: \n\n"...)
}

// add keeps one more event and returns it as it is written.
func (k *track) add(message []byte) []byte {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	event := appendEvent(nil, k.eventID(k.next), message)
	k.keep(event)
	return event
}

// finish ends the track, with the last message where there is one, and returns
// the id of that.
func (k *track) finish(last ...[]byte) (id []byte) {
	rs := k.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	size := 0
	for _, part := range last {
		size += len(part)
	}
	id = k.eventID(k.next)
	k.over = true
	var event []byte
	if size > 0 && size < maxKeptBytes-smallPart {
		event = appendEvent(nil, id, last...) // a copy: the memory of results is used again
	}
	k.keep(event)
	if rs.tracks[k.number] != k {
		return id
	}
	rs.ended = append(rs.ended, k)
	if len(rs.ended) > maxKeptStreams {
		rs.drop(rs.ended[0])
		rs.ended = rs.ended[1:]
	}
	time.AfterFunc(keptFor, func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.drop(k)
	})
	return id
}

// keep keeps an event, nil for one that is too long, and what else there is
// room for. The caller holds k.of.mu.
func (k *track) keep(event []byte) {
	rs := k.of
	if k.grown != nil {
		close(k.grown)
		k.grown = nil
	}
	k.next++
	if rs.over {
		return
	}
	k.events = append(k.events, event)
	k.count(len(event))
	for rs.bytes > maxKeptBytes && len(rs.ended) > 0 {
		rs.drop(rs.ended[0])
		rs.ended = rs.ended[1:]
	}
	for len(k.events) > maxKeptEvents || len(k.events) > 0 && (rs.bytes > maxKeptBytes || rs.inAll.Load() > maxKeptInAll) {
		k.shed()
	}
}

// unsay forgets an event: its connection was lost as it was written, and what it
// tells will be told again.
func (k *track) unsay(event []byte) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	for i, e := range k.events {
		if len(e) > 0 && &e[0] == &event[0] {
			k.count(-len(e))
			k.events[i] = nil
		}
	}
}

// move makes leave the end of the connection on which the track is written from
// now on, and ends the one before: nothing is said on two.
func (k *track) move(leave func()) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.leave()
	k.leave = leave
}

// since returns the events after that of the number, and the number of the last;
// whether there will be more, and otherwise when.
func (k *track) since(event int) (events [][]byte, last int, over bool, grown <-chan struct{}) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	first := k.next - len(k.events)
	events = append(events, k.events[max(0, min(event+1-first, len(k.events))):]...)
	if k.grown == nil && !k.over {
		k.grown = make(chan struct{})
	}
	return events, k.next - 1, k.over, k.grown
}

// errNothingKept is the answer to an id of which nothing is kept. It is not 404,
// which would mean that the session is over.
var errNothingKept = invalidRequest("Last-Event-ID names nothing that can be resumed, or can be no longer; open a stream without it")

// replay writes the rest of the stream of a request, up to its result.
func (g *Gateway) replay(w http.ResponseWriter, r *http.Request, p switchboard.Principal, s *session, k *track, event int) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	k.move(stop)
	e := events{w: w, c: http.NewResponseController(w)}
	if e.start() != nil {
		return
	}
	tick := time.NewTicker(KeepAlive)
	defer tick.Stop()
	for {
		rung := g.judged.next()
		all, last, over, grown := k.since(event)
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
			if !g.still(r, p) {
				return
			}
		case <-tick.C:
			if !g.still(r, p) || e.comment() != nil {
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
