package route

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/certs"
)

// password is a password with characters that a URL must not have.
const password = "p@ss/w:rd #7f3a"

func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // a test
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// echo answers each byte with itself.
func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// answerConnect is a proxy that sends the answer to every CONNECT and, after a 200, passes the connection on.
func answerConnect(answer string, seen *atomic.Value) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		seen.Store(req.Method + " " + req.RequestURI + " " + req.Header.Get("Proxy-Authorization"))
		_, _ = io.WriteString(c, answer)
		if strings.Contains(answer, " 200 ") {
			pipe(c, req.RequestURI)
		}
	}
}

func pipe(c net.Conn, to string) {
	next, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer next.Close() //nolint:errcheck // a test
	go func() { _, _ = io.Copy(next, c); _ = next.Close() }()
	_, _ = io.Copy(c, next)
}

// through returns the route through a proxy.
func through(t *testing.T, proxy string) *ServerRoute {
	t.Helper()
	u, _ := url.Parse("https://mcp.example.com/mcp")
	return New(u, switchboard.Network{Proxy: switchboard.NewSecret(proxy)}, nil)
}

func roundTrip(t *testing.T, r *ServerRoute, address string) error {
	t.Helper()
	c, err := r.Dial(t.Context(), address, false)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // a test
	if c.Raw != c.Conn {
		t.Error("something is above the raw connection")
	}
	if _, err := io.WriteString(c, "x"); err != nil {
		return err
	}
	var b [1]byte
	_, err = io.ReadFull(c, b[:])
	return err
}

func TestAnHTTPProxyIsAskedWithUserAndPassword(t *testing.T) {
	far := listen(t, echo)
	user := url.UserPassword("me", password).String()
	for _, tt := range []struct{ user, want string }{
		{"", ""},
		{user + "@", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+password))},
		{"me@", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"))},
	} {
		for _, answer := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 Connection established\r\nProxy-Agent: x\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"} {
			var seen atomic.Value
			proxy := listen(t, answerConnect(answer, &seen))
			if err := roundTrip(t, through(t, "http://"+tt.user+proxy), far); err != nil {
				t.Errorf("%q: %v", answer, err)
			}
			if got, want := seen.Load(), "CONNECT "+far+" "+tt.want; got != want {
				t.Errorf("the proxy got %q, want %q", got, want)
			}
		}
	}
}

