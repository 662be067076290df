package acquire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	tool  = switchboard.ToolID{Server: "clock", Name: "now"}
	agent = Seeker{ID: "ann", Auth: switchboard.AuthAPIKey, Agent: true, Task: "browse", Request: "r-1"}
	lea   = &switchboard.Officer{ID: "lea", Auth: switchboard.AuthPersonKey, Credential: "hash-of-lea", Operator: true}
	uma   = &switchboard.Officer{ID: "uma", Auth: switchboard.AuthPersonKey, Credential: "hash-of-uma", Offices: map[switchboard.TenantID][]switchboard.Office{"umbrella": {switchboard.OfficeAdmin}}}
)

// A plant is a Keeper whose research, workshop and proposals say what a test wants.
type plant struct {
	t *testing.T
	*Keeper
	found    []Prospect
	here     []HereTool
	started  Prospect
	hereErr  error
	startErr error
	sure     int // by the definitions
	labelErr error
	tried    []TriedTool
	voteErr  error
	applyErr error
	forceErr error
	askErr   error // of answers to the request
	rolled   bool  // somebody has rolled the proposal out
	state    proposal.State
	dead     string // a package that does not start
	ballots  []proposal.PersonVote
	needed   int
	stays    error // why the request still waits

	believed                           []switchboard.ToolID
	open                               []string // proposals: who has made them, and their notes
	votes, applied, rolledBack, closed int
	answers                            []string
	receipts                           []*receipt.Receipt
}

func (p *plant) Here(context.Context, switchboard.TenantID, string) ([]HereTool, error) {
	return p.here, p.hereErr
}

func (p *plant) Registries(context.Context, switchboard.TenantID, string, string) ([]Prospect, []string, error) {
	return slices.Clone(p.found), nil, nil
}

func (p *plant) Start(_ context.Context, _ *Dossier, c *Prospect) (Work, error) {
	p.started = *c
	if p.dead != "" && c.Package == p.dead {
		return nil, errors.New("it does not start in strict walls: exit 1")
	}
	if p.startErr != nil {
		return nil, p.startErr
	}
	return plantWork{p}, nil
}

type plantWork struct{ p *plant }

func (w plantWork) Labels() []string                         { return []string{"now: read time"} }
func (w plantWork) Try(context.Context) ([]TriedTool, error) { return w.p.tried, nil }
func (w plantWork) Draft(manual string) (*proposal.Draft, error) {
	return &proposal.Draft{Note: manual}, nil
}
func (w plantWork) Confidence() int             { return w.p.sure }
func (w plantWork) Label(context.Context) error { return w.p.labelErr }
func (w plantWork) Permissions() []string       { return []string{"its own files, and no network"} }
func (w plantWork) Close()                      { w.p.closed++ }

