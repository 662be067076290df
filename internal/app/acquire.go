package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/acquire"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/registry"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// acquireLease is how long the right lasts to do the phases of dossiers: so long do they rest when a process is killed amid its work.
const acquireLease = 15 * time.Second

// newAcquisitions returns the keeper of dossiers.
func newAcquisitions(a *App) *acquire.Keeper {
	need := func(tenant switchboard.TenantID, capability string) (*switchboard.Requirement, error) {
		return neededRequirement(a, tenant, capability)
	}
	return acquire.New(acquire.Options{
		Store: a.store,
		Research: acquire.NewCatalogResearcher(acquire.CatalogResearcherOptions{
			State: func(tenant switchboard.TenantID) (*config.Config, []*switchboard.Tool) { return toolsFor(a, tenant) },
			Need:  need, Facts: npm.Facts,
			Read: func(ctx context.Context, row switchboard.ServerRegistry) (*registry.Listing, error) {
				return registry.Read(ctx, row, registry.Options{Folder: a.state.Load().config.Folder})
			},
		}),
		Workshop: acquire.NewStrictWorkshop(acquire.StrictWorkshopOptions{
			Editor: a.admin.editor, MakeLock: npm.MakeLock, StartWalled: a.verifier.StartWalled, Config: func() *config.Config { return a.state.Load().config }, Need: need,
			Known: func(id switchboard.ServerID) bool { return a.evidence.Of(id) != nil || len(a.pins.Verdicts(id)) > 0 },
		}),
		ProposalSteps: acquire.ProposalSteps{
			Propose: a.admin.proposals.Create, Look: a.admin.proposals.Show, Vote: a.admin.proposals.Decide, Apply: a.admin.proposals.Apply, RollBack: a.admin.proposals.RollBack,
			Withdraw: func(ctx context.Context, who proposal.Proposer, note, why string) error {
				return proposal.Withdraw(ctx, a.admin.proposals, who, note, why)
			},
		},
		Answer: func(ctx context.Context, by *switchboard.Officer, d *acquire.Dossier, r *acquire.PersonReview) error {
			return answerRequest(ctx, a, by, d, r)
		},
		InForce: func(ctx context.Context, tool switchboard.ToolID, digest string) error {
			return waitInForce(ctx, a, tool, digest)
		},
		Believe: func(ctx context.Context, t *acquire.TriedTool) error {
			r := &evidence.KeptReport{}
			if err := json.Unmarshal(t.Kept, r); err != nil {
				return err
			}
			return a.verifier.Believe(ctx, r)
		},
		Record: func(ctx context.Context, r *receipt.Receipt) (string, error) {
			if !a.ledger.Durable() {
				return a.ledger.Add(r), nil
			}
			return a.ledger.Write(ctx, r)
		},
		Told: func(d *acquire.Dossier, by string) {
			a.admin.events.Add(event.Occurrence{Type: event.Acquisition, Tenant: d.Tenant, Subject: d.ID, By: by})
		},
		Right: lease.New(a.store, lease.Options{Key: store.Key{Group: "acquisitions", Name: "lease"}, TTL: acquireLease, Data: []byte(cmp.Or(a.cluster.Self(), rand.Text()))}),
		Log:   a.log,
	})
}

// toolsFor returns the configuration in force and all tools, those of the tenant as the tenant sees them.
func toolsFor(a *App, tenant switchboard.TenantID) (*config.Config, []*switchboard.Tool) {
	s := a.state.Load()
	tools := slices.Clone(s.Catalog.Tools())
	if t := s.Tenants[tenant]; t != nil {
		for i := range tools {
			if own, ok := t.View.Tool(tools[i].ID); ok {
				tools[i] = own
			}
		}
	}
	return s.config, tools
}

// followAcquisitions does the phases of dossiers once the servers have answered.
func followAcquisitions(ctx context.Context, a *App) {
	select {
	case <-a.ready:
	case <-ctx.Done():
		return
	}
	if canAcquire(a) {
		a.admin.acquisitions.Run(ctx)
	}
}

