package approval_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A plainSealer only marks what it seals.
type plainSealer struct{}

func (plainSealer) Seal(purpose, name string, text []byte) []byte {
	return []byte("sealed " + purpose + name + "\x00" + string(text))
}

func (plainSealer) Unseal(purpose, name string, sealed []byte) ([]byte, bool) {
	text, ok := strings.CutPrefix(string(sealed), "sealed "+purpose+name+"\x00")
	return []byte(text), ok
}

var approver = &switchboard.Officer{ID: "boss", Auth: switchboard.AuthPersonKey, Credential: "boss's", Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeApprover}}}

// newKeeper returns a keeper over s with the usual options, changed by change.
func newKeeper(t testing.TB, s approval.Store, change func(*approval.Options)) *approval.Keeper {
	t.Helper()
	o := approval.Options{
		Store: s, Sealer: plainSealer{}, Key: switchboard.NewSecret("the key of the bindings"),
		Arguments: func(c *switchboard.Call) string { return string(c.Params) },
		Effect:    func(*switchboard.Call) bool { return true },
		Settings:  func(switchboard.TenantID) switchboard.ApprovalSettings { return switchboard.ApprovalSettings{} },
		Rules:     func(switchboard.TenantID) approval.DecideRules { return approval.DecideRules{} },
		Officer:   func(switchboard.TenantID, *approval.Vote) (switchboard.Officer, error) { return *approver, nil },
		Describe:  func(c *switchboard.Call) (string, bool) { return string(c.Params), true },
		Log:       slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	k := approval.New(o)
	t.Cleanup(k.Close)
	return k
}

// callOf returns a call of a tool that needs a person, with these arguments.
func callOf(arguments string) *switchboard.Call {
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey}, Task: "triage", Method: "tools/call", Server: "mail",
		Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "mail", Name: "send"}, Digest: "sha256:1", Capabilities: []switchboard.Capability{
			{Verb: "write", Resource: "mail", Constraints: []switchboard.Constraint{switchboard.HumanInTheLoop}, Source: "overlay"},
		}},
		Params: []byte(`{"arguments":` + arguments + `}`), Trail: &switchboard.Trail{},
	}
}

// A target counts the calls that reach it. It uses their yes, as package commit does.
type target struct {
	keeper *approval.Keeper
	made   atomic.Int64
}

// intents counts the intents of all targets: two attempts never have the same.
var intents atomic.Int64

func (s *target) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	if c.Yes != nil {
		if err := s.keeper.Use(ctx, c, fmt.Sprint("intent ", intents.Add(1)), nil); err != nil {
			return switchboard.Result{}, err
		}
	}
	s.made.Add(1)
	return switchboard.Result{JSON: []byte(`{}`)}, nil
}

func same(next switchboard.Caller) switchboard.Caller { return next }

func codeOf(err error) switchboard.Code {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return e.Code
	}
	return ""
}

// pendingOf returns the id of the only pending request of acme.
func pendingOf(t testing.TB, k *approval.Keeper) string {
	t.Helper()
	all, err := k.List(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range all {
		if r.StateAt(time.Now()) == approval.Pending {
			ids = append(ids, r.ID())
		}
	}
	if len(ids) != 1 {
		t.Fatalf("pending: %q", ids)
	}
	return ids[0]
}

func decide(t testing.TB, k *approval.Keeper, id string, s approval.Saying) {
	t.Helper()
	if _, err := k.Decide(t.Context(), approver, "acme", id, s); err != nil {
		t.Fatal(err)
	}
}

func TestACallWaitsForAPersonAndIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, nil)
		to := &target{keeper: k}
		caller := k.Approve(same, to)
		var told []string
		c := callOf(`{"to":"ops"}`)
		c.Params = []byte(`{"arguments":{"to":"ops"},"_meta":{"progressToken":7}}`)
		c.Notify = func(n switchboard.Notification) { told = append(told, string(n.Params)) }
		began := time.Now()
		go func() {
			time.Sleep(12 * time.Second)
			decide(t, k, pendingOf(t, k), approval.Saying{Yes: true})
		}()
		if _, err := caller.Call(t.Context(), c); err != nil || to.made.Load() != 1 {
			t.Fatalf("%v, made %d times", err, to.made.Load())
		}
		if waited := time.Since(began); waited != 12*time.Second {
			t.Errorf("it waited for %v", waited)
		}
		if len(told) != 2 || !strings.HasPrefix(told[0], `{"progressToken":7,"progress":0.000001,"message":"waiting for a person to approve request `) {
			t.Errorf("progress: %q", told)
		}
		// The yes was for one call.
		if _, err := caller.Call(t.Context(), c); codeOf(err) != switchboard.CodeApprovalPending || to.made.Load() != 1 {
			t.Errorf("the second call: %v, made %d", err, to.made.Load())
		}
		if id := pendingOf(t, k); !strings.HasSuffix(id, "-2") {
			t.Errorf("its request is %s", id)
		}
		if _, err := caller.Call(t.Context(), callOf(`{"to":"all"}`)); codeOf(err) != switchboard.CodeApprovalPending {
			t.Errorf("other arguments: %v", err)
		}
	})
}

func TestTheAnswerOfAPersonReachesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, nil)
		to := &target{keeper: k}
		caller := k.Approve(same, to)
		_, err := caller.Call(t.Context(), callOf(`{}`))
		e, ok := errors.AsType[*switchboard.Error](err)
		id := pendingOf(t, k)
		if !ok || e.Code != switchboard.CodeApprovalPending || !e.Unsent || !strings.Contains(e.Text, id) || !strings.Contains(e.Hint, `switchboard_resume {"request":"`+id+`"}`) || !strings.Contains(e.Text, "An approver of tenant acme") {
			t.Fatalf("it is told: %v (%s)", err, e.Hint)
		}
		decide(t, k, id, approval.Saying{Note: `not to "all"`})
		for range 1000 {
			_, err = caller.Call(t.Context(), callOf(`{}`))
			if codeOf(err) != switchboard.CodeApprovalRefused || !strings.Contains(err.Error(), `says: "not to \"all\""`) {
				t.Fatalf("refused: %v", err)
			}
		}
		if all, _ := k.List(t.Context(), "acme"); len(all) != 1 {
			t.Errorf("%d requests", len(all))
		}
		time.Sleep(approval.DefaultUntil)
		if _, err = caller.Call(t.Context(), callOf(`{}`)); codeOf(err) != switchboard.CodeApprovalPending {
			t.Fatalf("when the refusal is over: %v", err)
		}
		r, err := k.Find(t.Context(), "acme", pendingOf(t, k))
		if err != nil || len(r.Before) != 1 || r.Before[0].State != approval.Refused || r.Before[0].Note != `not to "all"` {
			t.Errorf("it shows of the first: %+v, %v", r.Before, err)
		}
		decide(t, k, r.ID(), approval.Saying{Yes: true})
		time.Sleep(approval.DefaultUntil)
		if _, err = caller.Call(t.Context(), callOf(`{}`)); codeOf(err) != switchboard.CodeApprovalPending || to.made.Load() != 0 {
			t.Errorf("a yes that has expired: %v", err)
		}
	})
}

func TestAnotherBindingIsAnotherRequest(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	k := newKeeper(t, s, nil)
	seen := map[string]string{}
	for what, change := range map[string]func(*approval.Request){
		"nothing": func(*approval.Request) {}, "principal": func(r *approval.Request) { r.Asker.Principal = "cd" }, "tenant": func(r *approval.Request) { r.Asker.Tenant = "acm" },
		"task": func(r *approval.Request) { r.Asker.Task = "x" }, "server": func(r *approval.Request) { r.Target.Server = "x" }, "tool": func(r *approval.Request) { r.Target.Tool = "x" },
		"definition": func(r *approval.Request) { r.Target.Definition = "x" }, "arguments": func(r *approval.Request) { r.Target.Arguments = "x" },
		"rule":   func(r *approval.Request) { r.Terms.Rules = []switchboard.AskingRule{{Layer: "operator", Digest: "x"}} },
		"who":    func(r *approval.Request) { r.Terms.Who = []string{"ann"} },
		"quorum": func(r *approval.Request) { r.Terms.Quorum = 2 },
		"parts":  func(r *approval.Request) { r.Asker.Principal, r.Asker.Task = "cit", "riage" },
	} {
		r := &approval.Request{Kind: approval.ForCall, Asker: approval.Asker{Tenant: "acme", Principal: "ci", Task: "triage"}, Target: approval.Target{Server: "mail", Tool: "send", Arguments: "a"}}
		change(r)
		b := k.Bind(r)
		if other, ok := seen[b]; ok {
			t.Errorf("%s and %s have one binding", what, other)
		}
		seen[b] = what
	}
	if a := (&approval.Request{Asker: approval.Asker{Run: "x"}}); k.Bind(a) != k.Bind(&approval.Request{}) {
		t.Error("the run changes the binding")
	}
}

