package commit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

const group = "budget/acme"

// A priced charges every call the same.
type priced struct {
	price    switchboard.Micros
	reported bool
	budgets  []*switchboard.Budget
	window   budget.Window
}

func (p *priced) ChargeFor(*switchboard.Call, time.Time) (*budget.AttemptCharge, error) {
	if p == nil {
		return nil, nil
	}
	c := &budget.AttemptCharge{Price: p.price, Reported: p.reported, Group: group}
	for _, b := range p.budgets {
		amount := int64(p.price)
		if b.Calls {
			amount = 1
		}
		c.Lines = append(c.Lines, budget.ChargeLine{Budget: b, Account: store.Account{Name: b.Name(), Max: b.Limit, Amount: amount}, Window: p.window})
	}
	return c, nil
}

// paid charges each call the price, in one budget.
func paid(price switchboard.Micros, limit int64) *priced {
	return &priced{price: price, budgets: []*switchboard.Budget{{ID: "paid", Owner: switchboard.OwnerTenant, Limit: limit}}}
}

// noIntents has no receipts.
type noIntents struct{}

func (noIntents) Durable() bool { return false }
func (noIntents) Node() string  { return "" }
func (noIntents) WriteIntent(context.Context, *switchboard.Call, receipt.IntentTerms) (string, error) {
	panic("there are no receipts")
}

// A counting store counts its operations and fails where the test says.
type counting struct {
	store.Store
	holds, settles, applies, appends, durable atomic.Int64
	fails                                     atomic.Pointer[error] // of Hold
}

func (s *counting) Hold(ctx context.Context, group, id string, terms store.HoldTerms, all ...store.Account) ([]store.AccountState, bool, error) {
	s.holds.Add(1)
	if terms.Durable {
		s.durable.Add(1)
	}
	if err := s.fails.Load(); err != nil {
		return nil, false, *err
	}
	return s.Store.Hold(ctx, group, id, terms, all...)
}

func (s *counting) Settle(ctx context.Context, group string, all ...store.Settlement) ([]bool, error) {
	s.settles.Add(1)
	return s.Store.Settle(ctx, group, all...)
}

func (s *counting) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	s.applies.Add(1)
	if c.Durable {
		s.durable.Add(1)
	}
	return s.Store.Apply(ctx, c)
}

func (s *counting) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	s.appends.Add(1)
	s.durable.Add(1)
	return s.Store.Append(ctx, log, after, entries...)
}

func (s *counting) operations() int64 {
	return s.holds.Load() + s.settles.Load() + s.applies.Load() + s.appends.Load()
}

// oneYes is a person's yes to one call, in the store.
type oneYes struct {
	store.Store
	fault          error
	given, replays atomic.Int64
}

const groupYes = "yes"

func (y *oneYes) Use(ctx context.Context, c *switchboard.Call, intent string, write func(context.Context, store.Change) (store.Version, error)) error {
	if y.fault != nil {
		return y.fault
	}
	if write == nil {
		write = y.Apply
	}
	_, err := write(ctx, store.Change{Group: groupYes, Durable: !receipt.Effect(c), Writes: []store.Write{{Name: c.Yes.Request, Data: []byte(intent)}}})
	if errors.Is(err, store.ErrConflict) {
		return switchboard.Refuse("SB-APPR-003", "it was used")
	}
	return err
}

func (y *oneYes) GiveBack(ctx context.Context, c *switchboard.Call) error {
	y.given.Add(1)
	_, err := y.Apply(ctx, store.Change{Group: groupYes, Writes: []store.Write{{Name: c.Yes.Request, Was: store.Any}}})
	return err
}

