package pin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Servers returns the servers with a known offer, sorted.
func (b *Board) Servers() (ids []switchboard.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range b.servers {
		if s.last != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Verdicts returns what is decided about each definition that a server offers now, or that its replicas have reported, sorted by kind and name. Pins of definitions that
// the server does not offer come with the zero Verdict.Other.
func (b *Board) Verdicts(id switchboard.ServerID) []admission.PinVerdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[id]
	if s == nil {
		return nil
	}
	all := s.verdicts()
	slices.SortFunc(all, func(x, y admission.PinVerdict) int { return x.Key.Compare(y.Key) })
	return all
}

// Counts returns how many definitions each server offers in each of States. It waits for no store.
func (b *Board) Counts() map[switchboard.ServerID]map[string]int {
	b.changes.mu.Lock()
	defer b.changes.mu.Unlock()
	all := make(map[switchboard.ServerID]map[string]int, len(b.changes.servers))
	for id, s := range b.changes.servers {
		if s.counts != nil {
			all[id] = s.counts // which is never changed
		}
	}
	return all
}

// Uncleaned returns a definition as its server has sent it, if deceptive characters were removed from it; else nil.
func (b *Board) Uncleaned(id switchboard.PinID) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[id.Server]
	if s == nil || s.last == nil {
		return nil
	}
	switch o := &s.last.offer; id.Kind {
	case switchboard.PinTool:
		return o.Uncleaned[id.Name]
	case switchboard.PinPrompt:
		return o.UncleanedOthers[switchboard.SentKey(switchboard.Prompts, id.Name)]
	case switchboard.PinTemplate:
		return o.UncleanedOthers[switchboard.SentKey(switchboard.Templates, id.Name)]
	case switchboard.PinInstructions:
		return o.UncleanedOthers[switchboard.SentInstructions]
	}
	return nil
}

// verdicts returns the verdicts on the last offer. It judges the offer again if something has changed since.
func (s *pinnedServer) verdicts() (all []admission.PinVerdict) {
	switch {
	case s.last == nil:
	case !s.old:
		all = slices.Grow(slices.Clone(s.last.notes), len(s.pins.Pins))
	default:
		all = make([]admission.PinVerdict, 0, len(s.pins.Pins))
		admission.Judge(s.last.offer, s.pins, s.reports(), s.last.terms, now(), func(v admission.PinVerdict) { all = append(all, v) })
	}
	judged := make(map[admission.PinKey]bool, len(all))
	for i := range all {
		judged[all[i].Key] = true
	}
	for k, p := range s.pins.Pins {
		if !judged[k] {
			all = append(all, admission.PinVerdict{Key: k, State: p.State, Pin: p, Successor: p.Successor})
		}
	}
	return all
}

// verdict returns the verdict on one definition. ok is false if there is none.
func (s *pinnedServer) verdict(k admission.PinKey) (v admission.PinVerdict, ok bool) {
	for _, v := range s.verdicts() {
		if v.Key == k {
			return v, true
		}
	}
	return v, false
}

func (s *pinnedServer) reports() admission.Reports {
	return admission.Reports{Own: s.own, Others: s.merged, Handshakes: admission.MergeHandshakes(maps.Values(s.others)), Gone: s.gone}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// Decide changes the pin of a definition as next says, in the store. next gets what is decided now, and returns the new pin; it may be called again if another process
// changes the pins at the same time. known is false if there is neither an offer nor a pin of that name. Call Admit afterwards.
func (b *Board) Decide(ctx context.Context, id switchboard.PinID, next func(v admission.PinVerdict) (admission.Pin, error)) (known bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, k := b.servers[id.Server], admission.PinKey{Kind: id.Kind, Name: id.Name}
	if s == nil {
		return false, nil
	}
	for attempt := 1; ; attempt++ {
		v, ok := s.verdict(k)
		if !ok {
			return false, nil
		}
		p, err := next(v)
		if err != nil {
			return true, err
		}
		pins := &admission.ServerPins{Listed: s.pins.Listed, Met: s.pins.Met, Pins: maps.Clone(s.pins.Pins)}
		if pins.Pins == nil {
			pins.Pins = map[admission.PinKey]admission.Pin{}
		}
		pins.Pins[k] = p
		err = b.keep(ctx, id.Server, s, pins)
		if errors.Is(err, store.ErrConflict) && attempt < maxAttempts {
			if err = b.reread(ctx, id.Server, s); err == nil {
				continue
			}
		}
		s.old = true
		return true, err
	}
}
