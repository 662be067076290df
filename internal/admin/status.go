package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/platform"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// A StatusReport is the status of Switchboard.
type StatusReport struct {
	Version string `json:"version"`
	ProcessReport
	Started time.Time      `json:"started"`
	Loaded  time.Time      `json:"configuration_loaded"`
	Refused *RefusedReload `json:"configuration_refused,omitempty"`

	// Faulty are the faulty parts of the configuration.
	Faulty []PartStatus `json:"configuration_faulty_parts,omitempty"`

	// Digest is a digest of the configuration that is served. It is equal at all replicas that serve
	// the same one.
	Digest switchboard.Digest `json:"configuration_digest,omitempty"`

	// Records is the status of receipts; only for the operator.
	Records *RecordStatus `json:"records,omitempty"`

	// Warnings are probable mistakes in the configuration; only for the operator.
	Warnings []string `json:"warnings,omitempty"`

	// Store is the status of the store; only for the operator, like ReplicaReport.
	Store *store.Status `json:"store,omitempty"`
	ReplicaReport

	Catalog struct {
		Digest switchboard.Digest `json:"digest"`
		Tools  int                `json:"tools"`
		Faults []string           `json:"faults,omitzero"` // only for the operator; otherwise nil
	} `json:"catalog"`
	Policies []PolicyStatus `json:"policies"`
	Servers  []ServerStatus `json:"servers"`
	Tasks    []TaskStatus   `json:"tasks"`
}

// A ProcessReport describes the process of Switchboard; only for the operator.
type ProcessReport struct {
	PID   int    `json:"pid,omitzero"`
	Admin string `json:"admin,omitempty"` // the admin address, HOST:PORT

	// AdminTLS says that the admin address is served with TLS.
	AdminTLS bool `json:"admin_tls,omitempty"`

	System *SystemStatus `json:"system,omitempty"`

	// Notices lists the recipients with waiting notices or with a failed last attempt.
	Notices []notice.Backlog `json:"notices,omitempty"`

	// Atoms are what capabilities depend on, sorted by id.
	Atoms []atom.Summary `json:"atoms,omitempty"`
}

// SystemStatus says what is missing on the system; see docs/platforms.md.
type SystemStatus struct {
	Name   string          `json:"name"`   // such as linux/amd64
	Tested bool            `json:"tested"` // the tests of Switchboard are run on it
	Lacks  []platform.Lack `json:"lacks,omitempty"`
}

// A ReplicaReport names the replicas that share the store, each by the name that it got at its start.
type ReplicaReport struct {
	Replica  *cluster.Replica  `json:"replica,omitempty"` // this one
	Replicas []cluster.Replica `json:"other_replicas,omitempty"`
}

// DifferingReplicas names the other replicas that serve another configuration than this one, each
// with its digest.
func (s *StatusReport) DifferingReplicas() (others []string) {
	for _, r := range s.Replicas {
		if r.Configuration != s.Digest {
			others = append(others, fmt.Sprintf("%s's is %.19s", r.ID, cmp.Or(r.Configuration, "unknown")))
		}
	}
	return others
}

// RefusedReload says that the last reload was refused.
type RefusedReload struct {
	When  time.Time `json:"when"`
	Since time.Time `json:"since"`         // the first of the reloads that were refused in a row
	Why   string    `json:"why,omitempty"` // only for the operator: the faults may be in any tenant's files
}

// PartStatus is a faulty part of the configuration, and how Switchboard handles it.
type PartStatus struct {
	Part   string               `json:"part"`
	Tenant switchboard.TenantID `json:"tenant,omitempty"` // its owner; "" means the operator
	State  string               `json:"state"`
	Since  time.Time            `json:"since"`
	Faults []string             `json:"faults,omitempty"` // only for the owner of the files
}

// PolicyStatus is the policy of a tenant, and since when it has been in force.
type PolicyStatus struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Digest switchboard.Digest   `json:"digest"`
	Loaded time.Time            `json:"loaded"`
}

