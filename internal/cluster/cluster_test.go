package cluster_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "what all replicas know"

// join starts a replica with the handler h.
func join(t *testing.T, st store.Store, secret string, h http.HandlerFunc) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(cluster.Options{Store: st, Secret: switchboard.NewSecret(secret), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Leave(context.Background()); c.Close() })
	c.Serve(h)
	c.Join(t.Context())
	wait.Until(t, "its lease is in the store", func() bool {
		all, err := st.List(t.Context(), "replicas")
		return err == nil && strings.Contains(names(all), c.Self())
	})
	return c
}

func names(all []store.NamedValue) (names string) {
	for _, one := range all {
		names += one.Name + " "
	}
	return names
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p, ok := cluster.Principal(r)
	w.Header().Set("X-Answer", r.Header.Get("X-Question"))
	_, _ = io.WriteString(w, r.Method+" "+r.Host+r.URL.RequestURI()+" of "+string(p.Tenant)+"/"+p.ID+": "+string(body)+strings.Join(r.Header.Values("Authorization"), ""))
	if !ok || len(r.Header) != 2 {
		_, _ = io.WriteString(w, " with more than the client's headers")
	}
}

var bob = switchboard.Principal{Tenant: "acme", ID: "bob", Roles: []string{"analyst"}}

func request(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://gw.example.com/mcp?a=b", strings.NewReader(body))
	r.Header.Set("X-Question", "why")
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Authorization", "Bearer of-the-client")
	return r
}

func TestForwardReachesTheNamedReplica(t *testing.T) {
	st := store.NewMemory()
	first, second := join(t, st, secret, echo), join(t, st, secret, echo)
	w := httptest.NewRecorder()
	if err := first.Forward(w, request("hello"), []byte("hello"), bob, second.Self()); err != nil {
		t.Fatal(err)
	}
	const want = "POST gw.example.com/mcp?a=b of acme/bob: hello"
	if got := w.Body.String(); got != want || w.Header().Get("X-Answer") != "why" {
		t.Errorf("answered %q with %v, want %q", got, w.Header(), want)
	}
}

func TestARequestCannotRedirectItsHop(t *testing.T) {
	st := store.NewMemory()
	first, second := join(t, st, secret, echo), join(t, st, secret, echo)
	r := request("")
	r.URL = &url.URL{Scheme: "http", Opaque: "@elsewhere.example/mcp", Path: "/mcp", RawQuery: "a=%2F"}
	w := httptest.NewRecorder()
	if err := first.Forward(w, r, nil, bob, second.Self()); err != nil || !strings.Contains(w.Body.String(), "/mcp?a=%2F") {
		t.Errorf("%v %s", err, w.Body)
	}
}

func TestForwardingToAMissingReplicaDoesNothing(t *testing.T) {
	st := store.NewMemory()
	first := join(t, st, secret, echo)
	left, killed := join(t, st, secret, echo), join(t, st, secret, echo)
	elsewhere := join(t, st, secret, func(w http.ResponseWriter, _ *http.Request) { cluster.AnswerNotOwner(w) })
	left.Leave(t.Context())
	killed.Close()
	for what, id := range map[string]string{"never was": "NOBODY", "has left": left.Self(), "was killed": killed.Self(), "does not hold it": elsewhere.Self()} {
		w := httptest.NewRecorder()
		if err := first.Forward(w, request(""), nil, bob, id); !errors.Is(err, cluster.ErrGone) || w.Body.Len() > 0 {
			t.Errorf("one that %s: %v %s", what, err, w.Body)
		}
	}
	var alone cluster.Cluster
	if err := alone.Forward(httptest.NewRecorder(), request(""), nil, bob, first.Self()); !errors.Is(err, cluster.ErrGone) {
		t.Errorf("from a zero Cluster: %v", err)
	}
}

func TestABrokenResponseIsReported(t *testing.T) {
	st := store.NewMemory()
	first := join(t, st, secret, echo)
	silent := join(t, st, secret, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if err := first.Forward(httptest.NewRecorder(), request(""), nil, bob, silent.Self()); !errors.Is(err, cluster.ErrBroken) || !strings.Contains(err.Error(), silent.Self()) {
		t.Errorf("broken before the response: %v", err)
	}
	half := join(t, st, secret, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("broken within the response: %v", err)
		}
	}()
	_ = first.Forward(httptest.NewRecorder(), request(""), nil, bob, half.Self())
	t.Error("half a response counts as a whole one")
}

// SE, AZ-08: without the secret, no program can act as a replica, and no principal that it sends is believed.
func TestNoStrangerIsAReplica(t *testing.T) {
	st := store.NewMemory()
	answered := false
	victim := join(t, st, secret, func(http.ResponseWriter, *http.Request) { answered = true })
	stranger := join(t, st, "another secret, as long", echo)
	if err := stranger.Forward(httptest.NewRecorder(), request(""), nil, bob, victim.Self()); err == nil {
		t.Error("a replica with another secret was answered")
	}
	if err := victim.Forward(httptest.NewRecorder(), request(""), nil, bob, stranger.Self()); err == nil {
		t.Error("a request was forwarded to a replica with another secret")
	}
	v, err := st.Value(t.Context(), store.Key{Group: "replicas", Name: victim.Self()})
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSuffix(string(v.Data), `"}`), `":"`)
	_, own, _ := ed25519.GenerateKey(rand.Reader)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	for what, certs := range map[string][]tls.Certificate{
		"no certificate": nil, "one of its own": {{Certificate: [][]byte{der}, PrivateKey: own}},
	} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}} //nolint:gosec // the other end is what is tested
		req, _ := http.NewRequest(http.MethodPost, "https://"+address+"/mcp", http.NoBody)
		req.Header.Set("Switchboard-Principal", `{"Tenant":"acme","ID":"admin"}`)
		req.Header.Set("Switchboard-To", victim.Self())
		if res, err := tr.RoundTrip(req); err == nil {
			t.Errorf("%s: %s", what, res.Status)
			_ = res.Body.Close()
		}
		tr.CloseIdleConnections()
	}
	if answered {
		t.Error("a stranger was answered")
	}
	if _, err := cluster.New(cluster.Options{Store: st, Secret: switchboard.NewSecret("short"), Listen: "127.0.0.1:0"}); err == nil {
		t.Error("a short secret is accepted")
	}
}

