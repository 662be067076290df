package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

const (
	// subscribeTimeout limits how long a server may take to grant a subscription.
	subscribeTimeout = 10 * time.Second
)

// A resourceSubscriber wants the updates of one resource of a server.
type resourceSubscriber struct {
	fleet   *Fleet
	call    *switchboard.Call
	updated func(uri string)

	firstResult chan error // receives the result of the first attempt
}

// Subscribe subscribes to the resource that c.Target names, until stop is called. It calls updated
// with the URI as the server spells it. It also calls updated after a lost connection, when updates
// may have been missed. The error is like that of Call.
func (f *Fleet) Subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	s := &resourceSubscriber{fleet: f, call: c, updated: updated, firstResult: make(chan error, 1)}
	own, cancel := context.WithCancel(f.ctx)
	if !f.tasks.Run(func() { s.run(own) }) {
		cancel()
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "the resource's server is no longer here")
	}
	ctx, done := context.WithTimeout(ctx, subscribeTimeout)
	defer done()
	select {
	case err = <-s.firstResult:
	case <-ctx.Done():
		err = link.CallError(ctx, link.Errorf(link.KindSilent, false, "no answer to %s in time", c.Method))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// run subscribes, again whenever the connection is lost.
func (s *resourceSubscriber) run(ctx context.Context) {
	granted := false
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		err := s.subscribeOnce(ctx, func() {
			if granted {
				s.updated(s.call.Target) // updates may have been missed
				return
			}
			granted = true
			s.firstResult <- nil
		})
		if !granted {
			s.firstResult <- err
			return
		}
		if fails = task.FailsInRow(fails, began); task.Sleep(ctx, task.Backoff(fails)) != nil {
			return
		}
	}
}

// subscribeOnce subscribes over the link of the call's principal, and waits until the link or ctx
// ends. It calls held when the server has granted the subscription.
func (s *resourceSubscriber) subscribeOnce(ctx context.Context, held func()) error {
	server := s.fleet.server(s.call.Server)
	if server == nil {
		return switchboard.Refuse(switchboard.CodeServerUnknown, "the resource's server is no longer here")
	}
	cfg := server.config()
	cn, err := server.connectors.get(server.scopeOf(&cfg, s.call))
	if err != nil {
		return noLinkError(ctx, err)
	}
	defer cn.release()
	l, err := cn.get(ctx, waitForPause)
	if err != nil {
		return noLinkError(ctx, err)
	}
	return l.Subscriptions.Subscribe(ctx, &link.ResourceSubscription{Server: s.call.Server, Target: s.call.Target, Owner: &s.call.Principal, Updated: s.updated}, held)
}

// noLinkError returns the client's error if there is no link.
func noLinkError(ctx context.Context, err error) error {
	if f, ok := errors.AsType[*link.ExchangeError](err); ok {
		return link.CallError(ctx, f)
	}
	return err
}
