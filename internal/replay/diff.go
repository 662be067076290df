// Package replay records decisions, makes them again and compares.
//
// A Recorder writes a receipt of each decision, and archives the texts that it was made from: its basis.
// Compare makes recorded decisions again from these texts. Under the recorded rules they must come out
// the same to the byte. Under a Proposal, such as a changed policy, the Diff says what would change.
//
// Package bind makes the decisions, package receipt keeps the receipts, and package archive keeps the
// texts.
package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Diff says how recorded decisions would change under a proposal. "switchboard policy diff
// --json" prints its fields.
type Diff struct {
	Since     time.Time `json:"since"`
	Decisions int       `json:"decisions"` // recorded since then
	Calls     int       `json:"calls"`     // decisions on calls among them
	Replayed  int       `json:"replayed"`
	Changed   int       `json:"changed"` // among the replayed ones

	// Changes are sorted by kind, tenant and tool.
	Changes []DecisionChange `json:"changes"`

	// Unlisted is the number of further changes, with their decisions, that are not in Changes because it has become too long.
	Unlisted int `json:"changes_not_listed,omitempty"`

	// Callers are those whose decisions would change: those with the most decisions first, at most maxCallers.
	Callers []ChangedCaller `json:"callers,omitempty"`

	// Looked says how far a comparison within bounds has looked.
	Looked *LookedAt `json:"looked,omitempty"`

	// NotReplayed are the decisions that could not be replayed, by reason. Nothing is known about them.
	NotReplayed []NotReplayed `json:"not_replayed,omitempty"`

	// Broken are the decisions that a replay under their own rules did not reproduce. Each is a defect
	// of Switchboard.
	Broken []BrokenReplay `json:"broken,omitempty"`
}

// A ChangedCaller is a caller, and the number of its decisions that would change.
type ChangedCaller struct {
	Tenant    switchboard.TenantID `json:"tenant"`
	Principal string               `json:"principal"`
	Decisions int                  `json:"decisions"`
}

// Bounds of the callers of a Diff: how many are listed, and how many are counted.
const (
	maxCallers        = 100
	maxCountedCallers = 10_000
)

// LookedAt says how far a comparison within bounds has looked. It begins with the newest decisions.
type LookedAt struct {
	Decisions int       `json:"looked_at"`
	Of        int       `json:"of"`                // recorded since Diff.Since
	OrMore    bool      `json:"or_more,omitempty"` // there may be more: counting them took too long
	Back      time.Time `json:"looked_back_to"`    // all decisions since then were looked at
}

// Complete reports whether all recorded decisions were looked at.
func (l *LookedAt) Complete() bool { return l == nil || l.Decisions == l.Of && !l.OrMore }

// The kinds of changes, in the order of the output.
const (
	ChangeRefused = "refused" // the task may no longer start
	ChangeStarts  = "starts"  // the task may start now
	ChangeDenied  = "denied"  // the tool can no longer serve
	ChangeAllowed = "allowed" // the tool can serve now
	ChangeMoved   = "moved"   // another server or tool serves first
	ChangeAsked   = "asked"   // policy puts other obligations on calls of the tool
	ChangeOrder   = "order"   // the same tool serves first, the order behind it changes
	ChangeTask    = "task"    // the requirements of the task change

	// ChangeWouldAsk says that calls of the tool, which ask no person now, would wait for a person's approval.
	ChangeWouldAsk = "would_ask"
)

var changeKinds = []string{ChangeRefused, ChangeStarts, ChangeDenied, ChangeAllowed, ChangeMoved, ChangeWouldAsk, ChangeAsked, ChangeOrder, ChangeTask}

// ChangeKinds returns the kinds of changes, in the order of the output.
func ChangeKinds() []string { return slices.Clone(changeKinds) }

// A DecisionChange is one change, and the number of decisions that it affects.
type DecisionChange struct {
	Kind        string               `json:"change"`
	Of          string               `json:"of,omitempty"` // the kind of decision: "" for a task, "call" for a call
	Tenant      switchboard.TenantID `json:"tenant"`
	Task        switchboard.TaskID   `json:"task,omitempty"`
	Requirement string               `json:"requirement,omitempty"`
	Tool        string               `json:"tool,omitempty"`
	From        string               `json:"from,omitempty"`
	To          string               `json:"to,omitempty"`
	Why         string               `json:"why,omitempty"`
	Decisions   int                  `json:"decisions"`
}

