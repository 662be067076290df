package post_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/idleconn"
	"github.com/summit-switchboard/switchboard/internal/post"
)

const (
	headTimeout = 10 * time.Second
	idleTimeout = time.Minute
)

// patience is how long a test waits for what must happen soon.
const patience = 30 * time.Second

// A front is a Server with a handler, and the http.Server for the other requests.
type front struct {
	*post.Server
	listener net.Listener
	kept     chan struct{} // has a value for each time that idle connections were kept
	stop     func()
}

// Pipes are a listener within a bubble of synctest, where no connection of the machine may be.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// A pipe is a connection that nobody else wants when it is idle.
type pipe struct {
	net.Conn
	unread []byte
}

func (p *pipe) ReadFirst(b []byte) (int, error) { return p.Conn.Read(b) }
func (p *pipe) Unread(b []byte)                 { p.unread = b }
func (p *pipe) MayBeKept() bool                 { return false }

func (p *pipe) Read(b []byte) (int, error) {
	if len(p.unread) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.unread)
	p.unread = p.unread[n:]
	return n, nil
}

// byNetHTTP is the key of the contexts that net/http makes.
type byNetHTTP struct{}

// serve serves the handler on a port of this machine.
func serve(t *testing.T, h http.HandlerFunc) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan struct{}, 1<<10)
	keeper := idleconn.New(l, idleconn.Options{
		May: func(net.Conn) bool { return true }, Timeout: time.Minute, Kept: func() { kept <- struct{}{} },
	})
	f := serveOn(t, h, keeper.Observe, keeper, keeper.Returned())
	f.kept = kept
	return f
}

func serveOn(t *testing.T, h http.HandlerFunc, observe func(net.Conn, http.ConnState), listeners ...net.Listener) *front {
	f := &front{listener: listeners[0]}
	f.Server = post.New(post.Options{
		Handler: h, Log: slog.New(slog.DiscardHandler), HeadTimeout: headTimeout, IdleTimeout: idleTimeout,
		Context: func(net.Conn) context.Context { return context.Background() },
	})
	others := &http.Server{
		Handler: h, ConnState: observe, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, byNetHTTP{}, true)
		},
	}
	var work sync.WaitGroup
	for _, l := range listeners {
		work.Go(func() { _ = f.Serve(l) })
	}
	work.Go(func() { _ = others.Serve(f.Others()) })
	f.stop = sync.OnceFunc(func() {
		_ = f.listener.Close()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Shutdown(ended)
		_ = others.Close()
		work.Wait()
	})
	t.Cleanup(f.stop)
	return f
}

// inBubble runs the test with a server whose time passes only when everybody waits.
func inBubble(t *testing.T, h http.HandlerFunc, test func(t *testing.T, f *front)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := serveOn(t, h, nil, newPipes())
		test(t, f)
		f.stop()
	})
}

// whoAnswers answers with who has read the request, and with its body.
func whoAnswers(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	who := "post"
	if r.Context().Value(byNetHTTP{}) != nil {
		who = "net/http"
	}
	_, _ = fmt.Fprintf(w, "%s: %s", who, body)
}

// A client is one connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (f *front) dial(t *testing.T) *client {
	t.Helper()
	if p, ok := f.listener.(*pipes); ok {
		ours, theirs := net.Pipe()
		p.accepted <- &pipe{Conn: theirs}
		return &client{ours, bufio.NewReader(ours)}
	}
	c, err := net.Dial("tcp", f.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{c, bufio.NewReader(c)}
}

func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
}

