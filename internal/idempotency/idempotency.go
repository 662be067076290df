// Package idempotency sees to it that a call for which its client gives a key is made
// once, however often, through whichever process and after whatever crash it is
// asked for again.
//
// It decides who makes the call, and what all others are given: its outcome, once
// there is one. Whether they may have that is policy's to say, which is asked each
// time.
//
// The call is claimed in the store before it is made, and what stands there then
// changes in one way only, by the hand of whoever claimed it:
//
//	nothing → claimed → its outcome, for 24 hours
//	              ↘ nothing, where the call has provably reached no server
//
// A claim is alive while there is a lease beside it, which is renewed for as long as
// the call is under way. One that is not alive is never taken over: its call may have
// been made, and nobody can tell any more how it ended.
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
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// KeptFor is how long an outcome is kept, and a claim that has none.
	KeptFor = 24 * time.Hour

	// MaxKept is how large a result may be to be kept, in bytes. Of a larger one
	// it is kept that there was one.
	MaxKept = 1 << 20

	leaseTTL   = 15 * time.Second
	renewInterval = 5 * time.Second
	pollInterval  = time.Second     // where notices fail
	storeTimeout   = 2 * time.Second // of a call that has ended, for its outcome to be kept
	firstRetry   = time.Second     // to keep it after that, then twice as late each time
	longestRetry    = 4 * time.Second
	retryFor     = time.Minute

	// maxDoubtfulClaims is how many claims are taken back at once of which the store
	// has not said that they were made: not many, since they all come when the
	// store is back. One that is not, and was made, is taken for a call whose
	// outcome is unknown.
	maxDoubtfulClaims = 32
)

// A Store is where claims and outcomes stand.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// The names in the group of a claim.
const (
	claimName = "claim"
	leaseName = "lease"
)

// What a lease says.
var (
	leaseWorking = []byte("working")
	leaseAsking  = []byte("asking") // the client, who has to answer
)

// Keys are the calls with keys. Use New. It is safe for concurrent use.
type Keys struct {
	store Store
	guard func(switchboard.Caller) switchboard.Caller
	digestArguments   func(*switchboard.Call) string
	countOutcome func(outcome string)
	log   *slog.Logger

	closing context.Context
	cancel  context.CancelFunc
	pending sync.WaitGroup // what is still to be written to the store

	doubtful atomic.Int64
}

// What a call with a key can come to.
const (
	First       = "first"       // it was made
	Replayed    = "replayed"    // it had the outcome of the first one, if policy let it
	Waited      = "waited"      // the same, once that one had ended
	Conflict    = "conflict"    // the key is that of other arguments, or of a call that waits for its client
	Unknown     = "unknown"     // nobody knows how the first one ended
	Cancelled   = "cancelled"   // by its client, before it came to anything else
	Unavailable = "unavailable" // the store could not be used
)

// refusalOutcome says what a call has come to that was refused with err.
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

// New returns Keys over the store. guard lets nothing through that policy does not
// allow now; whoever is given an outcome again has to pass it. sum is the digest of a
// call's arguments as it may be kept: with a key, or whoever reads the store can guess what
// is short. count is told what each call with a key has come to.
func New(s Store, guard func(switchboard.Caller) switchboard.Caller, sum func(*switchboard.Call) string, count func(outcome string), log *slog.Logger) *Keys {
	k := &Keys{store: s, guard: guard, digestArguments: sum, countOutcome: count, log: log}
	k.closing, k.cancel = context.WithCancel(context.Background())
	return k
}

// Close gives up what could not be written to the store. Call it when no call is
// under way any more.
func (k *Keys) Close() {
	k.cancel()
	k.pending.Wait()
}

// Once returns a Caller that makes a call that has a key once, and gives its outcome
// to all others with the same key of the same principal. It
// belongs around all that can move a call to another server. Its own refusals are
// SB-CAP-006, where the key is that of a call with other arguments, or of another tool; SB-EXEC-004, where
// nobody knows how the first call has ended; SB-EXEC-003, where its result was too
// large to be kept; and SB-ROUT-004, where the store cannot be used.
func (k *Keys) Once(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Once == nil {
			return next.Call(ctx, c)
		}
		own := newClaim(c, k.digestArguments(c))
		for {
			err := k.takeClaim(ctx, own)
			if err == nil {
				k.countOutcome(First)
				return k.makeCall(ctx, c, own, next)
			}
			if !errors.Is(err, store.ErrConflict) {
				err = storeUnusable(ctx, err)
				k.countOutcome(refusalOutcome(err))
				return switchboard.Result{}, err
			}
			first, waited, err := k.awaitOutcome(ctx, own)
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

// Sent returns a Caller that notes which calls with keys may have reached a server.
// It belongs right around the servers.
func Sent(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Once == nil {
			return next.Call(ctx, c)
		}
		was := c.Once.Sent
		c.Once.Sent = true // also where it ends in a panic
		r, err := next.Call(ctx, c)
		if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Unsent {
			c.Once.Sent = was
		}
		return r, err
	})
}

// refuseWith makes no call.
func refuseWith(why error) switchboard.Caller {
	return switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, why
	})
}

