package passage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds for a program that wants too much.
const (
	maxConnections = 128 // the next ones wait
	maxQuestioners = 8   // connections of DNS over TCP
	maxQuestion    = 4096
	maxLines       = 3  // for the operator about one permitted host, while the program runs
	maxUnknown     = 64 // names that the operator is told about, while the program runs
)

// Time limits.
const (
	halfClosedTimeout = 10 * time.Minute // of a connection, after one side has ended
	questionTimeout   = 10 * time.Second // of a connection of DNS over TCP
	acceptPause       = 50 * time.Millisecond
	lastWords         = time.Second // to write the last lines for the operator
)

// A Passage carries the connections of one program. The zero value is not usable; see Open.
type Passage struct {
	inner     innerNetwork
	listeners []openDoor
	tcpDNS    []net.Listener
	udpDNS    []net.PacketConn
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	halfTime  time.Duration

	ctx   context.Context // ends with the passage
	close context.CancelFunc
	slots chan struct{}       // one is held for each connection
	lines chan string         // for the operator
	wrote chan struct{}       // closed when all lines are written; nil before Serve
	mu    sync.Mutex          // guards told and asked
	told  map[string][]string // lines about each permitted host
	asked map[string]bool     // names that the operator was told about
}

// An openDoor is a door with its listener.
type openDoor struct {
	door
	net.Listener
}

// newPassage returns a passage without listeners.
func newPassage(inner innerNetwork) *Passage {
	p := &Passage{
		inner: inner, dial: dial.ForProgram, halfTime: halfClosedTimeout,
		slots: make(chan struct{}, maxConnections), lines: make(chan string, maxUnknown+1+maxLines*len(inner.doors)), // room for all that there can be
		told: map[string][]string{}, asked: map[string]bool{},
	}
	p.ctx, p.close = context.WithCancel(context.Background())
	return p
}

// Serve carries connections and answers DNS until Close is called. It returns at once. It writes to words, a line each, which hosts the program
// could not reach, and why, and closes it in the end.
func (p *Passage) Serve(words io.WriteCloser) {
	for _, l := range p.listeners {
		go p.accept(l)
	}
	for _, l := range p.tcpDNS {
		go p.answerOverTCP(l)
	}
	for _, l := range p.udpDNS {
		go p.answerOverUDP(l)
	}
	p.wrote = make(chan struct{})
	go p.write(words)
}

// write writes the lines for the operator.
func (p *Passage) write(words io.WriteCloser) {
	defer func() { _ = words.Close(); close(p.wrote) }()
	for p.ctx.Err() == nil || len(p.lines) > 0 {
		select {
		case line := <-p.lines:
			_, _ = io.WriteString(words, "switchboard: "+line+"\n") // or the program has no stderr any more
		case <-p.ctx.Done():
		}
	}
}

// Close ends all connections. Nothing is carried from then on. It returns when the last lines for the operator are written, or soon after: the pipe may
// be full.
func (p *Passage) Close() {
	p.close()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	for _, l := range p.tcpDNS {
		_ = l.Close()
	}
	for _, l := range p.udpDNS {
		_ = l.Close()
	}
	if p.wrote == nil {
		return
	}
	select {
	case <-p.wrote:
	case <-time.After(lastWords):
	}
}

// tellUnreached tells the operator why a permitted host was not reached: each line once, and a few about each host.
func (p *Passage) tellUnreached(to switchboard.HostPort, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("the program does not reach %s: %s", to, whyNotReached(err))
	if lines := p.told[to.String()]; len(lines) < maxLines && !slices.Contains(lines, line) && p.queue(line) {
		p.told[to.String()] = append(lines, line)
	}
}

// queue puts a line into the queue of those that are to be written, and reports whether it found room.
func (p *Passage) queue(line string) bool {
	select {
	case p.lines <- line:
		return true
	default:
		return false
	}
}

// accept carries the connections of one door.
func (p *Passage) accept(l openDoor) {
	for {
		in, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause) // there are too many open files
			continue
		}
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			_ = in.Close()
			return
		}
		go func() {
			defer func() { <-p.slots }()
			p.carry(in.(*net.TCPConn), l.to)
		}()
	}
}

