package approval

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of requests.
const (
	MaxParams      = 256 << 10 // bytes of the params of a call that a person is asked about
	MaxOfPrincipal = 50        // pending requests of one principal
	MaxOfTenant    = 500       // pending requests of one tenant
	MaxWaiting     = 20        // calls of one principal that wait for a person

	MaxOfPrincipalHour = 200 // requests of one principal within an hour, also those that it withdraws

	MaxCapabilities    = 5  // pending requests of one principal for capabilities
	MaxCapabilitiesDay = 20 // requests of one principal for capabilities within a day

	DefaultWait  = 45 * time.Second
	DefaultUntil = time.Hour
	MaxUntil     = 24 * time.Hour
)

const (
	// maxKept is how many requests of a tenant are kept, open or ended. It is less than one read of the store returns.
	maxKept  = 1000
	maxRates = 500 // principals that are counted; the least busy one gives way

	hour = int64(time.Hour / time.Second)

	keepEnded  = 7 * 24 * time.Hour // after Until
	maxEarlier = 3

	storeTimeout = 5 * time.Second
	maxTries     = 50 // of a change that others outrun
)

// A Store keeps requests. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Status() store.Status
}

// A Sealer seals the arguments of calls that wait. See vault.Vault.
type Sealer interface {
	Seal(purpose, name string, text []byte) []byte
	Unseal(purpose, name string, sealed []byte) (text []byte, ok bool)
}

// StandingYeses are the yeses that people have given in advance.
type StandingYeses interface {
	// Find returns the standing yes that fits a call, which q would ask about; nil if none does.
	Find(ctx context.Context, c *switchboard.Call, q *Request) (*switchboard.Yes, error)

	// Use uses the standing yes of the call once. See commit.Approvals.
	Use(ctx context.Context, c *switchboard.Call, intent string) error

	// GiveBack undoes Use, for a call that was not made.
	GiveBack(ctx context.Context, c *switchboard.Call) error
}

// Options are the options of a Keeper.
type Options struct {
	Store  Store
	Sealer Sealer
	Key    switchboard.Secret // of bindings

	Arguments func(*switchboard.Call) string // returns the keyed digest of the canonical arguments

	// Effect reports whether a call may change something outside; see receipt.Effect.
	Effect func(*switchboard.Call) bool

	// Settings and Rules return the present settings and rules of a tenant.
	Settings func(switchboard.TenantID) switchboard.ApprovalSettings
	Rules    func(switchboard.TenantID) DecideRules

	// Veto asks policy in the phase approve about the person and the request. An error is a *switchboard.Error. c is the call that uses the yes; nil
	// when the person says yes. params are the params of the call. A nil Veto means that policy is not asked.
	Veto func(ctx context.Context, by *switchboard.Officer, r *Request, c *switchboard.Call, params []byte) error

	// Officer returns who has voted, with the offices of now. The error says why the vote does not count any more.
	Officer func(tenant switchboard.TenantID, v *Vote) (switchboard.Officer, error)

	AskOptions

	// Stepped is called for each step; TellPeople tells people. It must not wait. nil means that nothing is told.
	Stepped func(*Request, Step)

	// Address returns the address of a request's page; "" if no person can open one.
	Address func(id string) string

	// Describe returns the arguments of a call as a person reads them, with every deceptive character escaped. ok is false if they cannot be shown whole.
	Describe func(c *switchboard.Call) (text string, ok bool)

	Standing StandingYeses // nil means that there are none
	Log      *slog.Logger  // nil means no log
}

// AskOptions are the options for new requests. Each function may be nil.
type AskOptions struct {
	// KeysOf returns the keys of the person behind the asker; see Asker.Keys.
	KeysOf func(*Asker) []string

	// Asked is called for each new request, at most once. It must not wait.
	Asked func(*Request)
}

// A Keeper keeps requests in the store, and makes calls wait for them. Use New. It is safe for concurrent use.
type Keeper struct {
	*requestBook
	waiting waiters
	stop    func()
}

// requestBook reads and writes the requests in the store.
type requestBook struct {
	o      Options
	asking [64]chan struct{} // by tenant: the requests of one are made one after the other; each has an element while one is made
	bell   bell
	untold ownRequests
	room   int // how many requests of a tenant are kept: maxKept, except in tests
}

// New returns a Keeper, which follows the store until Close.
func New(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{requestBook: &requestBook{o: o, untold: newOwnRequests(), room: maxKept}}
	for i := range k.asking {
		k.asking[i] = make(chan struct{}, 1)
	}
	k.stop = o.Store.Subscribe(topic, k.bell.hear)
	return k
}

// Close ends the following.
func (k *Keeper) Close() { k.stop() }