// answer reads a response, and its body.
func (c *client) answer(t *testing.T) (*http.Response, string) {
	t.Helper()
	r, err := http.ReadResponse(c.in, &http.Request{Method: http.MethodPost})
	if err != nil {
		t.Error(err)
		return &http.Response{}, ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return r, string(body)
}

// atEnd reports whether the server has closed the connection and sent nothing more.
func (c *client) atEnd() bool {
	_, err := c.in.ReadByte()
	return errors.Is(err, io.EOF)
}

func request(body string, headers ...string) string {
	return "POST /mcp HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(headers, ""), "\r\n") + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

const get = "GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n"

func TestEachRequestOfAConnectionIsAnsweredWhoeverReadsIt(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, tt := range map[string]struct {
		parts []string // that the client sends, each when the answers to the ones before are there
		want  []string
	}{
		"plain requests":                       {[]string{request("one"), request("two"), request("")}, []string{"post: one", "post: two", "post: "}},
		"several at once":                      {[]string{request("one") + request("two") + request("three")}, []string{"post: one", "post: two", "post: three"}},
		"with bodies of other lengths":         {[]string{request("1"), request(strings.Repeat("2", 1234)), request("3")}, []string{"post: 1", "post: " + strings.Repeat("2", 1234), "post: 3"}},
		"with other headers":                   {[]string{request("one"), request("two", "A: b"), request("three", "A: c")}, []string{"post: one", "post: two", "post: three"}},
		"a GET":                                {[]string{get, get}, []string{"net/http: ", "net/http: "}},
		"a GET after a plain request":          {[]string{request("one"), get, request("two")}, []string{"post: one", "net/http: ", "net/http: two"}},
		"both at once":                         {[]string{request("one") + get + request("two")}, []string{"post: one", "net/http: ", "net/http: two"}},
		"a body that does not fit":             {[]string{request("one"), request(long), request("two")}, []string{"post: one", "net/http: " + long, "net/http: two"}},
		"a head that does not fit":             {[]string{request("one", "A: "+long[:20_000])}, []string{"net/http: one"}},
		"chunks":                               {[]string{"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"}, []string{"net/http: one"}},
		"a client that wants to be asked":      {[]string{request("one", "Expect: 100-continue")}, []string{"net/http: one"}},
		"a body that has the form of requests": {[]string{request(get + request("two"))}, []string{"post: " + get + request("two")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, whoAnswers).dial(t)
			want := tt.want
			for _, part := range tt.parts {
				c.send(t, part)
				for n := max(1, len(tt.want)-len(tt.parts)+1); n > 0 && len(want) > 0; n-- {
					r, got := c.answer(t)
					if strings.HasPrefix(got, "HTTP/1.1 100") || r.StatusCode == http.StatusContinue {
						r, got = c.answer(t)
					}
					if r.StatusCode != http.StatusOK || got != want[0] {
						t.Fatalf("got %d %.100q, want %.100q", r.StatusCode, got, want[0])
					}
					want = want[1:]
				}
			}
			if len(want) > 0 {
				t.Errorf("no answers %q", want)
			}
		})
	}
}

// A client may send its request in pieces, and take its time: then net/http decides how much.
func TestARequestMayComeInPieces(t *testing.T) {
	text := request("hello")
	for _, pause := range []time.Duration{0, time.Second} {
		inBubble(t, whoAnswers, func(t *testing.T, f *front) {
			for at := 1; at < len(text); at++ {
				c := f.dial(t)
				c.send(t, text[:at])
				time.Sleep(pause)
				c.send(t, text[at:])
				want := "post: hello"
				if pause > 0 {
					want = "net/http: hello"
				}
				if _, got := c.answer(t); got != want {
					t.Errorf("cut at %d, with a pause of %s: got %q, want %q", at, pause, got, want)
				}
				_ = c.Close()
			}
		})
	}
}

func TestTheHandlerGetsWhatNetHTTPWouldGiveIt(t *testing.T) {
	seen := make(chan *http.Request, 1)
	f := serve(t, func(w http.ResponseWriter, r *http.Request) { seen <- r })
	c := f.dial(t)
	for i, size := range []int{0, 3, 12, 1} {
		text := "POST /mcp/tasks/a-b HTTP/1.1\r\nHost: 127.0.0.1:80\r\naccept: x\r\nContent-length: " + strconv.Itoa(size) + "\r\nACCEPT:\t y \r\nMcp-Name:\r\nConnection: Keep-Alive\r\n\r\n" + strings.Repeat("b", size)
		c.send(t, text)
		r := <-seen
		c.answer(t)
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		want.Header.Del("Content-Length")
		got := fmt.Sprint(r.Method, r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Header, r.ContentLength, r.TransferEncoding, r.Close, r.Host, r.RequestURI, r.Trailer)
		if other := fmt.Sprint(want.Method, want.URL, want.Proto, want.ProtoMajor, want.ProtoMinor, want.Header, want.ContentLength, want.TransferEncoding, want.Close, want.Host, want.RequestURI, want.Trailer); got != other {
			t.Errorf("request %d:\n got %s\nwant %s", i, got, other)
		}
		if r.RemoteAddr != c.LocalAddr().String() {
			t.Errorf("it comes from %s, not from %s", r.RemoteAddr, c.LocalAddr())
		}
	}
}

func TestAResponseIsWhatTheHandlerWrites(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	declare := func(w http.ResponseWriter, n int) { w.Header().Set("Content-Length", strconv.Itoa(n)) }
	for name, tt := range map[string]struct {
		handle http.HandlerFunc
		status int
		body   string
		header map[string]string
		chunks bool
		closed bool // the connection ends
	}{
		"nothing":          {func(http.ResponseWriter, *http.Request) {}, 200, "", map[string]string{"Content-Length": "0"}, false, false},
		"a status alone":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }, 202, "", map[string]string{"Content-Length": "0"}, false, false},
		"no content":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, "", map[string]string{"Content-Length": ""}, false, false},
		"two statuses":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, 404, "", nil, false, false},
		"a status of ours": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) }, 299, "", nil, false, false},
		"a short body":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>hello") }, 200, "<p>hello", map[string]string{"Content-Length": "8", "Content-Type": "text/html; charset=utf-8"}, false, false},
		"a declared length": {func(w http.ResponseWriter, _ *http.Request) {
			declare(w, 5)
			_, _ = io.WriteString(w, "he")
			_, _ = io.WriteString(w, "llo")
		}, 200, "hello", map[string]string{"Content-Length": "5"}, false, false},
		"a long declared body": {func(w http.ResponseWriter, _ *http.Request) { declare(w, len(long)); _, _ = io.WriteString(w, long) }, 200, long, nil, false, false},
		"a long body":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) }, 200, long, nil, true, false},
		"a body of pieces": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range len(long) / 1000 {
				_, _ = io.WriteString(w, long[i*1000:][:1000])
			}
		}, 200, long, nil, true, false},
		"a stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			c := http.NewResponseController(w)
			_ = c.Flush()
			for _, part := range []string{"a", "", "bc"} {
				_, _ = io.WriteString(w, part)
				_ = c.Flush()
			}
		}, 200, "abc", map[string]string{"Content-Type": "text/event-stream"}, true, false},
		"an error": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) }, http.StatusTeapot, "no\n", map[string]string{"Content-Type": "text/plain; charset=utf-8"}, false, false},
		"the end of the connection": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(503)
		}, 503, "", map[string]string{"Connection": "close"}, false, true},
		"a header with a line break": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-A"] = []string{"b\r\nX-C: d"}
			w.Header()["X E"] = []string{"f"}
		}, 200, "", map[string]string{"X-A": "b  X-C: d", "X-C": "", "X E": ""}, false, false},
		"a header of two values": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Add("Vary", "a"); w.Header().Add("Vary", "b") }, 200, "", map[string]string{"Vary": "a"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, tt.handle).dial(t)
			for range 2 {
				c.send(t, request(""))
				r, body := c.answer(t)
				if r.StatusCode != tt.status || body != tt.body || (len(r.TransferEncoding) > 0) != tt.chunks {
					t.Errorf("got %d, %d bytes %.100q, in chunks: %v", r.StatusCode, len(body), body, r.TransferEncoding)
				}
				for name, want := range tt.header {
					got := r.Header.Get(name)
					if name == "Connection" && r.Close {
						got = "close" // http.ReadResponse takes it out
					}
					if got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if at, err := http.ParseTime(r.Header.Get("Date")); err != nil || time.Since(at) > time.Minute {
					t.Errorf("the date is %q", r.Header.Get("Date"))
				}
				if tt.closed {
					if !c.atEnd() {
						t.Error("the connection goes on")
					}
					return
				}
			}
		})
	}
}

