package receipt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/law"
)

var reads = switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true, Source: "operator", Trusted: true}}

func callOf(says switchboard.Contract) *switchboard.Call {
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey, Mode: switchboard.Assist},
		Task:      "work", Run: "00112233445566778899aabbccddeeff", Server: "notes", Method: wire.MethodToolsCall,
		Tool:   &switchboard.Tool{ID: switchboard.ToolID{Server: "notes", Name: "find"}, Contract: says},
		Target: "find", Params: []byte(`{"name":"find","arguments":{"q":"hunter2"}}`),
	}
}

// recorded returns next with its receipts, as calls meet them.
func recorded(b *receipt.Chain, next switchboard.Caller) switchboard.Caller {
	return b.RecordCalls(intended(b, next))
}

// intended returns next with its intents, as package commit writes them.
func intended(b *receipt.Chain, next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if receipt.Effect(c) {
			if _, err := b.WriteIntent(ctx, c, receipt.IntentTerms{}); err != nil {
				return switchboard.Result{}, err
			}
		}
		return next.Call(ctx, c)
	})
}

func answers(result string) switchboard.CallerFunc {
	return func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte(result)}, nil
	}
}

func fails(err error) switchboard.CallerFunc {
	return func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, err }
}

func TestAnIntentIsStoredBeforeACallWithAnEffectIsMade(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	trusted := func(f switchboard.Fact) switchboard.Fact { f.Trusted = true; return f }
	said := switchboard.Fact{Holds: true, Source: switchboard.FromHint}
	for name, tt := range map[string]struct {
		method string
		says   switchboard.Contract
		effect bool
	}{
		"a tool of which nothing is known":                 {wire.MethodToolsCall, switchboard.Contract{}, true},
		"one that only reads":                              {wire.MethodToolsCall, switchboard.Contract{ReadOnly: trusted(said)}, false},
		"one of which nobody trusted says so":              {wire.MethodToolsCall, switchboard.Contract{ReadOnly: said}, true},
		"one of which somebody says that it keeps a state": {wire.MethodToolsCall, switchboard.Contract{ReadOnly: trusted(said), Stateful: said}, true},
		"a resource":                 {wire.MethodResourcesRead, switchboard.Contract{}, false},
		"a prompt":                   {wire.MethodPromptsGet, switchboard.Contract{}, false},
		"a completion":               {wire.MethodComplete, switchboard.Contract{}, false},
		"a method that nobody knows": {"x/do", switchboard.Contract{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory()
				b := openBook(t, s, options())
				time.Sleep(time.Second)
				c := callOf(tt.says)
				c.Method = tt.method
				var before []string
				began := time.Now()
				_, err := recorded(b, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
					before = all(t, s)
					return switchboard.Result{JSON: []byte(`{}`)}, nil
				})).Call(t.Context(), c)
				if err != nil || time.Since(began) != 0 {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				if got := slices.Contains(before, "n1/3 intent find"); got != tt.effect {
					t.Errorf("when the call was made, the chain held %q", before)
				}
				shut(t, b)
				want := []string{"n1/3 call find ok"}
				if tt.effect {
					want = []string{"n1/3 intent find", "n1/4 call find ok n1/3"}
				}
				if got := all(t, s)[2:]; !slices.Equal(got[:len(got)-1], want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

func TestAReceiptSaysHowTheCallEnded(t *testing.T) {
	refused := func(code switchboard.Code, unsent, server bool) error {
		return &switchboard.Error{Code: code, Text: "no", Unsent: unsent, ServerFailed: server}
	}
	noted := []byte(`{"content":[],"isError":true}`)
	for name, tt := range map[string]struct {
		next switchboard.CallerFunc
		want string
	}{
		"a result":             {answers(`{"content":[{"isError":true}]}`), "ok"},
		"an error of the tool": {answers(string(noted)), "tool_error"},
		"one that was noted": {func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{JSON: noted, Outline: wire.OutlineOf(noted)}, nil
		}, "tool_error"},
		"none, though it says so":    {answers(`{"isError":false}`), "ok"},
		"an error of the server":     {fails(&switchboard.ServerError{Object: []byte(`{"code":1}`)}), "server_error"},
		"denied":                     {fails(refused(switchboard.CodeDenied, false, false)), "refused SB-POL-001"},
		"not sent":                   {fails(refused(switchboard.CodeNotExecuted, true, false)), "refused SB-EXEC-002"},
		"unreachable":                {fails(refused(switchboard.CodeServerUnreachable, true, true)), "refused SB-DISC-002"},
		"the server failed":          {fails(refused(switchboard.CodeServerFailed, false, true)), "failed SB-EXEC-001"},
		"the server's result is bad": {fails(refused(switchboard.CodeResultInvalid, false, false)), "failed SB-EXEC-003"},
		"nobody knows":               {fails(fmt.Errorf("call: %w", refused(switchboard.CodeOutcomeUnknown, false, true))), "unknown SB-EXEC-004"},
		"the client is gone":         {fails(context.Canceled), "unknown"},
		"a panic":                    {func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic("at the server") }, "unknown"},
	} {
		for _, says := range []switchboard.Contract{{}, reads} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := store.NewMemory()
					b := openBook(t, s, options())
					time.Sleep(time.Second)
					func() {
						defer func() {
							if p := recover(); (p != nil) != (name == "a panic") {
								t.Errorf("panic %v", p)
							}
						}()
						_, _ = recorded(b, tt.next).Call(t.Context(), callOf(says))
					}()
					shut(t, b)
					got := all(t, s)[2:]
					want := []string{"n1/3 call find " + tt.want}
					if says.Equal(&switchboard.Contract{}) {
						want = []string{"n1/3 intent find", "n1/4 call find " + tt.want + " n1/3"}
					}
					if got = got[:len(got)-1]; !slices.Equal(got, want) {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// That commit.Commit is below every refusal is tested where the chain is: see internal/app.
func TestACallThatIsRefusedAboveCommitHasNoIntent(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		denies := b.RecordCalls(fails(switchboard.Refuse(switchboard.CodeDenied, "no"))) // the intent is written below it
		if _, err := denies.Call(t.Context(), callOf(switchboard.Contract{})); err == nil {
			t.Error("it was not denied")
		}
		shut(t, b)
		got := entries(t, s, receipt.Query{Kind: receipt.Call})
		if len(got) != 1 || got[0].Receipt.Effect || got[0].Receipt.Of != "" || len(entries(t, s, receipt.Query{Kind: receipt.Intent})) != 0 {
			t.Errorf("got %q", all(t, s))
		}
	})
}

// The first tool fails, the second is passed over, and the third answers, with arguments of its own.
func TestEachAttemptWithAnEffectHasAnIntentThatTheReceiptOfTheCallNames(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		first := callOf(switchboard.Contract{})
		third := *callOf(switchboard.Contract{})
		third.Server, third.Attempt, third.Params = "other", 2, []byte(`{"name":"find","arguments":{"query":"hunter2"}}`)
		third.Tool = &switchboard.Tool{ID: switchboard.ToolID{Server: "other", Name: "find"}}
		_, err := b.RecordCalls(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			if _, err := intended(b, fails(&switchboard.Error{Code: switchboard.CodeServerFailed, ServerFailed: true})).Call(ctx, c); err == nil {
				t.Error("the first attempt has not failed")
			}
			tried := []switchboard.Attempt{{Tool: c.Tool.ID, Code: switchboard.CodeServerFailed, Sent: true}, {Tool: switchboard.ToolID{Server: "second", Name: "find"}}}
			c.Trail.Tried(tried)
			c.Trail.Ruled("sha256:r")
			third.Trail = c.Trail
			return intended(b, answers(`{}`)).Call(ctx, &third)
		})).Call(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		shut(t, b)
		want := []string{"n1/3 intent find", "n1/4 intent find", "n1/5 call find ok n1/4"}
		if got := all(t, s)[2:5]; !slices.Equal(got, want) {
			t.Fatalf("got %q", got)
		}
		var got [3]receipt.Receipt
		for i, e := range entries(t, s, receipt.Query{})[2:5] {
			got[i] = e.Receipt
		}
		tries := []receipt.FailedAttempt{{Tool: "notes/find", Code: switchboard.CodeServerFailed, Of: "n1/3", Sent: true}, {Tool: "second/find"}}
		if !slices.Equal(got[2].Tries, tries) || !got[2].Effect {
			t.Errorf("the receipt of the call: %+v", got[2])
		}
		if got[0].Attempt != 0 || got[1].Attempt != 2 || got[0].Server != "notes" || got[1].Server != "other" || len(got[0].Rulings) != 0 || len(got[1].Rulings) != 1 {
			t.Errorf("the intents: %+v, %+v", got[0], got[1])
		}
		if got[0].Arguments != got[2].Arguments || got[1].Arguments == got[0].Arguments || got[1].Arguments == "" {
			t.Errorf("digests of the arguments: %s, %s, and of the call %s", got[0].Arguments, got[1].Arguments, got[2].Arguments)
		}
	})
}

