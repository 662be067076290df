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

	leaseFor   = 15 * time.Second
	renewEvery = 5 * time.Second
	pollEvery  = time.Second     // where notices fail
	patience   = 2 * time.Second // of a call that has ended, for its outcome to be kept
	tryAgain   = time.Second     // to keep it after that, then twice as late each time
	longest    = 4 * time.Second
	tryFor     = time.Minute

	// maxDoubtful is how many claims are taken back at once of which the store
	// has not said that they were made: not many, since they all come when the
	// store is back. One that is not, and was made, is taken for a call whose
	// outcome is unknown.
	maxDoubtful = 32
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
	working = []byte("working")
	asking  = []byte("asking") // the client, who has to answer
)

// Keys are the calls with keys. Use New. It is safe for concurrent use.
type Keys struct {
	store Store
	guard func(switchboard.Caller) switchboard.Caller
	sum   func(*switchboard.Call) string
	count func(outcome string)
	log   *slog.Logger

	over context.Context
	end  context.CancelFunc
	work sync.WaitGroup // what is still to be written to the store

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

// refusal says what a call has come to that was refused with err.
func refusal(err error) string {
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
	k := &Keys{store: s, guard: guard, sum: sum, count: count, log: log}
	k.over, k.end = context.WithCancel(context.Background())
	return k
}

// Close gives up what could not be written to the store. Call it when no call is
// under way any more.
func (k *Keys) Close() {
	k.end()
	k.work.Wait()
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
		own := newClaim(c, k.sum(c))
		for {
			err := k.make(ctx, own)
			if err == nil {
				k.count(First)
				return k.call(ctx, c, own, next)
			}
			if !errors.Is(err, store.ErrConflict) {
				err = unusable(ctx, err)
				k.count(refusal(err))
				return switchboard.Result{}, err
			}
			first, waited, err := k.await(ctx, own)
			switch {
			case err != nil:
				k.count(refusal(err))
				return k.guard(refusing(err)).Call(ctx, c)
			case first != nil && waited:
				k.count(Waited)
				return k.again(ctx, c, first)
			case first != nil:
				k.count(Replayed)
				return k.again(ctx, c, first)
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

// refusing makes no call.
func refusing(why error) switchboard.Caller {
	return switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, why
	})
}

// unusable is the refusal of a call whose key cannot be looked up.
func unusable(ctx context.Context, err error) error {
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
type claim struct {
	group   string
	owner   string // made up, so that no other claim has it
	call    called
	version store.Version // of what stands in the store; 0 where it does not, as far as known
}

func newClaim(c *switchboard.Call, digest string) *claim {
	h := sha256.New()
	for _, s := range []string{string(c.Principal.Auth), c.Principal.ID, c.Once.Key} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // it never fails
	}
	return &claim{
		group: "once/" + string(c.Principal.Tenant) + "/" + hex.EncodeToString(h.Sum(nil)),
		owner: rand.Text(),
		call:  called{Name: c.Once.Tool, ID: c.Tool.ID, Digest: digest},
	}
}

// sameAs reports whether both calls are the same one: of one tool, by its name or by what it is, with the same arguments.
// Names and tools change apart while a client tries again: its tool may have got another name, and its name another tool.
func (c called) sameAs(o called) (tool, arguments bool) {
	return c.Name == o.Name || c.ID == o.ID, c.Digest == o.Digest
}

// make claims the call; the error is store.ErrConflict where another has.
func (k *Keys) make(ctx context.Context, own *claim) error {
	v, err := k.store.Apply(ctx, store.Change{Group: own.group, Durable: true, Writes: []store.Write{
		{Name: claimName, Data: (&record{Owner: own.owner, Call: own.call}).encode(), TTL: KeptFor},
		{Name: leaseName, Was: store.Any, Data: working, TTL: leaseFor},
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
	if k.doubtful.Add(1) <= maxDoubtful {
		k.work.Go(func() {
			defer k.doubtful.Add(-1)
			k.settle(own, nil, nil)
		})
	} else {
		k.doubtful.Add(-1)
	}
	return err
}

// call makes the call that is claimed, and keeps its outcome.
func (k *Keys) call(ctx context.Context, c *switchboard.Call, own *claim, next switchboard.Caller) (r switchboard.Result, err error) {
	h := k.hold(own)
	mine := *c
	if ask := c.Client.Ask; ask != nil {
		mine.Client.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			h.asks(1)
			defer h.asks(-1)
			return ask(ctx, method, params)
		}
	}
	ended := false
	defer func() {
		var outcome *record
		switch {
		case ended:
			outcome = outcomeOf(c, r, err)
		case c.Once.Sent: // it panics
			outcome = &record{Kind: unknown, Tool: c.Tool.ID}
		}
		h.end(outcome)
	}()
	r, err = next.Call(ctx, &mine)
	ended = true
	return r, err
}

// A hold keeps a claim alive.
type hold struct {
	k    *Keys
	own  *claim
	ctx  context.Context // ends with the call
	stop context.CancelFunc
	data chan []byte   // the outcome, encoded; takes one
	kept chan struct{} // closed once that is in the store

	mu     sync.Mutex
	asking int           // questions that the client has not answered
	turn   chan struct{} // takes one: asking has changed
}

func (k *Keys) hold(own *claim) *hold {
	h := &hold{k: k, own: own, data: make(chan []byte, 1), kept: make(chan struct{}), turn: make(chan struct{}, 1)}
	h.ctx, h.stop = context.WithCancel(k.over)
	k.work.Go(h.run)
	return h
}

func (h *hold) asks(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asking += n
	select {
	case h.turn <- struct{}{}:
	default:
	}
}

// end gives up the lease and keeps the outcome; nil means that there was none. It
// waits until that is done, but not for longer than anybody wants to wait. It keeps
// nothing of the outcome's memory.
func (h *hold) end(outcome *record) {
	var data []byte
	if outcome != nil {
		outcome.Owner, outcome.Call, outcome.When = h.own.owner, h.own.call, time.Now()
		data = outcome.encode()
	}
	h.data <- data
	h.stop()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-h.kept:
	case <-t.C:
	}
}

func (h *hold) run() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.turn:
		case data := <-h.data:
			h.k.settle(h.own, data, h.kept)
			return
		}
		h.renew()
	}
}