// SetStanding sets where standing yeses are found. Call it before the Keeper is used.
func (k *Keeper) SetStanding(s StandingYeses) { k.o.Standing = s }

// Bind returns the binding of a request: q's asker and target, and why a person is asked.
func (k *requestBook) Bind(q *Request) string { return bindingOf(k.o.Key, q) }

// read returns the last request of a binding, by its short form; nil if there is none.
func (k *requestBook) read(ctx context.Context, tenant switchboard.TenantID, short string) (*Request, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := k.o.Store.Value(ctx, store.Key{Group: groupOf(tenant), Name: short})
	if err != nil && !errors.Is(err, store.ErrUnopened) {
		return nil, err
	}
	return k.decode(v)
}

// Find returns a request of a tenant. The error is ErrNoRequest, or one of the store.
func (k *requestBook) Find(ctx context.Context, tenant switchboard.TenantID, id string) (*Request, error) {
	short, number, ok := SplitID(id)
	if !ok {
		return nil, ErrNoRequest
	}
	r, err := k.read(ctx, tenant, short)
	if err != nil {
		return nil, err
	}
	if r == nil || r.Number != number {
		return nil, ErrNoRequest
	}
	return r, nil
}

// List returns the requests of a tenant, the newest first, also those that have ended lately.
func (k *requestBook) List(ctx context.Context, tenant switchboard.TenantID) ([]*Request, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	values, err := k.o.Store.List(ctx, groupOf(tenant))
	if err != nil {
		return nil, err
	}
	all := make([]*Request, 0, len(values))
	for _, v := range values {
		if v.Name == indexName {
			continue
		}
		if r, err := k.decode(v.Value); err == nil && r != nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *Request) int {
		if c := b.Asked.Compare(a.Asked); c != 0 {
			return c
		}
		return strings.Compare(a.Binding, b.Binding)
	})
	return all, nil
}

// Ask returns the last request with the binding of q, if it still answers calls. Otherwise Ask makes a request. made reports whether it is new. q has an Asker, a
// Target, Terms and Until. kept, if it has params, is kept sealed until the request ends. The error is a *switchboard.Error: SB-LIFE-004 if there are too
// many, SB-ROUT-004 if the store cannot be used.
func (k *requestBook) Ask(ctx context.Context, q *Request, kept KeptCall) (r *Request, made bool, err error) {
	binding := k.Bind(q)
	short, tenant := shortBinding(binding), q.Asker.Tenant
	turn := k.asking[stripe(tenant)%len(k.asking)]
	for range maxTries {
		now := time.Now()
		was, err := k.read(ctx, tenant, short)
		if err != nil {
			return nil, false, storeError(err)
		}
		if was != nil && was.Binding != binding {
			return nil, false, storeError(errors.New("two bindings have one short form"))
		}
		if was.stillSays(now) {
			return was, false, nil
		}
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil, false, storeError(context.Cause(ctx))
		}
		r, err := k.make(ctx, q, binding, was, kept, now)
		<-turn
		switch {
		case err == nil:
			k.untold.add(r)
			k.publish(ctx, r)
			if k.o.Asked != nil {
				k.o.Asked(r)
			}
			return r, true, nil
		case errors.Is(err, store.ErrConflict):
			pause(ctx)
		default:
			return nil, false, storeError(err)
		}
	}
	return nil, false, storeError(errors.New("others changed the requests of the tenant all the time"))
}

// stillSays reports whether the request answers a call with its binding: it is open, or a person has said no and Until is not over.
func (r *Request) stillSays(now time.Time) bool {
	if r == nil {
		return false
	}
	switch r.StateAt(now) {
	case Pending, Approved:
		return true
	case Refused, Revoked:
		return now.Before(r.Until)
	}
	return false
}

// make writes a new request. The error is a *switchboard.Error or one of the store.
func (k *requestBook) make(ctx context.Context, q *Request, binding string, was *Request, kept KeptCall, now time.Time) (*Request, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	ix, version, err := k.readIndex(ctx, q.Asker.Tenant)
	if err != nil {
		return nil, err
	}
	if err := ix.refuse(q, now); err != nil {
		return nil, err
	}
	r := *q
	r.Binding, r.Number, r.Stored, r.Votes, r.Asked = binding, 1, Pending, nil, now.UTC()
	r.memory = &requestMemory{}
	if k.o.KeysOf != nil {
		r.Asker.Keys = k.o.KeysOf(&r.Asker)
	}
	if was != nil {
		r.Number, r.memory.version, r.Before = was.Number+1, was.memory.version, was.earlier(now)
	}
	writes, err := k.makeRoom(ctx, ix, &r, now)
	if err != nil {
		return nil, err
	}
	ix.add(&r, now)
	if len(kept.Params) > 0 {
		if err := k.seal(ctx, &r, kept, now); err != nil {
			return nil, err
		}
	}
	writes = append(writes,
		indexWrite(ix, version),
		store.Write{Name: shortBinding(binding), Was: r.memory.version, Data: r.encode(), TTL: r.ttl(now)},
	)
	if r.memory.version, err = k.o.Store.Apply(ctx, store.Change{Group: groupOf(r.Asker.Tenant), Writes: writes}); err != nil {
		return nil, err
	}
	return &r, nil
}

