package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAttack1OneLargeRequestOfATenantIsWorkedOnAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		first, err := q.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		second := make(chan time.Duration, 1)
		go func() {
			end, err := q.take(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			second <- time.Since(began)
			end()
		}()
		synctest.Wait()
		if len(second) > 0 {
			t.Fatal("two turns at once")
		}
		time.Sleep(10 * time.Millisecond)
		first()
		if waited := <-second; waited != 10*time.Millisecond {
			t.Errorf("the second waited %v; want until the first ended", waited)
		}
		first() // ends no turn but its own

		if _, err = q.take(t.Context()); err != nil { // and waits for something, for ever
			t.Fatal(err)
		}
		began = time.Now()
		end, err := q.take(t.Context())
		if waited := time.Since(began); err != nil || waited != turnTime {
			t.Errorf("behind a request that waits: %v, %v; want %v", waited, err, turnTime)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := q.take(gone); err == nil {
			t.Error("a client that has gone gets a turn")
		}
		end()
	})
}

func TestAttack1ATurnEndsBeforeTheCallIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		end, err := q.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := switchboard.CallerFunc(func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
			began := time.Now()
			other, err := q.take(ctx)
			if waited := time.Since(began); err != nil || waited != 0 {
				t.Errorf("while the server works, the tenant's next request waits %v, %v", waited, err)
			}
			other()
			return switchboard.Result{}, nil
		})
		ctx := context.WithValue(t.Context(), turnKey{}, end)
		if _, err := EndTurn(next).Call(ctx, &switchboard.Call{Params: make([]byte, largeRequest)}); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkTurn measures what turns add to a call: a small one has none.
func BenchmarkTurn(b *testing.B) {
	nothing := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil })
	for name, size := range map[string]int{"small": 1 << 10, "large": largeRequest} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var q turns
			c, wrapped := &switchboard.Call{Params: make([]byte, size)}, EndTurn(nothing)
			for b.Loop() {
				ctx := b.Context()
				if size >= largeRequest {
					end, err := q.take(ctx)
					if err != nil {
						b.Fatal(err)
					}
					ctx = context.WithValue(ctx, turnKey{}, end)
				}
				_, _ = wrapped.Call(ctx, c)
			}
		})
	}
}