// AP-07
func TestTooManyRequestsAreRefused(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	keepers := []*approval.Keeper{newKeeper(t, s, nil), newKeeper(t, s, nil)} // two replicas
	ask := func(i int, principal string) error {
		q := &approval.Request{
			Kind: approval.ForCall, Until: time.Now().Add(time.Hour),
			Asker: approval.Asker{Tenant: "acme", Principal: principal}, Target: approval.Target{Method: "tools/call", Server: "mail", Tool: "send", Arguments: fmt.Sprint(i)},
		}
		_, _, err := keepers[i%2].Ask(t.Context(), q, approval.KeptCall{Params: []byte(`{}`)})
		return err
	}
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 100 {
				switch err := ask(worker*100+i, "ci"); codeOf(err) {
				case "":
					made.Add(1)
				case switchboard.CodeTooManyAsked:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() != approval.MaxOfPrincipal || refused.Load() != 400-approval.MaxOfPrincipal {
		t.Errorf("one principal made %d requests, and %d were refused", made.Load(), refused.Load())
	}
	for p := range 12 {
		for i := range approval.MaxOfPrincipal {
			if err := ask(i, fmt.Sprint("other ", p)); err == nil {
				made.Add(1)
			}
		}
	}
	if made.Load() != approval.MaxOfTenant {
		t.Errorf("a tenant made %d requests", made.Load())
	}
	began := time.Now()
	all, err := keepers[0].List(t.Context(), "acme")
	if err != nil || len(all) != approval.MaxOfTenant {
		t.Errorf("%d requests are listed: %v", len(all), err)
	}
	t.Logf("a list of %d takes %v", len(all), time.Since(began))
}

// AP-05
func TestAP05DecideWithdrawAndUseHaveOneEnd(t *testing.T) {
	for range 50 {
		s := store.NewMemory()
		keepers := []*approval.Keeper{newKeeper(t, s, nil), newKeeper(t, s, nil), newKeeper(t, s, nil)}
		c := callOf(`{}`)
		ctx, cancel := context.WithCancel(t.Context())
		to := &target{keeper: keepers[0]}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = keepers[0].Approve(same, to).Call(ctx, c) })
		var id string
		for id == "" {
			all, err := keepers[1].List(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			if len(all) == 1 {
				id = all[0].ID()
			}
		}
		var ends sync.Map
		step := func(what string, do func(k *approval.Keeper) (*approval.Request, error)) {
			for i := range keepers {
				wg.Go(func() {
					r, err := do(keepers[i])
					if err == nil {
						ends.Store(fmt.Sprint(what, i), r.StateAt(time.Now()))
					} else if _, late := errors.AsType[*approval.OutrunError](err); !late {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
		}
		step("approve", func(k *approval.Keeper) (*approval.Request, error) {
			return k.Decide(t.Context(), approver, "acme", id, approval.Saying{Yes: true})
		})
		step("refuse", func(k *approval.Keeper) (*approval.Request, error) {
			return k.Decide(t.Context(), approver, "acme", id, approval.Saying{})
		})
		step("withdraw", func(k *approval.Keeper) (*approval.Request, error) {
			return k.Withdraw(t.Context(), &c.Principal, c.Task, id)
		})
		wg.Wait()
		cancel()
		firsts := 0
		ends.Range(func(any, any) bool { firsts++; return true })
		r, err := keepers[2].Find(t.Context(), "acme", id)
		if err != nil || firsts != 1 {
			t.Fatalf("%d steps were first: %v", firsts, err)
		}
		if made := to.made.Load(); (made == 1) != (r.Stored == approval.Used) || made > 1 {
			t.Fatalf("the call was made %d times, and the request is %s", made, r.Stored)
		}
		_ = s.Close()
	}
}

// AP-01
func TestAP01OneYesIsOneCallOverReplicas(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	var keepers []*approval.Keeper
	for range 3 {
		keepers = append(keepers, newKeeper(t, s, nil))
	}
	first := &target{keeper: keepers[0]}
	short := func(switchboard.TenantID) switchboard.ApprovalSettings {
		return switchboard.ApprovalSettings{Wait: time.Millisecond}
	}
	asker := newKeeper(t, s, func(o *approval.Options) { o.Settings = short })
	if _, err := asker.Approve(same, first).Call(t.Context(), callOf(`{}`)); codeOf(err) != switchboard.CodeApprovalPending {
		t.Fatal(err)
	}
	decide(t, keepers[1], pendingOf(t, keepers[1]), approval.Saying{Yes: true})
	var wg sync.WaitGroup
	var late atomic.Int64
	targets := []*target{{keeper: keepers[0]}, {keeper: keepers[1]}, {keeper: keepers[2]}}
	start := make(chan struct{})
	for i := range 99 {
		k, to := keepers[i%3], targets[i%3]
		caller := k.Require(to)
		wg.Go(func() {
			<-start
			switch _, err := caller.Call(t.Context(), callOf(`{}`)); codeOf(err) {
			case "":
			case switchboard.CodeApprovalGone, switchboard.CodeApprovalPending:
				late.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if made := targets[0].made.Load() + targets[1].made.Load() + targets[2].made.Load(); made != 1 || late.Load() != 98 {
		t.Errorf("made %d times, %d too late", made, late.Load())
	}
}

func TestAYesIsGivenBackOnlyByTheCallThatUsedIt(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	for _, size := range []int{10, 5000} { // within the request's value, and beside it
		k := newKeeper(t, s, func(o *approval.Options) {
			o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
				return switchboard.ApprovalSettings{Wait: time.Millisecond}
			}
		})
		c := callOf(`{"x":"` + strings.Repeat("x", size) + `"}`)
		var passed *switchboard.Call
		caller := k.Approve(same, switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			passed = c
			return switchboard.Result{}, nil
		}))
		_, _ = caller.Call(t.Context(), c)
		id := pendingOf(t, k)
		if _, kept, err := k.Resume(t.Context(), &c.Principal, c.Task, id); err != nil || string(kept.Params) != string(c.Params) {
			t.Fatalf("kept: %q, %v", kept.Params, err)
		}
		decide(t, k, id, approval.Saying{Yes: true})
		if _, err := caller.Call(t.Context(), c); err != nil || passed == nil {
			t.Fatal(err)
		}
		if err := k.Use(t.Context(), passed, "one", nil); err != nil {
			t.Fatal(err)
		}
		other := *passed
		yes := *passed.Yes
		other.Yes = &yes
		if err := k.Use(t.Context(), &other, "two", nil); codeOf(err) != switchboard.CodeApprovalGone {
			t.Errorf("used twice: %v", err)
		}
		if _, _, err := k.Resume(t.Context(), &c.Principal, c.Task, id); codeOf(err) != switchboard.CodeApprovalGone {
			t.Errorf("the arguments are still kept: %v", err)
		}
		if err := k.GiveBack(t.Context(), passed); err != nil {
			t.Error(err)
		}
		if _, kept, err := k.Resume(t.Context(), &c.Principal, c.Task, id); err != nil || string(kept.Params) != string(c.Params) {
			t.Errorf("given back: %q, %v", kept.Params, err)
		}
		if err := k.Replay(t.Context(), "acme", id, "one"); err != nil {
			t.Error(err)
		}
		passed = nil
		if _, err := caller.Call(t.Context(), c); codeOf(err) != switchboard.CodeApprovalPending || passed != nil {
			t.Errorf("a use that was replayed: %v", err)
		}
		if _, err := k.Withdraw(t.Context(), &c.Principal, c.Task, pendingOf(t, k)); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsCheckedWhenTheYesIsUsed(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	var role, veto error
	k := newKeeper(t, s, func(o *approval.Options) {
		o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
			return switchboard.ApprovalSettings{Wait: time.Millisecond}
		}
		o.Officer = func(switchboard.TenantID, *approval.Vote) (switchboard.Officer, error) { return *approver, role }
		o.Veto = func(_ context.Context, _ *switchboard.Officer, _ *approval.Request, c *switchboard.Call, params []byte) error {
			if string(params) != `{"arguments":{}}` {
				t.Errorf("judged: %s", params)
			}
			return veto
		}
	})
	to := &target{keeper: k}
	caller := k.Approve(same, to)
	_, _ = caller.Call(t.Context(), callOf(`{}`))
	id := pendingOf(t, k)
	veto = switchboard.Refuse(switchboard.CodeDenied, "no")
	if _, err := k.Decide(t.Context(), approver, "acme", id, approval.Saying{Yes: true}); codeOf(err) != switchboard.CodeDenied {
		t.Errorf("policy vetoes: %v", err)
	}
	veto = nil
	decide(t, k, id, approval.Saying{Yes: true})
	refused := func(what string) {
		t.Helper()
		if _, err := caller.Call(t.Context(), callOf(`{}`)); codeOf(err) != switchboard.CodeApprovalGone || to.made.Load() != 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	role = errors.New("the key is revoked")
	refused("the role is lost")
	role, veto = nil, switchboard.Refuse(switchboard.CodePolicyFailed, "no")
	refused("policy vetoes after the yes")
	veto = nil
	other := callOf(`{}`)
	other.Tool.Digest = "sha256:2"
	if _, err := caller.Call(t.Context(), other); codeOf(err) != switchboard.CodeApprovalPending || to.made.Load() != 0 {
		t.Errorf("another definition: %v", err)
	}
	if _, err := caller.Call(t.Context(), callOf(`{}`)); err != nil || to.made.Load() != 1 {
		t.Errorf("at last: %v", err)
	}
}

func TestACallThatWaitedForAYesThatAnotherUsedAsksNobodyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, nil)
		to := &target{keeper: k}
		late := func(next switchboard.Caller) switchboard.Caller { // the second call is slower after it has waited
			return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
				time.Sleep(time.Second)
				return next.Call(ctx, c)
			})
		}
		var first, second error
		var wg sync.WaitGroup
		wg.Go(func() { _, first = k.Approve(same, to).Call(t.Context(), callOf(`{}`)) })
		wg.Go(func() { _, second = k.Approve(late, to).Call(t.Context(), callOf(`{}`)) })
		time.Sleep(time.Second) // if both have asked at once, one looks again a moment later
		synctest.Wait()
		decide(t, k, pendingOf(t, k), approval.Saying{Yes: true})
		wg.Wait()
		all, err := k.List(t.Context(), "acme")
		if err != nil || len(all) != 1 || all[0].Number != 1 {
			t.Errorf("a person is asked again: %d requests, number %d, %v", len(all), all[0].Number, err)
		}
		if first != nil || codeOf(second) != switchboard.CodeApprovalGone || !strings.Contains(second.Error(), "used already") || to.made.Load() != 1 {
			t.Errorf("%v, %v, made %d", first, second, to.made.Load())
		}
	})
}

func TestAnEquivalentAsksNobody(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	k := newKeeper(t, s, nil)
	c := callOf(`{}`)
	c.Attempt = 1
	if _, err := k.Approve(same, &target{keeper: k}).Call(t.Context(), c); codeOf(err) != switchboard.CodeNoneHealthy {
		t.Error(err)
	}
	if all, _ := k.List(t.Context(), "acme"); len(all) != 0 {
		t.Errorf("it asked: %v", all)
	}
}

func TestOnlyTwentyCallsOfAPrincipalWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, nil)
		caller := k.Approve(same, &target{keeper: k})
		var tooMany, pending atomic.Int64
		for range 30 {
			go func() {
				switch _, err := caller.Call(t.Context(), callOf(`{}`)); codeOf(err) {
				case switchboard.CodeTooManyAsked:
					tooMany.Add(1)
				case switchboard.CodeApprovalPending:
					pending.Add(1)
				}
			}()
		}
		time.Sleep(time.Second) // those that have asked at once look again a moment later
		synctest.Wait()
		if tooMany.Load() != 10 {
			t.Errorf("%d were refused at once", tooMany.Load())
		}
		time.Sleep(approval.DefaultWait)
		synctest.Wait()
		if pending.Load() != 20 {
			t.Errorf("%d waited", pending.Load())
		}
	})
}