// storeUnusable is the refusal of a call whose key cannot be looked up.
func storeUnusable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &switchboard.Error{
			Code:   switchboard.CodeNotExecuted,
			Text:   "the call was cancelled before it could be sent, so it was not executed",
			Unsent: true,
			Cause:  errors.Join(context.Cause(ctx), err),
		}
	}
	return switchboard.Unavailable("whether a call with this idempotency key was made already cannot be told, so it was not made now", err)
}

// A claim is one call's on its key.
type keyClaim struct {
	group   string
	owner   string // made up, so that no other claim has it
	call    keyedCall
	version store.Version // of what stands in the store; 0 where it does not, as far as known
}

func newClaim(c *switchboard.Call, digest string) *keyClaim {
	h := sha256.New()
	for _, s := range []string{string(c.Principal.Auth), c.Principal.ID, c.Once.Key} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // it never fails
	}
	return &keyClaim{
		group: "once/" + string(c.Principal.Tenant) + "/" + hex.EncodeToString(h.Sum(nil)),
		owner: rand.Text(),
		call:  keyedCall{Name: c.Once.Tool, ID: c.Tool.ID, Digest: digest},
	}
}

// matches reports whether both calls are the same one: of one tool, by its name or by what it is, with the same arguments.
// Names and tools change apart while a client tries again: its tool may have got another name, and its name another tool.
func (c keyedCall) matches(o keyedCall) (tool, arguments bool) {
	return c.Name == o.Name || c.ID == o.ID, c.Digest == o.Digest
}

// takeClaim claims the call; the error is store.ErrConflict where another has.
func (k *Keys) takeClaim(ctx context.Context, own *keyClaim) error {
	v, err := k.store.Apply(ctx, store.Change{Group: own.group, Durable: true, Writes: []store.Write{
		{Name: claimName, Data: (&keyRecord{Owner: own.owner, Call: own.call}).encode(), TTL: KeptFor},
		{Name: leaseName, Was: store.Any, Data: leaseWorking, TTL: leaseTTL},
	}})
	if own.version = v; err == nil {
		return nil
	}
	if errors.Is(err, store.ErrConflict) { // with our own, where the store was asked twice
		value, failed := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if failed == nil && value.Version != 0 && decode(value.Data).Owner == own.owner {
			own.version = value.Version
			return nil
		}
		return err
	}
	// It may be there all the same.
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

// makeCall makes the call that is claimed, and keeps its outcome.
func (k *Keys) makeCall(ctx context.Context, c *switchboard.Call, own *keyClaim, next switchboard.Caller) (r switchboard.Result, err error) {
	h := k.keepAlive(own)
	mine := *c
	if ask := c.Client.Ask; ask != nil {
		mine.Client.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			h.addQuestions(1)
			defer h.addQuestions(-1)
			return ask(ctx, method, params)
		}
	}
	ended := false
	defer func() {
		var outcome *keyRecord
		switch {
		case ended:
			outcome = outcomeOf(c, r, err)
		case c.Once.Sent: // it panics
			outcome = &keyRecord{Kind: kindUnknown, Tool: c.Tool.ID}
		}
		h.finish(outcome)
	}()
	r, err = next.Call(ctx, &mine)
	ended = true
	return r, err
}

// A hold keeps a claim alive.
type claimLease struct {
	keys    *Keys
	claim  *keyClaim
	ctx  context.Context // ends with the call
	stop context.CancelFunc
	outcome chan []byte   // the outcome, encoded; takes one
	stored chan struct{} // closed once that is in the store

	mu     sync.Mutex
	openQuestions int           // questions that the client has not answered
	questionsChanged   chan struct{} // takes one: asking has changed
}

func (k *Keys) keepAlive(own *keyClaim) *claimLease {
	h := &claimLease{keys: k, claim: own, outcome: make(chan []byte, 1), stored: make(chan struct{}), questionsChanged: make(chan struct{}, 1)}
	h.ctx, h.stop = context.WithCancel(k.closing)
	k.pending.Go(h.run)
	return h
}

func (h *claimLease) addQuestions(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.openQuestions += n
	select {
	case h.questionsChanged <- struct{}{}:
	default:
	}
}

// finish gives up the lease and keeps the outcome; nil means that there was none. It
// waits until that is done, but not for longer than anybody wants to wait. It keeps
// nothing of the outcome's memory.
func (h *claimLease) finish(outcome *keyRecord) {
	var data []byte
	if outcome != nil {
		outcome.Owner, outcome.Call, outcome.When = h.claim.owner, h.claim.call, time.Now()
		data = outcome.encode()
	}
	h.outcome <- data
	h.stop()
	t := time.NewTimer(storeTimeout)
	defer t.Stop()
	select {
	case <-h.stored:
	case <-t.C:
	}
}

func (h *claimLease) run() {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.questionsChanged:
		case data := <-h.outcome:
			h.keys.settleClaim(h.claim, data, h.stored)
			return
		}
		h.renewLease()
	}
}

