package change

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of the look at past decisions in a trial.
const (
	pastPeriod    = 7 * 24 * time.Hour
	pastDecisions = 2000
	pastTime      = 2 * time.Second
	pastChanges   = 10
)

// PastDecisions say what the recorded decisions of the last week would have been after a change. They begin with the newest.
type PastDecisions struct {
	Since  time.Time `json:"since"`
	Looked int       `json:"looked_at"`
	Of     int       `json:"of"`                      // recorded since then
	OrMore bool      `json:"or_more,omitempty"`       // there may be more: counting them took too long
	Back   time.Time `json:"looked_back_to,omitzero"` // all decisions since then were looked at

	// The decisions that were looked at: those that would be the same, those that would differ, and those that cannot be made again.
	Same      int `json:"same"`
	Different int `json:"different"`
	Unknown   int `json:"unknown"`

	Changes []replay.DecisionChange `json:"changes"`                // the first differences
	More    int                     `json:"more_changes,omitempty"` // further differences
	Why     string                  `json:"not_known,omitempty"`    // why nothing is known
}

// comparePast says what past decisions would have been by the configuration. tenant is the owner of the changed file: a change of its file changes no decision
// of another tenant. values says whether texts may repeat arguments of calls.
func comparePast(ctx context.Context, o *Options, c *config.Config, tenant switchboard.TenantID, values bool) *PastDecisions {
	p := &PastDecisions{Since: time.Now().Add(-pastPeriod), Changes: []replay.DecisionChange{}}
	d, err := o.Compare(ctx, replay.Bounds{Tenant: tenant, Since: p.Since, Limit: pastDecisions, Time: pastTime}, replay.ProposeConfig(c))
	if err != nil {
		if p.Why = "the decisions cannot be compared; the log output of Switchboard says why"; values {
			p.Why = err.Error()
		}
		return p
	}
	if !values {
		d = d.WithoutValues()
	}
	p.Looked, p.Of, p.OrMore, p.Back = d.Looked.Decisions, d.Looked.Of, d.Looked.OrMore, d.Looked.Back
	p.Different = d.Changed
	p.Unknown = len(d.Broken)
	for _, n := range d.NotReplayed {
		p.Unknown += n.Decisions
	}
	p.Same = d.Decisions - p.Different - p.Unknown
	p.Changes = append(p.Changes, d.Changes[:min(len(d.Changes), pastChanges)]...)
	p.More = len(d.Changes) - len(p.Changes) + d.Unlisted
	return p
}
