package approval_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ask asks as the principal, with these arguments.
func ask(t testing.TB, k *approval.Keeper, principal, arguments string) (*approval.Request, error) {
	t.Helper()
	r, _, err := k.Ask(t.Context(), &approval.Request{
		Kind: approval.ForCall, Until: time.Now().Add(approval.MaxUntil),
		Asker: approval.Asker{Tenant: "acme", Principal: principal}, Target: approval.Target{Method: "tools/call", Server: "mail", Tool: "send", Arguments: arguments},
	}, approval.KeptCall{Params: []byte(`{}`)})
	return r, err
}

// askAndWithdraw does it again and again, with other arguments each time if they differ.
func askAndWithdraw(t testing.TB, keepers []*approval.Keeper, principal string, differ bool) {
	t.Helper()
	for i := range approval.MaxOfPrincipalHour {
		arguments, k := "same", keepers[i%len(keepers)]
		if differ {
			arguments = fmt.Sprint(i)
		}
		r, err := ask(t, k, principal, arguments)
		if err == nil {
			_, err = k.Withdraw(t.Context(), &switchboard.Principal{Tenant: "acme", ID: principal}, "", r.ID())
		}
		if err != nil {
			t.Fatalf("request %d of %s: %v", i, principal, err)
		}
	}
}

// AP-07
func TestAPrincipalThatAsksAndWithdrawsIsStoppedForTheRestOfTheHour(t *testing.T) {
	for _, differ := range []bool{false, true} {
		t.Run(fmt.Sprint("other arguments each time: ", differ), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory()
				defer func() { _ = s.Close() }()
				replicas := []*approval.Keeper{newKeeper(t, s, nil), newKeeper(t, s, nil)}
				time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
				began := time.Now()
				askAndWithdraw(t, replicas, "ci", differ)
				time.Sleep(time.Minute)
				left := time.Until(began.Add(time.Hour).Truncate(time.Second))
				for _, k := range replicas {
					_, err := ask(t, k, "ci", "same")
					e := access.AsError(err)
					if e.Code != switchboard.CodeTooManyAsked || e.RetryAfter != left || !strings.Contains(e.Text, began.Add(time.Hour).UTC().Format(time.TimeOnly+" UTC")) {
						t.Errorf("one request too many: %v, again after %v, want %v", err, e.RetryAfter, left)
					}
				}
				if _, err := ask(t, replicas[0], "cd", "same"); err != nil {
					t.Errorf("another principal: %v", err)
				}
				time.Sleep(left)
				if _, err := ask(t, replicas[1], "ci", "same"); err != nil {
					t.Errorf("when the hour is over: %v", err)
				}
			})
		})
	}
}

// AP-07: withdrawn requests leave room for others, a no that people have said keeps its place, and so does what is open.
func TestWithdrawnRequestsOfATenantStopNobody(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	k := newKeeper(t, s, nil)
	const kept = 100
	approval.LimitKept(k, kept)
	refused, err := ask(t, k, "ops", "refused")
	if err != nil {
		t.Fatal(err)
	}
	decide(t, k, refused.ID(), approval.Saying{})
	approved, err := ask(t, k, "ops", "approved")
	if err != nil {
		t.Fatal(err)
	}
	decide(t, k, approved.ID(), approval.Saying{Yes: true})
	pending, err := ask(t, k, "ops", "pending")
	if err != nil {
		t.Fatal(err)
	}
	askAndWithdraw(t, []*approval.Keeper{k}, "ci", true)
	if _, err := ask(t, k, "ops", "more"); err != nil {
		t.Errorf("after %d requests that were withdrawn: %v", approval.MaxOfPrincipalHour, err)
	}
	for _, r := range []*approval.Request{refused, approved, pending} {
		if now, err := ask(t, k, "ops", r.Target.Arguments); err != nil || now.ID() != r.ID() || now.Stored != approval.State(r.Target.Arguments) {
			t.Errorf("the request that is %s: %+v, %v", r.Target.Arguments, now, err)
		}
	}
	if all, err := k.List(t.Context(), "acme"); err != nil || len(all) > kept {
		t.Errorf("%d requests are kept: %v", len(all), err)
	}
}

// A no gives way too if nothing else can.
func TestRefusalsGiveWayWhenThereIsNoRoom(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	k := newKeeper(t, s, nil)
	const kept = 100
	approval.LimitKept(k, kept)
	first := ""
	for i := range kept + 1 {
		r, err := ask(t, k, "ci", fmt.Sprint(i))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if first == "" {
			first = r.ID()
		}
		decide(t, k, r.ID(), approval.Saying{})
	}
	if _, err := k.Find(t.Context(), "acme", first); err == nil {
		t.Error("the oldest no is still there")
	}
}
