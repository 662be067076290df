package link

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// stdioPort is the port to a child process: each message is a line.
type stdioPort struct {
	link   *Link
	proc   *process.Process
	stderr *process.StderrReader

	mu      sync.Mutex
	backlog []outgoingMessage
	wake    chan struct{} // holds one signal when there is a backlog

	readDone chan struct{} // closed when reading has ended
}

// An outgoingMessage is the message of a request, or a message without an answer.
type outgoingMessage struct {
	request *Request
	text    []byte
}

// newStdioPort starts to serve the process's pipes. The link fails when they end.
func newStdioPort(l *Link, proc *process.Process, v *process.StderrLog) *stdioPort {
	s := &stdioPort{link: l, proc: proc, wake: make(chan struct{}, 1), readDone: make(chan struct{})}
	s.stderr = process.ReadStderr(v, proc.Stderr)
	l.Use(s, true)
	go s.write()
	go s.serve()
	return s
}

// Start implements Port.
func (s *stdioPort) Start(f *Request) { s.enqueue(outgoingMessage{request: f, text: f.Body}) }

// StartBlocking implements Port. The responses come on a shared stream.
func (s *stdioPort) StartBlocking(f *Request) { s.Start(f) }

// Post implements Port.
func (s *stdioPort) Post(message []byte) { s.enqueue(outgoingMessage{text: message}) }

// Cancel implements Port.
func (s *stdioPort) Cancel(f *Request, sent bool) {
	if sent && !f.isHandshake() {
		s.Post(cancelNotification(f))
	}
}

// cancelNotification returns the notification that cancels f.
func cancelNotification(f *Request) []byte {
	params := append(append([]byte(`{"requestId":`), f.ID...), '}')
	return wire.AppendNotification(nil, wire.MethodCancelled, params)
}

func (s *stdioPort) enqueue(o outgoingMessage) {
	s.mu.Lock()
	full := len(s.backlog) >= maxBacklog
	if !full {
		s.backlog = append(s.backlog, o)
	}
	s.mu.Unlock()
	if full {
		s.link.Fail(Errorf(KindLost, true, "it does not read what is sent to it"))
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends the backlog one message at a time, so that it knows for each message whether any byte
// of it has left.
func (s *stdioPort) write() {
	for {
		select {
		case <-s.wake:
		case <-s.link.Requests.Done:
			return
		}
		s.mu.Lock()
		batch := s.backlog
		s.backlog = nil
		s.mu.Unlock()
		for _, o := range batch {
			if o.request != nil && !o.request.Sending.Claim() {
				continue
			}
			// We own the text and the capacity behind it.
			n, err := s.proc.Stdin.Write(append(wire.OneLine(o.text), '\n'))
			if err == nil {
				continue
			}
			if n == 0 && o.request != nil {
				o.request.Sending.NothingLeft() // the pipe took no byte
			}
			task.WaitFor(s.readDone, time.Second) // the reader has a better reason for the end
			s.link.Fail(Errorf(KindLost, true, "it does not read what is sent to it"))
			return
		}
	}
}

// serve reads the process's stdout until it ends or breaks a limit.
func (s *stdioPort) serve() {
	defer close(s.readDone)
	err := s.readLines()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		// The process has ended or is about to be ended.
		task.WaitFor(s.proc.Ended, time.Second)
		f := Errorf(KindLost, true, "%s", s.endText())
		f.Gone = true
		f.Remedy = cmp.Or(process.ExitRemedy(s.proc.ExitStatus(), s.stderr.LastLines()), process.WallRemedy(s.proc.Walls, s.stderr.LastLines()))
		err = f
	}
	s.link.Fail(AsError(err))
}

// endText says how the process ended, with a line of its stderr. Status shows more lines.
func (s *stdioPort) endText() string {
	text := "it closed its output"
	if how := s.proc.ExitStatus(); how != "" {
		text = "its process ended (" + how + ")"
		task.WaitFor(s.stderr.Done, 100*time.Millisecond)
	}
	if words := process.LastWords(s.stderr.LastLines()); words != "" {
		text += ", its last words: " + words
	}
	return text
}

// readLines handles lines until reading fails.
func (s *stdioPort) readLines() error {
	lines := frame.NewMessageReader(s.proc.Stdout, s.link.maxBytes)
	for {
		ln, err := lines.Next()
		if errors.Is(err, frame.ErrEndlessLine) {
			err = Errorf(KindLost, true, "%s", frame.ErrEndlessLine)
			s.link.failTooLong(ln.ID, ln.Skipped, err)
			return err
		}
		if err != nil {
			return err
		}
		if too := s.handleLine(ln); too != "" {
			return Errorf(KindLost, true, "%s", too)
		}
	}
}

// handleLine handles one line. It returns the reason to close the connection, or "".
func (s *stdioPort) handleLine(ln frame.Line) (tooMuch string) {
	l := s.link
	if ln.Skipped > 0 {
		l.failTooLong(ln.ID, ln.Skipped, nil)
		return l.inbox.flood.add(1, 0, 0)
	}
	text := bytes.TrimSpace(ln.Text)
	if len(text) == 0 {
		return l.inbox.flood.add(0, 1, 0)
	}
	m, err := wire.ParseEnvelope(ln.Text)
	if err != nil {
		l.inbox.drop("a line is not a message")
		l.log.Debug("a line that is not a message", "line", l.mask.Line(text, mask.MaxQuoted, true), "why", err)
		return l.inbox.flood.add(1, len(text), 0)
	}
	if l.inbox.dispatch(ln.Lent, m, nil) {
		return ""
	}
	return l.inbox.flood.add(0, 0, 1)
}

// ShutDown implements Port.
func (s *stdioPort) ShutDown(hurry <-chan struct{}) {
	if !s.proc.Stop(hurry) {
		s.link.log.Error("a server's process does not end, even when killed", "pid", s.proc.PID)
	}
	// A process that left the group may hold the pipes open. We do not wait for it.
	task.WaitFor(s.readDone, time.Second)
	_ = s.proc.Stdout.Close()
	_ = s.proc.Stderr.Close()
	<-s.readDone
	<-s.stderr.Done
}
