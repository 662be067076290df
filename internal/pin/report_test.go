package pin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A reporter is a Board in a bubble, whose reports are kept.
type reporter struct {
	*Board
	stop func()

	mu      sync.Mutex
	reports []*ChangeReport
}

func startReporter(st store.Store, name string) *reporter {
	r := &reporter{}
	ctx, cancel := context.WithCancel(context.Background())
	r.Board = New(Options{Store: st, Self: name, Log: slog.New(slog.DiscardHandler), Report: func(c *ChangeReport) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, c)
	}})
	r.Read(ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	return r
}

// offer is what a server offers.
func (r *reporter) offer(t admission.OfferTerms, tools ...string) {
	r.Admit(context.Background(), offerOf(tools...), func(*switchboard.Offer) admission.OfferTerms { return t })
}

// take returns the reports since the last call, each as its changes and names.
func (r *reporter) take() (said []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.reports {
		var named []string
		for _, n := range c.Named {
			named = append(named, strings.TrimSpace(fmt.Sprintf("%s %s %s", n.Key.Name, n.State, n.Class)))
		}
		said = append(said, fmt.Sprintf("%d: %s", c.Changes, strings.Join(named, ", ")))
	}
	r.reports = nil
	return said
}

var evil = strings.Replace(work, "works", "evil", 1)

func narrower(tool string) string {
	return strings.Replace(tool, `{"type":"object"}`, `{"type":"object","required":["x"]}`, 1)
}

const late = `{"name":"late","inputSchema":{"type":"object"}}`