// Each failure says which step failed and what to do, and never shows the password.
func TestAFailureOfAProxySaysWhatToDo(t *testing.T) {
	closed := func() string { // an address where nothing listens
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // a test
		return l.Addr().String()
	}()
	var seen atomic.Value
	says := func(answer string) string { return listen(t, answerConnect(answer, &seen)) }
	socks := func(answers ...string) string {
		return listen(t, func(c net.Conn) {
			var b [512]byte
			for _, a := range answers {
				if _, err := c.Read(b[:]); err != nil {
					return
				}
				_, _ = io.WriteString(c, a)
			}
			_, _ = c.Read(b[:])
		})
	}
	user := url.UserPassword("me", password).String() + "@"
	for name, tt := range map[string]struct{ proxy, text, remedy string }{
		"away":                  {"http://" + closed, "cannot be reached", `check that the proxy runs and that its address is right: it stands at "proxy"`},
		"no such name":          {"http://" + user + "no-such-host.invalid:1", "cannot be reached", "check that the proxy runs"},
		"wants a password":      {"http://" + says("HTTP/1.1 407 "+password+"\r\n\r\n"), "407", "the proxy wants a user and a password: proxy: \"http://USER:${env:PROXY_PASSWORD}@"},
		"wants another one":     {"http://" + user + says("HTTP/1.1 407 Nope "+password+"\r\n\r\n"), "does not accept the user and the password", "correct the user"},
		"wants another, 401":    {"http://" + user + says("HTTP/1.1 401 x\r\n\r\n"), "does not accept the user and the password", "correct the user"},
		"forbids":               {"http://" + user + says("HTTP/1.1 403 "+password+"\r\n\r\n"), "403 Forbidden", "rules of the proxy"},
		"cannot reach":          {"http://" + says("HTTP/1.1 502 x\r\n\r\n"), "502 Bad Gateway", "the proxy does not reach the server"},
		"is no proxy":           {"http://" + says("SSH-2.0-x\r\n"), "not HTTP", ""},
		"closes":                {"http://" + listen(t, func(net.Conn) {}), "closed the connection without an answer", "check that it is a proxy of this kind (http)"},
		"speaks first":          {"http://" + says("HTTP/1.1 299 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), "more than its answer", ""},
		"never ends":            {"http://" + says(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20)), "1xx only", ""},
		"has a long head":       {"http://" + says("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", maxProxyHead)), "larger than", ""},
		"SOCKS wants password":  {"socks5://" + socks("\x05\xff"), "wants a user and a password", "proxy: \"socks5://USER:"},
		"SOCKS refuses it":      {"socks5://" + user + socks("\x05\x02", "\x01\x01"), "does not accept the user", "correct the user"},
		"SOCKS forbids":         {"socks5://" + user + socks("\x05\x02", "\x01\x00", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"), "its rules do not allow", "rules of the proxy"},
		"SOCKS cannot reach":    {"socks5://" + socks("\x05\x00", "\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00"), "the host cannot be reached", "does not reach the server"},
		"SOCKS unknown":         {"socks5h://" + socks("\x05\x00", "\x05\x63\x00\x01\x00\x00\x00\x00\x00\x00"), "unknown reason (reply 99)", "does not reach the server"},
		"HTTP at the SOCKS URL": {"socks5://" + socks("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak SOCKS5", "check its kind and its port"},
		"SOCKS odd address":     {"socks5://" + socks("\x05\x00", "\x05\x00\x00\x09"), "does not speak SOCKS5", "check its kind"},
		"no TLS at the proxy":   {"https://" + listen(t, echo), "tls: ", ""},
		"a proxy of no kind":    {"quic://proxy.example.com", "reached by http, https or socks5", ""},
	} {
		err := roundTrip(t, through(t, tt.proxy), "mcp.example.com:443")
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		step, ok := errors.AsType[*StepError](err)
		if !ok || !strings.Contains(err.Error(), tt.text) || !strings.Contains(Remedy(err), tt.remedy) || tt.remedy == "" && Remedy(err) != "" {
			t.Errorf("%s: %v; %s", name, err, Remedy(err))
			continue
		}
		want := StepProxy
		switch name {
		case "away":
			want = StepConnect
		case "no such name":
			want = StepResolve
		}
		if step.Step != want {
			t.Errorf("%s: step %s", name, step.Step)
		}
		if all := err.Error() + Remedy(err); strings.Contains(all, "7f3a") || strings.Contains(all, "p%40ss") || strings.Contains(all, "p@ss") {
			t.Errorf("%s: the password is shown: %s", name, all)
		}
	}
}

func TestASilentProxyEndsWithTheContext(t *testing.T) {
	silent := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<16)); _, _ = c.Read(make([]byte, 1)) })
	for _, proxy := range []string{"http://", "socks5://", "https://"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := through(t, proxy+silent).Dial(ctx, "mcp.example.com:443", true)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "did not answer in time") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", proxy, err)
		}
	}
}

// The proxy of the environment counts for servers without a setting of their own.
func TestTheEnvironmentNamesTheProxyUnlessTheServerDoes(t *testing.T) {
	was := environmentProxy
	t.Cleanup(func() { environmentProxy = was })
	var asked string
	environmentProxy = func(u *url.URL) (*url.URL, error) {
		asked = u.String()
		return &url.URL{Scheme: "http", Host: "from.environment"}, nil
	}
	u, _ := url.Parse("https://me:secret@mcp.example.com/mcp")
	for proxy, want := range map[string]string{"": "http://from.environment:80", "none": "", "socks5://me:pass@own.example": "socks5://own.example:1080", "https://own.example": "https://own.example:443"} {
		r := New(u, switchboard.Network{Proxy: switchboard.NewSecret(proxy)}, nil)
		if got, environment := r.Proxy(); got != want || environment != (proxy == "") || r.err != nil {
			t.Errorf("%q: %q, %v, %v", proxy, got, environment, r.err)
		}
	}
	if asked != "https://mcp.example.com/mcp" {
		t.Errorf("asked for %s", asked)
	}
	environmentProxy = func(*url.URL) (*url.URL, error) { return nil, errors.New("bad: " + password) }
	_, err := New(u, switchboard.Network{}, nil).Dial(t.Context(), "127.0.0.1:1", true)
	if err == nil || strings.Contains(err.Error(), "7f3a") || !strings.Contains(Remedy(err), "proxy: none") {
		t.Errorf("%v; %s", err, Remedy(err))
	}
}

