package idleconn

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A served is an HTTP server with a Keeper. Its answer to a POST is the body, and to a GET the number of the connection.
type served struct {
	*Keeper
	server *http.Server
	kept   chan struct{} // has a value for each kept connection
	asked  chan struct{} // has a value for each question to Options.May
	ended  chan net.Conn // has each connection that net/http has ended
	posted chan struct{} // has a value for each POST whose body is read
	idle   chan *Conn    // has the connection for each answer that is written
	may    bool
}

func serve(t *testing.T, timeout time.Duration) *served {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{kept: make(chan struct{}, 1<<16), asked: make(chan struct{}, 1<<16), ended: make(chan net.Conn, 1<<16), posted: make(chan struct{}, 1<<16), idle: make(chan *Conn, 1<<16), may: true}
	s.Keeper = New(l, Options{
		Timeout: timeout,
		May: func(c net.Conn) bool {
			if _, ok := c.(*net.TCPConn); !ok {
				t.Errorf("asked about a %T, not about what the listener accepted", c)
			}
			s.asked <- struct{}{}
			return s.may
		},
		Kept: func() { s.kept <- struct{}{} },
	})
	if s.poll == nil {
		t.Skip("connections are kept only on Linux")
	}
	var mu sync.Mutex
	connections := 0
	s.server = &http.Server{
		ReadHeaderTimeout: time.Minute,
		IdleTimeout:       time.Minute,
		ConnState: func(c net.Conn, to http.ConnState) {
			s.Observe(c, to)
			switch to {
			case http.StateIdle:
				s.idle <- c.(*Conn)
			case http.StateClosed:
				s.ended <- c
			}
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, t, c.(*Conn).Memo(func() any {
				mu.Lock()
				defer mu.Unlock()
				connections++
				return connections
			}))
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = fmt.Fprint(w, r.Context().Value(t))
				return
			}
			s.posted <- struct{}{}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body)
		}),
	}
	var work sync.WaitGroup
	for _, l := range []net.Listener{s.Keeper, s.Returned()} {
		work.Go(func() { _ = s.server.Serve(l) })
	}
	t.Cleanup(func() {
		_ = s.server.Close()
		work.Wait()
	})
	return s
}

// keepOne looks for idle connections until one is kept.
func (s *served) keepOne() {
	for {
		s.keepIdle()
		select {
		case <-s.kept:
			return
		default:
			runtime.Gosched() // net/http has not yet begun to wait
		}
	}
}

func (s *served) count() (open, kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), len(s.Keeper.kept)
}

// A client is one connection.
type client struct {
	net.Conn
	r *bufio.Reader
}

func (s *served) dial(t *testing.T) *client {
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func (c *client) answer(t *testing.T) string {
	r, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

func (c *client) ask(t *testing.T, request string) string {
	if _, err := io.WriteString(c, request); err != nil {
		t.Error(err)
	}
	return c.answer(t)
}

func TestAClientDoesNotNoticeThatItsIdleConnectionWasKept(t *testing.T) {
	s := serve(t, time.Minute)
	one := s.dial(t)
	for range 3 {
		if got := one.ask(t, get); got != "1" {
			t.Fatalf("connection %s answered, want 1", got)
		}
		s.keepOne()
		<-s.ended // its goroutine in net/http
		if open, kept := s.count(); open != 0 || kept != 1 {
			t.Fatalf("%d connections are open, and %d kept; want 0 and 1", open, kept)
		}
	}
}

func TestAConnectionIsNotKeptIfTheNextRequestHasBegun(t *testing.T) {
	s := serve(t, time.Minute)
	for n := 1; n < len(get); n++ {
		one := s.dial(t)
		one.ask(t, get+get[:n])
		c := <-s.idle
		for state := answered; state == answered || state == armed; { // net/http has not yet begun to wait for the rest
			runtime.Gosched()
			c.mu.Lock()
			state = c.state
			c.mu.Unlock()
		}
		s.keepIdle()
		s.keepIdle()
		c.mu.Lock()
		state := c.state
		c.mu.Unlock()
		if state != busy {
			t.Fatalf("kept, although %q was read", get[:n])
		}
		one.ask(t, get[n:])
		<-s.idle
		_ = one.Close()
	}
}

func TestAConnectionIsNotKeptWhileABodyIsRead(t *testing.T) {
	s := serve(t, time.Minute)
	one := s.dial(t)
	one.ask(t, get+"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n") // the head came with the request before
	<-s.posted
	for range 100 {
		s.keepIdle()
		runtime.Gosched()
	}
	if got := one.ask(t, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
}

func TestAnswersStayCorrectWhileConnectionsAreKeptAtAnyMoment(t *testing.T) {
	s := serve(t, time.Minute)
	done := make(chan struct{})
	var looking, clients sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.keepIdle()
				runtime.Gosched()
			}
		}
	})
	for n := range 8 {
		one := s.dial(t)
		clients.Go(func() {
			for i := range 150 {
				body := strings.Repeat(fmt.Sprintf("%d/%d ", n, i), 1+i%7*200)
				wrong := func(got string) {
					t.Errorf("client %d, request %d: got %d bytes, want %d, or others", n, i, len(got), len(body))
				}
				request := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				if i%5 == 0 { // two requests at once
					if got := one.ask(t, request+request); got != body {
						wrong(got)
					}
					if got := one.answer(t); got != body {
						wrong(got)
					}
				} else if got := one.ask(t, request); got != body {
					wrong(got)
				}
				for range i % 4 * 10 {
					runtime.Gosched() // long enough to be kept at times
				}
			}
			<-s.kept // at the latest now
		})
	}
	clients.Wait()
	close(done)
	looking.Wait()
}