// carry carries a connection of the program to a host, until both sides have ended.
func (p *Passage) carry(in *net.TCPConn, to switchboard.HostPort) {
	ctx, cancel := context.WithTimeout(p.ctx, dial.Timeout)
	defer cancel()
	conn, err := p.dial(ctx, "tcp", to.String())
	if err != nil {
		p.tellUnreached(to, err)
		reset(in)
		return
	}
	out := conn.(*net.TCPConn)
	stop := context.AfterFunc(p.ctx, func() { reset(in, out) })
	defer stop()
	var both sync.WaitGroup
	pass := func(to, from *net.TCPConn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		if err != nil {
			reset(in, out) // text that was cut off must not look complete
			return
		}
		deadline := time.Now().Add(p.halfTime)
		_, _ = in.SetDeadline(deadline), out.SetDeadline(deadline)
	}
	both.Go(func() { pass(out, in) })
	both.Go(func() { pass(in, out) })
	both.Wait()
	_, _ = in.Close(), out.Close()
}

// reset closes connections so that the other ends see an error.
func reset(conns ...*net.TCPConn) {
	for _, c := range conns {
		_, _ = c.SetLinger(0), c.Close()
	}
}

// whyNotReached says why a host was not reached, with the remedy.
func whyNotReached(err error) string {
	refused, ok := errors.AsType[*dial.NotPublicError](err)
	switch {
	case !ok:
		return err.Error()
	case refused.Addr.Unmap().IsUnspecified():
		return refused.Error() + "; a list against advertising may block the name: look into /etc/hosts"
	default:
		return refused.Error() + "; if the program may reach it, permit the address, or give the name this address in /etc/hosts"
	}
}

// tellUnknown tells the operator about a name that the program has asked for in vain: each once, and a bounded number, because a program can make up
// names to hide one. It tells nothing about a permitted name with a domain of resolv.conf
// behind it: libraries ask for that too.
func (p *Passage) tellUnknown(asked string) {
	for name := range p.inner.names {
		if strings.HasPrefix(asked, name+".") {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	line := "the program asked for the host " + strconv.QuoteToASCII(asked) + ", which its permissions do not name"
	if len(p.asked) == maxUnknown {
		line = "the program asked for more such hosts; until its next start, no more are named here"
	}
	if len(p.asked) <= maxUnknown && !p.asked[asked] && p.queue(line) {
		p.asked[asked] = true
	}
}

// answerOverUDP answers questions.
func (p *Passage) answerOverUDP(l net.PacketConn) {
	b := make([]byte, maxQuestion)
	for {
		n, from, err := l.ReadFrom(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		answer, unknown := p.inner.answer(b[:n])
		if unknown != "" {
			p.tellUnknown(unknown)
		}
		if answer != nil {
			_, _ = l.WriteTo(answer, from) // or the program asks again
		}
	}
}

// answerOverTCP answers the questions of a few connections at once.
func (p *Passage) answerOverTCP(l net.Listener) {
	slots := make(chan struct{}, maxQuestioners)
	for {
		slots <- struct{}{}
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			<-slots
			time.Sleep(acceptPause)
			continue
		}
		go func() {
			defer func() { _ = conn.Close(); <-slots }()
			_ = p.answerConnection(conn) // the program closes it, or time is up
		}()
	}
}

// answerConnection answers the questions of one connection.
func (p *Passage) answerConnection(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(questionTimeout)); err != nil {
		return err
	}
	for p.ctx.Err() == nil {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxQuestion {
			return errors.New("the question is too long")
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		answer, unknown := p.inner.answer(b)
		if unknown != "" {
			p.tellUnknown(unknown)
		}
		if answer == nil {
			return errors.New("this is no question")
		}
		binary.BigEndian.PutUint16(size[:], uint16(len(answer)))
		if _, err := conn.Write(append(size[:], answer...)); err != nil {
			return err
		}
	}
	return p.ctx.Err()
}

// machineNameservers returns the nameservers of this machine.
func machineNameservers() []netip.Addr {
	f, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, _ := io.ReadAll(io.LimitReader(f, 64<<10))
	return parseNameservers(text)
}
