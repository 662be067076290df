package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/sent"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A scriptedServer answers the requests of each connection with the next answers, byte for byte. It
// closes the connection after one that ends with hangUp.
type scriptedServer struct {
	answers chan string
	conns   atomic.Int32
}

const hangUp = "[hang up]"

// scriptedPool returns a pool for a server that follows the script.
func scriptedPool(t *testing.T, answers ...string) (*Pool, *scriptedServer) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedServer{answers: make(chan string, len(answers))}
	for _, a := range answers {
		s.answers <- a
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			go s.serve(c)
		}
	}()
	p := newPool(&url.URL{Scheme: "http", Host: l.Addr().String()})
	t.Cleanup(func() {
		p.Close()
		_ = l.Close()
		<-ended
	})
	return p, s
}

func (s *scriptedServer) serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // it is only a test's
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		answer, last := strings.CutSuffix(<-s.answers, hangUp)
		_, _ = io.WriteString(c, answer)
		if last {
			return
		}
	}
}

func postLine(b []byte) []byte { return append(b, "POST / HTTP/1.1\r\nHost: test\r\n"...) }

// exchange sends the request f and reads the response to its end.
func (p *Pool) exchange(ctx context.Context, f *testRequest) (status int, answer string, err error) {
	c := p.TakeIdle()
	if c == nil {
		if c, err = p.Dial(ctx); err != nil {
			return 0, "", err
		}
	}
	resp, err := c.Exchange(&f.SendState, postLine, f.body)
	if err != nil {
		return 0, "", err
	}
	all, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, string(all), err
}

// A testRequest is a request with its state.
type testRequest struct {
	sent.SendState
	body []byte
}

func requestOf(body string) *testRequest { return &testRequest{body: []byte(body)} }

