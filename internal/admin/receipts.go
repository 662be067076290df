package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
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
	Principal string // the id of the caller or of the officer
	Limit     int    // at least 1
	After     string // continue behind this place: ReceiptPage.Next
}

// A ReceiptPage is a part of what a search finds.
type ReceiptPage struct {
	Receipts []ReceiptRow `json:"receipts"`       // the newest first
	Next     string       `json:"next,omitempty"` // ask again with after=NEXT for more
	Looked   time.Time    `json:"looked_back_to"` // everything since then was looked at
	Complete bool         `json:"complete"`       // there are no more
}

// Bounds of one search for receipts.
const (
	receiptSearchTime = 2 * time.Second
	firstWindow       = time.Hour // the first part of the past that is looked at; each further one is longer
)

// SearchReceipts looks for receipts in one part of the past after the other, until it has enough or its time is over. The answer says how far it
// has looked.
func (r *Reader) SearchReceipts(ctx context.Context, s ReceiptSearch) (*ReceiptPage, error) {
	if err := s.Check(); err != nil {
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, receiptSearchTime)
	defer cancel()
	q := s.Query
	q.NewestFirst = true
	end, behind, at := time.Now().Add(time.Minute), "", time.Time{} // a replica's clock may be ahead
	if !q.Until.IsZero() {
		end = q.Until
	}
	if s.After != "" {
		instant, id, ok := strings.Cut(s.After, " ")
		var err error
		if at, err = time.Parse(time.RFC3339Nano, instant); !ok || err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "after is not the next of an answer before"}
		}
		end, behind = at.Add(time.Nanosecond), id
	}
	floor := time.Now().Add(-r.o.Configuration().Config.Receipts.Keep).Add(-24 * time.Hour) // older ones are trimmed
	if q.Since.After(floor) {
		floor = q.Since
	}
	page := &ReceiptPage{Receipts: []ReceiptRow{}, Looked: end}
	var last time.Time
	for window := firstWindow; end.After(floor); window *= 4 {
		q.Until, q.Since = end, end.Add(-window)
		if q.Since.Before(floor) {
			q.Since = floor
		}
		for e, err := range receipt.List(ctx, r.o.Store, q) {
			if err != nil {
				if ctx.Err() != nil {
					if len(page.Receipts) > 0 {
						page.Looked, page.Next = last, nextReceipt(last, page.Receipts[len(page.Receipts)-1].ID)
					}
					return page, nil
				}
				return nil, switchboard.Unavailable("the receipts cannot be read", err)
			}
			if behind != "" && e.Receipt.Time.Equal(at) { // receipts of several nodes can have the same time
				if e.ID() == behind {
					behind = ""
				}
				continue
			}
			behind = ""
			if s.Principal != "" && e.Receipt.Principal.ID != s.Principal {
				continue
			}
			if len(page.Receipts) == s.Limit {
				page.Looked, page.Next = last, nextReceipt(last, page.Receipts[len(page.Receipts)-1].ID)
				return page, nil
			}
			page.Receipts, last = append(page.Receipts, rowOf(&e)), e.Receipt.Time
		}
		end, behind, page.Looked = q.Since, "", q.Since
	}
	page.Complete = true
	return page, nil
}

func nextReceipt(at time.Time, id string) string { return at.UTC().Format(time.RFC3339Nano) + " " + id }

// rowOf returns an entry as a row.
func rowOf(e *receipt.ChainEntry) ReceiptRow {
	row := ReceiptRow{ID: e.ID()}
	if e.Fault != nil {
		row.Fault = e.Fault.Error()
		return row
	}
	var parts struct {
		Receipt json.RawMessage `json:"receipt"`
	}
	if err := json.Unmarshal(e.Raw, &parts); err != nil {
		row.Fault = err.Error()
		return row
	}
	row.Receipt = parts.Receipt
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