func TestAKeptConnectionEndsWithItsClient(t *testing.T) {
	s := serve(t, time.Minute)
	one := s.dial(t)
	one.ask(t, get)
	s.keepOne()
	<-s.ended
	_ = one.Close()
	<-s.ended // after net/http has read the end
	if open, kept := s.count(); open+kept != 0 {
		t.Errorf("%d connections are open, and %d kept", open, kept)
	}
}

func TestAConnectionThatIsKeptForTooLongIsClosed(t *testing.T) {
	s := serve(t, time.Nanosecond)
	one := s.dial(t)
	one.ask(t, get)
	s.keepOne()
	s.keepIdle()
	if _, err := one.r.ReadByte(); err != io.EOF {
		t.Errorf("got %v, want the end", err)
	}
	if open, kept := s.count(); open+kept != 0 {
		t.Errorf("%d connections are open, and %d kept", open, kept)
	}
}

func TestAConnectionIsKeptOnlyIfItMayBe(t *testing.T) {
	s := serve(t, time.Minute)
	s.may = false
	s.dial(t).ask(t, get)
	for n := 0; n < 3; {
		s.keepIdle()
		select {
		case <-s.asked:
			n++
		default:
			runtime.Gosched()
		}
	}
	if open, kept := s.count(); open != 1 || kept != 0 {
		t.Errorf("%d connections are open, and %d kept; want 1 and 0", open, kept)
	}
}

func TestAShutdownClosesKeptConnections(t *testing.T) {
	s := serve(t, time.Minute)
	one, two := s.dial(t), s.dial(t)
	one.ask(t, get)
	s.keepOne()
	two.ask(t, get)
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{one, two} {
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("got %v, want the end", err)
		}
	}
	if open, kept := s.count(); open+kept != 0 {
		t.Errorf("%d connections are open, and %d kept", open, kept)
	}
}

// A slowConn is a connection whose Read takes as long as the test wants.
type slowConn struct {
	net.Conn
	reading  chan struct{} // Read has begun
	bytes    chan string   // what Read returns
	deadline time.Time
}

func (c *slowConn) Read(p []byte) (int, error) {
	c.reading <- struct{}{}
	return copy(p, <-c.bytes), nil
}

func (c *slowConn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func TestARequestThatBeginsWhileItsWaitIsInterruptedHasTime(t *testing.T) {
	slow := &slowConn{reading: make(chan struct{}), bytes: make(chan string)}
	k := &Keeper{options: Options{Timeout: time.Minute, May: func(net.Conn) bool { return true }}}
	c := &Conn{Conn: slow, keeper: k}
	k.Observe(c, http.StateIdle)
	if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	buffer := make([]byte, bufferSize)
	go func() {
		_, err := c.Read(buffer)
		read <- err
	}()
	<-slow.reading
	c.interrupt()
	if !slow.deadline.After(time.Now()) {
		t.Error("interrupted at the first look")
	}
	c.interrupt()
	if slow.deadline.After(time.Now()) {
		t.Error("not interrupted at the second look")
	}
	slow.bytes <- "P" // too little for net/http, which reads again
	if err := <-read; err != nil || !slow.deadline.After(time.Now()) || buffer[0] != 'P' {
		t.Errorf("read %q with %v; the next read has until %v", buffer[0], err, slow.deadline)
	}
}

func TestAConnectionGoesOnAlthoughItsFormerTurnIsClosedLate(t *testing.T) {
	s := serve(t, time.Minute)
	one := s.dial(t)
	one.ask(t, get)
	s.keepOne()
	former := <-s.ended
	one.ask(t, get)
	_ = former.Close() // as a Shutdown does that finds it idle
	if got := one.ask(t, get); got != "1" {
		t.Errorf("connection %s answered, want 1", got)
	}
}

func TestKeptConnectionsAreClosedInTimeWhileOthersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 2 * time.Minute
		k := &Keeper{options: Options{Timeout: timeout}, open: map[*Conn]struct{}{}, kept: map[uint64]*Conn{}}
		idle, client := net.Pipe()
		k.kept[0] = &Conn{Conn: idle, keeper: k, idleFrom: time.Now()}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = client.Read(make([]byte, 1)) // until the other end is closed
		}()
		for began := time.Now(); time.Since(began) < 2*timeout; {
			c := &Conn{keeper: k}
			k.mu.Lock()
			k.addOpen(c)
			k.mu.Unlock()
			time.Sleep(interval / 2)
			k.forget(c)
			select {
			case <-closed:
				if kept := time.Since(began); kept < timeout {
					t.Errorf("closed after %v, want %v", kept, timeout)
				}
				return
			default:
			}
		}
		t.Error("it was not closed in twice its time")
		_ = idle.Close()
		<-closed
	})
}
