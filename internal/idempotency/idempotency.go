// Package idempotency executes a call with an idempotency key once, however often the client repeats it,
// through any replica and after any crash.
//
// It decides which replica makes the call, and answers all repetitions with the call's outcome once there is
// one. Policy decides at each repetition whether that caller may have the outcome.
//
// A replica claims the key in the store before it makes the call. The claim then changes in one way only, and
// only its owner changes it:
//
//	nothing → claim → outcome, for 24 hours
//	              ↘ nothing, if the call provably reached no server
//
// The same holds for a request to the admin API with a key: see Answer.
//
// A claim is alive while there is a lease beside it. Its owner renews the lease while the call is in flight.
// A claim without a lease is never taken over: its call may have been executed, and its outcome is unknown.
package idempotency

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// Retention is how long an outcome is stored, and a claim without an outcome.
	Retention = 24 * time.Hour

	// MaxStoredResult is the largest result, in bytes, that is stored. For a larger one, only its size is stored.
	MaxStoredResult = 1 << 20

	leaseTTL      = 15 * time.Second
	renewInterval = 5 * time.Second
	pollInterval  = time.Second     // how often a waiter reads the store if no notice comes
	storeTimeout  = 2 * time.Second // how long a call waits for its outcome to be stored
	firstRetry    = time.Second     // of storing the outcome; each later pause is twice as long
	longestRetry  = 4 * time.Second // the longest pause
	retryFor      = time.Minute     // after that, the outcome counts as unknown

	// maxDoubtfulClaims limits how many claims are withdrawn at the same time if the store did not say
	// whether they were written. The limit is low because all of them reach the store at once when it is
	// back. A claim over the limit that was written counts as a call with an unknown outcome.
	maxDoubtfulClaims = 32
)

// A Store holds claims, leases and outcomes. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Take(ctx context.Context, group string, want store.Want, limits ...store.Limit) (got int, wait time.Duration, err error)
}

// The names of the values in the group of a key.
const (
	claimName = "claim"
	leaseName = "lease"
)

// The values of a lease.
var (
	leaseWorking = []byte("working")
	leaseAsking  = []byte("asking") // the call waits for an answer of its client
)

// Keys executes calls with idempotency keys. Use New. It is safe for concurrent use.
type Keys struct {
	store           Store
	guard           func(switchboard.Caller) switchboard.Caller
	digestArguments func(*switchboard.Call) string
	countOutcome    func(outcome string)
	log             *slog.Logger

	closing context.Context
	cancel  context.CancelFunc
	pending sync.WaitGroup // goroutines that renew leases or write outcomes

	doubtful atomic.Int64
}

// The outcomes of a call with a key.
const (
	First       = "first"       // it was the first with its key, and was made
	Replayed    = "replayed"    // it got the stored outcome, if policy allowed that
	Waited      = "waited"      // the same, after it waited for the first call to end
	Conflict    = "conflict"    // the key belongs to a call with other arguments, or to one that waits for its client
	Unknown     = "unknown"     // the outcome of the first call is unknown
	Cancelled   = "cancelled"   // by its client, before it had another outcome
	Unavailable = "unavailable" // the store could not be used
)

// refusalOutcome returns the outcome of a call that was refused with err.
func refusalOutcome(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		switch own.Code {
		case switchboard.CodeKeyTaken:
			return Conflict
		case switchboard.CodeOutcomeUnknown:
			return Unknown
		case switchboard.CodeNotExecuted:
			return Cancelled
		}
	}
	return Unavailable
}

// New returns Keys over the store. guard lets only calls through that policy allows now; each caller that
// gets a stored outcome passes it. digestArguments returns the digest of a call's arguments as it may be
// stored: keyed, because short arguments could be guessed from a plain digest. countOutcome counts the
// outcome of each call with a key.
func New(s Store, guard func(switchboard.Caller) switchboard.Caller, digestArguments func(*switchboard.Call) string, countOutcome func(outcome string), log *slog.Logger) *Keys {
	k := &Keys{store: s, guard: guard, digestArguments: digestArguments, countOutcome: countOutcome, log: log}
	k.closing, k.cancel = context.WithCancel(context.Background())
	return k
}

