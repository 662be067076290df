package api

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ReceiptFilter selects receipts.
type ReceiptFilter struct {
	Code    switchboard.Code    `query:"code" maxLength:"20" doc:"The code of the refusal."`
	Kind    receipt.Kind        `query:"kind" maxLength:"20" doc:"The kind of the receipt, such as call or admin."`
	Node    string              `query:"node" maxLength:"64" doc:"The replica that wrote the receipt."`
	Outcome receipt.CallOutcome `query:"outcome" maxLength:"20" doc:"The outcome of the call, such as ok or refused."`
	Since   time.Time           `query:"since" doc:"From this instant on."`
	Task    switchboard.TaskID  `query:"task" maxLength:"64" doc:"The task."`
	Tool    string              `query:"tool" maxLength:"300" doc:"TOOL or SERVER/TOOL; * stands for any text."`
	Until   time.Time           `query:"until" doc:"Before this instant."`
}

// query returns the filter as a query for the receipts of the tenant.
func (f *ReceiptFilter) query(tenant switchboard.TenantID) receipt.Query {
	return receipt.Query{
		Node: f.Node, Tenant: tenant, Task: f.Task, Tool: f.Tool, Code: f.Code, Outcome: f.Outcome, Kind: f.Kind, Since: f.Since, Until: f.Until,
	}
}

type receiptQuery struct {
	TenantQuery
	PageQuery
	Principal string `query:"principal" maxLength:"384" doc:"The id of the caller or of the officer."`
	ReceiptFilter
}

// addReads adds the routes that search and read receipts, and list runs.
func (a receiptRoutes) addReads() {
	add(a.API, route{id: "search-receipts", method: http.MethodGet, path: "/v1/receipts", needs: switchboard.OfficeViewer, summary: "Receipts, the newest first. A search that must look far says how far it has looked, and can be continued"},
		func(ctx context.Context, q asked, in *receiptQuery) (*struct{ Body admin.ReceiptPage }, error) {
			query := in.query(q.tenant)
			query.Principal = in.Principal
			page, err := a.o.Reader.SearchReceipts(ctx, admin.ReceiptSearch{
				Query: query, Limit: in.Limit, After: in.After,
			})
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.ReceiptPage }{*page}, nil
		})
	add(a.API, route{id: "read-receipt", method: http.MethodGet, path: "/v1/receipt", needs: switchboard.OfficeViewer, summary: "One receipt"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			ID string `query:"id" required:"true" maxLength:"128" doc:"Its id, such as n1/5, or the form that errors have, with its time."`
		},
		) (*struct{ Body admin.ReceiptRow }, error) {
			row, err := a.o.Reader.FindReceipt(ctx, q.tenant, in.ID)
			if err == nil && row == nil {
				err = errNoReceipt
			}
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.ReceiptRow }{*row}, nil
		})
	add(a.API, route{id: "list-runs", method: http.MethodGet, path: "/v1/runs", needs: switchboard.OfficeViewer, summary: "The runs that this process knows, with the tokens that they have cost"},
		func(_ context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*runList, error) {
			out := &runList{}
			out.Body.Runs, out.Body.Next = cut(in.PageQuery, a.o.Reader.RunRows(q.tenant), func(r admin.RunRow) string { return string(r.Run) })
			return out, nil
		})
}

var errNoReceipt = notFound("there is no receipt of that id that you may see")

type runList struct {
	Body struct {
		Runs []admin.RunRow `json:"runs" doc:"Sorted by id."`
		Next string         `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}