// makeRoom makes room in the index for a request, and returns what is deleted for it.
func (k *requestBook) makeRoom(ctx context.Context, ix *askIndex, r *Request, now time.Time) ([]store.Write, error) {
	name := shortBinding(r.Binding)
	if !ix.fullWithout(name, k.room) {
		return nil, nil
	}
	all, err := k.List(ctx, r.Asker.Tenant)
	if err != nil {
		return nil, err
	}
	kept := make(map[string]*Request, len(all))
	for _, o := range all {
		kept[shortBinding(o.Binding)] = o
	}
	deletes := ix.makeRoom(name, kept, now, k.room)
	if ix.fullWithout(name, k.room) {
		return nil, tooMany("tenant %s has asked people for too much lately", r.Asker.Tenant)
	}
	return deletes, nil
}

// earlier returns the Before of the next request of the binding.
func (r *Request) earlier(now time.Time) []Earlier {
	e := Earlier{Number: r.Number, State: r.StateAt(now), By: r.By(), At: r.EndedAt}
	if v := r.Last(); v != nil && r.Stored == Refused {
		e.Note, e.At = v.Note, v.At
	}
	if e.At.IsZero() {
		e.At = r.Until
	}
	all := append([]Earlier{e}, r.Before...)
	return all[:min(len(all), maxEarlier)]
}

// step makes a step of a request, with one compare-and-set. check, if not nil, may still refuse it. The error is *OutrunError, ErrVoted, ErrNoRequest, the error of check
// or one of the store.
func (k *requestBook) step(ctx context.Context, tenant switchboard.TenantID, id string, durable bool, s Step, check func(*Request) error) (*Request, error) {
	for range maxTries {
		r, err := k.Find(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		if check != nil {
			if err := check(r); err != nil {
				return nil, err
			}
		}
		next, err := k.apply(ctx, r, s, nil, k.writerOf(durable))
		if errors.Is(err, store.ErrConflict) {
			pause(ctx)
			continue
		}
		return next, err
	}
	return nil, storeError(errors.New("others changed the requests of the tenant all the time"))
}

// A changeFunc makes a change of the store. See store.Store.Apply.
type changeFunc = func(context.Context, store.Change) (store.Version, error)

// writerOf returns a changeFunc that makes changes by themselves.
func (k *requestBook) writerOf(durable bool) changeFunc {
	return func(ctx context.Context, c store.Change) (store.Version, error) {
		c.Durable = durable
		return k.o.Store.Apply(ctx, c)
	}
}

// apply makes a step of the request r as it was read, with one call of write. The error is store.ErrConflict if it has changed. kept are the params of a call that
// gives its yes back.
func (k *requestBook) apply(ctx context.Context, r *Request, s Step, kept *KeptCall, write changeFunc) (*Request, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now := time.Now()
	next, err := r.Next(now, s)
	if err != nil {
		return nil, err
	}
	next.memory = &requestMemory{version: r.memory.version, sealed: r.memory.sealed, item: r.memory.item}
	group, short := groupOf(r.Asker.Tenant), shortBinding(r.Binding)
	var writes []store.Write
	if r.Stored == Pending && next.Stored != Pending {
		ix, version, err := k.readIndex(ctx, r.Asker.Tenant)
		if err != nil {
			return nil, err
		}
		ix.settle(next)
		writes = append(writes, indexWrite(ix, version))
	}
	switch {
	case kept != nil:
		if err := k.seal(ctx, next, *kept, now); err != nil {
			return nil, err
		}
	case !next.Stored.Open():
		next.memory.sealed, next.memory.item = nil, nil
	}
	writes = append(writes, store.Write{Name: short, Was: r.memory.version, Data: next.encode(), TTL: next.ttl(now)})
	if next.memory.version, err = write(ctx, store.Change{Group: group, Writes: writes}); err != nil {
		return nil, err
	}
	k.complete(ctx, r, next, s)
	return next, nil
}

// complete does what follows a step from r to next that the store has made.
func (k *requestBook) complete(ctx context.Context, r, next *Request, s Step) {
	if next.Target.Bytes > maxWithin && !next.Stored.Open() { // else they are gone with the value
		if _, err := k.o.Store.Apply(ctx, store.Change{Group: paramsGroup(r.Asker.Tenant), Writes: []store.Write{{Name: r.ID(), Was: store.Any}}}); err != nil {
			k.o.Log.Warn("the arguments of a request that has ended could not be deleted; they expire", "request", r.ID(), "tenant", string(r.Asker.Tenant), "until", r.Until, "error", err)
		}
	}
	if s.Act != ActUse { // a call that waits for the same yes sees it when it tries
		k.publish(ctx, next)
	}
	if k.o.Stepped != nil {
		k.o.Stepped(next, s)
	}
}

// publish wakes the calls that wait for the request, here and elsewhere.
func (k *requestBook) publish(ctx context.Context, r *Request) {
	k.bell.ring(r.Asker.Tenant, r.ID())
	if err := k.o.Store.Publish(ctx, topic, notice(r)); err != nil && ctx.Err() == nil {
		k.o.Log.Debug("other replicas were not told of a request; they look themselves", "error", err)
	}
}

// A Saying is what a person says to a request.
type Saying struct {
	Yes   bool
	Note  string // at most MaxNote bytes
	Grant Grant  // of a yes to a capability
}

// Decide says yes or no to a request, as the officer. It checks that the officer may, and asks policy. The error is a *switchboard.Error, ErrNoRequest,
// ErrVoted or *OutrunError, or one of the store.
func (k *Keeper) Decide(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string, s Saying) (*Request, error) {
	if len(s.Note) > MaxNote {
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "the note has %d bytes; at most %d", len(s.Note), MaxNote)
	}
	step := Step{Act: ActRefuse, Vote: voteOf(by, s.Note), Grant: s.Grant}
	if s.Yes {
		step.Act = ActApprove
	}
	return k.step(ctx, tenant, id, true, step, func(r *Request) error {
		if err := MayDecide(by, r, k.o.Rules(tenant)); err != nil || !s.Yes || k.o.Veto == nil || r.StateAt(time.Now()) != Pending {
			return err
		}
		var params []byte
		if r.Kind == ForCall {
			kept, err := k.Kept(ctx, r)
			if err != nil {
				return &switchboard.Error{Code: switchboard.CodeApprovalGone, Text: "the arguments of this call cannot be read any more, so that nobody can approve it", Cause: err}
			}
			params = kept.Params
		}
		return k.o.Veto(ctx, by, r, nil, params)
	})
}

