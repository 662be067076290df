// Package standing keeps standing yeses: a person says in advance yes to calls like one that waits for it.
//
// A standing yes is made from a request for approval, by a person who may decide that request. It is for one principal, task, tool and definition, for
// arguments that pass its tests, for a number of uses, and until an instant. It spares the asking and nothing else: policy is asked about each call, and may
// veto its use. The person's office is checked again at each use. A rule that the person did not know of when making it asks as before.
//
// The uses are an account of the store, of which each attempt holds 1, so no race of callers gets more than there are.
//
// The package decides whether a standing yes fits a call. Package approval decides which calls need a yes, and package commit when it is used.
package standing

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of standing yeses.
const (
	MaxUses = 1000 // of one
	maxKept = 100  // of a tenant, ended ones included

	keepEnded    = 7 * 24 * time.Hour
	useTTL       = time.Hour // within which a use can be given back
	storeTimeout = 5 * time.Second
	maxTries     = 20 // of a change that others outrun
)

// A Store keeps standing yeses and counts their uses. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Hold(ctx context.Context, group, id string, terms store.HoldTerms, accounts ...store.Account) (sums []store.AccountState, held bool, err error)
	Settle(ctx context.Context, group string, settlements ...store.Settlement) ([]bool, error)
	Accounts(ctx context.Context, group string, names ...string) ([]store.AccountState, error)
}

// A RequestSource has the requests for approval. See approval.Keeper.
type RequestSource interface {
	Find(ctx context.Context, tenant switchboard.TenantID, id string) (*approval.Request, error)
	Kept(ctx context.Context, r *approval.Request) (approval.KeptCall, error)
}

// Options are the options of a Yeskeeper. Each function has the meaning of its namesake in approval.Options.
type Options struct {
	Store    Store
	Requests RequestSource

	Settings func(switchboard.TenantID) switchboard.ApprovalSettings
	Rules    func(switchboard.TenantID) approval.DecideRules
	Veto     func(ctx context.Context, by *switchboard.Officer, r *approval.Request, c *switchboard.Call, params []byte) error // nil: no veto
	Officer  func(tenant switchboard.TenantID, v *approval.Vote) (switchboard.Officer, error)
}

// A Yeskeeper keeps standing yeses in the store. Use New. It implements approval.StandingYeses, and is safe for concurrent use.
type Yeskeeper struct{ o Options }

// New returns a Yeskeeper.
func New(o Options) *Yeskeeper { return &Yeskeeper{o} }

// A GivenYes is a standing yes. It is immutable.
type GivenYes struct {
	ID      string `json:"id"`
	Request string `json:"request"` // that it was made from

	Asker  approval.Asker    `json:"asker"`
	Target approval.Target   `json:"target"`
	Terms  approval.AskTerms `json:"terms"` // of the request

	Arguments ArgumentTests `json:"arguments"`
	Uses      int64         `json:"uses"`

	Made    time.Time     `json:"made"`
	Until   time.Time     `json:"until"`
	By      approval.Vote `json:"by"`
	EndedBy string        `json:"ended_by,omitempty"`
	EndedAt time.Time     `json:"ended_at,omitzero"`

	version store.Version
}

// end returns when the standing yes ends, under the longest time that the operator allows now.
func (g *GivenYes) end(longest time.Duration) time.Time {
	end := g.Until
	if most := g.Made.Add(longest); most.Before(end) {
		end = most
	}
	if !g.EndedAt.IsZero() && g.EndedAt.Before(end) {
		end = g.EndedAt
	}
	return end
}

// asked returns the request that a person would decide who decides about the standing yes.
func (g *GivenYes) asked() *approval.Request {
	return &approval.Request{Kind: approval.ForCall, Asker: g.Asker, Target: g.Target, Terms: g.Terms, Asked: g.Made, Until: g.Until}
}

// spares reports whether the standing yes is about the call that q would ask about, which mayStand permits. Its end, its uses and its person are checked elsewhere.
func (g *GivenYes) spares(q *approval.Request, arguments []byte) bool {
	a, t := &g.Asker, &g.Target
	switch {
	case a.Tenant != q.Asker.Tenant || a.Principal != q.Asker.Principal || a.Auth != q.Asker.Auth || a.Task != q.Asker.Task:
		return false
	case t.Method != q.Target.Method || t.Server != q.Target.Server || t.Tool != q.Target.Tool || t.Definition != q.Target.Definition || t.Capability != q.Target.Capability:
		return false
	}
	for _, rule := range q.Terms.Rules { // one that asks now, and that the person did not know of
		if !slices.ContainsFunc(g.Terms.Rules, func(known switchboard.AskingRule) bool {
			return known.Layer == rule.Layer && known.File == rule.File && known.Digest == rule.Digest
		}) {
			return false
		}
	}
	return g.Arguments.Fit(arguments)
}