// ServerStatus is the status of one server, with the number of its tools that the catalog accepted,
// and of those that it refused.
type ServerStatus struct {
	upstream.ServerStatus
	Health  health.Status `json:"health"`
	Served  int           `json:"tools_served"`
	Refused int           `json:"tools_refused"`
	Class   string        `json:"class,omitempty"` // by which tenants rank the server

	// Findings is the number of findings in what it offers, definitions and instructions; see package suspect.
	Findings int `json:"findings,omitempty"`

	Held HeldDefinitions `json:"definitions,omitzero"`
}

// HeldDefinitions counts the definitions of a server that are not plainly in use, and that a person may want to look at.
type HeldDefinitions struct {
	Suspended int `json:"suspended,omitempty"`
	Frozen    int `json:"frozen,omitempty"` // the admitted ones stay in use
	OnTrial   int `json:"on_trial,omitempty"`
	New       int `json:"new,omitempty"`      // no person has let them in
	KeptOut   int `json:"kept_out,omitempty"` // tools, by the operator's rules
}

// TaskStatus is a task that runs have bound.
type TaskStatus struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Task   switchboard.TaskID   `json:"task"`
	Runs   int                  `json:"runs"`
	Tools  int                  `json:"tools"`

	// Context is the number of tokens that these runs have cost their models.
	Context ContextBill `json:"context"`

	// Withheld are tools that have grown beyond the token budget, by name.
	Withheld []string `json:"withheld,omitempty"`

	Why string `json:"why,omitempty"` // why it shows nothing
}

// othersTimeout limits how long the store may take to list the other replicas.
const othersTimeout = 500 * time.Millisecond

// Status returns the status of the tenant's servers and tasks. The empty tenant means all of them,
// for the operator.
func (r *Reader) Status(id switchboard.TenantID) StatusReport {
	st := r.o.Configuration()
	s := StatusReport{Version: r.o.Version, ProcessReport: ProcessReport{PID: os.Getpid()}, Started: r.o.Started, Loaded: st.Loaded, Digest: st.Digest, Policies: policyStatuses(&st, id), Servers: []ServerStatus{}, Tasks: []TaskStatus{}}
	s.Catalog.Faults = []string{}
	if id == "" {
		agents, officers := r.o.Addresses()
		if officers != nil {
			s.Admin, s.AdminTLS = officers.String(), st.Config.Admin.TLS.Cert != ""
		}
		for _, w := range st.Config.Warnings {
			s.Warnings = append(s.Warnings, w.String())
		}
		if !identity.KnowsPeers && st.Ring.Keyless() && agents != nil {
			s.Warnings = append(s.Warnings, "no key exists, and this system does not say which user a connection of this machine belongs to: every local user can call; make a key with \"switchboard key new\"")
		}
		s.System = &SystemStatus{Name: runtime.GOOS + "/" + runtime.GOARCH, Tested: platform.IsTested(runtime.GOOS), Lacks: platform.Lacks(runtime.GOOS)}
		s.Notices = slices.DeleteFunc(r.o.Notices(), func(b notice.Backlog) bool { return b.Notices == 0 && b.Fault == "" })
		s.Atoms = r.o.Atoms.Report(time.Now())
		s.Records = r.recordStatus()
		kept := r.o.Store.Status()
		s.Store = &kept
		ctx, cancel := context.WithTimeout(r.o.Stopping, othersTimeout)
		defer cancel()
		if self := r.o.Cluster.Self(); self != "" {
			s.Replica = &cluster.Replica{ID: self, Address: r.o.Cluster.Address(), Configuration: st.Digest}
		}
		s.Replicas, _ = r.o.Cluster.Others(ctx) // on an error, Store says why
	}
	if f := st.Refused; f != nil {
		s.Refused = &RefusedReload{When: f.When, Since: f.Since}
		if id == "" {
			s.Refused.Why = f.Why
		}
	}
	s.Faulty = faultyParts(&st, id)
	mine := func(server switchboard.ServerID) bool {
		return id == "" || st.Tenants[id] != nil && st.Tenants[id].MayUseServer(server)
	}
	s.Catalog.Digest = st.Catalog.Digest()
	if t := st.Tenants[id]; t != nil {
		s.Catalog.Digest = t.View.Digest()
	}
	served := map[switchboard.ServerID]int{}
	for _, t := range st.Catalog.Tools() {
		served[t.ID.Server]++
		if mine(t.ID.Server) {
			s.Catalog.Tools++
		}
	}
	for _, f := range st.Catalog.Faults() {
		if mine(f.Server) {
			s.Catalog.Faults = append(s.Catalog.Faults, f.Error())
		}
	}
	s.Catalog.Faults = append(s.Catalog.Faults, ProbeFaults(st.State, mine)...)
	for _, f := range st.EquivalentFaults(id) {
		s.Catalog.Faults = append(s.Catalog.Faults, f.Error())
	}
	for _, f := range st.ProviderFaults(id) {
		s.Catalog.Faults = append(s.Catalog.Faults, f.Error())
	}
	s.Servers = append(s.Servers, r.serverStatuses(&st, served, mine)...)
	s.Tasks = r.taskStatuses(id)
	return s
}