func TestAnIntentOfACallThatNoServerAnswersStandsWithItsAttempt(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		_, err := b.RecordCalls(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			var tried []switchboard.Attempt
			var err error
			for i, server := range []switchboard.ServerID{"notes", "denied", "other"} {
				own := *c
				own.Server, own.Attempt = server, i
				tool := switchboard.ToolID{Server: server, Name: "find"}
				if server != "denied" { // policy is above Commit
					_, err = intended(b, fails(&switchboard.Error{Code: switchboard.CodeServerFailed, ServerFailed: true})).Call(ctx, &own)
				}
				tried = append(tried, switchboard.Attempt{Tool: tool, Code: switchboard.CodeServerFailed, Sent: server != "denied"})
			}
			c.Trail.Tried(tried)
			return switchboard.Result{}, err
		})).Call(t.Context(), callOf(switchboard.Contract{}))
		if err == nil {
			t.Fatal("the call has not failed")
		}
		shut(t, b)
		got := entries(t, s, receipt.Query{Kind: receipt.Call})[0].Receipt
		want := []string{"n1/3", "", "n1/4"}
		var of []string
		for _, try := range got.Tries {
			of = append(of, try.Of)
		}
		if !slices.Equal(of, want) || got.Of != "" || !got.Effect || got.Outcome != receipt.Failed {
			t.Errorf("the intents of the attempts are %q, want %q; the receipt is %+v", of, want, got)
		}
	})
}

