package admin

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of verifications and exports.
const (
	verifyTime    = 2 * time.Second  // of one part of a verification
	verifyTimeout = 20 * time.Second // if the store is slow
	maxVerified   = 2                // parts at once

	// maxTenantExports limits the exports of one tenant's receipts at once, and maxExports those of all tenants together. Exports that are of no
	// single tenant, which only operators make, have the limit maxTenantExports too, and do not count in maxExports.
	maxExports       = 32
	maxTenantExports = 2
)

// A ReceiptAuditor verifies and exports receipts. Use NewReceiptAuditor. It is safe for concurrent use.
type ReceiptAuditor struct {
	receipts  *Reader
	within    time.Duration
	verifying chan struct{} // has an element for each part of a verification that is in progress
	exporting exportCounter
}

// An exportCounter counts the exports in progress, by tenant.
type exportCounter struct {
	mu  sync.Mutex
	all int // those of tenants
	by  map[switchboard.TenantID]int
}

// enter counts an export, or says why it may not begin.
func (c *exportCounter) enter(tenant switchboard.TenantID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.by[tenant] >= maxTenantExports:
		return switchboard.Refuse(switchboard.CodeOverloaded, "%d exports of these receipts are in progress, the most at once; try again", maxTenantExports)
	case tenant != "" && c.all >= maxExports:
		return switchboard.Refuse(switchboard.CodeOverloaded, "%d exports of receipts are in progress, the most at once; try again", maxExports)
	}
	c.add(tenant, 1)
	return nil
}

// leave ends an export.
func (c *exportCounter) leave(tenant switchboard.TenantID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(tenant, -1)
}

func (c *exportCounter) add(tenant switchboard.TenantID, n int) {
	if tenant != "" {
		c.all += n
	}
	if c.by[tenant] += n; c.by[tenant] == 0 {
		delete(c.by, tenant)
	}
}

// NewReceiptAuditor returns a ReceiptAuditor.
func NewReceiptAuditor(r *Reader) *ReceiptAuditor {
	return &ReceiptAuditor{receipts: r, within: verifyTime, verifying: make(chan struct{}, maxVerified), exporting: exportCounter{by: map[switchboard.TenantID]int{}}}
}

// VerifyPart checks chains for about two seconds, and says where the next part continues. See receipt.VerifyPart. The error is a *switchboard.Error.
func (a *ReceiptAuditor) VerifyPart(ctx context.Context, o receipt.VerifyOptions, after string) (*receipt.VerifiedPart, error) {
	for _, node := range o.Nodes {
		if err := receipt.CheckNode(node); err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error()}
		}
	}
	select {
	case a.verifying <- struct{}{}:
		defer func() { <-a.verifying }()
	default:
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d verifications of receipts are in progress, the most at once; try again", maxVerified)
	}
	for i := range o.Checkpoints { // each signature is verified
		if err := o.Checkpoints[i].Check(); err != nil {
			return nil, switchboard.Refuse(switchboard.CodeBadArguments, "checkpoint %d: %v", i+1, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	part, err := receipt.VerifyPart(ctx, a.receipts.o.Store, o, after, a.within)
	switch {
	case errors.Is(err, receipt.ErrNotNext):
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "after is not the next of an answer before; begin again without it"}
	case err != nil:
		return nil, switchboard.Unavailable("the receipts cannot be read", err)
	}
	return part, nil
}

// Export yields the receipts that the query selects, the oldest first, each as a line; see receipt.ChainEntry.AppendLine. An error is a *switchboard.Error, and
// ends it.
func (a *ReceiptAuditor) Export(ctx context.Context, q receipt.Query) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if err := a.exporting.enter(q.Tenant); err != nil {
			yield(nil, err)
			return
		}
		defer a.exporting.leave(q.Tenant)
		var line []byte
		for e, err := range receipt.List(ctx, a.receipts.o.Store, q) {
			if err != nil {
				yield(nil, switchboard.Unavailable("the receipts cannot be read", err))
				return
			}
			if line = line[:0]; e.Fault != nil && q.Tenant != "" { // it may be of another tenant
				line = appendUnreadable(line, e.ID())
			} else {
				line = e.AppendLine(line)
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// appendUnreadable appends the line for an entry that cannot be read, to a reader who may see only one tenant.
func appendUnreadable(b []byte, id string) []byte {
	text, _ := json.Marshal(map[string]string{"fault": "this entry cannot be read, so its tenant is unknown", "id": id}) // texts can be encoded
	return append(append(b, text...), '\n')
}
