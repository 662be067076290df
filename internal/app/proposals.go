package app

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// newProposals returns the book of proposals.
func newProposals(a *App, actions *admin.Actions) *proposal.Keeper {
	f := &fileChanges{App: a}
	return proposal.New(proposal.Options{
		Editor: a.admin.editor, Store: a.store, Record: actions.Record, Log: a.log,
		Served: func() *proposal.TaskWorld {
			s := a.state.Load()
			return &proposal.TaskWorld{TaskState: f.tasksOf(s.State), Config: s.config, FilesUnchanged: func() bool { return a.reloading.fault.Load() == nil && s.read.Unchanged() }}
		},
		Hurry: func() func() {
			a.reloading.hurried.Add(1)
			return func() { a.reloading.hurried.Add(-1) }
		},
		Officer: func(tenant switchboard.TenantID, v *proposal.PersonVote) (switchboard.Officer, error) {
			return live{&a.state, a.recorder}.officerOf(tenant, &approval.Vote{By: v.By, Auth: v.Auth, Credential: v.Credential, Claims: v.Claims})
		},
		Compare: func(ctx context.Context, b replay.Bounds, c *config.Config) (*replay.Diff, error) {
			settling, cancel := context.WithTimeout(ctx, b.Time/2)
			a.recorder.Settle(settling)
			cancel()
			return replay.CompareWithin(ctx, a.store, b, replay.ProposeConfig(c), nil)
		},
		Told: func(p *proposal.KeptProposal, by string) {
			a.admin.events.Add(event.Occurrence{Type: event.Proposal, Tenant: p.Tenant, Subject: p.ID, By: by})
		},
	})
}

// recoverRetry is how long a process waits until it looks again whether a proposal that is being applied was left by a killed process.
const recoverRetry = 10 * time.Second

// followProposals ends what a killed process has begun with proposals, once the servers have answered, and checks the claims of those that were rolled out: at the start
// and after each reload.
func followProposals(ctx context.Context, a *App) {
	select {
	case <-a.ready:
	case <-ctx.Done():
		return
	}
	if a.options.Officers.File == "" {
		return // the files belong to another program
	}
	for recovered := false; ; {
		var again <-chan time.Time
		if !recovered {
			err := a.admin.proposals.Recover(ctx)
			if recovered = err == nil; !recovered && ctx.Err() == nil {
				a.log.Warn("a proposal that was being applied is not ended", "err", err)
				again = time.After(recoverRetry)
			}
		}
		if err := a.admin.proposals.CheckRolledOut(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("whether proposals were rolled out is not known", "err", err)
		}
		select {
		case <-a.admin.reread:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}