// serveTLS echoes over TLS. A handshake is done before the first byte is read.
func serveTLS(t *testing.T, c *tls.Config) string {
	t.Helper()
	return listen(t, func(raw net.Conn) { echo(tls.Server(raw, c)) })
}

func TestAFailureOfACertificateSaysWhatToDo(t *testing.T) {
	dir, known, other := t.TempDir(), certs.NewAuthority(t, "known"), certs.NewAuthority(t, "Corp TLS Inspection")
	ca := certs.Write(t, filepath.Join(dir, "ca.pem"), known.PEM)
	cert, key := known.Issue(time.Now().Add(time.Hour), "client")
	certFile, keyFile := certs.WritePair(t, dir, cert, key)
	expired, err := tls.X509KeyPair(known.Issue(time.Now().Add(-time.Hour), "localhost"))
	if err != nil {
		t.Fatal(err)
	}
	future, err := tls.X509KeyPair(known.Issue(time.Now().Add(30*24*time.Hour), "localhost"))
	if err != nil {
		t.Fatal(err)
	}
	with := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	demands := func(from *certs.Authority, version uint16) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{known.Pair("localhost")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: from.Pool(), MaxVersion: version}
	}
	client := switchboard.Network{CA: ca, Cert: certFile, Key: keyFile}
	for name, tt := range map[string]struct {
		server       *tls.Config
		network      switchboard.Network
		text, remedy string // "" for success
	}{
		"known":                  {with(known.Pair("localhost")), switchboard.Network{CA: ca}, "", ""},
		"inspected":              {with(other.Pair("localhost")), switchboard.Network{CA: ca}, "an authority that this machine does not know (\"CN=Corp TLS Inspection\")", "if your network inspects TLS"},
		"without ca":             {with(known.Pair("localhost")), switchboard.Network{}, "does not know", "tls: {ca: PATH}"},
		"expired":                {with(expired), switchboard.Network{CA: ca}, "its certificate has expired on 20", "must renew the certificate"},
		"not yet valid":          {with(future), switchboard.Network{CA: ca}, "counts only from 20", "set the clock"},
		"another name":           {with(known.Pair("other.test")), switchboard.Network{CA: ca}, "is for another name than \"localhost\"", "server_name"},
		"another name, written":  {with(known.Pair("other.test")), switchboard.Network{CA: ca, ServerName: "other.test"}, "", ""},
		"wants a certificate":    {demands(known, 0), switchboard.Network{CA: ca}, "certificate required", "tls: {cert: PATH, key: PATH}"},
		"wants one, TLS 1.2":     {demands(known, tls.VersionTLS12), switchboard.Network{CA: ca}, "it refuses the TLS handshake", "may want a client certificate"},
		"gets it":                {demands(known, 0), client, "", ""},
		"gets it, TLS 1.2":       {demands(known, tls.VersionTLS12), client, "", ""},
		"wants another":          {demands(other, 0), client, "unknown certificate authority", "name a certificate that it accepts"},
		"TLS 1.1 is not enough":  {&tls.Config{Certificates: []tls.Certificate{known.Pair("localhost")}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, switchboard.Network{CA: ca}, "protocol version", ""}, //nolint:gosec // which is refused
		"the ca file is gone":    {with(known.Pair("localhost")), switchboard.Network{CA: ca + ".gone"}, "tls.ca cannot be used", ""},
		"the client's is broken": {demands(known, 0), switchboard.Network{CA: ca, Cert: ca, Key: keyFile}, "tls.cert and tls.key cannot be used", ""},
	} {
		address := serveTLS(t, tt.server)
		_, port, _ := net.SplitHostPort(address)
		u, _ := url.Parse("https://localhost:" + port)
		c, err := New(u, tt.network, nil).Dial(t.Context(), u.Host, true)
		if err == nil { // a server that speaks TLS 1.3 refuses a certificate only now
			_, _ = io.WriteString(c, "x")
			_, err = io.ReadFull(c, make([]byte, 1))
			_ = c.Close()
		}
		if tt.text == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.text) || !strings.Contains(Remedy(err), tt.remedy) {
			t.Errorf("%s: %v; %q", name, err, Remedy(err))
		}
	}
}

