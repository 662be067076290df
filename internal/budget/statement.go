package budget

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SpentCall is a call that was made, as budgets count it.
type SpentCall struct {
	When      time.Time
	Tool      *switchboard.Tool // as it is now; only with its ID if it is not offered any more
	Principal string
	Task      switchboard.TaskID
	Run       switchboard.RunID

	Held, Settled switchboard.Micros
}

// call returns the call as budgets distinguish calls.
func (s *SpentCall) call() *switchboard.Call {
	return &switchboard.Call{Principal: switchboard.Principal{ID: s.Principal}, Task: s.Task, Run: s.Run, Tool: s.Tool}
}

// A StatementRow is the state of one account of a budget, in the window of the moment. Amounts are texts: amounts of money as
// ParseMicros reads them, or numbers of calls.
type StatementRow struct {
	Tenant switchboard.TenantID     `json:"tenant"`
	Budget string                   `json:"budget"` // its name
	At     string                   `json:"at"`     // the place in the file
	Per    switchboard.BudgetPer    `json:"per"`
	Of     string                   `json:"of,omitempty"` // what the account belongs to, such as a principal's id
	Unit   string                   `json:"unit,omitempty"`
	Window switchboard.BudgetWindow `json:"window"`
	From   time.Time                `json:"from,omitzero"`
	Until  time.Time                `json:"until,omitzero"` // the end of the window; absent if it does not end

	Limit   string `json:"limit"`
	Settled string `json:"settled"`
	Held    string `json:"held"`
	Left    string `json:"left"`

	// Warned is the largest warning percentage of the budget that has been reached, 100 if nothing is left, 0 if none.
	Warned int `json:"warned_percent,omitempty"`

	Pace AccountPace `json:"pace"`
}

// An AccountPace says when an account is used up. An instant is absent if the account lasts until the end of its window.
type AccountPace struct {
	Day        string    `json:"day"`                   // what calls of the last day have cost
	Week       string    `json:"week"`                  // of the last week
	Since      time.Time `json:"since,omitzero"`        // only calls since then are counted; absent if all of the last week are
	DayUsedUp  time.Time `json:"day_used_up,omitzero"`  // at the pace of the last day
	WeekUsedUp time.Time `json:"week_used_up,omitzero"` // at the pace of the last week
}

// IsKnown reports whether enough calls are counted for a pace: those of more than a minute.
func (p *AccountPace) IsKnown(now time.Time) bool {
	return p.Since.IsZero() || now.Sub(p.Since) > time.Minute
}

// Place returns the place of the row among others: rows are sorted by tenant, budget, and what the account belongs to.
func (r *StatementRow) Place() string { return string(r.Tenant) + " " + r.Budget + " " + r.Of }

// Amount spells an amount of the budget.
func Amount(b *switchboard.Budget, n int64) string {
	if b.Calls {
		return strconv.FormatInt(n, 10)
	}
	return switchboard.Micros(n).String()
}

