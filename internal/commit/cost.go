package commit

import (
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MetaCost is the key in the _meta of a server's result that states what the call has cost: {"amount":"0.0031"}. Only servers of
// tools with a reported price are asked for it. Clients never get it, because the gateway removes the keys of Switchboard that a
// server sets.
const MetaCost = wire.MetaOurPrefix + "cost"

// costWarnEvery is how often the log output says that a server states a cost that does not count.
const costWarnEvery = time.Minute

// costOf returns what the attempt has cost: what the server states, if its price is reported and the statement is valid; else the whole price.
func (k *Committer) costOf(a *chargedAttempt, r *switchboard.Result) switchboard.Micros {
	if a.charge == nil {
		return 0
	}
	cost, stated, why := statedCost(r, a.charge.Price)
	switch {
	case a.charge.Reported && why == "" && stated:
		return cost
	case a.charge.Reported && why == "":
		why = "it states none"
	case !a.charge.Reported && stated:
		why = "the price of the tool is not reported"
	case !a.charge.Reported:
		return a.charge.Price
	}
	now := time.Now().Unix()
	if last := k.costWarned.Load(); now >= last+int64(costWarnEvery.Seconds()) && k.costWarned.CompareAndSwap(last, now) {
		k.o.Log.Warn("what a server states as the cost of a call does not count: the whole price is settled", "call", a.Candidate().String(), "price", a.charge.Price, "why", why)
	}
	return a.charge.Price
}

// statedCost returns the cost that a result states, from 0 to most. stated says whether there is a statement; why, what is wrong with it.
func statedCost(r *switchboard.Result, most switchboard.Micros) (cost switchboard.Micros, stated bool, why string) {
	for name, value := range resultMembers(r) {
		if name != wire.MemberMeta {
			continue
		}
		for key, value := range wire.Members(value) {
			switch {
			case key != MetaCost:
				continue
			case stated:
				return 0, true, "it is stated twice"
			}
			stated = true
			if cost, why = readCost(value, most); why != "" {
				return 0, true, why
			}
		}
	}
	return cost, stated, ""
}

// readCost reads {"amount":"0.0031"}.
func readCost(value []byte, most switchboard.Micros) (cost switchboard.Micros, why string) {
	const form = `it is not in the form {"amount":"0.0031"}`
	if len(value) == 0 || value[0] != '{' {
		return 0, form
	}
	members := 0
	for name, value := range wire.Members(value) {
		text, ok := wire.String(value)
		if members++; members > 1 || name != "amount" || !ok {
			return 0, form
		}
		var err error
		if cost, err = switchboard.ParseMicros(text); err != nil {
			return 0, "its amount: " + err.Error()
		}
	}
	switch {
	case members == 0:
		return 0, form
	case cost > most:
		return 0, "it is more than the most that a call may cost"
	}
	return cost, ""
}

// resultMembers yields the members of a result that Switchboard reads.
func resultMembers(r *switchboard.Result) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		if r.Outline.End == 0 || r.Outline.Truncated {
			wire.Members(r.JSON)(yield)
			return
		}
		for _, m := range r.Outline.Members {
			if !yield(m.Name, r.JSON[m.Value:m.End]) {
				return
			}
		}
	}
}

// asksForInput reports whether the result only asks the client for more input.
func asksForInput(r *switchboard.Result) bool {
	asks := 0
	for name, value := range resultMembers(r) {
		if name != wire.MemberResultType {
			continue
		}
		if kind, ok := wire.String(value); !ok || kind != "input_required" {
			return false // also if another one of them says so
		}
		asks++
	}
	return asks > 0
}
