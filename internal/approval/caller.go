package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	progressEvery = 5 * time.Second

	// A call that waits is woken by a notice. It also looks by itself: notices can be lost, and other processes that share a file send none.
	fileInterval   = 500 * time.Millisecond
	sharedInterval = 2 * time.Second
)

// Approve returns a Caller that asks people about each call that needs their yes: because policy demands it, or because its tool is human_in_the_loop. It
// finds the request of the call or makes it, waits for a while, and passes the call on with its Yes. A call that has waited passes recheck before next,
// because what permits it may have changed meanwhile. A call without a yes is refused with SB-APPR-001 to 003.
func (k *Keeper) Approve(recheck func(switchboard.Caller) switchboard.Caller, next switchboard.Caller) switchboard.Caller {
	again := recheck(k.Require(next))
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		q := k.questionOf(c)
		if q == nil {
			return next.Call(ctx, c)
		}
		c, err := k.openRound(c, q)
		if err != nil {
			return switchboard.Result{}, err
		}
		yes, r, made, err := k.find(ctx, c, q)
		switch {
		case err != nil:
			return switchboard.Result{}, err
		case yes != nil:
			return k.callApproved(ctx, c, q, yes, next)
		}
		// A call that passes on after this passes policy again. The obligations of the first time do not count any more.
		own := *c
		own.Obligations = switchboard.Obligations{}
		own.Resumes = r.ID() // if another call uses the yes first, no person is asked again
		if err := k.await(ctx, &own, r, made); err != nil {
			return switchboard.Result{}, err
		}
		return again.Call(ctx, &own)
	})
}

// Require is Approve for a call that asked before: it does not wait for anybody.
func (k *Keeper) Require(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		q := k.questionOf(c)
		if q == nil {
			return next.Call(ctx, c)
		}
		c, err := k.openRound(c, q)
		if err != nil {
			return switchboard.Result{}, err
		}
		yes, r, _, err := k.find(ctx, c, q)
		switch {
		case err != nil:
			return switchboard.Result{}, err
		case yes == nil:
			return switchboard.Result{}, k.refusalOf(r)
		}
		return k.callApproved(ctx, c, q, yes, next)
	})
}

// maxRequirements limits the requirements that a request names. Policy is asked about all of them when the yes is used.
const maxRequirements = 8

// The Layers of AskingRules that are no rules of policy: they stand for a capability and for approval_required of a contract.
const (
	ruleOfConstraint = "constraint"
	ruleOfContract   = "contract"
)

// questionOf returns what a person has to be asked about the call; nil if the call needs no yes.
func (k *Keeper) questionOf(c *switchboard.Call) *Request {
	byPolicy := c.Obligations.Approval
	if byPolicy == nil && !c.Tool.AsksPerson() {
		return nil
	}
	q := &Request{Kind: ForCall, Asker: Asker{
		Tenant: c.Principal.Tenant, Principal: c.Principal.ID, Auth: c.Principal.Auth, Mode: c.Principal.Mode, Task: c.Task, Run: c.Run,
	}}
	if byPolicy != nil {
		q.Terms = AskTerms{Rules: byPolicy.Rules, Who: byPolicy.Who, Quorum: byPolicy.Quorum, NoStanding: byPolicy.NoStanding}
	}
	if c.Tool.Demands(switchboard.HumanInTheLoop) {
		q.Terms.Rules = append(slices.Clone(q.Terms.Rules), askingRule(ruleOfConstraint, demandOf(c.Tool)))
	}
	if c.Tool != nil && len(c.Tool.Contract.ApprovalRequired) > 0 {
		who := c.Tool.Contract.ApprovalRequired
		q.Terms.Rules = append(slices.Clone(q.Terms.Rules), askingRule(ruleOfContract, "approval_required: "+strings.Join(who, ", ")))
		q.Terms.Who = switchboard.ApproversOfBoth(q.Terms.Who, who)
	}
	q.Target = Target{Method: c.Method, Server: c.Server, Tool: c.Candidate().Name, Arguments: k.o.Arguments(c), Bytes: len(c.Params)}
	if c.Tool != nil {
		q.Target.Capability = c.Tool.Contract.Capability
	}
	for _, j := range c.Judgments {
		if len(q.Target.Requirements) < maxRequirements {
			q.Target.Requirements = append(q.Target.Requirements, *j.Requirement)
		}
	}
	if c.Tool == nil {
		q.Target.Item = c.Item
		q.Target.Item.Arguments = nil // they stand in the params
	} else {
		q.Target.Definition = c.Tool.Digest
		says := &c.Tool.Contract
		q.Target.ReadOnly, q.Target.Vouched = says.ReadOnly.Holds, says.ReadOnly.Trusted
	}
	set := k.o.Settings(c.Principal.Tenant)
	good := DefaultUntil
	if byPolicy != nil && byPolicy.Expires > 0 {
		good = byPolicy.Expires
	}
	if set.Until > 0 {
		good = min(good, set.Until)
	}
	q.Until = time.Now().Add(min(good, MaxUntil)).UTC().Truncate(time.Second)
	return q
}

