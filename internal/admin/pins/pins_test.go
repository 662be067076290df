package pins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/lockfile"
	"github.com/summit-switchboard/switchboard/internal/pin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	work  = `{"name":"work","description":"works","inputSchema":{"type":"object"}}`
	other = `{"name":"other","inputSchema":{"type":"object"}}`
)

var evil = strings.Replace(work, "works", "evil", 1)

func digestOf(definition string) string {
	d, err := admission.DigestOf([]byte(definition))
	if err != nil {
		panic(err)
	}
	return d
}

// A ledger keeps receipts in memory.
type ledger struct {
	mu      sync.Mutex
	written []receipt.Receipt
	err     error // of Record
}

func (l *ledger) Durable() bool { return true }

func (l *ledger) Write(_ context.Context, r *receipt.Receipt) (string, error) { return l.Add(r), nil }

func (l *ledger) Add(r *receipt.Receipt) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = append(l.written, *r)
	return fmt.Sprint("n1/", len(l.written))
}

// record writes an intent and an outcome, as admin.Actions does.
func (l *ledger) record(r receipt.Receipt, do func() error) error {
	if l.err != nil {
		return l.err
	}
	r.Of = l.Add(&r)
	err := do()
	r.Outcome = receipt.OK
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		r.Outcome, r.Code = receipt.Refused, own.Code
	}
	l.Add(&r)
	return err
}

// A replica is a Registrar with its board, and the offer of the one server.
type replica struct {
	*Registrar
	board   *pin.Board
	ledger  *ledger
	main    string // the path of switchboard.yaml
	offered []string
}

