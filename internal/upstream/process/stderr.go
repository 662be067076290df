package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
)

// Limits on the start of a server.
const (
	// StartTimeout limits the wait for its answer. The wait begins at the start, or when a program has read its first message.
	StartTimeout = 60 * time.Second

	// DownloadTimeout limits the time until a program has read its first message. npx and its like may download it before.
	DownloadTimeout = 5 * time.Minute
)

// Limits on the log lines that a server's stderr causes.
const (
	maxStderrLine = 2 << 10  // bytes of a line that are logged
	maxStderrRead = 64 << 10 // bytes of a line that are read
	stderrLines   = 1        // lines per second and server, after the burst
	stderrBurst   = 200
	keptLines     = 20 // lines per second and server that are kept, after the burst
	keptBurst     = 2000
	stderrBytes   = 4 << 20 // bytes per second that are read

	// The last lines of a process explain its end, for Status. Each has at most maxQuoted bytes. If
	// the process wrote nothing for lastLinesFresh before it ended, its lines do not explain the
	// end, unless it ended within longestStart.
	maxLastLines   = 10
	lastLinesFresh = 2 * time.Minute
	longestStart   = DownloadTimeout + StartTimeout
)

// A StderrLog logs what a server's processes write to stderr: by line, escaped, and without the
// server's secrets. It limits the lines of one server, for all its processes together.
type StderrLog struct {
	log     *slog.Logger
	mask    *mask.Mask
	limiter *rate.Limiter
	leftOut atomic.Int64 // lines that were left out since the last logged one

	keep        KeepLine // nil if nothing is kept
	keepLimiter *rate.Limiter
	keptOut     atomic.Int64 // lines that were left out since the last kept one
}

// A KeepLine keeps a line that a server has written to its stderr, without the server's secrets. leftOut is the number of
// lines before it that were left out. It must not block.
type KeepLine func(line string, leftOut int)

// StderrMessage is the message of a log record with a line of a server.
const StderrMessage = "a server says"

// NewStderrLog returns the log of one server. keep, if it is not nil, keeps more lines than are logged.
func NewStderrLog(log *slog.Logger, m *mask.Mask, keep KeepLine) *StderrLog {
	return &StderrLog{
		log: log, mask: m, limiter: rate.NewLimiter(stderrLines, stderrBurst),
		keep: keep, keepLimiter: rate.NewLimiter(keptLines, keptBurst),
	}
}

// logLine logs a line if the limit allows it.
func (v *StderrLog) logLine(text []byte, whole bool) {
	if !v.limiter.Allow() {
		v.leftOut.Add(1)
		return
	}
	attrs := []any{"stderr", v.mask.Line(text, maxStderrLine, whole)}
	if n := v.leftOut.Swap(0); n > 0 {
		attrs = append(attrs, "left_out_before", n)
	}
	v.log.Info(StderrMessage, attrs...)
}

// flush logs how many lines were left out at the end of a process.
func (v *StderrLog) flush() {
	if n := v.leftOut.Swap(0); n > 0 {
		v.log.Info("lines of a server's stderr were left out", "lines", n)
	}
}

// A StderrReader reads the stderr of one child process.
type StderrReader struct {
	voice *StderrLog
	Done  chan struct{} // closed when all is read
	began time.Time     // of the process

	mu     sync.Mutex
	lines  []string // the last ones, at most maxLastLines
	lastAt time.Time

	unkept []string // lines that were left out since the last kept one: the last ones, at most maxLastLines
}

// ReadStderr starts to read r until it ends.
func ReadStderr(v *StderrLog, r io.Reader) *StderrReader {
	s := &StderrReader{voice: v, Done: make(chan struct{}), began: time.Now()}
	go func() {
		defer close(s.Done)
		defer v.flush()
		defer s.keepLastLines()
		s.read(r)
	}()
	return s
}