func TestACallWithAnEffectIsNotMadeWithoutARecord(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		s.fail(true, false)
		calls := 0
		caller := recorded(b, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			calls++
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		}))
		for range 2 {
			if _, err := caller.Call(t.Context(), callOf(switchboard.Contract{})); code(err) != switchboard.CodeReceipt {
				t.Errorf("got %v", err)
			}
		}
		if calls != 0 {
			t.Errorf("%d calls were made", calls)
		}
		if _, err := caller.Call(t.Context(), callOf(reads)); err != nil || calls != 1 {
			t.Errorf("one that reads: %v, %d calls", err, calls)
		}
		s.fail(false, false)
		time.Sleep(time.Minute)
		shut(t, b)
		good(t, s)
		want := []string{
			"n1/3 intent find", "n1/4 call find refused SB-RCPT-001 n1/3", "n1/5 call find refused SB-RCPT-001", "n1/6 call find ok",
		}
		if got := all(t, s)[2:6]; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestAReceiptNamesPrincipalAndToolButHoldsNoValues(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		b := openBook(t, s, options())
		c := callOf(reads)
		c.Trail = &switchboard.Trail{}
		c.Trail.Decided("sha256:d", "sha256:b")
		other := switchboard.ToolID{Server: "other", Name: "lookup"}
		_, err := recorded(b, switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			time.Sleep(1500 * time.Microsecond)
			c.Trail.Ruled("sha256:r")
			c.Trail.Gave(switchboard.GivenCache)
			c.Trail.Waited(500 * time.Microsecond)
			c.Trail.Tried([]switchboard.Attempt{{Tool: c.Tool.ID, Code: switchboard.CodeServerFailed, Sent: true}})
			return switchboard.Result{JSON: []byte(`{"content":"swordfish"}`), Moved: &switchboard.Moved{To: other}}, nil
		})).Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		prompt := *callOf(reads)
		prompt.Method, prompt.Tool, prompt.Target, prompt.Params = wire.MethodPromptsGet, nil, "greet", []byte(`{"name":"greet"}`)
		resource := prompt
		resource.Method, resource.Target, resource.Params = wire.MethodResourcesRead, "https://u:hunter2@x/", []byte(`{"uri":"https://u:hunter2@x/"}`)
		for _, c := range []*switchboard.Call{&prompt, &resource} {
			if _, err := recorded(b, answers(`{}`)).Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		shut(t, b)
		var got []receipt.ChainEntry
		for _, e := range entries(t, s, receipt.Query{Kind: receipt.Call}) {
			if bytes.Contains(e.Raw, []byte("hunter2")) || bytes.Contains(e.Raw, []byte("swordfish")) {
				t.Errorf("%s", e.Raw)
			}
			got = append(got, e)
		}
		r := got[0].Receipt
		for _, digest := range []*string{&r.Arguments, &r.Result} {
			if !strings.HasPrefix(*digest, "hmac-sha256:") {
				t.Errorf("digest %q", *digest)
			}
			*digest = ""
		}
		r.Time = time.Time{}
		want := receipt.Receipt{
			V: 1, Kind: receipt.Call, Tenant: "acme", Principal: receipt.Subject{ID: "ci", Auth: switchboard.AuthAPIKey, Mode: switchboard.Assist},
			Task: "work", Run: "00112233445566778899aabbccddeeff", Method: wire.MethodToolsCall, Server: "notes", Tool: "find",
			ServedBy: "other/lookup", Tries: []receipt.FailedAttempt{{Tool: "notes/find", Code: switchboard.CodeServerFailed, Sent: true}},
			Decision: "sha256:d", Basis: "sha256:b", Rulings: []switchboard.Digest{"sha256:r"},
			Outcome: receipt.OK, Given: switchboard.GivenCache, Took: receipt.CallTime{Total: 1500, Waiting: 500},
		}
		if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %+v\nwant %+v", r, want)
		}
		if got[1].Receipt.Tool != "greet" || got[2].Receipt.Tool != "" {
			t.Errorf("a prompt is %q, a resource %q", got[1].Receipt.Tool, got[2].Receipt.Tool)
		}
	})
}