// serve returns a replica that was offered work and other at first.
func serve(t *testing.T, st store.Store, hasFile bool) *replica {
	t.Helper()
	r := &replica{ledger: &ledger{}, main: filepath.Join(t.TempDir(), "switchboard.yaml"), offered: []string{work, other}}
	if err := os.WriteFile(r.main, []byte("servers:\n  s: {transport: stdio, command: [run]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.board = pin.New(pin.Options{Store: st, Self: t.Name(), Log: slog.New(slog.DiscardHandler)})
	r.board.Read(t.Context())
	var mu sync.Mutex
	editor := change.New(change.Options{
		File: r.main, Place: "here", Store: store.NewMemory(), Ledger: r.ledger, Timeout: 10 * time.Second,
		Try: func(ctx context.Context, replace map[string][]byte) (*change.Reading, error) {
			c, err := config.Load(ctx, r.main, config.Options{Replace: replace})
			return &change.Reading{Config: c}, err
		},
		Edit: func() config.EditMode { return config.EditFiles },
		Servers: func() []switchboard.Server {
			c, err := config.Load(context.Background(), r.main, config.Options{})
			if err != nil {
				return nil
			}
			return c.Servers
		},
		Lock:   func(context.Context) (func(), error) { mu.Lock(); return mu.Unlock, nil },
		Reload: func(ctx context.Context) error { r.admit(ctx); return nil },
		Intent: func(context.Context, receipt.Receipt, time.Time) (string, error) { return "", nil },
	})
	r.Registrar = New(Options{Board: r.board, Editor: editor, HasFile: hasFile, Admit: r.admit, Record: r.ledger.record, Stopping: context.WithoutCancel(t.Context())})
	r.admit(t.Context())
	return r
}

// admit judges the offer by the files.
func (r *replica) admit(ctx context.Context) {
	c, err := config.Load(ctx, r.main, config.Options{})
	if err != nil {
		panic(err)
	}
	t := admission.OfferTerms{Entries: map[admission.PinKey]switchboard.AdmittedPin{}}
	for id, e := range c.Admitted {
		t.Entries[admission.PinKey{Kind: id.Kind, Name: id.Name}] = e
	}
	o := switchboard.Offer{Server: "s"}
	for _, tool := range r.offered {
		o.Tools = append(o.Tools, []byte(tool))
	}
	r.board.Admit(ctx, []switchboard.Offer{o}, func(*switchboard.Offer) admission.OfferTerms { return t })
}

// offer is what the server offers from now on.
func (r *replica) offer(ctx context.Context, tools ...string) {
	r.offered = tools
	r.admit(ctx)
}

func tool(name string) switchboard.PinID {
	return switchboard.PinID{Server: "s", Kind: switchboard.PinTool, Name: name}
}

func officer(id string) switchboard.Officer { return switchboard.Officer{ID: id, Operator: true} }

// codeOf returns the code of an error; "" for none.
func codeOf(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return string(own.Code)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestADecisionCountsIfItIsAboutWhatIsThere(t *testing.T) {
	const (
		active     = switchboard.LifeActive
		suspended  = switchboard.LifeSuspended
		retired    = switchboard.LifeRetired
		deprecated = switchboard.LifeDeprecated
	)
	worse := strings.Replace(work, `{"type":"object"}`, `{"type":"object","required":["x"]}`, 1)
	for _, tt := range []struct {
		what    string
		offered string // in place of work
		before  switchboard.LifeState
		to      switchboard.LifeState
		digest  string
		code    string
		want    string // the state, whether it is frozen, and the admitted digest
	}{
		{"accept a frozen definition", evil, "", active, digestOf(evil), "", "active " + digestOf(evil)},
		{"accept a suspended definition", worse, "", active, digestOf(worse), "", "active " + digestOf(worse)},
		{"accept another one than is offered", evil, "", active, digestOf(worse), "SB-CONF-002", "active frozen " + digestOf(work)},
		{"accept the admitted one while another one is offered", evil, "", active, digestOf(work), "SB-CONF-002", "active frozen " + digestOf(work)},
		{"accept without a digest", evil, "", active, "", "SB-CONF-002", "active frozen " + digestOf(work)},
		{"accept what a person has suspended", work, suspended, active, digestOf(work), "", "active " + digestOf(work)},
		{"accept what a person has retired", work, retired, active, digestOf(work), "", "active " + digestOf(work)},
		{"accept what a person has suspended, by a wrong digest", work, suspended, active, digestOf(evil), "SB-CONF-002", "suspended " + digestOf(work)},
		{"suspend", work, "", suspended, "", "", "suspended " + digestOf(work)},
		{"suspend a frozen one", evil, "", suspended, "", "", "suspended " + digestOf(work)},
		{"retire", work, "", retired, "", "", "retired " + digestOf(work)},
		{"deprecate", work, "", deprecated, "", "", "deprecated " + digestOf(work)},
		{"deprecate a frozen one", evil, "", deprecated, "", "", "deprecated frozen " + digestOf(work)},
		{"deprecate, and accept the offered one", evil, "", deprecated, digestOf(evil), "", "deprecated " + digestOf(evil)},
		{"deprecate, by a wrong digest", evil, "", deprecated, digestOf(worse), "SB-CONF-002", "active frozen " + digestOf(work)},
	} {
		for _, hasFile := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.what, " file=", hasFile), func(t *testing.T) {
				r := serve(t, store.NewMemory(), hasFile)
				if tt.before != "" {
					if _, err := r.Decide(t.Context(), PinDecision{ID: tool("work"), To: tt.before, By: officer("eve")}); err != nil {
						t.Fatal(err)
					}
				}
				r.offer(t.Context(), tt.offered, other)
				r.ledger.written = nil
				want := PinDecision{ID: tool("work"), To: tt.to, By: officer("ann"), Why: "read", Digest: tt.digest}
				if tt.to == deprecated {
					want.Successor = "s/other"
				}
				d, err := r.Decide(t.Context(), want)
				if codeOf(err) != tt.code {
					t.Errorf("the error is %v, want %s", err, tt.code)
				}
				if err != nil {
					if d, err = r.Detail(tool("work")); err != nil {
						t.Fatal(err)
					}
				} else if d.By != "ann" || d.Successor != want.Successor {
					t.Errorf("it is by %q, with successor %q", d.By, d.Successor)
				}
				got := string(d.State) + " " + d.Digest
				if d.Frozen {
					got = string(d.State) + " frozen " + d.Digest
				}
				if got != tt.want {
					t.Errorf("it is %s, want %s", got, tt.want)
				}
				all := slices.DeleteFunc(r.ledger.written, func(w receipt.Receipt) bool { return w.Change.File != "" })
				if len(all) != 2 || all[0].Method != methods[tt.to] || all[0].Principal.ID != "ann" || all[0].Server != "s" || !strings.HasPrefix(all[0].Note, "s/work") || string(all[1].Code) != tt.code || all[1].Of == "" {
					t.Errorf("the receipts are %+v", all)
				}
				text, _ := os.ReadFile(filepath.Join(filepath.Dir(r.main), lockfile.Name))
				if line := "s/work " + string(tt.to) + " ann "; hasFile != strings.Contains(string(text), line) && tt.code == "" || tt.code != "" && strings.Contains(string(text), line) {
					t.Errorf("admitted.lock is\n%s", text)
				}
			})
		}
	}
}

