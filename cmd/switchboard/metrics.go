package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type metricsCmd struct {
	locationFlags
	Tenant switchboard.TenantID `help:"Only the metrics of this tenant." placeholder:"ID"`
}

// Run prints the metrics of a running Switchboard, as Prometheus reads them.
func (m *metricsCmd) Run(ctx context.Context, io streams) error {
	path := "/metrics"
	if m.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(m.Tenant))
	}
	answer, err := m.asTarget().askAdmin(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.raw, "%s", answer.body)
	return err
}
