package acquire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	group        = "dossiers" // of the store
	storeTimeout = 5 * time.Second
	lookEvery    = 5 * time.Second // for what other replicas were asked
	laterTime    = time.Minute     // until another try, if a program is being verified
)

// A Store keeps dossiers. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// ProposalSteps are what a Keeper does with proposals. See proposal.Keeper.
type ProposalSteps struct {
	// Propose makes a proposal for the seeker; officer is nil for an agent. Withdraw ends the open proposals of the seeker whose notes begin with a text.
	Propose  func(ctx context.Context, who proposal.Proposer, officer *switchboard.Officer, d *proposal.Draft) (*proposal.KeptProposal, error)
	Withdraw func(ctx context.Context, who proposal.Proposer, note, why string) error

	// Look, Vote and Apply are Show, Decide and Apply of proposal.Keeper; RollBack takes back one that was applied.
	Look     func(ctx context.Context, by *switchboard.Officer, id string) (*proposal.View, error)
	Vote     func(ctx context.Context, by *switchboard.Officer, id string, yes bool, note string) (*proposal.KeptProposal, error)
	Apply    func(ctx context.Context, by *switchboard.Officer, id string) (*proposal.KeptProposal, error)
	RollBack func(ctx context.Context, by *switchboard.Officer, id, note string) (*proposal.KeptProposal, error)
}

// Options are the parts of a running Switchboard that a Keeper needs.
type Options struct {
	Store    Store
	Research Researcher
	Workshop Workshop

	ProposalSteps

	// Answer gives or refuses the capability to the agent that has asked. It is called only for a dossier with a request.
	Answer func(ctx context.Context, by *switchboard.Officer, d *Dossier, r *PersonReview) error

	// InForce waits until the tool is let in with that definition. The error says why it is not.
	InForce func(ctx context.Context, tool switchboard.ToolID, digest string) error

	// Believe makes the report on a tool that is in force count.
	Believe func(ctx context.Context, t *TriedTool) error

	// Record writes the receipt of a step, and returns its id. Told is called after each step; it must not wait.
	Record func(ctx context.Context, r *receipt.Receipt) (id string, err error)
	Told   func(d *Dossier, by string)

	// Right is the right to do the phases: of the processes that share the store, one does.
	Right *lease.Lease
	Log   *slog.Logger
}

// A Keeper keeps dossiers, and does their phases. Use New. It is safe for concurrent use.
type Keeper struct {
	o    Options
	wake chan struct{}
}

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o: o, wake: make(chan struct{}, 1)} }

// errNone says that there is no dossier that the officer may see.
var errNone = &change.NotFoundError{Text: "there is no dossier of that id that you may see"}

// Ask opens a dossier for a capability, and does not wait. One that is open already for the same tenant, capability and seeker is returned instead; where a person has asked for changes,
// it begins anew with the new reason. So is one that was stopped less than an hour ago for the same request of an agent: it would be stopped again. The error is SB-LIFE-004 beyond the
// bounds.
func (k *Keeper) Ask(ctx context.Context, tenant switchboard.TenantID, capability string, who Seeker, reason string) (*Dossier, error) {
	return k.ask(ctx, tenant, capability, who, reason, "")
}

// AskFor is Ask for an officer. only names the one candidate to try; "" means the likeliest.
func (k *Keeper) AskFor(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, capability, reason, only string) (*Dossier, error) {
	if !by.Operator {
		return nil, refuse(switchboard.CodeNotAuthorized, "a server that is acquired stands in the operator's files, so an operator has it looked for; an agent of the tenant can ask for the capability")
	}
	return k.ask(ctx, tenant, capability, Seeker{ID: by.ID, Auth: by.Auth, Credential: by.Credential}, reason, only)
}

func (k *Keeper) ask(ctx context.Context, tenant switchboard.TenantID, capability string, who Seeker, reason, only string) (*Dossier, error) {
	if len(reason) > MaxReason {
		return nil, refuse(switchboard.CodeBadArguments, "the reason has %d bytes; at most %d", len(reason), MaxReason)
	}
	all, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	now, open, today, earlier := time.Now().UTC().Truncate(time.Millisecond), 0, 0, 0
	for _, v := range all {
		d := v.dossier
		if d.Tenant != tenant {
			continue
		}
		status := d.StatusAt(now)
		if !status.ended() || status == Deployed {
			open++
		}
		if now.Sub(d.Created) < 24*time.Hour {
			today++
		}
		if d.Capability != capability || d.Seeker.ID != who.ID || d.Seeker.Auth != who.Auth || d.Seeker.Task != who.Task {
			continue
		}
		earlier++
		switch {
		case status == Stopped && d.Phase != Deploy && who.Agent && d.Seeker.Request == who.Request && now.Sub(d.Changed) < againAfter:
			return d, nil
		case status.ended():
			continue
		case only != d.Only && !who.Agent:
			return nil, refuse(switchboard.CodeChangedMeanwhile, "your dossier %s for this capability is %s; end it first: switchboard acquisitions review %s no --note TEXT", d.ID, status, d.ID)
		case status == Revising:
			d.begin(who, reason)
			d.Rounds++
			return d, k.put(ctx, d, v.version, who.ID)
		case d.Seeker.Request != who.Request: // the earlier request has ended: a yes answers this one
			d.Seeker.Request = who.Request
			return d, k.put(ctx, d, v.version, who.ID)
		}
		return d, nil
	}
	switch {
	case open >= MaxOfTenant:
		return nil, refuse(switchboard.CodeTooManyAsked, "tenant %s has %d acquisitions; at most %d", tenant, open, MaxOfTenant)
	case today >= maxOfDay:
		return nil, refuse(switchboard.CodeTooManyAsked, "%d dossiers were opened for tenant %s within a day; at most %d", today, tenant, maxOfDay)
	}
	d := &Dossier{ID: newID(tenant, capability, &who, earlier), Tenant: tenant, Capability: capability, Only: only, Notes: []ReviewNote{}, Created: now}
	d.begin(who, reason)
	if err := k.put(ctx, d, 0, who.ID); err != nil {
		if was, _, found := k.load(ctx, d.ID); found == nil && was != nil {
			return was, nil // somebody has asked the same at the same instant
		}
		return nil, err
	}
	return d, nil
}

