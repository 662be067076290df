package api

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
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
	add(a, route{id: "scrape-metrics", method: http.MethodGet, path: "/metrics", needs: switchboard.OfficeViewer, summary: "The metrics, for Prometheus", types: []string{"text/plain", "application/openmetrics-text", "application/vnd.google.protobuf"}},
		func(_ context.Context, q asked, in *scrapeQuery) (*scrapeAnswer, error) {
			kind, text, err := a.o.Scraper.Scrape(q.tenant, http.Header{"Accept": {in.Accept}})
			return &scrapeAnswer{Type: kind, Body: text}, err
		})
}

type scrapeQuery struct {
	TenantQuery
	Accept string `header:"Accept" doc:"The formats that the reader takes; without it, the text format of Prometheus."`
}

type scrapeAnswer struct {
	Type string `header:"Content-Type"`
	Body []byte
}
