package api

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type budgetList struct {
	Body struct {
		Budgets []budget.StatementRow `json:"budgets" doc:"Sorted by tenant, budget, and what the account belongs to."`
		Next    string                `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type forecastRequest struct {
	TenantQuery
	Body struct {
		admin.ProposedBudget
		Since time.Time `json:"since,omitzero" doc:"Calls since this instant; of the last 30 days if absent."`
	}
}

type correctionRequest struct {
	TenantQuery
	Body admin.BudgetCorrection
}

// forecastPeriod is how far a forecast looks back if the request does not say.
const forecastPeriod = 30 * 24 * time.Hour

// addBudgets adds the routes about budgets.
func (a *API) addBudgets() {
	budgets := admin.NewBudgetReader(a.o.Reader)
	add(a, route{id: "list-budgets", method: http.MethodGet, path: "/v1/budgets", needs: switchboard.OfficeViewer, summary: "The accounts of budgets in their present windows: what is settled, held and left, and when it is used up at the pace of the last day and week"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*budgetList, error) {
			rows, err := budgets.Rows(ctx, q.tenant)
			if err != nil {
				return nil, err
			}
			out := &budgetList{}
			out.Body.Budgets, out.Body.Next = cut(in.PageQuery, rows, func(r budget.StatementRow) string { return r.Place() })
			return out, nil
		})
	add(a, route{id: "forecast-budget", method: http.MethodPost, path: "/v1/budgets/what-if", needs: switchboard.OfficeViewer, readOnly: true, summary: "Which recorded calls a budget would have refused. Nothing is changed"},
		func(ctx context.Context, q asked, in *forecastRequest) (*struct{ Body budget.RefusalForecast }, error) {
			since := in.Body.Since
			if since.IsZero() {
				since = time.Now().Add(-forecastPeriod)
			}
			f, err := budgets.Forecast(ctx, q.tenant, &in.Body.ProposedBudget, since)
			if err != nil {
				return nil, err
			}
			return &struct{ Body budget.RefusalForecast }{*f}, nil
		})
	add(a, route{id: "adjust-budget", method: http.MethodPost, path: "/v1/budgets/adjust", needs: switchboard.OfficeAdmin, summary: "Correct what is settled in an account, with a receipt. The operator's budgets are corrected by operators only"},
		func(_ context.Context, q asked, in *correctionRequest) (*struct{ Body admin.CorrectedAccount }, error) {
			done, err := a.o.Actions.AdjustBudget(*q.officer, q.tenant, in.Body)
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.CorrectedAccount }{*done}, nil
		})
}
