package page

import (
	"net/http"
	"net/url"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// Bounds of the time that the form waits for the end of a replay. The view then says how far it is.
const (
	replayWait = 2 * time.Second
	replayStep = 50 * time.Millisecond
)

// A receiptReplay is what the view of a receipt says about its replay.
type receiptReplay struct {
	Allowed bool               // the officer may start one, and the receipt has decisions
	Run     *whatif.Comparison // nil if the address names none, or if it is not kept
	NotKept *access.Problem    // why there is no result, although the address names one
}

// Same reports whether each decision came out as it was recorded.
func (r *receiptReplay) Same() bool {
	d := r.Run.Result
	return d.Decisions > 0 && d.Replayed == d.Decisions && len(d.Broken) == 0
}

// replayOf returns what the view says about the replay of a receipt.
func replayOf(q *viewQuery, r *readReceipt) (*receiptReplay, error) {
	mayStart := q.officer.Holds(switchboard.OfficeAuthor, r.Tenant) || q.officer.Holds(switchboard.OfficeAdmin, r.Tenant)
	p := &receiptReplay{Allowed: mayStart && (r.Decision != "" || len(r.Rulings) > 0)}
	id := q.state.Get("replay")
	if id == "" {
		return p, nil
	}
	c, err := readComparison(q, id)
	if err == nil {
		p.Run = c
		return p, nil
	}
	problem := problemOf(err)
	if problem.Status == http.StatusInternalServerError {
		return nil, err
	}
	p.NotKept = &problem
	return p, nil
}

// readComparison reads a comparison of recorded decisions.
func readComparison(q *viewQuery, id string) (*whatif.Comparison, error) {
	c := &whatif.Comparison{}
	return c, q.get(linkTo("/v1/policy-diffs/"+url.PathEscape(id), nil, "tenant", q.state.Get("tenant")), c)
}

// replayReceipt makes the decisions of the receipt again. A comparison without a proposal only replays.
func replayReceipt(q *viewQuery, _ url.Values) (formDone, error) {
	c := &whatif.Comparison{}
	body := map[string]string{"receipt": q.parts["node"] + "/" + q.parts["entry"]}
	if err := q.send(http.MethodPost, linkTo("/v1/policy-diffs", nil, "tenant", q.state.Get("tenant")), body, c); err != nil {
		return formDone{}, err
	}
	done := formDone{Next: linkTo(q.fill(q.view.path), q.state, "replay", c.ID) + "#replay"}
	for end := time.Now().Add(replayWait); c.State == whatif.Running && time.Now().Before(end); {
		select {
		case <-q.r.Context().Done():
			return done, nil
		case <-time.After(replayStep):
		}
		var err error
		if c, err = readComparison(q, c.ID); err != nil {
			break // the view says why
		}
	}
	return done, nil
}