// newPlant returns a plant in which each gate is passed.
func newPlant(t *testing.T) *plant {
	p := &plant{
		t: t, needed: 1, sure: 90, found: []Prospect{{Name: "io.github.alice/clock", Registry: "corp", Package: "@alice/clock", Version: "1.0.0", Confidence: 90}},
		tried: []TriedTool{{Tool: tool, Digest: "d1", Label: "read time", Risk: switchboard.RiskLow, Score: 850, Verified: true, Took: 12, Errors: []string{"a missing argument gets an honest answer"}}},
	}
	p.Keeper = New(Options{
		Store: store.NewMemory(), Research: p, Workshop: p,
		ProposalSteps: ProposalSteps{
			Propose: func(_ context.Context, who proposal.Proposer, officer *switchboard.Officer, d *proposal.Draft) (*proposal.KeptProposal, error) {
				if !who.Agent || officer != nil {
					t.Errorf("proposed by %+v with the rights of %v", who, officer)
				}
				p.open = append(p.open, who.ID+" "+d.Note)
				return &proposal.KeptProposal{ID: "p1", Review: proposal.Review{Risk: proposal.High}}, nil
			},
			Look: func(context.Context, *switchboard.Officer, string) (*proposal.View, error) {
				state := cmp.Or(p.state, proposal.Open)
				if p.rolled {
					state = proposal.Applied
				}
				return &proposal.View{KeptProposal: proposal.KeptProposal{ID: "p1", State: state, Votes: p.ballots, Review: proposal.Review{Needed: p.needed}}}, nil
			},
			Vote: func(_ context.Context, by *switchboard.Officer, id string, yes bool, _ string) (*proposal.KeptProposal, error) {
				if p.voteErr != nil {
					return nil, p.voteErr
				}
				p.ballots = append(p.ballots, proposal.PersonVote{By: by.ID, Auth: by.Auth, Credential: by.Credential, Yes: yes})
				p.votes = len(p.ballots)
				return &proposal.KeptProposal{ID: id, Votes: p.ballots, Review: proposal.Review{Needed: p.needed}}, nil
			},
			Apply: func(context.Context, *switchboard.Officer, string) (*proposal.KeptProposal, error) {
				p.applied++
				return nil, p.applyErr
			},
			RollBack: func(context.Context, *switchboard.Officer, string, string) (*proposal.KeptProposal, error) {
				p.rolledBack++
				return nil, nil
			},
			Withdraw: func(_ context.Context, who proposal.Proposer, note, _ string) error {
				p.open = slices.DeleteFunc(p.open, func(of string) bool { return strings.HasPrefix(of, who.ID+" "+note) })
				return nil
			},
		},
		Answer: func(_ context.Context, by *switchboard.Officer, d *Dossier, r *PersonReview) error {
			if p.askErr != nil {
				return p.askErr
			}
			p.answers = append(p.answers, fmt.Sprint(by.ID, " ", r.Answer, " ", d.Seeker.Request))
			return p.stays
		},
		Believe: func(_ context.Context, r *TriedTool) error {
			p.believed = append(p.believed, r.Tool)
			return nil
		},
		InForce: func(context.Context, switchboard.ToolID, string) error { return p.forceErr },
		Record: func(_ context.Context, r *receipt.Receipt) (string, error) {
			p.receipts = append(p.receipts, r)
			return fmt.Sprint("receipt-", len(p.receipts)), nil
		},
		Told: func(*Dossier, string) {}, Log: slog.New(slog.DiscardHandler),
	})
	p.o.Right = p.right("this process")
	return p
}

// right returns the right to work that a process can have.
func (p *plant) right(process string) *lease.Lease {
	return lease.New(p.o.Store, lease.Options{Key: store.Key{Group: "acquisitions", Name: "lease"}, TTL: 15 * time.Second, Data: []byte(process)})
}

// walk asks for a capability, and does the phases.
func (p *plant) walk(who Seeker) *Dossier {
	p.t.Helper()
	d, err := p.Ask(p.t.Context(), "acme", "read time", who, "the task asks how late it is")
	if err == nil {
		err = p.WorkAll(p.t.Context())
	}
	if err == nil || errors.Is(err, ErrLater) {
		d, err = p.Show(p.t.Context(), lea, d.ID)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func TestADossierGoesThroughEachGateToAPersonsYes(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	var passed []SearchPhase
	for _, g := range d.Passages {
		if g.Passed && g.Receipt != "" {
			passed = append(passed, g.Phase)
		}
	}
	if d.Status != Waiting || d.Proposal != "p1" || !slices.Equal(passed, Phases) || p.closed == 0 || p.applied != 0 {
		t.Fatalf("%+v, closed %d", d, p.closed)
	}
	d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes, Note: "fine"})
	if err != nil || d.Status != Deployed || p.applied != 1 || !slices.Equal(p.believed, []switchboard.ToolID{tool}) || !slices.Equal(p.answers, []string{"lea yes r-1"}) {
		t.Errorf("%+v, %v, answers %q", d, err, p.answers)
	}
	for _, r := range p.receipts {
		if r.Kind != receipt.Acquired || r.Tenant != "acme" || r.Capability != "read time" || !strings.HasPrefix(r.Note, d.ID) {
			t.Errorf("a receipt: %+v", r)
		}
	}
	if len(p.receipts) != len(Phases)+1 {
		t.Errorf("%d receipts", len(p.receipts))
	}
}