// mayStand reports whether a standing yes may spare the request.
func mayStand(q *approval.Request) bool {
	return q.Kind == approval.ForCall && q.Target.Method == wire.MethodToolsCall && !q.Terms.NoStanding && q.Terms.Needed() == 1
}

// groupOf returns the group of a tenant's standing yeses and of the accounts of their uses.
func groupOf(t switchboard.TenantID) string { return "standing/" + string(t) }

// YesTerms are what a person says yes to in advance.
type YesTerms struct {
	Arguments ArgumentTests
	Uses      int64
	For       time.Duration
}

// Make makes a standing yes from a request, as the officer. It does not decide the request itself. The error is a *switchboard.Error,
// approval.ErrNoRequest, or one of the store.
func (k *Yeskeeper) Make(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, request string, terms YesTerms) (*GivenYes, error) {
	longest := k.o.Settings(tenant).Standing
	switch {
	case longest <= 0:
		e := switchboard.Refuse(switchboard.CodeNotAuthorized, "the operator allows no standing yes in tenant %s", tenant)
		e.Hint = "approvals: {standing: 8h} in the tenant's row of switchboard.yaml allows them"
		return nil, e
	case terms.Uses < 1 || terms.Uses > MaxUses:
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "%d uses: want 1 to %d", terms.Uses, MaxUses)
	case terms.For < time.Second || terms.For > longest:
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "%s is not a time up to the %s that the operator allows", terms.For, longest)
	}
	r, err := k.o.Requests.Find(ctx, tenant, request)
	if err != nil {
		return nil, err
	}
	if err := k.mayMake(ctx, by, r, terms.Arguments); err != nil {
		return nil, err
	}
	var b [10]byte
	rand.Read(b[:])
	now := time.Now().UTC().Truncate(time.Second)
	g := &GivenYes{
		ID: strings.ToLower(base32.StdEncoding.EncodeToString(b[:])), Request: r.ID(), Asker: r.Asker, Target: r.Target, Terms: r.Terms,
		Arguments: terms.Arguments, Uses: terms.Uses, Made: now, Until: now.Add(terms.For),
		By: approval.Vote{By: by.ID, Auth: by.Auth, Credential: by.Credential, Claims: by.Claims, Yes: true, At: now},
	}
	g.Asker.Run = ""
	g.Target.Arguments, g.Target.Bytes = "", 0 // of that one call
	all, err := k.list(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if len(all) >= maxKept {
		e := switchboard.Refuse(switchboard.CodeTooManyAsked, "tenant %s has %d standing yeses, also counting those that have ended within a week; there may be no more", tenant, len(all))
		return nil, e
	}
	if err := k.write(ctx, g, 0); err != nil {
		return nil, err
	}
	return g, nil
}

// mayMake returns why the officer may not make a standing yes with these tests from the request: a *switchboard.Error or nil.
func (k *Yeskeeper) mayMake(ctx context.Context, by *switchboard.Officer, r *approval.Request, tests ArgumentTests) error {
	switch {
	case r.Kind != approval.ForCall || r.Target.Method != wire.MethodToolsCall:
		return switchboard.Refuse(switchboard.CodeBadArguments, "request %s is not for the call of a tool, and a standing yes is for such calls", r.ID())
	case r.Terms.Needed() > 1:
		return switchboard.Refuse(switchboard.CodeNotAuthorized, "request %s needs %d persons for each call, so no standing yes can spare it", r.ID(), r.Terms.Needed())
	case r.Terms.NoStanding:
		return switchboard.Refuse(switchboard.CodeNotAuthorized, "the rule that asked in request %s allows no standing yes", r.ID())
	}
	if err := approval.MayDecide(by, r, k.o.Rules(r.Asker.Tenant)); err != nil {
		return err
	}
	kept, err := k.o.Requests.Kept(ctx, r)
	switch {
	case errors.Is(err, approval.ErrNoRequest): // it has ended, and its arguments are gone
		return switchboard.Refuse(switchboard.CodeApprovalGone, "request %s is %s: a standing yes is made from one that is pending or approved", r.ID(), r.StateAt(time.Now()))
	case err != nil:
		return err
	}
	if arguments, _ := wire.Field(kept.Params, "arguments"); !tests.Fit(arguments) {
		return switchboard.Refuse(switchboard.CodeBadArguments, "the arguments of request %s themselves do not pass these tests; each argument needs one, and numbers count as they are spelt", r.ID())
	}
	if k.o.Veto != nil {
		return k.o.Veto(ctx, by, r, nil, kept.Params)
	}
	return nil
}

