package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// recipients returns recipients of these names. Their addresses have a secret in the path.
func recipients(names ...string) (all []switchboard.Recipient) {
	for _, n := range names {
		all = append(all, switchboard.Recipient{Name: n, URL: switchboard.NewSecret("https://" + n + ".example.com/planted-path"), Secret: switchboard.NewSecret(testSecret)})
	}
	return all
}

// fakeRecipients answer webhooks of the hosts NAME.example.com.
type fakeRecipients struct {
	mu     sync.Mutex
	answer func(name string, r *http.Request) (status int, err error) // nil: 204
	got    map[string][]string                                        // the ids that were accepted, by name
	tries  map[string]int
}

func newFakeRecipients() *fakeRecipients {
	return &fakeRecipients{got: map[string][]string{}, tries: map[string]int{}}
}

func (f *fakeRecipients) set(answer func(name string, r *http.Request) (int, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fakeRecipients) RoundTrip(r *http.Request) (*http.Response, error) {
	name := strings.TrimSuffix(r.URL.Host, ".example.com")
	f.mu.Lock()
	f.tries[name]++
	answer := f.answer
	f.mu.Unlock()
	status := http.StatusNoContent
	if answer != nil {
		var err error
		if status, err = answer(name, r); err != nil {
			return nil, err
		}
	}
	if status < 300 {
		f.mu.Lock()
		f.got[name] = append(f.got[name], r.Header.Get("webhook-id"))
		f.mu.Unlock()
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (f *fakeRecipients) accepted(name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got[name])
}

func (f *fakeRecipients) attempts(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries[name]
}

// deadTransport fails the test if anything is sent.
type deadTransport struct{ t *testing.T }

func (d deadTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	d.t.Errorf("something is sent to %s", r.URL)
	return nil, errors.New("dead")
}

// start runs an outbox until stop is called, or the test ends.
func start(t *testing.T, o Options, to ...switchboard.Recipient) (b *Outbox, stop func()) {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b = New(o, to)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return b, stop
}

func about(tenant switchboard.TenantID, principal string) Notice {
	return Notice{Type: ApprovalRequested, Tenant: tenant, Principal: principal, Tool: "mail/send", Request: "k3fq-2"}
}

func mustPut(t *testing.T, b *Outbox, n Notice) {
	t.Helper()
	if err := b.Put(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func TestANoticeIsSignedAsStandardWebhooksSays(t *testing.T) {
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	type webhook struct {
		head http.Header
		body []byte
	}
	heard := make(chan webhook, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		heard <- webhook{r.Header, body}
	}))
	defer server.Close()
	s := store.NewMemory()
	defer s.Close() //nolint:errcheck // in memory
	b, _ := start(t, Options{Store: s}, switchboard.Recipient{Name: "oncall", URL: switchboard.NewSecret(server.URL), Secret: switchboard.NewSecret(testSecret)})
	until := time.Date(2026, 11, 27, 15, 4, 0, 0, time.FixedZone("", 3600))
	mustPut(t, b, Notice{Type: ApprovalDecided, Tenant: "acme", Principal: "ci", Task: "triage", Tool: "mail/send", Request: "k3fq-2", State: "approved", By: "ann", Until: until})
	got := <-heard
	if err := verifier.Verify(got.body, got.head); err != nil {
		t.Errorf("%v: %s", err, got.head)
	}
	if verifier.Verify(append(got.body, ' '), got.head) == nil {
		t.Error("another body has the same signature")
	}
	var body struct {
		Type      string
		Timestamp time.Time
		Data      json.RawMessage
	}
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	const data = `{"tenant":"acme","principal":"ci","task":"triage","tool":"mail/send","request":"k3fq-2","state":"approved","by":"ann","until":"2026-11-27T14:04:00Z"}`
	if body.Type != "approval.decided" || time.Since(body.Timestamp) > time.Minute || string(body.Data) != data {
		t.Errorf("%s", got.body)
	}
	if got.head.Get("Content-Type") != "application/json" || strings.Contains(got.head.Get("webhook-id"), ".") {
		t.Errorf("%v", got.head)
	}
}

// A notice has no member that could hold arguments: every one is listed here, with a reason to be in it.
func TestANoticeHasNoArguments(t *testing.T) {
	var names []string
	for f := range reflect.TypeFor[Notice]().Fields() {
		names = append(names, f.Name)
	}
	want := []string{"Type", "Tenant", "Key", "To", "Principal", "Task", "Tool", "Request", "Capability", "State", "By", "Until", "Budget", "Used", "Limit"}
	if !slices.Equal(names, want) {
		t.Errorf("a notice says %v; want %v", names, want)
	}
	resource := &switchboard.Call{Server: "files", Item: switchboard.Item{Kind: switchboard.KindResource, Name: "file:///planted", URI: "file:///planted"}}
	if got := targetOf(resource); got != "files/resource" {
		t.Errorf("a notice of a resource says %q", got)
	}
}

func TestALongTextIsShortened(t *testing.T) {
	long := strings.Repeat("é", maxText)
	_, body, err := Notice{Type: CallMade, Tenant: "acme", Tool: long, Principal: long, Budget: long, By: long, Limit: long}.encode(time.Now())
	if err != nil || len(body) > maxBody {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	if got := shorten(long); len(got) > maxText+3 || !strings.HasPrefix(long, strings.TrimSuffix(got, "…")) {
		t.Errorf("%q", got)
	}
}

func TestEachRecipientGetsEachNoticeOfItsTenantsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		to := recipients("oncall", "acme-only", "other")
		to[1].Tenants, to[2].Tenants = []switchboard.TenantID{"acme"}, []switchboard.TenantID{"globex"}
		b, stop := start(t, Options{Store: s, Transport: f}, to...)
		const each = 40
		var putting sync.WaitGroup
		for i := range each {
			putting.Go(func() { mustPut(t, b, about("acme", fmt.Sprint(i))) })
		}
		putting.Wait()
		mustPut(t, b, Notice{Type: CallMade, Tenant: "globex", To: []string{"other"}})
		time.Sleep(time.Minute)
		for name, want := range map[string]int{"oncall": each, "acme-only": each, "other": 1} {
			got := f.accepted(name)
			if n := len(slices.Compact(slices.Sorted(slices.Values(got)))); n != want || len(got) != want {
				t.Errorf("%s got %d notices, %d different ones; want %d", name, len(got), n, want)
			}
		}
		for _, w := range b.Backlogs() {
			if w.Notices != 0 || w.Fault != "" {
				t.Errorf("%+v", w)
			}
		}
		stop()
	})
}

func TestSeveralReplicasDeliverANoticeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		f.set(func(string, *http.Request) (int, error) { time.Sleep(time.Second); return 200, nil })
		var all []*Outbox
		for range 3 {
			b, _ := start(t, Options{Store: s, Transport: f}, recipients("oncall")...)
			all = append(all, b)
		}
		for i := range 30 {
			mustPut(t, all[i%3], about("acme", fmt.Sprint(i)))
		}
		time.Sleep(2 * time.Minute)
		if got := f.accepted("oncall"); len(got) != 30 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 30 {
			t.Errorf("%d deliveries", len(got))
		}
	})
}

func TestARecipientThatFailsGetsEverythingLaterAndDelaysNoOther(t *testing.T) {
	for name, fail := range map[string]func() (int, error){
		"refuses":   func() (int, error) { return 500, nil },
		"is away":   func() (int, error) { return 0, errors.New("connection refused") },
		"redirects": func() (int, error) { return 307, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory()
				defer s.Close() //nolint:errcheck // in memory
				f := newFakeRecipients()
				f.set(func(name string, _ *http.Request) (int, error) {
					if name == "bad" {
						return fail()
					}
					return 204, nil
				})
				var failed, delivered atomic.Int32
				b, _ := start(t, Options{Store: s, Transport: f, Count: func(name, outcome string) {
					switch {
					case name == "bad" && outcome == Failed:
						failed.Add(1)
					case outcome == Delivered:
						delivered.Add(1)
					}
				}}, recipients("bad", "good")...)
				for i := range 10 {
					mustPut(t, b, about("acme", fmt.Sprint(i)))
				}
				time.Sleep(time.Second / 2)
				if n := len(f.accepted("good")); n != 10 {
					t.Errorf("the other recipient has %d notices", n)
				}
				time.Sleep(time.Hour)
				if n := f.attempts("bad"); n < 50 || n > 70 {
					t.Errorf("%d attempts in an hour", n)
				}
				if w := b.Backlogs()[0]; w.Notices != 10 || w.Fault == "" || w.Since.IsZero() {
					t.Errorf("%+v", w)
				}
				f.set(nil)
				time.Sleep(maxPause + time.Second)
				if got := f.accepted("bad"); len(slices.Compact(slices.Sorted(slices.Values(got)))) != 10 {
					t.Errorf("it has %d notices afterwards", len(got))
				}
				if int(failed.Load()) != f.attempts("bad")-10 || delivered.Load() != 20 {
					t.Errorf("%d failed and %d delivered are counted", failed.Load(), delivered.Load())
				}
			})
		})
	}
}