func (y *oneYes) Replay(ctx context.Context, _ switchboard.TenantID, request, intent string) error {
	y.replays.Add(1)
	_, err := y.Apply(ctx, store.Change{Group: groupYes, Writes: []store.Write{{Name: request, Data: []byte(intent)}}})
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

func (y *oneYes) used(t *testing.T, request string) bool {
	t.Helper()
	v, err := y.Value(t.Context(), store.Key{Group: groupYes, Name: request})
	if err != nil {
		t.Fatal(err)
	}
	return v.Version != 0
}

// A bench is a Committer with all that is around it.
type bench struct {
	*commit.Committer
	s      *counting
	yes    *oneYes
	ledger *receipt.Ledger
	log    bytes.Buffer
}

// newBench returns a Committer over the store. folder is that of the store's file; without one, there are no receipts.
func newBench(t *testing.T, st store.Store, folder string, p *priced) *bench {
	t.Helper()
	b := &bench{s: &counting{Store: st}}
	b.yes = &oneYes{Store: st}
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	o := commit.Options{Store: b.s, Charges: p, Intents: noIntents{}, Approvals: b.yes, Log: log, Currency: func() string { return "EUR" }}
	if folder != "" {
		var err error
		if b.ledger, err = receipt.OpenLedger(t.Context(), receipt.LedgerOptions{Store: b.s, Folder: folder, Lease: time.Hour, Log: log}); err != nil {
			t.Fatal(err)
		}
		o.Intents = b.ledger
	}
	b.Committer = commit.New(o)
	return b
}

// close settles what is queued.
func (b *bench) close(t *testing.T) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if b.ledger != nil {
		if err := b.ledger.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// openFile opens a store in a file.
func openFile(t *testing.T, folder string) store.Store {
	t.Helper()
	st, err := store.OpenFile(filepath.Join(folder, "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// sums spells the accounts of the group.
func sums(t *testing.T, s store.Store) string {
	t.Helper()
	all, err := s.Accounts(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, a := range all {
		if a.Name != "holds" {
			fmt.Fprintf(&b, "%s=%d+%d ", a.Name, a.Settled, a.Held)
		}
	}
	return strings.TrimSpace(b.String())
}

var reads = switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true, Trusted: true}}

// aCall returns a call of a tool with that contract. yes is the request that it uses, if any.
func aCall(says switchboard.Contract, yes string) *switchboard.Call {
	c := &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey}, Server: "notes", Method: wire.MethodToolsCall,
		Tool:   &switchboard.Tool{ID: switchboard.ToolID{Server: "notes", Name: "send"}, Contract: says},
		Target: "send", Params: []byte(`{"name":"send"}`), Trail: &switchboard.Trail{},
	}
	if yes != "" {
		c.Yes = &switchboard.Yes{Request: yes}
	}
	return c
}

func answers(result string) switchboard.CallerFunc {
	return func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte(result), Outline: wire.OutlineOf([]byte(result))}, nil
	}
}

func fails(err error) switchboard.CallerFunc {
	return func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, err }
}

func codeOf(err error) switchboard.Code {
	own, _ := errors.AsType[*switchboard.Error](err)
	if own == nil {
		return ""
	}
	return own.Code
}

func TestACallThatNothingConcernsMakesNoStoreOperation(t *testing.T) {
	folder := t.TempDir()
	st := openFile(t, folder)
	defer func() { _ = st.Close() }()
	b := newBench(t, st, folder, nil)
	before := b.s.operations()
	if _, err := b.Commit(answers(`{}`)).Call(t.Context(), aCall(reads, "")); err != nil {
		t.Error(err)
	}
	if n := b.s.operations() - before; n != 0 {
		t.Errorf("it makes %d", n)
	}
	b.close(t)
}

// The price, the yes and the intent of a call with an effect wait for the disk once.
func TestAPricedAndApprovedCallWithAnEffectWaitsForTheDiskOnce(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	folder := t.TempDir()
	st := openFile(t, folder)
	defer func() { _ = st.Close() }()
	b := newBench(t, st, folder, paid(3, 100))
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, says := range []switchboard.Contract{{}, reads, reads} {
		durable, holds, applies := b.s.durable.Load(), b.s.holds.Load(), b.s.applies.Load()
		const want = 1 // the intent; the hold; the hold with the use
		c := aCall(says, map[int]string{0: "k-1", 2: "k-2"}[i])
		_, err := b.Commit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			if n := b.s.durable.Load() - durable; n != want || b.s.holds.Load() != holds+1 || b.s.applies.Load() != applies {
				t.Errorf("call %d: when it is sent, %d changes were made durable, want %d; hold and use took %d transactions", i, n, want, b.s.holds.Load()-holds+b.s.applies.Load()-applies)
			}
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		})).Call(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
	}
	b.close(t)
	if got := sums(t, st); got != "tenant/paid=9+0" || !b.yes.used(t, "k-1") || !b.yes.used(t, "k-2") {
		t.Error(got)
	}
}

