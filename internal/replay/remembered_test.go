package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// countedReads counts the entries of receipts that are read.
type countedReads struct {
	*memoryRecords
	entries int
}

func (c *countedReads) Read(ctx context.Context, log string, after uint64, limit int) ([]store.Entry, error) {
	all, err := c.memoryRecords.Read(ctx, log, after, limit)
	if log == "receipts/t" {
		c.entries += len(all)
	}
	return all, err
}

// lateArchive is an archive whose texts come late.
type lateArchive struct {
	*memoryRecords
	late bool
}

func (a *lateArchive) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if a.late {
		return store.Value{}, nil
	}
	return a.memoryRecords.Value(ctx, k)
}

// configOfCounted returns a configuration whose rules hold for some principals, and offers for it.
func configOfCounted() (c *config.Config, offers []switchboard.Offer) {
	rapid.Custom(func(t *rapid.T) bool {
		c, offers = drawConfig(t), drawOffers(t)
		c.Policies = []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte(`package switchboard

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "odd" if {
	some c in input.candidate_tools
	to_number(input.principal.id) % 2 == 1
}

deny[c.id] contains "third" if {
	some c in input.candidate_tools
	to_number(input.principal.id) % 3 == 0
}
`)}}
		c.TenantPolicies = nil
		return true
	}).Example(1)
	return c, offers
}

// A count with a memory finds what a count of everything finds: after new decisions, after days that end, after receipts that are trimmed, and for another period.
func TestACountWithAMemoryFindsWhatACountOfEverythingFinds(t *testing.T) {
	c, offers := configOfCounted()
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			made := newState(t, c, offers)
			in := &countedReads{memoryRecords: newMemoryRecords(t)}
			var memory RuleMemory
			for step := range 12 {
				for range random.IntN(40) {
					who := switchboard.Principal{Tenant: "acme", ID: fmt.Sprint(random.IntN(15)), Auth: switchboard.AuthAPIKey}
					d, err := made.Tenants["acme"].RunPipeline(t.Context(), who, c.Tenants["acme"].Tasks["a"], decide.Observed{}, time.Now())
					if err != nil {
						t.Fatal(err)
					}
					was := in.recorder.Decision(made.Tenants["acme"], d, nil)()
					in.chain.Add(&receipt.Receipt{Kind: receipt.Decision, Tenant: "acme", Decision: was.Decision, Basis: was.Basis}) // as another replica does on the same day
				}
				time.Sleep(time.Second) // until the receipts are written
				in.recorder.Settle(t.Context())
				synctest.Wait()
				since := time.Now().Add(-[]time.Duration{48 * time.Hour, 48 * time.Hour, time.Hour}[random.IntN(3)])
				if step == 8 {
					since = memory.since
					span, err := in.Span(t.Context(), "receipts/t")
					if err == nil {
						err = in.Trim(t.Context(), "receipts/t", (span.First+span.Last)/2)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				s := Bounds{Tenant: "acme", Since: since}
				got, err := NewDecisionOpener(in).CountRules(t.Context(), s, &memory)
				want, err2 := NewDecisionOpener(in).CountRules(t.Context(), s, &RuleMemory{})
				if err != nil || err2 != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d: %+v %v, looked %+v\nwant %+v %v, looked %+v", seed, step, got, err, got.Looked, want, err2, want.Looked)
				}
				in.entries = 0
				if again, err := NewDecisionOpener(in).CountRules(t.Context(), s, &memory); err != nil || !reflect.DeepEqual(again, want) || in.entries > 0 {
					t.Fatalf("seed %d, step %d, again, with %d entries read: %+v %v", seed, step, in.entries, again, err)
				}
				time.Sleep(time.Duration(random.IntN(9)) * time.Hour)
			}
			in.readAll(t)
			time.Sleep(time.Minute) // the goroutines of the policies' engine end
		})
	}
}

// A decision whose texts are archived later than its receipt is written counts as soon as they are there.
func TestARememberedDecisionThatCouldNotBeReplayedIsTriedAgain(t *testing.T) {
	c, offers := configOfCounted()
	made := newState(t, c, offers)
	in := newMemoryRecords(t)
	d, err := made.Tenants["acme"].RunPipeline(t.Context(), switchboard.Principal{Tenant: "acme", ID: "1", Auth: switchboard.AuthAPIKey}, c.Tenants["acme"].Tasks["a"], decide.Observed{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	in.recorder.Decision(made.Tenants["acme"], d, nil)()
	in.readAll(t)
	late := &lateArchive{memoryRecords: in, late: true}
	var memory RuleMemory
	s := Bounds{Tenant: "acme", Since: time.Now().Add(-time.Hour)}
	if found, err := NewDecisionOpener(late).CountRules(t.Context(), s, &memory); err != nil || len(found.Fired) > 0 || len(found.NotReplayed) != 1 {
		t.Errorf("without the texts: %+v %v", found, err)
	}
	late.late = false
	if found, err := NewDecisionOpener(late).CountRules(t.Context(), s, &memory); err != nil || len(found.Fired) == 0 || len(found.NotReplayed) > 0 {
		t.Errorf("with the texts: %+v %v", found, err)
	}
}