func TestARecipientThatIsMendedIsToldSoon(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *switchboard.Recipient)
		within time.Duration
	}{
		{"a reload changes its address", func(r *switchboard.Recipient) { r.URL = switchboard.NewSecret("https://new.example.com/") }, 0},
		{"a reload changes its secret", func(r *switchboard.Recipient) { r.Secret = switchboard.NewSecret("whsec_AAAA") }, 0},
		{"it answers again", func(*switchboard.Recipient) {}, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory()
				defer s.Close() //nolint:errcheck // in memory
				f := newFakeRecipients()
				f.set(func(string, *http.Request) (int, error) { return 500, nil })
				to := recipients("oncall", "other")
				b, _ := start(t, Options{Store: s, Transport: f}, to...)
				mustPut(t, b, Notice{Type: ApprovalRequested, Tenant: "acme", To: []string{"oncall"}})
				time.Sleep(time.Hour + 130*time.Millisecond) // between two attempts
				f.set(nil)
				changed := slices.Clone(to)
				tt.change(&changed[0])
				b.Set(changed)
				time.Sleep(tt.within)
				synctest.Wait()
				if n := len(f.accepted("oncall")) + len(f.accepted("new")); n != 1 {
					t.Errorf("%d notices are delivered within %s", n, tt.within)
				}
			})
		})
	}
}

func TestANoticeThatARecipientRefusesDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		f.set(func(_ string, r *http.Request) (int, error) {
			if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte(`"principal":"3"`)) {
				return 400, nil
			}
			return 204, nil
		})
		b, _ := start(t, Options{Store: s, Transport: f}, recipients("oncall")...)
		for i := range 10 {
			mustPut(t, b, about("acme", fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Second)
		if n := len(f.accepted("oncall")); n != 9 {
			t.Errorf("%d of the nine others are delivered", n)
		}
	})
}

func TestASlowRecipientIsCutAndAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		f.set(func(_ string, r *http.Request) (int, error) { <-r.Context().Done(); return 0, r.Context().Err() })
		b, _ := start(t, Options{Store: s, Transport: f}, recipients("oncall")...)
		mustPut(t, b, about("acme", "ci"))
		time.Sleep(attemptTimeout + time.Second/2)
		if w := b.Backlogs()[0]; w.Fault == "" {
			t.Errorf("%+v after %s", w, attemptTimeout)
		}
		f.set(nil)
		time.Sleep(2 * time.Second)
		if n := len(f.accepted("oncall")); n != 1 {
			t.Errorf("%d notices", n)
		}
	})
}

