package acquire

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	group        = "dossiers" // of the store
	storeTimeout = 5 * time.Second
	lookEvery    = 5 * time.Second // for what other replicas were asked
)

// A Store keeps dossiers. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// Options are the parts of a running Switchboard that a Keeper needs.
type Options struct {
	Store    Store
	Research Researcher
	Workshop Workshop

	// Propose makes a proposal for who asks; officer is nil for an agent. Look, Vote and Apply are Show, Decide and Apply of proposal.Keeper; RollBack takes back one that was applied.
	Propose  func(ctx context.Context, who proposal.Proposer, officer *switchboard.Officer, d *proposal.Draft) (*proposal.KeptProposal, error)
	Look     func(ctx context.Context, by *switchboard.Officer, id string) (*proposal.View, error)
	Vote     func(ctx context.Context, by *switchboard.Officer, id string, yes bool, note string) (*proposal.KeptProposal, error)
	Apply    func(ctx context.Context, by *switchboard.Officer, id string) (*proposal.KeptProposal, error)
	RollBack func(ctx context.Context, by *switchboard.Officer, id, note string) (*proposal.KeptProposal, error)

	// Answer gives or refuses the capability to the agent that has asked. It is called only for a dossier with a request.
	Answer func(ctx context.Context, by *switchboard.Officer, d *Dossier, r *Review) error

	// InForce waits until the tool is let in with that definition. The error says why it is not.
	InForce func(ctx context.Context, tool switchboard.ToolID, digest string) error

	// Record writes the receipt of a step, and returns its id. Told is called after each step; it must not wait.
	Record func(ctx context.Context, r *receipt.Receipt) (id string, err error)
	Told   func(d *Dossier, by string)

	// Mine reports whether this process does the phases: of the processes that share the store, one does.
	Mine func(ctx context.Context) bool
	Log  *slog.Logger
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
// it begins anew with the new reason. The error is SB-LIFE-004 beyond the bounds.
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
	now, open := time.Now().UTC().Truncate(time.Millisecond), 0
	for _, v := range all {
		d := v.dossier
		if d.Tenant != tenant {
			continue
		}
		if status := d.StatusAt(now); !status.ended() || status == Deployed {
			open++
		}
		if d.Capability != capability || d.Seeker.ID != who.ID || d.Seeker.Auth != who.Auth || d.Seeker.Task != who.Task || d.StatusAt(now).ended() {
			continue
		}
		if d.Status != Revising || d.Rounds >= maxRounds {
			return d, nil
		}
		d.begin(who, reason)
		d.Rounds++
		return d, k.put(ctx, d, v.version, who.ID)
	}
	if open >= MaxOfTenant {
		return nil, refuse(switchboard.CodeTooManyAsked, "tenant %s has %d acquisitions; at most %d", tenant, open, MaxOfTenant)
	}
	d := &Dossier{ID: strings.ToLower(rand.Text()[:10]), Tenant: tenant, Capability: capability, Only: only, Notes: []ReviewNote{}, Created: now}
	d.begin(who, reason)
	return d, k.put(ctx, d, 0, who.ID)
}

