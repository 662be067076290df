package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
)

// A model is the contract, in maps. Values and limits do not expire during the test.
type model struct {
	values map[string]map[string]named // by group
	taken  map[string]map[string]int
	logs   map[string]*modelLog
	groups map[string]*modelAccounts
	was    map[store.Version]bool // all versions so far
}

type named struct {
	data    string
	version store.Version
}

type modelLog struct {
	first   uint64
	entries []string // all entries so far
}

func TestEachBackendEqualsTheModel(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) { againstTheModel(t, r, b) })
		})
	}
}

// againstTheModel runs random actions on an empty store and on the model.
func againstTheModel(t *testing.T, r *rapid.T, b backend) {
	open := b.newStore(t)
	s := open()
	defer func() { _ = s.Close() }()
	m := model{map[string]map[string]named{}, map[string]map[string]int{}, map[string]*modelLog{}, map[string]*modelAccounts{}, map[store.Version]bool{}}
	for _, g := range []string{"g", "G", "g\x00n"} {
		m.groups[g] = &modelAccounts{map[string][2]int64{}, map[string][]store.Account{}}
	}
	ctx := t.Context()
	group := rapid.SampledFrom([]string{"g", "G", "g\x00n"})
	name := rapid.SampledFrom([]string{"a", "b", "n", "é"})
	text := rapid.StringN(0, 5, 20)
	log := rapid.SampledFrom([]string{"l", "m", "%"})

	actions := map[string]func(*rapid.T){
		"Apply": func(r *rapid.T) {
			g := group.Draw(r, "group")
			c := store.Change{Group: g, Durable: rapid.Bool().Draw(r, "durable")}
			fits := true
			for _, n := range rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(r, "names") {
				now := m.values[g][n].version
				w := store.Write{Name: n, Was: rapid.SampledFrom([]store.Version{now, now, now, store.Any, 0, 1}).Draw(r, "was")}
				if rapid.IntRange(0, 3).Draw(r, "deletes") > 0 {
					w.Data = []byte(text.Draw(r, "data"))
					w.TTL = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(r, "ttl")
				}
				fits = fits && (w.Was == store.Any || w.Was == now)
				c.Writes = append(c.Writes, w)
			}
			v, err := s.Apply(ctx, c)
			if !fits {
				if !errors.Is(err, store.ErrConflict) {
					r.Fatalf("Apply = %v, want ErrConflict", err)
				}
				return
			}
			if err != nil || m.was[v] || v == 0 || v == store.Any {
				r.Fatalf("Apply = %d, %v; was it there before: %v", v, err, m.was[v])
			}
			m.was[v] = true
			for _, w := range c.Writes {
				if m.values[g] == nil {
					m.values[g] = map[string]named{}
				}
				if delete(m.values[g], w.Name); w.Data != nil {
					m.values[g][w.Name] = named{string(w.Data), v}
				}
			}
		},
		"Take": func(r *rapid.T) {
			g := group.Draw(r, "group")
			w := store.Want{Now: rapid.IntRange(1, 3).Draw(r, "now"), Ahead: rapid.IntRange(0, 4).Draw(r, "ahead"), Hold: time.Minute}
			now, ahead := w.Now, w.Ahead
			var of []store.Limit
			for _, n := range rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(r, "names") {
				l := store.Limit{Name: n, Every: 24 * time.Hour, Burst: 3*len(n) + 4}
				of = append(of, l)
				now = min(now, l.Burst-m.taken[g][n])
				ahead = max(0, min(ahead, l.Burst/2-m.taken[g][n]-w.Now))
			}
			if now < w.Now {
				ahead = 0
			}
			got, wait, err := s.Take(ctx, g, w, of...)
			if err != nil || got != now+ahead || (wait == 0) != (now == w.Now) {
				r.Fatalf("Take %+v = %d, %s, %v; want %d and %d", w, got, wait, err, now, ahead)
			}
			if m.taken[g] == nil {
				m.taken[g] = map[string]int{}
			}
			for _, l := range of {
				m.taken[g][l.Name] += got
			}
		},
		"Append": func(r *rapid.T) {
			n := log.Draw(r, "log")
			l := m.logs[n]
			if l == nil {
				l = &modelLog{first: 1}
			}
			last := uint64(len(l.entries))
			after := rapid.SampledFrom([]uint64{last, last, last, 0, last + 1}).Draw(r, "after")
			entries := rapid.SliceOfN(text, 1, 5).Draw(r, "entries")
			var all [][]byte
			for _, e := range entries {
				all = append(all, []byte(e))
			}
			err := s.Append(ctx, n, after, all...)
			if after != last {
				if !errors.Is(err, store.ErrConflict) {
					r.Fatalf("Append = %v, want ErrConflict", err)
				}
				return
			}
			if err != nil {
				r.Fatal(err)
			}
			l.entries = append(l.entries, entries...)
			m.logs[n] = l
		},
		"Trim": func(r *rapid.T) {
			n := log.Draw(r, "log")
			first := rapid.Uint64Range(0, 12).Draw(r, "first")
			if err := s.Trim(ctx, n, first); err != nil {
				r.Fatal(err)
			}
			if l := m.logs[n]; l != nil {
				l.first = max(l.first, min(first, uint64(len(l.entries))+1))
			}
		},
		"Read": func(r *rapid.T) {
			n := log.Draw(r, "log")
			after, limit := rapid.Uint64Range(0, 12).Draw(r, "after"), rapid.IntRange(0, 6).Draw(r, "limit")
			got, err := s.Read(ctx, n, after, limit)
			if err != nil {
				r.Fatal(err)
			}
			var want []store.Entry
			if l := m.logs[n]; l != nil {
				for seq := max(after+1, l.first); seq <= uint64(len(l.entries)) && len(want) < limit; seq++ {
					want = append(want, store.Entry{Seq: seq, Data: []byte(l.entries[seq-1])})
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				r.Fatalf("Read = %v, want %v", got, want)
			}
		},
		"List": func(r *rapid.T) { m.list(r, s, group.Draw(r, "group")) },
		"Value": func(r *rapid.T) {
			g, n := group.Draw(r, "group"), name.Draw(r, "name")
			v, err := s.Value(ctx, store.Key{Group: g, Name: n})
			if want := m.values[g][n]; err != nil || v.Version != want.version || string(v.Data) != want.data {
				r.Fatalf("Value(%q, %s) = %+v, %v; want %+v", g, n, v, err, want)
			}
		},
		"Span": func(r *rapid.T) { m.span(r, s, log.Draw(r, "log")) },
		"Hold": func(r *rapid.T) {
			g := group.Draw(r, "group")
			var of []store.Account
			for _, n := range rapid.SliceOfNDistinct(name, 1, 3, rapid.ID).Draw(r, "names") {
				a := account(n, rapid.Int64Range(5, 20).Draw(r, "max"), rapid.Int64Range(0, 6).Draw(r, "amount"))
				a.Ends = rapid.SampledFrom([]time.Time{{}, time.Now().Add(time.Hour)}).Draw(r, "ends")
				of = append(of, a)
			}
			id, expires := text.Draw(r, "id")+"!", rapid.IntRange(0, 3).Draw(r, "expires") == 0
			ttl := time.Hour
			if expires {
				ttl = time.Microsecond
			}
			_, held, err := s.Hold(ctx, g, id, store.HoldTerms{TTL: ttl}, of...)
			if want := m.groups[g].hold(id, of); err != nil || held != want {
				r.Fatalf("Hold = %v, %v; want %v", held, err, want)
			}
			if expires {
				after(10 * time.Microsecond)
				m.groups[g].expire(id, of)
			}
		},
		"Settle": func(r *rapid.T) {
			g := group.Draw(r, "group")
			ids := []string{"!"}
			for id := range m.groups[g].holds {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			var all []store.Settlement
			for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, len(ids), rapid.ID).Draw(r, "ids") {
				settlement := store.Settlement{ID: id}
				for _, a := range m.groups[g].holds[id] {
					settlement.Amounts = append(settlement.Amounts, min(a.Amount+1, rapid.Int64Range(0, 20).Draw(r, "amount"))) // sometimes too much
				}
				all = append(all, settlement)
			}
			want, valid := m.groups[g].settle(all)
			settled, err := s.Settle(ctx, g, all...)
			if errors.Is(err, store.ErrInvalid) == valid || valid && (err != nil || !slices.Equal(settled, want)) {
				r.Fatalf("Settle = %v, %v; want %v, valid: %v", settled, err, want, valid)
			}
		},
		"Accounts": func(r *rapid.T) { m.accounts(r, s, group.Draw(r, "group")) },
	}
	if b.persistent {
		actions["Reopen"] = func(r *rapid.T) {
			if err := s.Close(); err != nil {
				r.Fatal(err)
			}
			s = open()
		}
	}
	r.Repeat(actions)
	for _, g := range []string{"g", "G", "g\x00n"} {
		m.list(r, s, g)
		m.accounts(r, s, g)
	}
	logs, err := s.Logs(ctx)
	if want := slices.Sorted(maps.Keys(m.logs)); err != nil || strings.Join(logs, " ") != strings.Join(want, " ") {
		r.Fatalf("Logs = %q, %v; want %q", logs, err, want)
	}
	for n := range m.logs {
		m.span(r, s, n)
	}
}

func (m *model) list(r *rapid.T, s store.Store, group string) {
	all, err := s.List(context.Background(), group)
	if err != nil {
		r.Fatal(err)
	}
	got := map[string]named{}
	for _, n := range all {
		got[n.Name] = named{string(n.Data), n.Version}
	}
	if !maps.Equal(got, m.values[group]) {
		r.Fatalf("List(%q) = %v, want %v", group, got, m.values[group])
	}
}

func (m *model) span(r *rapid.T, s store.Store, log string) {
	want := store.Span{First: 1, Last: 0}
	if l := m.logs[log]; l != nil {
		want = store.Span{First: l.first, Last: uint64(len(l.entries))}
	}
	if got, err := s.Span(context.Background(), log); err != nil || got != want {
		r.Fatalf("Span(%s) = %v, %v; want %v", log, got, err, want)
	}
}

// modelAccounts are the accounts of a group, each with its settled and its held amount, and its holds. A settled hold has no accounts.
type modelAccounts struct {
	sums  map[string][2]int64
	holds map[string][]store.Account
}

func (m *modelAccounts) hold(id string, of []store.Account) bool {
	if _, known := m.holds[id]; known {
		return true
	}
	for _, a := range of {
		if m.sums[a.Name][0]+m.sums[a.Name][1]+a.Amount > a.Max {
			return false
		}
	}
	for _, a := range of {
		m.sums[a.Name] = [2]int64{m.sums[a.Name][0], m.sums[a.Name][1] + a.Amount}
	}
	m.holds[id] = of
	return true
}

// expire ends the hold if it was made with these accounts.
func (m *modelAccounts) expire(id string, of []store.Account) {
	if held := m.holds[id]; len(held) > 0 && &held[0] == &of[0] {
		for _, a := range of {
			m.sums[a.Name] = [2]int64{m.sums[a.Name][0] + a.Amount, m.sums[a.Name][1] - a.Amount}
		}
		delete(m.holds, id)
	}
}

func (m *modelAccounts) settle(all []store.Settlement) (settled []bool, valid bool) {
	for _, s := range all {
		for i, a := range m.holds[s.ID] {
			if s.Amounts[i] > a.Amount {
				return nil, false
			}
		}
	}
	for _, s := range all {
		for i, a := range m.holds[s.ID] {
			m.sums[a.Name] = [2]int64{m.sums[a.Name][0] + s.Amounts[i], m.sums[a.Name][1] - a.Amount}
		}
		settled = append(settled, len(m.holds[s.ID]) > 0)
		if _, known := m.holds[s.ID]; known {
			m.holds[s.ID] = nil
		}
	}
	return settled, true
}

func (m *model) accounts(r *rapid.T, s store.Store, group string) {
	all, err := s.Accounts(context.Background(), group)
	if err != nil {
		r.Fatal(err)
	}
	got := map[string][2]int64{}
	for _, a := range all {
		got[a.Name] = [2]int64{a.Settled, a.Held}
	}
	if !maps.Equal(got, m.groups[group].sums) {
		r.Fatalf("Accounts(%q) = %v, want %v", group, got, m.groups[group].sums)
	}
}