// Close gives up the outcomes that could not be written to the store. Call it when no call is in flight any
// more.
func (k *Keys) Close() {
	k.cancel()
	k.pending.Wait()
}

// Once returns a Caller that makes a call with a key once, and returns its outcome to all other calls with
// the same key of the same principal. Put it around all wrappers that can move a call to another server. Its
// own errors are SB-CAP-006, if the key belongs to a call of another tool or with other arguments;
// SB-EXEC-004, if the outcome of the first call is unknown; SB-EXEC-003, if its result was too large to be
// stored; and SB-ROUT-004, if the store cannot be used.
func (k *Keys) Once(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.IdempotencyKey == nil {
			return next.Call(ctx, c)
		}
		own := k.newClaim(c)
		for {
			err := k.takeClaim(ctx, own)
			if err == nil {
				k.countOutcome(First)
				return k.makeCall(ctx, c, own, next)
			}
			if !errors.Is(err, store.ErrConflict) {
				err = own.texts.storeUnusable(ctx, err)
				k.countOutcome(refusalOutcome(err))
				return switchboard.Result{}, err
			}
			first, waited, err := k.awaitOutcome(ctx, own, true)
			switch {
			case err != nil:
				k.countOutcome(refusalOutcome(err))
				return k.guard(refuseWith(err)).Call(ctx, c)
			case first != nil && waited:
				k.countOutcome(Waited)
				return k.replayOutcome(ctx, c, first)
			case first != nil:
				k.countOutcome(Replayed)
				return k.replayOutcome(ctx, c, first)
			}
		}
	})
}

// Sent returns a Caller that records which calls with keys may have reached a server. Put it directly around
// the servers.
func Sent(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.IdempotencyKey == nil {
			return next.Call(ctx, c)
		}
		sent, ok := ctx.Value(sentKey{}).(*bool)
		if !ok { // unmarked, the call could be made a second time
			return switchboard.Result{}, errUnmarked
		}
		was := *sent
		*sent = true // set before the call, since the call may panic
		r, err := next.Call(ctx, c)
		if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Unsent {
			*sent = was
		}
		return r, err
	})
}

// errUnmarked refuses a call with a key that did not come from Once, because Sent cannot mark it.
var errUnmarked = &switchboard.Error{
	Code: switchboard.CodeNotExecuted, Unsent: true,
	Text: "a call with an idempotency key has lost its claim inside Switchboard, so it was not made: please report this",
}

// sentKey is the key of a *bool in the context of a call with a key: the call may have reached a server. Sent sets it,
// one attempt after the other.
type sentKey struct{}

// refuseWith returns a Caller that makes no call and returns the error.
func refuseWith(why error) switchboard.Caller {
	return switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, why
	})
}

// claimTexts are the texts of the refusals of a kind of claim.
type claimTexts struct {
	cancelled, unusable, otherContent, lost, unreadable string
}

var callTexts = &claimTexts{
	cancelled:    "the call was cancelled before it could be sent, so it was not executed",
	unusable:     "the store cannot say whether a call with this idempotency key was made before, so this call was not made",
	otherContent: "this idempotency key was used for a call of the tool with other arguments, so this call was not made; use a new key for each new call",
	lost:         "a call with this idempotency key was begun, and its outcome was lost; it may have been executed: check before you repeat it with another key",
	unreadable:   "the stored record of a call with this idempotency key cannot be read, so this call was not made; the call may have been executed before: check before you repeat it with another key",
}

