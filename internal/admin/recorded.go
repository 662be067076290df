package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A DecisionRow is a recorded decision on a task, in short. Its receipt has the same id.
type DecisionRow struct {
	ID        string               `json:"id"`
	Fault     string               `json:"fault,omitempty"` // why its receipt cannot be read
	Time      time.Time            `json:"time,omitzero"`
	Tenant    switchboard.TenantID `json:"tenant,omitempty"`
	Task      switchboard.TaskID   `json:"task,omitempty"`
	Principal DecisionPrincipal    `json:"principal,omitzero"`
	Outcome   receipt.CallOutcome  `json:"outcome,omitempty"` // ok, or refused: the task could not start
	Code      switchboard.Code     `json:"code,omitempty"`    // of the refusal
	Decision  switchboard.Digest   `json:"decision,omitempty"`
	Basis     switchboard.Digest   `json:"basis,omitempty"` // what the decision was made from
}

// A DecisionPrincipal is the caller that a decision was made for.
type DecisionPrincipal struct {
	ID   string           `json:"id"`
	Auth switchboard.Auth `json:"auth,omitempty"`
	Mode switchboard.Mode `json:"mode,omitempty"`
}

// A DecisionPage is a part of the decisions that a search finds.
type DecisionPage struct {
	Decisions []DecisionRow `json:"decisions"`      // the newest first
	Next      string        `json:"next,omitempty"` // ask again with after=NEXT for more
	Looked    time.Time     `json:"looked_back_to"` // everything since then was looked at
	Complete  bool          `json:"complete"`       // there are no more
}

// A RecordedDecision is a recorded decision with its explanation.
type RecordedDecision struct {
	DecisionRow
	Policies []replay.PolicyVersion `json:"policies,omitempty"` // that made it

	// Explanation explains the decision as it was made then. It has neither the health of servers nor the names of tools in clients' lists,
	// because a decision does not record them.
	Explanation *Explanation `json:"explanation,omitempty"`
	Unexplained string       `json:"not_explained,omitempty"` // why there is no explanation

	// WhatIf explains the decision as it would have come out with the what-if that was asked for. All other inputs are as recorded.
	WhatIf *Explanation `json:"what_if,omitempty"`

	// Unrecorded says what the archive lacks to check the what-if.
	Unrecorded []string `json:"not_recorded,omitempty"`
}

// remakeTimeout limits how long a recorded decision is made again: its policies must be compiled.
const remakeTimeout = 10 * time.Second

// maxRemade limits how many recorded decisions are made again at once.
const maxRemade = 2

// A DecisionReader finds and explains recorded decisions. Use NewDecisionReader. It is safe for concurrent use.
type DecisionReader struct {
	receipts *Reader
	openers  chan *replay.DecisionOpener // those that are free; nil is made at its first use
}

// NewDecisionReader returns a DecisionReader.
func NewDecisionReader(r *Reader) *DecisionReader {
	d := &DecisionReader{r, make(chan *replay.DecisionOpener, maxRemade)}
	for range maxRemade {
		d.openers <- nil
	}
	return d
}

// maxScanned is how many recorded decisions one search for a digest compares.
const maxScanned = 500

// Search looks for recorded decisions as SearchReceipts looks for receipts. If digest is not "", it gives those with this digest alone: no index has
// digests, so an answer can be empty although a later part has some.
func (r *DecisionReader) Search(ctx context.Context, s ReceiptSearch, digest switchboard.Digest) (*DecisionPage, error) {
	most := s.Limit
	if s.Kind = receipt.Decision; digest != "" {
		s.Limit = maxScanned
	}
	found, err := r.receipts.SearchReceipts(ctx, s)
	if err != nil {
		return nil, err
	}
	page := &DecisionPage{Decisions: make([]DecisionRow, len(found.Receipts)), Next: found.Next, Looked: found.Looked, Complete: found.Complete}
	for i := range found.Receipts {
		page.Decisions[i] = decisionOf(&found.Receipts[i])
	}
	if digest != "" {
		page.Decisions = slices.DeleteFunc(page.Decisions, func(d DecisionRow) bool { return d.Decision != digest })
	}
	if len(page.Decisions) > most {
		page.Decisions = page.Decisions[:most]
		last := &page.Decisions[most-1]
		page.Looked, page.Next, page.Complete = last.Time, nextReceipt(last.Time, found.Receipts[:1+slices.IndexFunc(found.Receipts, func(r ReceiptRow) bool { return r.ID == last.ID })]), false
	}
	return page, nil
}

// decisionOf returns the decision that a receipt records.
func decisionOf(row *ReceiptRow) DecisionRow {
	d := DecisionRow{ID: row.ID, Fault: row.Fault}
	if row.Fault == "" {
		if err := json.Unmarshal(row.Receipt, &d); err != nil {
			d.Fault = err.Error()
		}
	}
	return d
}