// NotReplayed is one reason why decisions could not be replayed, and their number.
type NotReplayed struct {
	Why       string `json:"why"`
	Of        string `json:"of,omitempty"` // as in DecisionChange
	Decisions int    `json:"decisions"`
}

// BrokenReplay is a decision that came out differently when it was replayed.
type BrokenReplay struct {
	Of       string               `json:"of,omitempty"` // as in DecisionChange
	Tenant   switchboard.TenantID `json:"tenant"`
	Task     switchboard.TaskID   `json:"task"`
	Recorded switchboard.Digest   `json:"recorded"`
	Replayed switchboard.Digest   `json:"replayed"`
}

// Why a decision cannot be replayed.
const (
	whyDamaged = "the receipt is damaged"
	whyGone    = "the inputs of the decision are not archived: they have expired, or could not be written"
	whyTime    = "a policy could not be evaluated, either then or in the replay, which happens when an evaluation takes too long"
)

// replayTimeout limits the evaluation of a policy in a replay. It is longer than the limit when
// serving.
const replayTimeout = 10 * time.Second

// jobSize limits the number of decisions that one worker replays in one go.
const jobSize = 256

// Compare replays the decisions of the tenant ("" means all tenants) that were recorded since then:
// once as they were made, and once under the proposal. If progress is not nil, it is called from
// time to time with the number of decisions that are done and their total.
func Compare(ctx context.Context, records Records, since time.Time, tenant switchboard.TenantID, p *Proposal, progress func(done, of int)) (*Diff, error) {
	entries, damaged, err := readRecords(ctx, records, receipt.List(ctx, records, receipt.Query{Tenant: tenant, Since: since}), false)
	if err != nil {
		return nil, err
	}
	return compareRecords(ctx, records, entries, damaged, since, p, progress)
}

// compareRecords replays the decisions.
func compareRecords(ctx context.Context, records Records, entries []*decisionRecord, damaged int, since time.Time, p *Proposal, progress func(done, of int)) (*Diff, error) {
	c := newComparison(p, entries, damaged)
	c.progress = progress
	if err := c.replayAll(ctx, newReaders(records, 0), entries); err != nil {
		return nil, err
	}
	return c.result(since, c.total+damaged), nil
}

// newReaders returns a reader for each worker. 0 workers means one for each processor.
func newReaders(records Records, workers int) []*basisReader {
	all := make([]*basisReader, cmp.Or(workers, runtime.GOMAXPROCS(0)))
	for i := range all {
		all[i] = &basisReader{records: records, engine: policy.NewEngine(replayTimeout, 0)}
	}
	return all
}

// newComparison returns a comparison of the decisions.
func newComparison(p *Proposal, entries []*decisionRecord, damaged int) *comparison {
	c := &comparison{proposal: p, total: len(entries), changes: map[DecisionChange]int{}, callers: map[ChangedCaller]int{}, notReplayed: map[NotReplayed]int{}}
	for _, e := range entries {
		if e.kind == kindCall {
			c.calls++
		}
	}
	if damaged > 0 {
		c.notReplayed[NotReplayed{Why: whyDamaged}] = damaged
	}
	return c
}

// replayAll replays the decisions. It sorts them by their bases.
func (c *comparison) replayAll(ctx context.Context, readers []*basisReader, entries []*decisionRecord) error {
	slices.SortFunc(entries, compareByBasis)
	jobs := make(chan []*decisionRecord)
	var work sync.WaitGroup
	for _, a := range readers {
		work.Go(func() {
			for job := range jobs {
				c.replayJob(ctx, a, job)
			}
		})
	}
	for len(entries) > 0 && ctx.Err() == nil {
		n, key := 1, entries[0].basisKey()
		for n < min(len(entries), jobSize) && entries[n].basisKey() == key {
			n++
		}
		jobs <- entries[:n]
		entries = entries[n:]
	}
	close(jobs)
	work.Wait()
	return cmp.Or(c.err, ctx.Err())
}