func TestAFormDecidesOnlyWhereTheOperatorWantsIt(t *testing.T) {
	for _, tt := range []struct {
		name, answer, capabilities string
		settings                   switchboard.ApprovalSettings
		who                        []string
		asks                       bool
		want                       switchboard.Code
	}{
		{"approved", `{"action":"accept","content":{"decision":"approve"}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, true, ""},
		{"refused", `{"action":"accept","content":{"decision":"refuse","note":"no"}}`, `{"elicitation":{"form":{}}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, true, switchboard.CodeApprovalRefused},
		{"AP-09: an empty form", `{"action":"accept","content":{}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, true, switchboard.CodeApprovalPending},
		{"no content", `{"action":"accept"}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, true, switchboard.CodeApprovalPending},
		{"yes in another spelling", `{"action":"accept","content":{"decision":true}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, true, switchboard.CodeApprovalPending},
		{"declined", `{"action":"decline","content":{"decision":"approve"}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, true, switchboard.CodeApprovalPending},
		{"without self", `{"action":"accept","content":{"decision":"approve"}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{AskClient: true}, nil, false, switchboard.CodeApprovalPending},
		{"without ask_client", `{"action":"accept","content":{"decision":"approve"}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true}, nil, false, switchboard.CodeApprovalPending},
		{"a rule names who", `{"action":"accept","content":{"decision":"approve"}}`, `{"elicitation":{}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, []string{"ann"}, false, switchboard.CodeApprovalPending},
		{"only URLs", `{"action":"accept","content":{"decision":"approve"}}`, `{"elicitation":{"url":{}}}`, switchboard.ApprovalSettings{Self: true, AskClient: true}, nil, false, switchboard.CodeApprovalPending},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory()
				defer func() { _ = s.Close() }()
				k := newKeeper(t, s, func(o *approval.Options) {
					o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings { return tt.settings }
				})
				to := &target{keeper: k}
				c := callOf(`{"to":"ops"}`)
				if tt.who != nil {
					c.Obligations.Approval = &switchboard.Approval{Who: tt.who}
				}
				asked := false
				c.Client = switchboard.Client{Capabilities: []byte(tt.capabilities), Ask: func(_ context.Context, method string, params []byte) ([]byte, error) {
					asked = true
					if method != "elicitation/create" || !strings.Contains(string(params), `{\"to\":\"ops\"}`) || !strings.Contains(string(params), `"required":["decision"]`) {
						t.Errorf("asked: %s %s", method, params)
					}
					return []byte(tt.answer), nil
				}}
				_, err := k.Approve(same, to).Call(t.Context(), c)
				if codeOf(err) != tt.want || asked != tt.asks || (to.made.Load() == 1) != (tt.want == "") {
					t.Errorf("%v; asked %v, made %d", err, asked, to.made.Load())
				}
			})
		})
	}
}