// Each gate stops what must not pass, says why, and nothing is proposed or applied.
func TestNothingPassesAGateThatItMustNotPass(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*plant)
		phase  SearchPhase
		why    string
	}{
		"confidence 0.69":         {func(p *plant) { p.sure = 69 }, Research, "its likeliest tool for read time has a confidence of 0.69, and needs 0.70"},
		"a look-alike":            {func(p *plant) { p.found[0].Why = "it looks like another one" }, Research, "it looks like another one"},
		"nothing is found":        {func(p *plant) { p.found = nil }, Research, "no tool here and no server of a registry"},
		"no term of the taxonomy": {func(p *plant) { p.hereErr = errors.New("it is no verb and resource") }, Research, "it is no verb and resource"},
		"here, out of bounds": {func(p *plant) {
			p.found, p.here = nil, []HereTool{{Tool: tool, Why: "it is outside of the tenant's bound"}}
		}, Research, "clock/now is here: it is outside of the tenant's bound"},
		"a server does not start":  {func(p *plant) { p.startErr = errors.New("it does not start in strict walls: exit 1") }, Research, "it does not start in strict walls: exit 1"},
		"files that are not valid": {func(p *plant) { p.labelErr = errors.New("overlays/clock.yaml:3:1: no such key") }, Implement, "no such key"},
		"score 0.849": {func(p *plant) {
			p.tried[0].Score, p.tried[0].Verified, p.tried[0].Why = 849, false, "its score 0.849 is below 0.850"
		}, Validate, "its score 0.849 is below 0.850"},
		"0.849 that says it is verified": {func(p *plant) { p.tried[0].Score = 849 }, Validate, "score 0.849"},
		"one must":                       {func(p *plant) { p.tried[0].Score, p.tried[0].Verified, p.tried[0].Why = 970, false, "it fails hostile" }, Validate, "it fails hostile"},
		"one of two tools": {func(p *plant) {
			two := p.tried[0]
			two.Verified, two.Why = false, "it fails valid"
			p.tried = append(p.tried, two)
		}, Validate, "it fails valid"},
		"no tool":           {func(p *plant) { p.tried = nil }, Validate, "no tool was tried"},
		"prohibited":        {func(p *plant) { p.tried[0].Risk = switchboard.RiskProhibited }, Validate, "clock/now is prohibited"},
		"no error patterns": {func(p *plant) { p.tried[0].Errors = nil }, Document, "how clock/now answers wrong arguments"},
		"no limits":         {func(p *plant) { p.tried[0].Took = 0 }, Document, "how long calls of clock/now take"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t)
			tt.change(p)
			d := p.walk(agent)
			last := d.Passages[len(d.Passages)-1]
			if text, err := json.Marshal(d); err != nil || strings.Contains(string(text), "null") {
				t.Errorf("a list is null: %s, %v", text, err)
			}
			if d.Status != Stopped || last.Phase != tt.phase || last.Passed || !strings.Contains(last.Why, tt.why) || d.Proposal != "" {
				t.Errorf("it is %s; the last gate: %+v", d.Status, last)
			}
			if heard := d.Progress(time.Now()); !strings.HasSuffix(heard, stoppedAt[tt.phase]) || strings.Contains(heard, last.Why) || !strings.Contains(d.Text(time.Now()), tt.why) {
				t.Errorf("the agent hears %q; a person reads\n%s", d.Progress(time.Now()), d.Text(time.Now()))
			}
			if _, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes}); err == nil || p.applied+p.votes+len(p.answers) > 0 {
				t.Errorf("a yes was taken: %v", err)
			}
		})
	}
}

func TestAReviewThatMustNotCountChangesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		by     *switchboard.Officer
		review PersonReview
		after  time.Duration
		change func(*plant)
		why    string
	}{
		"of another tenant":           {by: uma, review: PersonReview{Answer: AnswerYes}, why: "there is no dossier of that id that you may see"},
		"too late":                    {by: lea, review: PersonReview{Answer: AnswerYes}, after: 7 * 24 * time.Hour, why: "the review was due until"},
		"by who has proposed":         {by: lea, review: PersonReview{Answer: AnswerYes}, change: func(p *plant) { p.voteErr = refuse(switchboard.CodeNotAuthorized, "you proposed it") }, why: "you proposed it"},
		"no without a note":           {by: lea, review: PersonReview{Answer: AnswerNo}, why: "needs a note"},
		"changes without a note":      {by: lea, review: PersonReview{Answer: AnswerChanges, Note: " \n"}, why: "needs a note"},
		"perhaps":                     {by: lea, review: PersonReview{Answer: "perhaps"}, why: "yes, no or changes"},
		"a note of 1 MB":              {by: lea, review: PersonReview{Answer: AnswerNo, Note: strings.Repeat("a", 1<<20)}, why: "at most 2000"},
		"the change is not made":      {by: lea, review: PersonReview{Answer: AnswerYes}, change: func(p *plant) { p.applyErr = refuse(switchboard.CodeProposal, "the proposal is stale") }, why: "stale"},
		"another definition in force": {by: lea, review: PersonReview{Answer: AnswerYes}, change: func(p *plant) { p.forceErr = errors.New("it offers another definition") }, why: "the change was taken back"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(t)
				d := p.walk(agent)
				time.Sleep(tt.after)
				if tt.change != nil {
					tt.change(p)
				}
				_, err := p.Review(t.Context(), tt.by, d.ID, &tt.review)
				if err == nil || !strings.Contains(err.Error(), tt.why) || len(p.answers) > 0 {
					t.Errorf("the error is %v, and the agent gets %q", err, p.answers)
				}
				now, _, err := p.load(t.Context(), d.ID)
				want := Waiting
				if p.forceErr != nil {
					want = Stopped
				}
				if err != nil || now.Status != want || len(now.Notes) > 0 || len(p.believed) > 0 || p.forceErr != nil && p.rolledBack != 1 {
					t.Errorf("it is %+v, %v, taken back %d times", now, err, p.rolledBack)
				}
			})
		})
	}
}