func TestOneConnectionCarriesAllRequestsThatEndWell(t *testing.T) {
	p, s := scriptedPool(t,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: \xff y\r\n\r\none",
		"HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n2;ext=\"1\"\r\ntw\r\n1\r\no\r\n0\r\nTrailer-Field: x\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: <x>\r\nContent-Length: 5\r\n\r\nHTTP/1.1 201 Made\r\nCONTENT-LENGTH:5 \r\ncontent-length: 5\r\n\r\nthree",
		"HTTP/1.1 204 Nothing\r\nContent-Length: 7\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nConnection: keep-alive, x\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", MaxHead-100)+"\r\nContent-Length: 3\r\n\r\nend",
	)
	for i, want := range []string{"200 one", "200 two", "201 three", "204 ", "404 ", "200 end"} {
		f := requestOf("{}")
		status, answer, err := p.exchange(t.Context(), f)
		if got := fmt.Sprint(status, " ", answer); got != want || err != nil || !f.MayBeSent() {
			t.Errorf("answer %d: %q, %v, want %q", i, got, err, want)
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAConnectionIsReusedOnlyAtTheStartOfARequest(t *testing.T) {
	for name, answer := range map[string]string{
		"the server closes it":         "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok",
		"the server closes it, a list": "HTTP/1.1 200 OK\r\nConnection: x, close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0":                     "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"it ends with the connection":  "HTTP/1.1 200 OK\r\n\r\nok" + hangUp,
		"more follows":                 "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"more follows the last chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"204 with a body":              "HTTP/1.1 204 OK\r\nContent-Length: 4\r\n\r\nevil",
	} {
		t.Run(name, func(t *testing.T) {
			p, s := scriptedPool(t, answer, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
			if _, answer, err := p.exchange(t.Context(), requestOf("1")); err != nil || answer != "ok" && answer != "" {
				t.Fatalf("%q, %v", answer, err)
			}
			if _, answer, err := p.exchange(t.Context(), requestOf("2")); err != nil || answer != "good" {
				t.Errorf("%q, %v", answer, err)
			}
			if n := s.conns.Load(); n != 2 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// malformed are heads of responses that are invalid or ambiguous: see JS-11 among the abuse cases.
var malformed = map[string]string{
	"Content-Length and Transfer-Encoding": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"the same in the other order":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"two lengths":                          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
	"a list of lengths":                    "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
	"a length with a sign":                 "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
	"a negative length":                    "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
	"an empty length":                      "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
	"a length beyond all":                  "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
	"another transfer encoding":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
	"two transfer encodings":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"chunked twice":                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"chunked in HTTP/1.0":                  "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"a folded line":                        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
	"a space before the colon":             "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
	"a line without a colon":               "HTTP/1.1 200 OK\r\nContent-Length 2\r\n\r\nok",
	"a name that is none":                  "HTTP/1.1 200 OK\r\nCont\xe9nt: 2\r\n\r\nok",
	"no name":                              "HTTP/1.1 200 OK\r\n: 2\r\n\r\nok",
	"lines without CR":                     "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
	"CR within a line":                     "HTTP/1.1 200 OK\r\nX: a\rContent-Length: 9\r\nContent-Length: 2\r\n\r\nok",
	"NUL within a line":                    "HTTP/1.1 200 OK\r\nX: a\x00\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/2":                               "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.2":                             "HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"a status that is none":                "HTTP/1.1 2OO OK\r\nContent-Length: 2\r\n\r\nok",
	"a status that is too low":             "HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
	"a status that is too long":            "HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
	"another protocol":                     "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"interim answers without end":          strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"a long line":                          "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", MaxHead) + "\r\nContent-Length: 2\r\n\r\nok",
	"many lines":                           "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", MaxHead/6) + "Content-Length: 2\r\n\r\nok",
	"large interim answers":                strings.Repeat("HTTP/1.1 100 C\r\nX: "+strings.Repeat("x", MaxHead/3)+"\r\n\r\n", 3) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"half a line":                          "HTTP/1.1 200 OK\r\nContent-Le" + hangUp,
	"nothing":                              hangUp,
}

func TestAMalformedHeadIsRefusedAndClosesTheConnection(t *testing.T) {
	for name, answer := range malformed {
		t.Run(name, func(t *testing.T) {
			p, s := scriptedPool(t, answer, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
			f := requestOf("{}")
			if status, answer, err := p.exchange(t.Context(), f); err == nil {
				t.Errorf("%d %q", status, answer)
			}
			if !f.MayBeSent() {
				t.Error("it counts as not sent")
			}
			if _, answer, err := p.exchange(t.Context(), requestOf("{}")); err != nil || answer != "good" || s.conns.Load() != 2 {
				t.Errorf("the next: %q, %v, on connection %d", answer, err, s.conns.Load())
			}
		})
	}
}

func TestATruncatedBodyIsAnError(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, answer := range map[string]string{
		"short of its length":     "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok" + hangUp,
		"without a last chunk":    chunked + "2\r\nok\r\n" + hangUp,
		"within a chunk":          chunked + "9\r\nok" + hangUp,
		"without a last line":     chunked + "2\r\nok\r\n0\r\n" + hangUp,
		"a size that is none":     chunked + "2\r\nok\r\n-1\r\n\r\n" + hangUp,
		"a size beyond all":       chunked + "2\r\nok\r\nffffffffffffffffff\r\n" + hangUp,
		"a chunk that goes on":    chunked + "2\r\nokay\r\n0\r\n\r\n" + hangUp,
		"a large chunk extension": chunked + "2\r\nok\r\n1;" + strings.Repeat("x", 1<<20) + "\r\n!\r\n0\r\n\r\n" + hangUp,
		"a trailer that is none":  chunked + "2\r\nok\r\n0\r\nno trailer\r\n\r\n" + hangUp,
		"a trailer without end":   chunked + "2\r\nok\r\n0\r\n" + strings.Repeat("X: y\r\n", MaxHead) + hangUp,
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := scriptedPool(t, answer)
			if _, answer, err := p.exchange(t.Context(), requestOf("{}")); err == nil {
				t.Errorf("%q", answer)
			}
			if c := p.TakeIdle(); c != nil {
				t.Error("its connection is kept")
			}
		})
	}
}

// onlyIdleConn returns the only idle connection.
func onlyIdleConn(t *testing.T, p *Pool) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) != 1 {
		t.Fatalf("%d idle connections", len(p.idle))
	}
	return p.idle[0]
}

func TestAnIdleConnectionThatTheServerClosedOrWroteToIsNotUsed(t *testing.T) {
	for name, last := range map[string]string{
		"closed": "", "spoken": "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			far := make(chan net.Conn, 2)
			executed := atomic.Int32{}
			site := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { executed.Add(1) }))
			site.Config.ConnState = func(c net.Conn, s http.ConnState) {
				if s == http.StateNew {
					far <- c
				}
			}
			site.Start()
			defer site.Close()
			u, _ := url.Parse(site.URL)
			p := newPool(u)
			defer p.Close()
			if _, _, err := p.exchange(t.Context(), requestOf("{}")); err != nil {
				t.Fatal(err)
			}
			c := onlyIdleConn(t, p)
			if !c.isQuiet() {
				t.Fatal("an idle connection is taken for a closed one")
			}
			server := <-far
			if last == "" {
				_ = server.Close()
			} else {
				_, _ = io.WriteString(server, last)
			}
			wait.Until(t, "it is seen", func() bool { return !c.isQuiet() })
			f := requestOf("{}")
			if status, _, err := p.exchange(t.Context(), f); err != nil || status != 200 || executed.Load() != 2 {
				t.Errorf("%d, %v, executed %d times", status, err, executed.Load())
			}
		})
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(&url.URL{Scheme: "http", Host: "test"})
		idle := func() net.Conn {
			near, far := net.Pipe()
			p.putIdle(newConn(p, near, near))
			return far
		}
		began := time.Now()
		closed := func(far net.Conn) time.Duration {
			_, _ = far.Read(make([]byte, 1))
			return time.Since(began)
		}
		first := idle()
		time.Sleep(time.Second)
		second := idle()
		if after := closed(first); after != IdleTimeout {
			t.Errorf("the first is closed after %s", after)
		}
		if after := closed(second); after != IdleTimeout+time.Second {
			t.Errorf("the second is closed after %s", after)
		}
		if p.TakeIdle() != nil {
			t.Error("one is left")
		}

		third := idle()
		p.Close()
		began = time.Now()
		if after := closed(third); after != 0 {
			t.Errorf("after the end it is closed after %s", after)
		}
		if fourth := idle(); closed(fourth) != 0 {
			t.Error("a connection is kept after close")
		}
	})
}

