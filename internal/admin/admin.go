// Package admin answers the operators' reads and performs their actions: status, explain, search,
// metrics, readiness, and disabling, enabling and restarting servers.
//
// It decides what a caller may see of these: the local principal is the operator and sees everything,
// a caller with a key sees its own tenant. It changes nothing but the health of servers, and it makes
// no decision that counts: Explain makes one only to show it. Package gateway serves the answers over
// HTTP, and cmd/switchboard prints them.
package admin

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// A Configuration is the configuration that is served, and how it was loaded.
type Configuration struct {
	*bind.State
	Digest      switchboard.Digest
	Loaded      time.Time
	FaultySince map[string]time.Time               // by the name of a faulty part
	PolicySince map[switchboard.TenantID]time.Time // when the policy of the tenant last changed
	Refused     *RefusedReload                     // nil if the last reload was accepted

	// StateOf returns the state that another configuration, which was checked, would have now.
	StateOf func(*config.Config) (*bind.State, error)
}

// ReaderOptions are the parts of a running Switchboard that a Reader reports on.
type ReaderOptions struct {
	Configuration func() Configuration // the present one
	Binder        *bind.Binder
	Runs          *run.Runs
	Meter         *run.Meter
	Fleet         *upstream.Fleet
	Health        *health.Monitor
	Store         store.Store
	Cluster       *cluster.Cluster
	Ledger        *receipt.Ledger
	Recorder      *replay.Recorder
	Atoms         AtomReporter
	Notices       func() []notice.Backlog // of all recipients

	ProcessFacts
	Ready    <-chan struct{} // closed once the servers' first offers are known
	Stopping context.Context // done when the time to stop is over
}

// ProcessFacts describe the process that a Reader runs in.
type ProcessFacts struct {
	Started   time.Time
	Changes   *health.ChangeLog // of the states of servers
	Version   string
	Addresses func() (agents, officers net.Addr) // each nil if it is not served
	Findings  func(switchboard.ServerID) int     // in what the server offers; nil means none

	// Definitions returns how many definitions each server offers, by each state that a definition can have; nil means none.
	Definitions func() map[switchboard.ServerID]map[string]int
}

// definitions returns how many definitions each server offers, by their state.
func (p *ProcessFacts) definitions() map[switchboard.ServerID]map[string]int {
	if p.Definitions == nil {
		return nil
	}
	return p.Definitions()
}

// A Reader answers the operators' reads. Use NewReader. It is safe for concurrent use.
type Reader struct {
	o       ReaderOptions
	search  toolSearch
	offers  offerCache
	probing chan struct{} // has one element for each answer that waits for probes
}

// NewReader returns a Reader.
func NewReader(o ReaderOptions) *Reader {
	return &Reader{o: o, probing: make(chan struct{}, mostProbing)}
}

// Docs returns the cache of tools as the search reads them, for searches in groups.
func (r *Reader) Docs() *search.Cache { return &r.search.docs }

// Offered returns the tools that a tenant may use, and the servers that have not listed their offer yet.
func (r *Reader) Offered(id switchboard.TenantID) (tools []*switchboard.Tool, silent []switchboard.ServerID) {
	c := r.o.Configuration()
	t := c.Tenants[id]
	if t == nil {
		return nil, nil
	}
	for _, server := range t.Servers {
		if c.Offers[server].Tools == nil {
			silent = append(silent, server)
		}
	}
	return t.View.Named("*/*"), silent
}

// RecordStatus is the status of receipts and of their archive.
type RecordStatus struct {
	Receipts receipt.ChainStatus `json:"receipts"`
	Archive  archive.Status      `json:"archive"`
}

// ReceiptFault says why receipts or their anchor cannot be written, or "".
func (s *RecordStatus) ReceiptFault() string { return cmp.Or(s.Receipts.Fault, s.Receipts.Anchor) }

// ArchiveFault says that the inputs of decisions cannot be archived, and why, or "".
func (s *RecordStatus) ArchiveFault() string {
	if s.Archive.Fault == "" {
		return ""
	}
	return "the inputs of decisions cannot be archived now; they wait in memory, and Switchboard tries again: " + s.Archive.Fault
}

// Fault says why receipts, their anchor or their archive cannot be written, or "".
func (s *RecordStatus) Fault() string { return cmp.Or(s.ReceiptFault(), s.ArchiveFault()) }

// recordStatus returns nil if there are no receipts.
func (r *Reader) recordStatus() *RecordStatus {
	if !r.o.Ledger.Durable() {
		return nil
	}
	return &RecordStatus{*r.o.Ledger.Status(), r.o.Recorder.Status()}
}