// Where files are not changed here, a person rolls the change out and says yes again; nobody votes twice.
func TestAYesIsSaidAgainOnceTheChangeIsRolledOut(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	p.applyErr = refuse(switchboard.CodeNotChangedHere, "files are not changed here; roll this difference out:\n+x")
	for range 2 {
		_, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes})
		if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeNotChangedHere || !strings.Contains(own.Text, "+x") || !strings.Contains(own.Hint, "say yes again") {
			t.Errorf("the error is %v", err)
		}
	}
	if p.votes != 1 || len(p.answers) > 0 {
		t.Errorf("%d votes, answers %q", p.votes, p.answers)
	}
	p.rolled = true
	d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes})
	if err != nil || d.Status != Deployed || p.votes != 1 || !slices.Equal(p.answers, []string{"lea yes r-1"}) {
		t.Errorf("%+v, %v, %d votes, answers %q", d, err, p.votes, p.answers)
	}
}

// An officer who may not decide the request decides about the dossier all the same: a note says that the request waits.
func TestWhoMayNotDecideTheRequestDecidesAboutTheDossier(t *testing.T) {
	for answer, want := range map[ReviewAnswer]Status{AnswerYes: Deployed, AnswerNo: Refused} {
		p := newPlant(t)
		d := p.walk(agent)
		p.askErr = refuse(switchboard.CodeNotAuthorized, "you do not hold the office approver")
		d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: answer, Note: "a note"})
		if err != nil || d.Status != want || !strings.Contains(d.Text(time.Now()), "the request r-1 has no answer: you do not hold the office approver") {
			t.Errorf("%s: %v\n%+v", answer, err, d)
		}
		if d.LastNote().Text != "a note" {
			t.Errorf("%s: the agent reads %q", answer, d.LastNote().Text)
		}
	}
}

// Changes with a note reach who has asked, and a new request begins the dossier anew.
func TestChangesReachWhoHasAskedAndANewRequestBeginsAnew(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	if _, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerChanges, Note: "which time zone?"}); err != nil {
		t.Fatal(err)
	}
	seen, err := p.Of(t.Context(), "acme", "read time", agent)
	if err != nil || seen.Status != Revising || seen.LastNote().Text != "which time zone?" || len(p.answers) > 0 {
		t.Fatalf("%+v, %v, answers %q", seen, err, p.answers)
	}
	again, err := p.Ask(t.Context(), "acme", "read time", agent, "UTC is enough")
	if err != nil || again.ID != d.ID || again.Status != Working || again.Reason != "UTC is enough" || again.Rounds != 1 || again.LastNote() == nil {
		t.Errorf("%+v, %v", again, err)
	}
}

// A person cannot ask for changes without end: who asked would wait for ever.
func TestChangesAreAskedForFiveTimes(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	changes := &PersonReview{Answer: AnswerChanges, Note: "which time zone?"}
	for range maxRounds {
		if _, err := p.Review(t.Context(), lea, d.ID, changes); err != nil {
			t.Fatal(err)
		}
		if again := p.walk(agent); again.ID != d.ID || again.Status != Waiting {
			t.Fatalf("it is %+v", again)
		}
	}
	if _, err := p.Review(t.Context(), lea, d.ID, changes); err == nil || !strings.Contains(err.Error(), "the answer is yes or no now") {
		t.Errorf("the next answer of this kind: %v", err)
	}
	if d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerNo, Note: "no"}); err != nil || d.Status != Refused {
		t.Errorf("a no: %+v, %v", d, err)
	}
}