func TestEachChangeThatNoPersonMakesIsReported(t *testing.T) {
	accept := func(t *testing.T, r *reporter) {
		_, err := r.Decide(t.Context(), switchboard.PinID{Server: "s", Kind: switchboard.PinTool, Name: "work"}, func(v admission.PinVerdict) (admission.Pin, error) {
			return admission.Pin{Digest: v.Other.Digest, Definition: v.Other.Definition, State: switchboard.LifeActive, Since: now(), By: "ann"}, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	strict := admission.OfferTerms{Rules: switchboard.AdmissionRules{Trust: switchboard.TrustStrict}}
	var free admission.OfferTerms
	poison := admission.OfferTerms{FindBlocking: func(_ admission.PinKey, definition []byte) string {
		if strings.Contains(string(definition), "evil") {
			return "bidi"
		}
		return ""
	}}
	for _, tt := range []struct {
		what string
		do   func(t *testing.T, r *reporter)
		want string
	}{
		{"the same again", func(_ *testing.T, r *reporter) { r.offer(free, work) }, ""},
		{"frozen", func(_ *testing.T, r *reporter) { r.offer(free, evil) }, "1: work frozen words"},
		{"suspended", func(_ *testing.T, r *reporter) { r.offer(free, narrower(work)) }, "1: work suspended narrower"},
		{"poisoned", func(_ *testing.T, r *reporter) { r.offer(poison, evil) }, "1: work suspended poisoned"},
		{"frozen, and offered again", func(_ *testing.T, r *reporter) {
			r.offer(free, evil)
			time.Sleep(2 * reportInterval)
			r.offer(free, work)
		}, "1: work frozen words; 1: work active"},
		{"suspended and offered again within one report", func(_ *testing.T, r *reporter) {
			r.offer(free, narrower(work))
			r.offer(free, work)
		}, "2: work active"},
		{"suspended and gone", func(_ *testing.T, r *reporter) {
			r.offer(free, narrower(work), late)
			time.Sleep(2 * reportInterval)
			r.offer(free, late)
		}, "2: work suspended narrower, late testing; 1: work active"},
		{"frozen by a machine, and let in by a person", func(t *testing.T, r *reporter) {
			r.offer(free, evil)
			time.Sleep(2 * reportInterval)
			accept(t, r)
			r.offer(free, evil)
		}, "1: work frozen words"},
		{"on trial", func(_ *testing.T, r *reporter) { r.offer(free, work, late) }, "1: late testing"},
		{"not let in", func(_ *testing.T, r *reporter) { r.offer(strict, work) }, "1: work new"},
		{"retired", func(_ *testing.T, r *reporter) {
			r.offer(free, late)
			time.Sleep(31 * 24 * time.Hour)
			r.offer(free, late, late)
		}, "1: late testing; 1: work retired"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startReporter(store.NewMemory(), "a")
				defer r.stop()
				r.offer(free, work)
				time.Sleep(2 * reportInterval)
				if got := r.take(); !slices.Equal(got, []string{"1: work active"}) {
					t.Errorf("at first sight: %q", got)
				}
				tt.do(t, r)
				time.Sleep(2 * reportInterval)
				if got := strings.Join(r.take(), "; "); got != tt.want {
					t.Errorf("the reports are %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// 4,096 tools change each second for more than a minute. Each report is bounded, there is one a minute, and another server is reported as if they did not.
func TestAStormOfChangesHasOneReportAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(store.NewMemory(), "a")
		defer r.stop()
		const seconds = 65
		tools := 4096
		if raceEnabled { // each then takes five times as long
			tools = 1000
		}
		storm := func(n int) {
			o := switchboard.Offer{Server: "storm"}
			for i := range tools {
				o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":"t%d","description":"%d","inputSchema":{"type":"object"}}`, i, n))
			}
			r.Admit(t.Context(), []switchboard.Offer{o}, firstUse)
		}
		storm(0)
		r.offer(admission.OfferTerms{}, work)
		time.Sleep(2 * reportInterval)
		r.take()
		began := time.Now()
		for n := range seconds {
			storm(n + 1)
			if n == 30 {
				r.offer(admission.OfferTerms{}, evil)
			}
			time.Sleep(time.Second)
		}
		r.stop()
		changes := map[switchboard.ServerID]int{}
		reports := map[switchboard.ServerID]int{}
		for _, c := range r.reports {
			changes[c.Server] += c.Changes
			reports[c.Server]++
			size := 0
			for _, n := range c.Named {
				size += len(n.Key.Name) + len(n.Admitted) + len(n.Offered) + len(n.Why)
			}
			if len(c.Named) > maxNamed || size > maxNamedBytes || c.Server == "storm" && c.Definitions != tools || c.Since.Before(began) {
				t.Errorf("a report of %d definitions names %d with %d bytes, since %s", c.Definitions, len(c.Named), size, c.Since)
			}
		}
		if want := map[switchboard.ServerID]int{"storm": tools * seconds, "s": 1}; !maps.Equal(changes, want) {
			t.Errorf("the reports count %v, want %v", changes, want)
		}
		if n := reports["storm"]; n < 2 || n > 3 || reports["s"] != 1 {
			t.Errorf("there are reports %v in 65 seconds", reports)
		}
	})
}

func TestOneOfSeveralReplicasReportsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &sharedMemory{store.NewMemory()}
		var replicas []*reporter
		for i := range 3 {
			replicas = append(replicas, startReporter(st, fmt.Sprint("r", i)))
		}
		all := func() (said []string) {
			for _, r := range replicas {
				said = append(said, r.take()...)
			}
			return said
		}
		for _, step := range []struct {
			what  string
			tools []string
			want  []string
		}{
			{"at first sight", []string{work}, []string{"1: work active"}},
			{"frozen", []string{evil}, []string{"1: work frozen words"}},
			{"offered again", []string{work}, []string{"1: work active"}},
			{"suspended, with a new one", []string{narrower(work), late}, []string{"2: work suspended narrower, late testing"}},
		} {
			for _, r := range replicas {
				r.offer(admission.OfferTerms{}, step.tools...)
			}
			time.Sleep(10 * time.Second)
			for _, r := range replicas { // what the others have reported counts
				r.offer(admission.OfferTerms{}, step.tools...)
			}
			time.Sleep(2 * reportInterval)
			if got := all(); !slices.Equal(got, step.want) {
				t.Errorf("%s: the replicas report %q, want %q", step.what, got, step.want)
			}
		}
		for _, r := range replicas {
			r.stop()
		}
		again := startReporter(st, "r9")
		again.offer(admission.OfferTerms{}, narrower(work), late)
		again.stop()
		if got := again.take(); got != nil {
			t.Errorf("after a restart, what was reported is reported again: %q", got)
		}
		again = startReporter(st, "r9")
		again.offer(admission.OfferTerms{}, work, late)
		again.stop()
		if got := again.take(); !slices.Equal(got, []string{"1: work active"}) {
			t.Errorf("a change during a restart: %q", got)
		}
	})
}

// Two processes share a real store. One of them reports the first sight, and one of them, when both stop, what has changed since.
func TestOneOfTwoProcessesReportsAChangeOnEachStore(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := open(t)
			both := []*reporter{startReporter(next(), "a"), startReporter(next(), "b")}
			all := func() (said []string) {
				for _, r := range both {
					r.mu.Lock()
					for _, c := range r.reports {
						said = append(said, fmt.Sprint(c.Changes, " ", c.Named[0].State))
					}
					r.mu.Unlock()
				}
				return said
			}
			for _, r := range both {
				r.offer(admission.OfferTerms{}, work)
			}
			wait.UntilNil(t, "the first sight is reported", func() error {
				if len(all()) == 0 {
					return errors.New("it is not")
				}
				return nil
			})
			for _, r := range both {
				r.offer(admission.OfferTerms{}, narrower(work))
			}
			for _, r := range both {
				r.stop()
			}
			if got := all(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"1 active", "1 suspended"}) {
				t.Errorf("the reports are %q", got)
			}
		})
	}
}