// All returns the budgets that can count calls of the tenant: those of the tenant, of its tasks, of the tools in the operator's
// overlays, and of the tools that provide capabilities to it, sorted by name.
func All(t *switchboard.Tenant, overlays map[switchboard.ToolID]switchboard.Overlay, provided map[string][]*switchboard.Tool) []*switchboard.Budget {
	all := slices.Clone(t.Budgets)
	for _, task := range t.Tasks {
		all = append(all, task.Budgets...)
	}
	for id, o := range overlays {
		if o.Budget != nil && slices.Contains(t.Servers, id.Server) {
			all = append(all, o.Budget)
		}
	}
	for _, version := range slices.Backward(slices.Sorted(maps.Keys(provided))) { // versions of one capability share an account
		for _, tool := range provided[version] {
			if b := tool.Budget; b != nil && !slices.ContainsFunc(all, func(o *switchboard.Budget) bool { return o.Name() == b.Name() }) {
				all = append(all, b)
			}
		}
	}
	slices.SortFunc(all, func(a, b *switchboard.Budget) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// counts reports whether the budget counts the call.
func counts(b *switchboard.Budget, s *SpentCall, taxonomy *switchboard.Taxonomy) bool {
	kind, of, _ := strings.Cut(string(b.Owner), "/")
	switch {
	case kind == "task" && of != string(s.Task), kind == "tool" && of != s.Tool.ID.String(), kind == "capability" && of != capabilityOf(s.Tool):
		return false
	}
	return Matches(&b.Match, s.Tool, taxonomy)
}

// A Statement makes the rows of one tenant.
type Statement struct {
	Tenant   switchboard.TenantID
	Budgets  []*switchboard.Budget
	Accounts []store.AccountState
	Currency string
	Spending *Spending // nil if it is not known yet
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Rows returns the accounts of the windows of the moment, sorted by Place. A budget of the whole tenant without an account has a row too.
func (s *Statement) Rows(now time.Time) []StatementRow {
	rows := []StatementRow{}
	for _, b := range s.Budgets {
		w := WindowAt(b.Window, b.Location, now)
		prefix := accountPrefix(b) + w.Label + " "
		of := map[string]store.AccountState{}
		if b.Per == "" || b.Per == switchboard.PerTenant {
			of[""] = store.AccountState{}
		}
		for _, a := range s.Accounts {
			if value, ok := strings.CutPrefix(a.Name, prefix); ok {
				of[value] = a
			}
		}
		spent := s.Spending.of(b)
		for _, value := range slices.Sorted(maps.Keys(of)) {
			rows = append(rows, s.row(b, w, value, of[value], spent[value], now))
		}
	}
	slices.SortFunc(rows, func(a, b StatementRow) int { return strings.Compare(a.Place(), b.Place()) })
	return rows
}

// row returns the row of one account.
func (s *Statement) row(b *switchboard.Budget, w Window, of string, a store.AccountState, spent spentSums, now time.Time) StatementRow {
	left := max(0, b.Limit-a.Settled-a.Held)
	per := b.Per
	if per == "" {
		per = switchboard.PerTenant
	}
	r := StatementRow{
		Tenant: s.Tenant, Budget: b.Name(), At: b.Position, Per: per, Of: of, Unit: Unit(b, s.Currency), Window: b.Window, From: w.Start, Until: w.End,
		Limit: Amount(b, b.Limit), Settled: Amount(b, a.Settled), Held: Amount(b, a.Held), Left: Amount(b, left),
	}
	r.Warned = warnedAt(b, a.Settled+a.Held)
	r.Pace = AccountPace{Day: Amount(b, spent.day), Week: Amount(b, spent.week)}
	r.Pace.DayUsedUp = usedUp(left, spent.day, s.Spending.covered(day), now, w.End)
	r.Pace.WeekUsedUp = usedUp(left, spent.week, s.Spending.covered(week), now, w.End)
	if s.Spending == nil || s.Spending.of(b) == nil {
		r.Pace.Since = now
	} else if s.Spending.covered(week) < week {
		r.Pace.Since = s.Spending.Since
	}
	return r
}

// warnedAt returns the largest warning percentage that the used amount reaches; 100 if nothing is left; 0 if it reaches none.
func warnedAt(b *switchboard.Budget, used int64) (percent int) {
	if used >= b.Limit {
		return 100
	}
	for _, warn := range b.Warn {
		if float64(used)*100 >= float64(b.Limit)*float64(warn) {
			percent = max(percent, warn)
		}
	}
	return percent
}

// Unit returns the unit of the budget's amounts; "" if the currency has no name.
func Unit(b *switchboard.Budget, currency string) string {
	if b.Calls {
		return "calls"
	}
	return currency
}

// usedUp returns when what is left is used up, if as much is used as in the time before. It is zero if that is after the window's end.
func usedUp(left, spent int64, in time.Duration, now, end time.Time) time.Time {
	if spent <= 0 || in <= 0 {
		return time.Time{}
	}
	lasts := float64(left) / float64(spent) * float64(in) // an estimate, not an amount
	if lasts > float64(100*365*day) {
		return time.Time{}
	}
	at := now.Add(time.Duration(lasts)).Truncate(time.Second)
	if !end.IsZero() && !at.Before(end) {
		return time.Time{}
	}
	return at
}

// Sums returns what is settled and held in all accounts of the budget, in the window of the moment.
func Sums(b *switchboard.Budget, accounts []store.AccountState, now time.Time) (settled, held int64) {
	prefix := accountPrefix(b) + WindowAt(b.Window, b.Location, now).Label + " "
	for _, a := range accounts {
		if strings.HasPrefix(a.Name, prefix) {
			settled, held = min(settled+a.Settled, maxSum), min(held+a.Held, maxSum)
		}
	}
	return settled, held
}
