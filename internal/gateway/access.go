package gateway

import (
	"net/http"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/access"
)

// A callerCheck decides whether a request may be answered, by its key, its address and its Host.
type callerCheck struct {
	authenticator Authenticator
	allowed       atomic.Pointer[access.AllowList]
	failures      access.Failures
}

// answerCORS tells a browser that pages of a configured origin may use Switchboard. done means that
// r was a preflight request, which is answered now. Other origins get no CORS headers.
func (g *Gateway) answerCORS(w http.ResponseWriter, r *http.Request) (done bool) {
	origin, ok := g.callers.allowed.Load().ListedOrigin(r)
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	// The tools' Mcp-Param headers have arbitrary names, so all requested names are granted. For a
	// configured origin, no protection depends on header names.
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}
