package pin

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

const work = `{"name":"work","description":"works","inputSchema":{"type":"object"}}`

func offerOf(tools ...string) []switchboard.Offer {
	o := switchboard.Offer{Server: "s", Tools: [][]byte{}}
	for _, t := range tools {
		o.Tools = append(o.Tools, []byte(t))
	}
	return []switchboard.Offer{o}
}

func firstUse(*switchboard.Offer) admission.OfferTerms { return admission.OfferTerms{} }

// backends opens each kind of store that processes share.
var backends = map[string]func(t *testing.T) func() store.Store{
	"file": func(t *testing.T) func() store.Store {
		path := filepath.Join(t.TempDir(), "store")
		return func() store.Store { return opened(t)(store.OpenFile(path, store.FileOptions{})) }
	},
	"redis": func(t *testing.T) func() store.Store {
		url := redistest.Start(t).URL()
		return func() store.Store { return opened(t)(store.OpenRedis(t.Context(), url, store.RedisOptions{})) }
	},
}

func opened(t *testing.T) func(s store.Store, err error) store.Store {
	return func(s store.Store, err error) store.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}

// A process is a Board that runs, and counts how often it was told of changes.
type process struct {
	*Board
	changed chan struct{}
}

func start(t *testing.T, st store.Store, name string) process {
	t.Helper()
	p := process{changed: make(chan struct{}, 100)}
	p.Board = New(Options{Store: st, Self: name, Changed: func() { p.changed <- struct{}{} }, Log: slog.New(slog.DiscardHandler)})
	p.Read(t.Context())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return p
}

// state returns how a process passes the tool work on.
func (p process) state(offers []switchboard.Offer) string {
	o := p.Admit(context.Background(), offers, firstUse)[0]
	if a := o.Admissions["work"]; a != nil {
		return fmt.Sprintf("%s frozen %v, %s", a.State, a.Frozen, o.Tools)
	}
	return fmt.Sprintf("plain, %s", o.Tools)
}

// await waits until the process passes the tool on like that.
func (p process) await(t *testing.T, offers []switchboard.Offer, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for got := p.state(offers); !strings.HasPrefix(got, want); got = p.state(offers) {
		select {
		case <-p.changed:
		case <-late:
			t.Fatalf("it is %s, want %s", got, want)
		}
	}
}

func TestProcessesShareWhatTheyHaveSeen(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := open(t)
			a, b := start(t, next(), "a"), start(t, next(), "b")
			changed := strings.Replace(work, "works", "evil", 1)
			if got := a.state(offerOf(work)); got != "plain, ["+work+"]" {
				t.Fatalf("at first sight it is %s", got)
			}
			// b has never seen the server, and is offered something else.
			if got := b.state(offerOf(changed)); !strings.HasPrefix(got, "active frozen true, ["+work) {
				t.Errorf("the second process passes on %s", got)
			}
			a.await(t, offerOf(work), "active frozen true")
			b.state(offerOf(work))
			a.await(t, offerOf(work), "plain")
		})
	}
}

func TestADecisionOfAPersonCountsAtTheOtherProcess(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := open(t)
			a, b := start(t, next(), "a"), start(t, next(), "b")
			a.state(offerOf(work))
			b.state(offerOf(work))
			known, err := a.Decide(t.Context(), switchboard.PinID{Server: "s", Kind: switchboard.PinTool, Name: "work"}, func(v admission.PinVerdict) (admission.Pin, error) {
				p := v.Pin
				p.State, p.By = switchboard.LifeSuspended, "ann"
				return p, nil
			})
			if err != nil || !known {
				t.Fatal(known, err)
			}
			b.await(t, offerOf(work), "suspended")
			if known, _ := a.Decide(t.Context(), switchboard.PinID{Server: "s", Kind: switchboard.PinTool, Name: "other"}, nil); known {
				t.Error("a tool is known that nobody offers")
			}
		})
	}
}

func TestPinsSurviveARestart(t *testing.T) {
	next := backends["file"](t)
	start(t, next(), "a").state(offerOf(work))
	again := start(t, next(), "b")
	if got := again.state(offerOf(strings.Replace(work, "works", "evil", 1))); !strings.HasPrefix(got, "active frozen true, ["+work) {
		t.Errorf("after a restart it passes on %s", got)
	}
}

