package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// receiptFilters are the fields of the form that selects receipts, as the API has them.
var receiptFilters = []string{"tenant", "principal", "task", "tool", "outcome", "code", "kind", "since", "until"}

// minuteLayout is how browsers write an instant in a form. Here it is in UTC.
const minuteLayout = "2006-01-02T15:04"

// receiptQuery returns the address of a path of the API with the filter of the view, without the named filters.
func receiptQuery(q *viewQuery, path string, without ...string) string {
	var pairs []string
	for _, name := range receiptFilters {
		text := strings.TrimSpace(q.state.Get(name))
		if at, err := time.Parse(minuteLayout, text); err == nil && (name == "since" || name == "until") {
			text = at.Format(time.RFC3339)
		}
		pairs = append(pairs, name, text)
	}
	for _, name := range without {
		pairs = append(pairs, name, "")
	}
	return linkTo(path, nil, pairs...)
}

// receiptsAt is the api of the list of receipts.
func receiptsAt(q *viewQuery) string {
	address := receiptQuery(q, "/v1/receipts")
	path, query, _ := strings.Cut(address, "?")
	values, _ := url.ParseQuery(query) // it was just made
	return linkTo(path, values, "after", q.state.Get("after"))
}

// A readReceipt is a receipt in the views.
type readReceipt struct {
	ID, Fault string
	receipt.Receipt
}

// What returns what the receipt is about: a tool, a prompt or a resource, a request for approval or a file.
func (r *readReceipt) What() string {
	switch {
	case r.Server != "" && r.Tool != "":
		return string(r.Server) + "/" + r.Tool
	case r.Resource.Scheme != "":
		return r.Resource.Scheme + "://" + r.Resource.Host
	case r.Tool != "":
		return r.Tool
	case r.Change.File != "":
		return r.Change.File
	case r.Approval.Request != "":
		return r.Approval.Request
	case r.Server != "":
		return string(r.Server)
	}
	return r.Method
}

// Took returns how long the call took, in milliseconds.
func (r *readReceipt) Took() float64 { return float64(r.Receipt.Took.Total) / 1000 }

// Waited returns how long the call waited before it was sent, in milliseconds.
func (r *readReceipt) Waited() float64 { return float64(r.Receipt.Took.Waiting) / 1000 }

// readRow reads a receipt of the API. One that cannot be read has its fault alone.
func readRow(row *admin.ReceiptRow) (*readReceipt, error) {
	r := &readReceipt{ID: row.ID, Fault: row.Fault}
	if row.Fault != "" {
		return r, nil
	}
	return r, json.Unmarshal(row.Receipt, &r.Receipt)
}

// outcomeClass names the icon of an outcome.
func outcomeClass(outcome receipt.CallOutcome) string {
	switch outcome {
	case receipt.OK:
		return "well"
	case receipt.Refused:
		return "refused"
	}
	return "ill"
}

// A receiptsPage is the data of the list of receipts.
type receiptsPage struct {
	At       time.Time
	Receipts []*readReceipt
	Next     string
	Looked   time.Time // back to then
	Complete bool
	Outcomes []receipt.CallOutcome
	Export   string // the address of the API
	Filtered bool
}

func loadReceipts(q *viewQuery, answer []byte) (any, error) {
	var page admin.ReceiptPage
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, err
	}
	l := &receiptsPage{
		At: time.Now(), Next: page.Next, Looked: page.Looked, Complete: page.Complete, Export: receiptQuery(q, "/v1/receipts/export", "principal"),
		Outcomes: []receipt.CallOutcome{receipt.OK, receipt.ToolError, receipt.ServerError, receipt.Refused, receipt.Failed, receipt.Unknown},
	}
	for _, name := range receiptFilters[1:] {
		l.Filtered = l.Filtered || q.state.Get(name) != ""
	}
	for i := range page.Receipts {
		r, err := readRow(&page.Receipts[i])
		if err != nil {
			return nil, err
		}
		l.Receipts = append(l.Receipts, r)
	}
	return l, nil
}

