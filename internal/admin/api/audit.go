package api

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// exportType is the type of an export: a JSON object a line.
const exportType = "application/x-ndjson"

// exportPart is how many bytes of an export are collected, and then written. Before each part the officer is checked again.
const exportPart = 64 << 10

type exportQuery struct {
	TenantQuery
	ReceiptFilter
}

type verifyRequest struct {
	Body *struct {
		Nodes       []string             `json:"nodes,omitempty" maxItems:"1000" doc:"The chains to check. Without it: all."`
		Keys        []string             `json:"keys,omitempty" maxItems:"100" doc:"The public keys that a chain may begin with. Without it: any."`
		Checkpoints []receipt.Checkpoint `json:"checkpoints,omitempty" maxItems:"10000" doc:"Checkpoints that were kept outside of the store: lines of the anchor. Those of the chains that earlier parts have checked can be left out."`
		After       string               `json:"after,omitempty" maxLength:"1048576" doc:"Continue: next of the answer before, with the same nodes and keys."`
	}
}

// receiptRoutes are the routes about receipts and runs.
type receiptRoutes struct{ *API }

// addAudit adds the routes that verify and export receipts.
func (a receiptRoutes) addAudit() {
	auditor := admin.NewReceiptAuditor(a.o.Reader)
	add(a.API, route{
		id: "verify-receipts", method: http.MethodPost, path: "/v1/receipts/verify", needs: switchboard.OfficeOperator, readOnly: true,
		summary: "Check that no receipt was changed, removed or added. Long chains take several requests of two seconds: each answer says how far the check is, and how it continues. A chain holds the receipts of all tenants",
	}, func(ctx context.Context, _ asked, in *verifyRequest) (*struct{ Body receipt.VerifiedPart }, error) {
		var o receipt.VerifyOptions
		after := ""
		if b := in.Body; b != nil {
			o, after = receipt.VerifyOptions{Nodes: b.Nodes, Keys: b.Keys, Checkpoints: b.Checkpoints}, b.After
		}
		part, err := auditor.VerifyPart(ctx, o, after)
		if err != nil {
			return nil, err
		}
		return &struct{ Body receipt.VerifiedPart }{*part}, nil
	})
	add(a.API, route{
		id: "export-receipts", method: http.MethodGet, path: "/v1/receipts/export", needs: switchboard.OfficeViewer, types: []string{exportType},
		summary: "The receipts as they are stored, the oldest first: a line of JSON each, with the members entry and id. An answer that breaks off is not complete",
	}, func(_ context.Context, q asked, in *exportQuery) (*huma.StreamResponse, error) {
		query := in.query(q.tenant)
		if err := query.Check(); err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error()}
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			a.writeExport(ctx, q, auditor.Export(ctx.Context(), query))
		}}, nil
	})
}

// writeExport writes the lines. A failure before the first line is a problem; a later one ends the connection, so that no reader takes the lines so far for all.
func (a receiptRoutes) writeExport(ctx huma.Context, q asked, lines iter.Seq2[[]byte, error]) {
	r, w := humago.Unwrap(ctx)
	out := http.NewResponseController(w)
	var part bytes.Buffer
	begun := false
	write := func() {
		if !a.maySee(r, q) {
			panic(http.ErrAbortHandler)
		}
		if !begun {
			w.Header().Set("Content-Type", exportType)
			w.WriteHeader(http.StatusOK)
		}
		begun = true
		_ = out.SetWriteDeadline(time.Now().Add(eventTimeout))
		if _, err := w.Write(part.Bytes()); err != nil {
			panic(http.ErrAbortHandler)
		}
		part.Reset()
	}
	for line, err := range lines {
		switch {
		case err != nil && !begun:
			a.writeRefusal(ctx, err)
			return
		case err != nil:
			a.o.Log.Warn("an export of receipts has ended before its end", "by", q.officer.ID, "err", err)
			panic(http.ErrAbortHandler)
		}
		if part.Write(line); part.Len() >= exportPart {
			write()
		}
	}
	write()
}
