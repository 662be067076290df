// Package route opens the connections to servers: directly or through a proxy, and with the right certificates.
//
// It decides, for one server, which proxy leads to it (the server's own setting, else the environment) and which
// certificates count. All connections to a server are opened here, so none bypasses its proxy. Which addresses a name
// may lead to is decided by package dial, for the server or, if there is one, for the proxy: a proxy resolves the names
// of servers itself, so that rule is then delegated to it. What is sent is not known here.
package route

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/certfile"
	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// environmentProxy returns the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for the address, nil for none. It
// returns none for this machine.
var environmentProxy = func(u *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: u}) }

// A ServerRoute is the way to one server. It is safe for concurrent use.
type ServerRoute struct {
	proxy       *url.URL        // nil: none
	environment bool            // the environment names the proxy
	serverName  string          // in the server's certificate; "" means the host of the address
	roots       *certfile.Roots // nil: those of the system
	pair        *certfile.Pair  // nil: none
	err         error           // why no connection can be opened
}

// New returns the route to the server at u with the settings n. report, which may be nil, is called with each fault of
// a certificate's file that is not used because of it.
func New(u *url.URL, n switchboard.Network, report func(error)) *ServerRoute {
	r := &ServerRoute{serverName: n.ServerName}
	if n.CA != "" {
		r.roots = certfile.NewRoots(n.CA, report)
	}
	if n.Cert != "" {
		r.pair = certfile.NewPair(n.Cert, n.Key, report)
	}
	switch text := n.Proxy.Reveal(); text {
	case switchboard.NoProxy:
	case "":
		at := *u
		at.User = nil
		if r.proxy, r.err = environmentProxy(&at); r.proxy != nil {
			r.environment = true
			r.err = CheckProxy(r.proxy)
		}
		if r.err != nil {
			r.err = &StepError{Step: StepProxy, Text: "the environment names a proxy (HTTPS_PROXY, HTTP_PROXY) that cannot be used", Remedy: "write it as http://HOST:PORT, or proxy: none into the server's row"}
		}
	default:
		if r.proxy, r.err = ParseProxy(text); r.err != nil {
			r.err = &StepError{Step: StepProxy, Text: "its proxy cannot be used: " + r.err.Error()}
		}
	}
	return r
}

// ParseProxy parses the URL of a proxy. Its error contains nothing of the URL.
func ParseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, errProxyForm
	}
	return u, CheckProxy(u)
}

// The faults of the URL of a proxy.
var (
	errProxyForm   = proxyFault("want an address such as http://proxy.example.com:3128 or socks5://proxy.example.com:1080, or the word none")
	errProxyScheme = proxyFault("a proxy is reached by http, https or socks5")
	errProxyPath   = proxyFault("the address of a proxy has no path, no query and no fragment; in its user and password, write @ as %40, / as %2F, : as %3A, # as %23 and ? as %3F")
	errProxyUser   = proxyFault("user and password for a SOCKS5 proxy have 1 to 255 bytes each")
)

type proxyFault string

func (f proxyFault) Error() string { return string(f) }

// CheckProxy returns an error if u cannot be the URL of a proxy.
func CheckProxy(u *url.URL) error {
	switch {
	case ports[u.Scheme] == "":
		return errProxyScheme
	case u.Hostname() == "":
		return errProxyForm
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errProxyPath
	case isSOCKS(u) && u.User != nil:
		password, _ := u.User.Password()
		if n := len(u.User.Username()); n == 0 || n > 255 || len(password) == 0 || len(password) > 255 {
			return errProxyUser
		}
	}
	return nil
}

// ports are the ports of proxies that give none, by scheme.
var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

func isSOCKS(u *url.URL) bool { return strings.HasPrefix(u.Scheme, "socks5") }

// Proxy returns the address of the proxy without user and password, "" if there is none, and whether the environment
// names it.
func (r *ServerRoute) Proxy() (shown string, environment bool) {
	if r.proxy == nil {
		return "", false
	}
	return r.proxy.Scheme + "://" + proxyAddress(r.proxy), r.environment
}

func proxyAddress(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), ports[u.Scheme]))
}