// neededRequirement returns the requirement that a capability is for a tenant.
func neededRequirement(a *App, tenant switchboard.TenantID, capability string) (*switchboard.Requirement, error) {
	t, err := a.state.Load().ServedTenant(tenant)
	if err != nil {
		return nil, err
	}
	need, ok := lazyexpand.ReadCapability(capability, t.Taxonomy)
	if !ok {
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "%.80q is no verb and resource of the taxonomy, such as %q; only these can be looked for", capability, "search internet")
	}
	return &need, nil
}

// answerRequest gives or refuses the capability to the agent that has asked.
func answerRequest(ctx context.Context, a *App, by *switchboard.Officer, d *acquire.Dossier, r *acquire.PersonReview) error {
	wish := approvals.DecisionWish{Act: approval.ActApprove, Note: r.Note, Grant: approval.Grant{Scope: r.Scope}}
	if r.For > 0 {
		wish.Grant.Until = time.Now().Add(r.For)
	}
	if r.Answer != acquire.AnswerYes {
		wish.Act, wish.Grant = approval.ActRefuse, approval.Grant{}
	}
	_, err := a.admin.decider.Decide(ctx, by, d.Tenant, d.Seeker.Request, wish)
	return err
}

// waitInForce waits until the tool is let in with the definition of the digest.
func waitInForce(ctx context.Context, a *App, tool switchboard.ToolID, digest string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		why := "its server has not offered it"
		for _, v := range a.pins.Verdicts(tool.Server) {
			if v.Key.Kind == switchboard.PinTool && v.Key.Name == tool.Name {
				why = whyNotIn(&v, digest)
			}
		}
		if t, ok := a.state.Load().Catalog.Tool(tool); ok && why == "" && len(t.Capabilities) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New(cmp.Or(why, "the catalog has no label of it"))
		case <-tick.C:
		}
	}
}

// whyNotIn says why a tool is not let in with a definition; "" if it is.
func whyNotIn(v *admission.PinVerdict, digest string) string {
	switch got := digestOf(v); {
	case got != digest:
		return fmt.Sprintf("it offers another definition (%s) than the one that was tried (%s)", got, digest)
	case v.State != switchboard.LifeActive:
		return fmt.Sprintf("it is %s: %s", v.State, v.Why)
	}
	return ""
}

// seekAcquisition opens a dossier for a capability that an agent has asked for, and that no tool gives. The request stays in any case.
func seekAcquisition(ctx context.Context, a *App, r *approval.Request, reason string) {
	if !canAcquire(a) {
		return
	}
	if _, err := neededRequirement(a, r.Asker.Tenant, r.Target.Capability); err != nil {
		return // a name that nothing defines: nobody knows what to look for
	}
	if _, err := a.admin.acquisitions.Ask(ctx, r.Asker.Tenant, r.Target.Capability, seekerOf(r), reason); err != nil {
		a.log.Warn("no dossier was opened for a request", "request", r.ID(), "err", err)
	}
}

// canAcquire reports whether this process may propose changes of its files.
func canAcquire(a *App) bool { return a.options.Officers.File != "" }

func seekerOf(r *approval.Request) acquire.Seeker {
	return acquire.Seeker{ID: r.Asker.Principal, Auth: r.Asker.Auth, Agent: true, Task: r.Asker.Task, Request: r.ID()}
}

// progressOf says to an agent how far the search for a capability is.
func progressOf(ctx context.Context, a *App, r *approval.Request) (progress, note string) {
	if !canAcquire(a) {
		return "", ""
	}
	d, err := a.admin.acquisitions.Of(ctx, r.Asker.Tenant, r.Target.Capability, seekerOf(r))
	if err != nil || d == nil {
		return "", ""
	}
	if n := d.LastNote(); n != nil {
		note = n.Text
	}
	return d.Progress(time.Now()), note
}
