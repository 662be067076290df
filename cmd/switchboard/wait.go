package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// How often it is asked whether servers have answered, and after what time a person is
// told that they have not.
const (
	askAgain  = 200 * time.Millisecond
	tellAfter = time.Second
)

// untilAnswered asks again and again, while servers have not answered since they were
// started, for so long at most, and returns the last answer. On a terminal it says for
// which servers it waits.
func untilAnswered[T any](ctx context.Context, io streams, wait time.Duration, ask func() (T, []switchboard.ServerID, error)) (T, error) {
	_, terminal := io.err.(escaper)
	began, told := time.Now(), ""
	for {
		answer, starting, err := ask()
		waited := time.Since(began)
		if err != nil || len(starting) == 0 || waited >= wait {
			return answer, err
		}
		if names := list(starting); terminal && waited >= tellAfter && names != told {
			fmt.Fprintf(io.err, "waiting for %s to start: %s (%s left; ctrl-C ends this)\n", count(len(starting), "server"), names, (wait - waited).Round(time.Second))
			told = names
		}
		select {
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

// notAnswered stands before the servers for which it was waited in vain.
const notAnswered = "these servers have not answered"

// list is the ids, one after the other.
func list(ids []switchboard.ServerID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return strings.Join(names, ", ")
}
