package gateway

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAttack2MemoryIsSharedSoThatEachLeavesAsMuchAsItTakes(t *testing.T) {
	t.Parallel()
	as := newAccounts()
	fill := func(tenant, id string) (mib int64) {
		for {
			h := as.newHold(switchboard.Principal{Tenant: switchboard.TenantID(tenant), ID: id})
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

// Whatever is held and released, the sums are right, and no more is held than the limit.
func TestAttack2HeldMemoryIsCountedOnceAndReleasedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		as := newAccounts()
		as.memory.limit = 1000
		var holds []*memoryHold
		owners := []switchboard.Principal{{Tenant: "a", ID: "x"}, {Tenant: "a", ID: "y"}, {Tenant: "b", ID: "z"}}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				h := as.newHold(rapid.SampledFrom(owners).Draw(t, "owner"))
				holds = append(holds, &h)
			},
			"grow": func(t *rapid.T) {
				if len(holds) == 0 {
					t.Skip()
				}
				h := rapid.SampledFrom(holds).Draw(t, "hold")
				before := h.bytes
				if ok, _ := h.tryGrow(rapid.Int64Range(1, 600).Draw(t, "bytes")); !ok && h.bytes != before {
					t.Fatalf("refused, but %d more bytes are held", h.bytes-before)
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
				if got := as.memory.total.Load(); got != all || got > as.memory.limit {
					t.Fatalf("%d bytes are counted, %d are held, of at most %d", got, all, as.memory.limit)
				}
			},
		})
		for _, h := range holds {
			h.release()
		}
		for _, p := range owners {
			if n := as.accountOf(p).heldBytes.Load(); n != 0 {
				t.Fatalf("%s holds %d bytes in the end", p.ID, n)
			}
		}
	})
}

func BenchmarkHold(b *testing.B) {
	as := newAccounts()
	p := switchboard.Principal{Tenant: "acme", ID: "alice"}
	b.ReportAllocs()
	for b.Loop() {
		h := as.newHold(p)
		if ok, _ := h.tryGrow(1024); !ok {
			b.Fatal("refused")
		}
		h.release()
	}
}