func TestTheSameQuestionIsOneDossierAndATenantHasAtMostFifty(t *testing.T) {
	p := newPlant(t)
	first := p.walk(agent)
	if again, err := p.Ask(t.Context(), "acme", "read time", agent, "another reason for it"); err != nil || again.ID != first.ID {
		t.Errorf("%v, %v", again, err)
	}
	for i := 1; i < MaxOfTenant; i++ {
		who := agent
		who.ID = fmt.Sprint("agent-", i)
		if _, err := p.Ask(t.Context(), "acme", "read time", who, "a reason"); err != nil {
			t.Fatal(err)
		}
	}
	other := agent
	other.ID = "one-more"
	if _, err := p.Ask(t.Context(), "acme", "read time", other, "a reason"); err == nil || !strings.Contains(err.Error(), "at most 50") {
		t.Errorf("the error is %v", err)
	}
	if _, err := p.Ask(t.Context(), "umbrella", "read time", other, "a reason"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// A request that was stopped is not looked for again and again: each search starts a program, and asks registries.
func TestWhatWasStoppedIsLookedForAgainAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		p.found = nil
		first := p.walk(agent)
		ask := func(who Seeker) *Dossier {
			t.Helper()
			d, err := p.Ask(t.Context(), "acme", "read time", who, "a reason")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		time.Sleep(59 * time.Minute)
		if d := ask(agent); d.ID != first.ID || d.Status != Stopped {
			t.Errorf("after 59 minutes it is %s, %s", d.ID, d.Status)
		}
		other := agent
		other.Request = "r-2"
		if d := ask(other); d.ID == first.ID || d.Status != Working {
			t.Errorf("for another request it is %s, %s", d.ID, d.Status)
		}
		if err := p.WorkAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if d := ask(agent); d.ID == first.ID || d.Status != Working {
			t.Errorf("after an hour it is %s, %s", d.ID, d.Status)
		}
	})
}

// If the tool is in force and the request could not be answered, the officer hears that, and the agent hears no words that no person has written.
func TestWhatAYesHasLeftUndoneIsSaidToTheOfficer(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	p.stays = errors.New("the request has ended")
	d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes, Note: "fine"})
	if err != nil || d.Status != Deployed || d.Remainder() != "the tool is in force, and the request r-1 has no answer: the request has ended" || d.LastNote().Text != "fine" {
		t.Errorf("%+v, %v", d, err)
	}
	p = newPlant(t)
	if d, err = p.Review(t.Context(), lea, p.walk(agent).ID, &PersonReview{Answer: AnswerYes, Note: "fine"}); err != nil || d.Remainder() != "" || d.LastNote().Text != "fine" {
		t.Errorf("%+v, %v", d, err)
	}
}

// Words of others look like words of others, whatever they hold.
func TestWordsOfOthersAreSpeltOutAndNeverALineOfOurs(t *testing.T) {
	p := newPlant(t)
	evil := "\x1b[31mred\u202etxt\nstatus: deployed\nA yes makes"
	p.found[0].Words, p.found[0].Findings = evil, []string{evil}
	who := agent
	who.ID = "ann\nstatus: deployed"
	d, err := p.Ask(t.Context(), "acme", "read time", who, evil)
	if err == nil {
		err = p.WorkAll(t.Context())
	}
	if err == nil {
		d, err = p.Show(t.Context(), lea, d.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := d.Text(time.Now())
	if strings.ContainsAny(text, "\x1b\u202e") || strings.Count("\n"+text, "\nstatus: ") != 1 || strings.Count("\n"+text, "\nA yes makes") != 1 {
		t.Errorf("a person reads\n%s", text)
	}
	if _, err := p.Ask(t.Context(), "acme", "read fs", agent, strings.Repeat("a", 1<<20)); err == nil {
		t.Error("a reason of 1 MiB was taken")
	}
}

// A process that was killed amid a phase leaves a dossier that the next one begins anew.
func TestAKilledProcessLeavesADossierThatTheNextOneBeginsAnew(t *testing.T) {
	p := newPlant(t)
	d, err := p.Ask(t.Context(), "acme", "read time", agent, "a reason")
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	p.o.Workshop = killer{p, kill}
	if err := p.WorkAll(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	p.o.Workshop = p
	if err := p.WorkAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err = p.Show(t.Context(), lea, d.ID); err != nil || d.Status != Waiting || len(d.Passages) != len(Phases) || len(d.Candidates) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A killer is a Workshop whose process ends.
type killer struct {
	*plant
	kill func()
}

func (k killer) Start(context.Context, *Dossier, *Prospect) (Work, error) {
	k.kill()
	return nil, context.Canceled
}

// A process that ends after it has made the proposal, and before it has stored the dossier, leaves no open proposal that no dossier names, whatever the next walk comes to.
func TestAnEndBetweenTheProposalAndTheDossierLeavesNoProposalBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*plant)
		status Status
		open   int
	}{
		"the next walk proposes again": {func(*plant) {}, Waiting, 1},
		"the next walk is stopped":     {func(p *plant) { p.sure = 60 }, Stopped, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t)
			d, err := p.Ask(t.Context(), "acme", "read time", agent, "a reason")
			if err != nil {
				t.Fatal(err)
			}
			others := []string{"ann a note of her own", "bob dossier " + d.ID + ": read time for bob", "ann dossier abcdefghij: read time for ann"}
			p.open = slices.Clone(others)
			propose, written := p.o.Propose, p.o.Store
			p.o.Propose = func(ctx context.Context, who proposal.Proposer, officer *switchboard.Officer, d *proposal.Draft) (*proposal.KeptProposal, error) {
				p.o.Store = unwritable{written} // as if the process had ended
				return propose(ctx, who, officer, d)
			}
			if err := p.WorkAll(t.Context()); err == nil || len(p.open) != len(others)+1 {
				t.Fatalf("the error is %v, and these are open: %q", err, p.open)
			}
			p.o.Propose, p.o.Store = propose, written
			tt.change(p)
			if err := p.WorkAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d, err = p.Show(t.Context(), lea, d.ID); err != nil || d.Status != tt.status || len(p.open) != len(others)+tt.open || !slices.Equal(p.open[:len(others)], others) {
				t.Errorf("it is %s, %v, and these are open: %q", d.Status, err, p.open)
			}
		})
	}
}

