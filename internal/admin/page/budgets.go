package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// budgetsView is the view of budgets.
var budgetsView = pageView{
	path: "/budgets", title: "Budgets", needs: switchboard.OfficeViewer, command: "switchboard budget status", template: "budgets.html",
	api:   func(q *viewQuery) string { return linkTo("/v1/budgets", q.pick("tenant", "after", "limit")) },
	load:  loadBudgets,
	forms: map[string]viewForm{"adjust": adjustBudget},
}

// A budgetPage is the data of the view of budgets.
type budgetPage struct {
	Now      time.Time
	Accounts []accountBar
	Next     string // the place after the last account, "" if there is none

	// The account that the address names, nil if it names none, and whether the officer may correct it.
	Chosen     *accountBar
	MayCorrect bool

	// What the address proposes.
	Windows  []switchboard.BudgetWindow // that it may name
	Pers     []switchboard.BudgetPer
	Forecast *budget.RefusalForecast // nil if the address proposes nothing
	WhyNot   *access.Problem         // that there is no forecast
	Command  string                  // prints the forecast
}

// The width of the bar of an account, in units of its own.
const accountWidth = 1000

// An accountBar is an account with its bar.
type accountBar struct {
	budget.StatementRow
	Name          string // the budget and the owner of the account
	Spent, Kept   int    // widths of the settled and the held amount
	Passed        int    // width of the part of the window that has passed, 0 if the window does not end
	SpentPercent  int
	PassedPercent int
	Paced         bool // the pace is known
}

func loadBudgets(q *viewQuery, answer []byte) (any, error) {
	var list struct {
		Budgets []budget.StatementRow `json:"budgets"`
		Next    string                `json:"next"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, err
	}
	v := &budgetPage{Now: time.Now(), Next: list.Next, Windows: switchboard.BudgetWindows, Pers: switchboard.BudgetPers}
	for i := range list.Budgets {
		v.Accounts = append(v.Accounts, newAccountBar(&list.Budgets[i], v.Now))
		if a := &v.Accounts[i]; a.Budget == q.state.Get("budget") && a.Of == q.state.Get("of") {
			v.Chosen, v.MayCorrect = a, q.officer.Operator || q.officer.Holds(switchboard.OfficeAdmin, a.Tenant)
		}
	}
	if q.state.Get("most") != "" {
		v.forecast(q)
	}
	return v, nil
}

// forecast asks which calls the proposed budget would have refused.
func (v *budgetPage) forecast(q *viewQuery) {
	ask := struct {
		admin.ProposedBudget
		Since time.Time `json:"since,omitzero"`
	}{ProposedBudget: admin.ProposedBudget{Budget: q.state.Get("budget"), Window: q.state.Get("window"), Per: q.state.Get("per")}}
	words := []string{"switchboard budget what-if", ask.Budget}
	most := strings.TrimSpace(q.state.Get("most"))
	if number, isCalls := strings.CutSuffix(most, "calls"); isCalls {
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil {
			v.WhyNot = &access.Problem{Detail: "the limit is an amount such as 10.00, or a number such as 500 calls"}
			return
		}
		ask.Calls = &n
		words = append(words, "--calls "+strconv.FormatInt(n, 10))
	} else {
		ask.Limit = most
		words = append(words, "--limit "+most)
	}
	for name, value := range map[string]string{"--window": ask.Window, "--per": ask.Per} {
		if value != "" {
			words = append(words, name+" "+value)
		}
	}
	if days, err := strconv.Atoi(q.state.Get("since")); err == nil && days > 0 {
		ask.Since = v.Now.Add(-time.Duration(min(days, 3650)) * 24 * time.Hour)
		words = append(words, "--since "+strconv.Itoa(days)+"d")
	}
	v.Command = strings.Join(strings.Fields(strings.Join(words, " ")), " ")
	v.Forecast = &budget.RefusalForecast{}
	if err := q.send(http.MethodPost, linkTo("/v1/budgets/what-if", q.pick("tenant")), ask, v.Forecast); err != nil {
		why := problemOf(err)
		v.Forecast, v.WhyNot = nil, &why
	}
}

// newAccountBar lays the bar of an account out.
func newAccountBar(r *budget.StatementRow, now time.Time) accountBar {
	a := accountBar{StatementRow: *r, Name: r.Budget, Paced: r.Pace.IsKnown(now)}
	if r.Of != "" {
		a.Name += " of " + r.Of
	}
	if limit := amountOf(r.Limit); limit > 0 {
		part := amountOf(r.Settled) / limit
		a.Spent, a.SpentPercent = int(min(part, 1)*accountWidth), int(part*100)
		a.Kept = min(int(amountOf(r.Held)/limit*accountWidth), accountWidth-a.Spent)
	} else {
		a.Spent, a.SpentPercent = accountWidth, 100 // nothing may be spent
	}
	if whole := r.Until.Sub(r.From); !r.From.IsZero() && !r.Until.IsZero() && whole > 0 {
		part := min(max(float64(now.Sub(r.From))/float64(whole), 0), 1)
		a.Passed, a.PassedPercent = int(part*accountWidth), int(part*100)
	}
	return a
}

// amountOf reads an amount of an account for its bar.
func amountOf(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return max(f, 0)
}

// adjustBudget corrects what is settled in an account.
func adjustBudget(q *viewQuery, fields url.Values) (formDone, error) {
	err := q.send(http.MethodPost, linkTo("/v1/budgets/adjust", nil, "tenant", fields.Get("of_tenant")), admin.BudgetCorrection{
		Budget: fields.Get("budget"), Of: fields.Get("of"), By: strings.TrimSpace(fields.Get("by")), Reset: fields.Get("reset") != "", Reason: strings.TrimSpace(fields.Get("reason")),
	}, nil)
	return formDone{Next: linkTo("/budgets", q.state)}, err
}