func TestADefinitionThatNoServerOffersIsUnknown(t *testing.T) {
	r := serve(t, store.NewMemory(), true)
	for _, id := range []switchboard.PinID{
		tool("nosuch"), {Server: "nosuch", Kind: switchboard.PinTool, Name: "work"}, {Server: "s", Kind: switchboard.PinPrompt, Name: "work"}, {Server: "s", Kind: switchboard.PinInstructions},
	} {
		for to := range methods {
			if _, err := r.Decide(t.Context(), PinDecision{ID: id, To: to, By: officer("ann"), Digest: digestOf(work)}); !errors.Is(err, ErrUnknown) || codeOf(err) != "SB-CAP-003" || !strings.Contains(err.Error(), "no server here offers") {
				t.Errorf("%s %s: %v", methods[to], id, err)
			}
		}
		if _, err := r.Detail(id); codeOf(err) != "SB-CAP-003" {
			t.Errorf("to read %s: %v", id, err)
		}
	}
	if len(r.ledger.written) > 0 {
		t.Errorf("the receipts are %+v", r.ledger.written)
	}
}

// Two people accept the same change at once, at one process, or at two that share the store. One of them has let it in, and the other one reads so.
func TestOfTwoPeopleWhoAcceptAtOnceOneSucceeds(t *testing.T) {
	for _, tt := range []struct {
		what     string
		hasFile  bool
		replicas int
	}{{"one process with a file", true, 1}, {"one process without a file", false, 1}, {"two processes that share the store", false, 2}} {
		t.Run(tt.what, func(t *testing.T) {
			for range 20 {
				st := store.NewMemory()
				desks := []*replica{serve(t, st, tt.hasFile)}
				for len(desks) < tt.replicas {
					desks = append(desks, serve(t, st, tt.hasFile))
				}
				for _, r := range desks {
					r.offer(t.Context(), evil, other)
				}
				codes := make([]string, 2)
				var people sync.WaitGroup
				for i := range codes {
					people.Go(func() {
						_, err := desks[i%len(desks)].Decide(t.Context(), PinDecision{ID: tool("work"), To: switchboard.LifeActive, By: officer(fmt.Sprint("person-", i)), Digest: digestOf(evil)})
						codes[i] = codeOf(err)
					})
				}
				people.Wait()
				winner := slices.Index(codes, "")
				if slices.Sort(codes); !slices.Equal(codes, []string{"", "SB-CONF-002"}) {
					t.Fatalf("the codes are %q", codes)
				}
				if d, err := desks[winner%len(desks)].Detail(tool("work")); err != nil || d.By != fmt.Sprint("person-", winner) || d.Digest != digestOf(evil) {
					t.Fatalf("it is %+v, %v", d, err)
				}
			}
		})
	}
}

