package budget

import (
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Spending has what the calls of the last day and week have cost, by budget and by what each budget distinguishes. SumUp makes one.
type Spending struct {
	At    time.Time // the end of the day and the week
	Since time.Time // calls before it are not counted

	sums map[string]map[string]spentSums // by the name of the budget
}

type spentSums struct{ day, week int64 }

// SumUp sums up calls, which are complete back to since. The end of the day and the week is at.
func SumUp(budgets []*switchboard.Budget, taxonomy *switchboard.Taxonomy, calls []SpentCall, since, at time.Time) *Spending {
	s := &Spending{At: at, Since: since, sums: map[string]map[string]spentSums{}}
	for _, b := range budgets {
		sums := map[string]spentSums{}
		for i := range calls {
			one := &calls[i]
			if one.When.Before(at.Add(-week)) || !counts(b, one, taxonomy) {
				continue
			}
			amount := int64(one.Settled)
			if b.Calls {
				amount = 1
			}
			value := accountValue(b, one.call())
			sum := sums[value]
			sum.week = min(sum.week+amount, maxSum)
			if !one.When.Before(at.Add(-day)) {
				sum.day = min(sum.day+amount, maxSum)
			}
			sums[value] = sum
		}
		s.sums[b.Name()] = sums
	}
	return s
}

// of returns the sums of the budget.
func (s *Spending) of(b *switchboard.Budget) map[string]spentSums {
	if s == nil {
		return nil
	}
	return s.sums[b.Name()]
}

// covered returns how much of the last time is counted.
func (s *Spending) covered(last time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	return min(last, s.At.Sub(s.Since))
}
