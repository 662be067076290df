package slot

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A gateModel counts the calls at a gate as the test sees them.
type gateModel struct {
	g       *Gate
	inside  []CallKey
	waiting []*Turn
}

func (c *gateModel) has(in func(CallKey) bool) (n int) {
	for _, who := range c.inside {
		if in(who) {
			n++
		}
	}
	return n
}

func (c *gateModel) of(t switchboard.TenantID) int {
	return c.has(func(who CallKey) bool { return who.Tenant == t })
}

// settle moves admitted calls from waiting to in flight.
func (c *gateModel) settle() (came []*Turn) {
	waiting := c.waiting[:0:0]
	for _, t := range c.waiting {
		select {
		case <-t.admitted:
			came = append(came, t)
			c.inside = append(c.inside, t.queue.caller)
		default:
			waiting = append(waiting, t)
		}
	}
	c.waiting = waiting
	return came
}

// RX-10: for any calls in any order.
func TestAttack8NoTenantAndNoPrincipalEverHasMoreThanHalfOfTheCallsAtAServer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most, room := rapid.IntRange(1, 20).Draw(t, "most"), rapid.IntRange(0, 10).Draw(t, "room")
		c := &gateModel{g: &Gate{}}
		c.g.SetLimits(most, room)
		someone := rapid.Custom(func(t *rapid.T) CallKey {
			tenant := rapid.SampledFrom([]switchboard.TenantID{"a", "b", "c"}).Draw(t, "tenant")
			principal := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "principal")
			return CallKey{tenant, principal, Neighbors{Tenants: true, Principals: true}}
		})
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				who := someone.Draw(t, "who")
				turn, err := c.g.Enter(who, rapid.Bool().Draw(t, "waits"))
				if c.of(who.Tenant) == 0 && len(c.inside) < most && (turn != nil || err != nil) {
					t.Fatalf("the only call of %v got no slot, with %d of %d taken", who, len(c.inside), most)
				}
				switch {
				case turn != nil:
					c.waiting = append(c.waiting, turn)
				case err == nil:
					c.inside = append(c.inside, who)
				}
			},
			"leave": func(t *rapid.T) {
				if len(c.inside) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(c.inside)-1).Draw(t, "call")
				who := c.inside[i]
				c.inside = append(c.inside[:i], c.inside[i+1:]...)
				before := map[switchboard.TenantID]int{"a": c.of("a"), "b": c.of("b"), "c": c.of("c")}
				c.g.Leave(who)
				for _, came := range c.settle() {
					for _, still := range c.waiting {
						if mine, theirs := before[came.queue.caller.Tenant], before[still.queue.caller.Tenant]; theirs == 0 && mine > 0 {
							t.Errorf("a call of a tenant with %d in flight got a slot, and one of a tenant with none waits", mine)
						}
					}
				}
			},
			"give up": func(t *rapid.T) {
				if len(c.waiting) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(c.waiting)-1).Draw(t, "call")
				if err := c.g.WaitTurn(t.Context(), c.waiting[i], 0); err == nil {
					t.Fatal("it got a slot, though none was released")
				}
				c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
				c.settle()
			},
			"": func(t *rapid.T) {
				if len(c.inside) > most || len(c.inside) != c.g.inside || len(c.waiting) != c.g.Waiting() {
					t.Fatalf("%d in flight, %d wait; the gate has %d and %d, of at most %d", len(c.inside), len(c.waiting), c.g.inside, c.g.Waiting(), most)
				}
				half := max(1, most/2)
				for _, who := range c.inside {
					all, own := c.of(who.Tenant), c.has(func(other CallKey) bool { return other == who })
					if all > half || own > half {
						t.Fatalf("%v has %d of %d calls, and its tenant has %d", who, own, most, all)
					}
				}
				for _, w := range c.waiting {
					if c.g.mayEnter(w.queue.caller) {
						t.Fatalf("%v waits, though there is a slot for it", w.queue.caller)
					}
				}
			},
		})
	})
}

func TestAttack8EachLeavesAsManyPlacesAsItTakes(t *testing.T) {
	t.Parallel()
	both := Neighbors{Tenants: true, Principals: true}
	for _, tt := range []struct {
		most    int
		callers []CallKey // each makes more calls than there are slots
		want    []int
	}{
		{256, []CallKey{{Tenant: "alone"}}, []int{256}},
		{256, []CallKey{{"a", "x", Neighbors{Tenants: true}}, {"b", "y", Neighbors{Tenants: true}}, {"c", "z", Neighbors{Tenants: true}}}, []int{128, 64, 32}},
		{256, []CallKey{{"a", "x", Neighbors{Principals: true}}, {"a", "y", Neighbors{Principals: true}}}, []int{128, 64}},
		{256, []CallKey{{"a", "x", both}, {"a", "y", both}, {"b", "z", both}}, []int{85, 28, 47}},
		{1, []CallKey{{"a", "x", both}, {"b", "y", both}}, []int{1, 0}},
		{2, []CallKey{{"a", "x", both}, {"b", "y", both}}, []int{1, 1}},
		{3, []CallKey{{"a", "x", both}, {"b", "y", both}, {"c", "z", both}}, []int{1, 1, 1}},
	} {
		g := &Gate{}
		g.SetLimits(tt.most, 0)
		got := make([]int, len(tt.callers))
		for i, c := range tt.callers {
			for range tt.most {
				if _, err := g.Enter(c, true); err == nil {
					got[i]++
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("with %d slots, %v have %v, want %v", tt.most, tt.callers, got, tt.want)
		}
	}
}

func BenchmarkGate(b *testing.B) {
	for name, among := range map[string]Neighbors{"alone": {}, "tenants": {Tenants: true}, "tenants and principals": {Tenants: true, Principals: true}} {
		b.Run(name, func(b *testing.B) {
			g := &Gate{}
			g.SetLimits(256, 0)
			c := CallKey{"acme", "alice", among}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Enter(c, false); err != nil {
					b.Fatal(err)
				}
				g.Leave(c)
			}
		})
	}
}
