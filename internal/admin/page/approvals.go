package page

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
)

// approvalPath is the address of a request in the API. It names no tenant: an id is looked for in all tenants that the officer sees, so that a link needs none.
func approvalPath(q *viewQuery) string { return q.fill("/v1/approvals/{request}") }

// requestsAt returns the api of a view of the requests in a state; "" is all states.
func requestsAt(state approval.State) func(*viewQuery) string {
	return func(q *viewQuery) string { return linkTo("/v1/approvals", q.state, "state", string(state)) }
}

// A requestList is the data of the views of requests for approval.
type requestList struct {
	At       time.Time
	Requests []approvals.ApprovalRow
	Next     string
}

// loadWaiting reads the requests that wait for a person.
func loadWaiting(_ *viewQuery, answer []byte) (any, error) { return readRequests(answer, false) }

// loadDecided reads the other requests.
func loadDecided(_ *viewQuery, answer []byte) (any, error) { return readRequests(answer, true) }

func readRequests(answer []byte, decided bool) (any, error) {
	var page struct {
		Approvals []approvals.ApprovalRow
		Next      string
	}
	err := json.Unmarshal(answer, &page)
	l := &requestList{At: time.Now(), Next: page.Next}
	for _, r := range page.Approvals {
		if (r.State != approval.Pending) == decided {
			l.Requests = append(l.Requests, r)
		}
	}
	return l, err
}

// A standingPage is the data of the view of standing yeses.
type standingPage struct {
	At       time.Time
	Standing []approvals.StandingRow
	Next     string
}

func loadStanding(_ *viewQuery, answer []byte) (any, error) {
	l := &standingPage{At: time.Now()}
	return l, json.Unmarshal(answer, l)
}

// endStanding ends the standing yes in the field "id".
func endStanding(q *viewQuery, fields url.Values) (formDone, error) {
	done := &approvals.StandingRow{}
	err := q.send(http.MethodPost, "/v1/standing-approvals/"+url.PathEscape(fields.Get("id"))+"/end", nil, done)
	return formDone{Result: done}, err
}

// An approvalPage is the data of the view of one request.
type approvalPage struct {
	approvals.ApprovalView
	At     time.Time
	May    bool   // the officer may decide it now
	Revoke bool   // the officer may take its yes back
	Tests  string // what a standing yes would test, as the form proposes it; "" if it cannot be made from the request
	Before string // the last action of the officer, on another request; "" for none
}

func loadApproval(q *viewQuery, answer []byte) (any, error) {
	v := &approvalPage{At: time.Now()}
	if err := json.Unmarshal(answer, &v.ApprovalView); err != nil {
		return nil, err
	}
	if q.state.Has("tenant") {
		q.state.Set("tenant", string(v.Tenant))
	}
	v.May = v.State == approval.Pending && v.WhyNot == ""
	v.Revoke = v.State == approval.Approved && v.WhyNot == ""
	if v.May && v.Kind == approval.ForCall && v.Needed == 1 {
		v.Tests = proposeTests(&v.Arguments)
	}
	switch before := q.state.Get("before"); before {
	case "approved", "refused", "counted":
		v.Before = before
	}
	return v, nil
}

// proposeTests returns the tests of a standing yes that fit the arguments of a request, and no others. Texts of others are spelt out where they are shown, so an argument
// that is not shown as it is gets no test, and the person must write one.
func proposeTests(a *approvals.ShownArguments) string {
	if a.Text == "" {
		return ""
	}
	var members map[string]json.RawMessage
	if len(a.Masked) > 0 || strings.Contains(a.Text, `\u{`) || json.Unmarshal([]byte(a.Text), &members) != nil {
		return "{}"
	}
	tests := map[string]map[string]json.RawMessage{}
	for name, value := range members {
		name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		tests["/"+name] = map[string]json.RawMessage{"equals": value}
	}
	text, _ := json.MarshalIndent(tests, "", "  ")
	return string(text)
}

// decideRequest returns the form that says yes or no to a request. The next request opens then that the officer may decide.
func decideRequest(act, said string) viewForm {
	return func(q *viewQuery, fields url.Values) (formDone, error) {
		body := map[string]string{}
		for _, name := range []string{"note", "scope", "for"} {
			if text := strings.TrimSpace(fields.Get(name)); text != "" && (name == "note" || act == "approve") {
				body[name] = text
			}
		}
		row := &approvals.ApprovalRow{}
		if err := q.send(http.MethodPost, approvalPath(q)+"/"+act, body, row); err != nil {
			return formDone{}, err
		}
		said := said
		if row.State == approval.Pending {
			said = "counted"
		}
		next, err := nextRequest(q)
		if err != nil || next == "" {
			return formDone{Result: row}, nil //nolint:nilerr // the decision is made; the view shows what has become of the request
		}
		return formDone{Next: linkTo("/approvals/"+url.PathEscape(next), nil, "tenant", q.state.Get("tenant"), "before", said)}, nil
	}
}

// maxNextRequests limits how many requests are read to find one that the officer may decide.
const maxNextRequests = 5

// nextRequest returns the id of the waiting request that expires first, of those that the officer may decide; "" for none.
func nextRequest(q *viewQuery) (string, error) {
	var page struct{ Approvals []approvals.ApprovalRow }
	if err := q.get(linkTo("/v1/approvals", nil, "state", string(approval.Pending), "tenant", q.state.Get("tenant")), &page); err != nil {
		return "", err
	}
	slices.SortFunc(page.Approvals, func(a, b approvals.ApprovalRow) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.ID, b.ID))
	})
	for i, row := range page.Approvals {
		if i == maxNextRequests {
			break
		}
		var v approvals.ApprovalView
		if row.ID == q.parts["request"] {
			continue
		}
		if err := q.get("/v1/approvals/"+url.PathEscape(row.ID), &v); err == nil && v.State == approval.Pending && v.WhyNot == "" {
			return v.ID, nil
		}
	}
	return "", nil
}

// revokeRequest takes a yes back.
func revokeRequest(q *viewQuery, fields url.Values) (formDone, error) {
	body := map[string]string{}
	if note := strings.TrimSpace(fields.Get("note")); note != "" {
		body["note"] = note
	}
	row := &approvals.ApprovalRow{}
	err := q.send(http.MethodPost, approvalPath(q)+"/revoke", body, row)
	return formDone{Result: row}, err
}

// makeStanding says yes in advance to calls like the one of the request.
func makeStanding(q *viewQuery, fields url.Values) (formDone, error) {
	uses, _ := strconv.ParseInt(strings.TrimSpace(fields.Get("uses")), 10, 64) // the API refuses 0
	tests := json.RawMessage(strings.TrimSpace(fields.Get("arguments")))
	if !json.Valid(tests) {
		tests, _ = json.Marshal(string(tests)) // the API says what is wrong
	}
	done := &approvals.StandingRow{}
	err := q.send(http.MethodPost, approvalPath(q)+"/standing", map[string]any{"uses": uses, "for": strings.TrimSpace(fields.Get("for")), "arguments": tests}, done)
	return formDone{Result: done}, err
}