func TestANoticeIsGivenUpAfterADayAndSaidSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		f.set(func(string, *http.Request) (int, error) { return 503, nil })
		var log bytes.Buffer
		var givenUp atomic.Int32
		b, stop := start(t, Options{Store: s, Transport: f, Log: slog.New(slog.NewTextHandler(&log, nil)), Count: func(_, outcome string) {
			if outcome == GivenUp {
				givenUp.Add(1)
			}
		}}, recipients("oncall")...)
		mustPut(t, b, about("acme", "ci"))
		time.Sleep(maxAge - time.Minute)
		if givenUp.Load() != 0 {
			t.Error("it is given up before")
		}
		time.Sleep(time.Minute + maxPause)
		f.set(nil) // before the first attempt, or the next one may be later than the end of the test
		mustPut(t, b, about("acme", "later"))
		time.Sleep(maxPause)
		stop()
		if givenUp.Load() != 1 || !strings.Contains(log.String(), "a notice is given up") || !strings.Contains(log.String(), "it answers 503") {
			t.Errorf("%d given up\n%s", givenUp.Load(), log.String())
		}
		if n := len(f.accepted("oncall")); n != 1 {
			t.Errorf("%d notices are delivered afterwards", n)
		}
		for _, planted := range []string{"planted-path", testSecret, "MfKQ9r8G"} {
			if strings.Contains(log.String(), planted) {
				t.Errorf("the log has %q:\n%s", planted, log.String())
			}
		}
	})
}

func TestNoErrorShowsTheAddressOrTheSecret(t *testing.T) {
	b := New(Options{Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)}, nil)
	for name, to := range map[string]switchboard.Recipient{
		"refused":        {URL: switchboard.NewSecret("http://127.0.0.1:1/planted"), Secret: switchboard.NewSecret(testSecret)},
		"not an address": {URL: switchboard.NewSecret("https://planted\x7f/"), Secret: switchboard.NewSecret(testSecret)},
		"not base64":     {URL: switchboard.NewSecret("http://127.0.0.1:1/planted"), Secret: switchboard.NewSecret("whsec_planted!")},
	} {
		_, err := b.deliver(t.Context(), to, &letter{ID: "msg_1", Body: []byte("{}")})
		if err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SS-04: the recipient is the operator's address, and where it leads to is not.
func TestSS04AWebhookThatAnswersWithARedirectIsAFailureAndIsNotFollowed(t *testing.T) {
	var inside atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer target.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, status) }))
		b := New(Options{Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)}, nil)
		_, err := b.deliver(t.Context(), switchboard.Recipient{URL: switchboard.NewSecret(moved.URL), Secret: switchboard.NewSecret(testSecret)}, &letter{ID: "msg_1", Body: []byte("{}")})
		if err == nil || !strings.Contains(err.Error(), "not followed") || strings.Contains(err.Error(), target.URL) {
			t.Errorf("%d: %v", status, err)
		}
		moved.Close()
	}
	if n := inside.Load(); n != 0 {
		t.Errorf("%d requests went where the redirects lead", n)
	}
}

func TestAnOutboxThatStartsAgainGoesOnAlsoAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		f.set(func(string, *http.Request) (int, error) { return 503, nil })
		first, stop := start(t, Options{Store: s, Transport: f}, recipients("oncall")...)
		for i := range 5 {
			mustPut(t, first, about("acme", fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Second)
		stop()
		// A process that was killed still owns the mailbox for a while.
		if _, err := s.Apply(t.Context(), store.Change{Group: groupOf("oncall"), Writes: []store.Write{{Name: ownerName, Was: store.Any, Data: []byte("killed"), TTL: ownerTTL}}}); err != nil {
			t.Fatal(err)
		}
		f.set(nil)
		start(t, Options{Store: s, Transport: f}, recipients("oncall")...)
		time.Sleep(2*ownerTTL + time.Second)
		if got := f.accepted("oncall"); len(got) != 5 {
			t.Errorf("%d notices after the restart", len(got))
		}
	})
}

