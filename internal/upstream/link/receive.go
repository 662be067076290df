package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// How to resume a stream that the server ended before the answer.
const (
	maxResumes  = 10               // failures in a row
	resumeDelay = time.Second      // longest wait if the server asks for less and its streams are empty
	resumeStep  = resumeDelay / 20 // added to the wait after each stream
	maxStream   = 1 << 30          // bytes of one stream
)

// readAnswer reads the response to f and the notifications before it. It returns nil if f is
// finished, and an *ExchangeError otherwise.
func (w *httpPort) readAnswer(f *Request, resp *http.Response) error {
	version, session := w.endpoint.State()
	legacy := !wire.Modern(version)
	switch {
	case resp.StatusCode == http.StatusNotFound && legacy && session != "":
		// The server does not know the session, so it has not executed the request.
		e := Errorf(KindGone, false, "it no longer knows our session")
		e.Status = resp.StatusCode
		return e
	case resp.StatusCode/100 != 2:
		if e := w.auth.readDemand(f.owner, f.shown, f.client == nil, resp); e != nil {
			return e
		}
		return w.readRefusal(f, resp)
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return Errorf(KindInvalid, true, "its answer is compressed, which we do not accept")
	}
	if f.Method == wire.MethodInitialize {
		id := resp.Header.Get(wire.HeaderSessionID)
		if !endpoint.ValidSessionID(id) {
			return Errorf(KindProtocol, true, "the id of its session is not valid")
		}
		w.endpoint.SetSession(id)
	}
	kind := resp.Header.Get("Content-Type")
	if kind != "application/json" { // most servers spell it so
		kind, _, _ = mime.ParseMediaType(kind)
	}
	switch kind {
	case "application/json":
		return w.readMessage(f, resp)
	case "text/event-stream":
		return w.readStream(f, resp, legacy)
	}
	return Errorf(KindInvalid, true, "its answer has HTTP status %d and is neither JSON nor a stream of events", resp.StatusCode)
}

// readRefusal reads a response with a status other than 2xx.
func (w *httpPort) readRefusal(f *Request, resp *http.Response) error {
	e := w.link.statusError(resp)
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return e
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxErrorBody+1))
	if err != nil || len(body) > MaxErrorBody {
		return e
	}
	m, err := wire.ParseEnvelope(body)
	answered := err == nil && m.ErrorObject != nil
	switch {
	case answered && string(m.ID) == string(f.ID):
	case resp.StatusCode == http.StatusBadRequest && w.sessionForgotten(f):
		e = Errorf(KindGone, false, "it no longer knows our session")
		e.Status = resp.StatusCode
		return e
	case !answered || len(m.ID) > 0:
		return e
	}
	f.Finish(m, resp.StatusCode, nil)
	return nil
}

// sessionForgotten reports whether a legacy server has forgotten the session, and therefore has not
// executed f. It should say so with 404. Many servers say 400 without a request id instead, and do
// the same for a ping.
func (w *httpPort) sessionForgotten(f *Request) bool {
	version, session := w.endpoint.State()
	if session == "" || wire.Modern(version) || f.Method == wire.MethodPing || f.isHandshake() {
		return false
	}
	if err := w.link.Failure(); err != nil && AsError(err).Kind == KindGone {
		return true // another request has found out
	}
	ctx, done := w.requestContext(f)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	ping := w.link.newRequest(wire.MethodPing, nil)
	if err := w.link.roundTrip(ctx, ping, nil); err != nil {
		s := AsError(err).Status
		return s == http.StatusBadRequest || s == http.StatusNotFound
	}
	return ping.response.status == http.StatusBadRequest && len(ping.response.answer.ID) == 0
}

// statusError returns the error for a status other than 2xx. Its text goes to the log and to operators.
func (l *Link) statusError(resp *http.Response) *ExchangeError {
	e := Errorf(KindRefused, true, "it answered with HTTP status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	e.Status = resp.StatusCode
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		e.Kind, e.After = KindLimited, retryAfter(resp.Header.Get("Retry-After"))
	case code >= 500:
		e.Kind = KindBroken
	case code/100 == 3:
		e.Text += ": redirects are not followed; configure the address that it names"
		if to, err := url.Parse(resp.Header.Get("Location")); err == nil && to.Path != "" {
			shown := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path} // the rest may have secrets
			e.Text += ": " + l.mask.Line([]byte(shown.String()), mask.MaxQuoted, true)
		}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Text += ": check the credentials in its headers"
	}
	return e
}

// retryAfter parses a number of seconds, up to an hour. It ignores dates.
func retryAfter(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, time.Hour)
}

// readMessage reads a response that is one JSON message.
func (w *httpPort) readMessage(f *Request, resp *http.Response) error {
	if resp.ContentLength > int64(w.link.maxBytes) {
		return w.link.tooLargeError(fmt.Sprintf(" of %d bytes", resp.ContentLength))
	}
	body, lent, err := frame.ReadAll(resp.Body, int(resp.ContentLength), w.link.maxBytes)
	switch {
	case errors.Is(err, frame.ErrTooLarge):
		return w.link.tooLargeError("")
	case err != nil:
		return Errorf(KindLost, true, "its answer broke off: %s", w.errorText(err))
	}
	m, err := wire.ParseEnvelope(body)
	if err != nil {
		w.link.inbox.drop("its answer is not a message")
		return Errorf(KindInvalid, true, "its answer is not a JSON-RPC message")
	}
	if m.Kind != wire.Response || string(m.ID) != string(f.ID) && (m.ErrorObject == nil || len(m.ID) > 0) {
		w.link.inbox.drop("it answers something else")
		return Errorf(KindInvalid, true, "it answered a different request")
	}
	f.finishWith(lent, m, resp.StatusCode, nil)
	return nil
}