// A client must not take a part for the whole.
func TestAnAnswerThatBreaksOffEndsTheConnection(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"the handler gives up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"the handler fails":    func(http.ResponseWriter, *http.Request) { panic("a bug") },
		"less than declared": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "hello")
		},
		"within a stream": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, handle).dial(t)
			c.send(t, request(""))
			r, err := http.ReadResponse(c.in, nil)
			if err == nil {
				_, err = io.ReadAll(r.Body)
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want an answer that breaks off", err)
			}
		})
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		if _, err := io.WriteString(w, "hello"); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("more than declared: %v", err)
		}
		_, _ = io.WriteString(w, "ok")
	}).dial(t)
	c.send(t, request(""))
	if _, body := c.answer(t); body != "ok" {
		t.Errorf("got %q", body)
	}
}

// What the client sends while a long request is answered belongs to the next one.
func TestALongRequestKeepsItsConnection(t *testing.T) {
	handle := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(200 * time.Millisecond)
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request has ended: %v", err)
		}
		whoAnswers(w, r)
	}
	inBubble(t, handle, func(t *testing.T, f *front) {
		for early := range len(request("two")) + 1 {
			c := f.dial(t)
			c.send(t, request("one"))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				time.Sleep(100 * time.Millisecond) // the server watches the connection by now
				c.send(t, request("two")[:early])
			}()
			if _, got := c.answer(t); got != "post: one" {
				t.Errorf("got %q", got)
			}
			<-sent
			c.send(t, request("two")[early:])
			if _, got := c.answer(t); got != "post: two" {
				t.Errorf("with %d early bytes: got %q", early, got)
			}
			_ = c.Close()
		}
	})
}