func TestEachAttemptThatMayHaveReachedAServerCosts(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	refused := func(code switchboard.Code, unsent bool) error {
		return &switchboard.Error{Code: code, Unsent: unsent, ServerFailed: true}
	}
	for name, tt := range map[string]struct {
		next  switchboard.CallerFunc
		costs bool
	}{
		"a result":                {answers(`{"content":[]}`), true},
		"an error of the tool":    {answers(`{"isError":true}`), true},
		"an error of the server":  {fails(&switchboard.ServerError{Object: []byte(`{}`)}), true},
		"the outcome is unknown":  {fails(refused(switchboard.CodeOutcomeUnknown, false)), true},
		"the client has gone":     {fails(context.Canceled), true},
		"a panic":                 {func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic("at the server") }, true},
		"it was not sent":         {fails(fmt.Errorf("call: %w", refused(switchboard.CodeServerUnreachable, true))), false},
		"it asks for more input":  {answers(`{"resultType":"input_required","inputRequests":{}}`), false},
		"it says both":            {answers(`{"resultType":"input_required","resultType":"complete"}`), true},
		"its text asks for input": {answers(`{"content":[{"resultType":"input_required"}]}`), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := paid(3, 100)
				p.budgets = append(p.budgets, &switchboard.Budget{ID: "few", Owner: switchboard.OwnerTenant, Limit: 9, Calls: true})
				b := newBench(t, store.NewMemory(), "", p)
				c := aCall(switchboard.Contract{}, "k-1")
				func() {
					defer func() { _ = recover() }()
					_, _ = b.Commit(tt.next).Call(t.Context(), c)
				}()
				if got := sums(t, b.s); got != "tenant/few=0+1 tenant/paid=0+3" {
					t.Errorf("before it is settled: %s", got)
				}
				time.Sleep(50 * time.Millisecond)
				synctest.Wait()
				want, marks := "tenant/few=0+0 tenant/paid=0+0", switchboard.Marks{}
				if tt.costs {
					want, marks.Held, marks.Settled = "tenant/few=1+0 tenant/paid=3+0", 3, 3
				}
				m := c.Trail.Marks()
				if got := sums(t, b.s); got != want || m.Held != marks.Held || m.Settled != marks.Settled {
					t.Errorf("50 ms later: %s, want %s; its receipt has %d and %d", got, want, m.Held, m.Settled)
				}
				if got := b.yes.used(t, "k-1"); got != tt.costs || (m.Yes != nil) != tt.costs {
					t.Errorf("its yes is used: %v; its receipt names it: %v", got, m.Yes != nil)
				}
				b.close(t)
			})
		})
	}
}