// serverStatuses returns the servers that mine holds for, sorted by id. served counts their tools in the catalog.
func (r *Reader) serverStatuses(c *Configuration, served map[switchboard.ServerID]int, mine func(switchboard.ServerID) bool) (all []ServerStatus) {
	definitions := r.o.definitions()
	servers := r.o.Fleet.Status()
	all = make([]ServerStatus, 0, len(servers))
	for _, server := range servers {
		if mine(server.ID) {
			d := definitions[server.ID]
			held := HeldDefinitions{d[string(switchboard.LifeSuspended)], d["frozen"], d[string(switchboard.LifeTesting)], d[string(switchboard.LifeNew)], d["kept_out"]}
			n := served[server.ID]
			fit, _ := r.o.Health.Status(server.ID)
			now := ServerStatus{server, fit, n, len(c.Offers[server.ID].Tools) - n, "", 0, held}
			if row := c.Servers[server.ID]; row != nil { // else it was just removed
				now.Class = row.Class
			}
			if r.o.Findings != nil {
				now.Findings = r.o.Findings(server.ID)
			}
			all = append(all, now)
		}
	}
	return all
}

// faultyParts returns the faulty parts of the tenant; "" means all tenants and the operator.
func faultyParts(s *Configuration, id switchboard.TenantID) (all []PartStatus) {
	for _, p := range s.Config.Faulty {
		if id != "" && id != p.Tenant {
			continue
		}
		one := PartStatus{Part: p.Name, Tenant: p.Tenant, State: p.State(), Since: s.FaultySince[p.Name]}
		for _, f := range p.Faults {
			one.Faults = append(one.Faults, f.String())
		}
		all = append(all, one)
	}
	return all
}

// Readiness is the answer of /readyz. Anybody may read it, so it holds nothing about tenants.
func (r *Reader) Readiness() (ready bool, text []byte) {
	var f struct {
		Ready   bool         `json:"ready"`
		Refused *reloadAge   `json:"configuration_refused,omitempty"`
		Faulty  int          `json:"configuration_faulty_parts,omitempty"`
		Store   *storeOutage `json:"store,omitempty"`
	}
	c := r.o.Configuration()
	f.Faulty = len(c.Config.Faulty)
	select {
	case <-r.o.Ready:
		f.Ready = true
	default:
	}
	if c.Refused != nil {
		f.Refused = &reloadAge{int64(time.Since(c.Refused.Since).Seconds())}
	}
	if kept := r.o.Store.Status(); kept.Fault != "" {
		f.Store = &storeOutage{kept.Since, kept.Lost} // still ready: calls that need no store are served
	}
	return f.Ready, canonical.Encode(f)
}

type storeOutage struct {
	Since time.Time `json:"unavailable_since"`
	Lost  bool      `json:"lost,omitempty"` // see store.Status
}

type reloadAge struct {
	Seconds int64 `json:"age_seconds"`
}

