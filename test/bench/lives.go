package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/test/scratch"
)

// A life is a backend that ends and begins again, at one address.
type life struct {
	a    *arena
	args []string // of the backend
	*process
	ctx context.Context
}

// live starts a backend over HTTP.
func (a *arena) live(ctx context.Context, args ...string) (*life, error) {
	addr, err := scratch.Addr()
	if err != nil {
		return nil, err
	}
	l := &life{a: a, args: append([]string{"backend", "-listen", addr}, args...), ctx: ctx}
	return l, l.again()
}

// kill ends it at once.
func (l *life) kill() error {
	defer l.stop()
	return kill(l.pid)
}

// again starts it again.
func (l *life) again() (err error) {
	l.process, err = start(l.ctx, "", l.a.self, l.args...)
	return err
}

// hang stops it; its port still accepts connections.
func (l *life) hang() error { return hang(l.pid) }

// wake lets it continue with the requests that it has received meanwhile.
func (l *life) wake() error { return wake(l.pid) }

// A nursery is the folder in which backends on stdio write their process ids, so that the benchmark can kill them although another process has
// started them.
type nursery string

func (n nursery) shut() string { return filepath.Join(string(n), "shut") }

// register writes the id of this process.
func register(dir string) error {
	if _, err := os.Stat(nursery(dir).shut()); err == nil {
		return errors.New("the nursery is shut")
	}
	return os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), nil, 0o600)
}

// kill ends all backends, and those that start until the nursery is opened again.
func (n nursery) kill() error {
	if err := os.WriteFile(n.shut(), nil, 0o600); err != nil {
		return err
	}
	return n.each(func(pid int) error {
		if err := kill(pid); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return os.Remove(filepath.Join(string(n), strconv.Itoa(pid)))
	})
}

// hang stops all backends.
func (n nursery) hang() error { return n.each(hang) }

func (n nursery) each(do func(pid int) error) error {
	files, err := os.ReadDir(string(n))
	if err != nil {
		return err
	}
	for _, f := range files {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if err := do(pid); err != nil {
			return err
		}
	}
	return nil
}

func (n nursery) open() error { return os.Remove(n.shut()) }

// executed returns how many nonces the ledger has more than once, for the tool.
func executed(ledger, tool string) (twice int, err error) {
	text, err := os.ReadFile(ledger)
	if err != nil {
		return 0, err
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if times[line]++; times[line] == 2 && strings.HasPrefix(line, tool+" ") {
			twice++
		}
	}
	return twice, nil
}

// streams is a backend over HTTP with SSE.
type streams struct {
	*backend
	open sync.Map // of chan []byte, by session
}

// ServeHTTP opens a stream, or takes a message to be answered on one.
func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.stream(w, r)
		return
	}
	id := r.URL.Query().Get("session")
	answers, ok := s.open.Load(id)
	if !ok {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	var q question
	if err != nil || json.Unmarshal(body, &q) != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if parts := s.answer(&q); parts != nil {
		select {
		case answers.(chan []byte) <- bytes.Join(parts, nil):
		case <-r.Context().Done():
		}
	}
}

func (s *streams) stream(w http.ResponseWriter, r *http.Request) {
	id := rand.Text()
	answers := make(chan []byte, 64)
	s.open.Store(id, answers)
	defer s.open.Delete(id)
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(event string, data []byte) error {
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	}
	if say("endpoint", []byte("/mcp?session="+id)) != nil {
		return // the client is gone
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case a := <-answers:
			if say("message", a) != nil {
				return
			}
		}
	}
}

// lines is a writer of whole lines that several may write to.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

// Write writes whole lines.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// repeat writes the line at each interval, until a write fails.
func (l *lines) repeat(every time.Duration, line string) {
	for range time.Tick(every) {
		if _, err := io.WriteString(l, line+"\n"); err != nil {
			return
		}
	}
}
