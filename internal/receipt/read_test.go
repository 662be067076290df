package receipt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// twoChains returns a store with the chains of two replicas, which write in turn: one receipt a
// minute, n in all.
func twoChains(t *testing.T, n int) (s *store.Memory, began time.Time) {
	t.Helper()
	s = store.NewMemory()
	books := make([]*receipt.Chain, 2)
	for i := range books {
		o := options()
		o.Node = fmt.Sprint("n", i+1)
		books[i] = openBook(t, s, o)
	}
	time.Sleep(time.Second)
	began = time.Now()
	for i := range n {
		r := &receipt.Receipt{Kind: receipt.Call, Tenant: "acme", Task: "work", Server: "notes", Tool: fmt.Sprint("tool", i), Outcome: receipt.OK}
		if i%2 == 1 {
			r.Tenant, r.Task, r.Server, r.Outcome, r.Code = "umbra", "play", "web", receipt.Refused, switchboard.CodeDenied
		}
		books[i%3/2].Add(r)
		time.Sleep(time.Minute)
	}
	for _, b := range books {
		shut(t, b)
	}
	return s, began
}

func list(t *testing.T, s receipt.ChainReader, q receipt.Query) (tools []string) {
	t.Helper()
	for e, err := range receipt.List(t.Context(), s, q) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Receipt.Tool != "" {
			tools = append(tools, e.Receipt.Tool)
		}
	}
	return tools
}

func TestReceiptsOfAllNodesAreListedByTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1600 // more than a page in each chain
		s, began := twoChains(t, n)
		want := func(from, to int) (tools []string) {
			for i := from; i < to; i++ {
				tools = append(tools, fmt.Sprint("tool", i))
			}
			return tools
		}
		after := func(i int) time.Time { return began.Add(time.Duration(i) * time.Minute) }
		for name, tt := range map[string]struct {
			q        receipt.Query
			from, to int
		}{
			"all":            {receipt.Query{}, 0, n},
			"since":          {receipt.Query{Since: after(700)}, 700, n},
			"until":          {receipt.Query{Until: after(700)}, 0, 700},
			"between":        {receipt.Query{Since: after(700), Until: after(1300)}, 700, 1300},
			"none":           {receipt.Query{Since: after(n)}, n, n},
			"none before":    {receipt.Query{Until: after(0)}, 0, 0},
			"since ever":     {receipt.Query{Since: after(-n)}, 0, n},
			"one":            {receipt.Query{Since: after(700), Until: after(701)}, 700, 701},
			"between points": {receipt.Query{Since: after(700).Add(-time.Second), Until: after(701).Add(-time.Second)}, 700, 701},
		} {
			expected := want(tt.from, tt.to)
			if got := list(t, s, tt.q); !slices.Equal(got, expected) {
				t.Errorf("%s: %d receipts from %.1q", name, len(got), got)
			}
			tt.q.NewestFirst = true
			slices.Reverse(expected)
			if got := list(t, s, tt.q); !slices.Equal(got, expected) {
				t.Errorf("%s, newest first: %d receipts from %.1q", name, len(got), got)
			}
		}
		count := 0
		for _, err := range receipt.List(t.Context(), s, receipt.Query{}) {
			if count++; err != nil || count == 3 {
				break
			}
		}
		if count != 3 {
			t.Errorf("it yields %d receipts, or ends with an error", count)
		}
	})
}

func TestReceiptsAreSelectedByTheirMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := twoChains(t, 6)
		for want, queries := range map[string][]receipt.Query{
			"[tool0 tool2 tool4]": {
				{Tenant: "acme"}, {Task: "work"}, {Outcome: receipt.OK}, {Tool: "notes/*"},
			},
			"[tool1 tool3 tool5]":                   {{Tenant: "umbra"}, {Code: switchboard.CodeDenied}},
			"[tool2 tool5]":                         {{Node: "n2"}},
			"[tool3]":                               {{Tool: "tool3"}, {Tool: "web/tool3"}, {Tool: "*3", Tenant: "umbra"}},
			"[]":                                    {{Tool: "tool3", Tenant: "acme"}, {Node: "n3"}, {Kind: receipt.Admin}},
			"[tool0 tool1 tool2 tool3 tool4 tool5]": {{Kind: receipt.Call}, {Tool: "*"}},
		} {
			for _, q := range queries {
				if got := fmt.Sprint(list(t, s, q)); got != want {
					t.Errorf("%+v: got %s, want %s", q, got, want)
				}
			}
		}
	})
}

func TestAReceiptIsFoundByItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := twoChains(t, 3)
		e, err := receipt.Find(t.Context(), s, "n2/3")
		if err != nil || e.ID() != "n2/3" || e.Receipt.Tool != "tool2" {
			t.Errorf("%+v, %v", e, err)
		}
		for _, id := range []string{"n2/99", "n3/1"} {
			if _, err := receipt.Find(t.Context(), s, id); !errors.Is(err, receipt.ErrNotFound) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if _, err := receipt.Find(t.Context(), s, "n2"); err == nil {
			t.Error("n2 is an id")
		}
	})
}

func TestAnUnreadableEntryIsListedAtItsPosition(t *testing.T) {
	good, _ := chainOf(t, keyA, 5)
	good[4] = []byte("spoilt") // in the middle, where a binary search looks first
	s := rewritten(t, good)
	for _, q := range []receipt.Query{{Tenant: "none"}, {NewestFirst: true, Tenant: "none"}, {Since: time.Now()}} {
		n := 0
		for e, err := range receipt.List(t.Context(), s, q) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Fault == nil || e.ID() != "n1/5" || string(e.Raw) != "spoilt" {
				t.Errorf("%+v", e)
			}
			n++
		}
		if n != 1 {
			t.Errorf("it is shown %d times", n)
		}
	}
}

func TestFollowYieldsNewReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := twoChains(t, 4)
		follow := func(q receipt.Query) (got *[]string) {
			got = new([]string)
			go func() {
				for e, err := range receipt.Follow(t.Context(), s, q, time.Second) {
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					if e.Receipt.Tool != "" {
						*got = append(*got, e.Receipt.Tool)
					}
				}
			}()
			return got
		}
		now, old := follow(receipt.Query{}), follow(receipt.Query{Since: began.Add(2 * time.Minute)})
		time.Sleep(10 * time.Second)
		o := options()
		o.Node = "n3" // a new replica
		b := openBook(t, s, o)
		b.Add(&receipt.Receipt{Kind: receipt.Call, Tool: "new"})
		time.Sleep(10 * time.Second)
		b.Add(&receipt.Receipt{Kind: receipt.Call, Tool: "newer"})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !slices.Equal(*now, []string{"new", "newer"}) {
			t.Errorf("got %q", *now)
		}
		if !slices.Equal(*old, []string{"tool2", "tool3", "new", "newer"}) {
			t.Errorf("got %q", *old)
		}
		shut(t, b)
	})
}