func TestASuccessorIsAnotherToolOfADeprecatedOrRetiredOne(t *testing.T) {
	for _, tt := range []struct {
		to        switchboard.LifeState
		successor string
		code      string
	}{
		{switchboard.LifeDeprecated, "s/other", ""},
		{switchboard.LifeRetired, "s/other", ""},
		{switchboard.LifeDeprecated, "", ""},
		{switchboard.LifeDeprecated, "other", "SB-CAP-003"},
		{switchboard.LifeDeprecated, "s/work", "SB-CAP-003"},
		{switchboard.LifeSuspended, "s/other", "SB-CAP-003"},
		{switchboard.LifeActive, "s/other", "SB-CAP-003"},
	} {
		for _, hasFile := range []bool{false, true} {
			r := serve(t, store.NewMemory(), hasFile)
			d, err := r.Decide(t.Context(), PinDecision{ID: tool("work"), To: tt.to, By: officer("ann"), Digest: digestOf(work), Successor: tt.successor})
			if codeOf(err) != tt.code {
				t.Errorf("%s with successor %q, file %v: %v", tt.to, tt.successor, hasFile, err)
			}
			if d == nil {
				d, _ = r.Detail(tool("work"))
			}
			if want := tt.to; tt.code == "" && d.State != want || tt.code != "" && d.State != switchboard.LifeActive {
				t.Errorf("%s with successor %q, file %v: it is %s", tt.to, tt.successor, hasFile, d.State)
			}
		}
	}
}

func TestADecisionWithoutAReceiptIsNotMade(t *testing.T) {
	r := serve(t, store.NewMemory(), false)
	r.ledger.err = &switchboard.Error{Code: switchboard.CodeReceipt}
	if _, err := r.Decide(t.Context(), PinDecision{ID: tool("work"), To: switchboard.LifeSuspended, By: officer("ann")}); codeOf(err) != "SB-RCPT-001" {
		t.Errorf("the error is %v", err)
	}
	if d, err := r.Detail(tool("work")); err != nil || d.State != switchboard.LifeActive {
		t.Errorf("it is %+v, %v", d, err)
	}
}

func TestTheListHasWhatIsNotPlainlyActiveAndTheDiffSpellsItOut(t *testing.T) {
	r := serve(t, store.NewMemory(), false)
	r.offer(t.Context(), strings.Replace(work, "works", "works\u202e", 1), other, strings.Replace(other, "other", "late", 1))
	var got []string
	for _, p := range r.List(PinFilter{Changed: true}).Pins {
		row := r.Row(p)
		got = append(got, fmt.Sprint(PlaceOf(p), " ", row.State, " ", row.Frozen, " ", row.Class))
	}
	if want := []string{"0 s tool late testing false ", "0 s tool work active true words"}; !slices.Equal(got, want) {
		t.Errorf("the list is %q, want %q", got, want)
	}
	if n := len(r.List(PinFilter{Server: "s"}).Pins); n != 3 {
		t.Errorf("there are %d definitions", n)
	}
	if n := len(r.List(PinFilter{Server: "nosuch"}).Pins); n > 0 {
		t.Errorf("an unknown server has %d definitions", n)
	}
	d, err := r.Detail(tool("work"))
	if err != nil || !strings.Contains(d.Diff, `-  "description": "works",`) || !strings.Contains(d.Diff, `+  "description": "works\u{202e}",`) || !slices.Equal(d.Differs, []string{"description"}) {
		t.Errorf("%v; the diff is\n%s", err, d.Diff)
	}
	if d, err = r.Detail(tool("other")); err != nil || d.Diff != "" || !strings.Contains(d.Text, `"name": "other"`) {
		t.Errorf("%v; the text is\n%s", err, d.Text)
	}
}
