package grant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// fakeRequests are the requests of tenant "acme".
type fakeRequests struct {
	mu    sync.Mutex
	all   map[string]*approval.Request
	away  bool
	heard func(switchboard.TenantID, string)
}

func (f *fakeRequests) List(context.Context, switchboard.TenantID) (all []*approval.Request, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, errors.New("the store is away")
	}
	for _, r := range f.all {
		all = append(all, r)
	}
	return all, nil
}

func (f *fakeRequests) Find(_ context.Context, _ switchboard.TenantID, id string) (*approval.Request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.away:
		return nil, errors.New("the store is away")
	case f.all[id] == nil:
		return nil, approval.ErrNoRequest
	}
	return f.all[id], nil
}

func (f *fakeRequests) set(r *approval.Request, state approval.State, tell bool) {
	own := *r
	own.Stored = state
	f.mu.Lock()
	f.all[own.ID()] = &own
	heard := f.heard
	f.mu.Unlock()
	if tell && heard != nil {
		heard("acme", own.ID())
	}
}

func (f *fakeRequests) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// An additionTest is an AdditionBook of fakeRequests, and the principals that Changed was called for.
type additionTest struct {
	*AdditionBook
	requests *fakeRequests
	mu       sync.Mutex
	changed  []string
}

func newAdditionTest(t *testing.T) *additionTest {
	b := &additionTest{requests: &fakeRequests{all: map[string]*approval.Request{}}}
	b.AdditionBook = New(Options{
		List: b.requests.List, Find: b.requests.Find,
		Watch: func(heard func(switchboard.TenantID, string)) func() {
			b.requests.mu.Lock()
			defer b.requests.mu.Unlock()
			b.requests.heard = heard
			return func() {}
		},
		Concerned: func(id switchboard.TenantID) bool { return id == "acme" },
		Changed: func(_ context.Context, _ switchboard.TenantID, principal string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed = append(b.changed, principal)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go b.Run(ctx)
	synctest.Wait()
	return b
}

// takeChanged returns the principals that Changed was called for since.
func (b *additionTest) takeChanged() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.changed
	b.changed = nil
	return was
}

var ann = switchboard.Principal{Tenant: "acme", ID: "ann"}

func yesTo(binding, scope string, task switchboard.TaskID, run switchboard.RunID) *approval.Request {
	return &approval.Request{
		Number: 1, Kind: approval.ForCapability, Binding: fmt.Sprintf("%-20s", binding),
		Asker:  approval.Asker{Tenant: "acme", Principal: "ann", Task: task, Run: run},
		Target: approval.Target{Capability: "read fs"},
		Until:  time.Now().Add(time.Hour),
		Grant:  approval.Grant{Scope: scope, Until: time.Now().Add(time.Hour)},
	}
}

func TestAYesIsForTheRunOrTheTaskThatAsked(t *testing.T) {
	bob := ann
	bob.ID = "bob"
	elsewhere := ann
	elsewhere.Tenant = "other"
	keyed := ann
	keyed.Auth = switchboard.AuthLocal
	for _, tt := range []struct {
		name string
		yes  *approval.Request
		who  switchboard.Principal
		task switchboard.TaskID
		run  switchboard.RunID
		want bool
	}{
		{"the run", yesTo("a", approval.ScopeRun, "work", "r1"), ann, "work", "r1", true},
		{"another run", yesTo("a", approval.ScopeRun, "work", "r1"), ann, "work", "r2", false},
		{"the base run", yesTo("a", approval.ScopeRun, "work", ""), ann, "work", "", true},
		{"the base run of another task", yesTo("a", approval.ScopeRun, "work", ""), ann, "play", "", false},
		{"a run of the task", yesTo("a", approval.ScopeTask, "work", "r1"), ann, "work", "r2", true},
		{"a run of another task", yesTo("a", approval.ScopeTask, "work", "r1"), ann, "play", "r1", false},
		{"another principal", yesTo("a", approval.ScopeTask, "work", "r1"), bob, "work", "r1", false},
		{"the same id in another tenant", yesTo("a", approval.ScopeTask, "work", "r1"), elsewhere, "work", "r1", false},
		{"the same id with another kind of key", yesTo("a", approval.ScopeTask, "work", "r1"), keyed, "work", "r1", false},
		{"another declared task", yesTo("a", approval.ScopeTask, switchboard.DeclaredTask, "r1"), ann, switchboard.DeclaredTask, "r2", false},
		{"the run after it has declared a task", yesTo("a", approval.ScopeTask, "", "r1"), ann, switchboard.DeclaredTask, "r1", true},
		{"a run without a task", yesTo("a", approval.ScopeTask, "", "r1"), ann, "", "r2", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			tt.yes.Grant.Until = time.Now().Add(time.Hour)
			b := newAdditionTest(t)
			b.requests.set(tt.yes, approval.Approved, false)
			if got := len(b.Additions(t.Context(), tt.who, tt.task, tt.run)) == 1; got != tt.want {
				t.Errorf("%s: %v", tt.name, got)
			}
		})
	}
}

func TestOnlyAYesThatCountsNowAddsSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAdditionTest(t)
		q := yesTo("a", approval.ScopeRun, "work", "r1")
		has := func() bool { return len(b.Additions(t.Context(), ann, "work", "r1")) == 1 }
		b.requests.set(q, approval.Pending, true)
		for _, tt := range []struct {
			state approval.State
			want  bool
		}{
			{approval.Pending, false},
			{approval.Approved, true},
			{approval.Revoked, false},
			{approval.Refused, false},
			{approval.Withdrawn, false},
			{approval.Approved, true},
		} {
			was := has()
			b.requests.set(q, tt.state, true)
			changed := b.takeChanged()
			if got := has(); got != tt.want || (was != got) != slices.Equal(changed, []string{"ann"}) {
				t.Errorf("%s: %v, and %q were told", tt.state, got, changed)
			}
		}
		time.Sleep(time.Hour - time.Nanosecond) // no time passes in reality
		if !has() || b.takeChanged() != nil {
			t.Error("it has ended before its end")
		}
		time.Sleep(time.Nanosecond)
		if has() || !slices.Equal(b.takeChanged(), []string{"ann"}) {
			t.Error("it has not ended, or the run was not told")
		}
		call := yesTo("b", approval.ScopeRun, "work", "r1")
		call.Kind = approval.ForCall
		b.requests.set(call, approval.Approved, true)
		if synctest.Wait(); has() {
			t.Error("a yes to a call has added something")
		}
		b.o.Counts = func(context.Context, *approval.Request) bool { return false }
		b.requests.set(yesTo("c", approval.ScopeRun, "work", "r1"), approval.Approved, true)
		if synctest.Wait(); has() {
			t.Error("who has said yes may not decide any more")
		}
	})
}

func TestWithoutTheStoreNothingIsAddedUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAdditionTest(t)
		q := yesTo("a", approval.ScopeRun, "work", "r1")
		b.requests.set(q, approval.Approved, false)
		b.requests.setAway(true)
		has := func() bool { return len(b.Additions(t.Context(), ann, "work", "r1")) == 1 }
		if has() {
			t.Fatal("it was added, although the store could not be read")
		}
		b.requests.setAway(false)
		time.Sleep(retryAfter)
		if !slices.Equal(b.takeChanged(), []string{"ann"}) || !has() {
			t.Error("the store is back, and the run was not told")
		}
		b.requests.setAway(true)
		b.requests.set(q, approval.Revoked, true)
		if !slices.Equal(b.takeChanged(), []string{"ann"}) || has() {
			t.Error("a yes that may have been revoked counts")
		}
		b.requests.setAway(false)
		time.Sleep(retryAfter)
		if b.takeChanged() != nil || has() {
			t.Error("a revoked yes counts")
		}
		b.requests.set(q, approval.Approved, false)
		b.requests.heard("", "") // notices were missed
		if !slices.Equal(b.takeChanged(), []string{"ann"}) || !has() {
			t.Error("a yes was missed")
		}
	})
}

func TestAStoreThatHangsDelaysEachCallerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{
			List: func(ctx context.Context, _ switchboard.TenantID) ([]*approval.Request, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Concerned: func(switchboard.TenantID) bool { return true },
		})
		var callers sync.WaitGroup
		began := time.Now()
		for _, within := range []time.Duration{readTimeout, readTimeout, readTimeout, readTimeout, time.Second / 10} {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if within < readTimeout {
					time.Sleep(time.Millisecond) // behind another one
					ctx, cancel = context.WithTimeout(t.Context(), within-time.Millisecond)
				}
				defer cancel()
				if all := b.Additions(ctx, ann, "t", "r"); all != nil || time.Since(began) > within {
					t.Errorf("%v after %s, want none within %s", all, time.Since(began), within)
				}
			})
		}
		callers.Wait()
	})
}