// A no that comes while the proposal is made ends that, too.
func TestANoAmidTheProposalLeavesNoneBehind(t *testing.T) {
	p := newPlant(t)
	d, err := p.Ask(t.Context(), "acme", "read time", agent, "a reason")
	if err != nil {
		t.Fatal(err)
	}
	propose := p.o.Propose
	p.o.Propose = func(ctx context.Context, who proposal.Proposer, officer *switchboard.Officer, draft *proposal.Draft) (*proposal.KeptProposal, error) {
		if _, err := p.Review(ctx, lea, d.ID, &PersonReview{Answer: AnswerNo, Note: "we have one"}); err != nil {
			t.Error(err)
		}
		return propose(ctx, who, officer, draft)
	}
	if err := p.WorkAll(t.Context()); err == nil {
		t.Error("the walk has stored what a person had ended")
	}
	if d, err = p.Show(t.Context(), lea, d.ID); err != nil || d.Status != Refused || len(p.open) > 0 {
		t.Errorf("it is %s, %v, and these are open: %q", d.Status, err, p.open)
	}
}

// A proposal that was made before the end is stored in the dossier, so a person finds it.
func TestAnEndAfterTheProposalKeepsIt(t *testing.T) {
	p := newPlant(t)
	d, err := p.Ask(t.Context(), "acme", "read time", agent, "a reason")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	propose := p.o.Propose
	p.o.Propose = func(ctx context.Context, who proposal.Proposer, officer *switchboard.Officer, d *proposal.Draft) (*proposal.KeptProposal, error) {
		defer end()
		return propose(ctx, who, officer, d)
	}
	if err := p.WorkAll(ctx); err != nil {
		t.Fatal(err)
	}
	if d, err = p.Show(t.Context(), lea, d.ID); err != nil || d.Status != Waiting || d.Proposal == "" {
		t.Errorf("it is %+v, %v", d, err)
	}
}

// A slow workshop takes longer to start a program than the right to work on dossiers lasts.
type slow struct{ *plant }

