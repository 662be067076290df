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
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of HTTP with SSE, the transport of 2024-11-05.
const (
	endpointTimeout = 10 * time.Second // until the first event of the stream
	maxEndpoint     = 8 << 10          // bytes of the address in the first event
)

// eventEndpoint is the type of the first event.
const eventEndpoint = "endpoint"

// ssePort is the port to a server over HTTP with SSE. The first event of a stream names an address,
// and we POST our messages there. All messages of the server, including responses, come on the
// stream. The link ends with the stream.
type ssePort struct {
	*httpPort
	stream   io.ReadCloser
	events   *wire.EventReader
	readDone chan struct{} // closed when reading has ended
}

// openHTTP connects to a server over HTTP, with either transport. As the protocol demands, it tries
// the old transport if the server refused the new one.
func (o *linkOpener) openHTTP(ctx context.Context, cfg *switchboard.Server, c linkUser) (*link, error) {
	if o.era.usesSSE() {
		l, err := o.openSSE(ctx, cfg, c)
		if err == nil || leavesEraOpen(err) {
			return l, err
		}
		o.era.setEra("") // the server may have changed
	}
	l := o.newLink(c)
	w, err := newHTTPPort(l, cfg, o.httpClients)
	if err != nil {
		return nil, exchangeErrorf(kindUnreachable, false, "%s", err)
	}
	got, err := o.handshake(l, c, w, func() (serverHello, error) { return greetHTTP(ctx, l, w, o.era) })
	if err == nil || !refusesPosts(err) {
		return got, err
	}
	got, old := o.openSSE(ctx, cfg, c)
	if old != nil && !o.era.usesSSE() {
		return nil, err // it has neither transport
	}
	return got, old
}

// refusesPosts reports whether a server that answered initialize with err may speak HTTP with SSE.
func refusesPosts(err error) bool {
	f := asExchangeError(err)
	switch f.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return f.kind == kindRefused && !modernOnly(err)
	}
	return false
}

// openSSE connects to a server over HTTP with SSE. It remembers that transport when the server has
// named its endpoint.
func (o *linkOpener) openSSE(ctx context.Context, cfg *switchboard.Server, c linkUser) (*link, error) {
	l := o.newLink(c)
	w, err := newHTTPPort(l, cfg, o.httpClients)
	if err != nil {
		return nil, exchangeErrorf(kindUnreachable, false, "%s", err)
	}
	p := &ssePort{httpPort: w, readDone: make(chan struct{})}
	endpoint, err := p.openEndpoint(ctx)
	if err == nil {
		o.era.setSSE()
		err = p.setEndpoint(endpoint)
	}
	if err != nil {
		w.stop()
		if p.stream != nil {
			_ = p.stream.Close()
		}
		return nil, err
	}
	w.onResponse = p.checkAccepted
	l.port, l.requests.endsPending = p, true
	go p.serveStream()
	return o.handshake(l, c, nil, func() (serverHello, error) {
		h, err := initialize(ctx, l)
		if err != nil {
			return serverHello{}, err
		}
		return h, w.postAndWait(ctx, initializedNotification())
	})
}

// openEndpoint opens the stream and returns the address in its first event.
func (p *ssePort) openEndpoint(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	// ctx limits only the opening. The stream outlives it.
	defer context.AfterFunc(ctx, p.stop)()
	var e wire.Event
	resp, err := p.openStream(p.ctx, "")
	if err == nil {
		p.stream, p.events = resp.Body, wire.NewEventReader(resp.Body, p.link.maxBytes)
		e, err = p.events.Next()
	}
	switch {
	case ctx.Err() != nil:
		return "", exchangeErrorf(kindSilent, false, "its stream of events does not begin")
	case p.stream == nil:
		return "", err
	case err != nil:
		return "", exchangeErrorf(kindLost, false, "its stream broke off: %s", p.errorText(err))
	case e.Type != eventEndpoint:
		return "", exchangeErrorf(kindProtocol, false, "its stream of events does not begin with an endpoint")
	}
	return string(e.Data), nil
}

// setEndpoint sets the address for POSTs. They carry our credentials, so the address must have the
// origin that the credentials were configured for.
func (p *ssePort) setEndpoint(endpoint string) error {
	base, err := url.Parse(p.endpoint.url)
	if err != nil {
		return exchangeErrorf(kindUnreachable, false, "its URL is not valid")
	}
	u, err := base.Parse(strings.TrimSpace(endpoint))
	switch {
	case err != nil || len(endpoint) > maxEndpoint || u.User != nil:
		return exchangeErrorf(kindProtocol, false, "the endpoint that it names is not a valid address")
	case origin(u) != origin(base):
		return exchangeErrorf(kindProtocol, false, "the endpoint that it names is at %s and not at %s, so that nothing is sent there",
			p.link.mask.Line([]byte(origin(u)), mask.MaxQuoted, true), origin(base))
	}
	u.Fragment = ""
	if err := p.endpoint.setURL(u.String()); err != nil {
		return exchangeErrorf(kindProtocol, false, "%s", err)
	}
	return nil
}

// origin returns the scheme, host and port of u.
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// serveStream reads the messages of the server until the stream ends.
func (p *ssePort) serveStream() {
	defer close(p.readDone)
	defer p.stream.Close() //nolint:errcheck // it was only read
	_, _, err := p.followEvents(p.events, nil)
	if err == nil {
		err = errors.New("its stream of events ended")
	}
	// Whatever the reason is, the server may have executed the pending requests.
	p.link.fail(exchangeErrorf(kindLost, true, "%s", err))
}

// start implements port.
func (p *ssePort) start(f *pendingRequest) {
	p.httpPort.start(f)
	if f.ctx != nil {
		// The response comes on the stream. The server need not have answered the POST by then.
		context.AfterFunc(f.ctx, func() { time.AfterFunc(drainTimeout, f.sending.Halt) })
	}
}

// startBlocking implements port. The responses come on a shared stream.
func (p *ssePort) startBlocking(f *pendingRequest) { p.start(f) }

// checkAccepted checks the response to a POST: the server must have accepted the message. The error
// is an *exchangeError.
func (p *ssePort) checkAccepted(_ *pendingRequest, resp *http.Response) error {
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusNotFound:
		// The server does not know the session, so it has not executed the request.
		e := exchangeErrorf(kindGone, false, "it no longer knows our session")
		e.status = resp.StatusCode
		return e
	}
	return statusError(resp)
}

// shutDown implements port. No pending request can be answered any more.
func (p *ssePort) shutDown(<-chan struct{}) {
	p.stop()
	<-p.tasks.Close()
	<-p.readDone
}