// storeUnusable returns the refusal of a call with a key that cannot be looked up.
func (x *claimTexts) storeUnusable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &switchboard.Error{
			Code:   switchboard.CodeNotExecuted,
			Text:   x.cancelled,
			Unsent: true,
			Cause:  errors.Join(context.Cause(ctx), err),
		}
	}
	return switchboard.Unavailable(x.unusable, err)
}

// outcomeLost returns the error for a claim without a lease: its owner is gone.
func (x *claimTexts) outcomeLost() error {
	return &switchboard.Error{Code: switchboard.CodeOutcomeUnknown, Text: x.lost}
}

// unreadableRecord returns the error for a claim, an outcome or a lease that does not open. See store.Sealed.
func (x *claimTexts) unreadableRecord(err error) error {
	return &switchboard.Error{Code: switchboard.CodeOutcomeUnknown, Text: x.unreadable, Cause: err}
}

// A keyClaim is the claim of one call on its key.
type keyClaim struct {
	group   string
	owner   string // random: no other claim has the same
	call    keyedCall
	texts   *claimTexts
	version store.Version // of the claim in the store; 0 if it is not there, as far as we know
	lease   *lease.Lease  // beside the claim

	mu            sync.Mutex
	openQuestions int // questions that the client has not answered yet
}

func (k *Keys) newClaim(c *switchboard.Call) *keyClaim {
	h := sha256.New()
	for _, s := range []string{string(c.Principal.Auth), c.Principal.ID, c.IdempotencyKey.Key} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // it never fails
	}
	call := keyedCall{Name: c.IdempotencyKey.Tool, ID: c.Tool.ID, Digest: k.digestArguments(c)}
	return k.claimOn("once/"+string(c.Principal.Tenant)+"/"+hex.EncodeToString(h.Sum(nil)), call, callTexts)
}

// claimOn returns a claim that is not taken yet.
func (k *Keys) claimOn(group string, call keyedCall, texts *claimTexts) *keyClaim {
	return &keyClaim{
		group: group,
		owner: rand.Text(),
		call:  call,
		texts: texts,
		lease: lease.New(k.store, lease.Options{Key: store.Key{Group: group, Name: leaseName}, TTL: leaseTTL, Every: renewInterval, Data: leaseWorking}),
	}
}

// matches reports whether both calls are of one tool, by its name or by its id, and whether they have the
// same arguments. A tool's name can change between two attempts of a client, or can belong to another tool by
// then.
func (c keyedCall) matches(o keyedCall) (tool, arguments bool) {
	return c.Name == o.Name || c.ID == o.ID, c.Digest == o.Digest
}

// takeClaim writes the claim; the error is store.ErrConflict if another call has the key.
func (k *Keys) takeClaim(ctx context.Context, own *keyClaim) error {
	began := time.Now()
	v, err := k.store.Apply(ctx, store.Change{Group: own.group, Durable: true, Writes: []store.Write{
		{Name: claimName, Data: (&keyRecord{Owner: own.owner, Call: own.call}).encode(), TTL: Retention},
		own.lease.Claim(),
	}})
	if own.version = v; err == nil {
		own.lease.Taken(v, began)
		return nil
	}
	if errors.Is(err, store.ErrConflict) { // it may be our own claim, if the store's client sent the change twice
		value, failed := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if failed == nil && value.Version != 0 && decode(value.Data).Owner == own.owner {
			own.version = value.Version
			own.lease.Taken(value.Version, began)
			return nil
		}
		return err
	}
	// The claim may have been written all the same: withdraw it.
	if k.doubtful.Add(1) <= maxDoubtfulClaims {
		k.pending.Go(func() {
			defer k.doubtful.Add(-1)
			k.settleClaim(own, nil, nil)
		})
	} else {
		k.doubtful.Add(-1)
	}
	return err
}

