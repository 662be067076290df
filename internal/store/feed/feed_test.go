package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
)

// A notice names a key and its publisher.
type notice struct{ Key, From string }

func decode(data []byte) (key, from string, err error) {
	var n notice
	err = json.Unmarshal(data, &n)
	return n.Key, n.From, err
}

func publish(t *testing.T, s store.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		data, _ := json.Marshal(notice{key, "other"})
		if err := s.Publish(t.Context(), "topic", data); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// next returns the sorted keys, and "all" if everything may have changed; "nothing" if Next waits for a second.
func next(t *testing.T, f *feed.Feed[string]) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	changed, all, err := f.Next(ctx)
	if err != nil {
		return "nothing"
	}
	keys := slices.Sorted(maps.Keys(changed))
	if all {
		keys = append(keys, "all")
	}
	return strings.Join(keys, " ")
}

func inBubble(t *testing.T, o feed.Options[string], test func(t *testing.T, s store.Store, f *feed.Feed[string])) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		o.Topic = "topic"
		f := feed.Open(s, o)
		test(t, s, f)
		f.Close()
		_ = s.Close()
	})
}

func TestAFeedCollectsTheKeysOfNotices(t *testing.T) {
	inBubble(t, feed.Options[string]{Decode: decode}, func(t *testing.T, s store.Store, f *feed.Feed[string]) {
		if got := next(t, f); got != "nothing" {
			t.Errorf("without a notice: %s", got)
		}
		publish(t, s, "b", "a", "b")
		if got := next(t, f); got != "a b" {
			t.Errorf("after three notices: %s", got)
		}
		if got := next(t, f); got != "nothing" {
			t.Errorf("once they are taken: %s", got)
		}
	})
}

func TestAFeedLeavesOutItsOwnNotices(t *testing.T) {
	inBubble(t, feed.Options[string]{Decode: decode, Self: "other"}, func(t *testing.T, s store.Store, f *feed.Feed[string]) {
		publish(t, s, "a")
		if got := next(t, f); got != "nothing" {
			t.Errorf("after an own notice: %s", got)
		}
	})
}

func TestANoticeThatNamesNothingSaysThatEverythingMayHaveChanged(t *testing.T) {
	for name, data := range map[string]string{"no JSON": "?", "no decoder": "anything"} {
		o := feed.Options[string]{Decode: decode}
		if name == "no decoder" {
			o.Decode = nil
		}
		inBubble(t, o, func(t *testing.T, s store.Store, f *feed.Feed[string]) {
			if err := s.Publish(t.Context(), "topic", []byte(data)); err != nil {
				t.Fatal(err)
			}
			if got := next(t, f); got != "all" {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

// A losing store loses notices and reports that, as Redis does when its connection breaks.
type losing struct {
	*store.Memory
	heard func([]byte)
}

func (s *losing) Subscribe(_ string, heard func([]byte)) (stop func()) {
	s.heard = heard
	return func() {}
}

func TestLostNoticesSayThatEverythingMayHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &losing{Memory: store.NewMemory()}
		f := feed.Open(s, feed.Options[string]{Topic: "topic", Decode: decode})
		defer f.Close()
		s.heard(nil)
		if got := next(t, f); got != "all" {
			t.Errorf("after a report of the store: %s", got)
		}
		for i := range 5000 { // more than may wait
			s.heard([]byte(fmt.Sprintf(`{"Key":"%d"}`, i)))
		}
		changed, all, err := f.Next(t.Context())
		if err != nil || !all || len(changed) > 4096 {
			t.Errorf("after too many notices: %d keys, all %v, %v", len(changed), all, err)
		}
	})
}

func TestAFeedSaysAfterEachIntervalThatEverythingMayHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		f := feed.Open(s, feed.Options[string]{Topic: "topic", Decode: decode, Every: time.Minute})
		defer f.Close()
		for range 3 {
			began := time.Now()
			_, all, err := f.Next(t.Context())
			if took := time.Since(began); err != nil || !all || took != time.Minute {
				t.Errorf("after %s: all %v, %v", took, all, err)
			}
		}
	})
}

func TestAClosedFeedIsSubscribedToNothing(t *testing.T) {
	inBubble(t, feed.Options[string]{Decode: decode}, func(t *testing.T, s store.Store, f *feed.Feed[string]) {
		f.Close()
		publish(t, s, "a")
		if got := next(t, f); got != "nothing" {
			t.Errorf("after Close: %s", got)
		}
	})
}

func TestWatchReturnsAfterEachNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		f := feed.Watch(s, "topic", time.Hour)
		defer f.Close()
		began := time.Now()
		publish(t, s, "a")
		if _, all, err := f.Next(t.Context()); err != nil || !all || time.Since(began) != 0 {
			t.Errorf("Next returns after %s: all %v, %v", time.Since(began), all, err)
		}
	})
}

func TestAFeedCanBeAPartOfASelect(t *testing.T) {
	inBubble(t, feed.Options[string]{Decode: decode, Self: "self"}, func(t *testing.T, s store.Store, f *feed.Feed[string]) {
		if err := s.Publish(t.Context(), "topic", []byte(`{"Key":"mine","From":"self"}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-f.Wakes():
			t.Error("an own notice wakes")
		default:
		}
		publish(t, s, "a")
		<-f.Wakes()
		if changed, all := f.Take(); len(changed) != 1 || !changed["a"] || all {
			t.Errorf("Take = %v, %v", changed, all)
		}
	})
}