// Read returns the decision that the receipt with the id records, if it belongs to the tenant; "" means every tenant. It returns nil if
// there is none. For others than an operator, the explanation has no texts of the system, and the tier of the what-if must be one of the tenant's now, or
// that of the record: the record does not say which tiers the tenant had. The what-if has no configuration.
func (r *DecisionReader) Read(ctx context.Context, tenant switchboard.TenantID, id string, operator bool, w *DecisionWhatIf) (out *RecordedDecision, err error) {
	err = r.withDecision(ctx, tenant, id, func(ctx context.Context, opener *replay.DecisionOpener, row *ReceiptRow, of *receipt.Receipt) error {
		out = &RecordedDecision{DecisionRow: decisionOf(row), Policies: replay.PolicyVersions(ctx, r.receipts.o.Store, of)}
		opened, err := opener.Open(ctx, of)
		if err != nil {
			if out.Unexplained = err.Error(); !operator {
				out.Unexplained = "the decision cannot be made again from its archive; an operator can see why"
			}
			return nil
		}
		e := explainer{tenant: opened.Tenant}
		out.Explanation = e.explainRecorded(ctx, opened.Decision)
		if !w.replacesInputs() {
			return nil
		}
		if !operator {
			if err := w.checkTier(opened.Decision.Tenant, r.tiersBeside(opened.Decision)); err != nil {
				return err
			}
		}
		after, err := w.decideAgain(ctx, opened.Tenant, opened.Decision)
		if err != nil {
			return err
		}
		out.WhatIf = e.explainRecorded(ctx, after)
		if w.Tier != "" {
			out.Unrecorded = append(out.Unrecorded, fmt.Sprintf("which tiers tenant %s had then: %.64q may have been none of them", after.Tenant, w.Tier))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// withDecision calls use with the receipt of a decision, and with an opener that is free, for remakeTimeout at most. It does not call use if there is no such
// decision of the tenant ("" means every tenant), or if its receipt cannot be read.
func (r *DecisionReader) withDecision(ctx context.Context, tenant switchboard.TenantID, id string, use func(context.Context, *replay.DecisionOpener, *ReceiptRow, *receipt.Receipt) error) error {
	row, err := r.receipts.FindReceipt(ctx, tenant, id)
	if err != nil || row == nil {
		return err
	}
	var of receipt.Receipt
	if row.Fault != "" || json.Unmarshal(row.Receipt, &of) != nil || of.Kind != receipt.Decision {
		return nil
	}
	opener, err := r.takeOpener()
	if err != nil {
		return err
	}
	defer func() { r.openers <- opener }()
	ctx, cancel := context.WithTimeout(ctx, remakeTimeout)
	defer cancel()
	return use(ctx, opener, row, &of)
}

// tiersBeside returns the tier of a recorded decision, and those that its tenant has now.
func (r *DecisionReader) tiersBeside(d *decide.Decision) (tiers []string) {
	if t := r.receipts.o.Configuration().Tenants[d.Tenant]; t != nil {
		tiers = slices.Clone(t.Tiers)
	}
	if own := d.Principal.Tier; own != "" && !slices.Contains(tiers, own) {
		tiers = append(tiers, own)
	}
	return tiers
}

// explainRecorded explains a decision that was made from recorded inputs.
func (e explainer) explainRecorded(ctx context.Context, d *decide.Decision) *Explanation {
	record := d.Canonical()
	x := &Explanation{Tenant: d.Tenant, Task: d.Task.ID, Digest: canonical.Sum(record), Tools: []ExplainedTool{}, Decision: record}
	for i := range d.Outcomes {
		x.Requirements = append(x.Requirements, e.explainOutcome(ctx, d, &d.Outcomes[i]))
	}
	x.Flows = bind.SelectedFlows(d)
	if err := d.Err(); err != nil {
		x.Why = err.Error()
	}
	return x
}

// takeOpener returns a DecisionOpener, which the caller gives back.
func (r *DecisionReader) takeOpener() (*replay.DecisionOpener, error) {
	select {
	case opener := <-r.openers:
		if opener == nil {
			opener = replay.NewDecisionOpener(r.receipts.o.Store)
		}
		return opener, nil
	default:
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d recorded decisions are being explained, the most at once; try again", maxRemade)
	}
}

// Input returns the input that policy got for a requirement, from 1, of the decision that the receipt with the id records, if it belongs to the
// tenant. It returns nil if there is none. The error is a *switchboard.Error.
func (r *DecisionReader) Input(ctx context.Context, tenant switchboard.TenantID, id string, requirement int) (input map[string]any, err error) {
	err = r.withDecision(ctx, tenant, id, func(ctx context.Context, opener *replay.DecisionOpener, _ *ReceiptRow, of *receipt.Receipt) error {
		all, err := opener.Inputs(ctx, of.Time, of.Decision, of.Basis)
		switch {
		case err != nil:
			return switchboard.Refuse(switchboard.CodeBadArguments, "the inputs of the decision are not known any more: %s", err)
		case requirement < 1 || requirement > len(all):
			return switchboard.Refuse(switchboard.CodeBadArguments, "the decision has %d requirements, and none with the number %d", len(all), requirement)
		}
		input = all[requirement-1]
		return nil
	})
	return input, err
}