// Some clients end a body with an empty line.
func TestAnEmptyLineBehindALongRequestIsSkipped(t *testing.T) {
	handle := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(200 * time.Millisecond)
		whoAnswers(w, r)
	}
	for _, pause := range []time.Duration{0, 100 * time.Millisecond, time.Second} { // before, while and after the server answers
		inBubble(t, handle, func(t *testing.T, f *front) {
			c := f.dial(t)
			for range 2 {
				go func() {
					c.send(t, request("one"))
					time.Sleep(pause)
					c.send(t, "\r\n")
				}()
				if _, got := c.answer(t); got != "post: one" {
					t.Errorf("with a pause of %s: got %q", pause, got)
				}
				time.Sleep(time.Minute / 2)
			}
		})
	}
}

// Within a few looks of the server.
func TestALongRequestEndsSoonAfterItsClient(t *testing.T) {
	var took time.Duration
	handle := func(_ http.ResponseWriter, r *http.Request) {
		began := time.Now()
		<-r.Context().Done()
		took = time.Since(began)
	}
	inBubble(t, handle, func(t *testing.T, f *front) {
		c := f.dial(t)
		c.send(t, request(""))
		_ = c.Close()
		time.Sleep(time.Minute)
		f.stop()
		if took == 0 || took > 100*time.Millisecond {
			t.Errorf("it ended after %s", took)
		}
	})
}

func TestAClientThatSendsNothingLosesItsConnection(t *testing.T) {
	inBubble(t, whoAnswers, func(t *testing.T, f *front) {
		silent, began := f.dial(t), time.Now()
		if !silent.atEnd() || time.Since(began) != headTimeout {
			t.Errorf("before its first request: after %s", time.Since(began))
		}
		idle := f.dial(t)
		idle.send(t, request(""))
		idle.answer(t)
		if began = time.Now(); !idle.atEnd() || time.Since(began) != idleTimeout {
			t.Errorf("after a request: after %s", time.Since(began))
		}
	})
}