// makeCall makes the claimed call and stores its outcome. It renews the lease of the claim until then.
func (k *Keys) makeCall(ctx context.Context, c *switchboard.Call, own *keyClaim, next switchboard.Caller) (r switchboard.Result, err error) {
	stop := own.lease.Keep(k.closing, func(err error) {
		if err != nil {
			k.log.Warn("the lease of a call with an idempotency key cannot be renewed; when it expires, the call's outcome counts as unknown", "err", err)
		}
	})
	mine := *c
	if ask := c.Client.Ask; ask != nil {
		mine.Client.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			own.addQuestions(1)
			defer own.addQuestions(-1)
			return ask(ctx, method, params)
		}
	}
	ended, sent := false, false
	defer func() {
		var outcome *keyRecord
		switch {
		case ended:
			outcome = outcomeOf(c, sent, r, err)
		case sent: // next.Call panicked
			outcome = &keyRecord{Kind: kindUnknown, Tool: c.Tool.ID}
		}
		k.finish(own, stop, outcome)
	}()
	r, err = next.Call(context.WithValue(ctx, sentKey{}, &sent), &mine)
	ended = true
	return r, err
}

// addQuestions changes how many questions the client of the call has not answered yet. The lease says whether there
// are any.
func (own *keyClaim) addQuestions(n int) {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.openQuestions += n
	if own.openQuestions > 0 {
		own.lease.Set(leaseAsking)
	} else {
		own.lease.Set(leaseWorking)
	}
}

// finish stops the renewal of the lease with stop, deletes the lease and stores the outcome; nil means that the call has
// none. It waits until that is done, but at most for storeTimeout. It keeps no reference to the memory of outcome.
func (k *Keys) finish(own *keyClaim, stop func(), outcome *keyRecord) {
	var data []byte
	if outcome != nil {
		outcome.Owner, outcome.Call, outcome.When = own.owner, own.call, time.Now()
		data = outcome.encode()
	}
	stored := make(chan struct{})
	k.pending.Go(func() {
		stop()
		k.settleClaim(own, data, stored)
	})
	t := time.NewTimer(storeTimeout)
	defer t.Stop()
	select {
	case <-stored:
	case <-t.C:
	}
}

// publishChange wakes the calls that wait for the key.
func (k *Keys) publishChange(own *keyClaim) {
	ctx, cancel := context.WithTimeout(k.closing, storeTimeout)
	defer cancel()
	_ = k.store.Publish(ctx, own.group, []byte("changed")) // if it fails, they read the store at the next poll
}

// settleClaim replaces the claim by the outcome or, if outcome is nil, withdraws the claim. Then it closes
// done, if that is not nil. It retries for a while if the store fails. An outcome that is not stored in the
// end counts as unknown.
func (k *Keys) settleClaim(own *keyClaim, outcome []byte, done chan<- struct{}) {
	began := time.Now()
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		err := k.writeOutcome(own, outcome)
		if err == nil {
			if done != nil {
				close(done)
			}
			k.publishChange(own)
			return
		}
		if time.Since(began) < retryFor && k.closing.Err() == nil {
			select {
			case <-time.After(pause):
			case <-k.closing.Done(): // try once more, at once
			}
			continue
		}
		k.log.Error("the outcome of a call with an idempotency key could not be stored: it counts as unknown", "err", err)
		return
	}
}