func askingRule(layer, reason string) switchboard.AskingRule {
	return switchboard.AskingRule{Layer: layer, Reason: reason, Digest: canonical.Sum([]byte(reason))}
}

// demandOf names the capability of the tool that is human_in_the_loop, and its source.
func demandOf(t *switchboard.Tool) string {
	for _, c := range slices.Concat(t.Capabilities, t.Kept) {
		if slices.Contains(c.Constraints, switchboard.HumanInTheLoop) {
			return fmt.Sprintf("%s, stated by: %s", &c, c.Source)
		}
	}
	return string(switchboard.HumanInTheLoop)
}

// find returns the yes of the call if there is one. Otherwise r is its request, which is still pending. made reports whether the request is new. The
// error is a *switchboard.Error, also for a request that a person has refused.
func (k *Keeper) find(ctx context.Context, c *switchboard.Call, q *Request) (yes *switchboard.Yes, r *Request, made bool, err error) {
	if len(c.Params) > MaxParams {
		e := switchboard.Refuse(switchboard.CodeApprovalGone, "this call needs a person's approval, and its arguments have %d bytes: more than %d are shown to no person", len(c.Params), MaxParams)
		e.Hint, e.Unsent = "send less at once", true
		return nil, nil, false, e
	}
	binding := k.Bind(q)
	if r, err = k.read(ctx, q.Asker.Tenant, shortBinding(binding)); err != nil {
		return nil, nil, false, storeError(err)
	}
	now := time.Now()
	if r != nil && r.Binding == binding && r.StateAt(now) == Approved {
		return yesOf(r), r, false, nil
	}
	if k.o.Standing != nil {
		if yes, err = k.o.Standing.Find(ctx, c, q); err != nil || yes != nil {
			return yes, nil, false, err
		}
	}
	switch {
	case c.Attempt > 0:
		return nil, nil, false, &switchboard.Error{
			Code: switchboard.CodeNoneHealthy, Unsent: true,
			Text: "the tool's own server cannot serve this call now, and a tool that does the same needs a person's approval",
			Hint: "try again later",
		}
	case c.Resumes != "" && r != nil && r.ID() == c.Resumes && r.StateAt(now) == Used:
		return nil, nil, false, used(c.Resumes)
	case c.Resumes != "" && (r == nil || r.ID() != c.Resumes || !r.stillSays(now)):
		return nil, nil, false, gone("the request %s is not for this call any more: the tool, its rules or the request itself has changed", c.Resumes)
	}
	if c.Method == wire.MethodToolsCall && !firstRound(c) { // no person is asked about answers
		return nil, nil, false, gone("the call that asked for input is not approved any more; make it again without %s and %s", memberAnswers, memberState)
	}
	if c.Resumes == "" { // else r still answers the call, and no person is asked again, even if r ends at this moment
		if r, made, err = k.Ask(ctx, q, KeptCall{Params: c.Params, Key: c.IdempotencyKey}); err != nil {
			return nil, nil, false, err
		}
	}
	if r.StateAt(now) == Approved { // just now
		return yesOf(r), r, false, nil
	}
	if r.StateAt(now) != Pending {
		return nil, nil, false, k.refusalOf(r)
	}
	return nil, r, made, nil
}

