package acquire

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ownName is the author of a note that no person has written.
const ownName = "Switchboard"

const inForceTime = 20 * time.Second // for the program of a new server to start, and its tools to be let in

// A PersonReview is what a person says about a dossier that waits.
type PersonReview struct {
	Answer ReviewAnswer  `json:"answer" enum:"yes,no,changes" doc:"yes: make the change, and give the capability. no: end it. changes: who asked reads the note, and can ask again."`
	Note   string        `json:"note,omitempty" maxLength:"2000" doc:"Words for who asked. No and changes need them."`
	Scope  string        `json:"scope,omitempty" enum:"run,task" doc:"Of a yes: for the run that asked (the default), or for all runs of its task."`
	For    time.Duration `json:"-"` // 0 means approval.DefaultFor
}

// Review records what a person says. A yes votes for the proposal of the dossier. If that was the last yes that it needs, the proposal is applied, the tools must be let in with the
// definitions that were tried, and the capability is given to the agent that asked. The error is a *switchboard.Error: SB-CONF-004 if the change was taken back, or can be made no more.
func (k *Keeper) Review(ctx context.Context, by *switchboard.Officer, id string, r *PersonReview) (*Dossier, error) {
	d, version, err := k.find(ctx, by, id)
	if err != nil {
		return nil, err
	}
	if err := judgeReview(d, r, time.Now()); err != nil {
		return nil, err
	}
	if err := judgeReviewer(d, by); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // what is begun is ended
	if r.Answer == AnswerYes {
		return k.deploy(ctx, by, d, version, r)
	}
	d.Status = Revising
	if r.Answer == AnswerNo {
		d.Status = Refused
	}
	d.addNote(by.ID, r.Answer, r.Note)
	if err := k.endProposal(ctx, by, d, r); err != nil {
		return nil, err
	}
	if r.Answer == AnswerNo {
		k.answer(ctx, by, d, r)
	}
	return d, k.finish(ctx, by, d, version, r)
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (d *Dossier) addNote(by string, answer ReviewAnswer, text string) {
	d.Notes = append(d.Notes, ReviewNote{By: by, Answer: answer, Text: shorten(text), At: now()})
}

// endProposal refuses the proposal of a dossier that a person does not want as it is. One that has ended needs no refusal.
func (k *Keeper) endProposal(ctx context.Context, by *switchboard.Officer, d *Dossier, r *PersonReview) error {
	if d.Proposal == "" {
		return nil
	}
	seen, err := k.o.Look(ctx, by, d.Proposal)
	if err != nil {
		return err
	}
	switch seen.State {
	case proposal.Open:
	case proposal.Applied, proposal.Applying:
		return refuse(switchboard.CodeProposal, "the change is %s already; say yes, or take it back first: switchboard proposals roll-back %s", seen.State, d.Proposal)
	default:
		return nil
	}
	_, err = k.o.Vote(ctx, by, d.Proposal, false, r.Note)
	return err
}

// answer gives or refuses the capability to the agent that has asked. What keeps the officer from that does not undo what was decided about the dossier: a note says why.
func (k *Keeper) answer(ctx context.Context, by *switchboard.Officer, d *Dossier, r *PersonReview) {
	if d.Seeker.Request == "" {
		return
	}
	done := ""
	if d.Status == Deployed {
		done = "the tool is in force, and "
	}
	if err := k.o.Answer(ctx, by, d, r); err != nil {
		d.addNote(ownName, r.Answer, done+"the request "+d.Seeker.Request+" has no answer: "+spellError(err))
	}
}

// deploy makes the change of a dossier. A yes that is not the last one that is needed changes nothing yet. The dossier says that it is being deployed before anything is, so that of two
// persons one is told that the other was first, and a kill leaves a dossier to which a person can say yes again.
func (k *Keeper) deploy(ctx context.Context, by *switchboard.Officer, d *Dossier, version store.Version, r *PersonReview) (*Dossier, error) {
	d.Status = Deploying
	version, err := k.save(ctx, d, version)
	if err != nil {
		return nil, err
	}
	done, err := k.makeChange(ctx, by, d, r.Note)
	if err == nil && done {
		err = k.bringIntoForce(ctx, by, d)
	}
	switch _, ended := errors.AsType[*endedError](err); {
	case ended:
		d.stop(err)
	case err != nil || !done:
		d.Status = Waiting
	default:
		d.Status = Deployed
	}
	if err != nil {
		return nil, errors.Join(asRefusal(err), k.put(ctx, d, version, by.ID))
	}
	d.addNote(by.ID, r.Answer, r.Note)
	if d.Status == Deployed {
		k.answer(ctx, by, d, r)
	}
	return d, k.finish(ctx, by, d, version, r)
}

// finish records and stores what a person has decided.
func (k *Keeper) finish(ctx context.Context, by *switchboard.Officer, d *Dossier, version store.Version, r *PersonReview) error {
	outcome := receipt.OK
	if r.Answer != AnswerYes {
		outcome = receipt.Refused
	}
	_, err := k.o.Record(ctx, k.receiptOf(d, "review "+string(r.Answer)+": "+r.Note, outcome, receipt.Subject{ID: by.ID, Auth: by.Auth}))
	return errors.Join(k.put(ctx, d, version, by.ID), err) // a receipt that is missing does not make undone what was done
}

// An endedError says that the change of a dossier can be made no more.
type endedError struct{ why string }

func (e *endedError) Error() string { return e.why }

// asRefusal returns the error for the person who has said yes.
func asRefusal(err error) error {
	if e, ok := errors.AsType[*endedError](err); ok {
		return &switchboard.Error{Code: switchboard.CodeProposal, Text: e.why, Hint: "the dossier has ended; whoever needs the capability asks again"}
	}
	return err
}

// stop ends a dossier at its present phase.
func (d *Dossier) stop(why error) {
	d.Status = Stopped
	d.Passages = append(d.Passages, GateOutcome{Phase: d.Phase, Why: shorten(spellError(why)), At: now()})
}

// makeChange votes for the proposal of a dossier, and applies it if that was the last yes that it needs. Who has said yes already only has it applied: an earlier attempt may have failed. One
// that somebody has rolled out is made. done is false if it needs another yes. The error is an *endedError if the proposal has ended otherwise.
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
	case hasEnded(p):
		return false, endedWith(p)
	case !said:
		if p, err = k.o.Vote(ctx, by, d.Proposal, true, note); err != nil {
			return false, k.orEnded(ctx, by, d, err)
		}
		if len(p.Votes) < p.Needed {
			return false, nil
		}
	}
	_, err = k.o.Apply(ctx, by, d.Proposal)
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeNotChangedHere {
		told := *own
		told.Hint = "the dossier waits: once this is rolled out and in force, say yes again"
		return false, &told
	}
	if err != nil {
		return false, k.orEnded(ctx, by, d, err)
	}
	return true, nil
}