func TestAnApproverWithTheIDOfTheFormIsAPerson(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := store.NewMemory()
		k := newKeeper(t, s, func(o *approval.Options) {
			o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
				return switchboard.ApprovalSettings{Wait: time.Millisecond, Self: lost, AskClient: lost} // what a form needs
			}
			o.Officer = func(switchboard.TenantID, *approval.Vote) (switchboard.Officer, error) {
				if lost {
					return switchboard.Officer{}, errors.New("the office is lost")
				}
				return *approver, nil
			}
		})
		to := &target{keeper: k}
		caller := k.Approve(same, to)
		_, _ = caller.Call(t.Context(), callOf(`{}`))
		person := *approver
		person.ID = approval.ByClient
		if _, err := k.Decide(t.Context(), &person, "acme", pendingOf(t, k), approval.Saying{Yes: true}); err != nil {
			t.Fatal(err)
		}
		_, err := caller.Call(t.Context(), callOf(`{}`))
		if (to.made.Load() == 0) != lost || lost && codeOf(err) != switchboard.CodeApprovalGone {
			t.Errorf("with the office lost %v: %v, made %d", lost, err, to.made.Load())
		}
		_ = s.Close()
	}
}

// Agents without a person answer by themselves that they show no page. The call waits as long as any other.
func TestACallWaitsForItsApproverAfterItsClientDeclines(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, answer := range []string{"decline", "cancel"} {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory()
				defer func() { _ = s.Close() }()
				k := newKeeper(t, s, func(o *approval.Options) {
					o.Address = func(id string) string { return "https://admin.example/approvals/" + id }
				})
				to := &target{keeper: k}
				ask := func() error {
					c := callOf(`{}`)
					c.Client = switchboard.Client{TakesQuestions: modern, Capabilities: []byte(`{"elicitation":{"url":{}}}`), Ask: func(context.Context, string, []byte) ([]byte, error) {
						return []byte(`{"action":"` + answer + `"}`), nil
					}}
					_, err := k.Approve(same, to).Call(t.Context(), c)
					return err
				}
				began := time.Now()
				if err := ask(); codeOf(err) != switchboard.CodeApprovalPending || time.Since(began) != approval.DefaultWait {
					t.Errorf("modern %t, %s: %v after %v", modern, answer, err, time.Since(began))
				}
				began = time.Now()
				time.AfterFunc(5*time.Second, func() {
					if _, err := k.Decide(t.Context(), approver, "acme", pendingOf(t, k), approval.Saying{Yes: true}); err != nil {
						t.Error(err)
					}
				})
				if err := ask(); err != nil || time.Since(began) != 5*time.Second || to.made.Load() != 1 {
					t.Errorf("modern %t, %s, approved after 5 seconds: %v after %v, made %d", modern, answer, err, time.Since(began), to.made.Load())
				}
			})
		}
	}
}

func TestAURLIsShownAndDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, modern := range []bool{false, true} {
			s := store.NewMemory()
			k := newKeeper(t, s, func(o *approval.Options) {
				o.Address = func(id string) string { return "https://admin.example/approvals/" + id }
			})
			to := &target{keeper: k}
			c := callOf(`{}`)
			c.Client = switchboard.Client{TakesQuestions: modern, Capabilities: []byte(`{"elicitation":{"url":{}}}`), Ask: func(_ context.Context, _ string, params []byte) ([]byte, error) {
				if !strings.Contains(string(params), `"url":"https://admin.example/approvals/`+pendingOf(t, k)+`"`) || strings.Contains(string(params), "elicitationId") == modern {
					t.Errorf("asked: %s", params)
				}
				time.Sleep(time.Minute) // longer than a call waits, if its client waits for it
				return []byte(`{"action":"accept"}`), nil
			}}
			began := time.Now()
			_, err := k.Approve(same, to).Call(t.Context(), c)
			want := approval.DefaultWait
			if modern {
				want += time.Minute
			}
			if codeOf(err) != switchboard.CodeApprovalPending || time.Since(began) != want || to.made.Load() != 0 {
				t.Errorf("modern %v: %v after %v", modern, err, time.Since(began))
			}
			_ = s.Close()
		}
	})
}

func TestAURLIsShownWhereTheFormWouldBeTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		defer func() { _ = s.Close() }()
		k := newKeeper(t, s, func(o *approval.Options) {
			o.Address = func(id string) string { return "https://admin.example/approvals/" + id }
			o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
				return switchboard.ApprovalSettings{Self: true, AskClient: true}
			}
		})
		for _, size := range []int{10, 5000} {
			asked := ""
			c := callOf(`{"x":"` + strings.Repeat("x", size) + `"}`)
			c.Client = switchboard.Client{Capabilities: []byte(`{"elicitation":{"form":{},"url":{}}}`), Ask: func(_ context.Context, _ string, params []byte) ([]byte, error) {
				asked = string(params)
				return []byte(`{"action":"accept","content":{"decision":"approve"}}`), nil
			}}
			to := &target{keeper: k}
			_, _ = k.Approve(same, to).Call(t.Context(), c)
			long := size > 4<<10
			if strings.Contains(asked, `"mode":"url"`) != long || (to.made.Load() == 0) != long {
				t.Errorf("%d bytes: asked %.200s, made %d", size, asked, to.made.Load())
			}
		}
	})
}