// A server over TLS, behind a proxy over TLS, whose certificates one file knows.
func TestAProxyOverTLSLeadsToAServerOverTLS(t *testing.T) {
	ca := certs.NewAuthority(t, "test")
	file := certs.Write(t, filepath.Join(t.TempDir(), "ca.pem"), ca.PEM)
	far := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Pair("127.0.0.1")}})
	var seen atomic.Value
	proxy := listen(t, func(raw net.Conn) {
		answerConnect("HTTP/1.1 200 OK\r\n\r\n", &seen)(tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{ca.Pair("127.0.0.1")}}))
	})
	u, _ := url.Parse("https://" + far)
	for _, known := range []string{file, ""} {
		r := New(u, switchboard.Network{Proxy: switchboard.NewSecret("https://" + proxy), CA: known}, nil)
		c, err := r.Dial(t.Context(), far, true)
		if known == "" {
			if err == nil || !strings.Contains(err.Error(), "its proxy") || !strings.Contains(err.Error(), "does not know") {
				t.Errorf("without the authority: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.Raw.(*net.TCPConn); !ok {
			t.Errorf("the raw connection is a %T", c.Raw)
		}
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
}

// Try stops at the first step that fails.
func TestTryNamesTheStepThatFails(t *testing.T) {
	dir, known := t.TempDir(), certs.NewAuthority(t, "known")
	ca := certs.Write(t, filepath.Join(dir, "ca.pem"), known.PEM)
	serve := func(c *tls.Config) string {
		_, port, _ := net.SplitHostPort(serveTLS(t, c))
		return "https://localhost:" + port
	}
	plain := serve(&tls.Config{Certificates: []tls.Certificate{known.Pair("localhost")}})
	demanding := serve(&tls.Config{Certificates: []tls.Certificate{known.Pair("localhost")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known.Pool()})
	var seen atomic.Value
	refusing := "http://" + listen(t, answerConnect("HTTP/1.1 403 x\r\n\r\n", &seen))
	for name, tt := range map[string]struct {
		url     string
		network switchboard.Network
		want    string // the steps; the last one failed if it ends with !
	}{
		"well":               {plain, switchboard.Network{CA: ca}, "resolve connect tls"},
		"not trusted":        {plain, switchboard.Network{}, "resolve connect tls!"},
		"client certificate": {demanding, switchboard.Network{CA: ca}, "resolve connect tls!"},
		"nobody there":       {"https://127.0.0.1:1", switchboard.Network{}, "connect!"},
		"no such name":       {"https://no-such-host.invalid", switchboard.Network{}, "resolve!"},
		"refused by a proxy": {"https://mcp.example.com", switchboard.Network{Proxy: switchboard.NewSecret(refusing)}, "connect proxy!"},
		"without TLS":        {"http://" + listen(t, echo), switchboard.Network{}, "connect"},
	} {
		u, _ := url.Parse(tt.url)
		var got []string
		for _, s := range New(u, tt.network, nil).Try(t.Context(), u) {
			mark := ""
			if s.Err != nil {
				mark = "!"
			}
			got = append(got, string(s.Step)+mark)
		}
		if g := strings.Join(got, " "); g != tt.want {
			t.Errorf("%s: %s, want %s", name, g, tt.want)
		}
	}
}

// A readWriter reads the answers of a peer, and drops what is written.
type readWriter struct{ io.Reader }

func (readWriter) Write(p []byte) (int, error) { return len(p), nil }

func FuzzConnectHTTP(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 407 No\r\nContent-Length: 1\r\n\r\nx"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		in := strings.NewReader(string(answer))
		if err := connectHTTP(readWriter{in}, nil, "a:1"); err == nil && in.Len() > 0 && !strings.HasPrefix(string(answer), "HTTP/") {
			t.Errorf("%q is accepted", answer)
		}
	})
}

func FuzzConnectSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00rest"), "a:1", false)
	f.Add([]byte("\x05\x02\x01\x00\x05\x00\x00\x03\x01a\x00\x00"), "[::1]:1", true)
	f.Fuzz(func(t *testing.T, answer []byte, address string, withUser bool) {
		var user *url.Userinfo
		if withUser {
			user = url.UserPassword("me", "pass")
		}
		in := strings.NewReader(string(answer))
		if err := connectSOCKS(readWriter{in}, user, address); err == nil && (answer[0] != 5 || len(answer)-in.Len() < 8) {
			t.Errorf("%q is accepted", answer)
		}
	})
}
