package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/standing"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A StandingKeeper keeps what people have said yes to in advance. See standing.Yeskeeper.
type StandingKeeper interface {
	Make(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, request string, terms standing.YesTerms) (*standing.GivenYes, error)
	List(ctx context.Context, tenant switchboard.TenantID) ([]standing.ListedYes, error)
	End(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*standing.GivenYes, error)
}

// A StandingRow is a standing yes as officers see it.
type StandingRow struct {
	ID        string               `json:"id"`
	Request   string               `json:"request" doc:"The request that it was made from."`
	Tenant    switchboard.TenantID `json:"tenant"`
	Principal string               `json:"principal"`
	Task      switchboard.TaskID   `json:"task,omitempty"`
	Tool      string               `json:"tool" doc:"SERVER/TOOL."`
	Arguments json.RawMessage      `json:"arguments,omitempty" doc:"The test of each argument, by its JSON Pointer. Only an approver of the tenant sees them."`
	Uses      int64                `json:"uses"`
	Used      int64                `json:"used"`
	Made      time.Time            `json:"made"`
	Until     time.Time            `json:"until" doc:"When it ends or has ended."`
	By        string               `json:"by"`
	EndedBy   string               `json:"ended_by,omitempty"`
	Over      bool                 `json:"over" doc:"It spares no call any more."`
}

// Place returns the place of the row in a list.
func (r *StandingRow) Place() string {
	return r.Until.UTC().Format("20060102T150405.000000000") + " " + string(r.Tenant) + " " + r.ID
}

func standingRow(g *standing.GivenYes, used int64, ends time.Time, seesArguments bool) StandingRow {
	row := StandingRow{
		ID: g.ID, Request: g.Request, Tenant: g.Asker.Tenant, Principal: shown.Line(g.Asker.Principal), Task: g.Asker.Task, Tool: shown.Line(g.Target.Label().String()),
		Uses: g.Uses, Used: used, Made: g.Made, Until: ends, By: g.By.By, EndedBy: g.EndedBy, Over: used >= g.Uses || !time.Now().Before(ends),
	}
	if seesArguments {
		row.Tool = shown.Line(g.Target.ID().String())
		row.Arguments, _ = json.Marshal(g.Arguments) // it was read from JSON
	}
	return row
}

// ListStanding returns the standing yeses that the officer sees, also those that have ended within a week. "" is all tenants.
func (d *Decider) ListStanding(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID) ([]StandingRow, error) {
	rows := []StandingRow{}
	for _, t := range d.Tenants(by) {
		if tenant != "" && t != tenant {
			continue
		}
		all, err := d.o.Standing.List(ctx, t)
		if err != nil {
			return nil, asRefusal(err)
		}
		for _, l := range all {
			rows = append(rows, standingRow(l.GivenYes, l.Used, l.Ends, d.ActsAsApprover(by, t)))
		}
	}
	slices.SortFunc(rows, func(a, b StandingRow) int { return strings.Compare(a.Place(), b.Place()) })
	return rows, nil
}

// MakeStanding makes a standing yes from a request, between two receipts. These have the names of the arguments, and no values.
func (d *Decider) MakeStanding(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string, terms standing.YesTerms) (*StandingRow, error) {
	r, err := d.find(ctx, by, tenant, id)
	if err != nil {
		return nil, err
	}
	var made *standing.GivenYes
	note := fmt.Sprintf("up to %d calls within %s; arguments: %s", terms.Uses, terms.For, strings.Join(terms.Arguments.Pointers(), " "))
	err = d.recordStanding(by, r.Asker, r.Target, receipt.ApprovalRef{Request: r.ID(), Decision: "standing"}, note, func() (err error) {
		made, err = d.o.Standing.Make(ctx, by, r.Asker.Tenant, id, terms)
		return asRefusal(err)
	})
	if err != nil {
		return nil, err
	}
	row := standingRow(made, 0, made.Until, true)
	d.o.Log.Info("approval", "did", "standing", "request", row.Request, "standing", row.ID, "tenant", row.Tenant, "by", by.ID, "uses", row.Uses, "until", row.Until)
	return &row, nil
}

// EndStanding ends a standing yes, between two receipts.
func (d *Decider) EndStanding(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*StandingRow, error) {
	for _, t := range d.Tenants(by) {
		if tenant != "" && t != tenant {
			continue
		}
		all, err := d.o.Standing.List(ctx, t)
		if err != nil {
			return nil, asRefusal(err)
		}
		for _, l := range all {
			if l.ID != id {
				continue
			}
			var ended *standing.GivenYes
			err := d.recordStanding(by, l.Asker, l.Target, receipt.ApprovalRef{Request: l.Request, Standing: id, Decision: "end standing"}, "", func() (err error) {
				ended, err = d.o.Standing.End(ctx, by, t, id)
				return asRefusal(err)
			})
			if err != nil {
				return nil, err
			}
			row := standingRow(ended, l.Used, ended.EndedAt, true)
			d.o.Log.Info("approval", "did", "end standing", "request", row.Request, "standing", id, "tenant", t, "by", by.ID)
			return &row, nil
		}
	}
	return nil, ErrNoStanding
}

// ErrNoStanding says that there is no standing yes of that id that the officer may see.
var ErrNoStanding = errors.New("there is no standing approval of that id that you may see")

func (d *Decider) recordStanding(by *switchboard.Officer, asker approval.Asker, target approval.Target, of receipt.ApprovalRef, note string, do func() error) error {
	return d.o.Record(receipt.Receipt{
		Kind: receipt.Decide, Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Tenant: asker.Tenant, Task: asker.Task,
		Server: target.Server, Tool: target.Tool, Method: target.Method, Note: note, Approval: of,
	}, do)
}