// A Conn is an open connection.
type Conn struct {
	net.Conn
	Raw net.Conn // the connection of TCP below, to the server or to the proxy; Conn itself if nothing is above it
}

// Dial opens a connection to the address HOST:PORT, with TLS if secure is true. It takes at most dial.Timeout. Where the reason
// is known, the error is a *StepError.
func (r *ServerRoute) Dial(ctx context.Context, address string, secure bool) (Conn, error) {
	return r.dial(ctx, address, secure, func(Leg, string) {})
}

// DialContext and DialTLSContext open connections for an http.Transport.
func (r *ServerRoute) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := r.Dial(ctx, address, false)
	return c.Conn, err
}

// DialTLSContext opens a connection with TLS; see DialContext.
func (r *ServerRoute) DialTLSContext(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := r.Dial(ctx, address, true)
	return c.Conn, err
}

// dial opens a connection, and calls done after each step.
func (r *ServerRoute) dial(ctx context.Context, address string, secure bool, done func(Leg, string)) (c Conn, err error) {
	if r.err != nil {
		return c, r.err
	}
	ctx, cancel := context.WithTimeout(ctx, dial.Timeout)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return c, err
	}
	next := address
	if r.proxy != nil {
		next = proxyAddress(r.proxy)
	}
	raw, err := dial.Context(ctx, "tcp", next)
	if err != nil {
		return c, r.explainConnect(next, err)
	}
	done(StepConnect, raw.RemoteAddr().String())
	c = Conn{raw, raw}
	defer func() {
		if err != nil {
			_ = raw.Close()
		}
	}()
	if r.proxy != nil {
		if c.Conn, err = r.passProxy(ctx, raw, address); err != nil {
			return Conn{}, err
		}
		done(StepProxy, next)
	}
	if !secure {
		return c, nil
	}
	settings, err := r.TLSConfig(cmp.Or(r.serverName, host))
	if err != nil {
		return Conn{}, err
	}
	s, err := handshake(ctx, c.Conn, settings)
	if err != nil {
		return Conn{}, r.explainTLS(settings.ServerName, err)
	}
	done(StepTLS, tls.VersionName(s.ConnectionState().Version))
	c.Conn = s
	return c, nil
}

// handshake begins TLS over c.
func handshake(ctx context.Context, c net.Conn, settings *tls.Config) (*tls.Conn, error) {
	s := tls.Client(c, settings)
	if err := s.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// TLSConfig returns the settings for TLS with the server, by the files as they are now.
func (r *ServerRoute) TLSConfig(name string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ServerName: name}
	if r.roots != nil {
		pool, err := r.roots.Pool()
		if err != nil {
			return nil, &StepError{Step: StepTLS, Text: "the file of tls.ca cannot be used: " + err.Error(), Err: err}
		}
		c.RootCAs = pool
	}
	if r.pair != nil {
		pair, err := r.pair.Certificate()
		if err != nil {
			return nil, &StepError{Step: StepTLS, Text: "the files of tls.cert and tls.key cannot be used: " + err.Error(), Err: err}
		}
		// Given for every request: with Certificates, TLS sends none if the server names other authorities, and
		// the error would not say why.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	return c, nil
}

// passProxy makes the proxy open a connection to the address. The result reads and writes that connection.
func (r *ServerRoute) passProxy(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	c, err := r.askProxy(ctx, raw, address)
	if !stop() && err == nil { // the deadline may have been set, or is being set now
		err = ctx.Err()
	}
	if err != nil {
		return nil, r.explainProxy(ctx, err)
	}
	return c, nil
}

// askProxy asks the proxy, in its own protocol.
func (r *ServerRoute) askProxy(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	c := raw
	if r.proxy.Scheme == "https" {
		settings := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ServerName: r.proxy.Hostname()}
		if r.roots != nil {
			pool, err := r.roots.Pool()
			if err != nil {
				return nil, err
			}
			settings.RootCAs = pool
		}
		s, err := handshake(ctx, raw, settings)
		if err != nil {
			return nil, err
		}
		c = s
	}
	if isSOCKS(r.proxy) {
		return c, connectSOCKS(c, r.proxy.User, address)
	}
	return c, connectHTTP(c, r.proxy.User, address)
}
