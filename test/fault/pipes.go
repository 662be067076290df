package fault

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Pipes decides the faults of servers on stdio: Program, which the client starts, asks it about each request. So its orders outlive the process.
type Pipes struct {
	Cue
	listener net.Listener
	serving  sync.WaitGroup

	state    sync.Mutex
	programs map[*leash]struct{}
	closed   bool
}

// The orders that a Pipes sends to its programs, besides the kinds.
const (
	orderExit = "!exit" // at once
	orderCalm = "!calm" // faults in progress end
)

// NewPipes listens on loopback for its programs.
func NewPipes() (*Pipes, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Pipes{listener: l, programs: map[*leash]struct{}{}}
	p.change = p.refuse
	p.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.serve(&leash{conn: conn, ended: make(chan struct{})}) })
		}
	})
	return p, nil
}

// Args returns the arguments with which Program runs the command of a server.
func (p *Pipes) Args(command ...string) []string {
	return append([]string{p.listener.Addr().String()}, command...)
}

// Close ends the programs.
func (p *Pipes) Close() {
	p.state.Lock()
	p.closed = true
	_ = p.listener.Close()
	for l := range p.programs {
		_ = l.conn.Close()
	}
	p.state.Unlock()
	p.Disarm()
	p.serving.Wait()
}

// refuse ends the programs, and returns when they have ended.
func (p *Pipes) refuse(yes bool) {
	if !yes {
		return
	}
	p.state.Lock()
	programs := slices.Collect(maps.Keys(p.programs))
	p.state.Unlock()
	for _, l := range programs {
		l.say(orderExit)
	}
	for _, l := range programs {
		select {
		case <-l.ended:
		case <-time.After(patience):
		}
		for end := time.Now().Add(patience); alive(l.pid) && time.Now().Before(end); {
			<-time.After(time.Millisecond) // the system has closed its sockets, but maybe not yet its pipes
		}
	}
}

// alive reports whether the process may still hold files open, if the system tells. While a process ends, its first thread may end before the others.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	const state, threads = 0, 17
	return len(f) <= threads || f[state] != "Z" || f[threads] != "1"
}

func (p *Pipes) serve(l *leash) {
	in := bufio.NewReader(l.conn)
	if _, err := fmt.Fscanln(in, &l.pid); err != nil {
		_ = l.conn.Close()
		return
	}
	p.state.Lock()
	if p.closed {
		p.state.Unlock()
		_ = l.conn.Close()
		return
	}
	p.programs[l] = struct{}{}
	p.state.Unlock()
	defer func() {
		close(l.ended)
		_ = l.conn.Close()
		p.state.Lock()
		defer p.state.Unlock()
		delete(p.programs, l)
	}()
	if p.refuses() {
		l.say(orderExit)
		return
	}
	l.say("")
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m := read(line)
		kind, calm := p.next(&m)
		l.say(string(kind))
		if calm != nil {
			p.serving.Go(func() {
				select {
				case <-calm:
					l.say(orderCalm)
				case <-l.ended:
				}
			})
		}
	}
}

// A leash is the connection to a program.
type leash struct {
	conn  net.Conn
	pid   int
	ended chan struct{} // closed when the process has ended
	mu    sync.Mutex    // held during a write
}

func (l *leash) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.conn.Write([]byte(line + "\n")) // a program that has ended needs no orders
}

// Program runs the process between a client, on its stdin and stdout, and a server on stdio that it starts. args are those of Pipes.Args. It returns
// the exit code.
func Program(args []string) int {
	conn, err := net.DialTimeout("tcp", args[0], patience)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		return 2
	}
	g := &program{conn: conn, met: make(chan meeting), calm: make(chan struct{}), caught: map[string]chan []byte{}}
	fmt.Fprintln(conn, os.Getpid())
	orders := bufio.NewReader(conn)
	if first, err := orders.ReadString('\n'); err != nil || first == orderExit+"\n" {
		return 1
	}
	server := exec.Command(args[1], args[2:]...)
	server.Stderr = os.Stderr
	if g.server, err = server.StdinPipe(); err != nil {
		return 2
	}
	says, err := server.StdoutPipe()
	if err != nil {
		return 2
	}
	if err := server.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		return 2
	}
	go g.obey(orders)
	go func() {
		g.hear(bufio.NewReader(says))
		os.Exit(0) // with the server
	}()
	g.relay(bufio.NewReader(os.Stdin))
	_ = g.server.Close()
	_ = server.Wait()
	return 0
}

