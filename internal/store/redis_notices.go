package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisNotices receives the notices of all replicas.
//
// All notices go over one channel, of one shard of a Cluster. So a lost connection to that shard is the only way to miss
// a notice, and the replica that loses it knows. A notice is the length of its topic, the topic, and the data.
type redisNotices struct {
	*redisClient
	monitor *redisMonitor
	hub     noticeHub
}

// Publish implements Store.
func (r *Redis) Publish(ctx context.Context, topic string, data []byte) error {
	if err := cmp.Or(checkName("a topic", topic), checkSize("the bytes of a notice", len(data), MaxNotice)); err != nil {
		return err
	}
	u, err := r.beginCall(ctx, len(data))
	if err != nil {
		return err
	}
	defer u.endCall()
	notice := append(binary.AppendUvarint(nil, uint64(len(topic))), topic...)
	if _, err := u.send(r.keys.own("notices"), 1, "spublish", r.keys.own("notices"), append(notice, data...)); err != nil {
		return u.wrapError(err)
	}
	return nil
}

// Subscribe implements Store.
func (r *Redis) Subscribe(topic string, heard func([]byte)) (stop func()) {
	return r.notices.hub.subscribe(topic, heard)
}

const (
	pingInterval = 500 * time.Millisecond
	maxSilence   = 4 * pingInterval // a connection that is silent for longer counts as lost
)

// startListening receives notices until Close. It returns when the subscription is active.
func (r *redisNotices) startListening(ctx context.Context) error {
	ready := make(chan struct{})
	r.backgroundWork.Go(func() {
		first := ready
		for r.background.Err() == nil {
			r.receiveNotices(func() {
				if first == nil {
					r.hub.reportMissed()
					return
				}
				close(first)
				first = nil
			})
			if n, err := r.monitor.nodeForKey(r.background, r.keys.own("notices")); err == nil {
				r.monitor.probeUntilWell(n, r.keys.own("notices"))
			}
			sleep(r.background, probeInterval/2)
		}
	})
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return errors.Join(ErrUnavailable, errors.New("it does not confirm a subscription"))
	}
}

// receiveNotices publishes notices until the connection is lost. It calls begun when the subscription is
// active.
func (r *redisNotices) receiveNotices(begun func()) {
	s := r.client.SSubscribe(r.background, r.keys.own("notices"))
	defer s.Close() //nolint:errcheck // the connection is not used any more
	var sign atomic.Int64
	sign.Store(time.Now().UnixNano())
	over := make(chan struct{})
	defer close(over)
	r.backgroundWork.Go(func() {
		tick := time.NewTicker(pingInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if time.Since(time.Unix(0, sign.Load())) < maxSilence {
					_ = s.Ping(r.background)
					continue
				}
			case <-r.background.Done():
			case <-over:
				return
			}
			_ = s.Close() // this ends Receive
			return
		}
	})
	for subscribed := false; ; {
		got, err := s.Receive(r.background)
		if err != nil {
			return
		}
		sign.Store(time.Now().UnixNano())
		switch got := got.(type) {
		case *redis.Subscription:
			if got.Kind != "ssubscribe" || subscribed { // the slot has moved, or the client library has subscribed again
				return
			}
			subscribed = true
			begun()
		case *redis.Message:
			length, n := binary.Uvarint([]byte(got.Payload))
			if n <= 0 || length > uint64(len(got.Payload)-n) {
				continue // not one of our notices
			}
			topic := got.Payload[n:][:length]
			r.hub.publish(topic, []byte(got.Payload[n+int(length):]))
		}
	}
}
