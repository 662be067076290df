package post

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/connlimit"
	"github.com/summit-switchboard/switchboard/internal/idleconn"
)

// A front is a Server with its Keeper, and the http.Server of the other requests.
type front struct {
	*Server
	keeper  *idleconn.Keeper
	address string
	others  *http.Server
	served  chan error // what others.Serve returns
	kept    atomic.Int64
}

// serve serves h as internal/app does, on l or, if it is nil, on an address of its own. The connections of a connlimit.Limiter may be kept once
// they are known.
func serve(t *testing.T, l net.Listener, h http.HandlerFunc) *front {
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	f := &front{address: l.Addr().String(), served: make(chan error, 1)}
	withConn := func(ctx context.Context, c net.Conn) context.Context {
		return connlimit.WithConn(ctx, c.(*idleconn.Conn).Conn)
	}
	_, limited := l.(*connlimit.Limiter)
	may := func(c net.Conn) bool { return !limited || connlimit.IsKnown(c) }
	keeper := idleconn.New(l, idleconn.Options{May: may, Timeout: time.Minute, Kept: func() { f.kept.Add(1) }})
	f.Server = New(Options{
		Handler: h, Log: slog.New(slog.DiscardHandler), HeadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		Context: func(c net.Conn) context.Context { return withConn(t.Context(), c) },
	})
	f.others = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ConnState: keeper.Observe, ConnContext: withConn}
	go func() { f.served <- f.others.Serve(f.Others()) }()
	for _, l := range []net.Listener{keeper, keeper.Returned()} {
		go func() { _ = f.Serve(l) }() // it ends with the Keeper
	}
	f.keeper = keeper
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = f.Shutdown(ctx)
		_ = f.others.Close()
	})
	return f
}

// Shutdown stops f as internal/app does, but for others.
func (f *front) Shutdown(ctx context.Context) error {
	_ = f.keeper.Close()
	return f.Server.Shutdown(ctx)
}

// A client is one connection.
type client struct {
	net.Conn
	r *bufio.Reader
}

func (f *front) dial(t *testing.T) *client {
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return &client{c, bufio.NewReader(c)}
}

func (c *client) send(t *testing.T, text string) {
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next response and its body.
func (c *client) receive(t *testing.T) (*http.Response, string) {
	r, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("a response that is cut off after %d bytes: %v", len(body), err)
	}
	return r, string(body)
}

// plainRequest returns a plain request with the body.
func plainRequest(body string) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	_, _ = w.Write(b)
}

func TestAShutdownLooksToNetHTTPLikeItsOwn(t *testing.T) {
	release := make(chan struct{})
	began := make(chan struct{})
	f := serve(t, nil, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	})
	f.dial(t).send(t, plainRequest("x"))
	<-began
	over := make(chan error)
	go func() { over <- errors.Join(f.Shutdown(t.Context()), f.others.Shutdown(t.Context())) }()
	select {
	case err := <-f.served:
		t.Errorf("Serve returned %v while a request was answered; app.Serve returns that as its error", err)
		close(release)
	case <-time.After(200 * time.Millisecond): // it must not return
		close(release)
		if err := <-f.served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestAShutdownEndsAlthoughAHandlerDoesNot(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	began := make(chan struct{})
	f := serve(t, nil, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	})
	f.dial(t).send(t, plainRequest("x"))
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	over := make(chan struct{})
	go func() {
		_ = f.Shutdown(ctx)
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(3 * time.Second):
		t.Error("Shutdown waits for the handler beyond its context")
	}
}

func TestAResponseDuringAShutdownSaysThatTheConnectionEnds(t *testing.T) {
	for name, path := range map[string]string{"post": "/mcp", "net/http": "/other"} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			began := make(chan struct{})
			f := serve(t, nil, func(http.ResponseWriter, *http.Request) {
				began <- struct{}{}
				<-release
			})
			one, idle := f.dial(t), f.dial(t)
			one.send(t, strings.Replace(plainRequest("x"), "/mcp", path, 1))
			<-began
			go func() { _ = errors.Join(f.others.Shutdown(t.Context()), f.Shutdown(t.Context())) }()
			if name == "post" {
				go func() { _ = f.Shutdown(t.Context()) }()
				if _, err := idle.r.ReadByte(); err == nil {
					t.Error("the idle connection goes on")
				}
			} else {
				for {
					if c, err := net.Dial("tcp", f.address); err == nil {
						_ = c.Close()
					}
					select {
					case <-f.done:
					default:
						continue
					}
					break
				}
			}
			close(release)
			if r, _ := one.receive(t); !r.Close {
				t.Errorf("the response has the headers %v", r.Header)
			}
		})
	}
}

