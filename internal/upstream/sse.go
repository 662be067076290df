package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of HTTP with SSE, the transport of 2024-11-05.
const (
	endpointPatience = 10 * time.Second // for the first event of a stream
	maxEndpoint      = 8 << 10          // bytes of the address in it
)

// eventEndpoint is the type of that event.
const eventEndpoint = "endpoint"

// sse is the port to a server over HTTP with SSE. What we say is posted to the
// address that the first event of a stream names; what the server says, answers
// too, comes on that stream. The link ends with the stream.
type sse struct {
	*web
	stream io.ReadCloser
	events *wire.EventReader
	read   chan struct{} // closed when nothing more will be read
}

// openHTTP connects to a server over HTTP, of whichever of the two transports.
// As the protocol wants it, the old one is tried where the new one was refused.
func (s *server) openHTTP(ctx context.Context, cfg *switchboard.Server, o owner) (*link, error) {
	if s.known.overSSE() {
		l, err := s.openSSE(ctx, cfg, o)
		if err == nil || saysNothing(err) {
			return l, err
		}
		s.known.learn("") // it may have changed
	}
	l := s.newLink(o)
	w, err := openWeb(l, cfg, s.http)
	if err != nil {
		return nil, faultf(kindUnreachable, false, "%s", err)
	}
	got, err := s.greet(l, o, w, func() (hello, error) { return greetWeb(ctx, l, w, s.known) })
	if err == nil || !refusesPosts(err) {
		return got, err
	}
	got, old := s.openSSE(ctx, cfg, o)
	if old != nil && !s.known.overSSE() {
		return nil, err // it is none of these either
	}
	return got, old
}

// refusesPosts reports whether a server that has answered initialize with err
// may be one over HTTP with SSE.
func refusesPosts(err error) bool {
	f := asFault(err)
	switch f.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return f.kind == kindRefused && !modernOnly(err)
	}
	return false
}

// openSSE connects to a server over HTTP with SSE. That it is one is remembered
// when it names its endpoint.
func (s *server) openSSE(ctx context.Context, cfg *switchboard.Server, o owner) (*link, error) {
	l := s.newLink(o)
	w, err := openWeb(l, cfg, s.http)
	if err != nil {
		return nil, faultf(kindUnreachable, false, "%s", err)
	}
	p := &sse{web: w, read: make(chan struct{})}
	endpoint, err := p.listen(ctx)
	if err == nil {
		s.known.learnSSE()
		err = p.target(endpoint)
	}
	if err != nil {
		w.cancel()
		if p.stream != nil {
			_ = p.stream.Close()
		}
		return nil, err
	}
	w.taken = p.accepted
	l.port, l.severs = p, true
	go p.serve()
	return s.greet(l, o, nil, func() (hello, error) {
		h, err := l.initialize(ctx)
		if err != nil {
			return hello{}, err
		}
		return h, w.send(ctx, initialized())
	})
}

// listen opens the stream and returns the address in its first event.
func (p *sse) listen(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, endpointPatience)
	defer cancel()
	// The stream goes on when ctx, which is of the opening only, has ended.
	defer context.AfterFunc(ctx, p.cancel)()
	var e wire.Event
	resp, err := p.get(p.ctx, "")
	if err == nil {
		p.stream, p.events = resp.Body, wire.NewEventReader(resp.Body, p.link.most)
		e, err = p.events.Next()
	}
	switch {
	case ctx.Err() != nil:
		return "", faultf(kindSilent, false, "its stream of events does not begin")
	case p.stream == nil:
		return "", err
	case err != nil:
		return "", faultf(kindLost, false, "its stream broke off: %s", p.plain(err))
	case e.Type != eventEndpoint:
		return "", faultf(kindProtocol, false, "its stream of events does not begin with an endpoint")
	}
	return string(e.Data), nil
}

// target sets the address to which messages are posted. Our credentials go along,
// so that it must be of the origin that they were configured for.
func (p *sse) target(endpoint string) error {
	base, err := url.Parse(p.url)
	if err != nil {
		return faultf(kindUnreachable, false, "its URL is none")
	}
	u, err := base.Parse(strings.TrimSpace(endpoint))
	switch {
	case err != nil || len(endpoint) > maxEndpoint || u.User != nil:
		return faultf(kindProtocol, false, "the endpoint that it names is no address")
	case origin(u) != origin(base):
		return faultf(kindProtocol, false, "the endpoint that it names is at %s and not at %s, so that nothing is sent there",
			p.link.mask.line([]byte(origin(u)), maxQuoted, true), origin(base))
	}
	u.Fragment = ""
	p.url = u.String()
	if err := p.aim(); err != nil {
		return faultf(kindProtocol, false, "%s", err)
	}
	return nil
}

// origin is the scheme, host and port of u.
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// serve reads what the server says, until its stream ends.
func (p *sse) serve() {
	defer close(p.read)
	defer p.stream.Close() //nolint:errcheck // it was only read
	_, _, err := p.follow(p.events, nil)
	if err == nil {
		err = errors.New("its stream of events ended")
	}
	// Whatever it was: what is under way may have been executed.
	p.link.fail(faultf(kindLost, true, "%s", err))
}

// start implements port.
func (p *sse) start(f *flight) {
	p.web.start(f)
	if f.ctx != nil {
		// The answer comes by the stream; a server need not have answered
		// the request that was posted.
		context.AfterFunc(f.ctx, func() { time.AfterFunc(drainPatience, f.halt) })
	}
}

// carry implements port: what comes back is for all.
func (p *sse) carry(f *flight) { p.start(f) }

// accepted reads what a server says to a message that was posted to it: that it
// has taken it. The error is a *fault.
func (p *sse) accepted(_ *flight, resp *http.Response) error {
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusNotFound:
		// The server does not know the session, and so has done nothing.
		e := faultf(kindGone, false, "it no longer knows our session")
		e.status = resp.StatusCode
		return e
	}
	return httpFault(resp)
}

// shut implements port. Nothing is under way any more that could be answered.
func (p *sse) shut(<-chan struct{}) {
	p.cancel()
	<-p.busy.close()
	<-p.read
}