func TestIdleConnectionsAreLimited(t *testing.T) {
	p := newPool(&url.URL{Scheme: "http", Host: "test"})
	defer p.Close()
	for range MaxIdle + 10 {
		near, far := net.Pipe()
		defer far.Close() //nolint:errcheck // it is only a test's
		p.putIdle(newConn(p, near, near))
	}
	if n := len(p.idle); n != MaxIdle {
		t.Errorf("%d are kept", n)
	}
}

// A shutConn is a connection that accepts no bytes.
type shutConn struct{ net.Conn }

func (shutConn) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestARequestIsUnsentIfTheKernelTookNoByte(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	near, far := net.Pipe()
	_ = far.Close()
	plain := newConn(nil, shutConn{near}, shutConn{near})
	f := requestOf("{}")
	if _, err := plain.Exchange(&f.SendState, postLine, f.body); err == nil || !f.Withdraw() {
		t.Errorf("%v, and it may have been sent", err)
	}
	// A part of what was given to TLS may still have left.
	secure := newConn(nil, near, shutConn{near})
	f = requestOf("{}")
	if _, err := secure.Exchange(&f.SendState, postLine, f.body); err == nil || f.Withdraw() {
		t.Errorf("%v, and it counts as not sent", err)
	}
}

// A recordingConn records what is written.
type recordingConn struct {
	net.Conn
	wrote bytes.Buffer
}

func (r *recordingConn) Write(b []byte) (int, error) { return r.wrote.Write(b) }