// BU-05 of the security cases.
func TestBU05OnlyAValidStatementOfTheCostCounts(t *testing.T) {
	const most = 50_000
	for text, want := range map[string]int64{
		`{"amount":"0.0031"}`:                           3100,
		`{"amount":"0"}`:                                0,
		`{"amount":"0.05"}`:                             most,
		`{"amount":"0.050001"}`:                         most,
		`{"amount":"-1"}`:                               most,
		`{"amount":"NaN"}`:                              most,
		`{"amount":"1e30"}`:                             most,
		`{"amount":"1` + strings.Repeat("0", 30) + `"}`: most,
		`{"amount":"0.0000001"}`:                        most,
		`{"amount":0.0031}`:                             most,
		`{"amount":"0.0031","amount":"0.0001"}`:         most,
		`{"amount":"0.0031","more":1}`:                  most,
		`{"Amount":"0.0031"}`:                           most,
		`{}`:                                            most,
		`"0.0031"`:                                      most,
		`null`:                                          most,
		`{"amount":"0.0031"},"io.switchboard/cost":{"amount":"0.0001"}`: most,
	} {
		for _, reported := range []bool{true, false} {
			t.Run(fmt.Sprint(text, reported), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := paid(most, 1_000_000)
					p.reported = reported
					b := newBench(t, store.NewMemory(), "", p)
					time.Sleep(time.Hour)
					if _, err := b.Commit(answers(`{"content":[],"_meta":{"x":1,"io.switchboard/cost":`+text+`}}`)).Call(t.Context(), aCall(reads, "")); err != nil {
						t.Error(err)
					}
					b.close(t)
					valid := want != most || text == `{"amount":"0.05"}`
					if !reported {
						want, valid = most, false
					}
					if got := sums(t, b.s); got != fmt.Sprintf("tenant/paid=%d+0", want) {
						t.Errorf("it settles %s, want %d", got, want)
					}
					if warns := strings.Contains(b.log.String(), "does not count"); warns == valid {
						t.Errorf("it warns: %v\n%s", warns, &b.log)
					}
				})
			})
		}
	}
	t.Run("none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := paid(most, 1_000_000)
			b := newBench(t, store.NewMemory(), "", p)
			for _, reported := range []bool{true, false} {
				p.reported = reported
				if _, err := b.Commit(answers(`{"io.switchboard/cost":{"amount":"0"},"content":[{"_meta":{"io.switchboard/cost":{"amount":"0"}}}]}`)).Call(t.Context(), aCall(reads, "")); err != nil {
					t.Error(err)
				}
			}
			b.close(t)
			if got := sums(t, b.s); got != "tenant/paid=100000+0" {
				t.Error(got)
			}
		})
	})
}

func TestAStepThatFailsUndoesTheOthers(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	never := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		panic("it was sent")
	})
	for name, tt := range map[string]struct {
		limit  int64
		broken func(*bench)
		want   switchboard.Code
	}{
		"over budget":               {2, func(*bench) {}, switchboard.CodeBudgetExceeded},
		"the store does not hold":   {9, func(b *bench) { err := store.ErrUnavailable; b.s.fails.Store(&err) }, switchboard.CodeStoreUnavailable},
		"the yes was used":          {9, func(b *bench) { b.yes.fault = switchboard.Refuse("SB-APPR-003", "it was used") }, "SB-APPR-003"},
		"there are no more intents": {9, func(b *bench) { _ = b.ledger.Close(context.Background()) }, switchboard.CodeReceipt},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			st := openFile(t, folder)
			defer func() { _ = st.Close() }()
			b := newBench(t, st, folder, paid(3, tt.limit))
			if err := b.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			tt.broken(b)
			c := aCall(switchboard.Contract{}, "k-1")
			_, err := b.Commit(never).Call(t.Context(), c)
			own, _ := errors.AsType[*switchboard.Error](err)
			if own == nil || own.Code != tt.want || !own.Unsent {
				t.Errorf("it is refused with %v, want %s, and that it was not sent", err, tt.want)
			}
			_ = b.Close(t.Context())
			if got := sums(t, st); got != "" && got != "tenant/paid=0+0" {
				t.Errorf("its price: %s", got)
			}
			if m := c.Trail.Marks(); b.yes.used(t, "k-1") || m.Yes != nil || m.Held != 0 {
				t.Errorf("its yes is used, or its receipt says so: %+v", m)
			}
			_ = b.ledger.Close(t.Context())
		})
	}
}

