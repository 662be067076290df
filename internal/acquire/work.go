package acquire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// workTime limits all phases of one dossier.
const workTime = 10 * time.Minute

// A Researcher finds what may give a capability.
type Researcher interface {
	// Here returns the tools that are here already, and that the tenant's tasks do not get for the capability.
	Here(ctx context.Context, tenant switchboard.TenantID, capability string) ([]HereTool, error)

	// Registries returns the servers of the operator's registries that may give it, and what went wrong with a registry. Nothing leaves the machine if there is none.
	// only names a server that is found in any case; "" names none.
	Registries(ctx context.Context, tenant switchboard.TenantID, capability, only string) (found []Prospect, notices []string, err error)
}

// A Workshop makes a candidate into something that can be tried.
type Workshop interface {
	// Start starts the program of a candidate in strict walls, to look at the definitions of its tools. The caller must call Close of the work. The error says why it cannot be looked at: its
	// row is not valid, it does not start, or it has no tool that gives the capability.
	Start(ctx context.Context, d *Dossier, c *Prospect) (Work, error)
}

// A Work is a candidate. Its program runs in walls.
type Work interface {
	// Confidence is how sure it is, by its definitions, that a tool gives the capability, in hundredths.
	Confidence() int

	// Label labels these tools. The error says why the files with the labels are not valid.
	Label(ctx context.Context) error

	// Labels are the tools that give the capability, with their labels.
	Labels() []string

	// Permissions are what the change would permit the program, in words.
	Permissions() []string

	// Try verifies the tools. Their reports count for nothing yet.
	Try(ctx context.Context) ([]TriedTool, error)

	// Draft returns the proposal: files and claims. manual is what was seen, as the comment of the labels.
	Draft(manual string) (*proposal.Draft, error)

	// Close ends the program. A Work can be closed twice.
	Close()
}

// Run calls WorkAll whenever there may be something to do, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	failed := false
	for {
		next := lookEvery
		switch err := k.WorkAll(ctx); {
		case errors.Is(err, ErrLater):
			next = laterTime
		case err != nil && !failed && ctx.Err() == nil: // the first of several faults
			k.o.Log.Warn("dossiers could not be worked on; Switchboard tries again", "err", err)
			failed = true
		case err == nil:
			failed = false
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-time.After(next):
		}
	}
}

// WorkAll ends the dossiers whose proposals have ended. It does the phases of the dossiers that wait for that, one after the other, unless another process has the right to.
// What a killed process has begun begins anew. The error is ErrLater if no program can be tried now, and nothing else went wrong.
func (k *Keeper) WorkAll(ctx context.Context) error {
	all, err := k.all(ctx)
	if err != nil {
		return err
	}
	err = k.followProposals(ctx, all)
	if !slices.ContainsFunc(all, storedDossier.waitsForWork) {
		return err
	}
	worked := k.workWithRight(ctx)
	if err != nil && errors.Is(worked, ErrLater) {
		return err
	}
	return errors.Join(err, worked)
}

func (v storedDossier) waitsForWork() bool { return v.dossier.Status == Working }

// workWithRight does the phases, and renews the right to it meanwhile: a phase can take longer than the right lasts. The work ends if the right is lost.
func (k *Keeper) workWithRight(ctx context.Context) error {
	switch err := k.o.Right.Renew(ctx); {
	case errors.Is(err, store.ErrConflict):
		return nil // another process has it
	case err != nil:
		return switchboard.Unavailable("the right to work on dossiers cannot be taken", err)
	}
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := k.o.Right.Keep(ctx, func(error) {
		if !k.o.Right.Held() {
			end(errLost)
		}
	})
	defer func() {
		stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		_ = k.o.Right.Release(ctx) // otherwise it expires
	}()
	return k.workOnEach(working)
}

// errLost says why the work on a dossier has ended.
var errLost = errors.New("another process works on dossiers now")

// workOnEach does the phases of each dossier, the oldest first.
func (k *Keeper) workOnEach(ctx context.Context) error {
	all, err := k.all(ctx) // with the right, nobody else changes those that are worked on
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b storedDossier) int { return a.dossier.Created.Compare(b.dossier.Created) })
	var errs []error
	for _, v := range all {
		if !v.waitsForWork() || ctx.Err() != nil {
			continue
		}
		err := v.work(ctx, k)
		if errors.Is(err, ErrLater) {
			if errs == nil {
				return ErrLater
			}
			break
		}
		if err != nil {
			errs = append(errs, err) // the others are done all the same
		}
	}
	return errors.Join(errs...)
}