func TestAnIdleConnectionIsKeptAndUsedAgain(t *testing.T) {
	f := serve(t, whoAnswers)
	c := f.dial(t)
	for _, text := range []string{"one", "two", "three"} {
		c.send(t, request(text))
		if _, got := c.answer(t); got != "post: "+text {
			t.Errorf("got %q", got)
		}
		select {
		case <-f.kept:
		case <-time.After(patience):
			t.Fatal("the idle connection holds a goroutine")
		}
	}
	c.send(t, get)
	if _, got := c.answer(t); got != "net/http: " {
		t.Errorf("got %q", got)
	}
	select {
	case <-f.kept:
	case <-time.After(patience):
		t.Fatal("the idle connection holds a goroutine of net/http")
	}
	c.send(t, request("four"))
	if _, got := c.answer(t); got != "post: four" {
		t.Errorf("after a request of another kind and a pause: got %q", got)
	}
}

func TestAShutdownLetsRequestsEndAndClosesTheRest(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	f := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 {
			begun <- struct{}{}
			<-proceed
		}
		whoAnswers(w, r)
	})
	idle, busy := f.dial(t), f.dial(t)
	idle.send(t, request(""))
	idle.answer(t)
	busy.send(t, request("one"))
	<-begun
	_ = f.listener.Close()
	done := make(chan error, 1)
	go func() { done <- f.Shutdown(t.Context()) }()
	if !idle.atEnd() {
		t.Error("the idle connection goes on")
	}
	select {
	case err := <-done:
		t.Fatalf("it does not wait for a request: %v", err)
	default:
	}
	close(proceed)
	if _, got := busy.answer(t); got != "post: one" {
		t.Errorf("got %q", got)
	}
	if err := <-done; err != nil || !busy.atEnd() {
		t.Errorf("after the last answer: %v", err)
	}
}

func TestAShutdownThatHasNoTimeCutsRequests(t *testing.T) {
	begun := make(chan struct{})
	f := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	c := f.dial(t)
	c.send(t, request(""))
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !c.atEnd() {
		t.Error("the client waits on")
	}
}

// A client that does not read must not hold the memory and the goroutine of its answer for ever. A deadline may be some seconds late.
func TestAWriteEndsAtItsDeadline(t *testing.T) {
	for _, allowed := range []time.Duration{0, 10 * time.Second} {
		var failed error
		var took time.Duration
		handle := func(w http.ResponseWriter, _ *http.Request) {
			began := time.Now()
			if allowed > 0 {
				_ = http.NewResponseController(w).SetWriteDeadline(began.Add(allowed))
			}
			_, failed = w.Write(make([]byte, 1<<20))
			took = time.Since(began)
		}
		inBubble(t, handle, func(t *testing.T, f *front) {
			c := f.dial(t)
			c.send(t, request(""))
			time.Sleep(time.Hour)
			f.stop()
			least := max(allowed, 10*time.Second)
			if e, ok := errors.AsType[net.Error](failed); !ok || !e.Timeout() || took < least || took > least+30*time.Second {
				t.Errorf("with a deadline of %s: %v after %s", allowed, failed, took)
			}
		})
	}
}

// In requests of many clients at once, with pauses in which connections are kept, each gets the answer to its own.
func TestAnswersStayApart(t *testing.T) {
	f := serve(t, whoAnswers)
	var clients sync.WaitGroup
	for n := range 16 {
		c := f.dial(t)
		clients.Go(func() {
			for i := range 200 {
				body := strings.Repeat(fmt.Sprintf("%d/%d ", n, i), 1+i*7%500)
				c.send(t, request(body))
				if i%50 == 49 {
					c.send(t, get)
				}
				if _, got := c.answer(t); !strings.HasSuffix(got, ": "+body) {
					t.Errorf("client %d, request %d: got %.60q", n, i, got)
					return
				}
				if i%50 == 49 {
					c.answer(t)
					select {
					case <-f.kept: // of any client
					case <-time.After(time.Second): // another has taken ours
					}
				}
			}
		})
	}
	clients.Wait()
}
