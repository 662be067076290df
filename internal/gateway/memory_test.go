package gateway

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAttack2MemoryIsSharedSoThatEachLeavesAsMuchAsItTakes(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	fill := func(tenant, id string) (mib int64) {
		for {
			h := g.newHold(switchboard.Principal{Tenant: switchboard.TenantID(tenant), ID: id})
			if ok, _ := h.tryGrow(1 << 20); !ok {
				return mib
			}
			mib++
		}
	}
	for _, tt := range []struct {
		tenant, id string
		want       int64
	}{{"a", "x", 42}, {"a", "y", 14}, {"b", "x", 24}, {"c", "x", 16}} {
		if got := fill(tt.tenant, tt.id); got != tt.want {
			t.Errorf("%s/%s may hold %d MiB, want %d", tt.tenant, tt.id, got, tt.want)
		}
	}
}

// Whatever is held and let go of, the sums are right, and no more is held than there is.
func TestAttack2WhatIsHeldIsCountedOnceAndLetGoOfOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := New(Options{})
		g.memory.limit = 1000
		var holds []*memoryHold
		owners := []switchboard.Principal{{Tenant: "a", ID: "x"}, {Tenant: "a", ID: "y"}, {Tenant: "b", ID: "z"}}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				h := g.newHold(rapid.SampledFrom(owners).Draw(t, "owner"))
				holds = append(holds, &h)
			},
			"grow": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip()
				}
				h := rapid.SampledFrom(holds).Draw(t, "hold")
				before := h.bytes
				if ok, _ := h.tryGrow(rapid.Int64Range(1, 600).Draw(t, "bytes")); !ok && h.bytes != before {
					t.Fatalf("refused, and %d bytes more are held", h.bytes-before)
				}
			},
			"end": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
				holds[i].release()
				holds = append(holds[:i], holds[i+1:]...)
			},
			"": func(t *rapid.T) {
				var all int64
				for _, h := range holds {
					all += h.bytes
				}
				if got := g.memory.total.Load(); got != all || got > g.memory.limit {
					t.Fatalf("%d bytes are counted, %d are held, of at most %d", got, all, g.memory.limit)
				}
			},
		})
		for _, h := range holds {
			h.release()
		}
		for _, p := range owners {
			if n := g.accountOf(p).heldBytes.Load(); n != 0 {
				t.Fatalf("%s holds %d bytes in the end", p.ID, n)
			}
		}
	})
}

func BenchmarkHold(b *testing.B) {
	g := New(Options{})
	p := switchboard.Principal{Tenant: "acme", ID: "alice"}
	b.ReportAllocs()
	for b.Loop() {
		h := g.newHold(p)
		if ok, _ := h.tryGrow(1024); !ok {
			b.Fatal("refused")
		}
		h.release()
	}
}