func TestAPersonMayDecide(t *testing.T) {
	offices := func(id string, o ...switchboard.Office) *switchboard.Officer {
		return &switchboard.Officer{ID: id, Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": o}}
	}
	local := &switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}
	byKey := offices("abe", switchboard.OfficeApprover)
	byKey.Credential = "ann's"
	ann := offices("idp/ann", switchboard.OfficeApprover)
	ann.Roles = map[switchboard.TenantID][]string{"acme": {"oncall"}, "umbrella": {"boss"}}
	for _, tt := range []struct {
		name  string
		who   *switchboard.Officer
		rules approval.DecideRules
		terms []string
		asker string
		may   bool
	}{
		{"the person who asked, with another id by now", byKey, approval.DecideRules{}, nil, "ann@page", false},
		{"that person, where the operator says so", byKey, approval.DecideRules{Self: true}, nil, "ann@page", true},
		{"an approver", offices("ann", switchboard.OfficeApprover), approval.DecideRules{}, nil, "ci", true},
		{"AP-03: itself", offices("ci", switchboard.OfficeApprover), approval.DecideRules{}, nil, "ci", false},
		{"itself, where the operator says so", offices("ci", switchboard.OfficeApprover), approval.DecideRules{Self: true}, nil, "ci", true},
		{"an admin", offices("ann", switchboard.OfficeAdmin), approval.DecideRules{}, nil, "ci", false},
		{"an operator", local, approval.DecideRules{}, nil, "ci", false},
		{"whoever runs it, where there is no approver", local, approval.DecideRules{Unmanned: true}, []string{"approver"}, switchboard.LocalID, true},
		{"a key, where there is no approver", offices("ann"), approval.DecideRules{Unmanned: true}, nil, "ci", false},
		{"by name", ann, approval.DecideRules{}, []string{"idp/ann"}, "ci", true},
		{"by a role", ann, approval.DecideRules{}, []string{"oncall"}, "ci", true},
		{"by a role in another tenant", ann, approval.DecideRules{}, []string{"boss"}, "ci", false},
		{"not named", offices("bob", switchboard.OfficeApprover), approval.DecideRules{}, []string{"oncall"}, "ci", false},
		{"by another office", offices("bob", switchboard.OfficeAdmin, switchboard.OfficeApprover), approval.DecideRules{}, []string{"admin"}, "ci", true},
		{"no person may give both", ann, approval.DecideRules{}, []string{""}, "ci", false},
	} {
		r := &approval.Request{Asker: approval.Asker{Tenant: "acme", Principal: tt.asker, Keys: []string{"ann's"}}, Terms: approval.AskTerms{Who: tt.terms}}
		if err := approval.MayDecide(tt.who, r, tt.rules); (err == nil) != tt.may {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	r := &approval.Request{Asker: approval.Asker{Tenant: "umbrella", Principal: "ci"}}
	if approval.MayDecide(offices("ann", switchboard.OfficeApprover), r, approval.DecideRules{}) == nil {
		t.Error("an approver of another tenant may decide")
	}
}

// AP-03: a key that has asked does not decide, also if its row has another id by then.
func TestARequestKeepsTheKeysOfThePersonWhoHasAsked(t *testing.T) {
	k := newKeeper(t, store.NewMemory(), func(o *approval.Options) {
		o.KeysOf = func(a *approval.Asker) []string { return []string{"key of " + a.Principal} }
	})
	asked, _, err := k.Ask(t.Context(), &approval.Request{
		Kind: approval.ForCall, Asker: approval.Asker{Tenant: "acme", Principal: "ann@page"}, Target: approval.Target{Method: "tools/call", Server: "mail", Tool: "send"}, Until: time.Now().Add(time.Hour),
	}, approval.KeptCall{Params: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	r, err := k.Find(t.Context(), "acme", asked.ID())
	if err != nil {
		t.Fatal(err)
	}
	for key, may := range map[string]bool{"key of ann@page": false, "another": true, "": true} {
		who := &switchboard.Officer{ID: "abe", Auth: switchboard.AuthPersonKey, Credential: key, Offices: approver.Offices}
		if err := approval.MayDecide(who, r, approval.DecideRules{}); (err == nil) != may {
			t.Errorf("with the key %q: %v", key, err)
		}
	}
}

// TestTransitionsFollowTheModel compares Next with a table, for any sequence of steps and instants.
func TestTransitionsFollowTheModel(t *testing.T) {
	next := map[approval.State]map[approval.Action]approval.State{
		approval.Pending:  {approval.ActApprove: approval.Approved, approval.ActRefuse: approval.Refused, approval.ActWithdraw: approval.Withdrawn},
		approval.Approved: {approval.ActUse: approval.Used, approval.ActRevoke: approval.Revoked},
		approval.Used:     {approval.ActGiveBack: approval.Approved},
	}
	acts := []approval.Action{approval.ActApprove, approval.ActRefuse, approval.ActWithdraw, approval.ActRevoke, approval.ActUse, approval.ActGiveBack}
	rapid.Check(t, func(t *rapid.T) {
		began := time.Unix(1000, 0)
		quorum := rapid.IntRange(0, 3).Draw(t, "quorum")
		r := &approval.Request{Kind: approval.ForCall, Stored: approval.Pending, Until: began.Add(10 * time.Second), Terms: approval.AskTerms{Quorum: quorum}}
		state, yeses, user, now := approval.Pending, map[string]bool{}, "", began
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "later")) * time.Second)
			act, by := rapid.SampledFrom(acts).Draw(t, "act"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "by")
			reads := state
			if (state == approval.Pending || state == approval.Approved) && !now.Before(r.Until) {
				reads = approval.Expired
			}
			if got := r.StateAt(now); got != reads {
				t.Fatalf("it is %s, want %s", got, reads)
			}
			to, ok := next[reads][act]
			ok = ok && (act != approval.ActGiveBack || by == user) && (act != approval.ActApprove || !yeses[by])
			got, err := r.Next(now, approval.Step{Act: act, By: by, Vote: approval.Vote{By: by}})
			if (err == nil) != ok {
				t.Fatalf("%s by %s in %s: %v", act, by, reads, err)
			}
			if err != nil {
				continue
			}
			if act == approval.ActApprove {
				if yeses[by] = true; len(yeses) < max(quorum, 1) {
					to = approval.Pending
				}
			}
			if act == approval.ActUse {
				user = by
			}
			if got.Stored != to {
				t.Fatalf("%s by %s in %s leads to %s, want %s", act, by, reads, got.Stored, to)
			}
			r, state = got, to
		}
	})
}