// work does the phases of one dossier.
func (v storedDossier) work(ctx context.Context, k *Keeper) error {
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	j := &journey{Keeper: k, d: v.dossier, version: v.version}
	j.d.begin(j.d.Seeker, j.d.Reason)
	defer func() {
		if j.work != nil {
			j.work.Close()
		}
	}()
	if err := j.withdraw(ctx); err != nil {
		return err
	}
	return j.walk(ctx)
}

// withdraw ends a proposal that an earlier walk has made. The process of that walk was ended before it stored the dossier, so no dossier would lead a person to it.
func (j *journey) withdraw(ctx context.Context) error {
	return j.o.Withdraw(ctx, j.d.Seeker.proposer(j.d.Tenant), markOf(j.d), "Switchboard was ended before it had stored the dossier "+j.d.ID+", and has begun it anew")
}

// withdrawIfEnded ends the proposal of this walk if a person has ended the dossier meanwhile.
func (j *journey) withdrawIfEnded(ctx context.Context) error {
	d, _, err := j.load(ctx, j.d.ID)
	if err != nil || d == nil || !d.StatusAt(time.Now()).ended() {
		return err
	}
	return j.withdraw(ctx)
}

// markOf returns how the notes of a dossier's proposals begin.
func markOf(d *Dossier) string { return "dossier " + d.ID + ": " }

// ErrLater says that no program can be tried now, because another one is being verified.
var ErrLater = errors.New("another program is being verified; this one is tried later")

// A journey is one walk of a dossier through the phases.
type journey struct {
	*Keeper
	d       *Dossier
	version store.Version
	work    Work
}

// walk does the phases until a gate stops the dossier, or a person must review it. The error is one of the store.
func (j *journey) walk(ctx context.Context) error {
	steps := map[SearchPhase]func(context.Context) (why string, err error){
		Research: j.research, Implement: j.implement, Validate: j.validate, Document: j.document, Deploy: j.propose,
	}
	for _, phase := range Phases {
		j.d.Phase = phase
		why, err := steps[phase](ctx)
		if errors.Is(err, ErrLater) {
			return err
		}
		switch {
		case err == nil || ctx.Err() == nil: // what was done counts, even if the time is over now
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = fmt.Errorf("it took longer than %s", workTime)
		default:
			return context.Cause(ctx) // Switchboard stops, or has lost the right; the dossier begins anew
		}
		if err := j.pass(ctx, why, err); err != nil {
			return errors.Join(err, j.withdrawIfEnded(context.WithoutCancel(ctx)))
		}
		if j.d.Status != Working {
			return nil
		}
	}
	return nil
}

// pass records the outcome of a gate.
func (j *journey) pass(ctx context.Context, why string, stopped error) error {
	p, outcome := GateOutcome{Phase: j.d.Phase, Passed: stopped == nil, Why: why, At: now()}, receipt.OK
	if stopped != nil {
		p.Why, outcome = spellError(stopped), receipt.Refused
		j.d.Status = Stopped
	}
	p.Why = shorten(p.Why)
	id, err := j.o.Record(context.WithoutCancel(ctx), j.receiptOf(j.d, string(p.Phase)+" "+passedWord(p.Passed)+": "+p.Why, outcome, receipt.Subject{ID: j.d.Seeker.ID, Auth: j.d.Seeker.Auth}))
	if err != nil {
		return err
	}
	p.Receipt = id
	j.d.Passages = append(j.d.Passages, p)
	version, err := j.save(ctx, j.d, j.version)
	if err != nil {
		return err
	}
	j.version = version
	j.o.Told(j.d, ownName)
	return nil
}

func passedWord(passed bool) string {
	if passed {
		return "passed"
	}
	return "stopped"
}

// spellError returns the text of an error, with its hint.
func spellError(err error) string {
	text := err.Error()
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		text = own.Text
		if own.Hint != "" {
			text += "; " + own.Hint
		}
	}
	return text
}

// shorten bounds a text for people.
func shorten(text string) string {
	if len(text) > MaxNote {
		return strings.ToValidUTF8(text[:MaxNote], "") + "…"
	}
	return text
}

