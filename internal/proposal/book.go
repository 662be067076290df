package proposal

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Times of an application. Together they keep the promise that a false claim is taken back within 10 s.
const (
	servedTime  = 5 * time.Second // for the claims on the served state
	tryTime     = 20 * time.Second
	maxCompared = 3      // claims about decisions of one proposal
	maxLooked   = 50_000 // decisions that one of them looks at
)

// Options of a Keeper.
type Options struct {
	Editor *change.Editor
	Store  Store

	// Record does something between two receipts: its intent and its outcome. See admin.Actions.
	Record func(r receipt.Receipt, do func() error) error

	Served func() *TaskWorld // the state in force

	// Hurry makes reloads wait for no slow server until done is called. nil does nothing.
	Hurry func() (done func())

	// Officer returns who has voted, with the offices of now. The error says that the person is none any more.
	Officer func(tenant switchboard.TenantID, v *PersonVote) (switchboard.Officer, error)

	// Compare compares recorded decisions with a configuration. See replay.CompareWithin.
	Compare func(ctx context.Context, b replay.Bounds, c *config.Config) (*replay.Diff, error)

	Told func(p *KeptProposal, by string) // of each step; for events
	Log  *slog.Logger
}

// A Keeper keeps proposals and carries them out. Use New. It is safe for concurrent use.
type Keeper struct {
	o Options
	shelf
	trier
	mu sync.Mutex // held while a proposal is stored, so that the bounds of their number hold
}

// New returns a Keeper.
func New(o Options) *Keeper {
	return &Keeper{o: o, shelf: shelf{o.Store}, trier: trier{o.Editor, o.Served, o.Compare, make(chan struct{}, maxTrials)}}
}

func refuse(code switchboard.Code, format string, args ...any) error {
	return switchboard.Refuse(code, format, args...)
}

// Create tries a draft and keeps it as a proposal. Nothing of it is in force. officer is nil for an agent. A draft that is malformed, has faults or a claim that
// does not hold, or that the proposer may not propose, is refused and not kept.
func (b *Keeper) Create(ctx context.Context, who Proposer, officer *switchboard.Officer, d *Draft) (*KeptProposal, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	p := &KeptProposal{
		ID: strings.ToLower(rand.Text()[:10]), State: Open, Proposer: who, Note: d.Note, Digest: d.digest(), Created: time.Now().UTC().Truncate(time.Millisecond),
		Claims: append([]StatedClaim{}, d.Claims...), Votes: []PersonVote{},
	}
	holds, err := b.readFiles(p, officer, d)
	if err == nil {
		err = checkTenants(who, officer, d.Claims)
	}
	if err != nil {
		return nil, err
	}
	if who.Agent && p.Risk == Critical {
		return nil, refuse(switchboard.CodeNotAuthorized, "no agent may propose this: %s in %s is critical; a person can", p.Parts[worst(p.Parts)].Part, p.Parts[worst(p.Parts)].File)
	}
	p.Needed = needed(p.Risk, holds)
	if err := b.checkRoom(ctx, p.Tenant); err != nil { // before the trial, which costs more
		return nil, err
	}
	err = b.record(p, subjectOf(&who), "proposal create", "", func() error {
		c, err := b.try(ctx, p, d)
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := b.checkRoom(ctx, p.Tenant); err != nil {
			return err
		}
		return b.keep(ctx, p, c)
	})
	if err != nil {
		return nil, err
	}
	b.told(p, who.ID)
	return p, nil
}

// worst returns the index of the riskiest part.
func worst(parts []RiskyPart) int {
	at := 0
	for i := range parts {
		if parts[i].Risk.exceeds(parts[at].Risk) {
			at = i
		}
	}
	return at
}

func subjectOf(who *Proposer) receipt.Subject { return receipt.Subject{ID: who.ID, Auth: who.Auth} }

