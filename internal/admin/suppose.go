package admin

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A DecisionWhatIf says what a decision that is only shown is made with, in the place of what holds now. The zero DecisionWhatIf replaces nothing.
type DecisionWhatIf struct {
	Tier    string                 // of the caller: one of the tenant's
	Mode    switchboard.Mode       // of the caller
	At      time.Time              // when it is decided; only policies that read the clock ask for it
	Without []switchboard.ServerID // servers that are out
	Config  *config.Config         // with changed files; it was checked
}

// takenOut is the state of a server that a what-if takes out.
const takenOut = "the what-if takes its server out"

// configuration returns the configuration to decide by.
func (w *DecisionWhatIf) configuration(r *Reader) (Configuration, error) {
	c := r.o.Configuration()
	if w.Config == nil {
		return c, nil
	}
	st, err := c.StateOf(w.Config)
	if err != nil {
		return c, err
	}
	c.State = st
	return c, nil
}

// replacesInputs reports whether the what-if replaces an input of a decision. The configuration is none: see configuration.
func (w *DecisionWhatIf) replacesInputs() bool {
	return w.Tier != "" || w.Mode != "" || !w.At.IsZero() || len(w.Without) > 0
}

// decide decides for a task that st resolved for p. The error is a *switchboard.Error.
func (w *DecisionWhatIf) decide(ctx context.Context, st *bind.State, p switchboard.Principal, task switchboard.TaskID, seen decide.Observed) (*decide.Decision, error) {
	if t := st.Tenants[p.Tenant]; t != nil {
		policy.KeepTerms(t.Rules)
	}
	if !w.replacesInputs() {
		return st.DecideConfigured(ctx, p, task, seen, time.Now())
	}
	p, err := st.CurrentPrincipal(p)
	if err != nil {
		return nil, err
	}
	t := st.Tenants[p.Tenant]
	if err := w.checkTier(t.ID, t.Tiers); err != nil {
		return nil, err
	}
	return w.decideWith(ctx, t, p, t.Tasks[task], seen, time.Now())
}

// checkTier refuses a tier that the tenant does not have: else its officers could ask how the operator's policies judge the tiers of other tenants.
func (w *DecisionWhatIf) checkTier(tenant switchboard.TenantID, tiers []string) error {
	if w.Tier == "" || slices.Contains(tiers, w.Tier) {
		return nil
	}
	e := switchboard.Refuse(switchboard.CodeBadArguments, "tenant %s has no tier %.64q", tenant, w.Tier)
	if e.Hint = "its tiers are " + strings.Join(tiers, ", "); len(tiers) == 0 {
		e.Hint = "the operator gives it none: see tier in its row of switchboard.yaml"
	}
	return e
}

// decideAgain makes a recorded decision again, with the tenant as it was then. Only what the what-if names is replaced.
func (w *DecisionWhatIf) decideAgain(ctx context.Context, t *bind.Tenant, was *decide.Decision) (*decide.Decision, error) {
	return w.decideWith(ctx, t, was.Principal, was.Task, decide.Observed{Unfit: was.Unfit, Atoms: was.Atoms}, was.Now)
}

// decideWith decides from inputs. It replaces the inputs that the what-if names.
func (w *DecisionWhatIf) decideWith(ctx context.Context, t *bind.Tenant, p switchboard.Principal, task *switchboard.Task, seen decide.Observed, now time.Time) (*decide.Decision, error) {
	if w.Tier != "" {
		p.Tier = w.Tier
	}
	if w.Mode != "" {
		p.Mode = w.Mode
	}
	if !w.At.IsZero() {
		now = w.At
	}
	if len(w.Without) > 0 {
		if seen.Unfit = maps.Clone(seen.Unfit); seen.Unfit == nil {
			seen.Unfit = decide.Unfit{}
		}
	}
	for _, id := range w.Without {
		if !t.MayUseServer(id) {
			return nil, switchboard.Refuse(switchboard.CodeBadArguments, "tenant %s has no server %.64q that could be out", t.ID, id)
		}
		seen.Unfit[switchboard.ToolID{Server: id}] = takenOut
	}
	return t.RunPipeline(ctx, p, task, seen, now)
}
