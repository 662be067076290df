package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The interval between two requests, and the delay before a terminal shows that the command waits.
const (
	pollInterval = 200 * time.Millisecond
	noticeDelay  = time.Second
)

// pollUntilStarted calls ask until it names no starting servers, for at most the time wait, and
// returns the last answer. On a terminal it shows the names.
func pollUntilStarted[T any](ctx context.Context, io streams, wait time.Duration, ask func() (T, []switchboard.ServerID, error)) (T, error) {
	terminal := isTerminal(io.err)
	began, told := time.Now(), ""
	for {
		answer, starting, err := ask()
		waited := time.Since(began)
		if err != nil || len(starting) == 0 || waited >= wait {
			return answer, err
		}
		if names := joinIDs(starting); terminal && waited >= noticeDelay && names != told {
			fmt.Fprintf(io.err, "waiting for %s to start: %s (%s left; ctrl-C ends this)\n", count(len(starting), "server"), names, (wait - waited).Round(time.Second))
			told = names
		}
		select {
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// notAnsweredText begins the list of servers that did not answer in time.
const notAnsweredText = "these servers have not answered"

// joinIDs returns the ids as one text.
func joinIDs[T ~string](ids []T) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return strings.Join(names, ", ")
}
