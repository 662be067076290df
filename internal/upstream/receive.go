package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Resuming a stream that the server ended before the answer.
const (
	maxResumes  = 10               // that fail in a row
	resumeDelay = time.Second      // where the server asks for less, and had nothing to say
	resumeStep  = resumeDelay / 20 // until it is so long
	maxStream   = 1 << 30          // bytes of one answer's stream
)

// receive reads the answer to f, and what the server says before it. It
// returns a *fault where there is none, and nil where f is finished.
func (w *web) receive(f *flight, resp *http.Response) error {
	version, session := w.state()
	legacy := !wire.Modern(version)
	switch {
	case resp.StatusCode == http.StatusNotFound && legacy && session != "":
		// The server does not know the session, and so has done nothing.
		e := faultf(kindGone, false, "it no longer knows our session")
		e.status = resp.StatusCode
		return e
	case resp.StatusCode/100 != 2:
		return w.refused(f, resp)
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return faultf(kindInvalid, true, "its answer is compressed, which was not asked for")
	}
	if f.method == wire.MethodInitialize {
		id := resp.Header.Get(wire.HeaderSessionID)
		if !okSession(id) {
			return faultf(kindProtocol, true, "the id of its session is no id")
		}
		w.join(id)
	}
	kind := resp.Header.Get("Content-Type")
	if kind != "application/json" { // as most spell it
		kind, _, _ = mime.ParseMediaType(kind)
	}
	switch kind {
	case "application/json":
		return w.single(f, resp)
	case "text/event-stream":
		return w.stream(f, resp, legacy)
	}
	return faultf(kindInvalid, true, "its answer has HTTP status %d and is neither JSON nor a stream of events", resp.StatusCode)
}

// refused reads an answer that is not 2xx.
func (w *web) refused(f *flight, resp *http.Response) error {
	e := httpFault(resp)
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return e
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody+1))
	if err != nil || len(body) > maxErrorBody {
		return e
	}
	m, err := wire.ParseEnvelope(body)
	answered := err == nil && m.ErrorObject != nil
	switch {
	case answered && string(m.ID) == string(f.id):
	case resp.StatusCode == http.StatusBadRequest && w.forgotten(f):
		e = faultf(kindGone, false, "it no longer knows our session")
		e.status = resp.StatusCode
		return e
	case !answered || len(m.ID) > 0:
		return e
	}
	f.finish(m, resp.StatusCode, nil)
	return nil
}

// forgotten reports whether a legacy server has forgotten the session, and so
// refused f unread. It should have said so with 404, but many say 400 and name
// no request: then they say it to a ping as well.
func (w *web) forgotten(f *flight) bool {
	version, session := w.state()
	if session == "" || wire.Modern(version) || f.method == wire.MethodPing || f.opening() {
		return false
	}
	if err := w.link.failure(); err != nil && asFault(err).kind == kindGone {
		return true // another request has found out
	}
	ctx, done := w.span(f)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, cancelPatience)
	defer cancel()
	ping := w.link.newFlight(wire.MethodPing, func([]byte) []byte { return nil })
	if err := w.link.fly(ctx, ping, nil); err != nil {
		s := asFault(err).status
		return s == http.StatusBadRequest || s == http.StatusNotFound
	}
	return ping.status == http.StatusBadRequest && len(ping.answer.ID) == 0
}

// httpFault is what a status other than 2xx means.
func httpFault(resp *http.Response) *fault {
	e := faultf(kindRefused, true, "it answered with HTTP status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	e.status = resp.StatusCode
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		e.kind, e.after = kindLimited, retryAfter(resp.Header.Get("Retry-After"))
	case code >= 500:
		e.kind = kindBroken
	case code/100 == 3:
		e.text += ": redirects are not followed; configure the address that it names"
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.text += ": check the credentials in its headers"
	}
	return e
}

// retryAfter reads a number of seconds, up to an hour. Dates are passed over.
func retryAfter(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, time.Hour)
}

// single reads an answer that is one message.
func (w *web) single(f *flight, resp *http.Response) error {
	if resp.ContentLength > int64(w.link.most) {
		return w.link.tooLarge(fmt.Sprintf(" of %d bytes", resp.ContentLength))
	}
	body, lent, err := readAll(resp.Body, int(resp.ContentLength), w.link.most)
	switch {
	case errors.Is(err, errTooLarge):
		return w.link.tooLarge("")
	case err != nil:
		return faultf(kindLost, true, "its answer broke off: %s", w.plain(err))
	}
	m, err := wire.ParseEnvelope(body)
	if err != nil {
		w.link.drop("its answer is no message")
		return faultf(kindInvalid, true, "its answer is no message of JSON-RPC")
	}
	if m.Kind != wire.Response || string(m.ID) != string(f.id) && (m.ErrorObject == nil || len(m.ID) > 0) {
		w.link.drop("it answers something else")
		return faultf(kindInvalid, true, "it answered something else than what was asked")
	}
	f.finishIn(lent, m, resp.StatusCode, nil)
	return nil
}

var errTooLarge = errors.New("too large")

