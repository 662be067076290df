package health_test

import (
	"context"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// What health adds to a call of a server that is well, beside the call itself.
func BenchmarkCall(b *testing.B) {
	answer := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, nil
	})
	m := health.New(health.Options{})
	defer m.Close()
	m.SetServers([]switchboard.Server{{ID: "a"}, {ID: "b"}})
	for _, id := range []switchboard.ServerID{"a", "b"} {
		m.ReportLink(id, true, health.Cause{})
	}
	for _, bb := range []struct {
		name   string
		caller switchboard.Caller
		call   *switchboard.Call
	}{
		{"baseline", answer, callOf(harmless, "a")},
		{"without an equivalent", m.Fallback(m.Admit(answer)), callOf(harmless, "a")},
		{"with an equivalent", m.Fallback(m.Admit(answer)), callOf(harmless, "a", "b")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := bb.caller.Call(context.Background(), bb.call); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