// A heldYes is the Memory of a Yes.
type heldYes struct {
	request *Request // as it was read
	used    *Request // after Use
	by      string   // the use
}

func yesOf(r *Request) *switchboard.Yes {
	return &switchboard.Yes{Request: r.ID(), Memory: &heldYes{request: r}}
}

// await waits until the request is approved. The error is a *switchboard.Error that says how it stands.
func (k *Keeper) await(ctx context.Context, c *switchboard.Call, r *Request, made bool) error {
	leave, ok := k.waiting.enter(&c.Principal)
	if !ok {
		return tooMany("%d calls of yours wait for a person already; this one is request %s", MaxWaiting, r.ID())
	}
	defer leave()
	began := time.Now()
	defer func() { c.Trail.Waited(time.Since(began)) }()
	changed, stop := k.bell.listen(r.ID())
	defer stop()
	interval := sharedInterval
	if k.o.Store.Status().Kind == "file" {
		interval = fileInterval
	}
	look := time.NewTicker(interval)
	defer look.Stop()
	wait := k.o.Settings(c.Principal.Tenant).Wait
	if wait == 0 {
		wait = DefaultWait
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	asked, end := k.askClient(ctx, c, r, made)
	defer end()
	over := deadline.C
	if asked != nil && c.Client.TakesQuestions {
		over = nil // the client has got its answer: it does not wait, and comes back with that of its person
	}
	tell := newProgress(c)
	defer tell.stop()
	for {
		now, err := k.Find(ctx, r.Asker.Tenant, r.ID())
		switch {
		case errors.Is(err, ErrNoRequest):
			return gone("the request %s is gone", r.ID())
		case err != nil && !errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil:
			return storeError(err)
		case err == nil:
			if r = now; r.StateAt(time.Now()) == Approved {
				return nil
			}
			if r.StateAt(time.Now()) != Pending {
				return k.refusalOf(r)
			}
		}
		select {
		case <-ctx.Done():
			return &switchboard.Error{
				Code: switchboard.CodeNotExecuted, Unsent: true, Cause: context.Cause(ctx),
				Text: "the call was cancelled while it waited for a person, so it was not executed",
			}
		case <-over:
			return k.refusalOf(r)
		case say := <-asked:
			asked, over = nil, deadline.C
			if say.decision != nil {
				k.decideByClient(ctx, r, *say.decision)
			}
			if say.goesOn || c.Client.TakesQuestions { // some agents decline by themselves, and a person may still approve
				deadline.Reset(wait)
			}
		case <-changed:
		case <-look.C:
		case <-tell.due():
			tell.send(r)
		}
	}
}

// A waitProgress tells the client of a call that waits, if it wants to know.
type waitProgress struct {
	call   *switchboard.Call
	token  []byte // nil: it does not want to know
	ticker *time.Ticker
	sent   int
}

func newProgress(c *switchboard.Call) *waitProgress {
	p := &waitProgress{call: c}
	meta, _ := wire.Field(c.Params, wire.MemberMeta)
	token, ok := wire.Field(meta, wire.MetaProgressToken)
	if !ok || c.Notify == nil {
		return p
	}
	p.token, p.ticker = token, time.NewTicker(progressEvery)
	return p
}

func (p *waitProgress) due() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

// send sends one notification. Progress must grow, and the server sends its progress later. So this progress is small.
func (p *waitProgress) send(r *Request) {
	p.sent++
	params := wire.AppendString(slices.Concat([]byte(`{"progressToken":`), p.token, []byte(`,"progress":`+p.progress()+`,"message":`)), "waiting for a person to approve request "+r.ID())
	p.call.Notify(switchboard.Notification{Method: wire.MethodProgress, Params: append(params, '}')})
}

func (p *waitProgress) progress() string {
	return strconv.FormatFloat(float64(p.sent)/1e6, 'f', -1, 64)
}

// stop ends the telling. Progress of the server that is not above ours is left out from now on.
func (p *waitProgress) stop() {
	if p.ticker == nil {
		return
	}
	p.ticker.Stop()
	if p.sent == 0 {
		return
	}
	tell, last := p.call.Notify, float64(p.sent)/1e6
	p.call.Notify = func(n switchboard.Notification) {
		if n.Method == wire.MethodProgress {
			raw, _ := wire.Field(n.Params, "progress")
			if got, err := strconv.ParseFloat(string(raw), 64); err == nil && got <= last {
				return
			}
		}
		tell(n)
	}
}

// refusalOf returns the error for a call with the request r.
func (k *Keeper) refusalOf(r *Request) error {
	id, now := r.ID(), time.Now()
	var e *switchboard.Error
	switch r.StateAt(now) {
	case Pending, Approved: // an approved one was approved after the call had looked
		e = switchboard.Refuse(switchboard.CodeApprovalPending, "this call waits for a person's approval: request %s, until %s. %s. It was not made", id, r.Until.Format("15:04 MST"), k.whoDecides(r))
		e.Hint = "go on with other work meanwhile, then make the same request again; do not look for another way to do it"
		if r.Target.Method == wire.MethodToolsCall {
			e.Hint = fmt.Sprintf(`go on with other work meanwhile, then call %s {"request":"%s"}; do not look for another way to do it`, ResumeTool, id)
		}
	case Refused:
		e = switchboard.Refuse(switchboard.CodeApprovalRefused, "a person has refused this call (request %s)", id)
		if v := r.Last(); v != nil && v.Note != "" {
			e.Text += " and says: " + strconv.Quote(v.Note)
		}
		e.Hint = "do not make it again in other words, and do not look for another way to do it"
	case Expired:
		e = gone("request %s has expired: no person has approved it in time", id)
		e.Hint = "make the call again if it is still needed: a person is asked again"
	case Revoked:
		e = gone("the approval of request %s was taken back before it was used", id)
		e.Hint = "ask the person whom you work for"
	case Withdrawn:
		e = gone("request %s was withdrawn", id)
		e.Hint = "make the call again if it is still needed: a person is asked again"
	default:
		e = used(id)
	}
	e.Unsent = true
	e.Data = []switchboard.DataMember{{Name: "request", JSON: wire.AppendString(nil, id)}, {Name: "until", JSON: wire.AppendString(nil, r.Until.Format(time.RFC3339))}}
	return e
}

// gone returns SB-APPR-003.
func gone(format string, args ...any) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeApprovalGone, format, args...)
	e.Unsent = true
	return e
}