func TestAnEmptyLineBetweenRequestsIsSkipped(t *testing.T) {
	for name, path := range map[string]string{"post": "/mcp", "net/http": "/other"} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, nil, echo)
			one := f.dial(t)
			request := strings.Replace(plainRequest("x"), "/mcp", path, 1)
			one.send(t, request+"\r\n"+request)
			for n := range 2 {
				if r, _ := one.receive(t); r.StatusCode != http.StatusOK {
					t.Fatalf("response %d: %s", n, r.Status)
				}
			}
		})
	}
}

// A lateListener accepts one lateConn.
type lateListener struct {
	net.Listener
	conns chan net.Conn
}

func (l *lateListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *lateListener) Close() error { return l.Listener.Close() }

// A lateConn is a connection on which a request arrives in the moment when it is closed.
type lateConn struct {
	net.Conn
	reading chan struct{}
	closed  chan struct{}
	read    bool
}

func (c *lateConn) Read(p []byte) (int, error) {
	if c.read {
		return 0, io.EOF
	}
	c.read = true
	close(c.reading)
	<-c.closed
	return copy(p, plainRequest("x")), nil
}

func (c *lateConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

func TestARequestThatAShutdownHasCutOffIsNotExecuted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, end := net.Pipe()
	defer end.Close() //nolint:errcheck // of the test
	late := &lateConn{Conn: server, reading: make(chan struct{}), closed: make(chan struct{})}
	conns := make(chan net.Conn, 1)
	conns <- late
	close(conns)
	var executed atomic.Bool
	f := serve(t, &lateListener{l, conns}, func(http.ResponseWriter, *http.Request) { executed.Store(true) })
	<-late.reading
	if err := f.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if executed.Load() {
		t.Error("the request was executed on a connection that Shutdown had closed: its client cannot know that")
	}
}

func TestABodyCannotBeReadAfterItsRequest(t *testing.T) {
	for name, path := range map[string]string{"post": "/mcp", "net/http": "/other"} {
		t.Run(name, func(t *testing.T) {
			var first io.Reader
			f := serve(t, nil, func(_ http.ResponseWriter, r *http.Request) {
				if first == nil {
					first = r.Body
				}
			})
			one := f.dial(t)
			for _, body := range []string{"mine", "your"} {
				one.send(t, strings.Replace(plainRequest(body), "/mcp", path, 1))
				one.receive(t)
			}
			if b, err := io.ReadAll(first); len(b) > 0 || err == nil {
				t.Errorf("read %q (%v)", b, err)
			}
		})
	}
}

func TestResponsesAreThoseOfNetHTTP(t *testing.T) {
	long := strings.Repeat("<p>long</p>", 10_000)
	for name, h := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"202":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"204":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"204 with a body": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, _ = w.Write([]byte("x"))
		},
		"http.Error":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusNotFound) },
		"a short body": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") },
		"a long body":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) },
		"a long body, in parts": func(w http.ResponseWriter, _ *http.Request) {
			for part := range strings.SplitSeq(long, "g") {
				_, _ = io.WriteString(w, part)
			}
		},
		"a long body with its length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(long)))
			w.Header().Set("Content-Type", "a/b")
			_, _ = io.WriteString(w, long[:10])
			_, _ = io.WriteString(w, long[10:])
		},
		"a short body with its length, and no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "short")
		},
		"a body longer than its length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "short")
			_, _ = io.WriteString(w, "er")
		},
		"a header after the status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set("A", "b")
		},
		"no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "short")
		},
		"an encoding": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x")
			_, _ = io.WriteString(w, "short")
		},
		"the end": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") },
		"a flush": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, long)
		},
		"odd headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("A", " b\r\nc ")
			w.Header()["b c"] = []string{"d"}
			w.Header()["D"] = []string{"e", "f"}
			w.Header().Set("Transfer-Encoding", "chunked")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, nil, h)
			text := func(path string) string {
				one := f.dial(t)
				one.send(t, strings.Replace(plainRequest("x"), "/mcp", path, 1))
				r, body := one.receive(t)
				r.Header.Del("Date")
				return fmt.Sprintf("%s, %d bytes, length %d, close %t, %v", r.Status, len(body), r.ContentLength, r.Close, r.Header)
			}
			if got, want := text("/mcp"), text("/other"); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestTheServerRestsWhileItWatchesAllClients(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	began := make(chan struct{})
	f := serve(t, nil, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	})
	f.dial(t).send(t, plainRequest("x"))
	<-began
	for range 100 {
		if !f.looking.Load() {
			return
		}
		time.Sleep(lookInterval)
	}
	t.Error("it wakes up every 20 ms for as long as one request takes")
}

