package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The pause between two questions, and the time after which a terminal shows that the
// command waits.
const (
	askAgain  = 200 * time.Millisecond
	tellAfter = time.Second
)

// untilAnswered calls ask again and again while it names servers that are starting, for
// the time wait at most, and returns its last answer. On a terminal it shows the names.
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

// notAnswered is printed before the names of servers that did not answer in time.
const notAnswered = "these servers have not answered"

// list returns the ids as text.
func list(ids []switchboard.ServerID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return strings.Join(names, ", ")
}