// BU-01 of the security cases.
func TestBU01ManyCallersGetExactlyWhatIsLeft(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	b := newBench(t, store.NewMemory(), "", paid(1, 500))
	var made, refused atomic.Int64
	caller := b.Commit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		made.Add(1)
		return switchboard.Result{JSON: []byte(`{}`)}, nil
	}))
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 20 {
				if _, err := caller.Call(t.Context(), aCall(reads, "")); codeOf(err) == switchboard.CodeBudgetExceeded {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.close(t)
	if made.Load() != 500 || refused.Load() != 780 || sums(t, b.s) != "tenant/paid=500+0" {
		t.Errorf("%d calls were made and %d refused: %s", made.Load(), refused.Load(), sums(t, b.s))
	}
}

// AP-01 of the security cases, over three replicas.
func TestAP01OneYesMakesOneCall(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	each(t, func(t *testing.T, st store.Store) {
		var replicas []*bench
		for range 3 {
			replicas = append(replicas, newBench(t, st, "", paid(1, 1000)))
		}
		for round := range 5 {
			var made atomic.Int64
			request := fmt.Sprint("k-", round)
			next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
				made.Add(1)
				return switchboard.Result{JSON: []byte(`{}`)}, nil
			})
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					if _, err := replicas[i%3].Commit(next).Call(t.Context(), aCall(switchboard.Contract{}, request)); err != nil && codeOf(err) != "SB-APPR-003" {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if made.Load() != 1 {
				t.Errorf("round %d: %d calls", round, made.Load())
			}
		}
		for _, b := range replicas {
			b.close(t)
		}
		if got := sums(t, st); got != "tenant/paid=5+0" {
			t.Error(got)
		}
	})
}

// each runs a test with a file and a Redis.
func each(t *testing.T, test func(t *testing.T, st store.Store)) {
	t.Run("file", func(t *testing.T) {
		st := openFile(t, t.TempDir())
		defer func() { _ = st.Close() }()
		test(t, st)
	})
	t.Run("redis", func(t *testing.T) {
		redistest.Need(t)
		st, err := store.Open(t.Context(), redistest.Start(t).URL(), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		test(t, st)
	})
}

func TestARefusalSaysWhatIsLeftAndUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(time.Hour)
		p := paid(3_000_000, 10_000_000)
		p.window.End = end
		p.budgets = append(p.budgets, &switchboard.Budget{ID: "few", Owner: switchboard.OwnerTenant, Limit: 9, Calls: true})
		b := newBench(t, store.NewMemory(), "", p)
		call := func() error {
			_, err := b.Commit(answers(`{}`)).Call(t.Context(), aCall(reads, ""))
			return err
		}
		for range 3 {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}
		own, _ := errors.AsType[*switchboard.Error](call())
		data := map[string]string{}
		for _, m := range own.Data {
			data[m.Name] = string(m.JSON)
		}
		want := map[string]string{"error_code": `"BUDGET_EXCEEDED"`, "budget": `"paid"`, "left": `"1.00"`, "unit": `"EUR"`, "until": `"2000-01-01T01:00:00Z"`}
		if own.Code != switchboard.CodeBudgetExceeded || own.Retry() != switchboard.RetryLater || own.RetryAfter != time.Hour || !maps.Equal(data, want) ||
			own.Text != `the call was not made: it costs 3.00 EUR, and the budget "paid" has 1.00 EUR left until 2000-01-01T01:00:00Z` {
			t.Errorf("%+v\n%q", own, data)
		}
		p.budgets[0].Limit, p.budgets[1].Limit, p.window.End = 1<<50, 2, time.Time{} // lowered below what was settled
		own, _ = errors.AsType[*switchboard.Error](call())
		if own == nil || own.Text != `the call was not made: the budget "few" has no call left` || own.RetryAfter != 0 || string(own.Data[2].JSON) != `"0"` {
			t.Errorf("%+v", own)
		}
		b.close(t)
	})
}

// A notices counts warnings.
type notices struct {
	mu  sync.Mutex
	all []commit.BudgetWarning
	err error // none is kept
}

func (n *notices) BudgetWarning(_ context.Context, w *commit.BudgetWarning) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, *w)
	return n.err
}

