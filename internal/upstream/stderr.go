package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What a server's stderr may put into our log.
const (
	maxStderrLine  = 2 << 10  // bytes of a line that are shown
	maxStderrRead  = 64 << 10 // bytes of a line that are looked at
	maxQuoted      = 300      // bytes of a server's text within a sentence of ours
	stderrLines    = 20       // lines a second
	stderrBurst    = 200
	stderrBytes    = 4 << 20 // bytes a second that are read at all
	lastWordsFresh = time.Minute
)

// A stderr logs what a child writes there: in lines, escaped, without the
// server's secrets, and no more than a log can bear.
type stderr struct {
	done chan struct{}

	mu      sync.Mutex
	words   string
	wordsAt time.Time
}

func readStderr(log *slog.Logger, m *mask, r io.Reader) *stderr {
	s := &stderr{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.copy(log, m, r)
	}()
	return s
}

// last returns the last line of late, for a sentence.
func (s *stderr) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.wordsAt) > lastWordsFresh {
		return ""
	}
	return s.words
}

func (s *stderr) copy(log *slog.Logger, m *mask, r io.Reader) {
	// A child that floods its stderr waits for us, and not we for it.
	pace := rate.NewLimiter(stderrBytes, stderrBytes)
	shown := rate.NewLimiter(stderrLines, stderrBurst)
	hidden := 0
	lines := bufio.NewReaderSize(r, maxStderrRead)
	for {
		text, err := lines.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		if !whole {
			text = bytes.Clone(text)
		}
		wait(pace, len(text))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of the line
			var rest []byte
			rest, err = lines.ReadSlice('\n')
			wait(pace, len(rest))
		}
		if said := m.line(text, maxStderrLine, whole); said != "" {
			s.mu.Lock()
			s.words, s.wordsAt = m.line(text, maxQuoted, whole), time.Now()
			s.mu.Unlock()
			switch {
			case !shown.Allow():
				hidden++
			case hidden > 0:
				log.Warn("lines of a server's stderr were left out", "lines", hidden)
				hidden = 0
				fallthrough
			default:
				log.Info("a server says", "stderr", said)
			}
		}
		if err != nil {
			if hidden > 0 {
				log.Warn("lines of a server's stderr were left out", "lines", hidden)
			}
			return
		}
	}
}

// wait keeps to the pace of n bytes, of which there are fewer than its burst.
func wait(pace *rate.Limiter, n int) {
	if d := pace.ReserveN(time.Now(), n).Delay(); d > 0 {
		time.Sleep(d)
	}
}
