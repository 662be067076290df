package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of what the requests of one sender keep in the store.
const (
	// MaxStoredAnswer is the largest answer, in bytes, that is stored. For a larger one, only its size is stored.
	MaxStoredAnswer = 64 << 10

	// RequestsPerDay is how many requests with keys a sender may make at once, and then again within a day. So at most twice as many
	// records of a sender are in the store.
	RequestsPerDay = 1000
)

// ErrInFlight is the cause of the refusal (SB-CAP-006) of a request whose key belongs to a request in flight.
var ErrInFlight = errors.New("the request with this key is in flight")

// errInFlight is the refusal of a request whose key belongs to a request in flight. Calls wait instead.
var errInFlight = &switchboard.Error{
	Code: switchboard.CodeKeyTaken, Cause: ErrInFlight, RetryAfter: time.Second,
	Text: "the request with this idempotency key is being carried out; repeat it in a moment to get its answer",
}

var requestTexts = &claimTexts{
	cancelled:    "the request was cancelled before it was begun, so nothing was done",
	unusable:     "the store cannot say whether a request with this idempotency key was made before, so nothing was done",
	otherContent: "this idempotency key was used for another request, so nothing was done; use a new key for each new request",
	lost:         "a request with this idempotency key was begun, and its answer was lost; it may have been carried out: look before you repeat it with another key",
	unreadable:   "the stored record of a request with this idempotency key cannot be read, so nothing was done; the request may have been carried out before: look before you repeat it with another key",
}

// A Request is a request with a key that is no call of a tool: a request to the admin API.
type Request struct {
	Sender string // identifies who sends it; no two persons have the same
	Key    string
	Digest string // of everything else: the route and the content. Keyed, because short contents could be guessed
}

// Answer carries the request out with do, once, and returns its answer to each repeat; repeated says which of the two it did. do returns an
// answer, and whether it must be kept: if not, nothing was done, and the key is free again.
//
// A repeat does not wait. The errors are SB-CAP-006, with the cause ErrInFlight if the first request is in flight, or else because the key belongs to
// another request; SB-EXEC-004 if the answer of the first one is unknown, and SB-EXEC-003 if it was too large to be stored; SB-ROUT-003 if the sender
// uses too many keys; and SB-ROUT-004 if the store cannot be used. do was not called then.
func (k *Keys) Answer(ctx context.Context, r Request, do func() (answer []byte, keep bool)) (answer []byte, repeated bool, err error) {
	own := k.claimOn(requestGroup(r.Sender, r.Key), keyedCall{Digest: r.Digest}, requestTexts)
	for {
		err := k.takeClaim(ctx, own)
		if err == nil {
			if err := k.takePermit(ctx, r.Sender); err != nil {
				k.finish(own, func() {}, nil)
				return nil, false, err
			}
			return k.makeRequest(own, do), false, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return nil, false, own.texts.storeUnusable(ctx, err)
		}
		first, _, err := k.awaitOutcome(ctx, own, false)
		if err != nil {
			return nil, false, err
		}
		if first != nil {
			answer, err := first.repeatAnswer()
			return answer, err == nil, err
		}
	}
}

// Kept returns the answer to the sender's request with the key, without making one; nil if there is none. The errors are those of Answer for a repeat.
func (k *Keys) Kept(ctx context.Context, sender, key string) ([]byte, error) {
	own := k.claimOn(requestGroup(sender, key), keyedCall{}, requestTexts)
	value, err := k.store.Value(ctx, store.Key{Group: own.group, Name: claimName})
	if err == nil && value.Version == 0 {
		return nil, nil
	}
	if err == nil {
		own.call = decode(value.Data).Call // of whatever request has the key
	}
	first, _, err := k.awaitOutcome(ctx, own, false)
	if err != nil || first == nil {
		return nil, err
	}
	return first.repeatAnswer()
}

// requestGroup returns the group of the store for a key of the sender, or for what the sender has at all if the key is "".
func requestGroup(sender, key string) string {
	h := sha256.New()
	for _, s := range []string{sender, key} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // it never fails
	}
	return "once-admin/" + hex.EncodeToString(h.Sum(nil))
}

// takePermit counts a key of the sender.
func (k *Keys) takePermit(ctx context.Context, sender string) error {
	got, wait, err := k.store.Take(ctx, requestGroup(sender, ""), store.Want{Now: 1}, store.Limit{Name: "keys", Every: Retention / RequestsPerDay, Burst: RequestsPerDay})
	switch {
	case err != nil:
		return requestTexts.storeUnusable(ctx, err)
	case got == 0:
		return &switchboard.Error{
			Code: switchboard.CodeOverloaded, RetryAfter: wait,
			Text: fmt.Sprintf("you have used %d idempotency keys within a day, the most that are kept, so nothing was done; send the request without a key, or later", RequestsPerDay),
		}
	}
	return nil
}

// makeRequest carries the claimed request out and stores its answer. It renews the lease of the claim until then.
func (k *Keys) makeRequest(own *keyClaim, do func() (answer []byte, keep bool)) (answer []byte) {
	stop := own.lease.Keep(k.closing, func(err error) {
		if err != nil {
			k.log.Warn("the lease of a request with an idempotency key cannot be renewed; when it expires, its answer counts as unknown", "err", err)
		}
	})
	ended, keep := false, false
	defer func() {
		outcome := &keyRecord{Kind: kindUnknown} // do has panicked
		switch {
		case ended && !keep:
			outcome = nil
		case ended && len(answer) > MaxStoredAnswer:
			outcome = &keyRecord{Kind: kindTooLarge, Size: len(answer)}
		case ended:
			outcome = &keyRecord{Kind: kindAnswer, body: answer}
		}
		k.finish(own, stop, outcome)
	}()
	answer, keep = do()
	ended = true
	return answer
}

// repeatAnswer returns the answer to a request, as it was given first.
func (r *keyRecord) repeatAnswer() ([]byte, error) {
	switch r.Kind {
	case kindAnswer:
		return r.body, nil
	case kindTooLarge:
		return nil, switchboard.Refuse(switchboard.CodeResultInvalid, "the request with this idempotency key was carried out, and its answer was given then; the answer has %d bytes and is not stored, since at most %d bytes are, so it cannot be given again", r.Size, MaxStoredAnswer)
	}
	return nil, requestTexts.outcomeLost()
}