func TestAWarningThatIsNotKeptIsNotMarkedAsSent(t *testing.T) {
	st := store.NewMemory()
	p := paid(1_000_000, 10_000_000)
	p.budgets[0].Warn = []int{10}
	told := notices{err: errors.New("the mailbox is full")}
	for range 3 { // each passes 10 %, and is released
		k := commit.New(commit.Options{Store: st, Charges: p, Intents: noIntents{}, Notifier: &told, Log: slog.New(slog.DiscardHandler)})
		_, _ = k.Commit(fails(&switchboard.Error{Code: switchboard.CodeNoneHealthy, Unsent: true})).Call(t.Context(), aCall(reads, ""))
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if len(told.all) == 2 {
			told.err = nil
		}
	}
	if len(told.all) != 3 {
		t.Errorf("it was tried %d times", len(told.all))
	}
	if all, err := st.List(t.Context(), "budgets-warned"); err != nil || len(all) != 1 {
		t.Errorf("%d warnings are marked as sent: %v", len(all), err)
	}
}

func TestReplicasWarnOnceInEachWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		p := paid(1_000_000, 10_000_000)
		p.budgets[0].Warn = []int{50, 80}
		var told notices
		var replicas []*commit.Committer
		for range 3 {
			replicas = append(replicas, commit.New(commit.Options{Store: st, Charges: p, Intents: noIntents{}, Notifier: &told, Log: slog.New(slog.DiscardHandler)}))
		}
		var left []string
		for i := range 10 {
			unsent := i == 4 // it passes 50 % for a moment, and so does the next one
			next := answers(`{}`)
			if unsent {
				next = fails(&switchboard.Error{Code: switchboard.CodeNoneHealthy, Unsent: true})
			}
			r, _ := replicas[i%3].Commit(next).Call(t.Context(), aCall(reads, ""))
			for _, n := range r.Budgets {
				left = append(left, n.Left+"/"+n.Limit)
			}
			time.Sleep(time.Second)
		}
		for _, k := range replicas {
			if err := k.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		var got []string
		for _, w := range told.all {
			got = append(got, fmt.Sprintf("%s %s %d%% %s/%s", w.Tenant, w.Budget, w.Percent, w.Used, w.Limit))
		}
		if want := []string{"acme tenant/paid 50% 5.00/10.00", "acme tenant/paid 80% 8.00/10.00"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if want := []string{"5.00/10.00", "4.00/10.00", "3.00/10.00", "2.00/10.00", "1.00/10.00"}; !slices.Equal(left, want) {
			t.Errorf("results say %q, want %q", left, want)
		}
	})
}

func TestSettlementsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, store.NewMemory(), "", paid(1, 1000))
		for range 100 {
			if _, err := b.Commit(answers(`{}`)).Call(t.Context(), aCall(reads, "")); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.s.settles.Load(); n != 0 {
			t.Errorf("a call waited for its settlement: %d", n)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if n := b.s.settles.Load(); n != 1 || sums(t, b.s) != "tenant/paid=100+0" {
			t.Errorf("%d settlements: %s", n, sums(t, b.s))
		}
		b.close(t)
	})
}

// BU-06 of the security cases: the store cannot be asked.
func TestBU06NothingIsSentWithoutTheStore(t *testing.T) {
	b := newBench(t, store.NewMemory(), "", paid(1, 1000))
	_ = b.s.Close()
	_, err := b.Commit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic("it was sent") })).Call(t.Context(), aCall(reads, ""))
	if codeOf(err) != switchboard.CodeStoreUnavailable {
		t.Error(err)
	}
	_ = b.Close(t.Context())
}

// A process is killed after a hold and before its warning: the next attempt of any process warns.
func TestAWarningThatAKillHasLostIsSentByTheNextAttempt(t *testing.T) {
	st := store.NewMemory()
	p := paid(1_000_000, 10_000_000)
	p.budgets[0].Warn = []int{10}
	var told notices
	for i, want := range []int{0, 1, 1} {
		notifier := commit.Notifier(&told)
		if i == 0 {
			notifier = &notices{err: errors.New("killed")}
		}
		k := commit.New(commit.Options{Store: st, Charges: p, Intents: noIntents{}, Notifier: notifier, Log: slog.New(slog.DiscardHandler)})
		for range 2 {
			if _, err := k.Commit(answers(`{}`)).Call(t.Context(), aCall(reads, "")); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if len(told.all) != want {
			t.Errorf("process %d: %d warnings, want %d", i, len(told.all), want)
		}
	}
}