// checkRoom refuses a further open proposal of a tenant that has too many. It drops the oldest ones that have ended, if there are too many.
func (b *Keeper) checkRoom(ctx context.Context, tenant switchboard.TenantID) error {
	all, err := b.all(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	all = slices.DeleteFunc(all, func(p *KeptProposal) bool { return p.Tenant != tenant || p.State == Applying })
	ended := slices.DeleteFunc(slices.Clone(all), func(p *KeptProposal) bool { return p.stateAt(now) == Open })
	if open := len(all) - len(ended); open >= MaxOpen {
		return refuse(switchboard.CodeTooManyAsked, "%d proposals are open; apply or refuse some first", open)
	}
	slices.SortFunc(ended, func(a, b *KeptProposal) int { return b.Changed.Compare(a.Changed) })
	for _, p := range ended[min(len(ended), maxEnded):] {
		if err := b.drop(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// viewer returns an officer with the least rights of those who may read the proposal. Trials are made for it.
func (p *KeptProposal) viewer() switchboard.Officer {
	o := switchboard.Officer{ID: p.Proposer.ID, Auth: p.Proposer.Auth, Offices: map[switchboard.TenantID][]switchboard.Office{}}
	for _, f := range p.Files {
		if f.Tenant == "" {
			o.Operator = true
			continue
		}
		o.Offices[f.Tenant] = []switchboard.Office{switchboard.OfficeAdmin}
	}
	return o
}

// Decide records a person's yes or no. A no ends the proposal.
func (b *Keeper) Decide(ctx context.Context, by *switchboard.Officer, id string, yes bool, note string) (*KeptProposal, error) {
	p, version, err := b.find(ctx, by, id)
	if err != nil {
		return nil, err
	}
	method := "proposal approve"
	if !yes {
		method = "proposal refuse"
	}
	err = b.record(p, receipt.Subject{ID: by.ID, Auth: by.Auth}, method, note, func() error {
		if err := gate(p, by, yes, note, isPerson(b, by)); err != nil {
			return err
		}
		if yes {
			if err := b.checkFresh(ctx, p, version, by); err != nil {
				return err
			}
		} else {
			p.State, p.By, p.Why = Refused, by.ID, note
		}
		p.Votes = append(p.Votes, PersonVote{By: by.ID, Auth: by.Auth, Credential: by.Credential, Yes: yes, Note: note, At: time.Now().UTC().Truncate(time.Second), Claims: by.Claims})
		_, err := b.save(ctx, p, version)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.told(p, by.ID)
	return p, nil
}

// Withdraw ends the open proposals of a proposer whose notes begin with a text.
func Withdraw(ctx context.Context, b *Keeper, who Proposer, note, why string) error {
	all, err := b.all(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Proposer != who || !strings.HasPrefix(p.Note, note) || p.stateAt(time.Now()) != Open {
			continue
		}
		now, version, err := b.load(ctx, p.ID)
		if err != nil {
			return err
		}
		if now == nil || now.State != Open {
			continue
		}
		*p = *now
		if err := b.record(p, subjectOf(&who), "proposal refuse", why, func() error {
			p.State, p.By, p.Why = Refused, who.ID, why
			_, err := b.save(ctx, p, version)
			return err
		}); err != nil {
			return err
		}
		b.told(p, who.ID)
	}
	return nil
}

// gate refuses what a person may not say.
func gate(p *KeptProposal, by *switchboard.Officer, yes bool, note string, person bool) error {
	switch now := p.stateAt(time.Now()); {
	case now != Open:
		return refuse(switchboard.CodeProposal, "the proposal is %s", now)
	case len(note) > MaxNote:
		return refuse(switchboard.CodeBadArguments, "the note has %d bytes; at most %d", len(note), MaxNote)
	case !yes && strings.TrimSpace(note) == "":
		return refuse(switchboard.CodeBadArguments, "a no needs a note: it says why, to the proposer")
	case !yes:
		return nil // the proposer may withdraw it
	case !person:
		return refuse(switchboard.CodeNotAuthorized, "whoever reads the data folder is no person here, because persons have keys or sign in; say yes with a key")
	case p.Proposer.isPerson(by):
		return refuse(switchboard.CodeNotAuthorized, "you proposed it, and a proposer does not say yes; it needs %s", p.Risk.need())
	case slices.ContainsFunc(p.Votes, func(v PersonVote) bool { return v.By == by.ID || v.Credential != "" && v.Credential == by.Credential }):
		return refuse(switchboard.CodeChangedMeanwhile, "you have said yes already; it needs %s", p.Risk.need())
	}
	return nil
}

// isPerson reports whether the officer counts as a person. Whoever reads the data folder does so only where no person has a key or can sign in: else one person would
// be two, and an agent that runs as the same user would be one.
func isPerson(b *Keeper, o *switchboard.Officer) bool {
	c := b.o.Served().Config
	return o.Auth != switchboard.AuthDataFolder || len(c.People) == 0 && len(c.Issuers) == 0
}

// yesesNow returns the number of persons who have said yes and may still say it: a key that is gone, or has lost its office, counts no more.
func yesesNow(b *Keeper, p *KeptProposal) int {
	n := 0
	for i := range p.Votes {
		o, err := b.o.Officer(p.Tenant, &p.Votes[i])
		if p.Votes[i].Yes && err == nil && b.sees(&o, p) && isPerson(b, &o) && !p.Proposer.isPerson(&o) {
			n++
		}
	}
	return n
}

// checkFresh refuses a proposal if a file was changed since the trial, or if the risk has grown, and notes that it is stale.
func (b *Keeper) checkFresh(ctx context.Context, p *KeptProposal, version store.Version, by *switchboard.Officer) error {
	c, err := b.content(ctx, p.ID)
	if err != nil {
		return err
	}
	why := ""
	var parts []RiskyPart
	for i, f := range p.Files {
		now, err := b.o.Editor.Read(&switchboard.Officer{Operator: true}, f.Path)
		if err != nil {
			return err
		}
		if digestOf(now) != f.Before {
			why = f.Path + " was changed since the proposal was tried"
			break
		}
		touched, err := b.partsOf(f.Path, now, c.Draft.Files[i].bytes())
		if err != nil {
			return err
		}
		parts = append(parts, touched...)
	}
	if risk := riskOf(parts); why == "" && risk.exceeds(p.Risk) {
		why = "it has become " + string(risk) + " since it was tried"
	}
	if why == "" {
		return nil
	}
	p.State, p.By, p.Why = Stale, by.ID, why
	if _, err := b.save(ctx, p, version); err != nil {
		return err
	}
	b.told(p, by.ID)
	return refuse(switchboard.CodeProposal, "the proposal is stale: %s; make a new one", why)
}

// Apply makes the change of a proposal that has all the yeses that it needs, and checks its claims on the state that is then served. If one does not hold, the old
// files are put back, and the error is SB-CONF-004. The officer must be allowed to change each file.
func (b *Keeper) Apply(ctx context.Context, by *switchboard.Officer, id string) (*KeptProposal, error) {
	p, version, err := b.find(ctx, by, id)
	if err != nil {
		return nil, err
	}
	err = b.record(p, receipt.Subject{ID: by.ID, Auth: by.Auth}, "proposal apply", "", func() error {
		yeses := yesesNow(b, p)
		switch now := p.stateAt(time.Now()); {
		case now != Open:
			return refuse(switchboard.CodeProposal, "the proposal is %s", now)
		case yeses < p.Needed:
			return refuse(switchboard.CodeNotAuthorized, "it is %s: it needs %s, and %d of %d have said yes with an office that they hold now", p.Risk, p.Risk.need(), yeses, p.Needed)
		}
		if err := b.checkFresh(ctx, p, version, by); err != nil {
			return err
		}
		c, err := b.content(ctx, p.ID)
		if err != nil {
			return err
		}
		w := p.wish(&c.Draft, *by)
		if err := b.tryAgain(ctx, p, c, w); err != nil {
			return err
		}
		return b.make(context.WithoutCancel(ctx), p, version, c, w)
	})
	b.told(p, by.ID)
	return p, err
}

// tryAgain tries a proposal at the instant when it is to be applied, and notes what tasks get until then.
func (b *Keeper) tryAgain(ctx context.Context, p *KeptProposal, c *content, w change.Wish) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	t, broken, _, before, err := b.aside(ctx, p, w)
	if err != nil {
		return err
	}
	mode := change.ModeOf(b.o.Editor)
	switch {
	case len(broken) > 0:
		return &switchboard.Error{Code: switchboard.CodeProposal, Text: "a claim does not hold any more:\n" + strings.Join(broken, "\n"), Hint: "nothing was written"}
	case mode == config.EditNone:
		return &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: "files are not changed here (admin.edit is false); roll this difference out, then the claims are checked:\n" + t.Diff}
	case t.Programs && mode != config.EditPrograms:
		return &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: "this changes what is run, which only an edit of the file may do, unless admin.edit is programs; roll this difference out, then the claims are checked:\n" + t.Diff}
	}
	c.Before = before
	return b.saveContent(ctx, p.ID, c)
}

// make makes the change. From the first step on, the next start ends what a kill has interrupted.
func (b *Keeper) make(ctx context.Context, p *KeptProposal, version store.Version, c *content, w change.Wish) error {
	release, err := change.Hold(ctx, b.o.Editor)
	if err != nil {
		return err
	}
	defer release()
	w.Held = true
	p.State, p.By, p.Place, p.Why, p.Broken = Applying, w.By.ID, change.PlaceOf(b.o.Editor), "", nil
	if version, err = b.save(ctx, p, version); err != nil {
		return err
	}
	if err := b.backUp(ctx, p); err != nil {
		return errors.Join(err, b.reopen(ctx, p, version, "the present files could not be backed up"))
	}
	made, err := b.o.Editor.Apply(ctx, w)
	if made == nil {
		return errors.Join(asStale(err), b.reopen(ctx, p, version, err.Error()))
	}
	if p.Revision = made.ID; err != nil {
		p.Why = shorten(err.Error())
	}
	return errors.Join(err, b.checkServed(ctx, p, version, c, w.By))
}

// asStale turns SB-CONF-002 of the editor into the refusal of a stale proposal.
func asStale(err error) error {
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeChangedMeanwhile {
		return refuse(switchboard.CodeProposal, "the proposal is stale: %s; make a new one", own.Text)
	}
	return err
}

// reopen notes that a proposal was not applied.
func (b *Keeper) reopen(ctx context.Context, p *KeptProposal, version store.Version, why string) error {
	p.State, p.Place, p.Why = Open, "", shorten("it was not applied: "+why)
	_, err := b.save(ctx, p, version)
	return err
}

func shorten(text string) string {
	if len(text) > MaxNote {
		return strings.ToValidUTF8(text[:MaxNote], "") + "…"
	}
	return text
}

// checkServed checks the claims on the state in force, and takes the proposal back if one does not hold.
func (b *Keeper) checkServed(ctx context.Context, p *KeptProposal, version store.Version, c *content, by switchboard.Officer) error {
	checking, cancel := context.WithTimeout(ctx, servedTime)
	defer cancel()
	p.Broken = b.checkOf(p, b.o.Served(), c.Before, false).broken(checking, nil)
	p.Place = ""
	if len(p.Broken) == 0 {
		p.State = Applied
		if _, err := b.save(ctx, p, version); err != nil {
			return switchboard.Unavailable("the proposal is in force and its claims hold, but this could not be stored; the next start stores it", err)
		}
		return nil
	}
	p.Place = change.PlaceOf(b.o.Editor)
	version, err := b.save(ctx, p, version) // so that the next start takes it back if this process is killed
	if err != nil {
		b.o.Log.Error("that a proposal is taken back could not be noted", "proposal", p.ID, "err", err)
	}
	err = b.takeBack(ctx, p, version, by, "a claim does not hold on the served state", true)
	return errors.Join(&switchboard.Error{Code: switchboard.CodeProposal, Text: "the proposal was rolled back, because a claim does not hold:\n" + strings.Join(p.Broken, "\n"), Hint: "the files and the state in force are those from before"}, err)
}

// takeBack puts the files of the backup back. The caller has the right to change files. restore says that they must come back, because a claim does not hold; see change.Wish.
func (b *Keeper) takeBack(ctx context.Context, p *KeptProposal, version store.Version, by switchboard.Officer, why string, restore bool) error {
	saved, err := b.backup(ctx, p)
	if err != nil {
		return err
	}
	w := change.Wish{By: by, Reason: why, Source: "roll-back of proposal " + p.ID, Held: true, Restore: restore}
	for i, f := range saved.Files {
		back := change.FileWish{Path: f.Path, Text: f.Text, DropFolder: f.Text == nil && f.NewFolder}
		if after := p.Files[i].After; after != "" {
			back.IfMatch = `"` + after + `"`
		}
		if i == 0 {
			w.FileWish = back
		} else {
			w.More = append(w.More, back)
		}
	}
	if b.o.Hurry != nil {
		defer b.o.Hurry()()
	}
	made, err := b.o.Editor.Apply(ctx, w)
	if made == nil {
		p.State, p.Place, p.Why = Failed, "", shorten(why+", and the old files could not be put back: "+err.Error())
		_, noted := b.save(ctx, p, version)
		return errors.Join(asStale(err), noted)
	}
	p.State, p.Place, p.By, p.Why = RolledBack, "", by.ID, why
	_, noted := b.save(ctx, p, version)
	return errors.Join(err, noted)
}

// RollBack takes back a proposal that was applied, if its files were not changed since and are among the last backups.
func (b *Keeper) RollBack(ctx context.Context, by *switchboard.Officer, id, note string) (*KeptProposal, error) {
	p, version, err := b.find(ctx, by, id)
	if err != nil {
		return nil, err
	}
	err = b.record(p, receipt.Subject{ID: by.ID, Auth: by.Auth}, "proposal roll-back", note, func() error {
		if p.State != Applied && p.State != Failed {
			return refuse(switchboard.CodeProposal, "the proposal is %s; only one that was applied is rolled back", p.stateAt(time.Now()))
		}
		if len(note) > MaxNote {
			return refuse(switchboard.CodeBadArguments, "the note has %d bytes; at most %d", len(note), MaxNote)
		}
		if mode := change.ModeOf(b.o.Editor); mode == config.EditNone {
			return refuse(switchboard.CodeNotChangedHere, "files are not changed here (admin.edit is false); roll the old files out")
		}
		release, err := change.Hold(ctx, b.o.Editor)
		if err != nil {
			return err
		}
		defer release()
		was := *p
		p.State, p.Place, p.Broken = Applying, change.PlaceOf(b.o.Editor), []string{"an officer takes it back"}
		version, err := b.save(ctx, p, version)
		if err != nil {
			return err
		}
		why := strings.TrimSpace("by " + by.ID + ": " + note)
		err = b.takeBack(context.WithoutCancel(ctx), p, version, *by, why, false)
		if p.State == RolledBack {
			p.Broken = was.Broken
			return err
		}
		was.Why = p.Why
		if _, v, loadErr := b.load(ctx, p.ID); loadErr == nil { // it stays applied: nothing was written
			*p = was
			_, saveErr := b.save(ctx, p, v)
			err = errors.Join(err, saveErr)
		}
		return err
	})
	b.told(p, by.ID)
	return p, err
}

// Recover ends what a killed process has begun with proposals of these files. The servers have answered. A process that is applying one now has the right to change
// the files: Recover waits for it, and then finds nothing to do. The error says, among others, that the wait was too long; try again then.
func (b *Keeper) Recover(ctx context.Context) error {
	all, err := b.all(ctx)
	begun := slices.DeleteFunc(all, func(p *KeptProposal) bool { return !appliesHere(b, p) })
	if err != nil || len(begun) == 0 {
		return err
	}
	release, err := change.Hold(ctx, b.o.Editor)
	if err != nil {
		return err
	}
	defer release()
	if err := change.RecoverHeld(ctx, b.o.Editor); err != nil {
		return err
	}
	for _, p := range begun {
		err = errors.Join(err, b.recover(ctx, p.ID))
	}
	return err
}

// appliesHere reports whether a process of these files applies the proposal, or has done so when it was killed.
func appliesHere(b *Keeper, p *KeptProposal) bool {
	return p.State == Applying && p.Place == change.PlaceOf(b.o.Editor)
}

func (b *Keeper) recover(ctx context.Context, id string) error {
	p, version, err := b.load(ctx, id)
	if err != nil || p == nil || !appliesHere(b, p) {
		return err
	}
	c, err := b.content(ctx, id)
	if err != nil {
		return err
	}
	by := p.viewer()
	by.ID, by.Auth = cmpText(p.By, by.ID), switchboard.AuthDataFolder
	switch {
	case !b.hasTexts(p):
		if len(p.Broken) > 0 {
			p.State, p.Place, p.Why = RolledBack, "", "found at the next start: the old files are in force"
			_, err := b.save(ctx, p, version)
			return err
		}
		return b.reopen(ctx, p, version, "Switchboard was killed before that")
	case len(p.Broken) > 0:
		return b.takeBack(ctx, p, version, by, "a claim does not hold on the served state", true)
	}
	err = b.checkServed(ctx, p, version, c, by)
	if p.State == RolledBack {
		err = nil // the proposal says so
	}
	b.told(p, p.By)
	return err
}

// CheckRolledOut checks the claims of open proposals that are in force already, because somebody has rolled the files out. It looks at nothing else than a state that
// was made from exactly the proposed texts.
func (b *Keeper) CheckRolledOut(ctx context.Context) error {
	all, err := b.all(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, p := range all {
		world := b.o.Served()
		if p.stateAt(now) != Open || yesesNow(b, p) < p.Needed || !b.hasTexts(p) || !world.isOf(p) {
			continue
		}
		p, version, loadErr := b.load(ctx, p.ID)
		if loadErr != nil || p == nil || p.State != Open {
			err = errors.Join(err, loadErr)
			continue
		}
		c, contentErr := b.content(ctx, p.ID)
		if contentErr != nil {
			err = errors.Join(err, contentErr)
			continue
		}
		checking, cancel := context.WithTimeout(ctx, servedTime)
		p.Broken = b.checkOf(p, world, c.Before, false).broken(checking, nil)
		cancel()
		p.State, p.Why = Applied, "it was rolled out"
		if len(p.Broken) > 0 {
			p.State, p.Why = Failed, "it was rolled out, and a claim does not hold; roll the old files out again"
			b.o.Log.Warn("a proposal was rolled out, and a claim does not hold", "proposal", p.ID, "claims", p.Broken)
		}
		_, saveErr := b.save(ctx, p, version)
		err = errors.Join(err, saveErr)
		b.told(p, p.By)
	}
	return err
}

// hasTexts reports whether the files have the texts of the proposal now.
func (b *Keeper) hasTexts(p *KeptProposal) bool {
	for _, f := range p.Files {
		if text, err := b.o.Editor.Read(&switchboard.Officer{Operator: true}, f.Path); err != nil || digestOf(text) != f.After {
			return false
		}
	}
	return true
}

// record does a step of a proposal between two receipts.
func (b *Keeper) record(p *KeptProposal, by receipt.Subject, method, note string, do func() error) error {
	return b.o.Record(receipt.Receipt{
		Kind: receipt.Admin, Tenant: p.Tenant, Principal: by, Method: method, Note: note,
		Change: receipt.FileChange{File: "proposals/" + p.ID, After: p.Digest},
	}, do)
}

func (b *Keeper) told(p *KeptProposal, by string) {
	if b.o.Told != nil {
		b.o.Told(p, by)
	}
}

// errNone says that there is no such proposal, or that the reader may not see it.
var errNone = &change.NotFoundError{Text: "there is no proposal of that id that you may see"}

// find returns a proposal that the officer may decide about: one of files that the officer may change.
func (b *Keeper) find(ctx context.Context, by *switchboard.Officer, id string) (*KeptProposal, store.Version, error) {
	p, version, err := b.load(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	if p == nil || !b.sees(by, p) {
		return nil, 0, errNone
	}
	return p, version, nil
}

// sees reports whether the officer may change each file of a proposal.
func (b *Keeper) sees(by *switchboard.Officer, p *KeptProposal) bool {
	return !slices.ContainsFunc(p.Files, func(f TouchedFile) bool {
		_, _, err := b.o.Editor.Permit(by, f.Path)
		return err != nil
	})
}

// List returns the proposals that the officer may see, the newest first.
func (b *Keeper) List(ctx context.Context, by *switchboard.Officer) ([]*KeptProposal, error) {
	all, err := b.all(ctx)
	if err != nil {
		return nil, err
	}
	out := []*KeptProposal{}
	for _, p := range all {
		if b.sees(by, p) {
			p.State = p.stateAt(time.Now())
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *KeptProposal) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// Show returns a proposal with its difference and its text for people.
func (b *Keeper) Show(ctx context.Context, by *switchboard.Officer, id string) (*View, error) {
	p, _, err := b.find(ctx, by, id)
	if err != nil {
		return nil, err
	}
	c, err := b.content(ctx, id)
	if err != nil {
		return nil, err
	}
	p.State = p.stateAt(time.Now())
	return &View{KeptProposal: *p, Diff: c.Diff, Text: p.text()}, nil
}