func used(id string) *switchboard.Error {
	e := gone("the approval of request %s was used already, and an approval is for one call", id)
	e.Hint = "if the call must be made once more, make it again: a person is asked again"
	return e
}

// whoDecides returns a sentence about the persons that can decide the request, without its full stop.
func (k *Keeper) whoDecides(r *Request) string {
	who := "An approver of tenant " + string(r.Asker.Tenant)
	switch others := slices.DeleteFunc(slices.Clone(r.Terms.Who), func(w string) bool { return w == string(switchboard.OfficeApprover) }); {
	case len(others) == 1 && others[0] == "":
		return "No person can decide it, because the rules that ask name different people"
	case len(others) > 0 && len(others) == len(r.Terms.Who):
		who += " who is " + strings.Join(others, " or ")
	case k.o.Rules(r.Asker.Tenant).Unmanned:
		who = "Whoever runs this Switchboard"
	}
	if n := r.Terms.Needed() - r.Yeses(); n > 1 {
		who += " (" + strconv.Itoa(n) + " people are needed)"
	}
	if address := k.address(r); address != "" {
		return who + " decides, at " + address
	}
	return who + " decides, with: switchboard approvals show " + r.ID()
}

func (k *Keeper) address(r *Request) string {
	if k.o.Address == nil {
		return ""
	}
	return k.o.Address(r.ID())
}