// spare is how much more memory is taken for an answer than it needs: one byte to
// see that it has ended, and room for what goes to the client behind it.
const spare = 256

// readAll reads at most limit bytes into memory that is lent. size is how many to
// expect, or -1.
func readAll(r io.Reader, size, limit int) ([]byte, loan, error) {
	const first, most = 4 << 10, 2 << 20
	if size < 0 {
		size = first
	}
	l, n := borrow(min(size, most)+spare), 0 // what it promises it need not send
	for {
		more, err := r.Read(l.room[n:])
		n += more
		switch {
		case n > limit:
			err = errTooLarge
		case errors.Is(err, io.EOF):
			return l.room[:n], l, nil
		case err == nil && n == len(l.room):
			bigger := borrow(max(2*n, min(size, limit)+spare))
			copy(bigger.room, l.room)
			l.repay()
			l = bigger
		}
		if err != nil {
			l.repay()
			return nil, loan{}, err
		}
	}
}

// stream reads an answer that is a stream of events, resuming it where a legacy
// server has ended it and told how to go on.
func (w *web) stream(f *flight, resp *http.Response, legacy bool) error {
	last, retry, err := w.events(resp.Body, f)
	if err != nil || f.ended() {
		return err
	}
	if !legacy || last == "" {
		return faultf(kindLost, true, "its stream ended without an answer")
	}
	return w.resume(f, last, retry)
}

// resume goes on with a stream after the event last, once retry has passed.
func (w *web) resume(f *flight, last string, retry time.Duration) (err error) {
	ctx, cancel := w.span(f)
	defer cancel()
	for idle, fails := 0, 0; err == nil && !f.ended(); {
		// It may end each stream before it has the answer, so that we come
		// back as long as the call may take.
		if sleep(ctx, max(retry, min(time.Duration(idle)*resumeStep, resumeDelay))) != nil {
			return faultf(kindLost, true, "its stream ended without an answer")
		}
		idle++ // by each, since some begin each stream with an event
		again, failed := w.get(ctx, last)
		if failed != nil {
			if fails++; asFault(failed).kind == kindRefused || fails == maxResumes {
				return faultf(kindLost, true, "its stream ended without an answer, and was not resumed: %s", failed)
			}
			continue
		}
		fails = 0
		var next string
		var wait time.Duration
		next, wait, err = w.events(again.Body, f)
		_ = again.Body.Close()
		last, retry = cmp.Or(next, last), cmp.Or(wait, retry)
	}
	return err
}

// events reads events until the stream ends or f, which may be nil, does. It
// returns what is needed to resume; the error is a *fault.
func (w *web) events(body io.Reader, f *flight) (last string, retry time.Duration, err error) {
	return w.follow(wire.NewEventReader(io.LimitReader(body, maxStream), w.link.most), f)
}

// follow is events of a stream of which some may have been read.
func (w *web) follow(events *wire.EventReader, f *flight) (last string, retry time.Duration, err error) {
	own := flood{since: time.Now()}
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, wire.ErrEventTooLong) && f != nil:
			return "", 0, w.link.tooLarge("")
		case errors.Is(err, wire.ErrEventTooLong): // on a stream that others share
			var s skim
			n, err := events.Skip(s.feed, w.link.skipped())
			w.link.overlong(s.answered(), n, err == nil)
			too := own.tick(1, 0, 0)
			switch {
			case errors.Is(err, wire.ErrEventTooLong):
				return "", 0, faultf(kindLost, true, "its stream has an event without end")
			case too != "":
				return "", 0, faultf(kindLost, true, "%s", too)
			}
			continue // what else is wrong is said again
		case errors.Is(err, io.EOF):
			return events.LastID(), events.Retry(), nil
		case err != nil && events.LastID() == "":
			return "", 0, faultf(kindLost, true, "its stream broke off: %s", w.plain(err))
		case err != nil:
			return events.LastID(), events.Retry(), nil
		case len(e.Data) == 0 || e.Type != "" && e.Type != "message":
			continue
		}
		m, err := wire.ParseEnvelope(e.Data)
		junk, chatter := 0, 0
		switch {
		case err != nil:
			w.link.drop("an event is no message")
			junk = 1
		case !w.link.dispatch(loan{}, m, f):
			chatter = 1
		}
		if f != nil && f.ended() {
			return "", 0, nil
		}
		if too := own.tick(junk, len(e.Data)*junk, chatter); too != "" {
			return "", 0, faultf(kindLost, true, "%s", too)
		}
	}
}

// get opens a stream of the server's own, after the event last.
func (w *web) get(ctx context.Context, last string) (*http.Response, error) {
	req, err := w.request(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, faultf(kindLost, true, "%s", w.plain(err))
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set(wire.HeaderLastEventID, last)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, faultf(kindLost, true, "no stream: %s", w.plain(err)).advised(err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && kind == "text/event-stream" {
		return resp, nil
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil, faultf(kindRefused, true, "it answered a request for a stream with something else")
	}
	return nil, httpFault(resp)
}

// sleep waits for d, or returns ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