// Revoke takes a yes back that was not used. Who may decide a request may also revoke it.
func (k *Keeper) Revoke(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*Request, error) {
	return k.step(ctx, tenant, id, true, Step{Act: ActRevoke, By: by.ID}, func(r *Request) error { return MayDecide(by, r, k.o.Rules(tenant)) })
}

// Withdraw ends a pending request, for the principal and the task that asked. For anybody else there is no such request.
func (k *Keeper) Withdraw(ctx context.Context, p *switchboard.Principal, task switchboard.TaskID, id string) (*Request, error) {
	return k.step(ctx, p.Tenant, id, false, Step{Act: ActWithdraw, By: p.ID}, func(r *Request) error {
		if !r.Asker.is(p, task) {
			return ErrNoRequest
		}
		return nil
	})
}

// is reports whether the asker is the principal, in the task.
func (a *Asker) is(p *switchboard.Principal, task switchboard.TaskID) bool {
	return a.Tenant == p.Tenant && a.Principal == p.ID && a.Auth == p.Auth && a.Task == task
}

func voteOf(by *switchboard.Officer, note string) Vote {
	return Vote{By: by.ID, Auth: by.Auth, Credential: by.Credential, Claims: by.Claims, Note: note}
}

// Watch calls heard when a request may have changed, here or elsewhere, until stop is called; with "" if any may have. heard must not wait.
func (k *requestBook) Watch(heard func(tenant switchboard.TenantID, id string)) (stop func()) {
	return k.bell.watch(heard)
}

// storeError turns an error into a *switchboard.Error for the caller.
func storeError(err error) error {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own
	}
	return switchboard.Unavailable("the store cannot say whether a person has approved this, so the call was not made", err)
}

func tooMany(format string, args ...any) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeTooManyAsked, format, args...)
	e.Hint, e.Unsent = "wait until people have answered, and do not ask for the same in other words", true
	return e
}

// pause waits a moment before a change is tried again that others outran.
func pause(ctx context.Context) {
	t := time.NewTimer(time.Millisecond + rand.N(10*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func joinWords(all []string) string { return strings.Join(all, ", ") }

func notice(r *Request) []byte { return []byte(string(r.Asker.Tenant) + " " + r.ID()) }

func decodeNotice(data []byte) (tenant switchboard.TenantID, id string, ok bool) {
	t, i, ok := bytes.Cut(data, []byte(" "))
	return switchboard.TenantID(t), string(i), ok
}