// readStream reads a response that is a stream of events. If a legacy server ended the stream early
// and gave an event id, readStream resumes it.
func (w *httpPort) readStream(f *Request, resp *http.Response, legacy bool) error {
	last, retry, err := w.readEvents(resp.Body, f)
	if err != nil || f.isFinished() {
		return err
	}
	if !legacy || last == "" {
		return Errorf(KindLost, true, "its stream ended without an answer")
	}
	return w.resumeStream(f, last, retry)
}

// resumeStream continues a stream after the event last, when retry has passed.
func (w *httpPort) resumeStream(f *Request, last string, retry time.Duration) (err error) {
	ctx, cancel := w.requestContext(f)
	defer cancel()
	for idle, fails := 0, 0; err == nil && !f.isFinished(); {
		// The server may end each stream before it has the answer. So we continue as long as the
		// call may take.
		if task.Sleep(ctx, max(retry, min(time.Duration(idle)*resumeStep, resumeDelay))) != nil {
			return Errorf(KindLost, true, "its stream ended without an answer")
		}
		idle++ // counts each stream, because some servers begin each with an event
		again, failed := w.openStream(ctx, last, false)
		if failed != nil {
			if fails++; AsError(failed).Kind == KindRefused || fails == maxResumes {
				return Errorf(KindLost, true, "its stream ended without an answer, and was not resumed: %s", failed)
			}
			continue
		}
		fails = 0
		var next string
		var wait time.Duration
		next, wait, err = w.readEvents(again.Body, f)
		_ = again.Body.Close()
		last, retry = cmp.Or(next, last), cmp.Or(wait, retry)
	}
	return err
}

// readEvents reads events until the stream ends or f, which may be nil, is finished. It returns the
// last event id and the wait before resuming. The error is an *ExchangeError.
func (w *httpPort) readEvents(body io.Reader, f *Request) (last string, retry time.Duration, err error) {
	return w.followEvents(wire.NewEventReader(io.LimitReader(body, maxStream), w.link.maxBytes), f)
}

// followEvents is readEvents for a stream that may be partly read.
func (w *httpPort) followEvents(events *wire.EventReader, f *Request) (last string, retry time.Duration, err error) {
	own := floodMeter{since: time.Now()}
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, wire.ErrEventTooLong) && f != nil:
			return "", 0, w.link.tooLargeError("")
		case errors.Is(err, wire.ErrEventTooLong): // on a shared stream
			var s frame.IDScanner
			var cut error
			n, err := events.Skip(s.Feed, frame.MaxSkip(w.link.maxBytes))
			switch {
			case errors.Is(err, wire.ErrEventTooLong):
				cut = Errorf(KindLost, true, "its stream has an event without end")
			case errors.Is(err, io.EOF):
				cut = Errorf(KindLost, true, "its stream ended within an event")
			case err != nil:
				cut = Errorf(KindLost, true, "its stream broke off: %s", w.errorText(err))
			}
			w.link.failTooLong(s.ResponseID(), n, cut)
			too := own.add(1, 0, 0)
			switch {
			case errors.Is(err, wire.ErrEventTooLong):
				return "", 0, cut
			case too != "":
				return "", 0, Errorf(KindLost, true, "%s", too)
			}
			continue // the next call returns other errors again
		case errors.Is(err, io.EOF):
			return events.LastID(), events.Retry(), nil
		case err != nil && events.LastID() == "":
			return "", 0, Errorf(KindLost, true, "its stream broke off: %s", w.errorText(err))
		case err != nil:
			return events.LastID(), events.Retry(), nil
		case len(e.Data) == 0 || e.Type != "" && e.Type != "message":
			continue
		}
		m, err := wire.ParseEnvelope(e.Data)
		junk, chatter := 0, 0
		switch {
		case err != nil:
			w.link.inbox.drop("an event is not a message")
			junk = 1
		case !w.link.inbox.dispatch(frame.Buffer{}, m, f):
			chatter = 1
		}
		if f != nil && f.isFinished() {
			return "", 0, nil
		}
		if too := own.add(junk, len(e.Data)*junk, chatter); too != "" {
			return "", 0, Errorf(KindLost, true, "%s", too)
		}
	}
}

// openStream opens a stream with GET, after the event last.
func (w *httpPort) openStream(ctx context.Context, last string, demands bool) (*http.Response, error) {
	req, err := w.endpoint.NewRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, Errorf(KindLost, true, "%s", w.errorText(err))
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set(wire.HeaderLastEventID, last)
	}
	resp, shown, err := w.do(req)
	if err != nil {
		if own, ok := errors.AsType[*ExchangeError](err); ok {
			return nil, own // there is no token
		}
		return nil, Errorf(KindLost, true, "no stream: %s", w.errorText(err)).WithRemedy(err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode/100 == 2 && kind == "text/event-stream" {
		return resp, nil
	}
	_ = resp.Body.Close()
	if demands {
		if e := w.auth.readDemand(w.link.owner, shown, true, resp); e != nil {
			return nil, e
		}
	}
	if resp.StatusCode/100 == 2 {
		return nil, Errorf(KindRefused, true, "it answered a request for a stream, but not with a stream")
	}
	return nil, w.link.statusError(resp)
}