// orEnded returns the error, or an *endedError if the proposal of the dossier has ended with it.
func (k *Keeper) orEnded(ctx context.Context, by *switchboard.Officer, d *Dossier, err error) error {
	seen, lost := k.o.Look(ctx, by, d.Proposal)
	if lost == nil && hasEnded(&seen.KeptProposal) {
		return &endedError{spellError(err)}
	}
	return err
}

// hasEnded reports whether a proposal can be applied no more, and is not in force.
func hasEnded(p *proposal.KeptProposal) bool {
	return p.State != proposal.Open && p.State != proposal.Applying && p.State != proposal.Applied
}

// endedWith says how a proposal has ended.
func endedWith(p *proposal.KeptProposal) *endedError {
	text := "its proposal " + p.ID + " is " + string(p.State)
	if p.Why != "" {
		text += ": " + p.Why
	}
	return &endedError{text}
}

// bringIntoForce waits until the tools are let in as they were tried, and makes their reports count. Else the change is taken back.
func (k *Keeper) bringIntoForce(ctx context.Context, by *switchboard.Officer, d *Dossier) error {
	waiting, cancel := context.WithTimeout(ctx, inForceTime)
	defer cancel()
	for i := range d.Tools {
		t := &d.Tools[i]
		err := k.o.InForce(waiting, t.Tool, t.Digest)
		if err == nil {
			err = k.o.Believe(ctx, t)
		}
		if err != nil {
			why := t.Tool.String() + " is not in force as it was tried: " + err.Error()
			if _, back := k.o.RollBack(ctx, by, d.Proposal, why); back != nil {
				return errors.Join(&endedError{why + "; and the change could not be taken back: " + spellError(back)}, back)
			}
			return &endedError{why + "; the change was taken back"}
		}
	}
	return nil
}

// followProposals ends the dossiers that wait for a proposal that has ended: somebody has refused it, its files have changed, or it was taken back.
func (k *Keeper) followProposals(ctx context.Context, all []storedDossier) error {
	var errs []error
	for _, v := range all {
		d := v.dossier
		if d.StatusAt(time.Now()) != Waiting {
			continue
		}
		seen, err := k.o.Look(ctx, reader, d.Proposal)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if hasEnded(&seen.KeptProposal) {
			d.stop(endedWith(&seen.KeptProposal))
			err := k.put(ctx, d, v.version, ownName)
			if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeChangedMeanwhile {
				err = nil // another process has done it
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