func TestAKilledReplicaIsGoneWhenItsLeaseExpires(t *testing.T) {
	st := store.NewMemory()
	first := join(t, st, secret, echo)
	if _, err := st.Apply(t.Context(), store.Change{Group: "replicas", Writes: []store.Write{{Name: "KILLED", Data: []byte(`{"address":"127.0.0.1:1"}`), TTL: 10 * time.Millisecond}}}); err != nil {
		t.Fatal(err)
	}
	wait.UntilNil(t, "the killed replica is gone", func() error {
		others, err := first.Others(t.Context())
		if err == nil && len(others) > 0 {
			err = fmt.Errorf("the others are %v", others)
		}
		return err
	})
}

// Law 7: a replica that is paused, or on a machine that is off, does not break its connections.
func TestAHopEndsWhenItsReplicaHasNoLease(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	first := join(t, st, secret, echo)
	began, over := make(chan struct{}), make(chan struct{})
	hangs := join(t, st, secret, func(http.ResponseWriter, *http.Request) { close(began); <-over })
	defer close(over)
	answer := make(chan error, 1)
	go func() { answer <- first.Forward(httptest.NewRecorder(), request(""), nil, bob, hangs.Self()) }()
	<-began
	hangs.Leave(t.Context()) // its lease is deleted, and its handler still runs
	if err := wait.Receive(t, "the hop ends", answer); !errors.Is(err, cluster.ErrBroken) {
		t.Errorf("the hop ends with %v, want ErrBroken", err)
	}
}

func TestALongHopContinuesWhileItsReplicaRenewsItsLease(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	first := join(t, st, secret, echo)
	slow := join(t, st, secret, func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(cluster.Lease + 3*time.Second)
		_, _ = io.WriteString(w, "at last")
	})
	w := httptest.NewRecorder()
	if err := first.Forward(w, request(""), nil, bob, slow.Self()); err != nil || w.Body.String() != "at last" {
		t.Errorf("%v %s", err, w.Body)
	}
}

// A patient client records whether each write to it has a deadline.
type patient struct {
	*httptest.ResponseRecorder
	until time.Time
	bare  int // writes without a deadline
}

func (p *patient) SetWriteDeadline(t time.Time) error { p.until = t; return nil }

func (p *patient) Write(b []byte) (int, error) {
	if p.until.IsZero() {
		p.bare++
	}
	p.until = time.Time{}
	return p.ResponseRecorder.Write(b)
}

// RX-03: a client that does not read a response that came over a hop does not hold the hop for ever.
func TestEachWriteOfAForwardedResponseHasADeadline(t *testing.T) {
	st := store.NewMemory()
	first := join(t, st, secret, echo)
	second := join(t, st, secret, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // it is about the hop's connection, not about the client's
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	w := &patient{ResponseRecorder: httptest.NewRecorder()}
	if err := first.Forward(w, request(""), nil, bob, second.Self()); err != nil || w.Body.Len() != 1<<20 || w.bare > 0 || w.Header().Get("Connection") != "" {
		t.Errorf("%v, %d bytes, %d writes without a deadline, %v", err, w.Body.Len(), w.bare, w.Header())
	}
}

// A failing store refuses changes while fails is set.
type failing struct {
	store.Store
	fails, read atomic.Int64
	failed      atomic.Int64 // when it refused the last one, in unix nanoseconds
}

func (f *failing) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if f.fails.Load() > 0 {
		f.failed.Store(time.Now().UnixNano())
		return 0, store.ErrUnavailable
	}
	return f.Store.Apply(ctx, c)
}

func (f *failing) Value(ctx context.Context, k store.Key) (store.Value, error) {
	f.read.Add(1)
	return f.Store.Value(ctx, k)
}

// After the store was unavailable, all leases have expired although all replicas are alive.
func TestAReplicaThatCouldNotRenewItsLeaseIsNotGone(t *testing.T) {
	t.Parallel()
	st := &failing{Store: store.NewMemory()}
	first, second := join(t, st, secret, echo), join(t, st, secret, echo)
	forward := func() error { return first.Forward(httptest.NewRecorder(), request(""), nil, bob, second.Self()) }
	if err := forward(); err != nil {
		t.Fatal(err)
	}
	second.Leave(t.Context()) // its lease is deleted, and it still answers
	st.fails.Store(1)
	wait.Until(t, "a lease is not renewed", func() bool { return st.failed.Load() > 0 })
	for read := st.read.Load(); st.read.Load() < read+3; <-time.After(10 * time.Millisecond) {
		if err := forward(); err != nil && time.Since(time.Unix(0, st.failed.Load())) < 2*time.Second {
			t.Fatalf("while no replica can renew its lease: %v", err)
		}
	}
	st.fails.Store(0)
	wait.Until(t, "the replica is gone", func() bool { return errors.Is(forward(), cluster.ErrGone) })
}
