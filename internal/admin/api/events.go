package api

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of the streams of events.
const (
	maxStreams   = 512              // the page has half of them at most
	keepAlive    = 15 * time.Second // how often a silent stream has an id, and its key is checked again even if nothing says that it may have ended
	eventTimeout = 30 * time.Second // for a reader to take one write
)

type eventQuery struct {
	TenantQuery
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"Continue behind this event. Without it: from now on."`
}

// addEvents adds the stream of events.
func (a *API) addEvents() {
	var open atomic.Int32
	add(a, route{
		id: "follow-events", method: http.MethodGet, path: "/v1/events", needs: switchboard.OfficeViewer, types: []string{"text/event-stream"},
		summary: "What changes, as server-sent events with ids. The event resync says that events are missing: read again what you show",
	}, func(_ context.Context, q asked, in *eventQuery) (*huma.StreamResponse, error) {
		if open.Add(1) > maxStreams {
			open.Add(-1)
			return nil, &apiProblem{Problem: access.ProblemOf(http.StatusTooManyRequests, switchboard.Refuse(switchboard.CodeOverloaded, "%d streams of events are open, the most that there may be", maxStreams))}
		}
		after := in.LastEventID
		if after == "" {
			after = a.o.Events.End()
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			defer open.Add(-1)
			r, w := humago.Unwrap(ctx)
			a.streamEvents(r, w, q, after)
		}}, nil
	})
}

// streamEvents writes events until the reader leaves, its key ends, or Switchboard stops.
func (a *API) streamEvents(r *http.Request, w http.ResponseWriter, q asked, after string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	write := func(text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(eventTimeout))
		_, err := w.Write(text)
		return err == nil && out.Flush() == nil
	}
	// An id without data is no event, and clients remember it: who loses the stream before the first event goes on from here.
	idle := func() []byte { return []byte("id: " + after + "\n\n") }
	if !write(idle()) {
		return
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	var checked <-chan struct{} // the officer was checked after this channel was made
	var ends <-chan time.Time   // the officer must be checked then
	check := func() (ok bool) {
		until, ok := a.untilWhen(r, q)
		if ends = nil; !until.IsZero() {
			ends = time.After(time.Until(until))
		}
		return ok
	}
	for {
		recheck := a.recheckStreams()
		events, more := a.o.Events.Read(after)
		if (recheck != checked || len(events) > 0) && !check() {
			return
		}
		checked = recheck
		var text []byte
		for _, e := range events {
			after = e.ID
			if !concerns(a.o.Reader, q, &e.Occurrence) {
				continue
			}
			text = fmt.Appendf(text, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, e.Text())
		}
		if len(text) > 0 && !write(text) {
			return
		}
		select {
		case <-more:
		case <-recheck:
		case <-ends:
			if !check() {
				return
			}
		case <-tick.C:
			if !check() || !write(idle()) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// recheckStreams returns a channel that is closed when the officers of all streams must be checked again.
func (a *API) recheckStreams() <-chan struct{} {
	a.recheckMu.Lock()
	defer a.recheckMu.Unlock()
	if a.recheck == nil {
		a.recheck = make(chan struct{})
	}
	return a.recheck
}

// RecheckStreams ends the streams of officers without a valid key or an office.
func (a *API) RecheckStreams() {
	a.recheckMu.Lock()
	defer a.recheckMu.Unlock()
	if a.recheck != nil {
		close(a.recheck)
		a.recheck = nil
	}
}

// maySee reports whether the officer still has an office in the tenant that it asked about.
func (a *API) maySee(r *http.Request, q asked) bool {
	_, ok := a.untilWhen(r, q)
	return ok
}

// untilWhen reports whether the officer still has an office in the tenant that it asked about, and when that must be asked again; zero means that no time is known.
func (a *API) untilWhen(r *http.Request, q asked) (until time.Time, ok bool) {
	if q.officer.Auth == switchboard.AuthDataFolder && (a.o.People.Page == nil || !a.o.People.Page.HasSession(r)) {
		return time.Time{}, true
	}
	now, err := a.o.Authenticate(r)
	return now.Until, err == nil && (q.tenant == "" && now.Operator || q.tenant != "" && now.Sees(q.tenant))
}

// concerns reports whether the event is about the tenant that the officer asked about, or about something that the tenant uses.
func concerns(reads *admin.Reader, q asked, e *event.Occurrence) bool {
	switch {
	case q.tenant == "" || e.Type == event.Resync || e.Tenant == q.tenant:
		return true
	case e.Tenant != "":
		return false // it is another's, also if both use the server
	case e.Server != "":
		return admin.UsesServer(reads, q.tenant, e.Server)
	}
	return e.Type == event.Configuration
}