func TestNoByteOfAWithdrawnRequestLeaves(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	r := &recordingConn{}
	c := newConn(nil, r, r)
	kept, gone := requestOf("kept "), requestOf("gone ")
	if kept.MayBeSent() {
		t.Error("a request counts as sent before its first byte")
	}
	none := func(b []byte) []byte { return b }
	c.request = &kept.SendState
	_ = c.send(none, kept.body)
	if !kept.MayBeSent() || kept.Withdraw() {
		t.Error("a partly sent request can be withdrawn")
	}
	if !gone.Withdraw() {
		t.Error("an unsent request cannot be withdrawn")
	}
	c.request = &gone.SendState
	if err := c.send(none, gone.body); !errors.Is(err, ErrWithdrawn) {
		t.Errorf("error %v", err)
	}
	if got := r.wrote.String(); got != "Content-Length: 5\r\n\r\nkept " {
		t.Errorf("%q has left", got)
	}
}

func TestAHostIsDialledAsDNSSpellsIt(t *testing.T) {
	for in, want := range map[string]string{
		"http://bücher.example/x": "xn--bcher-kva.example:80", "https://Example.com": "Example.com:443", "https://[::1]:8/": "[::1]:8", "http://[fe80::1%25eth0]/": "[fe80::1%eth0]:80",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := newPool(u).address; got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestALongBodyIsSentWhileTheAnswerIsRead(t *testing.T) {
	long := strings.Repeat("x", 16<<20)
	for name, handler := range map[string]http.HandlerFunc{
		"read first": func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n)
		},
		"refused unread": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		},
		"answered at length before it is read": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.WriteString(w, long)
			_, _ = io.Copy(io.Discard, r.Body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			site := httptest.NewServer(handler)
			defer site.Close()
			u, _ := url.Parse(site.URL)
			p := newPool(u)
			defer p.Close()
			status, answer, err := p.exchange(t.Context(), requestOf(long))
			kept := p.TakeIdle()
			for range 20 { // on a busy machine, the response may be read before the sender notes that all was sent
				if name != "read first" || kept != nil || err != nil {
					break
				}
				status, answer, err = p.exchange(t.Context(), requestOf(long))
				kept = p.TakeIdle()
			}
			switch name {
			case "read first":
				if err != nil || answer != fmt.Sprint(len(long)) || kept == nil {
					t.Errorf("%d %.20q, %v, kept %v", status, answer, err, kept != nil)
				}
			case "refused unread":
				if err != nil || status != http.StatusRequestEntityTooLarge || kept != nil {
					t.Errorf("%d, %v, kept %v", status, err, kept != nil)
				}
			default:
				if err != nil || answer != long {
					t.Errorf("%d and %d bytes, %v", status, len(answer), err)
				}
			}
			if kept != nil {
				kept.stop()
			}
		})
	}
}

func TestAHaltedRequestEndsAtOnceInEveryPhase(t *testing.T) {
	for name, answer := range map[string]string{
		"before the head": "", "within the head": "HTTP/1.1 200 OK\r\n", "within the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			p, s := scriptedPool(t, answer)
			f := requestOf("{}")
			ended := make(chan error, 1)
			go func() {
				_, _, err := p.exchange(t.Context(), f)
				ended <- err
			}()
			wait.Until(t, "it has been answered", func() bool { return f.MayBeSent() && len(s.answers) == 0 })
			f.Halt()
			if err := <-ended; err == nil {
				t.Error("it has an answer")
			}
			if p.TakeIdle() != nil {
				t.Error("the connection is kept")
			}
		})
	}
	p, s := scriptedPool(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	halted := requestOf("{}")
	halted.Halt()
	if _, _, err := p.exchange(t.Context(), halted); !errors.Is(err, ErrWithdrawn) || !halted.Withdraw() {
		t.Errorf("a request that was halted before it was sent: %v", err)
	}
	done := requestOf("{}")
	if _, _, err := p.exchange(t.Context(), done); err != nil || s.conns.Load() != 1 {
		t.Fatalf("the connection of another call is not used: %v", err)
	}
	done.Halt() // too late: the connection belongs to other requests
	if c := onlyIdleConn(t, p); !c.isQuiet() {
		t.Error("a request that has ended closes the connection")
	}
}

