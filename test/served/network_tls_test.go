package served_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/certs"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// trust makes the clients of this test trust an authority.
func trust(t *testing.T, a *certs.Authority) {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport)
	was := transport.TLSClientConfig
	transport.TLSClientConfig = &tls.Config{RootCAs: a.Pool()} //nolint:gosec // 1.2 is the default
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		transport.TLSClientConfig = was
	})
}

// callUnderLoad calls the tool on eight goroutines, each time over a new connection if fresh is true, while change runs and for
// some calls after it. It returns the answers that are no results.
func callUnderLoad(t *testing.T, s *rig.HTTPSession, tool string, fresh bool, change func()) (lost []string) {
	t.Helper()
	var mu sync.Mutex
	var done sync.WaitGroup
	var made, after atomic.Int64
	var changed atomic.Bool
	body, extra := s.Request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool))
	if fresh {
		extra.Set("Connection", "close")
	}
	for range 8 {
		done.Go(func() {
			for after.Load() < 40 {
				m, _, err := s.Exchange(body, extra)
				made.Add(1)
				if changed.Load() {
					after.Add(1)
				}
				if err != nil || m.Result == nil {
					mu.Lock()
					lost = append(lost, fmt.Sprintf("%v %s", err, m.Raw))
					mu.Unlock()
				}
			}
		})
	}
	wait.Until(t, "calls are made", func() bool { return made.Load() > 20 })
	change()
	changed.Store(true)
	done.Wait()
	t.Logf("%d calls, %d lost", made.Load(), len(lost))
	return lost
}