// A comparison gathers the results of the workers.
type comparison struct {
	proposal *Proposal
	progress func(done, of int)
	total    int
	calls    int  // on calls
	byTask   bool // see Bounds

	mu          sync.Mutex
	done        int
	err         error                  // a fault in the proposal
	changes     map[DecisionChange]int // the keys have no counts
	changed     int
	callers     map[ChangedCaller]int // of changed decisions; the keys have no counts
	changeBytes int                   // of the keys of changes
	unlisted    int
	notReplayed map[NotReplayed]int // the keys have no counts
	broken      []BrokenReplay
}

// maxChangeBytes limits the size of all listed changes. A proposal can give each decision a reason of its own.
const maxChangeBytes = 4 << 20

// skipDecisions counts n decisions of a kind that cannot be replayed.
func (c *comparison) skipDecisions(why, kind string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notReplayed[NotReplayed{Why: why, Of: kind}] += n
	c.advance(n)
}

// countDifference counts a decision that the replay did not reproduce. text is the record of the
// replay.
func (c *comparison) countDifference(e *decisionRecord, text []byte, b BrokenReplay) {
	if policyFailed(text) || policyFailed(e.text) {
		c.skipDecisions(whyTime, e.kind, 1)
		return
	}
	b.Of, b.Recorded = e.kind, e.digest
	if text != nil {
		b.Replayed = canonical.Sum(text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, b)
	c.advance(1)
}

// countChanges counts a replayed decision of the tenant for the principal, and its changes.
func (c *comparison) countChanges(tenant switchboard.TenantID, principal string, changes map[DecisionChange]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(changes) > 0 {
		c.changed++
		c.countCaller(ChangedCaller{Tenant: tenant, Principal: principal}, 1)
	}
	for change := range changes {
		c.countChange(change, 1)
	}
	c.advance(1)
}

// countChange counts a change of n decisions.
func (c *comparison) countChange(change DecisionChange, n int) {
	if c.changes[change] == 0 {
		size := 100 + len(change.Requirement) + len(change.Tool) + len(change.From) + len(change.To) + len(change.Why)
		if c.changeBytes+size > maxChangeBytes {
			c.unlisted += n
			return
		}
		c.changeBytes += size
	}
	c.changes[change] += n
}

// countCaller counts n changed decisions of a caller.
func (c *comparison) countCaller(of ChangedCaller, n int) {
	if c.callers[of] > 0 || len(c.callers) < maxCountedCallers {
		c.callers[of] += n
	}
}

// advance reports that n more decisions are done. The caller holds c.mu.
func (c *comparison) advance(n int) {
	c.done += n
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
}

// replayJob replays decisions that have the same basis.
func (c *comparison) replayJob(ctx context.Context, a *basisReader, entries []*decisionRecord) {
	r, err := a.replayers.get(entries[0].basisKey(), func() (*replayer, error) { return c.newReplayer(ctx, a, entries[0]) })
	var wrong *proposalError
	switch {
	case errors.As(err, &wrong):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = cmp.Or(c.err, wrong.error)
		return
	case err != nil:
		c.skipDecisions(skipReason(err), entries[0].kind, len(entries))
		return
	}
	for i := range entries {
		if ctx.Err() != nil {
			return
		}
		if err := a.readText(ctx, entries[i]); err != nil {
			c.skipDecisions(skipReason(err), entries[i].kind, 1)
			continue
		}
		if entries[i].kind == kindCall {
			c.replayCall(ctx, r, entries[i])
		} else {
			c.replayDecision(ctx, a, r, entries[i])
		}
		entries[i].text = nil // it is not needed any more, and thousands of texts fill the memory
	}
}

// skipReason says why a decision cannot be replayed.
func skipReason(err error) string {
	if errors.Is(err, archive.ErrNotArchived) {
		return whyGone
	}
	return err.Error()
}

// A proposalError is a fault in the proposal.
type proposalError struct{ error }

// newReplayer rebuilds the tenant as it was, and as it would be under the proposal.
func (c *comparison) newReplayer(ctx context.Context, a *basisReader, e *decisionRecord) (*replayer, error) {
	was, err := a.readBasis(ctx, e)
	if err != nil {
		return nil, err
	}
	r := &replayer{}
	if r.before, err = a.rebuildTenant(was, 0); err != nil {
		return nil, fmt.Errorf("the archived inputs of the decision are refused now: %w", err)
	}
	now, err := c.proposal.apply(was)
	if err != nil {
		return nil, &proposalError{err}
	}
	if now != nil {
		if err := a.admit(was, now); err != nil {
			return nil, &proposalError{err}
		}
		if r.after, err = a.rebuildTenant(now, 1); err != nil {
			return nil, &proposalError{err}
		}
		if c.proposal.config != nil {
			r.proposed = c.proposal.resolver(r.after)
		}
	}
	return r, nil
}

// A replayer makes decisions again, under the recorded rules and under the proposed ones.
type replayer struct {
	before, after *bind.Tenant // after is nil if the proposal removes the tenant
	proposed      *bind.State  // of after, if the proposal changes the principals too
}

// replayDecision replays the decision for a task.
func (c *comparison) replayDecision(ctx context.Context, a *basisReader, r *replayer, e *decisionRecord) {
	of, was, err := a.remake(ctx, r.before, e)
	if err != nil {
		c.skipDecisions(err.Error(), e.kind, 1)
		return
	}
	var text []byte
	if was != nil {
		text = was.Canonical()
	}
	if !bytes.Equal(text, e.text) {
		c.countDifference(e, text, BrokenReplay{Tenant: of.Tenant, Task: of.Task})
		return
	}
	c.countChanges(of.Tenant, of.Principal.ID, c.nameTask(of.Task, r.decisionChanges(ctx, of, was, cmp.Or(of.Now, e.when))))
}

// nameTask returns the changes of a decision, each with the task of the decision if the comparison counts by task.
func (c *comparison) nameTask(task switchboard.TaskID, changes map[DecisionChange]bool) map[DecisionChange]bool {
	if !c.byTask {
		return changes
	}
	named := map[DecisionChange]bool{}
	for change := range changes {
		change.Task = task
		named[change] = true
	}
	return named
}

// remake makes the recorded decision on a task again, by the tenant as it was. The decision is nil if the pipeline fails now. The error says
// why the record cannot be read.
func (a *basisReader) remake(ctx context.Context, t *bind.Tenant, e *decisionRecord) (*decide.Recorded, *decide.Decision, error) {
	of, err := decide.ReadRecord(e.text)
	if err != nil {
		return nil, nil, err
	}
	task := t.Tasks[of.Task]
	if e.refs[textTask] != "" {
		var text []byte
		if text, err = archive.Read(ctx, a.records, e.refs[textTask]); err == nil {
			err = json.Unmarshal(text, &task)
		}
	}
	if task == nil || err != nil {
		return nil, nil, errors.New("its task is not among those of the archived tenant")
	}
	was, err := t.RunPipeline(ctx, of.Principal, task, decide.Observed{Unfit: of.Unfit, Atoms: of.Atoms}, of.Now)
	if err != nil {
		was = nil
	}
	return &of, was, nil
}

// policyFailed reports whether a policy could not be evaluated in the decision. That can depend on
// the speed of the machine.
func policyFailed(text []byte) bool { return bytes.Contains(text, []byte("could not be evaluated")) }

// decisionChanges returns the changes that the proposal makes to a decision.
func (r *replayer) decisionChanges(ctx context.Context, of *decide.Recorded, was *decide.Decision, when time.Time) map[DecisionChange]bool {
	out := changeSet{DecisionChange{Tenant: of.Tenant}, map[DecisionChange]bool{}}
	now, err := r.decideProposed(ctx, of, was, when)
	switch {
	case err != nil:
		if was.Err() == nil {
			out.add(DecisionChange{Kind: ChangeRefused, Task: of.Task, Why: err.Error()})
		}
	case now.Snapshot != was.Snapshot || r.proposed != nil: // otherwise the decisions are equal
		out.compareDecisions(was, now)
	}
	return out.found
}

// decideProposed makes the decision that the proposal would lead to.
func (r *replayer) decideProposed(ctx context.Context, of *decide.Recorded, was *decide.Decision, when time.Time) (*decide.Decision, error) {
	if r.after == nil {
		return nil, errGone
	}
	if r.proposed == nil {
		if r.after.Snapshot == r.before.Snapshot {
			return was, nil
		}
		task, err := r.after.AllowedTask(was.Task)
		if err != nil {
			return nil, err
		}
		return r.after.RunPipeline(ctx, of.Principal, task, decide.Observed{Unfit: of.Unfit, Atoms: of.Atoms}, when)
	}
	if of.Task != switchboard.DeclaredTask {
		if _, err := r.proposed.ResolveTask(of.Principal, of.Task); err != nil {
			return nil, err
		}
	}
	if was.Task.Amended() {
		return r.proposed.DecideTask(ctx, of.Principal, was.Task, decide.Observed{Unfit: of.Unfit, Atoms: of.Atoms}, when)
	}
	return r.proposed.DecideConfigured(ctx, of.Principal, of.Task, decide.Observed{Unfit: of.Unfit, Atoms: of.Atoms}, when)
}

var errGone = errors.New("the proposed configuration does not have the tenant")

// A changeSet gathers the changes of one decision.
type changeSet struct {
	subject DecisionChange
	found   map[DecisionChange]bool
}

func (cs *changeSet) add(c DecisionChange) {
	c.Tenant, c.Of = cs.subject.Tenant, cs.subject.Of
	cs.found[c] = true
}

func (cs *changeSet) compareDecisions(was, now *decide.Decision) {
	task := was.Task.ID
	switch before, after := was.Err(), now.Err(); {
	case before == nil && after != nil:
		cs.add(DecisionChange{Kind: ChangeRefused, Task: task, Why: after.Error()})
	case before != nil && after == nil:
		cs.add(DecisionChange{Kind: ChangeStarts, Task: task, Why: "it was refused: " + before.Error()})
	}
	later := slices.Clone(now.Outcomes)
	for i := range was.Outcomes {
		o := &was.Outcomes[i]
		need := o.Requirement.String()
		at := slices.IndexFunc(later, func(l decide.RequirementOutcome) bool { return l.Requirement.String() == need })
		if at < 0 {
			cs.add(DecisionChange{Kind: ChangeTask, Task: task, Requirement: need, Why: "it is no longer required"})
			continue
		}
		cs.compareOutcome(o, &later[at])
		later = slices.Delete(later, at, at+1)
	}
	for i := range later {
		cs.add(DecisionChange{Kind: ChangeTask, Task: task, Requirement: later[i].Requirement.String(), Why: "it is required now"})
	}
}

// compareOutcome compares the outcomes of one requirement.
func (cs *changeSet) compareOutcome(was, now *decide.RequirementOutcome) {
	before, after := servingTools(was), servingTools(now)
	same := true
	for _, id := range before {
		if !slices.Contains(after, id) {
			same = false
			cs.add(DecisionChange{Kind: ChangeDenied, Tool: id.String(), Why: dropReason(now, id)})
		}
	}
	for _, id := range after {
		if !slices.Contains(before, id) {
			same = false
			cs.add(DecisionChange{Kind: ChangeAllowed, Tool: id.String(), Why: "it was not: " + dropReason(was, id)})
		}
	}
	asked := map[switchboard.ToolID]switchboard.Obligations{}
	for _, c := range slices.Concat(was.Selected, was.Others) {
		asked[c.Tool.ID] = policy.ObligationsOf(c)
	}
	for _, c := range slices.Concat(now.Selected, now.Others) {
		from, ok := asked[c.Tool.ID]
		if to := policy.ObligationsOf(c); ok && (!from.Empty() || !to.Empty()) {
			cs.compareObligations(c.Tool.ID.String(), from, to)
		}
	}
	moved := DecisionChange{Kind: ChangeMoved, Requirement: was.Requirement.String(), From: servedBy(was), To: servedBy(now)}
	switch {
	case moved.From == "" || moved.To == "" || moved.From == moved.To:
		if same && !slices.Equal(before, after) {
			cs.add(DecisionChange{Kind: ChangeOrder, Requirement: moved.Requirement, Why: "the same tools, in another order"})
		}
	case slices.Contains(after, before[0]):
		moved.Why = "it ranks behind now"
		cs.add(moved)
	default:
		moved.Why = dropReason(now, before[0])
		cs.add(moved)
	}
}

// compareObligations notes a change of the obligations on calls of a tool.
func (cs *changeSet) compareObligations(tool string, from, to switchboard.Obligations) {
	if was, now := describeObligations(from), describeObligations(to); was != now {
		kind := ChangeAsked
		if from.Approval == nil && to.Approval != nil {
			kind = ChangeWouldAsk
		}
		cs.add(DecisionChange{Kind: kind, Tool: tool, From: was, To: now, Why: "obligations of the policies"})
	}
}

// describeObligations returns the obligations in words.
func describeObligations(o switchboard.Obligations) string {
	var said []string
	add := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if a := o.Approval; a != nil {
		who := joinIfAny(" of ", a.Who)
		if a.Quorum > 1 {
			who = fmt.Sprintf(" of %d persons", a.Quorum) + joinIfAny(" among ", a.Who)
		}
		if a.Expires > 0 {
			who += fmt.Sprintf(", for %v", a.Expires)
		}
		add("approval%s", who)
		if a.NoStanding {
			add("no standing yes")
		}
	}
	if o.Timeout > 0 {
		add("at most %v", o.Timeout)
	}
	if o.Rate.Every > 0 {
		add("one each %v, %d at once", o.Rate.Every, o.Rate.Burst)
	}
	add("%s", joinIfAny("redact ", o.Redact))
	kinds := make([]string, len(o.Detect))
	for i, kind := range o.Detect {
		kinds[i] = string(kind)
	}
	add("%s", joinIfAny("redact each ", kinds))
	add("%s", joinIfAny("notify ", o.Notify))
	if o.Log != "" {
		add("log %s", o.Log)
	}
	said = slices.DeleteFunc(said, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(said, "; "), "nothing")
}

func joinIfAny(what string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	return what + strings.Join(list, ", ")
}

// servingTools returns the tools that could serve, best first.
func servingTools(o *decide.RequirementOutcome) (ids []switchboard.ToolID) {
	for _, c := range slices.Concat(o.Selected, o.Others) {
		ids = append(ids, c.Tool.ID)
	}
	return ids
}

// servedBy returns what serves the requirement first: a server, or a tool if only one tool is
// selected. It is "" for a requirement by name, because all tools that it names are selected.
func servedBy(o *decide.RequirementOutcome) string {
	switch {
	case len(o.Selected) == 0:
		return ""
	case o.Requirement.Select == switchboard.SelectTool:
		return o.Selected[0].Tool.ID.String()
	case o.Requirement.ByName():
		return ""
	}
	return string(o.Selected[0].Tool.ID.Server)
}

// dropReason says why the tool cannot serve.
func dropReason(o *decide.RequirementOutcome, id switchboard.ToolID) string {
	for _, d := range o.Dropped {
		if d.Tool.ID == id {
			return d.Stage + ": " + d.Reason.String()
		}
	}
	return "it is not one of the tools that the requirement names"
}

// result puts the findings together.
func (c *comparison) result(since time.Time, all int) *Diff {
	d := &Diff{Since: since, Decisions: all, Calls: c.calls, Replayed: all, Changed: c.changed, Unlisted: c.unlisted, Broken: c.broken, Changes: []DecisionChange{}}
	for why, n := range c.notReplayed {
		why.Decisions = n
		d.NotReplayed = append(d.NotReplayed, why)
		d.Replayed -= n
	}
	slices.SortFunc(d.NotReplayed, func(a, b NotReplayed) int { return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Why, b.Why)) })
	for of, n := range c.callers {
		of.Decisions = n
		d.Callers = append(d.Callers, of)
	}
	slices.SortFunc(d.Callers, func(a, b ChangedCaller) int {
		return cmp.Or(cmp.Compare(b.Decisions, a.Decisions), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Principal, b.Principal))
	})
	d.Callers = d.Callers[:min(len(d.Callers), maxCallers)]
	slices.SortFunc(d.Broken, func(a, b BrokenReplay) int { return cmp.Compare(a.Recorded, b.Recorded) })
	for change, n := range c.changes {
		change.Decisions = n
		d.Changes = append(d.Changes, change)
	}
	slices.SortFunc(d.Changes, func(a, b DecisionChange) int {
		return cmp.Or(
			cmp.Compare(slices.Index(changeKinds, a.Kind), slices.Index(changeKinds, b.Kind)), cmp.Compare(a.Of, b.Of),
			cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Tool, b.Tool),
			cmp.Compare(a.Requirement, b.Requirement), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Why, b.Why),
		)
	})
	return d
}
