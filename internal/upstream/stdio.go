package upstream

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// stdio is the port to a child process: a message a line.
type stdio struct {
	link *link
	proc *process
	says *stderr

	mu      sync.Mutex
	backlog []outgoing
	more    chan struct{} // holds one signal when there is a backlog

	read chan struct{} // closed when nothing more will be read
}

// An outgoing message is a flight's, or has no flight.
type outgoing struct {
	flight *flight
	text   []byte
}

// openStdio serves the process's pipes. The link fails when they end.
func openStdio(l *link, proc *process, v *voice) *stdio {
	s := &stdio{link: l, proc: proc, more: make(chan struct{}, 1), read: make(chan struct{})}
	s.says = readStderr(v, proc.stderr)
	l.port, l.severs = s, true
	go s.write()
	go s.serve()
	return s
}

// start implements port.
func (s *stdio) start(f *flight) { s.enqueue(outgoing{flight: f, text: f.body}) }

// carry implements port: what comes back is for all.
func (s *stdio) carry(f *flight) { s.start(f) }

// tell implements port.
func (s *stdio) tell(message []byte) { s.enqueue(outgoing{text: message}) }

// abandon implements port.
func (s *stdio) abandon(f *flight, sent bool) {
	if sent && !f.opening() {
		s.tell(cancelled(f))
	}
}

// cancelled is the notification that nobody waits for f.
func cancelled(f *flight) []byte {
	params := append(append([]byte(`{"requestId":`), f.id...), '}')
	return wire.AppendNotification(nil, wire.MethodCancelled, params)
}

func (s *stdio) enqueue(o outgoing) {
	s.mu.Lock()
	full := len(s.backlog) >= maxBacklog
	if !full {
		s.backlog = append(s.backlog, o)
	}
	s.mu.Unlock()
	if full {
		s.link.fail(faultf(kindLost, true, "it does not read what is sent to it"))
		return
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// write sends the backlog, one message at a time, so that of each it is known
// whether any byte of it has left.
func (s *stdio) write() {
	for {
		select {
		case <-s.more:
		case <-s.link.done:
			return
		}
		s.mu.Lock()
		batch := s.backlog
		s.backlog = nil
		s.mu.Unlock()
		for _, o := range batch {
			if o.flight != nil && !o.flight.leave() {
				continue
			}
			// The text is ours, and so is the room behind it.
			n, err := s.proc.stdin.Write(append(wire.OneLine(o.text), '\n'))
			if err == nil {
				continue
			}
			if n == 0 && o.flight != nil {
				o.flight.sent.Store(withdrawn) // its pipe took nothing of it
			}
			within(s.read, time.Second) // the reader knows better why it ended
			s.link.fail(faultf(kindLost, true, "it does not read what is sent to it"))
			return
		}
	}
}

// serve reads what the child writes, until it ends or is too much to bear.
func (s *stdio) serve() {
	defer close(s.read)
	err := s.scan()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		// The child has ended, or will be ended: it cannot be talked to.
		within(s.proc.ended, time.Second)
		f := faultf(kindLost, true, "%s", s.obituary())
		f.gone = true
		f.remedy = endRemedy(s.proc.ending(), s.says.last())
		err = f
	}
	s.link.fail(asFault(err))
}

// obituary says how the child ended, with its last line of stderr. Status shows more lines.
func (s *stdio) obituary() string {
	text := "it closed its output"
	if how := s.proc.ending(); how != "" {
		text = "its process ended (" + how + ")"
		within(s.says.done, 100*time.Millisecond)
	}
	if words := s.says.last(); len(words) > 0 {
		text += ", its last words: " + words[len(words)-1]
	}
	return text
}

// scan reads lines until there are no more.
func (s *stdio) scan() error {
	lines := newLineReader(s.proc.stdout, s.link.most)
	for {
		ln, err := lines.next()
		if errors.Is(err, errEndless) {
			s.link.overlong(ln.id, ln.long, false)
			return faultf(kindLost, true, "%s", errEndless)
		}
		if err != nil {
			return err
		}
		if too := s.take(ln); too != "" {
			return faultf(kindLost, true, "%s", too)
		}
	}
}

// take handles one line, and says why it is one too many.
func (s *stdio) take(ln line) (tooMuch string) {
	l := s.link
	if ln.long > 0 {
		l.overlong(ln.id, ln.long, true)
		return l.flood.tick(1, 0, 0)
	}
	text := bytes.TrimSpace(ln.text)
	if len(text) == 0 {
		return l.flood.tick(0, 1, 0)
	}
	m, err := wire.ParseEnvelope(ln.text)
	if err != nil {
		l.drop("a line is no message")
		l.log.Debug("a line that is no message", "line", l.mask.line(text, maxQuoted, true), "why", err)
		return l.flood.tick(1, len(text), 0)
	}
	if l.dispatch(ln.lent, m, nil) {
		return ""
	}
	return l.flood.tick(0, 0, 1)
}

// shut implements port.
func (s *stdio) shut(hurry <-chan struct{}) {
	if !s.proc.stop(hurry) {
		s.link.log.Error("a server's process does not end, even when killed", "pid", s.proc.pid)
	}
	// A process that left the group may hold the pipes open; we do not wait
	// for it.
	within(s.read, time.Second)
	_ = s.proc.stdout.Close()
	_ = s.proc.stderr.Close()
	<-s.read
	<-s.says.done
}

// within waits for c to be closed, at most for d.
func within(c <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}