func (j *journey) research(ctx context.Context) (string, error) {
	here, err := j.o.Research.Here(ctx, j.d.Tenant, j.d.Capability)
	if err != nil {
		return "", err
	}
	j.d.Here = append(j.d.Here, here...)
	for _, h := range j.d.Here {
		if h.Label {
			j.d.Candidates = append(j.d.Candidates, Prospect{Name: h.Tool.String(), Confidence: h.Confidence, Here: h.Tool})
		}
	}
	found, notices, err := j.o.Research.Registries(ctx, j.d.Tenant, j.d.Capability, j.d.Only)
	if err != nil {
		return "", err
	}
	if more := len(found) - maxShown; more > 0 {
		found = found[:maxShown]
		notices = append(notices, fmt.Sprintf("%d more candidates, which are less likely", more))
	}
	j.d.Candidates = append(j.d.Candidates, found...)
	j.d.Notices = append(j.d.Notices, notices...)
	for _, c := range shortlist(j.d) {
		work, err := j.o.Workshop.Start(ctx, j.d, c)
		if errors.Is(err, ErrLater) {
			return "", err
		}
		if err != nil {
			c.Why = shorten(spellError(err))
			continue
		}
		c.Confidence, c.Looked = work.Confidence(), true
		if c.Why = judgeConfidence(c, j.d.Capability); c.Why != "" {
			work.Close()
			continue
		}
		j.work, j.d.Permissions = work, work.Permissions()
		j.d.choose(c)
		c = &j.d.Candidates[0]
		return c.Name + ", confidence " + hundredths(c.Confidence), nil
	}
	return "", errors.New(whyNone(j.d))
}

func (j *journey) implement(ctx context.Context) (string, error) {
	if err := j.work.Label(ctx); err != nil {
		return "", err
	}
	return "its files are valid, and its program runs in strict walls; labels: " + strings.Join(j.work.Labels(), "; "), nil
}

func (j *journey) validate(ctx context.Context) (string, error) {
	tools, err := j.work.Try(ctx)
	j.work.Close() // others can be verified meanwhile
	if err != nil {
		return "", err
	}
	j.d.Tools = append(j.d.Tools, tools...)
	passed, why := judgeReports(j.d.Tools)
	if !passed {
		return "", errors.New(why)
	}
	return why, nil
}

func (j *journey) document(context.Context) (string, error) {
	j.d.Manual = writeManual(j.d)
	passed, why := judgeManual(j.d)
	if !passed {
		return "", errors.New(why)
	}
	return why, nil
}

// propose makes the proposal. A person's review is the gate of this phase.
func (j *journey) propose(ctx context.Context) (string, error) {
	draft, err := j.work.Draft(j.d.Manual)
	if err != nil {
		return "", err
	}
	draft.Note = shorten(markOf(j.d) + j.d.Capability + " for " + j.d.Seeker.ID)
	p, err := j.o.Propose(ctx, j.d.Seeker.proposer(j.d.Tenant), nil, draft)
	if err != nil {
		return "", err
	}
	j.d.Proposal, j.d.Risk, j.d.Status, j.d.Until = p.ID, string(p.Risk), Waiting, now().Add(reviewTime)
	return "proposal " + p.ID + " waits for a person's yes", nil
}

// proposer returns who asks as the proposer of the change. Switchboard writes the files, so it has the rights of an agent: nothing critical.
func (s *Seeker) proposer(tenant switchboard.TenantID) proposal.Proposer {
	return proposal.Proposer{ID: s.ID, Auth: s.Auth, Agent: true, Tenant: tenant, Credential: s.Credential}
}

// writeManual says what was seen of the tools: what they do, their limits, and how they answer what is wrong. Words of a server never become a line of it.
func writeManual(d *Dossier) string {
	var b strings.Builder
	for i := range d.Tools {
		t := &d.Tools[i]
		fmt.Fprintf(&b, "%s: %s. Seen in strict walls without network: score %d.%03d. All its tests took %d ms.\n", t.Tool.Name, t.Label, t.Score/1000, t.Score%1000, t.Took)
		for _, e := range t.Errors {
			fmt.Fprintf(&b, "%s: %s.\n", t.Tool.Name, strings.TrimSuffix(shorten(scan.Spell(e)), "."))
		}
	}
	return b.String()
}