func TestTLSConnectionsAreVerifiedReusedAndDetectedAsClosed(t *testing.T) {
	far := make(chan net.Conn, 1)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %x", r.Proto, r.TLS.Version)
	}))
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.EnableHTTP2 = true
	site.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateActive {
			select {
			case far <- c:
			default:
			}
		}
	}
	site.StartTLS()
	defer site.Close()
	u, _ := url.Parse(site.URL)
	p := newPool(u)
	defer p.Close()
	f := requestOf("{}")
	if _, _, err := p.exchange(t.Context(), f); !errors.As(err, new(*tls.CertificateVerificationError)) || !f.Withdraw() {
		t.Errorf("a server with an unknown certificate: %v", err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p = NewPool(u, route.New(u, switchboard.Network{CA: ca}, nil))
	for range 3 {
		if _, answer, err := p.exchange(t.Context(), requestOf("{}")); err != nil || answer != "HTTP/1.1 304" {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	c := onlyIdleConn(t, p)
	if !c.isQuiet() {
		t.Error("an idle connection is taken for a closed one")
	}
	_ = (<-far).Close()
	wait.Until(t, "its end is seen", func() bool { return !c.isQuiet() })

	site.TLS.MaxVersion = tls.VersionTLS11 //nolint:gosec // which is refused
	p.Close()
	if _, _, err := newPoolLike(p).exchange(t.Context(), requestOf("{}")); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
}

// newPool returns a pool for the server at u with the default network.
func newPool(u *url.URL) *Pool { return NewPool(u, route.New(u, switchboard.Network{}, nil)) }

func newPoolLike(p *Pool) *Pool { return &Pool{address: p.address, secure: p.secure, route: p.route} }

// FuzzResponse compares our parser of responses with that of net/http. If ours accepts a response,
// net/http must find the same status, the same body and the same end.
func FuzzResponse(f *testing.F) {
	for _, answer := range malformed {
		if len(answer) < 1<<10 {
			f.Add([]byte(answer))
		}
	}
	f.Add([]byte("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\nok\r\n0\r\nX: y\r\n\r\nmore"))
	f.Add([]byte("HTTP/1.1 204 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.0 200\r\nContent-Type: a\r\nContent-Type: b\r\n\r\nuntil the end"))
	f.Fuzz(func(t *testing.T, data []byte) {
		near, far := net.Pipe()
		defer near.Close() //nolint:errcheck // it is only a test's
		defer far.Close()  //nolint:errcheck // it is only a test's
		c := newConn(nil, near, near)
		c.head.in = bufio.NewReader(bytes.NewReader(data))
		h, err := c.head.read()
		if err != nil {
			return
		}
		resp := c.newResponse(h)
		body, bodyErr := io.ReadAll(resp.Body)

		in := bufio.NewReader(bytes.NewReader(data))
		for {
			theirs, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
			if err != nil {
				if strings.Contains(strings.ToLower(string(data)), "trailer") {
					return // we do not use that announcement
				}
				t.Fatalf("we accept a response that net/http refuses: %v", err)
			}
			if theirs.StatusCode < 200 {
				continue
			}
			want, wantErr := io.ReadAll(theirs.Body)
			if theirs.StatusCode != resp.StatusCode || theirs.Header.Get("Content-Type") != resp.Header.Get("Content-Type") {
				t.Fatalf("%d %v, net/http has %d %v", resp.StatusCode, resp.Header, theirs.StatusCode, theirs.Header)
			}
			if bodyErr != nil {
				return
			}
			if wantErr != nil || !bytes.Equal(body, want) || in.Buffered() != c.head.in.Buffered() {
				t.Fatalf("body %q and %d bytes behind it, net/http has %q, %d, %v", body, c.head.in.Buffered(), want, in.Buffered(), wantErr)
			}
			return
		}
	})
}