func TestAQuorumIsOfDifferentPersons(t *testing.T) {
	r := &approval.Request{Kind: approval.ForCall, Stored: approval.Pending, Until: time.Now().Add(time.Hour), Terms: approval.AskTerms{Quorum: 2}}
	yes := func(r *approval.Request, by, credential string) (*approval.Request, error) {
		return r.Next(time.Now(), approval.Step{Act: approval.ActApprove, Vote: approval.Vote{By: by, Credential: credential}})
	}
	r, err := yes(r, "ann", "1")
	if err != nil || r.Stored != approval.Pending {
		t.Fatalf("one yes: %v %v", r, err)
	}
	for _, again := range [][2]string{{"ann", "2"}, {"bob", "1"}, {"ann", ""}} {
		if _, err := yes(r, again[0], again[1]); !errors.Is(err, approval.ErrVoted) {
			t.Errorf("%q: %v", again, err)
		}
	}
	if r, err = yes(r, "bob", "2"); err != nil || r.Stored != approval.Approved {
		t.Errorf("two: %v %v", r, err)
	}
}

func TestTheStoreNamesNothingThatACallNames(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	k := newKeeper(t, s, func(o *approval.Options) {
		o.Arguments = func(*switchboard.Call) string { return "a digest" }
		o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
			return switchboard.ApprovalSettings{Wait: time.Millisecond}
		}
	})
	const word = "a-word-that-is-hidden"
	c := callOf(`{}`)
	c.Tool, c.Method = nil, "resources/read"
	c.Item = switchboard.Item{Kind: "resource", Name: "memo://{id}/" + word, URI: "memo://one?token=" + word}
	c.Params = []byte(`{"uri":"memo://one?token=` + word + `"}`)
	c.IdempotencyKey = &switchboard.IdempotencyKey{Key: word, Tool: word}
	c.Obligations.Approval = &switchboard.Approval{Rules: []switchboard.AskingRule{{Layer: "tenant"}}}
	hides := func(when string) {
		t.Helper()
		for _, group := range []string{"approval/acme", "approval params/acme"} {
			values, err := s.List(t.Context(), group)
			if err != nil || len(values) == 0 && group == "approval/acme" {
				t.Fatalf("%s: %d values, %v", when, len(values), err)
			}
			for _, v := range values {
				if strings.Contains(string(v.Data), word) {
					t.Errorf("%s: %s", when, v.Data)
				}
			}
		}
	}
	var passed *switchboard.Call
	caller := k.Approve(same, switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		passed = c
		return switchboard.Result{}, nil
	}))
	_, _ = caller.Call(t.Context(), c)
	id := pendingOf(t, k)
	hides("pending")
	names := func(when string, want switchboard.Item) {
		t.Helper()
		r, err := k.Find(t.Context(), "acme", id)
		if err != nil || fmt.Sprint(r.Target.Item) != fmt.Sprint(want) || r.Target.Label().String() != "mail/resource" {
			t.Errorf("%s: %+v, %v", when, r, err)
		}
	}
	names("pending", c.Item)
	decide(t, k, id, approval.Saying{Yes: true})
	names("approved", c.Item)
	if _, err := caller.Call(t.Context(), c); err != nil || passed == nil {
		t.Fatal(err)
	}
	if err := k.Use(t.Context(), passed, "one", nil); err != nil {
		t.Fatal(err)
	}
	hides("used")
	names("used", switchboard.Item{Kind: "resource"})
	if err := k.GiveBack(t.Context(), passed); err != nil {
		t.Fatal(err)
	}
	hides("given back")
	names("given back", c.Item)
}

func TestAContractAsksOneOfItsPeople(t *testing.T) {
	for name, tt := range map[string]struct {
		contract, policy []string
		want             string
	}{
		"the contract alone":     {[]string{"finance"}, nil, "finance"},
		"everyone":               {[]string{"approver"}, []string{"finance"}, "finance"},
		"both ask":               {[]string{"finance", "owner"}, []string{"owner", "ops"}, "owner"},
		"nobody can give both":   {[]string{"finance"}, []string{"ops"}, ""},
		"the constraint as well": {[]string{"finance"}, nil, "finance"},
	} {
		s := store.NewMemory()
		k := newKeeper(t, s, nil)
		c := callOf(`{}`)
		if name != "the constraint as well" {
			c.Tool.Capabilities = nil
		}
		c.Tool.Contract.ApprovalRequired = tt.contract
		if tt.policy != nil {
			c.Obligations.Approval = &switchboard.Approval{Who: tt.policy}
		}
		to := &target{keeper: k}
		if _, err := k.Require(to).Call(t.Context(), c); codeOf(err) != "SB-APPR-001" || to.made.Load() != 0 {
			t.Errorf("%s: the call is made without a person, or refused otherwise: %v", name, err)
			continue
		}
		r, err := k.Find(t.Context(), "acme", pendingOf(t, k))
		if err != nil {
			t.Fatal(err)
		}
		last := r.Terms.Rules[len(r.Terms.Rules)-1]
		if got := strings.Join(r.Terms.Who, " "); got != tt.want || last.String() != "contract (approval_required: "+strings.Join(tt.contract, ", ")+")" {
			t.Errorf("%s: asks %q because of %s, want %q", name, got, &last, tt.want)
		}
		_ = s.Close()
	}
}
