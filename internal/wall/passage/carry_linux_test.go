package passage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// words are the lines for the operator.
type words struct {
	mu     sync.Mutex
	text   bytes.Buffer
	closed chan struct{}
}

func newWords() *words { return &words{closed: make(chan struct{})} }

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *words) Close() error { close(w.closed); return nil }

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// A carrier is a passage with one door, which leads to a server of the test.
type carrier struct {
	*Passage
	*words
	door  string
	there chan *net.TCPConn // connections that have arrived at the server
}

func newCarrier(t *testing.T, change func(p *Passage)) *carrier {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	server, door := listen(), listen()
	c := &carrier{Passage: newPassage(innerNetwork{names: map[string]netip.Addr{"api.example.com": localhost4}}), words: newWords(), door: door.Addr().String(), there: make(chan *net.TCPConn, 16)}
	c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "api.example.com:443" {
			t.Errorf("it dials %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Addr().String())
	}
	c.listeners = []openDoor{{doorTo("api.example.com:443"), door}}
	if change != nil {
		change(c.Passage)
	}
	c.Serve(c.words)
	t.Cleanup(c.Passage.Close)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			c.there <- conn.(*net.TCPConn)
		}
	}()
	return c
}

func doorTo(host string) (d door) { d.to = hosts(host)[0]; return d }

// connect connects as the program does.
func (c *carrier) connect(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", c.door)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(wait.Bound))
	return conn.(*net.TCPConn)
}

func TestBytesGoBothWaysAndEachSideEndsByItself(t *testing.T) {
	c := newCarrier(t, nil)
	program := c.connect(t)
	server := wait.Receive(t, "no connection arrives", c.there)
	_ = server.SetDeadline(time.Now().Add(wait.Bound))
	big := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = program.Write(big)
		_ = program.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("%d bytes have arrived, %v", len(got), err)
	}
	go func() { // the other side is still open
		_, _ = server.Write(big)
		_ = server.Close()
	}()
	if got, err := io.ReadAll(program); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes have come back, %v", len(got), err)
	}
	wait.Until(t, "the connection keeps its slot", func() bool { return len(c.slots) == 0 })
}

// Text that was cut off must not look complete.
func TestAConnectionThatBreaksDoesNotLookLikeOneThatEnds(t *testing.T) {
	c := newCarrier(t, nil)
	program := c.connect(t)
	server := wait.Receive(t, "no connection arrives", c.there)
	_, _ = server.Write([]byte("half"))
	if _, err := io.ReadFull(program, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	reset(server)
	if got, err := io.ReadAll(program); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it reads %q, %v", got, err)
	}
}

func TestAConnectionWithOneSideDoesNotStayForever(t *testing.T) {
	c := newCarrier(t, func(p *Passage) { p.halfTime = 10 * time.Millisecond })
	program := c.connect(t)
	server := wait.Receive(t, "no connection arrives", c.there)
	_ = program.CloseWrite()
	if _, err := io.ReadAll(server); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if _, err := program.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ends with %v", err)
	}
}

func TestCloseEndsWhatIsOpen(t *testing.T) {
	c := newCarrier(t, nil)
	program := c.connect(t)
	server := wait.Receive(t, "no connection arrives", c.there)
	_ = server.SetDeadline(time.Now().Add(wait.Bound))
	c.Passage.Close()
	for _, conn := range []net.Conn{program, server} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it is open: %v", err)
		}
	}
	wait.Receive(t, "the words are not closed", c.closed)
	if conn, err := net.Dial("tcp", c.door); err == nil {
		_ = conn.Close()
		t.Error("its door is open")
	}
}

// A queue is a listener that accepts what the test puts into it, until the test closes it.
type queue struct {
	net.Listener
	conns chan net.Conn
}

func (q queue) Accept() (net.Conn, error) {
	if conn, ok := <-q.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// A connection beyond the bound waits until another one has ended.
func TestMoreConnectionsThanTheBoundWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPassage(known())
		var dials atomic.Int64
		end := make(chan struct{})
		p.dial = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			<-end
			return nil, errors.New("no route")
		}
		q := queue{conns: make(chan net.Conn)}
		defer func() { p.close(); close(q.conns) }()
		go p.accept(openDoor{doorTo("api.example.com:443"), q})
		for range maxConnections + 1 {
			q.conns <- &net.TCPConn{}
		}
		synctest.Wait()
		if n := dials.Load(); n != maxConnections {
			t.Errorf("%d connections are carried at once, want %d", n, maxConnections)
		}
		end <- struct{}{}
		synctest.Wait()
		if n := dials.Load(); n != maxConnections+1 {
			t.Errorf("%d connections have been carried when one has ended, want %d", n, maxConnections+1)
		}
		close(end)
	})
}

func TestADoorThatIsNotUsedTakesNoSlot(t *testing.T) {
	c := newCarrier(t, func(p *Passage) {
		p.slots = make(chan struct{}, 1)
		for range 8 {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p.listeners = append([]openDoor{{doorTo("other.example.com:443"), l}}, p.listeners...)
		}
	})
	c.connect(t)
	wait.Receive(t, "no connection arrives", c.there)
}