// writeOutcome makes the last change of a claim, if the claim is still there.
func (k *Keys) writeOutcome(own *keyClaim, outcome []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), renewInterval) // it also runs while Switchboard stops
	defer cancel()
	for {
		_, err := k.store.Apply(ctx, store.Change{Group: own.group, Writes: []store.Write{
			{Name: claimName, Was: own.version, Data: outcome, TTL: Retention},
			own.lease.Withdrawal(),
		}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		value, err := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if err != nil {
			return err
		}
		if value.Version == 0 { // the store has lost the claim: write the outcome all the same, so that no other call is made
			own.version = 0
			continue
		}
		if now := decode(value.Data); now.Owner != own.owner || now.Kind != kindClaimed {
			return nil // the outcome was written before, or the claim has expired
		}
		own.version = value.Version
	}
}

// awaitOutcome waits for the outcome of the call that has the key; without wait, a call in flight is refused with errInFlight.
// first is nil if the key is free again. The error is for the client.
func (k *Keys) awaitOutcome(ctx context.Context, own *keyClaim, wait bool) (first *keyRecord, waited bool, err error) {
	f := feed.Watch(k.store, own.group, pollInterval)
	defer f.Close()
	var orphan store.Version // version of a claim that had no lease when it was read
	for {
		value, err := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if errors.Is(err, store.ErrUnopened) {
			return nil, waited, own.texts.unreadableRecord(err)
		}
		if err != nil {
			return nil, waited, own.texts.storeUnusable(ctx, err)
		}
		if value.Version == 0 {
			return nil, waited, nil
		}
		first = decode(value.Data)
		tool, arguments := first.Call.matches(own.call)
		switch {
		case !tool && first.Call.Digest != "":
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "this idempotency key was used for a call of another tool, so this call was not made; use a new key for each new call")
		case !arguments && first.Call.Digest != "":
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "%s", own.texts.otherContent)
		case first.Kind != kindClaimed:
			return first, waited, nil
		case value.Version == orphan: // the claim was there before and after we saw no lease
			return nil, waited, own.texts.outcomeLost()
		}
		held, err := k.store.Value(ctx, store.Key{Group: own.group, Name: leaseName})
		switch {
		case errors.Is(err, store.ErrUnopened):
			return nil, waited, own.texts.unreadableRecord(err)
		case err != nil:
			return nil, waited, own.texts.storeUnusable(ctx, err)
		case held.Version == 0:
			orphan = value.Version
			continue
		case slices.Equal(held.Data, leaseAsking):
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "the call with this idempotency key waits for an answer of its client; answer that question")
		}
		if !wait {
			return nil, waited, errInFlight
		}
		waited = true
		if _, _, err := f.Next(ctx); err != nil {
			return nil, waited, own.texts.storeUnusable(ctx, nil)
		}
	}
}

// replayOutcome returns the outcome of the first call, if policy allows the caller both tools: the one that
// it called and the one that served the first call.
func (k *Keys) replayOutcome(ctx context.Context, c *switchboard.Call, first *keyRecord) (switchboard.Result, error) {
	give := k.guard(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		c.Trail.Gave(switchboard.GivenIdempotency)
		return first.replay()
	}))
	if first.Tool != c.Tool.ID {
		served, err := callAtEquivalent(c, first.Tool)
		if err != nil {
			return k.guard(refuseWith(err)).Call(ctx, c)
		}
		inner := give
		give = k.guard(switchboard.CallerFunc(func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
			return inner.Call(ctx, served)
		}))
	}
	return give.Call(ctx, c)
}

// callAtEquivalent returns the call as it is made at an equivalent of its tool.
func callAtEquivalent(c *switchboard.Call, tool switchboard.ToolID) (*switchboard.Call, error) {
	refuse := func(why error) error {
		return &switchboard.Error{
			Code:  switchboard.CodeDenied,
			Text:  "the call with this idempotency key was made by a tool that may not be used for it any more, so its outcome is not returned",
			Cause: why,
		}
	}
	i := slices.IndexFunc(c.Equivalents, func(e switchboard.Equivalent) bool { return e.Tool.ID == tool })
	if i < 0 {
		return nil, refuse(fmt.Errorf("%s served it, and is no equivalent of %s now", tool, c.Tool.ID))
	}
	e := &c.Equivalents[i]
	params, err := e.Params(c.Params)
	if err != nil {
		return nil, refuse(err)
	}
	own := *c
	own.Server, own.Tool, own.Target, own.Judgments, own.Params = tool.Server, e.Tool, tool.Name, e.Judgments, params
	return &own, nil
}
