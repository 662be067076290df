package page

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxItems limits what is shown as waiting.
const maxItems = 200

// An item is something that waits for a person.
type item struct {
	What string // what it is about
	Why  string // what somebody said about it; it may be anybody's text
	Next string // what to do
	Link string // where; "" if nowhere on the page
}

// maxApprovals limits the requests for approval that are shown as waiting.
const maxApprovals = 50

// waitingApprovals returns the pending requests of the tenants in which the officer is an approver, the oldest first.
func (p approvalForms) waitingApprovals(r *http.Request, officer *switchboard.Officer) (items []item) {
	if p.o.Approvals == nil {
		return nil
	}
	for _, t := range p.o.Approvals.Tenants(officer) {
		if !p.o.Approvals.ActsAsApprover(officer, t) {
			continue
		}
		rows, err := p.o.Approvals.List(r.Context(), t, approvals.ApprovalFilter{State: approval.Pending})
		if err != nil {
			return append(items, item{What: "The requests for approval cannot be read", Why: access.AsError(err).Text})
		}
		for i := len(rows) - 1; i >= 0 && len(items) < maxApprovals; i-- {
			a := &rows[i]
			items = append(items, item{What: a.Principal + " of tenant " + string(t) + " asks for " + cmp.Or(a.Tool, a.Capability), Next: "Read it, and decide.", Link: ApprovalPath + a.ID})
		}
	}
	return items
}

// findWaiting returns what waits for somebody, of all that the officer may see. Texts of failures are for operators.
func findWaiting(reader *admin.Reader, officer *switchboard.Officer) (items []item) {
	if officer.Operator {
		s := reader.Status("")
		items = findIn(&s, "")
	} else {
		for _, id := range slices.Sorted(maps.Keys(officer.Offices)) {
			if reader.HasTenant(id) {
				s := reader.TenantStatus(id, false)
				items = append(items, findIn(&s, " of tenant "+string(id))...)
			}
		}
	}
	return items[:min(len(items), maxItems)]
}

func findIn(s *admin.StatusReport, of string) (items []item) {
	if s.Refused != nil {
		items = append(items, item{"The configuration on disk is refused; the one before is served", s.Refused.Why, "Correct the files; they are read again by themselves.", ""})
	}
	for _, p := range s.Faulty {
		items = append(items, item{"The part " + p.Part + " of the configuration" + of + " has faults: " + p.State, strings.Join(p.Faults, "\n"), "Correct the file; it is read again by itself.", ""})
	}
	if s.Store != nil && s.Store.Fault != "" {
		items = append(items, item{"The store is unavailable", s.Store.Fault, "", ""})
	}
	if s.Records != nil && s.Records.Fault() != "" {
		items = append(items, item{"Decisions cannot be recorded", s.Records.Fault(), "", ""})
	}
	for _, server := range s.Servers {
		if server.State == "ready" && server.Health.State == "healthy" {
			continue
		}
		state := string(server.Health.State)
		if state == "healthy" {
			state = string(server.State)
		}
		it := item{What: "Server " + string(server.ID) + of + " is not healthy: " + state, Next: "The command \"switchboard status\" says more."}
		if c := server.Health.Cause; c != nil {
			it.Why = c.Message
		} else if f := server.LastFailure; f != nil {
			it.Why = f.Message
		}
		items = append(items, it)
	}
	for _, text := range s.Catalog.Faults {
		items = append(items, item{What: "A tool is not served", Why: text})
	}
	return items
}