// Whatever the store does, each call has one receipt of its outcome, and calls with an effect were
// made only if their intent is stored.
func TestEachCallHasOneOutcomeWhateverTheStoreDoes(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory(), slow: time.Millisecond}
		b := openBook(t, s, options())
		var made, asked, ended atomic.Int64
		caller := recorded(b, switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
			made.Add(1)
			time.Sleep(3 * time.Millisecond)
			return switchboard.Result{JSON: []byte(`{}`)}, ctx.Err()
		}))
		var clients sync.WaitGroup
		stop := make(chan struct{})
		clients.Go(func() { // the store fails at times, and sometimes stores what it reports as failed
			for i := 0; ; i++ {
				select {
				case <-stop:
					s.fail(false, false)
					return
				case <-time.After(7 * time.Millisecond):
					s.fail(i%3 == 0, i%2 == 0)
				}
			}
		})
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for j := range 100 {
					after := time.Duration(j%7+1) * time.Millisecond
					ctx, cancel := context.WithCancel(t.Context()) // a caller without a deadline may write
					if time.AfterFunc(after, cancel); j%2 == 0 {
						ctx, cancel = context.WithTimeout(ctx, after)
					}
					says := switchboard.Contract{}
					if j%3 == 0 {
						says = reads
					}
					asked.Add(1)
					_, _ = caller.Call(ctx, callOf(says))
					cancel()
					time.Sleep(time.Duration(i+j) * 100 * time.Microsecond)
				}
			})
		}
		callers.Wait()
		close(stop)
		clients.Wait()
		time.Sleep(5 * time.Second)
		if st := b.Status(); st.Lost != 0 || st.Waiting != 0 {
			t.Errorf("got %+v", st)
		}
		shut(t, b)
		good(t, s)
		intents := map[string]int{}
		done := int64(0)
		for _, e := range entries(t, s, receipt.Query{}) {
			switch r := &e.Receipt; r.Kind {
			case receipt.Intent:
				intents[e.ID()] = 0
			case receipt.Call:
				ended.Add(1)
				if r.Of != "" {
					intents[r.Of]++
				}
				if r.Outcome != receipt.Refused {
					done++
				}
			}
		}
		for id, n := range intents {
			if n != 1 {
				t.Errorf("%d receipts of the outcome of %s", n, id)
			}
		}
		if ended.Load() != asked.Load() || done != made.Load() {
			t.Errorf("%d calls asked for, %d receipts; %d made, %d of them recorded as such", asked.Load(), ended.Load(), made.Load(), done)
		}
		if len(intents) < 50 || made.Load() == asked.Load() {
			t.Errorf("%d intents, %d of %d calls made: the test shows nothing", len(intents), made.Load(), asked.Load())
		}
	})
}

