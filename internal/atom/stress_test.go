package atom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A site is an HTTP server in the memory of a bubble. It counts the requests in flight of each path.
type site struct {
	mux    *http.ServeMux
	conns  chan net.Conn
	strays atomic.Int32 // connections to another address

	once sync.Once
	mu   sync.Mutex
	now  map[string]int
	most map[string]int
	all  map[string]int
}

const siteAddress = "127.0.0.1:8001"

func newSite(t *testing.T) *site {
	s := &site{mux: http.NewServeMux(), conns: make(chan net.Conn), now: map[string]int{}, most: map[string]int{}, all: map[string]int{}}
	server := &httptest.Server{Listener: s, Config: &http.Server{Handler: s}} //nolint:gosec // only this test uses it
	server.Start()
	t.Cleanup(server.Close)
	return s
}

func (s *site) Accept() (net.Conn, error) {
	conn, ok := <-s.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (s *site) Close() error   { s.once.Do(func() { close(s.conns) }); return nil }
func (s *site) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8001} }

func (s *site) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if address != siteAddress {
		s.strays.Add(1)
		return nil, errors.New("there is no such site")
	}
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Nanosecond) // the clock of the bubble goes on when all that this instant ended is over: a request that was given up, too
	s.count(r.URL.Path, 1)
	defer s.count(r.URL.Path, -1)
	s.mux.ServeHTTP(w, r)
}

func (s *site) count(path string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[path] += by
	s.most[path] = max(s.most[path], s.now[path])
	if by > 0 {
		s.all[path]++
	}
}

// A witness checks what replicas say about an atom that turns red: a replica that has said red never says fresh.
type witness struct {
	id string

	mu    sync.Mutex
	heard map[int]time.Time // when each replica first said red
	first time.Time
	wrong string
}

// ask asks a replica, one caller after the other.
func (w *witness) ask(replica int, p *atom.Prober) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, red := w.heard[replica]
	switch s := state(p, w.id); {
	case s == capability.Red && !red:
		w.heard[replica] = time.Now()
		if w.first.IsZero() {
			w.first = time.Now()
		}
	case s == capability.Fresh && red && w.wrong == "":
		w.wrong = fmt.Sprintf("replica %d says fresh %s after it has said red", replica, time.Since(at))
	}
}

// check checks that no replica has said anything wrong, and that all have heard it within a second; or that none has.
func (w *witness) check(t *testing.T, replicas int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != "" {
		t.Error(w.wrong)
	}
	if len(w.heard) != replicas {
		t.Errorf("%d replicas say red, want %d", len(w.heard), replicas)
	}
	for i, at := range w.heard {
		if took := at.Sub(w.first); took > time.Second {
			t.Errorf("replica %d hears it %s after the first one", i, took)
		}
	}
}

func TestCO05AtomsUnderStress(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		web := newSite(t)
		var sick atomic.Bool
		var flips, written atomic.Int64
		web.mux.HandleFunc("/turns", func(rw http.ResponseWriter, _ *http.Request) {
			if sick.Load() {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		web.mux.HandleFunc("/flaps", func(rw http.ResponseWriter, r *http.Request) {
			if flips.Add(1)%3 > 0 { // so a second attempt succeeds at times
				http.Error(rw, "no: "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			}
		})
		web.mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		web.mux.HandleFunc("/huge", func(rw http.ResponseWriter, r *http.Request) {
			part := []byte(strings.Repeat(r.Header.Get("Authorization"), 1<<12/len(r.Header.Get("Authorization"))))
			for range 1 << 18 {
				n, err := rw.Write(part)
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		})
		web.mux.HandleFunc("/inward", func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://169.254.169.254/"+r.Header.Get("Authorization"), http.StatusFound)
		})
		web.mux.HandleFunc("/odd", func(rw http.ResponseWriter, r *http.Request) {
			if conn, _, err := http.NewResponseController(rw).Hijack(); err == nil {
				_, _ = io.WriteString(conn, r.Header.Get("Authorization")+"\r\n\r\n")
				_ = conn.Close()
			}
		})
		names := []string{"turns", "flaps", "hangs", "huge", "inward", "odd"}
		var atoms []*capability.Atom
		for _, name := range names {
			atoms = append(atoms, &capability.Atom{ID: name, Kind: "account", FreshFor: 3 * time.Second, Every: 4 * time.Second, Probe: capability.AtomProbe{
				HTTP: "http://" + siteAddress + "/" + name, Headers: map[string]switchboard.Secret{"Authorization": switchboard.NewSecret("Bearer " + canary)},
			}})
		}
		atoms = append(atoms, &capability.Atom{ID: "inside", Kind: "account", Every: 4 * time.Second, Probe: capability.AtomProbe{HTTP: "http://169.254.169.254/"}})
		o := w.options()
		o.Dial = web.dial
		var replicas []*atom.Prober
		for range 3 {
			p := atom.Open(o)
			t.Cleanup(p.Close)
			p.Use(registry(t, atoms...))
			replicas = append(replicas, p)
		}

		turns := &witness{id: "turns", heard: map[int]time.Time{}}
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				p := replicas[i%3]
				for n := i; ctx.Err() == nil; n++ {
					name := names[n%len(names)]
					turns.ask(i%3, p)
					if s := state(p, name); s == capability.Stale || s == capability.Unknown {
						p.Due(ctx, name)
					}
					time.Sleep(time.Duration(50+i) * time.Millisecond)
				}
			})
		}
		time.Sleep(20 * time.Second)
		turns.check(t, 0)
		sick.Store(true)
		time.Sleep(20 * time.Second)
		turns.check(t, len(replicas))
		sick.Store(false)
		time.Sleep(10 * time.Second)
		cancel()
		callers.Wait()
		synctest.Wait()
		for i, p := range replicas {
			for name, want := range map[string]string{
				"turns": "", "hangs": "did not answer", "huge": "longer than 64 KiB", "inward": "a redirect is not followed", "odd": "no proper answer", "inside": "link-local",
			} {
				for _, r := range p.Report(time.Now()) {
					if r.ID == name && (!strings.Contains(r.Reason, want) || (r.State == capability.Red) != (want != "")) {
						t.Errorf("replica %d: %+v", i, r)
					}
				}
			}
		}
		web.mu.Lock()
		defer web.mu.Unlock()
		for _, name := range names {
			if path := "/" + name; web.most[path] != 1 || web.all[path] < 4 {
				t.Errorf("%s was probed %d times, %d at once", name, web.all[path], web.most[path])
			}
		}
		if n := web.strays.Load(); n > 0 {
			t.Errorf("%d connections went elsewhere", n)
		}
		if n := written.Load(); n > int64(web.all["/huge"])*(100<<10) {
			t.Errorf("%d bytes of %d long answers were read", n, web.all["/huge"])
		}
		said, err := json.Marshal([]any{replicas[0].Report(time.Now()), replicas[1].Report(time.Now()), w.log.String()})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := w.store.List(t.Context(), atom.Group)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			said = append(append(said, row.Name...), row.Data...)
		}
		if strings.Contains(string(said), canary) {
			t.Errorf("the secret is in what replicas say:\n%s", said)
		}
	})
}
