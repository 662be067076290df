package gateway

import (
	"bytes"
	"context"
	"errors"

	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// subscribingClient returns the client of q as a server sees it when the client subscribes: the
// same as for calls, so that a server which notifies only the process that made a change reaches
// this client.
func (q *clientRequest) subscribingClient() switchboard.Client {
	who := q.switchboardClient()
	who.Capabilities = bytes.Clone(who.Capabilities) // it outlives the request
	if who.Ask != nil || q.modern && session.CanBeAsked(who.Capabilities) {
		who.Ask = func(context.Context, string, []byte) ([]byte, error) {
			return nil, errors.New("a subscription asks nothing")
		}
	}
	return who
}

// subscriber returns the client of q as it subscribes to resources.
func (nt *changeNotifier) subscriber(q *clientRequest) session.Subscriber {
	return session.Subscriber{Principal: q.principal, Client: q.subscribingClient, Subscribe: nt.servers.Subscribe}
}

// listsResource returns a function that reports whether a surface lists the resource.
func listsResource(uri string) func(*surface.Surface) bool {
	return func(s *surface.Surface) bool { _, ok := s.Resource(uri); return ok }
}

// answerSubscribe answers resources/subscribe and resources/unsubscribe of a legacy client.
func (nt *changeNotifier) answerSubscribe(ctx context.Context, q *clientRequest) rpcAnswer {
	raw, _ := q.Param("uri")
	uri, ok := wire.String(raw)
	if !ok {
		return rpcAnswer{failure: invalidParams(q.Method + ": params.uri must be a string")}
	}
	r, err := q.bind(ctx)
	if err != nil {
		return nt.enc.errorAnswer(q, err)
	}
	if q.Method == wire.MethodUnsubscribe {
		q.client.Subscriptions.Remove(uri)
		return rpcAnswer{result: []byte("{}")}
	}
	nt.finder.awaitServers(ctx, r, StartWait, listsResource(uri))
	if err := nt.finder.whyUnmet(ctx, r); err != nil {
		return nt.enc.errorAnswer(q, err)
	}
	switch err := q.client.Subscriptions.Add(ctx, nt.subscriber(q), r, uri); {
	case errors.Is(err, session.ErrNotListed):
		return rpcAnswer{failure: resourceNotFound(uri, q.modern)}
	case err != nil:
		return nt.enc.errorAnswer(q, err)
	}
	return rpcAnswer{result: []byte("{}")}
}

// switchboardClient returns the client of q as servers can ask it while the call is in flight.
func (q *clientRequest) switchboardClient() switchboard.Client {
	who := switchboard.Client{Capabilities: q.capabilities(), TakesQuestions: q.modern}
	if q.modern || q.sender == nil || !session.CanBeAsked(who.Capabilities) {
		return who
	}
	who.Session = q.client.PublicID
	who.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
		return q.client.Questions.Ask(ctx, q.sender.sendKept, method, params)
	}
	return who
}

// noSuchState answers a request state that is invalid, or belongs to another request. Both look the
// same.
var noSuchState = invalidParams("params.requestState belongs to no request of yours that waits for an answer: it was used already, has expired, or was given for another request; the call that asked may have been executed in part: check before you make the request again without it")
