package logoutput

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

// Bounds of the files in the data folder. Each file has a second one of the same size behind it.
const (
	maxOwnFile     = 8 << 20
	maxServerFile  = 1 << 20
	maxServerFiles = 128 // servers with files; those with the oldest last line are removed
	queuedLines    = 4096
	reportInterval = time.Minute
	rotationLimit  = 10 * time.Second // after that, a rotation has been cut short
	busyLimit      = time.Second      // how long a line waits for the rotation of another process
)

// The names below the data folder.
const (
	ownFile      = "switchboard.log"
	serverFolder = "servers"
	fileEnding   = ".log"
	rotated      = ".1"
	rotating     = ".rotating"
)

// Folder returns the folder of the log files in a data folder.
func Folder(data string) string { return filepath.Join(data, "logs") }

func serverFile(folder, server string) string {
	return filepath.Join(folder, serverFolder, server+fileEnding)
}

// encodeServerLine returns the line of a file for a line of a server.
func encodeServerLine(server, text string, leftOut int) []byte {
	line, err := json.Marshal(serverText{time.Now(), server, os.Getpid(), leftOut, text})
	if err != nil {
		return nil // it has no value that cannot be encoded
	}
	return append(line, '\n')
}

// A serverText is a line in the file of a server.
type serverText struct {
	Time    time.Time `json:"time"`
	Server  string    `json:"server"`
	PID     int       `json:"pid"` // of the Switchboard that wrote it
	LeftOut int       `json:"left_out,omitempty"`
	Text    string    `json:"text"`
}

// A file is where a line goes, and the size that the file may have.
type file struct {
	path    string
	limit   int64
	private bool // its folder is ours too
}

// recordWriter writes whole records to a file, through the queue. If the file cannot be written, they go to instead.
type recordWriter struct {
	writer  *fileQueue
	file    file
	instead io.Writer
}

func (w *recordWriter) Write(record []byte) (int, error) {
	w.writer.enqueue(queuedLine{w.file, bytes.Clone(record), w.instead})
	return len(record), nil
}

type queuedLine struct {
	file    file
	line    []byte
	instead io.Writer
}

// A fileQueue appends lines to files. One goroutine does all of it, and opens a file only while it appends: so another process
// can rotate the file, and a folder that was removed is made again.
//
// Several processes may append to one file. Each line is one write at the end of the file, so that lines stay whole.
type fileQueue struct {
	report func(error)

	mu      sync.Mutex // held while a line is put into the queue or the queue is closed
	queue   chan queuedLine
	closed  bool
	started bool
	done    chan struct{}

	lost     atomic.Int64 // lines that found the queue full, or could not be written
	told     int64        // how many of them were reported
	reported time.Time    // when report was called last
	torn     map[string]bool
}

func newFileQueue(report func(error)) *fileQueue {
	return &fileQueue{report: report, queue: make(chan queuedLine, queuedLines), done: make(chan struct{}), torn: map[string]bool{}}
}

func (w *fileQueue) write(f file, line []byte) {
	f.private = true
	w.enqueue(queuedLine{f, line, io.Discard})
}

// enqueue puts the line into the queue, or counts it as lost if the queue is full.
func (w *fileQueue) enqueue(l queuedLine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if !w.started {
		w.started = true
		go w.run()
	}
	select {
	case w.queue <- l:
	default:
		w.lost.Add(1)
	}
}

// close waits until the lines in the queue are written, for at most the limit.
func (w *fileQueue) close(limit time.Duration) {
	w.mu.Lock()
	again, started := w.closed, w.started
	w.closed = true
	w.mu.Unlock()
	if again || !started {
		return
	}
	close(w.queue)
	select {
	case <-w.done:
	case <-time.After(limit):
	}
}

func (w *fileQueue) run() {
	defer close(w.done)
	for l := range w.queue {
		err := w.append(l.file, l.line)
		if err != nil {
			w.lost.Add(1)
			_, _ = l.instead.Write(l.line) // there is no other place for it
		}
		w.reportLost(err)
	}
}