// awayStore answers nothing.
type awayStore struct {
	store.Store
	away atomic.Bool
}

func (s *awayStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.away.Load() {
		return 0, store.ErrUnavailable
	}
	return s.Store.Apply(ctx, c)
}

func TestWithoutAStoreDefinitionsArePinnedInMemoryAndKeptLater(t *testing.T) {
	st := &awayStore{Store: store.NewMemory()}
	st.away.Store(true)
	b := New(Options{Store: st, Self: "a", Log: slog.New(slog.DiscardHandler)})
	p := process{Board: b}
	p.state(offerOf(work))
	if got := p.state(offerOf(strings.Replace(work, "works", "evil", 1))); !strings.HasPrefix(got, "active frozen true, ["+work) {
		t.Errorf("without a store it passes on %s", got)
	}
	st.away.Store(false)
	b.keepAll(t.Context(), false)
	if v, err := st.Value(t.Context(), store.Key{Group: groupPins, Name: "s"}); err != nil || v.Data == nil {
		t.Errorf("once the store answers, it has %v, %v", v, err)
	}
}

func TestAPreviewKeepsNothing(t *testing.T) {
	st := store.NewMemory()
	b := New(Options{Store: st, Self: "a", Log: slog.New(slog.DiscardHandler)})
	b.Preview(offerOf(work), firstUse)
	if v, err := st.Value(t.Context(), store.Key{Group: groupPins, Name: "s"}); err != nil || v.Data != nil {
		t.Errorf("the store has %v, %v", v, err)
	}
	if len(b.Verdicts("s")) > 0 {
		t.Error("a preview has let something in")
	}
}

func TestWhatIsHeldIsKnownAndToldOnce(t *testing.T) {
	t.Parallel()
	told := 0
	b := New(Options{Store: store.NewMemory(), Self: "one", Log: slog.New(slog.DiscardHandler), HeldChanged: func(id switchboard.ServerID) {
		if told++; id != "s" {
			t.Errorf("the server is %s", id)
		}
	}})
	b.Read(t.Context())
	words, narrower := strings.Replace(work, "works", "lies", 1), strings.Replace(work, `"object"`, `"object","required":["x"]`, 1)
	for _, tt := range []struct {
		offered, want string
		told          int
	}{
		{work, "", 0}, {words, "work active true", 1}, {words, "work active true", 1}, {narrower, "work suspended false", 2}, {work, "", 3},
	} {
		b.Admit(t.Context(), offerOf(tt.offered), firstUse)
		var got []string
		for _, p := range b.Held() {
			got = append(got, fmt.Sprint(p.Key.Name, " ", p.State, " ", p.Frozen))
		}
		if strings.Join(got, ", ") != tt.want || told != tt.told {
			t.Errorf("after %s, these are held: %q, and changes were told %d times, want %q and %d", tt.offered, got, told, tt.want, tt.told)
		}
		known := b.Verdicts("s")
		b.servers["s"].old = true // so that the offer is judged again
		if judged := b.Verdicts("s"); len(known) != 1 || !reflect.DeepEqual(known, judged) {
			t.Errorf("after %s, the verdicts are %+v, and judged again %+v", tt.offered, known, judged)
		}
	}

	// What a person has taken out is not held.
	_, err := b.Decide(t.Context(), switchboard.PinID{Server: "s", Kind: switchboard.PinTool, Name: "work"}, func(v admission.PinVerdict) (admission.Pin, error) {
		p := v.Pin
		p.State, p.By = switchboard.LifeSuspended, "ann"
		return p, nil
	})
	if b.Admit(t.Context(), offerOf(words), firstUse); err != nil || len(b.Held()) != 0 || told != 3 {
		t.Errorf("%v: these are held: %+v", err, b.Held())
	}
}

// A definition can keep its text and get characters that were removed from it. That changes what the offer means.
func TestAnOfferWithOtherRemovedCharactersIsJudgedAgain(t *testing.T) {
	a := switchboard.Offer{Server: "s", Prompts: [][]byte{[]byte(`{"name":"p"}`)}}
	b := a
	b.UncleanedOthers = map[string][]byte{switchboard.SentKey(switchboard.Prompts, "p"): []byte("{\"name\":\"p\u202e\"}")}
	if !sameOffer(&a, &a) || sameOffer(&a, &b) || sameOffer(&b, &a) {
		t.Error("they count as the same offer")
	}
}