func (s slow) Start(ctx context.Context, d *Dossier, c *Prospect) (Work, error) {
	select {
	case <-time.After(2 * time.Minute):
		return s.plant.Start(ctx, d, c)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTheRightToWorkIsRenewedDuringAPhaseAndWithoutItTheWorkEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		lost bool
		want Status
	}{"kept": {false, Waiting}, "lost": {true, Working}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(t)
				p.o.Workshop = slow{p}
				ctx, end := context.WithCancel(t.Context())
				defer end()
				go p.Run(ctx)
				d, err := p.Ask(t.Context(), "acme", "read time", agent, "a reason")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				other := p.right("another process")
				if err := other.Take(t.Context()); !errors.Is(err, store.ErrConflict) {
					t.Errorf("amid a phase, another process takes the right: %v", err)
				}
				if tt.lost { // as if this process had been paused for longer than the right lasts
					began, claim := time.Now(), other.Claim()
					version, err := p.o.Store.Apply(t.Context(), store.Change{Group: "acquisitions", Writes: []store.Write{claim}})
					if err != nil {
						t.Fatal(err)
					}
					other.Taken(version, began)
					defer other.Keep(ctx, nil)()
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if now, _, err := p.load(t.Context(), d.ID); err != nil || now.Status != tt.want {
					t.Errorf("it is %+v, %v", now, err)
				}
				if err := other.Take(t.Context()); err != nil {
					t.Errorf("after the work, another process does not get the right: %v", err)
				}
			})
		})
	}
}

// A process that finds nothing to work on takes no right, so it writes nothing.
func TestWithoutDossiersNothingIsWritten(t *testing.T) {
	p := newPlant(t)
	p.o.Store = unwritable{p.o.Store}
	p.o.Right = p.right("this process")
	if err := p.WorkAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// An unwritable store takes no change.
type unwritable struct{ Store }

func (unwritable) Apply(context.Context, store.Change) (store.Version, error) {
	return 0, errors.New("nothing is written here")
}

// A dossier never outlives its proposal: whatever becomes of that, somebody can end the dossier, or it ends by itself.
func TestADossierEndsWithItsProposal(t *testing.T) {
	for state, ends := range map[proposal.State]bool{
		proposal.Open: false, proposal.Applying: false, proposal.Applied: false, proposal.Refused: true, proposal.Stale: true, proposal.RolledBack: true, proposal.Expired: true, proposal.Failed: true,
	} {
		p := newPlant(t)
		d := p.walk(agent)
		p.state = state
		if err := p.WorkAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := p.Show(t.Context(), lea, d.ID)
		if err != nil || (now.Status == Stopped) != ends {
			t.Errorf("with a proposal that is %s, it is %s, %v", state, now.Status, err)
		}
		if ends && !strings.Contains(now.Text(time.Now()), "its proposal p1 is "+string(state)) {
			t.Errorf("a person reads\n%s", now.Text(time.Now()))
		}
		p = newPlant(t)
		d = p.walk(agent)
		p.state = state
		_, err = p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes})
		if now, _, _ = p.load(t.Context(), d.ID); (now.Status == Stopped) != ends || (err != nil) != ends {
			t.Errorf("a yes to a proposal that is %s: %s, %v", state, now.Status, err)
		}
		for _, answer := range []ReviewAnswer{AnswerChanges, AnswerNo} {
			p = newPlant(t)
			d = p.walk(agent)
			p.state = state
			made := state == proposal.Applied || state == proposal.Applying
			if now, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: answer, Note: "not so"}); (err != nil) != made || !made && now.Status == Waiting {
				t.Errorf("%s to a proposal that is %s: %+v, %v", answer, state, now, err)
			}
		}
	}
	p := newPlant(t)
	d := p.walk(agent)
	for _, answer := range []ReviewAnswer{AnswerChanges, AnswerNo} {
		p.state = map[ReviewAnswer]proposal.State{AnswerChanges: proposal.Open, AnswerNo: proposal.Refused}[answer]
		if _, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: answer, Note: "not so"}); err != nil {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// What has failed for a reason that passes does not cost the yes: the person says it again.
func TestAYesThatCouldNotBeCarriedOutCanBeSaidAgain(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	p.applyErr = refuse(switchboard.CodeConfig, "the store does not answer")
	if _, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes}); err == nil {
		t.Fatal("it was applied")
	}
	p.applyErr = nil
	p.ballots = append(p.ballots, proposal.PersonVote{By: lea.ID, Auth: lea.Auth, Credential: lea.Credential, Yes: true})
	if d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes}); err != nil || d.Status != Deployed || p.votes != 1 {
		t.Errorf("%+v, %v after %d votes", d, err, p.votes)
	}
}