// newID returns the id of a dossier. It follows from the question and the number of earlier ones, so that equal requests at one instant are one dossier.
func newID(tenant switchboard.TenantID, capability string, who *Seeker, earlier int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %d", tenant, capability, who.ID, who.Auth, who.Task, earlier))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:10])
}

// begin puts the dossier before its first phase.
func (d *Dossier) begin(who Seeker, reason string) {
	d.Seeker, d.Reason, d.Phase, d.Status, d.Until = who, reason, Research, Working, time.Time{}
	d.FoundParts, d.Passages = FoundParts{Here: []HereTool{}, Candidates: []Prospect{}, Notices: []string{}, Tools: []TriedTool{}, Permissions: []string{}}, []GateOutcome{}
}

// put stores a dossier, tells of it, and wakes who works.
func (k *Keeper) put(ctx context.Context, d *Dossier, was store.Version, by string) error {
	if _, err := k.save(ctx, d, was); err != nil {
		return err
	}
	k.o.Told(d, by)
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// List returns the dossiers that the officer may see, the newest first.
func (k *Keeper) List(ctx context.Context, by *switchboard.Officer) ([]*Dossier, error) {
	all, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	out := []*Dossier{}
	for _, v := range all {
		if sees(by, v.dossier) {
			out = append(out, v.dossier)
		}
	}
	slices.SortFunc(out, func(a, b *Dossier) int { return strings.Compare(a.Place(), b.Place()) })
	return out, nil
}

// sees reports whether an officer may read a dossier: it holds an office of the tenant, or is an operator.
func sees(by *switchboard.Officer, d *Dossier) bool { return by.Operator || by.Sees(d.Tenant) }

// Show returns a dossier.
func (k *Keeper) Show(ctx context.Context, by *switchboard.Officer, id string) (*Dossier, error) {
	d, _, err := k.find(ctx, by, id)
	return d, err
}

// Of returns the newest dossier of an agent for a capability, as the agent may see it; nil if there is none. The error is one of the store.
func (k *Keeper) Of(ctx context.Context, tenant switchboard.TenantID, capability string, who Seeker) (*Dossier, error) {
	all, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	var newest *Dossier
	for _, v := range all {
		d := v.dossier
		if d.Tenant == tenant && d.Capability == capability && d.Seeker.Agent && d.Seeker.ID == who.ID && d.Seeker.Auth == who.Auth && d.Seeker.Task == who.Task &&
			(newest == nil || d.Created.After(newest.Created)) {
			newest = d
		}
	}
	return newest, nil
}

// A storedDossier is a dossier with the version of its value.
type storedDossier struct {
	dossier *Dossier
	version store.Version
}

// all returns all dossiers.
func (k *Keeper) all(ctx context.Context) (all []storedDossier, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := k.o.Store.List(ctx, group)
	if err != nil {
		return nil, switchboard.Unavailable("the dossiers cannot be read", err)
	}
	for _, row := range rows {
		d := &Dossier{}
		if json.Unmarshal(row.Data, d) == nil && d.ID == row.Name {
			all = append(all, storedDossier{d, row.Version})
		}
	}
	return all, nil
}

// find returns the dossier that an officer names.
func (k *Keeper) find(ctx context.Context, by *switchboard.Officer, id string) (*Dossier, store.Version, error) {
	d, version, err := k.load(ctx, id)
	if err == nil && (d == nil || !sees(by, d)) {
		err = errNone
	}
	return d, version, err
}

func (k *Keeper) load(ctx context.Context, id string) (*Dossier, store.Version, error) {
	if len(id) != 10 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := k.o.Store.Value(ctx, store.Key{Group: group, Name: id})
	if err != nil {
		return nil, 0, switchboard.Unavailable("the dossier cannot be read", err)
	}
	if v.Version == 0 {
		return nil, 0, nil
	}
	d := &Dossier{}
	if err := json.Unmarshal(v.Data, d); err != nil {
		return nil, 0, switchboard.Unavailable("the dossier cannot be read", err)
	}
	return d, v.Version, nil
}

// save stores a dossier in the place of a version.
func (k *Keeper) save(ctx context.Context, d *Dossier, was store.Version) (store.Version, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	d.Changed = now()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		return 0, err
	}
	version, err := k.o.Store.Apply(ctx, store.Change{Group: group, Writes: []store.Write{{Name: d.ID, Was: was, Data: text.Bytes(), TTL: keptFor}}, Durable: true})
	switch {
	case errors.Is(err, store.ErrConflict):
		return 0, refuse(switchboard.CodeChangedMeanwhile, "somebody else has just done something with the dossier; look at it again")
	case err != nil:
		return 0, switchboard.Unavailable("the dossier cannot be stored", err)
	}
	return version, nil
}

// receiptOf returns the receipt of a step of a dossier.
func (k *Keeper) receiptOf(d *Dossier, note string, outcome receipt.CallOutcome, by receipt.Subject) *receipt.Receipt {
	return &receipt.Receipt{
		Kind: receipt.Acquired, Tenant: d.Tenant, Task: d.Seeker.Task, Principal: by, Capability: d.Capability, Outcome: outcome,
		Approval: receipt.ApprovalRef{Request: d.Seeker.Request}, Note: d.ID + " " + note,
	}
}
