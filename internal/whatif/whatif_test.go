package whatif

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// waiting compares until it is cancelled.
func waiting(ctx context.Context, _ replay.Bounds, _ func(done, of int)) (*replay.Diff, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// atOnce has a result at once.
func atOnce(_ context.Context, s replay.Bounds, progress func(done, of int)) (*replay.Diff, error) {
	progress(3, 3)
	return &replay.Diff{Since: s.Since, Decisions: 3}, nil
}

func start(t *testing.T, d *Comparisons, tenant switchboard.TenantID, c Compare) string {
	t.Helper()
	got, err := d.Start(tenant, "ann", time.Now(), c)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID
}

func TestAsManyComparisonsRunAsMay(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	defer d.Close()
	first := start(t, d, "acme", waiting)
	start(t, d, "acme", waiting)
	if _, err := d.Start("acme", "ann", time.Now(), waiting); !hasCode(err, switchboard.CodeOverloaded) {
		t.Errorf("a third one of the tenant: %v", err)
	}
	start(t, d, "umbrella", waiting)
	start(t, d, "", waiting)
	if _, err := d.Start("initech", "ann", time.Now(), waiting); !hasCode(err, switchboard.CodeOverloaded) {
		t.Errorf("a fifth one: %v", err)
	}
	if d.Cancel("umbrella", first) || d.Read("umbrella", first) != nil {
		t.Error("another tenant sees and cancels it")
	}
	if !d.Cancel("acme", first) || d.Read("acme", first) != nil || d.Cancel("acme", first) {
		t.Error("it is not cancelled")
	}
	start(t, d, "acme", waiting)
}

func hasCode(err error, code switchboard.Code) bool {
	e, ok := errors.AsType[*switchboard.Error](err)
	return ok && e.Code == code
}

func TestAResultIsKeptForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(slog.New(slog.DiscardHandler))
		defer d.Close()
		id := start(t, d, "acme", atOnce)
		synctest.Wait()
		if c := d.Read("acme", id); c == nil || c.State != Done || c.Looked != 3 || c.Of != 3 || c.Result.Decisions != 3 || !c.Until.Equal(time.Now().Add(Kept)) {
			t.Fatalf("%+v", c)
		}
		if d.Read("", id) == nil {
			t.Error("an operator does not see it")
		}
		time.Sleep(Kept - time.Second)
		synctest.Wait()
		if d.Read("acme", id) == nil {
			t.Error("it is gone too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if d.Read("acme", id) != nil {
			t.Error("it is kept for longer")
		}
	})
}

func TestTheOldestResultsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(slog.New(slog.DiscardHandler))
		defer d.Close()
		other := start(t, d, "umbrella", atOnce)
		synctest.Wait()
		var ids []string
		for range maxKeptPerTenant + 1 {
			ids = append(ids, start(t, d, "acme", atOnce))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if d.Read("", ids[0]) != nil || d.Read("", ids[1]) == nil || d.Read("", other) == nil {
			t.Error("another one than the tenant's oldest was dropped")
		}
		for i := range maxKept {
			start(t, d, switchboard.TenantID(fmt.Sprint("t", i)), atOnce)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := len(d.all); n != maxKept {
			t.Errorf("%d are kept", n)
		}
	})
}

func TestAFailureSaysNothingOfTheSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(slog.New(slog.DiscardHandler))
		defer d.Close()
		for want, err := range map[string]error{
			"the comparison could not be made; the log output of Switchboard says why": errors.New("read /var/lib/x: broken"),
			"p.rego:1:2: bad": switchboard.Faults{{File: "p.rego", Line: 1, Column: 2, Text: "bad"}},
		} {
			id := start(t, d, "acme", func(context.Context, replay.Bounds, func(done, of int)) (*replay.Diff, error) { return nil, err })
			synctest.Wait()
			if c := d.Read("acme", id); c.State != Failed || c.Why != want {
				t.Errorf("%+v, want %q", c, want)
			}
		}
	})
}

func TestCloseCancelsAndWaits(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	ended := false
	start(t, d, "acme", func(ctx context.Context, s replay.Bounds, p func(done, of int)) (*replay.Diff, error) {
		defer func() { ended = true }()
		return waiting(ctx, s, p)
	})
	d.Close()
	if !ended {
		t.Error("it still runs")
	}
	if _, err := d.Start("acme", "ann", time.Now(), atOnce); err == nil {
		t.Error("another one was started")
	}
}