// A process that was killed while it put a dossier into force leaves one to which a person can say yes again, and nobody else meanwhile.
func TestOfTwoYesesAtOnceOneIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		d, version, err := p.load(t.Context(), p.walk(agent).ID)
		if err != nil {
			t.Fatal(err)
		}
		d.Status = Deploying
		if _, err := p.save(t.Context(), d, version); err != nil {
			t.Fatal(err)
		}
		for _, answer := range ReviewAnswers {
			if _, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: answer, Note: "too late"}); err == nil || !strings.Contains(err.Error(), "another person has just said yes") {
				t.Errorf("%s meanwhile: %v", answer, err)
			}
		}
		time.Sleep(deployTime)
		p.state = proposal.Applied
		if d, err := p.Review(t.Context(), lea, d.ID, &PersonReview{Answer: AnswerYes}); err != nil || d.Status != Deployed || p.applied != 0 {
			t.Errorf("afterwards: %+v, %v", d, err)
		}
	})
}

func TestTwoHundredRepeatsAreOneDossierAndOneWalk(t *testing.T) {
	p := newPlant(t)
	p.sure = 60
	first := p.walk(agent)
	for range 200 {
		if d, err := p.Ask(t.Context(), "acme", "read time", agent, "please, once more"); err != nil || d.ID != first.ID || d.Status != Stopped {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	p = newPlant(t)
	var all sync.WaitGroup
	ids := make([]string, 50)
	for i := range ids {
		all.Go(func() {
			if d, err := p.Ask(t.Context(), "acme", "read time", agent, "all at once"); err == nil {
				ids[i] = d.ID
			}
		})
	}
	all.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 || ids[0] == "" {
		t.Errorf("the dossiers are %q", ids)
	}
}

// An agent that begins each search anew with another request is stopped within a day.
func TestATenantOpensFiftyDossiersADay(t *testing.T) {
	p := newPlant(t)
	p.sure = 60
	var err error
	for i := range maxOfDay + 1 {
		who := agent
		who.Request = fmt.Sprint("r-", i)
		if _, err = p.Ask(t.Context(), "acme", "read time", who, "once more"); err != nil {
			if i != maxOfDay {
				t.Errorf("dossier %d: %v", i, err)
			}
			break
		}
		if err := p.WorkAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "within a day") {
		t.Errorf("the error is %v", err)
	}
}

// While another program is verified, a dossier waits, and no candidate is blamed.
func TestADossierWaitsWhileAnotherProgramIsVerified(t *testing.T) {
	p := newPlant(t)
	p.startErr = ErrLater
	if d := p.walk(agent); d.Status != Working || len(d.Passages) != 0 {
		t.Fatalf("%+v", d)
	}
	p.startErr = nil
	if d := p.walk(agent); d.Status != Waiting {
		t.Errorf("%+v", d)
	}
}

// A candidate that cannot be tried does not keep the next one from it.
func TestTheNextCandidateIsTriedIfTheLikeliestCannotBe(t *testing.T) {
	p := newPlant(t)
	p.found = append([]Prospect{{Name: "io.github.zoe/dead", Registry: "corp", Package: "dead", Version: "1.0.0", Confidence: 99}}, p.found...)
	p.dead = "dead"
	d := p.walk(agent)
	if d.Status != Waiting || d.Chosen != "io.github.alice/clock" || !strings.Contains(d.Candidates[1].Why, "it does not start") {
		t.Errorf("%s: %s", d.Status, d.Text(time.Now()))
	}
}

// Who cannot change the operator's files decides nothing about them, and ends no operator's search.
func TestOnlyAnOperatorDecidesAboutTheOperatorsFiles(t *testing.T) {
	p := newPlant(t)
	d := p.walk(agent)
	ada := &switchboard.Officer{ID: "ada", Auth: switchboard.AuthPersonKey, Credential: "hash-of-ada", Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeApprover}}}
	for _, answer := range ReviewAnswers {
		if _, err := p.Review(t.Context(), ada, d.ID, &PersonReview{Answer: answer, Note: "no"}); err == nil || !strings.Contains(err.Error(), "an operator decides") {
			t.Errorf("%s: %v", answer, err)
		}
	}
	d, err := p.AskFor(t.Context(), lea, "acme", "read fs", "for us", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Review(t.Context(), ada, d.ID, &PersonReview{Answer: AnswerNo, Note: "no"}); err == nil {
		t.Error("an approver has ended an operator's search")
	}
	if _, err := p.AskFor(t.Context(), ada, "acme", "read fs", "for us", ""); err == nil {
		t.Error("an approver has had something looked for")
	}
	if _, err := p.AskFor(t.Context(), lea, "acme", "read fs", "for us", "io.github.alice/clock"); err == nil || !strings.Contains(err.Error(), d.ID) {
		t.Errorf("another candidate for an open dossier: %v", err)
	}
}
