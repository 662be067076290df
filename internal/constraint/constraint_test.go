package constraint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A counter is a server that counts its calls.
type counter struct{ calls atomic.Int64 }

func (c *counter) Call(context.Context, *switchboard.Call) (switchboard.Result, error) {
	c.calls.Add(1)
	return switchboard.Result{JSON: []byte(`{}`)}, nil
}

func tool(name string, said, kept []switchboard.Constraint) *switchboard.Tool {
	t := &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: name}}
	t.Capabilities = []switchboard.Capability{{Verb: switchboard.Notify, Resource: "slack", Constraints: said}}
	if kept != nil {
		t.Kept = []switchboard.Capability{{Verb: switchboard.Notify, Resource: "slack", Constraints: kept}}
	}
	return t
}

func call(tenant switchboard.TenantID, t *switchboard.Tool) *switchboard.Call {
	return &switchboard.Call{Principal: switchboard.Principal{Tenant: tenant}, Tool: t}
}

func code(err error) switchboard.Code {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestCallsAreLimitedByTenantAndTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := []switchboard.Constraint{switchboard.RateLimited}
		acme := []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: 10 * time.Second, Burst: 2}}
		l := constraint.NewLimiter(store.NewMemory(), func(id switchboard.TenantID) []switchboard.Limit {
			if id == "acme" {
				return acme
			}
			return nil
		})
		var server counter
		c := l.Limit(&server)
		try := func(tenant switchboard.TenantID, tl *switchboard.Tool) (switchboard.Code, time.Duration) {
			_, err := c.Call(t.Context(), call(tenant, tl))
			if e, ok := errors.AsType[*switchboard.Error](err); ok {
				return e.Code, e.RetryAfter
			}
			return "", 0
		}
		check := func(when string, tenant switchboard.TenantID, tl *switchboard.Tool, want switchboard.Code) {
			t.Helper()
			if got, _ := try(tenant, tl); got != want {
				t.Errorf("%s: code %q, want %q", when, got, want)
			}
		}
		post, other := tool("post", limited, nil), tool("other", nil, limited)
		check("first", "acme", post, "")
		check("second, the burst", "acme", post, "")
		check("third", "acme", post, switchboard.CodeRateLimit)
		check("another tool has its own", "acme", other, "")
		check("a free tool has none", "acme", tool("free", nil, nil), "")
		if got, wait := try("acme", post); got == "" || wait < 10*time.Second || wait > 11*time.Second {
			t.Errorf("refused with %q, retry after %v; want about 10s", got, wait)
		}
		time.Sleep(10 * time.Second)
		check("one was earned; refusals cost nothing", "acme", post, "")
		check("and no more than one", "acme", post, switchboard.CodeRateLimit)

		for range constraint.DefaultLimit.Burst {
			check("a tenant without a limit has the default", "other", post, "")
		}
		check("which ends too", "other", post, switchboard.CodeRateLimit)
		acme = []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: time.Second, Burst: 2}}
		check("a new limit gives no call away", "acme", post, switchboard.CodeRateLimit)
		time.Sleep(time.Second)
		check("and counts from now on", "acme", post, "")
		acme = []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: time.Hour, Burst: 1}}
		check("one that is smaller and slower is used up too", "acme", post, switchboard.CodeRateLimit)
	})
}

func TestProcessesThatRaceForTheLastPermitsGetExactlyThose(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	shared := store.NewMemory()
	var server counter
	tl := tool("post", []switchboard.Constraint{switchboard.RateLimited}, nil)
	var wg sync.WaitGroup
	for range 8 {
		l := constraint.NewLimiter(shared, func(switchboard.TenantID) []switchboard.Limit {
			return []switchboard.Limit{{Constraint: switchboard.RateLimited, Every: time.Hour, Burst: 50}}
		})
		c := l.Limit(&server)
		for range 8 {
			wg.Go(func() {
				for range 10 {
					_, _ = c.Call(t.Context(), call("acme", tl)) // only the server's count matters
				}
			})
		}
	}
	wg.Wait()
	if n := server.calls.Load(); n != 50 {
		t.Errorf("%d calls were made, want 50", n)
	}
}

// A takes store counts its uses.
type takes struct {
	*store.Memory
	n int
}

func (s *takes) Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (int, time.Duration, error) {
	s.n++
	return s.Memory.Take(ctx, group, want, limits...)
}

func TestACallAsksTheStoreOnceAndOneWithoutLimitsNever(t *testing.T) {
	s := &takes{Memory: store.NewMemory()}
	both := []switchboard.Constraint{switchboard.ReadOnly, switchboard.RateLimited}
	l := constraint.NewLimiter(s, func(switchboard.TenantID) []switchboard.Limit {
		return []switchboard.Limit{
			{Constraint: switchboard.RateLimited, Every: time.Hour, Burst: 5},
			{Constraint: switchboard.ReadOnly, Every: time.Hour, Burst: 1},
		}
	})
	var server counter
	limited := call("acme", tool("both", both, nil))
	limited.Obligations.Rate = switchboard.Rate{Every: time.Hour, Burst: 4}
	for range 3 {
		_, _ = l.Limit(&server).Call(t.Context(), limited)
	}
	if s.n != 3 || server.calls.Load() != 1 {
		t.Errorf("3 calls under three limits, and one limit allows 1: asked %d times, made %d", s.n, server.calls.Load())
	}
	// The other limits did not count the calls that one limit refused.
	for range 10 {
		_, _ = l.Limit(&server).Call(t.Context(), call("acme", tool("both", both[1:], nil)))
	}
	if n := server.calls.Load(); n != 5 {
		t.Errorf("%d calls were made under the limit of 5", n)
	}
	s.n = 0
	for _, free := range []*switchboard.Call{call("acme", tool("free", nil, nil)), call("acme", nil)} {
		if _, err := l.Limit(&server).Call(t.Context(), free); err != nil || s.n != 0 {
			t.Errorf("a call without limits: %v; the store was asked %d times", err, s.n)
		}
	}
}

func TestWithoutTheStoreOnlyCallsWithoutLimitsAreMade(t *testing.T) {
	s := store.NewMemory()
	_ = s.Close()
	l := constraint.NewLimiter(s, func(switchboard.TenantID) []switchboard.Limit { return nil })
	var server counter
	_, err := l.Limit(&server).Call(t.Context(), call("acme", tool("post", []switchboard.Constraint{switchboard.RateLimited}, nil)))
	if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeStoreUnavailable || !e.Unsent || e.RetryAfter == 0 || server.calls.Load() != 0 {
		t.Errorf("a call with a limit: %v, made %d times", err, server.calls.Load())
	}
	if _, err := l.Limit(&server).Call(t.Context(), call("acme", tool("free", nil, nil))); err != nil || server.calls.Load() != 1 {
		t.Errorf("a call without limits: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Limit(&server).Call(ctx, call("acme", tool("post", []switchboard.Constraint{switchboard.RateLimited}, nil)))
	if code(err) != switchboard.CodeNotExecuted || !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was cancelled: %v", err)
	}
}

func TestTheDefaultLimitIsTheOneOfTheDocuments(t *testing.T) {
	l := constraint.DefaultLimit
	want := fmt.Sprintf("`rate: %d/min, burst: %d`", time.Minute/l.Every, l.Burst)
	for _, name := range []string{"errors/README.md", "configuration.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/%s does not say %s", name, want)
		}
	}
}