// LastLines returns the last lines if the process has written recently, or may still be starting. A nil reader has none.
func (s *StderrReader) LastLines() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.lastAt) > lastLinesFresh && time.Since(s.began) > longestStart {
		return nil
	}
	return slices.Clone(s.lines)
}

// record adds a line to the last lines. Of each stack trace it keeps two frames, which would push out the error above them.
func (s *StderrReader) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAt = time.Now()
	n := len(s.lines)
	if n >= 2 && isFrame(line) && isFrame(s.lines[n-1]) && isFrame(s.lines[n-2]) {
		return
	}
	if n == maxLastLines {
		s.lines = slices.Delete(s.lines, 0, 1)
	}
	s.lines = append(s.lines, line)
}

// isFrame reports whether the line is a frame of a stack trace of Node.js or Java.
func isFrame(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "at ") }

// LastWords returns the line that says most about why a process has ended: the last one, but behind the error Node.js
// writes its version, and npm the path of its log.
func LastWords(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	last := lines[len(lines)-1]
	switch {
	case strings.HasPrefix(last, "Node.js v"):
		for _, line := range slices.Backward(lines) {
			if strings.Contains(line, "Error: ") && !isFrame(line) {
				return strings.TrimSpace(line)
			}
		}
	case isOfNPM(last):
		for _, line := range lines {
			if isOfNPM(line) && !isNPMFact(line) {
				return line
			}
		}
	}
	return last
}

// isOfNPM reports whether npm has written the line about an error.
func isOfNPM(line string) bool {
	return strings.HasPrefix(line, "npm error ") || strings.HasPrefix(line, "npm ERR! ")
}

// isNPMFact reports whether the line of npm only has a fact about an error, or the path of the log.
func isNPMFact(line string) bool {
	words := strings.Fields(line) // npm error code E404
	return len(words) < 3 || slices.Contains([]string{"code", "errno", "syscall", "path", "dest", "A"}, words[2])
}

// keepLine keeps a line if the limit allows it. words is the line as far as it is shown in a status.
func (s *StderrReader) keepLine(text []byte, whole bool, words string) {
	v := s.voice
	switch {
	case v.keep == nil:
	case v.keepLimiter.Allow():
		v.keep(v.mask.Line(text, maxStderrLine, whole), int(v.keptOut.Swap(0)))
		s.unkept = nil
	default:
		v.keptOut.Add(1)
		if len(s.unkept) == maxLastLines {
			s.unkept = slices.Delete(s.unkept, 0, 1)
		}
		s.unkept = append(s.unkept, words)
	}
}

// keepLastLines keeps the last lines of a process that has ended, also beyond the limit, since they may explain the end.
func (s *StderrReader) keepLastLines() {
	for i, words := range s.unkept {
		leftOut := 0
		if i == 0 {
			leftOut = max(0, int(s.voice.keptOut.Swap(0))-len(s.unkept))
		}
		s.voice.keep(words, leftOut)
	}
}

func (s *StderrReader) read(r io.Reader) {
	// If a process floods its stderr, it must wait until we read on.
	pace := rate.NewLimiter(stderrBytes, stderrBytes)
	lines := bufio.NewReaderSize(r, maxStderrRead)
	for {
		text, err := lines.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		if !whole {
			text = bytes.Clone(text)
		}
		waitForPace(pace, len(text))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of the line
			var rest []byte
			rest, err = lines.ReadSlice('\n')
			waitForPace(pace, len(rest))
		}
		if words := s.voice.mask.Line(text, mask.MaxQuoted, whole); words != "" {
			s.record(words)
			s.voice.logLine(text, whole)
			s.keepLine(text, whole, words)
		}
		if err != nil {
			return
		}
	}
}

// waitForPace waits until the limiter allows n more bytes. n is smaller than its burst.
func waitForPace(pace *rate.Limiter, n int) {
	if d := pace.ReserveN(time.Now(), n).Delay(); d > 0 {
		time.Sleep(d)
	}
}