// receiptAt is the api of the view of one receipt.
func receiptAt(q *viewQuery) string {
	return linkTo("/v1/receipt", nil, "tenant", q.state.Get("tenant"), "id", q.parts["node"]+"/"+q.parts["entry"])
}

// A receiptPage is the data of the view of one receipt: the whole story of a call.
type receiptPage struct {
	At time.Time
	*readReceipt
	Intents []*readReceipt // of the attempts, in order, as far as they are kept
	Raw     string         // the receipt as it is stored, as lines
	Replay  *receiptReplay
}

func loadReceipt(q *viewQuery, answer []byte) (any, error) {
	var row admin.ReceiptRow
	if err := json.Unmarshal(answer, &row); err != nil {
		return nil, err
	}
	r, err := readRow(&row)
	if err != nil {
		return nil, err
	}
	v := &receiptPage{At: time.Now(), readReceipt: r}
	if r.Fault == "" {
		v.Raw = definitionText(row.Receipt)
	}
	ids := []string{}
	for _, try := range r.Tries {
		ids = append(ids, try.Of)
	}
	for _, id := range append(ids, r.Of) {
		var of admin.ReceiptRow
		if id == "" || q.get(linkTo("/v1/receipt", nil, "tenant", q.state.Get("tenant"), "id", id), &of) != nil {
			continue // a call without an effect has none, and old ones are trimmed
		}
		if intent, err := readRow(&of); err == nil {
			v.Intents = append(v.Intents, intent)
		}
	}
	v.Replay, err = replayOf(q, r)
	return v, err
}

// maxVerifyParts limits the requests of one verification by a form. Each takes about two seconds.
const maxVerifyParts = 5

// A verifyResult says what a verification has found. Chains are those that its last form has checked to their ends.
type verifyResult struct {
	receipt.VerifiedPart
	Before int  // chains that earlier forms have checked
	Wrong  int  // of all chains
	Fit    int  // checkpoints of all chains
	Held   bool // checkpoints were sent
}

// Done is how many chains are checked.
func (v *verifyResult) Done() int { return v.Before + len(v.Chains) }

// verifyReceipts checks the chains of receipts. It stops after a while, and says how far it is. Its form goes on from there.
func verifyReceipts(q *viewQuery, fields url.Values) (formDone, error) {
	marks, err := receipt.ReadCheckpoints(strings.NewReader(strings.ReplaceAll(fields.Get("checkpoints"), "\r\n", "\n")))
	if err != nil {
		return formDone{}, &refusalError{access.Problem{Status: http.StatusBadRequest, Code: switchboard.CodeBadArguments, Detail: err.Error(), Hint: "A checkpoint is one line of the anchor file, or of the log output."}}
	}
	all := &verifyResult{Held: len(marks) > 0}
	for name, n := range map[string]*int{"before": &all.Before, "wrong": &all.Wrong, "fit": &all.Fit} {
		*n, _ = strconv.Atoi(fields.Get(name)) // 0 if the form is the first
	}
	after := fields.Get("after")
	for range maxVerifyParts {
		var part receipt.VerifiedPart
		ask := struct {
			Checkpoints []receipt.Checkpoint `json:"checkpoints,omitempty"`
			After       string               `json:"after,omitempty"`
		}{marks, after}
		if err := q.send(http.MethodPost, "/v1/receipts/verify", ask, &part); err != nil {
			return formDone{}, err
		}
		all.Chains, all.Looked, all.Of = append(all.Chains, part.Chains...), part.Looked, part.Of
		if after = part.Next; after == "" {
			break
		}
	}
	all.Next = after
	for i := range all.Chains {
		if all.Fit += all.Chains[i].Checkpoints; all.Chains[i].Fault != nil {
			all.Wrong++
		}
	}
	return formDone{Result: all}, nil
}