// begin puts the dossier before its first phase.
func (d *Dossier) begin(who Seeker, reason string) {
	d.Seeker, d.Reason, d.Phase, d.Status, d.Until = who, reason, Research, Working, time.Time{}
	d.FoundParts, d.Passages = FoundParts{Here: []FoundTool{}, Candidates: []Candidate{}, Notices: []string{}, Tools: []TriedTool{}}, []Passage{}
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

// A Review is what a person says about a dossier that waits.
type Review struct {
	Answer ReviewAnswer  `json:"answer" enum:"yes,no,changes" doc:"yes: make the change, and give the capability. no: end it. changes: who asked reads the note, and can ask again."`
	Note   string        `json:"note,omitempty" maxLength:"2000" doc:"Words for who asked. No and changes need them."`
	Scope  string        `json:"scope,omitempty" enum:"run,task" doc:"Of a yes: for the run that asked (the default), or for all runs of its task."`
	For    time.Duration `json:"-"` // 0 means approval.DefaultFor
}

// Review records what a person says. A yes votes for the proposal of the dossier. If that was the last yes that it needs, the proposal is applied, the tools must be let in with the
// definitions that were tried, and the capability is given to the agent that asked. The error is a *switchboard.Error: SB-CONF-004 if the change was taken back.
func (k *Keeper) Review(ctx context.Context, by *switchboard.Officer, id string, r *Review) (*Dossier, error) {
	d, version, err := k.find(ctx, by, id)
	if err != nil {
		return nil, err
	}
	if err := judgeReview(d, r, time.Now()); err != nil {
		return nil, err
	}
	switch r.Answer {
	case AnswerYes:
		err = k.deploy(ctx, by, d, r)
	case AnswerNo:
		d.Status = Refused
		if err = k.endProposal(ctx, by, d, r); err == nil {
			k.answer(ctx, by, d, r)
		}
	case AnswerChanges:
		d.Status = Revising
		err = k.endProposal(ctx, by, d, r)
	}
	if err != nil {
		return nil, err
	}
	d.Notes = append(d.Notes, ReviewNote{By: by.ID, Answer: r.Answer, Text: r.Note, At: now()})
	if err := k.recordReview(ctx, by, d, r); err != nil {
		return nil, err
	}
	return d, k.put(ctx, d, version, by.ID)
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// endProposal refuses the proposal of a dossier that a person does not want as it is. One that has ended by itself stays as it is.
func (k *Keeper) endProposal(ctx context.Context, by *switchboard.Officer, d *Dossier, r *Review) error {
	if d.Proposal == "" {
		return nil
	}
	p, err := k.o.Look(ctx, by, d.Proposal)
	if err != nil {
		return err
	}
	switch p.State {
	case proposal.Open:
		_, err = k.o.Vote(ctx, by, d.Proposal, false, r.Note)
		return err
	case proposal.Applied, proposal.Applying:
		return refuse(switchboard.CodeProposal, "the change is %s already; say yes, or take proposal %s back first", p.State, d.Proposal)
	}
	return nil
}

// answer gives or refuses the capability to the agent that has asked. What keeps the officer from that does not undo what was decided about the dossier: a note says that the request waits.
func (k *Keeper) answer(ctx context.Context, by *switchboard.Officer, d *Dossier, r *Review) {
	if d.Seeker.Request == "" {
		return
	}
	if err := k.o.Answer(ctx, by, d, r); err != nil {
		d.Notes = append(d.Notes, ReviewNote{By: "Switchboard", Answer: r.Answer, Text: shorten("the request " + d.Seeker.Request + " still waits: " + spellError(err)), At: now()})
	}
}

// deploy makes the change of a dossier. A yes that is not the last one that is needed changes nothing yet.
func (k *Keeper) deploy(ctx context.Context, by *switchboard.Officer, d *Dossier, r *Review) error {
	if done, err := k.makeChange(ctx, by, d, r.Note); err != nil || !done {
		return err
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), inForceTime)
	defer cancel()
	for i := range d.Tools {
		if err := k.o.InForce(waiting, d.Tools[i].Tool, d.Tools[i].Digest); err != nil {
			why := d.Tools[i].Tool.String() + " is not in force as it was tried: " + err.Error()
			_, back := k.o.RollBack(context.WithoutCancel(ctx), by, d.Proposal, why)
			return errors.Join(refuse(switchboard.CodeProposal, "%s; the change was taken back", why), back)
		}
	}
	d.Status = Deployed
	k.answer(ctx, by, d, r)
	return nil
}

// makeChange votes for the proposal of a dossier, and applies it if that was the last yes that it needs. Who has said yes already only has it applied: an earlier attempt may have failed. One
// that somebody has rolled out is made. done is false if it needs another yes.
func (k *Keeper) makeChange(ctx context.Context, by *switchboard.Officer, d *Dossier, note string) (done bool, err error) {
	seen, err := k.o.Look(ctx, by, d.Proposal)
	if err != nil {
		return false, err
	}
	p := &seen.KeptProposal
	said := slices.ContainsFunc(p.Votes, func(v proposal.PersonVote) bool {
		return v.Yes && v.By == by.ID && v.Auth == by.Auth && v.Credential == by.Credential
	})
	switch {
	case p.State == proposal.Applied:
		return true, nil
	case !said:
		if p, err = k.o.Vote(ctx, by, d.Proposal, true, note); err != nil {
			return false, adviseOn(err)
		}
		if len(p.Votes) < p.Needed {
			return false, nil
		}
	}
	_, err = k.o.Apply(ctx, by, d.Proposal)
	return err == nil, adviseOn(err)
}

// adviseOn adds to what keeps a change from being made what to do about the dossier, which still waits.
func adviseOn(err error) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		return err
	}
	told := *own
	switch own.Code {
	case switchboard.CodeNotChangedHere:
		told.Hint = "the dossier waits: once this is rolled out and in force, say yes again"
	case switchboard.CodeProposal:
		told.Hint = strings.TrimPrefix(told.Hint+"; the dossier waits: answer changes, and it begins anew when the capability is asked for again", "; ")
	}
	return &told
}

const inForceTime = 20 * time.Second // for the program of a new server to start, and its tools to be let in

// recordReview writes the receipt of a person's answer.
func (k *Keeper) recordReview(ctx context.Context, by *switchboard.Officer, d *Dossier, r *Review) error {
	outcome := receipt.OK
	if r.Answer != AnswerYes {
		outcome = receipt.Refused
	}
	_, err := k.o.Record(context.WithoutCancel(ctx), k.receiptOf(d, "review "+string(r.Answer)+": "+r.Note, outcome, receipt.Subject{ID: by.ID, Auth: by.Auth}))
	return err
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