// The certificate of the listeners is renewed under load: no call is lost, also while certificate and key do not go together. Commands of
// this machine, which reach Switchboard without TLS, and pages are served as before.
func TestTheListenersSpeakTLSAndTheirCertificateIsRenewedUnderLoad(t *testing.T) {
	rig.WatchRaces(t)
	dir := rig.LayOut(t, strings.Replace(rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "hello"))), "start_deadline",
		"tls: {cert: cert.pem, key: key.pem}\nadmin: {tls: {cert: cert.pem, key: key.pem}}\nstart_deadline", 1))
	ca := certs.NewAuthority(t, "test")
	trust(t, ca)
	cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	certs.WritePair(t, dir, cert, key)
	g := rig.Serve(t, dir)
	if !strings.HasPrefix(g.URL, "https://127.0.0.1:") || !strings.HasPrefix(g.AdminURL(), "https://127.0.0.1:") {
		t.Fatalf("it serves at %s and %s", g.URL, g.AdminURL())
	}
	address := strings.TrimPrefix(g.URL, "https://")
	for _, modern := range []bool{false, true} {
		if got := rig.Call(t, g.Open(t, "/mcp", modern), "hello", `{}`); got != "" {
			t.Errorf("modern %t: %s", modern, got)
		}
	}
	for _, args := range [][]string{{"status"}, {"ready"}, {"status", "--url", g.URL}, {"ready", "--url", g.URL}, {"page", "--print"}} {
		if out, errs, code := rig.Command(t, dir, args...); code != 0 || strings.Contains(out, "http://") {
			t.Errorf("%q exits %d:\n%s%s", args, code, out, errs)
		}
	}
	printed, _, _ := rig.Command(t, dir, "page", "--print")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	for _, url := range []string{strings.TrimSpace(printed[strings.Index(printed, "https://"):]), g.AdminURL() + "/"} { // with a code, then with the session
		resp, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("a browser gets %s at %.60s", resp.Status, url)
		}
	}
	kept, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool()}) //nolint:gosec // 1.2 is the default
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close() //nolint:errcheck // a test
	answers := bufio.NewReader(kept)
	for range 3 { // an idle connection with TLS is kept, and answers again
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + rig.WithMeta(`{"name":"hello","arguments":{}}`) + `}`
		_, _ = fmt.Fprintf(kept, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hello\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		resp, err := http.ReadResponse(answers, nil)
		wait.Read(t, "the answer over a kept connection", err)
		if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), `"result"`) {
			t.Errorf("over a kept connection: %s", text)
		}
		_ = resp.Body.Close()
		awaitKept(t, g.Cmd.Process.Pid)
	}
	ask := func(url, origin string) (status int, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close() //nolint:errcheck // a test
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if status, text := ask("http://"+address+"/mcp", ""); status != http.StatusBadRequest || !strings.Contains(text, "write https://") {
		t.Errorf("without TLS: %d %s", status, text)
	}
	for origin, want := range map[string]bool{g.AdminURL(): true, strings.Replace(g.AdminURL(), "https", "http", 1): false, "https://evil.example": false} {
		_, text := ask(g.AdminURL()+"/v1/status", origin)
		if refused := strings.Contains(text, "allowed here") || strings.Contains(text, "only pages of this address"); refused == want {
			t.Errorf("a page of %s: %s", origin, text)
		}
	}
	if c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS11}); err == nil { //nolint:gosec // which is refused
		_ = c.Close()
		t.Error("TLS 1.1 is accepted")
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	leaf := func() string {
		c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2", "http/1.1"}}) //nolint:gosec // 1.2 is the default
		if err != nil {
			return err.Error()
		}
		defer c.Close() //nolint:errcheck // a test
		if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
			t.Errorf("it speaks %q", p)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	s := g.Open(t, "/mcp", true)
	first := leaf()
	for _, fresh := range []bool{true, false} {
		if lost := callUnderLoad(t, s, "hello", fresh, func() {
			for range 5 {
				cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
				before := leaf()
				certs.Write(t, certFile, cert)
				if got := leaf(); got != before {
					t.Errorf("with the key of another certificate: %s, want %s", got, before)
				}
				certs.Write(t, keyFile, key)
				if got := leaf(); got == before {
					t.Errorf("the renewed certificate is not used: %s", got)
				}
			}
		}); len(lost) > 0 {
			t.Errorf("fresh %t: %d calls were lost, such as %s", fresh, len(lost), lost[0])
		}
	}
	if leaf() == first || strings.Count(g.Logged(), "the certificate of a listener cannot be used") != 10 {
		t.Errorf("the faults were not logged once each:\n%s", g.Logged())
	}
}

// serveOverTLS serves a server of MCP over TLS. With closes, each request needs a new connection.
func serveOverTLS(t *testing.T, tool string, closes bool, c *tls.Config) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(fakeserver.New([]string{fmt.Sprintf(rig.Tool, tool)}))
	s.TLS = c
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.SetKeepAlivesEnabled(!closes)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// inspectTLS is a proxy that ends TLS itself, with certificates of its own authority.
func inspectTLS(t *testing.T, own, real *certs.Authority) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	pair := own.Pair("127.0.0.1")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // a test
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				far, err := (&tls.Dialer{Config: &tls.Config{RootCAs: real.Pool()}}).DialContext(context.Background(), "tcp", req.RequestURI) //nolint:gosec // a test
				if err != nil {
					_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
					return
				}
				defer far.Close() //nolint:errcheck // a test
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				near := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}}) //nolint:gosec // a test
				go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return l.Addr().String()
}