// statusText is switchboard_status: the status that a principal may know.
func (r *Reader) statusText(p switchboard.Principal) []byte { return canonical.Encode(r.statusFor(p)) }

// statusFor is Status as a client of p may see it. Only the user of this machine sees the messages of failures,
// because they hold texts of servers and of the system. Only the operator's own commands show
// remedies and lines of stderr; switchboard_status never does.
func (r *Reader) statusFor(p switchboard.Principal) StatusReport {
	s := r.TenantStatus(p.Tenant, p.Auth == switchboard.AuthLocal)
	if p.Auth != switchboard.AuthLocal {
		for i := range s.Faulty {
			s.Faulty[i].Faults = nil
		}
		return s
	}
	for i := range s.Servers {
		if f := s.Servers[i].LastFailure; f != nil {
			s.Servers[i].LastFailure = &upstream.Failure{Stage: f.Stage, Message: f.Message, Since: f.Since}
		}
	}
	return s
}

// TenantStatus is Status of one tenant. Without messages, it holds no texts of servers and of the system, which the operator alone may
// see. The faults in the tenant's own files stay.
func (r *Reader) TenantStatus(id switchboard.TenantID, messages bool) StatusReport {
	s := r.Status(id)
	if messages {
		return s
	}
	s.ProcessReport, s.Catalog.Faults = ProcessReport{}, nil
	for i := range s.Servers {
		s.Servers[i] = s.Servers[i].withoutMessages()
	}
	return s
}

// withoutMessages returns the status without texts of servers and of the system.
func (s ServerStatus) withoutMessages() ServerStatus {
	s.PIDs, s.Walls = nil, nil
	if f := s.LastFailure; f != nil {
		s.LastFailure = &upstream.Failure{Stage: f.Stage, Since: f.Since}
	}
	s.Health = s.Health.WithoutMessages()
	return s
}

// Differing names the other replicas that serve another configuration than this one.
func (r *Reader) Differing() []string {
	if r.o.Cluster.Self() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.o.Stopping, othersTimeout)
	defer cancel()
	s := StatusReport{Digest: r.o.Configuration().Digest}
	s.Replicas, _ = r.o.Cluster.Others(ctx) // without an answer of the store, none is known
	return s.DifferingReplicas()
}

// UsesServer reports whether the tenant may use the server, by the configuration that r reports on.
func UsesServer(r *Reader, id switchboard.TenantID, server switchboard.ServerID) bool {
	t := r.o.Configuration().Tenants[id]
	return t != nil && t.MayUseServer(server)
}

// HasServer reports whether the configuration that r reports on has the server.
func HasServer(r *Reader, id switchboard.ServerID) bool {
	return r.o.Configuration().Servers[id] != nil
}

// HasTenant reports whether the configuration has the tenant, refused or not.
func (r *Reader) HasTenant(id switchboard.TenantID) bool {
	c := r.o.Configuration()
	return c.Tenants[id] != nil || c.Config.Refused[id]
}

// policyStatuses returns the policies of the tenant; "" means all tenants.
func policyStatuses(c *Configuration, id switchboard.TenantID) []PolicyStatus {
	all := []PolicyStatus{}
	for _, t := range slices.Sorted(maps.Keys(c.Tenants)) {
		if id == "" || id == t {
			all = append(all, PolicyStatus{t, c.Tenants[t].Rules.Digest(), c.PolicySince[t]})
		}
	}
	return all
}

// ProbeFaults says which of the servers that it concerns are not probed as configured, and why. It
// covers only servers with a known offer.
func ProbeFaults(s *bind.State, concerns func(switchboard.ServerID) bool) (faults []string) {
	for i := range s.Config.Servers {
		server := &s.Config.Servers[i]
		if _, heard := s.Offers[server.ID]; !heard || !concerns(server.ID) {
			continue
		}
		if _, why := health.ProbeTool(server, s.Catalog.Tool); why != "" {
			faults = append(faults, fmt.Sprintf("server %q: %s", server.ID, why))
		}
	}
	return faults
}
