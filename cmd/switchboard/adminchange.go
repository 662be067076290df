package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxChangeTime limits how long a command waits for a change whose first answer was lost. The admin API carries a change out for as long.
const maxChangeTime = 2 * time.Minute

// changeAdmin is askAdmin for a request that changes something. The request has an idempotency key. So if the connection breaks before the answer, changeAdmin
// sends the request once more: the change is made once, and the repeat gets its answer.
func (t *taskTarget) changeAdmin(ctx context.Context, method, path string, body any, header ...string) (*adminAnswer, error) {
	keyed := append(slices.Clone(header), wire.HeaderIdempotencyKey, rand.Text())
	send := func() (*adminAnswer, error) { return t.exchange(ctx, method, path, body, keyed...) }
	answer, err := send()
	switch {
	case isLost(err) && ctx.Err() == nil:
		answer, err = repeatChange(ctx, send)
	case err == nil && (answer.status == http.StatusTooManyRequests || answer.status == http.StatusServiceUnavailable):
		// Too many keys are in use, or the store that has them is away: nothing was done, and the change may need neither.
		answer, err = t.exchange(ctx, method, path, body, header...)
	}
	if isLost(err) {
		err = unknownOutcomeError{fmt.Errorf("%w. The answer to this change was lost, so the change may have been made: look before you repeat it, with switchboard config history, server list or key list", err)}
	}
	if err != nil {
		return nil, err
	}
	return t.refuseProblem(path, answer)
}

func isLost(err error) bool {
	_, lost := errors.AsType[lostAnswerError](err)
	return lost
}

// repeatChange sends a change again, because its answer was lost. While Switchboard still carries out the first request, repeatChange waits and sends the
// change once more.
func repeatChange(ctx context.Context, send func() (*adminAnswer, error)) (*adminAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, maxChangeTime)
	defer cancel()
	for {
		answer, err := send()
		if err != nil || answer.status != http.StatusConflict {
			return answer, err
		}
		after, err := strconv.ParseUint(answer.header.Get("Retry-After"), 10, 8)
		if err != nil { // it is the answer to the change
			return answer, nil
		}
		select {
		case <-time.After(time.Duration(after) * time.Second):
		case <-ctx.Done():
			return answer, nil
		}
	}
}
