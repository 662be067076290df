package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// settleExpired settles what expired holds have held, and deletes accounts that are over.
func (g *memoryGroup) settleExpired(now time.Time) {
	if now.UnixMicro() < g.nextEnd {
		return
	}
	g.nextEnd = endsNever
	for id, h := range g.holds {
		if !now.Before(h.Expires) {
			for _, a := range h.Amounts {
				g.accounts[a.Account] = g.accounts[a.Account].settle(a.Amount, a.Amount)
			}
			delete(g.holds, id)
			continue
		}
		g.nextEnd = min(g.nextEnd, h.Expires.UnixMicro())
	}
	for name, a := range g.accounts {
		if a.isOver(now.UnixMicro()) {
			delete(g.accounts, name)
		} else if a.held == 0 {
			g.nextEnd = min(g.nextEnd, a.ends)
		}
	}
}

// Hold implements Store.
func (m *Memory) Hold(ctx context.Context, group, id string, terms HoldTerms, accounts ...Account) (sums []AccountState, held bool, err error) {
	if err := cmp.Or(checkHold(group, id, terms, accounts), terms.checkJoined()); err != nil {
		return nil, false, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer done()
	now := time.Now()
	g := m.groupForWrite(group, now)
	g.settleExpired(now)
	states := make([]accountState, len(accounts))
	for i, a := range accounts {
		states[i] = g.accounts[a.Name].at(now.UnixMicro())
	}
	if _, held = g.holds[id]; !held {
		if states, held, err = holdInAccounts(states, accounts, now.UnixMicro()); err != nil {
			return nil, false, err
		}
		if held && terms.With != nil {
			if terms.With.Made, err = m.change(&terms.With.Change, now); err != nil {
				return nil, false, err
			}
			g = m.groupForWrite(group, now) // change may have swept the empty group away
		}
		if held {
			g.holds[id] = HoldState{Expires: now.Add(terms.TTL), Amounts: heldAmounts(accounts)}
			g.nextEnd = min(g.nextEnd, now.Add(terms.TTL).UnixMicro())
			for i, a := range accounts {
				g.accounts[a.Name] = states[i]
				g.nextEnd = min(g.nextEnd, states[i].ends)
			}
		}
	}
	return namedStates(states, accounts), held, nil
}

// Settle implements Store.
func (m *Memory) Settle(ctx context.Context, group string, settlements ...Settlement) ([]bool, error) {
	if err := checkSettle(group, settlements); err != nil {
		return nil, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	settled := make([]bool, len(settlements))
	g := m.groups[group]
	if g == nil {
		return settled, nil
	}
	now := time.Now()
	g.settleExpired(now)
	for i, s := range settlements {
		if h := g.holds[s.ID]; len(h.Amounts) > 0 {
			if err := s.check(h.Amounts); err != nil {
				return nil, err
			}
			settled[i] = true
		}
	}
	for i, s := range settlements {
		if !settled[i] {
			continue
		}
		h := g.holds[s.ID]
		for n, a := range h.Amounts {
			state := g.accounts[a.Account].settle(a.Amount, s.Amounts[n])
			g.accounts[a.Account] = state
			g.nextEnd = min(g.nextEnd, state.ends)
		}
		g.holds[s.ID] = HoldState{Expires: h.Expires}
	}
	g.settleExpired(now)
	return settled, nil
}

// Accounts implements Store.
func (m *Memory) Accounts(ctx context.Context, group string, names ...string) ([]AccountState, error) {
	if err := checkAccounts(group, names); err != nil {
		return nil, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	g := m.groups[group]
	if g == nil {
		return nil, nil
	}
	now := time.Now()
	g.settleExpired(now)
	accounts := g.accounts
	if len(names) > 0 {
		accounts = make(map[string]accountState, len(names))
		for _, name := range names {
			accounts[name] = g.accounts[name]
		}
	}
	return listAccounts(accounts, nil, now.UnixMicro()), nil
}

// dumpAccounts returns the holds and the accounts of all groups at now. The caller holds m.mu.
func (m *Memory) dumpAccounts(now time.Time) (all []Record) {
	groups := slices.Sorted(maps.Keys(m.groups))
	for _, group := range groups {
		g := m.groups[group]
		g.settleExpired(now)
		for _, id := range slices.Sorted(maps.Keys(g.holds)) {
			all = append(all, Record{Kind: KindHold, Group: group, Name: id, Hold: g.holds[id]})
		}
	}
	for _, group := range groups {
		g := m.groups[group]
		for _, name := range slices.Sorted(maps.Keys(g.accounts)) {
			all = append(all, Record{Kind: KindAccount, Group: group, Name: name, Account: g.accounts[name].named(name)})
		}
	}
	return all
}