// renewLease renews the lease. Where the store does not take it, it will be asked again.
func (h *claimLease) renewLease() {
	h.mu.Lock()
	says := leaseWorking
	if h.openQuestions > 0 {
		says = leaseAsking
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, renewInterval)
	defer cancel()
	_, err := h.keys.store.Apply(ctx, store.Change{Group: h.claim.group, Writes: []store.Write{{Name: leaseName, Was: store.Any, Data: says, TTL: leaseTTL}}})
	if err != nil && h.ctx.Err() == nil {
		h.keys.log.Warn("the store does not take the lease of a call with an idempotency key; after a while others will take its outcome for unknown", "err", err)
	}
}

// publishChange tells those who wait.
func (k *Keys) publishChange(own *keyClaim) {
	ctx, cancel := context.WithTimeout(k.closing, storeTimeout)
	defer cancel()
	_ = k.store.Publish(ctx, own.group, []byte("changed")) // else they look by themselves
}

// settleClaim puts the outcome in the place of the claim, or, where it is nil, takes the
// claim away. It closes done, where that is set. It tries for a while where the
// store fails: what is not there in the end is taken for unknown.
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
			case <-k.closing.Done(): // one last time
			}
			continue
		}
		k.log.Error("the outcome of a call with an idempotency key could not be kept: it will be taken for unknown", "err", err)
		return
	}
}

// writeOutcome makes the last change to a claim, if that is still there.
func (k *Keys) writeOutcome(own *keyClaim, outcome []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), renewInterval) // also while we stop
	defer cancel()
	for {
		_, err := k.store.Apply(ctx, store.Change{Group: own.group, Writes: []store.Write{
			{Name: claimName, Was: own.version, Data: outcome, TTL: KeptFor},
			{Name: leaseName, Was: store.Any},
		}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		value, err := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if err != nil {
			return err
		}
		if value.Version == 0 { // the store has lost it: so nobody may make the call
			own.version = 0
			continue
		}
		if now := decode(value.Data); now.Owner != own.owner || now.Kind != kindClaimed {
			return nil // it was written, or has expired
		}
		own.version = value.Version
	}
}

// awaitOutcome waits for the outcome of the call that has the key. Both are nil where
// there is none any more, so that the key is free; the error is what the caller is
// told.
func (k *Keys) awaitOutcome(ctx context.Context, own *keyClaim) (first *keyRecord, waited bool, err error) {
	wake := make(chan struct{}, 1)
	defer k.store.Subscribe(own.group, func([]byte) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var orphan store.Version // of a claim that was seen without a lease
	for {
		value, err := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if errors.Is(err, store.ErrUnopened) {
			return nil, waited, unreadableRecord(err)
		}
		if err != nil {
			return nil, waited, storeUnusable(ctx, err)
		}
		if value.Version == 0 {
			return nil, waited, nil
		}
		first = decode(value.Data)
		tool, arguments := first.Call.matches(own.call)
		switch {
		case !tool && first.Call.Digest != "":
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "this idempotency key was given to a call of another tool, so this call was not made; use a new key for each call that is meant to be another")
		case !arguments && first.Call.Digest != "":
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "this idempotency key was given to a call of the tool with other arguments, so this call was not made; use a new key for each call that is meant to be another")
		case first.Kind != kindClaimed:
			return first, waited, nil
		case value.Version == orphan: // it was there before and after
			return nil, waited, errOutcomeLost
		}
		lease, err := k.store.Value(ctx, store.Key{Group: own.group, Name: leaseName})
		switch {
		case errors.Is(err, store.ErrUnopened):
			return nil, waited, unreadableRecord(err)
		case err != nil:
			return nil, waited, storeUnusable(ctx, err)
		case lease.Version == 0:
			orphan = value.Version
			continue
		case slices.Equal(lease.Data, leaseAsking):
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "the call that has this idempotency key waits for an answer of the client that has made it; answer that one")
		}
		waited = true
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			return nil, waited, storeUnusable(ctx, nil)
		}
	}
}

// errOutcomeLost is what is told of a claim that nobody holds any more.
var errOutcomeLost = &switchboard.Error{
	Code: switchboard.CodeOutcomeUnknown,
	Text: "a call with this idempotency key was begun, and what became of it was lost; it may have been executed: check before you repeat it with another key",
}

// unreadableRecord is what is told of a claim, an outcome or a lease that nobody can read: see store.Sealed.
func unreadableRecord(err error) error {
	return &switchboard.Error{
		Code:  switchboard.CodeOutcomeUnknown,
		Text:  "what is kept of a call with this idempotency key cannot be read, so this call was not made; the call may have been executed before: check before you repeat it with another key",
		Cause: err,
	}
}

// replayOutcome gives the outcome of the first call, if policy allows the caller to have it:
// both the tool that it has called and the one that has served it.
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
			Text:  "the call with this idempotency key was made, by a tool that may not be used for it any more, so that its outcome is not given",
			Cause: why,
		}
	}
	i := slices.IndexFunc(c.Equivalents, func(e switchboard.Equivalent) bool { return e.Tool.ID == tool })
	if i < 0 {
		return nil, refuse(fmt.Errorf("%s has served it, which is no equivalent of %s now", tool, c.Tool.ID))
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
