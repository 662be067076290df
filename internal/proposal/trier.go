package proposal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A trier tries proposals aside. It changes nothing.
type trier struct {
	editor  *change.Editor
	served  func() *TaskWorld
	compare func(ctx context.Context, b replay.Bounds, c *config.Config) (*replay.Diff, error)
	trying  chan struct{} // has an element for each trial of a new proposal
}

// maxTrials is how many new proposals are tried at once.
const maxTrials = 4

// readFiles notes the present texts of the files, and the parts that the draft touches. holds reports whether the proposer is an officer, who may then change all of them.
func (b *trier) readFiles(p *KeptProposal, officer *switchboard.Officer, d *Draft) (holds bool, err error) {
	operator := switchboard.Officer{Operator: true}
	p.Files, p.Parts = []TouchedFile{}, []RiskyPart{}
	for i := range d.Files {
		f := &d.Files[i]
		owner, _, ok := b.editor.OwnerOf(f.Path)
		switch {
		case officer != nil:
			if _, _, err := b.editor.Permit(officer, f.Path); err != nil {
				return false, err
			}
		case !ok || owner != "" && owner != p.Proposer.Tenant:
			return false, &change.NotFoundError{Text: fmt.Sprintf("no file of the configuration that you may propose can have the path %.200q", f.Path)}
		}
		if most := config.MaxBytes(f.Path); len(f.bytes()) > most {
			return false, refuse(switchboard.CodeConfig, "%.200q would have %d bytes; at most %d", f.Path, len(f.bytes()), most)
		}
		before, err := b.editor.Read(&operator, f.Path)
		if err != nil {
			return false, err
		}
		if f.ETag != "" && (before == nil || f.ETag != change.ETagOf(before)) {
			return false, refuse(switchboard.CodeProposal, "%s is not the text any more that the proposal replaces; read it again, and propose again", f.Path)
		}
		parts, err := b.partsOf(f.Path, before, f.bytes())
		if err != nil {
			return false, err
		}
		p.Parts = append(p.Parts, parts...)
		p.Files = append(p.Files, TouchedFile{Path: f.Path, Tenant: owner, Before: digestOf(before), After: digestOf(f.bytes())})
		if i == 0 {
			p.Tenant = owner
		} else if p.Tenant != owner {
			p.Tenant = ""
		}
	}
	p.Risk = riskOf(p.Parts)
	return officer != nil, nil
}

// partsOf returns the parts that a file of a proposal touches.
func (b *trier) partsOf(name string, before, after []byte) ([]RiskyPart, error) {
	real, err := change.ResolvePath(b.editor, name)
	if err != nil {
		return nil, err
	}
	return partsOf(change.MainFile(b.editor), name, real, before, after), nil
}

func digestOf(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// try tries the proposal aside, checks its claims there, and writes the review.
func (b *trier) try(ctx context.Context, p *KeptProposal, d *Draft) (*content, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	select {
	case b.trying <- struct{}{}:
		defer func() { <-b.trying }()
	case <-ctx.Done():
		return nil, refuse(switchboard.CodeOverloaded, "%d other proposals are being tried; try again when they have ended", maxTrials)
	}
	w := p.wish(d, p.viewer())
	w.SkipPast = false
	t, broken, unproved, before, err := b.aside(ctx, p, w)
	if err != nil {
		return nil, err
	}
	if len(broken) > 0 {
		return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: "a claim does not hold:\n" + strings.Join(broken, "\n"), Hint: "nothing was kept"}
	}
	p.Warnings, p.Effect, p.Tasks, p.Untried, p.Past, p.Unproved = t.Warnings, t.Changed, t.Tasks, t.Untried, t.Past, unproved
	if len(p.Tasks) > maxShownTasks {
		p.Untried += len(p.Tasks) - maxShownTasks
		p.Tasks = p.Tasks[:maxShownTasks]
	}
	back, err := change.FindTakenBack(ctx, b.editor, w.Files())
	if err != nil {
		return nil, err
	}
	if back != nil {
		p.TakesBack = fmt.Sprintf("change %s, which %s made on %s", back.ID, back.By, back.When.Format("2006-01-02 15:04 UTC"))
		if back.Source != "" {
			p.TakesBack += " as " + back.Source
		}
	}
	return &content{Draft: *d, Diff: t.Diff, Before: before}, nil
}

// maxShownTasks limits the tasks with other tools that a proposal shows.
const maxShownTasks = 100

// aside builds the state of a proposal aside, and returns which of its claims do not hold there. unproved are those about a server that is not in force yet. The error
// has the faults of the files.
func (b *trier) aside(ctx context.Context, p *KeptProposal, w change.Wish) (t *change.Trial, broken, unproved []string, before Lists, err error) {
	served := b.served()
	if before, err = served.lists(ctx, tenantsOf(p.Claims)); err != nil {
		return nil, nil, nil, nil, refuse(switchboard.CodeBadArguments, "the claims cannot be checked: %s", err)
	}
	if t, err = b.editor.Try(ctx, w); err != nil {
		return nil, nil, nil, nil, err
	}
	if len(t.Faults) > 0 || t.Aside() == nil || t.Proposed() == nil {
		return nil, nil, nil, nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: strings.Join(t.Faults, "\n"), Hint: "nothing was kept"}
	}
	world := &TaskWorld{TaskState: t.Aside(), Config: t.Proposed()}
	check := b.checkOf(p, world, before, true)
	fresh := func(c *StatedClaim) bool {
		return c.tool() != "" && !hasServer(served.Config, c.server()) && hasServer(world.Config, c.server())
	}
	for i := range p.Claims {
		if fresh(&p.Claims[i]) {
			unproved = append(unproved, p.Claims[i].String())
		}
	}
	return t, check.broken(ctx, fresh), unproved, before, nil
}

func hasServer(c *config.Config, id switchboard.ServerID) bool {
	return slices.ContainsFunc(c.Servers, func(s switchboard.Server) bool { return s.ID == id })
}

// checkOf returns the check of a proposal's claims in a world.
func (b *trier) checkOf(p *KeptProposal, world *TaskWorld, before Lists, whole bool) *claimCheck {
	viewer := p.viewer()
	return &claimCheck{world: world, before: before, claims: p.Claims, whole: whole, shows: viewer.Sees, compare: func(ctx context.Context, tenant switchboard.TenantID, since time.Time) (*replay.Diff, error) {
		most := servedTime / (maxCompared + 1)
		if whole {
			most = tryTime / (maxCompared + 1)
		}
		return b.compare(ctx, replay.Bounds{Tenant: tenant, Since: since, Limit: maxLooked, Time: most, Workers: 1, ByTask: true}, world.Config)
	}}
}