// renew renews the lease. Where the store does not take it, it will be asked again.
func (h *hold) renew() {
	h.mu.Lock()
	says := working
	if h.asking > 0 {
		says = asking
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, renewEvery)
	defer cancel()
	_, err := h.k.store.Apply(ctx, store.Change{Group: h.own.group, Writes: []store.Write{{Name: leaseName, Was: store.Any, Data: says, TTL: leaseFor}}})
	if err != nil && h.ctx.Err() == nil {
		h.k.log.Warn("the store does not take the lease of a call with an idempotency key; after a while others will take its outcome for unknown", "err", err)
	}
}

// tell tells those who wait.
func (k *Keys) tell(own *claim) {
	ctx, cancel := context.WithTimeout(k.over, patience)
	defer cancel()
	_ = k.store.Publish(ctx, own.group, []byte("changed")) // else they look by themselves
}

// settle puts the outcome in the place of the claim, or, where it is nil, takes the
// claim away. It closes done, where that is set. It tries for a while where the
// store fails: what is not there in the end is taken for unknown.
func (k *Keys) settle(own *claim, outcome []byte, done chan<- struct{}) {
	began := time.Now()
	for pause := tryAgain; ; pause = min(2*pause, longest) {
		err := k.write(own, outcome)
		if err == nil {
			if done != nil {
				close(done)
			}
			k.tell(own)
			return
		}
		if time.Since(began) < tryFor && k.over.Err() == nil {
			select {
			case <-time.After(pause):
			case <-k.over.Done(): // one last time
			}
			continue
		}
		k.log.Error("the outcome of a call with an idempotency key could not be kept: it will be taken for unknown", "err", err)
		return
	}
}