func TestTheOperatorReadsOnceWhatAProgramDoesNotReach(t *testing.T) {
	var mu sync.Mutex
	var refusal error
	c := newCarrier(t, func(p *Passage) {
		p.dial = func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			return nil, fmt.Errorf("dial: %w", refusal)
		}
	})
	try := func(err error) {
		t.Helper()
		mu.Lock()
		refusal = err
		mu.Unlock()
		conn, err := net.Dial("tcp", c.door) // it may be reset before this returns
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ends with %v", err)
		}
	}
	for range 2 {
		try(&dial.NotPublicError{Host: "api.example.com", Addr: netip.MustParseAddr("10.0.0.5")})
	}
	for i := range 2 * maxLines {
		try(fmt.Errorf("no route from port %d", i))
	}
	for i := range 3 * maxUnknown {
		c.tellUnknown(fmt.Sprintf("x%d.example.com", i))
		c.tellUnknown(fmt.Sprintf("x%d.example.com", i))
	}
	c.tellUnknown("api.example.com.corp.example") // a library has added the domain
	c.tellUnknown("evil\n.example.com")
	const want = `switchboard: the program does not reach api.example.com:443: the host "api.example.com" leads to 10.0.0.5, which is not a public address; if the program may reach it, permit the address, or give the name this address in /etc/hosts
switchboard: the program does not reach api.example.com:443: dial: no route from port 0
switchboard: the program does not reach api.example.com:443: dial: no route from port 1
switchboard: the program asked for the host "x0.example.com", which its permissions do not name
`
	c.Passage.Close() // the guard ends then: all must be written
	got := c.String()
	if !strings.HasPrefix(got, want) {
		t.Errorf("the words are\n%s", got)
	}
	if lines := strings.Count(got, "\n"); lines > maxLines+maxUnknown+1 || strings.Contains(got, "corp") {
		t.Errorf("%d lines:\n%s", lines, got)
	}
}

// A program can make up names. They do not hide why a permitted host was not reached.
func TestMadeUpNamesTakeNoRoomFromPermittedHosts(t *testing.T) {
	permitted := hosts("api.example.com:443", "db.example.com:5432")
	p, w := newPassage(layOut(permitted, nil, func(string) []netip.Addr { return nil })), newWords()
	for i := range 3 * maxUnknown {
		p.tellUnknown(fmt.Sprintf("x%d.example.org", i))
	}
	var want strings.Builder
	for i := range maxUnknown {
		fmt.Fprintf(&want, "switchboard: the program asked for the host \"x%d.example.org\", which its permissions do not name\n", i)
	}
	want.WriteString("switchboard: the program asked for more such hosts; until its next start, no more are named here\n")
	for _, h := range permitted {
		for i := range maxLines {
			p.tellUnreached(h, fmt.Errorf("fault %d", i))
			fmt.Fprintf(&want, "switchboard: the program does not reach %s: fault %d\n", h, i)
		}
	}
	p.Serve(w)
	p.Close()
	if got := w.String(); got != want.String() {
		t.Errorf("the words are\n%s", got)
	}
}

func TestALineThatFoundNoRoomIsToldTheNextTime(t *testing.T) {
	p := newPassage(known())
	p.lines = make(chan string, 1)
	for name, tell := range map[string]func(){
		"a permitted host": func() { p.tellUnreached(hosts("api.example.com:443")[0], errors.New("no route")) },
		"an unknown name":  func() { p.tellUnknown("x.example.org") },
	} {
		p.lines <- "another line"
		tell()
		<-p.lines
		if tell(); len(p.lines) != 1 {
			t.Errorf("%s: it is not told", name)
			continue
		}
		<-p.lines
	}
}

// The remedy for a private address does not help against a list that blocks a name.
func TestTheLineAboutABlockedNamePointsToTheList(t *testing.T) {
	for _, ip := range []string{"0.0.0.0", "::"} {
		want := `the host "api.example.com" leads to ` + ip + `, which is not a public address; a list against advertising may block the name: look into /etc/hosts`
		if got := whyNotReached(fmt.Errorf("dial: %w", &dial.NotPublicError{Host: "api.example.com", Addr: netip.MustParseAddr(ip)})); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
}

// heldWords are words that are not written before the passage is being closed.
type heldWords struct {
	*words
	p *Passage
}

func (w heldWords) Write(b []byte) (int, error) {
	<-w.p.ctx.Done()
	return w.words.Write(b)
}

// A guard ends when its program has ended, and Close is what it waits for.
func TestCloseReturnsWhenTheLastLineIsWritten(t *testing.T) {
	p, w := newPassage(known()), newWords()
	p.Serve(heldWords{w, p})
	for i := range maxUnknown {
		p.tellUnknown(fmt.Sprintf("x%d.example.org", i))
	}
	p.Close()
	if lines := strings.Count(w.String(), "\n"); lines != maxUnknown {
		t.Errorf("%d lines are written, want %d", lines, maxUnknown)
	}
}

// A guard ends even if Switchboard does not read the stderr of its program.
func TestCloseDoesNotWaitForAFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	fill := bytes.Repeat([]byte("x"), 4096)
	_ = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = w.Write(fill)
	}
	_ = w.SetWriteDeadline(time.Time{})
	p := newPassage(known())
	p.Serve(w)
	p.tellUnknown("x.example.org")
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	wait.Receive(t, "Close waits", closed)
}