func TestAMailboxIsBoundedAndNoTenantFillsItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close()                                                                                                    //nolint:errcheck // in memory
		b := New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Transport: deadTransport{t}}, recipients("oncall")) // nothing empties it
		fill := func(tenant switchboard.TenantID) (n int, err error) {
			for ; n <= maxLetters && err == nil; n++ {
				err = b.Put(t.Context(), about(tenant, "ci"))
			}
			return n - 1, err
		}
		total := 0
		for i, want := range []int{maxLetters / 2, maxLetters / 4, maxLetters / 8} {
			n, err := fill(switchboard.TenantID(fmt.Sprintf("t%d", i)))
			if n != want || !errors.Is(err, errFull) {
				t.Errorf("tenant %d: %d notices, then %v; want %d", i, n, err, want)
			}
			total += n
		}
		values, err := s.List(t.Context(), groupOf("oncall"))
		if err != nil || len(values) != total+1 {
			t.Errorf("%d values, %v", len(values), err)
		}
		// What has expired counts no more.
		time.Sleep(keptFor + time.Minute)
		if _, err := b.box("oncall").recount(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, _ := fill("t0"); n != maxLetters/2 {
			t.Errorf("%d notices after the others have expired", n)
		}
	})
}

// A halfStore makes no changes of one group.
type halfStore struct {
	store.Store
	without string
}

func (s *halfStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if c.Group == s.without {
		return 0, store.ErrUnavailable
	}
	return s.Store.Apply(ctx, c)
}

func TestAFullMailboxHidesNoOtherFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &halfStore{Store: store.NewMemory()}
		defer s.Close() //nolint:errcheck // in memory
		b := New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Transport: deadTransport{t}}, recipients("full", "other"))
		full := about("acme", "ci")
		full.To = []string{"full"}
		var err error
		for n := 0; n <= maxLetters && err == nil; n++ {
			err = b.Put(t.Context(), full)
		}
		if !errors.Is(err, errFull) || errors.Is(err, ErrPartly) {
			t.Errorf("all mailboxes are full: %v", err)
		}
		if err := b.Put(t.Context(), about("acme", "ci")); !errors.Is(err, ErrPartly) {
			t.Errorf("one of two mailboxes is full: %v", err)
		}
		s.without = groupOf("other")
		if err := b.Put(t.Context(), about("acme", "ci")); err == nil || errors.Is(err, ErrPartly) {
			t.Errorf("one is full, and the other one cannot be written: %v", err)
		}
	})
}

func TestBytesAreBoundedToo(t *testing.T) {
	var s mailboxState
	n := 0
	for s.hasRoom("acme", maxBody) {
		s.add("acme", 1, maxBody)
		n++
	}
	if all := s.total(); all.Bytes > maxBytes/2 || n < maxBytes/2/maxBody-1 {
		t.Errorf("%+v", all)
	}
}

// recording is a Store that records whether changes are durable, and can fail.
type recording struct {
	*store.Memory
	fail    atomic.Bool
	durable atomic.Int32
	changes atomic.Int32
}

func (r *recording) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if r.fail.Load() {
		return 0, store.ErrUnavailable
	}
	r.changes.Add(1)
	if c.Durable {
		r.durable.Add(1)
	}
	return r.Memory.Apply(ctx, c)
}

func TestTheObligationNotifyIsCarriedOutBeforeTheCallOrTheCallIsRefused(t *testing.T) {
	s := &recording{Memory: store.NewMemory()}
	defer s.Close() //nolint:errcheck // in memory
	b := New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Transport: deadTransport{t}}, recipients("oncall"))
	calls, kept := 0, 0
	caller := b.TellFirst(switchboard.CallerFunc(func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
		letters, err := b.box("oncall").recount(ctx)
		calls, kept = calls+1, len(letters)
		return switchboard.Result{}, err
	}))
	call := func(who ...string) error {
		_, err := caller.Call(t.Context(), &switchboard.Call{Principal: switchboard.Principal{Tenant: "acme", ID: "ci"}, Server: "mail", Obligations: switchboard.Obligations{Notify: who}})
		return err
	}
	if err := call(); err != nil || calls != 1 || s.changes.Load() != 0 {
		t.Errorf("without the obligation: %v, %d calls, %d changes of the store", err, calls, s.changes.Load())
	}
	if err := call("oncall"); err != nil || calls != 2 || kept != 1 || s.durable.Load() != 1 {
		t.Errorf("%v, %d calls, %d notices, %d durable changes", err, calls, kept, s.durable.Load())
	}
	for _, c := range []struct {
		who  []string
		fail bool
		code switchboard.Code
	}{{[]string{"oncall", "nobody"}, false, switchboard.CodeObligation}, {[]string{"oncall"}, true, switchboard.CodeStoreUnavailable}} {
		s.fail.Store(c.fail)
		own, ok := errors.AsType[*switchboard.Error](call(c.who...))
		if !ok || own.Code != c.code || !own.Unsent || calls != 2 {
			t.Errorf("%v: %+v, %d calls", c, own, calls)
		}
	}
}

func TestManyNoticesShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recording{Memory: store.NewMemory()}
		defer s.Close() //nolint:errcheck // in memory
		b := New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Transport: deadTransport{t}}, recipients("oncall"))
		box := b.box("oncall")
		box.turn <- struct{}{} // a write is in flight
		var putting sync.WaitGroup
		for range 4 * maxBatch {
			putting.Go(func() { mustPut(t, b, about("acme", "ci")) })
		}
		synctest.Wait()
		<-box.turn
		putting.Wait()
		if n := s.changes.Load(); n != 4 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestANoticeWhoseWriterIsCancelledWhileItWaitsIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		b := New(Options{Store: s, Log: slog.New(slog.DiscardHandler), Transport: deadTransport{t}}, recipients("oncall"))
		box := b.box("oncall")
		box.turn <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Put(ctx, about("acme", "ci")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		<-box.turn
		mustPut(t, b, about("acme", "ci"))
		letters, err := box.recount(t.Context())
		if len(letters) != 1 || err != nil {
			t.Errorf("%d notices, %v", len(letters), err)
		}
	})
}

// Replicas put in and take out at the same time, and the counts stay exact.
func TestTheCountsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		f := newFakeRecipients()
		var all []*Outbox
		for range 3 {
			b, _ := start(t, Options{Store: s, Transport: f}, recipients("oncall")...)
			all = append(all, b)
		}
		var putting sync.WaitGroup
		for i := range 90 {
			putting.Go(func() { mustPut(t, all[i%3], about(switchboard.TenantID(fmt.Sprint("t", i%7)), fmt.Sprint(i))) })
		}
		putting.Wait()
		time.Sleep(2 * time.Minute)
		v, err := s.Value(t.Context(), store.Key{Group: groupOf("oncall"), Name: stateName})
		var is mailboxState
		if err != nil || json.Unmarshal(v.Data, &is) != nil || is.total() != (share{}) || is.Last < 90 {
			t.Errorf("%+v, %v", is, err)
		}
		if n := len(f.accepted("oncall")); n != 90 {
			t.Errorf("%d deliveries", n)
		}
	})
}

func TestWhoeverTellsDoesNotWaitAndNothingToldIsLostByAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		b, stop := start(t, Options{Store: s, Transport: newFakeRecipients()}, recipients("oncall")...)
		box := b.box("oncall")
		box.turn <- struct{}{} // a slow store
		began := time.Now()
		for range 10 {
			b.Tell(about("acme", "ci"))
		}
		if time.Since(began) != 0 {
			t.Error("who tells waits")
		}
		go func() {
			time.Sleep(time.Second)
			<-box.turn
		}()
		stop()
		letters, err := box.recount(t.Context())
		if len(letters) != 10 || err != nil {
			t.Errorf("%d notices are kept, %v", len(letters), err)
		}
	})
}

func TestAStopDoesNotWaitLongForAStoreThatKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := store.NewMemory()
		defer s.Close() //nolint:errcheck // in memory
		b, stop := start(t, Options{Store: s, Transport: newFakeRecipients(), Log: slog.New(slog.NewTextHandler(&log, nil))}, recipients("oncall")...)
		b.box("oncall").turn <- struct{}{} // forever
		for range 10 {
			b.Tell(about("acme", "ci"))
		}
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took > drainTimeout {
			t.Errorf("it took %v", took)
		}
		if !strings.Contains(log.String(), "notices=9") || strings.Count(log.String(), "msg=notice ") != 10 { // the first one was being written
			t.Errorf("%s", &log)
		}
	})
}
