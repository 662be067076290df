package page

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
)

// livePath is the path of the streams that tell open pages of changes.
const livePath = "/live"

// Bounds of the streams of pages.
const (
	maxLive       = 256 // in this process; the API keeps as many for programs
	maxLiveOfOne  = 32  // of one session; pages that are not visible have none
	liveSpacing   = time.Second
	liveRefreshes = 25 // in a second, of all pages together: each change makes all of them read
)

// A liveness says when an open view reads itself again.
type liveness int

const (
	onEvents   liveness = iota // after each event of its tenant
	onFigures                  // after events, and each 15 seconds: it has figures that change without an event
	neverReads                 // it does not change by itself
)

// An openLive counts the streams of pages. The zero value works.
type openLive struct {
	mu  sync.Mutex
	all int
	of  map[[sha256.Size]byte]int // by the digest of a session's secret
}

// begin counts a stream of the session until end is called. ok is false if there are too many.
func (l *openLive) begin(secret string) (end func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	session := sha256.Sum256([]byte(secret))
	if l.all >= maxLive || l.of[session] >= maxLiveOfOne {
		return nil, false
	}
	if l.of == nil {
		l.of = map[[sha256.Size]byte]int{}
	}
	l.all++
	l.of[session]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.of[session]--; l.of[session] == 0 {
			delete(l.of, session)
		}
	}, true
}

// count returns how many streams there are.
func (l *openLive) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// shareTime is how long open pages of one officer get the same answers of the API.
const shareTime = time.Second

// liveAnswers are the answers of the API that open pages have just got. Each change makes all of them read again, and most show the same. The zero
// liveAnswers is empty.
type liveAnswers struct {
	mu    sync.Mutex
	after string // the cursor of the events when the answers were made
	of    map[string]func() *keptAnswer
}

// share returns the answer under the key: ask makes it if no other page has got it since the last event, and within shareTime. after is the cursor of the events.
func (l *liveAnswers) share(after, key string, ask func() *keptAnswer) *keptAnswer {
	l.mu.Lock()
	if l.of == nil || l.after != after {
		made := map[string]func() *keptAnswer{}
		l.after, l.of = after, made
		time.AfterFunc(shareTime, func() { l.forget(after) })
	}
	get := l.of[key]
	if get == nil {
		get = sync.OnceValue(ask)
		l.of[key] = get
	}
	l.mu.Unlock()
	return get()
}

// forget removes the answers after a cursor.
func (l *liveAnswers) forget(after string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.after == after {
		l.of = nil
	}
}

// serveLive answers with the stream of an open view. It is the API's stream of events for the officer, which ends when the session or the office does. Of
// each event, the page is told the type alone.
func (p viewPages) serveLive(w http.ResponseWriter, r *http.Request, own site) {
	query := r.URL.Query()
	v, _ := findView(query.Get("view"))
	if v == nil || v.live == neverReads {
		p.refuse(w, http.StatusNotFound, "no view of this path is live")
		return
	}
	secret := own.readCookie(r, sessionCookie)
	officer, err := p.officerAt(r, own)
	if err != nil {
		e := access.AsError(err)
		p.refuse(w, access.HTTPStatus(e.Code), e.Text)
		return
	}
	end, ok := p.live.begin(secret)
	if !ok {
		p.refuse(w, http.StatusTooManyRequests, "too many pages are open")
		return
	}
	defer end()
	q := &viewQuery{page: p.Page, r: r, officer: &officer, secret: secret, view: v}
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = query.Get("after")
	}
	header := http.Header{"Accept": {"text/event-stream"}, "Cookie": r.Header["Cookie"], "Last-Event-Id": {after}} // the API looks at the session again and again
	ask := q.request(http.MethodGet, linkTo("/v1/events", nil, "tenant", query.Get("tenant")), nil, header)
	p.o.API(&officer).ServeHTTP(&changeWriter{ResponseWriter: w, header: http.Header{}, ctx: r.Context(), live: v.live, open: p.live.count}, ask)
}

// A changeWriter takes the stream of the API, and writes that of a page. A write waits until the page may be told: meanwhile the API collects what
// happens.
type changeWriter struct {
	http.ResponseWriter // of the page

	header http.Header     // of the API's answer
	ctx    context.Context //nolint:containedctx // of the request, whose end ends a wait
	live   liveness
	open   func() int // how many pages are told

	status int
	begun  bool
	told   time.Time // when the page was told of a change
}

// Unwrap is for http.ResponseController.
func (c *changeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Header returns the headers of the API's answer, which the page does not get.
func (c *changeWriter) Header() http.Header { return c.header }

// WriteHeader begins the stream, or refuses it as the API does.
func (c *changeWriter) WriteHeader(status int) {
	c.status = status
	if status == http.StatusOK {
		c.ResponseWriter.Header().Set("Content-Type", "text/event-stream")
		c.ResponseWriter.Header().Set("X-Accel-Buffering", "no") // for proxies
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write takes whole events of the API.
func (c *changeWriter) Write(text []byte) (int, error) {
	if c.status != http.StatusOK {
		return len(text), nil
	}
	id, kinds := readEvents(text)
	switch {
	case !c.begun:
		c.begun = true
		return len(text), c.write("retry: 2000\nid: %s\nevent: alive\ndata: -\n\n", id)
	case len(kinds) > 0:
		if err := c.wait(); err != nil {
			return 0, err
		}
		c.told = time.Now()
	case c.live == onFigures:
		kinds = []string{"figures"}
	default:
		return len(text), c.write("id: %s\nevent: alive\ndata: -\n\n", id)
	}
	return len(text), c.write("id: %s\nevent: changed\ndata: %s\n\n", id, strings.Join(kinds, " "))
}

func (c *changeWriter) write(format string, values ...any) error {
	_, err := fmt.Fprintf(c.ResponseWriter, format, values...)
	return err
}

// wait waits until the page may read itself again: all pages hear of a change at once, and are told of it one after the other.
func (c *changeWriter) wait() error {
	all := time.Duration(c.open()) * time.Second / liveRefreshes
	due := max(time.Until(c.told.Add(max(liveSpacing, all))), rand.N(all+1)) //nolint:gosec // it is no secret
	if due <= 0 {
		return nil
	}
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// readEvents returns the last id in events, and their types, sorted, each once.
func readEvents(text []byte) (id string, kinds []string) {
	for line := range strings.Lines(string(text)) {
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "id":
			id = value
		case "event":
			kinds = append(kinds, value)
		}
	}
	slices.Sort(kinds)
	return id, slices.Compact(kinds)
}