// A meeting is the fault of a request, and the channel that is closed when the fault shall end.
type meeting struct {
	kind Kind
	calm <-chan struct{}
}

// A program is the state of Program.
type program struct {
	conn   net.Conn
	met    chan meeting // the answers of Pipes
	server io.WriteCloser

	out sync.Mutex // held during a write

	mu     sync.Mutex
	calm   chan struct{}
	caught map[string]chan []byte // answers that are held back from the client, by the id of the request
}

// obey executes orders until their connection ends.
func (g *program) obey(orders *bufio.Reader) {
	for {
		line, err := orders.ReadString('\n')
		switch line = strings.TrimSuffix(line, "\n"); {
		case err != nil, line == orderExit:
			os.Exit(1)
		case line == orderCalm:
			g.mu.Lock()
			close(g.calm)
			g.calm = make(chan struct{})
			g.mu.Unlock()
		default:
			g.mu.Lock()
			calm := g.calm
			g.mu.Unlock()
			g.met <- meeting{Kind(line), calm}
		}
	}
}

// relay forwards the client's messages until stdin ends.
func (g *program) relay(in *bufio.Reader) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m := read(line)
		met := meeting{kind: None}
		if m.Method != "" && len(m.ID) > 0 {
			if _, err := g.conn.Write(line); err != nil {
				return
			}
			met = <-g.met
		}
		if met.kind == None {
			if _, err := g.server.Write(line); err != nil {
				return
			}
			continue
		}
		if !row(met.kind).Executes {
			g.end(met.kind)
		}
		answer := g.execute(line, &m)
		go g.meet(met, answer)
	}
}

// execute sends the request to the server, and returns the channel that will have its answer.
func (g *program) execute(line []byte, m *message) <-chan []byte {
	answer := make(chan []byte, 1)
	g.mu.Lock()
	g.caught[string(m.ID)] = answer
	g.mu.Unlock()
	_, _ = g.server.Write(line) // another goroutine notices its end
	return answer
}

// end ends the process, or makes it hang.
func (g *program) end(kind Kind) {
	switch kind {
	case ExitBefore, ExitAfter:
		os.Exit(3)
	default:
		_ = syscall.Close(syscall.Stdout)
		select {} // until it is killed
	}
}

// meet applies the fault to a request that the server executes.
func (g *program) meet(met meeting, executed <-chan []byte) {
	answer := <-executed
	kind, calm := met.kind, met.calm
	g.out.Lock()
	defer g.out.Unlock()
	switch kind {
	case ResetAfter, ExitAfter:
		g.end(kind)
	case HangBefore:
	case HangAfter:
		_, _ = os.Stdout.Write(answer[:len(answer)/2])
		<-calm
		_, _ = os.Stdout.Write(append(answer[len(answer)/2:], '\n'))
	case Drip:
		_ = drip(os.Stdout, append(answer, '\n'), calm, nil)
	case Notifications:
		_ = endless(calm, func(message []byte) error { // until the client has gone
			_, err := os.Stdout.Write(append(message, '\n'))
			return err
		})
	default:
		for _, message := range kind.spoil(answer) {
			_, _ = os.Stdout.Write(append(bytes.Clone(message), '\n'))
		}
	}
}

// hear forwards the server's messages until its output ends.
func (g *program) hear(in *bufio.Reader) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if g.keeps(line) {
			continue
		}
		g.out.Lock()
		_, err = os.Stdout.Write(line)
		g.out.Unlock()
		if err != nil {
			return
		}
	}
}

// keeps reports whether the line is held back from the client.
func (g *program) keeps(line []byte) bool {
	m := read(line)
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := g.caught[string(m.ID)]
	if answer == nil || !m.answers() {
		return false
	}
	delete(g.caught, string(m.ID))
	answer <- bytes.TrimSuffix(line, []byte("\n"))
	return true
}