// A pipeListener accepts one end of a pipe: a Write at the other end is one Read.
type pipeListener struct {
	net.Listener
	conns chan net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func TestAHeadIsParsedOnceAlthoughItsBodyComesInManyPieces(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, end := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- server
	close(conns)
	answered := make(chan struct{})
	serve(t, pipeListener{l, conns}, func(http.ResponseWriter, *http.Request) { close(answered) })
	const pieces = 100
	head := "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
	for n := range maxHeaders - 3 {
		head += fmt.Sprintf("A%d: b\r\n", n)
	}
	_ = end.SetDeadline(time.Now().Add(10 * time.Second))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, text := range append([]string{head + "\r\n"}, slices.Repeat([]string{"x"}, pieces)...) {
		if _, err := io.WriteString(end, text); err != nil {
			t.Fatal(err)
		}
	}
	<-answered
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 2000 {
		t.Errorf("%d allocations for one request", n)
	}
	_ = end.Close()
}

func TestAHeadThatIsRefusedIsAnsweredWith400(t *testing.T) {
	for name, text := range map[string]string{
		"two lengths":                  headWith("Content-Length: 6") + "hello",
		"a length and chunks":          headWith("Transfer-Encoding: chunked") + "0\r\n\r\n",
		"a bare LF":                    headWith("A: b\nC: d") + "hello",
		"a bare LF behind a request":   plainRequest("hello") + "GET / HTTP/1.1\nHost: a\r\n\r\n",
		"an LF behind a request":       plainRequest("hello") + "\n",
		"a folded line behind another": plainRequest("hello") + headWith("A: b\r\n c") + "hello",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			executed := 0
			f := serve(t, connlimit.New(l), func(http.ResponseWriter, *http.Request) { executed++ })
			one := f.dial(t)
			one.send(t, text)
			if strings.HasPrefix(text, plainRequest("hello")) {
				if r, _ := one.receive(t); r.StatusCode != http.StatusOK || executed != 1 {
					t.Fatalf("%s for the good request", r.Status)
				}
				executed = 0
			}
			if r, _ := one.receive(t); r.StatusCode != http.StatusBadRequest || !r.Close || executed != 0 {
				t.Errorf("%s, close %t, executed %d times", r.Status, r.Close, executed)
			}
		})
	}
}

// A timedConn notes the deadline for writes.
type timedConn struct {
	*net.TCPConn
	until atomic.Pointer[time.Time]
}

func (c *timedConn) SetWriteDeadline(t time.Time) error {
	c.until.Store(&t)
	return c.TCPConn.SetWriteDeadline(t)
}

type timedListener struct {
	net.Listener
	accepted chan *timedConn
}

func (l timedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	timed := &timedConn{TCPConn: c.(*net.TCPConn)}
	l.accepted <- timed
	return timed, nil
}

// TLS writes of its own accord when the client changes its keys. If it cannot, the connection is broken.
func TestAnIdleConnectionHasNoDeadlineForWrites(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	timed := timedListener{l, make(chan *timedConn, 1)}
	f := serve(t, timed, echo)
	one := f.dial(t)
	one.send(t, plainRequest("x"))
	one.receive(t)
	eventually(t, "the connection is kept", func() bool { return f.kept.Load() == 1 })
	if until := (<-timed.accepted).until.Load(); until != nil && !until.IsZero() {
		t.Errorf("writes may last for %v", time.Until(*until))
	}
}
