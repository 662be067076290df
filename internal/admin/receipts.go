package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A ReceiptRow is a receipt, its id, and the receipt as it is stored.
type ReceiptRow struct {
	ID      string          `json:"id"`
	Fault   string          `json:"fault,omitempty"` // why it cannot be read
	Receipt json.RawMessage `json:"receipt,omitempty"`
}

// A ReceiptSearch asks for receipts, the newest first.
type ReceiptSearch struct {
	receipt.Query
	Limit int    // at least 1
	After string // continue behind this place: ReceiptPage.Next
}

// A ReceiptPage has some of the receipts that a search finds.
type ReceiptPage struct {
	Receipts []ReceiptRow `json:"receipts"`       // the newest first
	Next     string       `json:"next,omitempty"` // ask again with after=NEXT for more; "" only if Complete
	Looked   time.Time    `json:"looked_back_to"` // everything since then was looked at
	Complete bool         `json:"complete"`       // there are no more
}

// Bounds of one search for receipts.
const (
	receiptSearchTime = 2 * time.Second // then the answer says how far it has looked
	receiptSearchWork = 1000            // see receipt.Query.MaxWork
	receiptReadTime   = 8 * time.Second // for a store that answers late
)

// SearchReceipts looks for receipts until it has enough or has done the work that one answer may cost. The answer says how far it has looked.
func (r *Reader) SearchReceipts(ctx context.Context, s ReceiptSearch) (*ReceiptPage, error) {
	if err := s.Check(); err != nil {
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, receiptReadTime)
	defer cancel()
	q := s.Query
	q.NewestFirst, q.MaxWork, q.StopAt = true, receiptSearchWork, time.Now().Add(receiptSearchTime)
	behind, at := "", time.Time{}
	if q.Until.IsZero() {
		q.Until = time.Now().Add(time.Minute) // a replica's clock may be ahead
	}
	if s.After != "" {
		instant, id, _ := strings.Cut(s.After, " ")
		var err error
		if at, err = time.Parse(time.RFC3339Nano, instant); err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "after is not the next of an answer before"}
		}
		if q.Until, behind = at, id; id != "" {
			q.Until = at.Add(time.Nanosecond) // receipts of several nodes can have the same time
		}
	}
	floor := time.Now().Add(-r.o.Configuration().Config.Receipts.Keep).Add(-24 * time.Hour) // older ones are trimmed
	if q.Since.Before(floor) {
		q.Since = floor
	}
	page := &ReceiptPage{Receipts: []ReceiptRow{}, Looked: q.Since}
	if !q.Since.Before(q.Until) {
		page.Complete = true
		return page, nil
	}
	var last time.Time
	for e, err := range receipt.List(ctx, r.o.Store, q) {
		var unfinished *receipt.UnfinishedError
		switch {
		case errors.As(err, &unfinished):
			page.Looked, page.Next = unfinished.Looked, unfinished.Looked.UTC().Format(time.RFC3339Nano)
			return page, nil
		case err != nil && ctx.Err() != nil && len(page.Receipts) > 0:
			page.Looked, page.Next = last, nextReceipt(last, page.Receipts)
			return page, nil
		case err != nil:
			return nil, switchboard.Unavailable("the receipts cannot be read", err)
		}
		if behind != "" && e.Receipt.Time.Equal(at) {
			if e.ID() == behind {
				behind = ""
			}
			continue
		}
		behind = ""
		if len(page.Receipts) == s.Limit {
			page.Looked, page.Next = last, nextReceipt(last, page.Receipts)
			return page, nil
		}
		page.Receipts, last = append(page.Receipts, rowOf(&e)), e.Receipt.Time
	}
	page.Complete = true
	return page, nil
}

// nextReceipt returns the place behind the last of the receipts, which has that time.
func nextReceipt(at time.Time, all []ReceiptRow) string {
	return at.UTC().Format(time.RFC3339Nano) + " " + all[len(all)-1].ID
}

// rowOf returns an entry as a row.
func rowOf(e *receipt.ChainEntry) ReceiptRow {
	row := ReceiptRow{ID: e.ID()}
	if e.Fault != nil {
		row.Fault = e.Fault.Error()
		return row
	}
	row.Receipt, _ = wire.Field(e.Raw, "receipt") // it has one, because the entry could be read
	return row
}

// FindReceipt returns the receipt with the id, if it belongs to the tenant; "" means every tenant. It returns nil if there is none.
func (r *Reader) FindReceipt(ctx context.Context, tenant switchboard.TenantID, id string) (*ReceiptRow, error) {
	ctx, cancel := context.WithTimeout(ctx, receiptSearchTime)
	defer cancel()
	if _, _, _, err := receipt.ParseID(id); err != nil {
		return nil, nil
	}
	e, err := receipt.Find(ctx, r.o.Store, id)
	switch {
	case errors.Is(err, receipt.ErrNotFound) || err == nil && tenant != "" && e.Receipt.Tenant != tenant:
		return nil, nil
	case err != nil:
		return nil, switchboard.Unavailable("the receipts cannot be read", err)
	}
	row := rowOf(&e)
	return &row, nil
}