// write writes a standing yes durably, in the place of the version was.
func (k *Yeskeeper) write(ctx context.Context, g *GivenYes, was store.Version) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	g.version, err = k.o.Store.Apply(ctx, store.Change{
		Group: groupOf(g.Asker.Tenant), Durable: true,
		Writes: []store.Write{{Name: g.ID, Was: was, Data: data, TTL: max(time.Until(g.Until), 0) + keepEnded}},
	})
	return err
}

// list returns the standing yeses of a tenant, also those that have ended, the one that ends first first.
func (k *Yeskeeper) list(ctx context.Context, tenant switchboard.TenantID) ([]*GivenYes, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	values, err := k.o.Store.List(ctx, groupOf(tenant))
	if err != nil {
		return nil, err
	}
	var all []*GivenYes
	for _, v := range values {
		g := &GivenYes{version: v.Version}
		if json.Unmarshal(v.Data, g) == nil && g.ID == v.Name && g.Asker.Tenant == tenant { // otherwise it spares nothing
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *GivenYes) int { return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

// used returns how often the standing yeses of a tenant were used, by id.
func (k *Yeskeeper) used(ctx context.Context, tenant switchboard.TenantID) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	accounts, err := k.o.Store.Accounts(ctx, groupOf(tenant))
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for _, a := range accounts {
		all[a.Name] = a.Settled + a.Held
	}
	return all, nil
}

// A ListedYes is a standing yes with its uses.
type ListedYes struct {
	*GivenYes
	Used int64     `json:"used"`
	Ends time.Time `json:"ends"` // under the settings of now; at the latest at Until
}

// List returns the standing yeses of a tenant, also those that have ended within a week, the one that ends first first.
func (k *Yeskeeper) List(ctx context.Context, tenant switchboard.TenantID) ([]ListedYes, error) {
	all, err := k.list(ctx, tenant)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	used, err := k.used(ctx, tenant)
	if err != nil {
		return nil, err
	}
	longest := k.o.Settings(tenant).Standing
	listed := make([]ListedYes, len(all))
	for i, g := range all {
		listed[i] = ListedYes{g, used[g.ID], g.end(longest)}
	}
	return listed, nil
}

// End ends a standing yes, as an officer who may make it. One that has ended stays as it is. The error is approval.ErrNoRequest if there is none of that id.
func (k *Yeskeeper) End(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*GivenYes, error) {
	for range maxTries {
		g, err := k.find(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		if err := approval.MayDecide(by, g.asked(), k.o.Rules(tenant)); err != nil {
			return nil, err
		}
		if !g.EndedAt.IsZero() {
			return g, nil
		}
		next := *g
		next.EndedBy, next.EndedAt = by.ID, time.Now().UTC()
		if err := k.write(ctx, &next, g.version); !errors.Is(err, store.ErrConflict) {
			return &next, err
		}
	}
	return nil, switchboard.Unavailable("the standing yes could not be ended, because others changed it all the time", store.ErrConflict)
}

// find returns a standing yes. The error is approval.ErrNoRequest, or one of the store.
func (k *Yeskeeper) find(ctx context.Context, tenant switchboard.TenantID, id string) (*GivenYes, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if id == "" || len(id) > store.MaxKey {
		return nil, approval.ErrNoRequest
	}
	v, err := k.o.Store.Value(ctx, store.Key{Group: groupOf(tenant), Name: id})
	if err != nil && !errors.Is(err, store.ErrUnopened) {
		return nil, err
	}
	g := &GivenYes{version: v.Version}
	if json.Unmarshal(v.Data, g) != nil || g.ID != id || g.Asker.Tenant != tenant {
		return nil, approval.ErrNoRequest
	}
	return g, nil
}

// A chosenYes is the Memory of a Yes that Find has returned.
type chosenYes struct {
	yes    *GivenYes
	asked  *approval.Request // about the call
	intent string            // that has used it
}

// Find implements approval.StandingYeses.
func (k *Yeskeeper) Find(ctx context.Context, c *switchboard.Call, q *approval.Request) (*switchboard.Yes, error) {
	tenant := q.Asker.Tenant
	if k.o.Settings(tenant).Standing <= 0 || !mayStand(q) {
		return nil, nil //nolint:nilnil // there is none
	}
	all, err := k.list(ctx, tenant)
	if err != nil {
		return nil, unavailable(err)
	}
	arguments, _ := wire.Field(c.Params, "arguments")
	var used map[string]int64
	for _, g := range all {
		if k.refuse(g, q, time.Now()) != nil || !g.spares(q, arguments) {
			continue
		}
		if used == nil {
			if used, err = k.used(ctx, tenant); err != nil {
				return nil, unavailable(err)
			}
		}
		if used[g.ID] < g.Uses {
			return &switchboard.Yes{Request: g.Request, Standing: g.ID, Memory: &chosenYes{yes: g, asked: q}}, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// refuse returns why the standing yes does not count for the question now, whatever the call is; nil if it does.
func (k *Yeskeeper) refuse(g *GivenYes, q *approval.Request, now time.Time) error {
	tenant := g.Asker.Tenant
	if longest := k.o.Settings(tenant).Standing; longest <= 0 || !now.Before(g.end(longest)) {
		return errors.New("it has ended")
	}
	by, err := k.o.Officer(tenant, &g.By)
	if err != nil {
		return err
	}
	return approval.MayDecide(&by, q, k.o.Rules(tenant))
}

// Use implements approval.StandingYeses.
func (k *Yeskeeper) Use(ctx context.Context, c *switchboard.Call, intent string) error {
	chosen, ok := c.Yes.Memory.(*chosenYes)
	if !ok {
		return over(errors.New("it is not known here"))
	}
	tenant := chosen.yes.Asker.Tenant
	g, err := k.find(ctx, tenant, chosen.yes.ID) // a person may have ended it
	switch {
	case errors.Is(err, approval.ErrNoRequest):
		return over(err)
	case err != nil:
		return unavailable(err)
	}
	if err := k.refuse(g, chosen.asked, time.Now()); err != nil {
		return over(err)
	}
	if k.o.Veto != nil {
		by, err := k.o.Officer(tenant, &g.By)
		if err == nil {
			err = k.o.Veto(ctx, &by, chosen.asked, c, c.Params)
		}
		if err != nil {
			return over(err)
		}
	}
	holding, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	// The hold is never settled: after its time it counts as settled, so a use stays used.
	_, held, err := k.o.Store.Hold(holding, groupOf(tenant), intent, store.HoldTerms{TTL: useTTL, Durable: true},
		store.Account{Name: g.ID, Max: g.Uses, Amount: 1, Ends: g.Until.Add(keepEnded)})
	switch {
	case err != nil:
		// The hold may have been made, for a call that is not made.
		chosen.intent = intent
		_ = k.GiveBack(context.WithoutCancel(ctx), c) // otherwise it stays used
		return unavailable(err)
	case !held:
		return over(errors.New("other calls have used it up"))
	}
	chosen.intent = intent
	return nil
}

// GiveBack implements approval.StandingYeses.
func (k *Yeskeeper) GiveBack(ctx context.Context, c *switchboard.Call) error {
	chosen, ok := c.Yes.Memory.(*chosenYes)
	if !ok || chosen.intent == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := k.o.Store.Settle(ctx, groupOf(chosen.yes.Asker.Tenant), store.Settlement{ID: chosen.intent, Amounts: []int64{0}})
	return err
}

// over returns the refusal of a call. Its standing yes has ended.
func over(cause error) error {
	e := switchboard.Refuse(switchboard.CodeApprovalGone, "the standing approval for this call does not count any more")
	e.Hint, e.Unsent, e.Cause = "make the call again: a person is asked", true, cause
	return e
}

func unavailable(err error) error {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own
	}
	return switchboard.Unavailable("the store cannot say whether a person has approved this in advance, so the call was not made", err)
}
