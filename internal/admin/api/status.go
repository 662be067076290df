package api

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/now"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A TenantQuery names the tenant that a request is about.
type TenantQuery struct {
	Tenant switchboard.TenantID `query:"tenant" maxLength:"64" doc:"The tenant. Without it: all tenants for an operator, the only tenant of any other officer."`
}

type statusAnswer struct{ Body admin.StatusReport }

// addStatus adds the routes about the whole of Switchboard.
func (a *API) addStatus() {
	add(a, route{id: "read-status", method: http.MethodGet, path: "/v1/status", needs: switchboard.OfficeViewer, summary: "How Switchboard is, with its servers and the tasks that are bound"},
		func(_ context.Context, q asked, _ *TenantQuery) (*statusAnswer, error) {
			if q.tenant == "" {
				return &statusAnswer{a.o.Reader.Status("")}, nil
			}
			return &statusAnswer{a.o.Reader.TenantStatus(q.tenant, q.operator())}, nil
		})
	budgets := admin.NewBudgetReader(a.o.Reader)
	add(a, route{id: "read-now", method: http.MethodGet, path: "/v1/now", needs: switchboard.OfficeViewer, summary: "What needs a person now, the most pressing first, and the calls of the last minute, hour, day and 14 days"},
		func(ctx context.Context, q asked, _ *TenantQuery) (*struct{ Body now.Overview }, error) {
			sources := now.OverviewSources{Reader: a.o.Reader, Budgets: budgets, Approvals: a.o.People.Approvals, Past: a.o.Scraper.Past, Pins: a.o.People.Pins}
			o, err := sources.Read(ctx, q.officer, q.tenant)
			if err != nil {
				return nil, err
			}
			return &struct{ Body now.Overview }{*o}, nil
		})
	add(a, route{id: "scrape-metrics", method: http.MethodGet, path: "/metrics", needs: switchboard.OfficeViewer, summary: "The metrics, for Prometheus", types: []string{"text/plain", "application/openmetrics-text", "application/vnd.google.protobuf"}},
		func(_ context.Context, q asked, in *scrapeQuery) (*scrapeAnswer, error) {
			kind, text, err := a.o.Scraper.Scrape(q.tenant, http.Header{"Accept": {in.Accept}})
			return &scrapeAnswer{Type: kind, Body: text}, err
		})
	add(a, route{id: "read-history", method: http.MethodGet, path: "/v1/metrics/history", needs: switchboard.OfficeViewer, summary: "The calls of the last hour, day or 14 days in steps, by tenant and server, of all replicas. A tenant's officer sees the tenant's own calls"},
		func(ctx context.Context, q asked, in *historyQuery) (*struct{ Body history.Excerpt }, error) {
			r, err := a.o.Scraper.ReadHistory(ctx, history.Range{Tenant: q.tenant, Server: in.Server, Step: in.Step, From: in.From, To: in.To, After: in.After, Total: in.Total})
			if err != nil {
				return nil, err
			}
			return &struct{ Body history.Excerpt }{*r}, nil
		})
}

type historyQuery struct {
	TenantQuery
	Server switchboard.ServerID `query:"server" maxLength:"64" doc:"Only the calls for this server."`
	Step   string               `query:"step" enum:"10s,1m,15m" default:"1m" doc:"The length of the steps: those of 10s are kept for 1 h, of 1m (the default) for 24 h, and of 15m for 14 days."`
	From   time.Time            `query:"from" doc:"From the step that holds this instant; without it, from the oldest step."`
	To     time.Time            `query:"to" doc:"Before this instant; without it, until now."`
	Total  bool                 `query:"total" doc:"One point for each series, the sum of its steps."`
	After  string               `query:"after" maxLength:"512" doc:"Begin behind this series: next of the answer before."`
}

type scrapeQuery struct {
	TenantQuery
	Accept string `header:"Accept" doc:"The formats that the reader takes; without it, the text format of Prometheus."`
}

type scrapeAnswer struct {
	Type string `header:"Content-Type"`
	Body []byte
}
