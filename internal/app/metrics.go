package app

import (
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
)

// scrapeMetrics answers /metrics. The local principal is the operator and gets everything. A caller
// with a key gets the figures of its tenant and of that tenant's servers, without figures about the
// calls of others.
func (a *App) scrapeMetrics(p switchboard.Principal, accept http.Header) (contentType string, text []byte, err error) {
	st := a.state.Load()
	v := telemetry.View{Version: a.options.Version, All: p.Auth == switchboard.AuthLocal, Tenant: p.Tenant}
	for _, s := range health.States {
		v.States = append(v.States, string(s))
	}
	mine := st.Tenants[p.Tenant]
	for _, t := range st.Catalog.Tools() {
		if v.All || mine != nil && mine.MayUseServer(t.ID.Server) {
			v.Tools++
		}
	}
	for _, s := range a.fleet.Status() {
		if !v.All && (mine == nil || !mine.MayUseServer(s.ID)) {
			continue
		}
		fit, _ := a.health.Status(s.ID)
		v.Servers = append(v.Servers, telemetry.Server{
			ID: s.ID, State: string(fit.State), Connections: s.Connections, InFlight: s.InFlight - s.Waiting, Waiting: s.Waiting, Restarts: int64(s.Restarts),
		})
	}
	v.Configuration, v.Refused, v.Faulty = st.digest, a.reloadFault.Load() != nil, len(st.config.Faulty)
	v.Runs = len(a.runs.All())
	v.Sessions, v.Streams = a.gateway.Open()
	v.TakenOver, v.Restored = a.gateway.TakenOver(), a.runs.Restored()
	v.Evaluations, v.Unjudged, v.RanOver, v.Overdue = a.engine.Counts()
	if r := a.recordStatus(); r != nil {
		v.Unrecorded = r.Receipts.Lost + int64(r.Archive.Lost)
		v.Unwritten = r.Receipts.Waiting
	}
	kept := a.store.Status()
	v.StoreKind, v.StoreFault = kept.Kind, kept.Fault != ""
	return a.metrics.Scrape(&v, accept)
}

// countTransition counts a change of the health of a server or of a tool.
func (a *App) countTransition(t health.Transition) {
	stage := ""
	if t.Cause != nil {
		stage = t.Cause.Stage
	}
	a.metrics.Changed(t.Server, t.Tool != "", string(t.To), stage)
}

// countMovedCall counts a call that was moved.
func (a *App) countMovedCall(m health.Move) {
	a.metrics.Moved(m.Tool.Server, m.To.Server)
}