func TestAPanicIsRecordedAndPassedOn(t *testing.T) {
	b := openBook(t, store.NewMemory(), options())
	defer func() {
		if p := recover(); p == nil || !errors.Is(p.(error), errOdd) {
			t.Errorf("got %v", p)
		}
	}()
	_, _ = recorded(b, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic(errOdd) })).Call(t.Context(), callOf(reads))
}

var errOdd = errors.New("odd")

// A refusal names its receipt. A call that only reads does not wait for the store, which takes an
// hour here.
func TestARefusalNamesItsReceiptBeforeThatIsWritten(t *testing.T) {
	for name, says := range map[string]switchboard.Contract{"a read": reads, "a call with an effect": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &breaking{Store: store.NewMemory()}
				o := options()
				o.Timeout = 2 * time.Hour
				b := openBook(t, s, o)
				if says.ReadOnly.Holds {
					s.slow = time.Hour
				}
				began := time.Now()
				shared := switchboard.Refuse(switchboard.CodeDenied, "no")
				ids := map[string]bool{}
				for range 3 { // at the same time
					_, err := recorded(b, fails(fmt.Errorf("outside: %w", shared))).Call(t.Context(), callOf(says))
					own, ok := errors.AsType[*switchboard.Error](err)
					if !ok || own.Code != switchboard.CodeDenied || own.Receipt == "" || ids[own.Receipt] {
						t.Fatalf("%v: %+v", err, own)
					}
					ids[own.Receipt] = true
				}
				if shared.Receipt != "" || time.Since(began) != 0 {
					t.Errorf("%+v, after %s", shared, time.Since(began))
				}
				if _, err := receipt.Find(t.Context(), s, slices.Collect(maps.Keys(ids))[0]); says.ReadOnly.Holds && !errors.Is(err, receipt.ErrNotFound) {
					t.Errorf("before the receipt is written: %v", err)
				}
				shut(t, b)
				for id := range ids {
					if e, err := receipt.Find(t.Context(), s, id); err != nil || e.Receipt.Kind != receipt.Call || e.Receipt.Code != switchboard.CodeDenied {
						t.Errorf("%s: %v %+v", id, err, e.Receipt)
					}
				}
				node, _, when, _ := receipt.ParseID(slices.Collect(maps.Keys(ids))[0])
				for _, none := range []time.Time{{}, when.Add(-time.Microsecond * 10), when.Add(time.Hour * 10)} {
					if _, err := receipt.Find(t.Context(), s, receipt.TimeID(node, none)); !errors.Is(err, receipt.ErrNotFound) {
						t.Errorf("%s: %v", none, err)
					}
				}
			})
		})
	}
}

// A lost receipt has no id, so that its id cannot name another receipt later.
func TestAReceiptThatIsLostHasNoID(t *testing.T) {
	b := openBook(t, store.NewMemory(), options())
	if id := b.Add(&receipt.Receipt{Kind: receipt.Admin}); id == "" {
		t.Error("a written receipt has no id")
	}
	shut(t, b)
	if id := b.Add(&receipt.Receipt{Kind: receipt.Admin}); id != "" {
		t.Errorf("%s", id)
	}
}
