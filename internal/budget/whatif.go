package budget

import (
	"cmp"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A RefusalForecast says which recorded calls a budget would have refused.
type RefusalForecast struct {
	Tenant     switchboard.TenantID     `json:"tenant"`
	Limit      string                   `json:"limit"`
	Unit       string                   `json:"unit,omitempty"`
	Window     switchboard.BudgetWindow `json:"window"`
	Per        switchboard.BudgetPer    `json:"per"`
	LookedBack time.Time                `json:"looked_back_to"` // calls since then were looked at
	Complete   bool                     `json:"complete"`       // there were no more to look at
	Calls      int                      `json:"calls"`          // that were made
	Counted    int                      `json:"counted"`        // of these, that the budget counts
	Spent      string                   `json:"spent"`          // what the counted calls have cost
	Refused    int                      `json:"refused"`        // of the counted calls
	Saved      string                   `json:"saved"`          // what the refused calls have cost
	First      time.Time                `json:"first,omitzero"` // when the first one would have been refused
	By         []ForecastRow            `json:"by"`             // the most refused first
	More       int                      `json:"more,omitempty"` // rows that are left out
}

// A ForecastRow counts refused calls of one kind.
type ForecastRow struct {
	Tool      string             `json:"tool"`
	Principal string             `json:"principal"`
	Task      switchboard.TaskID `json:"task"`
	Refused   int                `json:"refused"`
	First     time.Time          `json:"first"`
}

// maxSum is the largest sum of a forecast. More cannot be shown.
const maxSum = 1 << 60

// maxForecastRows limits RefusalForecast.By.
const maxForecastRows = 100

// Forecast says which of the calls the budget would have refused. The calls are sorted by time, the oldest first. Each counts when it
// was made, with what it was settled to: calls that overlapped in time are taken as if one had followed the other.
func Forecast(b *switchboard.Budget, calls []SpentCall, taxonomy *switchboard.Taxonomy) *RefusalForecast {
	f := &RefusalForecast{Calls: len(calls), Window: b.Window, Per: b.Per, Limit: Amount(b, b.Limit), By: []ForecastRow{}}
	f.Per = cmp.Or(f.Per, switchboard.PerTenant)
	used := map[string]int64{} // by account
	type kind struct {
		tool, principal string
		task            switchboard.TaskID
	}
	rows := map[kind]*ForecastRow{}
	var spent, saved int64
	for i := range calls {
		one := &calls[i]
		if !counts(b, one, taxonomy) {
			continue
		}
		f.Counted++
		account := accountName(b, WindowAt(b.Window, b.Location, one.When), accountValue(b, one.call()))
		held, settled := int64(one.Held), int64(one.Settled)
		if b.Calls {
			held, settled = 1, 1
		}
		spent = min(spent+settled, maxSum)
		if used[account]+held <= b.Limit {
			used[account] += settled
			continue
		}
		f.Refused++
		saved = min(saved+settled, maxSum)
		if f.First.IsZero() {
			f.First = one.When
		}
		k := kind{one.Tool.ID.String(), one.Principal, one.Task}
		if rows[k] == nil {
			rows[k] = &ForecastRow{k.tool, k.principal, k.task, 0, one.When}
		}
		rows[k].Refused++
	}
	f.Spent, f.Saved = Amount(b, spent), Amount(b, saved)
	for _, r := range rows {
		f.By = append(f.By, *r)
	}
	slices.SortFunc(f.By, func(a, b ForecastRow) int {
		return cmp.Or(b.Refused-a.Refused, cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Task, b.Task))
	})
	if f.More = len(f.By) - maxForecastRows; f.More > 0 {
		f.By = f.By[:maxForecastRows]
	}
	f.More = max(0, f.More)
	return f
}