// errSlow is the reason why lines find the queue full.
var errSlow = errors.New("lines come faster than they can be written")

// reportLost reports lines that were left out, from time to time. err is why the last line could not be written.
func (w *fileQueue) reportLost(err error) {
	lost, now := w.lost.Load(), time.Now()
	if lost == w.told || now.Sub(w.reported) < reportInterval {
		return
	}
	if err == nil {
		err = errSlow
	}
	w.told, w.reported = lost, now
	w.report(fmt.Errorf("%w; %d lines were left out so far", err, lost))
}

// errFull says that a file has reached its limit and stays.
var errFull = errors.New("it is full, and it cannot be rotated")

// append appends one line to a file, which is made and rotated as necessary.
func (w *fileQueue) append(f file, line []byte) error {
	out, err := openWithRoom(f, int64(len(line)))
	if err != nil {
		return err
	}
	if w.torn[f.path] { // the disk was full in the middle of a line
		line = append([]byte{'\n'}, line...)
	}
	n, err := out.Write(line)
	if w.torn[f.path] = err != nil && n > 0; !w.torn[f.path] {
		delete(w.torn, f.path)
	}
	return errors.Join(err, out.Close())
}

// openWithRoom opens a file that has room for n bytes. It rotates the file if necessary. While another process does that, the file
// may become a little larger.
func openWithRoom(f file, n int64) (*os.File, error) {
	for began := time.Now(); ; {
		out, err := openAppend(f)
		if err != nil {
			return nil, err
		}
		info, err := out.Stat()
		if err != nil || info.Size() == 0 || info.Size()+n <= f.limit {
			return out, nil // without its size, there is nothing to decide
		}
		_ = out.Close() // nothing was written
		fault := rotate(f)
		if out, err = openAppend(f); err != nil {
			return nil, err
		}
		if info, err = out.Stat(); err != nil || info.Size() == 0 || info.Size()+n <= f.limit+f.limit/8 {
			return out, nil
		}
		_ = out.Close() // nothing was written
		if fault != nil || time.Since(began) > busyLimit {
			return nil, errors.Join(fmt.Errorf("%s: %w", f.path, errFull), fault)
		}
		time.Sleep(time.Millisecond)
	}
}

// openAppend opens a file to append to it. The file of a server that has none may displace those of another one.
func openAppend(f file) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE
	if !f.private {
		return ownfile.Open(f.path, flags)
	}
	out, err := os.OpenFile(f.path, flags&^os.O_CREATE, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	folder := filepath.Dir(f.path)
	if err := ownfile.MakeFolders(folder); err != nil {
		return nil, err
	}
	if filepath.Base(folder) == serverFolder {
		if err := removeOldest(folder, maxServerFiles-1); err != nil {
			return nil, err
		}
	}
	return ownfile.Open(f.path, flags)
}

// rotate moves a file that is full to NAME.1. If another process does that at the moment, rotate does nothing. The error
// says why the file cannot be moved.
func rotate(f file) error {
	lock := f.path + rotating
	if info, err := os.Stat(lock); err == nil && time.Since(info.ModTime()) > rotationLimit {
		_ = os.Remove(lock) // its process was killed
	}
	own, err := ownfile.Open(lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	defer os.Remove(lock) //nolint:errcheck // it expires
	_ = own.Close()       // it is empty
	if info, err := os.Stat(f.path); err == nil && info.Size() >= f.limit/2 {
		return os.Rename(f.path, f.path+rotated)
	}
	return nil
}

// removeOldest removes the files of all but the given number of servers in the folder, those with the oldest last line first.
func removeOldest(folder string, keep int) error {
	all, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	type dated struct {
		name string
		when time.Time
	}
	var servers []dated
	for _, f := range all {
		if info, err := f.Info(); err == nil && strings.HasSuffix(f.Name(), fileEnding) {
			servers = append(servers, dated{f.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(servers, func(a, b dated) int { return a.when.Compare(b.when) })
	for _, s := range servers[:max(0, len(servers)-keep)] {
		path := filepath.Join(folder, s.name)
		for _, name := range []string{path, path + rotated} {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
