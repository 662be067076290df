package link

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
	MaxEndpoint     = 8 << 10          // bytes of the address in the first event
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
func (o *Opener) openHTTP(ctx context.Context, cfg *switchboard.Server, c Usage) (*Link, error) {
	if o.Era.UsesSSE() {
		l, err := o.openSSE(ctx, cfg, c)
		if err == nil || LeavesEraOpen(err) {
			return l, err
		}
		o.Era.setEra("") // the server may have changed
	}
	l := o.newLink(c)
	w, err := newHTTPPort(l, cfg, o.HTTP, o.Credentials)
	if err != nil {
		return nil, Errorf(KindUnreachable, false, "%s", err)
	}
	got, err := o.handshake(l, c, w, func() (Hello, error) { return greetHTTP(ctx, l, w, o.Era) })
	if err == nil || !refusesPosts(err) {
		return got, err
	}
	got, old := o.openSSE(ctx, cfg, c)
	if old == nil || o.Era.UsesSSE() {
		return got, old
	}
	switch AsError(old).Kind {
	case KindUnauthorized, KindScope: // it demands a token for its stream
		return nil, old
	}
	return nil, err // it has neither transport
}

// refusesPosts reports whether a server that answered initialize with err may speak HTTP with SSE.
func refusesPosts(err error) bool {
	f := AsError(err)
	switch f.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return f.Kind == KindRefused && !modernOnly(err)
	}
	return false
}

// openSSE connects to a server over HTTP with SSE. It remembers that transport when the server has
// named its endpoint.
func (o *Opener) openSSE(ctx context.Context, cfg *switchboard.Server, c Usage) (*Link, error) {
	l := o.newLink(c)
	w, err := newHTTPPort(l, cfg, o.HTTP, o.Credentials)
	if err != nil {
		return nil, Errorf(KindUnreachable, false, "%s", err)
	}
	p := &ssePort{httpPort: w, readDone: make(chan struct{})}
	endpoint, err := p.openEndpoint(ctx)
	if err == nil {
		o.Era.setSSE()
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
	l.Use(p, true)
	go p.serveStream()
	return o.handshake(l, c, nil, func() (Hello, error) {
		h, err := initialize(ctx, l)
		if err != nil {
			return Hello{}, err
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
	resp, err := p.openStream(p.ctx, "", true)
	if err == nil {
		p.stream, p.events = resp.Body, wire.NewEventReader(resp.Body, p.link.maxBytes)
		e, err = p.events.Next()
	}
	switch {
	case ctx.Err() != nil:
		return "", Errorf(KindSilent, false, "its stream of events does not begin")
	case p.stream == nil:
		return "", err
	case err != nil:
		return "", Errorf(KindLost, false, "its stream broke off: %s", p.errorText(err))
	case e.Type != eventEndpoint:
		return "", Errorf(KindProtocol, false, "its stream of events does not begin with an endpoint")
	}
	return string(e.Data), nil
}

// setEndpoint sets the address for POSTs. They carry our credentials, so the address must have the
// origin that the credentials were configured for.
func (p *ssePort) setEndpoint(endpoint string) error {
	base, err := url.Parse(p.endpoint.URL)
	if err != nil {
		return Errorf(KindUnreachable, false, "its URL is not valid")
	}
	u, err := base.Parse(strings.TrimSpace(endpoint))
	switch {
	case err != nil || len(endpoint) > MaxEndpoint || u.User != nil:
		return Errorf(KindProtocol, false, "the endpoint that it names is not a valid address")
	case origin(u) != origin(base):
		return Errorf(KindProtocol, false, "the endpoint that it names is at %s and not at %s, so that nothing is sent there",
			p.link.mask.Line([]byte(origin(u)), mask.MaxQuoted, true), origin(base))
	}
	u.Fragment = ""
	if err := p.endpoint.SetURL(u.String()); err != nil {
		return Errorf(KindProtocol, false, "%s", err)
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
	// In any case, the server may have executed the pending requests.
	p.link.Fail(Errorf(KindLost, true, "%s", err))
}

// Start implements Port.
func (p *ssePort) Start(f *Request) {
	p.httpPort.Start(f)
	if ctx := f.context(); ctx != nil {
		// The response comes on the stream. The server need not have answered the POST by then.
		context.AfterFunc(ctx, func() { time.AfterFunc(DrainTimeout, f.Sending.Halt) })
	}
}

// StartBlocking implements Port. The responses come on a shared stream.
func (p *ssePort) StartBlocking(f *Request) { p.Start(f) }

// checkAccepted checks the response to a POST: the server must have accepted the message. The error
// is an *ExchangeError.
func (p *ssePort) checkAccepted(f *Request, resp *http.Response) error {
	if e := p.auth.readDemand(f.owner, f.shown, f.client == nil, resp); e != nil {
		return e
	}
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusNotFound:
		// The server does not know the session, so it has not executed the request.
		e := Errorf(KindGone, false, "it no longer knows our session")
		e.Status = resp.StatusCode
		return e
	}
	return p.link.statusError(resp)
}

// ShutDown implements Port. No pending request can be answered any more.
func (p *ssePort) ShutDown(<-chan struct{}) {
	p.stop()
	<-p.tasks.Close()
	<-p.readDone
}