// write makes the last change to a claim, if that is still there.
func (k *Keys) write(own *claim, outcome []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), renewEvery) // also while we stop
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
		if now := decode(value.Data); now.Owner != own.owner || now.Kind != claimed {
			return nil // it was written, or has expired
		}
		own.version = value.Version
	}
}

// await waits for the outcome of the call that has the key. Both are nil where
// there is none any more, so that the key is free; the error is what the caller is
// told.
func (k *Keys) await(ctx context.Context, own *claim) (first *record, waited bool, err error) {
	wake := make(chan struct{}, 1)
	defer k.store.Subscribe(own.group, func([]byte) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var orphan store.Version // of a claim that was seen without a lease
	for {
		value, err := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
		if errors.Is(err, store.ErrUnopened) {
			return nil, waited, unopened(err)
		}
		if err != nil {
			return nil, waited, unusable(ctx, err)
		}
		if value.Version == 0 {
			return nil, waited, nil
		}
		first = decode(value.Data)
		tool, arguments := first.Call.sameAs(own.call)
		switch {
		case !tool && first.Call.Digest != "":
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "this idempotency key was given to a call of another tool, so this call was not made; use a new key for each call that is meant to be another")
		case !arguments && first.Call.Digest != "":
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "this idempotency key was given to a call of the tool with other arguments, so this call was not made; use a new key for each call that is meant to be another")
		case first.Kind != claimed:
			return first, waited, nil
		case value.Version == orphan: // it was there before and after
			return nil, waited, lost
		}
		lease, err := k.store.Value(ctx, store.Key{Group: own.group, Name: leaseName})
		switch {
		case errors.Is(err, store.ErrUnopened):
			return nil, waited, unopened(err)
		case err != nil:
			return nil, waited, unusable(ctx, err)
		case lease.Version == 0:
			orphan = value.Version
			continue
		case slices.Equal(lease.Data, asking):
			return nil, waited, switchboard.Refuse(switchboard.CodeKeyTaken, "the call that has this idempotency key waits for an answer of the client that has made it; answer that one")
		}
		waited = true
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			return nil, waited, unusable(ctx, nil)
		}
	}
}

// lost is what is told of a claim that nobody holds any more.
var lost = &switchboard.Error{
	Code: switchboard.CodeOutcomeUnknown,
	Text: "a call with this idempotency key was begun, and what became of it was lost; it may have been executed: check before you repeat it with another key",
}

// unopened is what is told of a claim, an outcome or a lease that nobody can read: see store.Sealed.
func unopened(err error) error {
	return &switchboard.Error{
		Code:  switchboard.CodeOutcomeUnknown,
		Text:  "what is kept of a call with this idempotency key cannot be read, so this call was not made; the call may have been executed before: check before you repeat it with another key",
		Cause: err,
	}
}

// again gives the outcome of the first call, if policy allows the caller to have it:
// both the tool that it has called and the one that has served it.
func (k *Keys) again(ctx context.Context, c *switchboard.Call, first *record) (switchboard.Result, error) {
	give := k.guard(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		c.Trail.Gave(switchboard.GivenIdempotency)
		return first.give()
	}))
	if first.Tool != c.Tool.ID {
		served, err := at(c, first.Tool)
		if err != nil {
			return k.guard(refusing(err)).Call(ctx, c)
		}
		inner := give
		give = k.guard(switchboard.CallerFunc(func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
			return inner.Call(ctx, served)
		}))
	}
	return give.Call(ctx, c)
}

// at returns the call as it is made at an equivalent of its tool.
func at(c *switchboard.Call, tool switchboard.ToolID) (*switchboard.Call, error) {
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
