package store

import (
	"fmt"
	"slices"
	"testing"
)

// A subscriber is told of missing notices between those before and those after, also while it never empties its queue.
func TestASubscriberIsToldWhereNoticesAreMissing(t *testing.T) {
	missed := []byte(nil)
	for name, tt := range map[string]struct {
		give func(q *noticeQueue)
		want []string
	}{
		"a connection was lost": {
			func(q *noticeQueue) { q.enqueue([]byte("a")); q.enqueue(missed); q.enqueue([]byte("b")) },
			[]string{"a", "missed", "b"},
		},
		"it was lost twice": {
			func(q *noticeQueue) { q.enqueue(missed); q.enqueue(missed); q.enqueue([]byte("a")); q.enqueue(missed) },
			[]string{"missed", "a", "missed"},
		},
		"there were too many": {
			func(q *noticeQueue) {
				for i := range maxWaitingNotices + 5 {
					q.enqueue([]byte(fmt.Sprint(i)))
				}
				q.enqueue([]byte("later"))
			},
			[]string{"missed", fmt.Sprint(maxWaitingNotices + 1), fmt.Sprint(maxWaitingNotices + 2), fmt.Sprint(maxWaitingNotices + 3), fmt.Sprint(maxWaitingNotices + 4), "later"},
		},
	} {
		q := &noticeQueue{wake: make(chan struct{}, 1)}
		tt.give(q)
		var got []string
		for {
			data, ok := q.dequeue()
			if !ok {
				break
			}
			if data == nil {
				data = []byte("missed")
			}
			got = append(got, string(data))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