// sharedMemory is a memory that says that it is shared.
type sharedMemory struct{ store.Store }

func (sharedMemory) Status() store.Status { return store.Status{Kind: "redis"} }

func TestChangesAreReportedOnceTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &awayStore{Store: store.NewMemory()}
		r := startReporter(st, "a")
		defer r.stop()
		r.offer(admission.OfferTerms{}, work)
		time.Sleep(2 * reportInterval)
		r.take()
		st.away.Store(true)
		r.offer(admission.OfferTerms{}, evil)
		time.Sleep(time.Minute)
		r.offer(admission.OfferTerms{}, narrower(work))
		time.Sleep(time.Minute)
		if got := r.take(); got != nil {
			t.Errorf("without a store: %q", got)
		}
		st.away.Store(false)
		time.Sleep(time.Minute)
		if got := r.take(); !slices.Equal(got, []string{"2: work suspended narrower"}) {
			t.Errorf("with a store: %q", got)
		}
	})
}

// A server with many long names is reported, and what the store keeps of it fits a value.
func TestAServerWithLongNamesIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		r := startReporter(st, "a")
		defer r.stop()
		o := switchboard.Offer{Server: "s"}
		for i := range 4096 {
			o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":"%s","inputSchema":{"type":"object"}}`, strings.Repeat(rand.Text(), 100)+fmt.Sprint(i)))
		}
		strict := admission.OfferTerms{Rules: switchboard.AdmissionRules{Trust: switchboard.TrustStrict}}
		r.Admit(t.Context(), []switchboard.Offer{o}, func(*switchboard.Offer) admission.OfferTerms { return strict })
		time.Sleep(2 * reportInterval)
		synctest.Wait()
		v, err := st.Value(t.Context(), store.Key{Group: groupReported, Name: "s"})
		var kept reportedStates
		if err == nil {
			err = unpack(v.Data, &kept)
		}
		if err != nil || len(r.reports) != 1 || r.reports[0].Definitions != 4096 || len(kept.States) < 1000 || len(kept.States) > 2000 {
			t.Errorf("%d reports; the store keeps %d states, %v", len(r.reports), len(kept.States), err)
		}
	})
}

func TestCountsAreOfWhatIsOffered(t *testing.T) {
	r := &reporter{Board: New(Options{Store: store.NewMemory(), Self: "a", Log: slog.New(slog.DiscardHandler)})}
	r.offer(admission.OfferTerms{}, work, late)
	r.offer(admission.OfferTerms{}, evil, narrower(late), strings.Replace(late, "late", "later", 1))
	if got, want := r.Counts()["s"], map[string]int{"frozen": 1, "suspended": 1, "testing": 1, "active": 0, "deprecated": 0, "retired": 0, "new": 0}; !maps.Equal(got, want) {
		t.Errorf("it counts %v, want %v", got, want)
	}
}
