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

// All notices go over one channel, of one shard of a Cluster: what a connection to it
// does not bring, nothing brings, so that who loses it knows that they may have missed
// some. Each is the length of its topic, the topic, and the data.

func (r *Redis) channel() string { return r.prefix + ":" + own + "notices" }

// Publish implements Store.
func (r *Redis) Publish(ctx context.Context, topic string, data []byte) error {
	if err := cmp.Or(checkName("a topic", topic), checkSize("the bytes of a notice", len(data), MaxNotice)); err != nil {
		return err
	}
	u, err := r.begin(ctx, len(data))
	if err != nil {
		return err
	}
	defer u.end()
	notice := append(binary.AppendUvarint(nil, uint64(len(topic))), topic...)
	if _, err := u.ask(r.channel(), 1, "spublish", r.channel(), append(notice, data...)); err != nil {
		return u.fail(err)
	}
	return nil
}

// Subscribe implements Store.
func (r *Redis) Subscribe(topic string, heard func([]byte)) (stop func()) {
	return r.notices.subscribe(topic, heard)
}

const (
	pingEvery = 500 * time.Millisecond
	deafAfter = 4 * pingEvery // without a sign the connection is taken for lost
)

// listen hears notices from now on, until Close.
func (r *Redis) listen(ctx context.Context) error {
	ready := make(chan struct{})
	r.work.Go(func() {
		first := ready
		for r.ended.Err() == nil {
			r.hear(func() {
				if first == nil {
					r.notices.missed()
					return
				}
				close(first)
				first = nil
			})
			if n, err := r.node(r.ended, r.channel()); err == nil {
				r.suspect(n, r.channel())
			}
			pause(r.ended, probeEvery/2)
		}
	})
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return errors.Join(ErrUnavailable, errors.New("it does not let itself be subscribed to"))
	}
}

// hear passes notices on until the connection is lost. It says when that has begun.
func (r *Redis) hear(begun func()) {
	s := r.client.SSubscribe(r.ended, r.channel())
	defer s.Close() //nolint:errcheck // it is over
	var sign atomic.Int64
	sign.Store(time.Now().UnixNano())
	over := make(chan struct{})
	defer close(over)
	r.work.Go(func() {
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if time.Since(time.Unix(0, sign.Load())) < deafAfter {
					_ = s.Ping(r.ended)
					continue
				}
			case <-r.ended.Done():
			case <-over:
				return
			}
			_ = s.Close() // which ends Receive
			return
		}
	})
	for subscribed := false; ; {
		got, err := s.Receive(r.ended)
		if err != nil {
			return
		}
		sign.Store(time.Now().UnixNano())
		switch got := got.(type) {
		case *redis.Subscription:
			if got.Kind != "ssubscribe" || subscribed { // the slot has moved; or the client has begun anew
				return
			}
			subscribed = true
			begun()
		case *redis.Message:
			length, n := binary.Uvarint([]byte(got.Payload))
			if n <= 0 || length > uint64(len(got.Payload)-n) {
				continue // not ours
			}
			topic := got.Payload[n:][:length]
			r.notices.publish(topic, []byte(got.Payload[n+int(length):]))
		}
	}
}
