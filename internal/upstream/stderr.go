package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// What a server's stderr may put into our log.
const (
	maxStderrLine = 2 << 10  // bytes of a line that are shown
	maxStderrRead = 64 << 10 // bytes of a line that are looked at
	maxQuoted     = 300      // bytes of a server's text within a sentence of ours
	stderrLines   = 1        // lines a second of one server, beyond the burst
	stderrBurst   = 200
	stderrBytes   = 4 << 20 // bytes a second that are read at all

	// The last words of a process: so many lines, each of at most maxQuoted bytes. Words that
	// are older than the end of the process by lastWordsFresh are not about the end. The words
	// of a start still count when the start has taken all of startPatience.
	maxLastWords   = 10
	lastWordsFresh = startPatience + time.Minute
)

// A voice logs what a server's processes write to stderr: in lines, escaped,
// without the server's secrets, and no more than a log can bear of one server,
// however many processes it has and however often they are started.
type voice struct {
	log   *slog.Logger
	mask  *mask
	shown *rate.Limiter
	quiet atomic.Int64 // lines that were left out since the last that was shown
}

func newVoice(log *slog.Logger, m *mask) *voice {
	return &voice{log: log, mask: m, shown: rate.NewLimiter(stderrLines, stderrBurst)}
}

// say logs a line, if there is room for it.
func (v *voice) say(text []byte, whole bool) {
	if !v.shown.Allow() {
		v.quiet.Add(1)
		return
	}
	attrs := []any{"stderr", v.mask.line(text, maxStderrLine, whole)}
	if n := v.quiet.Swap(0); n > 0 {
		attrs = append(attrs, "left_out_before", n)
	}
	v.log.Info("a server says", attrs...)
}

// end says what was left out last, when a process has said all.
func (v *voice) end() {
	if n := v.quiet.Swap(0); n > 0 {
		v.log.Info("lines of a server's stderr were left out", "lines", n)
	}
}

// A stderr reads what a child writes there.
type stderr struct {
	voice *voice
	done  chan struct{}

	mu      sync.Mutex
	words   []string // the last lines, at most maxLastWords
	wordsAt time.Time
}

func readStderr(v *voice, r io.Reader) *stderr {
	s := &stderr{voice: v, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer v.end()
		s.read(r)
	}()
	return s
}

// last returns the last lines, if the process has written lately. It returns nothing for a
// nil s.
func (s *stderr) last() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.wordsAt) > lastWordsFresh {
		return nil
	}
	return slices.Clone(s.words)
}

// keep adds a line to the last lines.
func (s *stderr) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.words) == maxLastWords {
		s.words = slices.Delete(s.words, 0, 1)
	}
	s.words, s.wordsAt = append(s.words, line), time.Now()
}

func (s *stderr) read(r io.Reader) {
	// A child that floods its stderr waits for us, and not we for it.
	pace := rate.NewLimiter(stderrBytes, stderrBytes)
	lines := bufio.NewReaderSize(r, maxStderrRead)
	for {
		text, err := lines.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		if !whole {
			text = bytes.Clone(text)
		}
		keepPace(pace, len(text))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of the line
			var rest []byte
			rest, err = lines.ReadSlice('\n')
			keepPace(pace, len(rest))
		}
		if words := s.voice.mask.line(text, maxQuoted, whole); words != "" {
			s.keep(words)
			s.voice.say(text, whole)
		}
		if err != nil {
			return
		}
	}
}

// keepPace waits until the pace allows n more bytes. n is smaller than its burst.
func keepPace(pace *rate.Limiter, n int) {
	if d := pace.ReserveN(time.Now(), n).Delay(); d > 0 {
		time.Sleep(d)
	}
}
