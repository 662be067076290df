package whatif_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

var (
	ops = switchboard.Officer{ID: "ops", Operator: true}
	ann = switchboard.Officer{ID: "ann", Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeAuthor}}}
	uma = switchboard.Officer{ID: "uma", Offices: map[switchboard.TenantID][]switchboard.Office{"umbrella": {switchboard.OfficeAdmin}}}
)

func readable(path string) bool { return strings.HasPrefix(path, "tenants/acme/") }

// slow returns a comparison of ten decisions, one a second.
func slow(ctx context.Context, since time.Time, _ switchboard.TenantID, _ *replay.Proposal, progress func(done, of int)) (*replay.Diff, error) {
	for i := range 10 {
		if progress != nil {
			progress(i, 10)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &replay.Diff{Since: since, Decisions: 10, Replayed: 10, Changed: 3}, nil
}

func TestAComparisonTellsItsProgressAndIsKeptForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := whatif.New(t.Context(), slow)
		started, err := c.Start(ann, whatif.Selection{Tenant: "acme", Path: "tenants/acme/policies/a.rego"})
		if err != nil || started.State != whatif.Running || started.By != "ann" {
			t.Fatalf("%+v, %v", started, err)
		}
		for _, tt := range []struct {
			after  time.Duration
			state  string
			looked int
			kept   bool
		}{{3500 * time.Millisecond, whatif.Running, 3, true}, {7 * time.Second, whatif.Done, 10, true}, {9 * time.Minute, whatif.Done, 10, true}, {2 * time.Minute, "", 0, false}} {
			time.Sleep(tt.after)
			synctest.Wait()
			got, ok := c.Get(ann, started.ID, readable)
			if ok != tt.kept || got.State != tt.state || got.Looked != tt.looked || (got.Result != nil) != (tt.state == whatif.Done) {
				t.Errorf("after %s more: %+v, %t", tt.after, got, ok)
			}
		}
	})
}

func TestAComparisonIsSeenByThoseWhoMaySeeItsDecisionsAndItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := whatif.New(t.Context(), slow)
		mine, err1 := c.Start(ann, whatif.Selection{Tenant: "acme", Path: "tenants/acme/policies/a.rego"})
		all, err2 := c.Start(ops, whatif.Selection{Path: "switchboard.yaml"})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			who       switchboard.Officer
			mine, all bool
		}{{ops, true, true}, {ann, true, false}, {uma, false, false}} {
			_, one := c.Get(tt.who, mine.ID, readable)
			_, other := c.Get(tt.who, all.ID, readable)
			want := 0
			for _, sees := range []bool{tt.mine, tt.all} {
				if sees {
					want++
				}
			}
			if one != tt.mine || other != tt.all || len(c.List(tt.who, readable)) != want || c.Cancel(tt.who, "nope", readable) {
				t.Errorf("%s sees %t, %t, %v", tt.who.ID, one, other, c.List(tt.who, readable))
			}
		}
		if c.Cancel(uma, mine.ID, readable) {
			t.Error("an admin of another tenant cancels it")
		}
		if !c.Cancel(ann, mine.ID, readable) {
			t.Error("it cannot be canceled")
		}
		synctest.Wait()
		if got, _ := c.Get(ann, mine.ID, readable); got.State != whatif.Canceled {
			t.Errorf("canceled, it is %+v", got)
		}
	})
}

func TestTheNumberAndTheTimeOfComparisonsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forEver := func(ctx context.Context, _ time.Time, _ switchboard.TenantID, _ *replay.Proposal, _ func(done, of int)) (*replay.Diff, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		stopping, stop := context.WithCancel(t.Context())
		c := whatif.New(stopping, forEver)
		first, err1 := c.Start(ops, whatif.Selection{})
		second, err2 := c.Start(ops, whatif.Selection{})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		_, err := c.Start(ops, whatif.Selection{})
		if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != switchboard.CodeOverloaded {
			t.Errorf("a third one: %v", err)
		}
		if d, why, err := c.Quick(t.Context(), whatif.Selection{}); d != nil || why == "" || err != nil {
			t.Errorf("a quick one beside them: %v, %q, %v", d, why, err)
		}
		c.Cancel(ops, first.ID, readable)
		synctest.Wait()
		began := time.Now()
		if d, why, err := c.Quick(t.Context(), whatif.Selection{}); d != nil || !strings.Contains(why, "start a comparison") || err != nil || time.Since(began) != whatif.QuickTime {
			t.Errorf("a quick one that is slow: %v, %q, %v, after %s", d, why, err, time.Since(began))
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if got, _ := c.Get(ops, second.ID, readable); got.State != whatif.Failed || !strings.Contains(got.Failure, "10m") {
			t.Errorf("after its time it is %+v", got)
		}
		for range 40 {
			one, err := c.Start(ops, whatif.Selection{})
			if err != nil {
				t.Fatal(err)
			}
			c.Cancel(ops, one.ID, readable)
			synctest.Wait()
		}
		if n := len(c.List(ops, readable)); n > 32 {
			t.Errorf("%d are kept", n)
		}
		last, _ := c.Start(ops, whatif.Selection{})
		stop()
		synctest.Wait()
		if got, _ := c.Get(ops, last.ID, readable); got.State != whatif.Canceled {
			t.Errorf("at the stop it is %+v", got)
		}
	})
}