// A proxy that inspects TLS, a server that demands a client certificate, and one whose certificate has another name: each works with its
// row, and without it one line says what to do.
func TestServersOverTLSWorkWithTheirRowsOrSayWhatToDo(t *testing.T) {
	known, corp := certs.NewAuthority(t, "known"), certs.NewAuthority(t, "Corp TLS Inspection")
	demanding := &tls.Config{Certificates: []tls.Certificate{known.Pair("127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known.Pool()} //nolint:gosec // a test
	plain := &tls.Config{Certificates: []tls.Certificate{known.Pair("127.0.0.1")}}                                                                          //nolint:gosec // a test
	named := &tls.Config{Certificates: []tls.Certificate{known.Pair("mcp.example.com")}}                                                                    //nolint:gosec // a test
	proxy := "http://" + inspectTLS(t, corp, known)
	plainURL, demandingURL, namedURL := serveOverTLS(t, "plain", false, plain), serveOverTLS(t, "demanding", false, demanding), serveOverTLS(t, "named", false, named)
	archive := rig.Fakes(
		fmt.Sprintf(`plain: {transport: http, url: "%s/mcp", proxy: "%s", tls: {ca: corp.pem}}`, plainURL, proxy),
		fmt.Sprintf(`demanding: {transport: http, url: "%s/mcp", tls: {ca: known.pem, cert: cert.pem, key: key.pem}}`, demandingURL),
		fmt.Sprintf(`named: {transport: http, url: "%s/mcp", tls: {ca: known.pem, server_name: mcp.example.com}}`, namedURL),
	)
	lay := func(archive string) (dir string) {
		dir = rig.LayOut(t, archive)
		certs.Write(t, filepath.Join(dir, "corp.pem"), corp.PEM)
		certs.Write(t, filepath.Join(dir, "known.pem"), known.PEM)
		cert, key := known.Issue(time.Now().Add(time.Hour), "switchboard")
		certs.WritePair(t, dir, cert, key)
		return dir
	}
	g := rig.Serve(t, lay(archive))
	s := g.Open(t, "/mcp", true)
	for _, tool := range []string{"plain", "demanding", "named"} {
		if got := rig.Call(t, s, tool, `{}`); got != "" {
			t.Errorf("%s: %s", tool, got)
		}
	}
	out, errs, code := rig.Command(t, lay(strings.NewReplacer(", tls: {ca: corp.pem}", "", ", cert: cert.pem, key: key.pem", "", ", server_name: mcp.example.com", "").Replace(archive)), "doctor", "--wait", "3s")
	if code == 0 {
		t.Error("doctor finds nothing")
	}
	for _, want := range []string{
		"Corp TLS Inspection", "if your network inspects TLS, or the server has an authority of its own, get the authority's certificate and add it: tls: {ca: PATH}",
		"certificate required", "get a certificate from the server's owner, and name it: tls: {cert: PATH, key: PATH}",
		"| connect: well: 127.0.0.1:", "| proxy: well: ", "| tls: FAILED: its certificate is signed by", "| tls: FAILED: remote error: tls: certificate required",
		"is for another name than", "or, if you know the server by that name: tls: {server_name: NAME}",
	} {
		if !strings.Contains(out+errs, want) {
			t.Errorf("doctor does not say %q:\n%s%s", want, out, errs)
		}
	}
}

// The certificate of a server and its authority are replaced under load, at Switchboard first. Each call needs a new connection.
func TestTheAuthorityOfAServerIsRenewedUnderLoad(t *testing.T) {
	rig.WatchRaces(t)
	before, after := certs.NewAuthority(t, "before"), certs.NewAuthority(t, "after")
	var current atomic.Pointer[tls.Certificate]
	pair, next := before.Pair("127.0.0.1"), after.Pair("127.0.0.1")
	current.Store(&pair)
	url := serveOverTLS(t, "call", true, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { //nolint:gosec // a test
		return &tls.Config{Certificates: []tls.Certificate{*current.Load()}}, nil //nolint:gosec // a test
	}})
	dir := rig.LayOut(t, rig.Fakes(fmt.Sprintf(`a: {transport: http, url: "%s/mcp", tls: {ca: ca.pem}}`, url)))
	ca := certs.Write(t, filepath.Join(dir, "ca.pem"), before.PEM)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	if lost := callUnderLoad(t, s, "call", false, func() {
		certs.Write(t, ca, []byte("half a file"))
		certs.Write(t, ca, append(append([]byte{}, before.PEM...), after.PEM...))
		for other := g.Open(t, "/mcp", true); ; { // a connection that is being opened may have read the file before
			m, _ := other.Ask(t, "tools/call", `{"name":"call","arguments":{}}`)
			if m.Error == nil {
				break
			}
		}
		current.Store(&next)
	}); len(lost) > 0 {
		t.Errorf("%d calls were lost, such as %s", len(lost), lost[0])
	}
	if n := g.Reloads(rig.Reloaded, rig.ReloadedSame, rig.ReloadRefused); n != 0 {
		t.Errorf("a changed certificate caused %d reloads", n)
	}
}
