package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
)

// A Front counts what clients hold open. A *gateway.Gateway is one.
type Front interface {
	CountOpen() (sessions, streams int)
	TakenOver() int64
}

// A Scraper answers /metrics, and reads the history of metrics.
type Scraper struct {
	Reader   *Reader
	Recorder *telemetry.Recorder
	Engine   *policy.Engine
	Front    Front
	Past     *history.History
	Memory   *memory.Memory
}

// lagTime is how long a scrape waits for the store to say how far the memory of tools is behind.
const lagTime = time.Second

// ReadHistory returns a part of the history of metrics. A range without a tenant is about all tenants, for the operator; a tenant's has only
// its own calls. The error is a *switchboard.Error.
func (m *Scraper) ReadHistory(ctx context.Context, q history.Range) (*history.Excerpt, error) {
	return m.Past.Read(ctx, q)
}

// Scrape answers /metrics for a tenant: the figures of the tenant and of its servers, without figures about the calls of others.
// The empty tenant means everything, for the operator.
func (m *Scraper) Scrape(id switchboard.TenantID, accept http.Header) (contentType string, text []byte, err error) {
	r := m.Reader
	st := r.o.Configuration()
	v := telemetry.View{Version: r.o.Version, AllTenants: id == "", Tenant: id}
	for _, s := range health.States {
		v.States = append(v.States, string(s))
	}
	mine := st.Tenants[id]
	for _, t := range st.Catalog.Tools() {
		if v.AllTenants || mine != nil && mine.MayUseServer(t.ID.Server) {
			v.Tools++
		}
	}
	definitions := r.o.definitions()
	for _, s := range r.o.Fleet.Status() {
		if !v.AllTenants && (mine == nil || !mine.MayUseServer(s.ID)) {
			continue
		}
		fit, _ := r.o.Health.Status(s.ID)
		v.Servers = append(v.Servers, telemetry.Server{
			ID: s.ID, State: string(fit.State), Connections: s.Connections, InFlight: s.InFlight - s.Waiting, Waiting: s.Waiting, Restarts: int64(s.Restarts),
			Definitions: definitions[s.ID],
		})
	}
	v.Currency = st.Config.Currency
	v.Budgets = NewBudgetReader(r).figures(r.o.Stopping, id)
	v.Configuration, v.Refused, v.Faulty = st.Digest, st.Refused != nil, len(st.Config.Faulty)
	v.Atoms = countAtoms(r.o.Atoms.Report(time.Now()))
	v.Runs = len(r.o.Runs.All())
	v.Sessions, v.Streams = m.Front.CountOpen()
	v.TakenOverSessions, v.RestoredRuns = m.Front.TakenOver(), r.o.Runs.Restored()
	v.Evaluations, v.FailedEvaluations, v.OverrunEvaluations, v.OverdueEvaluations = m.Engine.Counts()
	if r := r.recordStatus(); r != nil {
		v.LostRecords = r.Receipts.Lost + int64(r.Archive.Lost)
		v.WaitingReceipts = r.Receipts.Waiting
		if v.AllTenants {
			v.MemoryLag = m.memoryLag()
		}
	}
	kept := r.o.Store.Status()
	v.StoreKind, v.StoreFault = kept.Kind, kept.Fault != ""
	return m.Recorder.Scrape(&v, accept)
}

// memoryLag returns nil if the store cannot be read now.
func (m *Scraper) memoryLag() *telemetry.MemoryLag {
	ctx, cancel := context.WithTimeout(m.Reader.o.Stopping, lagTime)
	defer cancel()
	lag, err := m.Memory.Lag(ctx)
	switch {
	case err != nil:
		return nil
	case lag.Since.IsZero():
		return &telemetry.MemoryLag{Receipts: lag.Receipts}
	}
	return &telemetry.MemoryLag{Receipts: lag.Receipts, Seconds: max(time.Since(lag.Since), 0).Seconds()}
}

// countAtoms returns the number of atoms in each state, or nil if there are none.
func countAtoms(all []atom.Summary) map[string]int {
	if len(all) == 0 {
		return nil
	}
	n := map[string]int{}
	for _, s := range capability.States {
		n[string(s)] = 0
	}
	for _, a := range all {
		n[string(a.State)]++
	}
	return n
}
