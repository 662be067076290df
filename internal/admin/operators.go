package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Operators serves the operators' reads and actions over HTTP. It implements gateway.Operators.
type Operators struct {
	*Reader
	*Scraper
	*Actions
}

// Read returns the read at a path, or nil if there is none.
func (o *Operators) Read(path string) func(context.Context, switchboard.Principal, url.Values) ([]byte, error) {
	switch path {
	case "/v1/status":
		return o.InspectStatus
	case "/v1/explain":
		return o.InspectExplain
	case "/v1/search":
		return o.InspectSearch
	case "/v1/tools":
		return o.InspectOffered
	}
	return nil
}

// Metrics answers GET /metrics.
func (o *Operators) Metrics(p switchboard.Principal, accept http.Header) (contentType string, text []byte, err error) {
	return o.Scrape(p, accept)
}
