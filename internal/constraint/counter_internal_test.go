package constraint

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

func TestTheNumberOfQueuesIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := batchedCounter{store: store.NewMemory(), queues: map[string]*limitQueue{}}
		limit := []store.Limit{{Name: "l", Every: time.Hour, Burst: 1}}
		count := func(group string) time.Duration {
			t.Helper()
			wait, err := s.countCall(t.Context(), group, limit)
			if err != nil {
				t.Fatal(err)
			}
			return wait
		}
		for i := range 2 * maxQueues {
			group := fmt.Sprint(i)
			if first, second := count(group), count(group); first > 0 || second == 0 {
				t.Fatalf("group %d, with a limit of one call, waits %s, and then %s", i, first, second)
			}
		}
		if n := len(s.queues); n != maxQueues {
			t.Errorf("%d queues in use, want %d", n, maxQueues)
		}
		time.Sleep(2 * aheadTTL)
		synctest.Wait()
		count("one more")
		if n := len(s.queues); n != 1 {
			t.Errorf("%d queues remain, want only the one in use", n)
		}
	})
}
