package link

import (
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An inbox receives the messages of the server on a link and decides which request, call or subscriber
// each one belongs to.
type inbox struct {
	link    *Link
	dropped atomic.Int64 // messages of the server that match nothing
	flood   floodMeter   // of the shared stream
}

// drop counts a message of the server that matches nothing.
func (in *inbox) drop(why string) {
	if in.dropped.Add(1) == 1 { // only the first is logged; Status has the count
		in.link.log.Warn("a server's message was dropped", "why", why)
	}
}

// dispatch handles a message of the server. via is the request that has m on its own stream, or nil
// for a shared stream. lent is the buffer that holds the message, if it must be released. dispatch
// reports whether the message is the response to a pending request.
func (in *inbox) dispatch(lent frame.Buffer, m wire.Message, via *Request) (answered bool) {
	switch m.Kind {
	case wire.Response:
		f := via
		if f == nil {
			f = in.link.Requests.find(m.ID)
		}
		if f != nil && string(f.ID) == string(m.ID) && f.Sending.MayBeSent() && f.finishWith(lent, m, 0, nil) {
			return true
		}
		if via == nil && in.link.Requests.takeAbandoned(m.ID) {
			in.link.log.Debug("a server answered too late", "id", string(m.ID))
			return false
		}
		in.drop("a response to no pending request")
	case wire.Notification:
		in.handleNotification(m, via)
	case wire.Request:
		in.handleRequest(m, via)
	}
	return false
}

// handleNotification handles a notification of the server.
func (in *inbox) handleNotification(m wire.Message, via *Request) {
	switch m.Method {
	case wire.MethodToolsChanged:
		in.link.Listener.onChange(switchboard.Kinds(0).With(switchboard.Tools))
	case wire.MethodResourcesChanged:
		in.link.Listener.onChange(switchboard.Kinds(0).With(switchboard.Resources).With(switchboard.Templates))
	case wire.MethodPromptsChanged:
		in.link.Listener.onChange(switchboard.Kinds(0).With(switchboard.Prompts))
	case wire.MethodResourceUpdated:
		in.handleUpdated(m, via)
	case wire.MethodListenAcknowledged:
		in.link.Listener.acknowledge(m, in.subscriptionOf(m, via))
	case wire.MethodCancelled:
		in.link.Questions.handleCancelled(m.Params)
	case wire.MethodProgress:
		in.handleProgress(m, via)
	case wire.MethodLog:
		in.handleLogMessage(m, via)
	case wire.MethodElicitationCompleted:
		in.handleElicitationComplete(m, via)
	default:
		// A notification of an extension on the stream of a call goes to the call's client.
		if via != nil && via.client != nil {
			in.deliver(via, via, switchboard.Notification{Method: m.Method, Params: m.Params})
		}
	}
}

// subscriptionOf returns the subscription request that m belongs to. via is the request that has m
// on its own stream, or nil for a shared stream; m then names the subscription.
func (in *inbox) subscriptionOf(m wire.Message, via *Request) *Request {
	if via != nil {
		return via
	}
	meta, _ := wire.Field(m.Params, "_meta")
	id, _ := wire.Field(meta, wire.MetaSubscriptionID)
	return in.link.Requests.find(id)
}

// handleProgress passes progress on to the call with the progress token in it.
func (in *inbox) handleProgress(m wire.Message, via *Request) {
	token, ok := wire.Field(m.Params, wire.MetaProgressToken)
	if !ok {
		in.drop("progress without a token")
		return
	}
	f := in.link.Requests.find(token)
	if f == nil || f.progressToken == nil || via != nil && f != via {
		in.drop("progress of a call that is not in flight")
		return
	}
	f.allowance.ResetSilence()
	params := wire.Rewrite(make([]byte, 0, len(m.Params)+len(f.progressToken)), m.Params, wire.Edit{Name: wire.MetaProgressToken, Value: f.progressToken})
	in.deliver(f, via, switchboard.Notification{Method: m.Method, Params: params})
}

// handleLogMessage passes a log message on. A log message does not name its call. On a shared
// stream it goes to the only call in flight, or is dropped: guessing could show it to the wrong
// client.
func (in *inbox) handleLogMessage(m wire.Message, via *Request) {
	f := via
	if f == nil {
		f = in.link.Requests.onlyCall()
	}
	if f == nil {
		in.drop("a log message of an unknown call")
		return
	}
	raw, _ := wire.Field(m.Params, "level")
	level, _ := wire.String(raw)
	if rank := logLevelRank(level); f.minLogLevel == 0 || rank < f.minLogLevel {
		return // the client wants only more severe messages
	}
	in.deliver(f, via, switchboard.Notification{Method: m.Method, Params: m.Params})
}

// deliver gives n to the caller of f. On the own stream of f it blocks until the caller has taken
// n, which slows the server down. On a shared stream it never blocks.
func (in *inbox) deliver(f, via *Request, n switchboard.Notification) {
	switch {
	case !f.notifications.allowMore(len(n.Params), in.link.maxBytes):
		in.drop("more notifications than a call may send")
	case via != nil:
		f.notifyNow(n)
	case !f.enqueue(n):
		in.drop("more notifications than the client takes")
	}
}

// handleRequest answers a request of the server.
func (in *inbox) handleRequest(m wire.Message, via *Request) {
	if in.link.Hello().Modern() {
		in.drop("a request, which modern servers must not send")
		return
	}
	if m.Method == wire.MethodPing {
		in.link.port.Post(wire.AppendResult(nil, m.ID, []byte("{}")))
		return
	}
	in.link.Questions.handleQuestion(m, via)
}

// handleElicitationComplete passes on that the user has finished at a URL. The notification need
// not come on the stream of a call.
func (in *inbox) handleElicitationComplete(m wire.Message, via *Request) {
	f := via
	if (f == nil || f.client == nil) && in.link.Questions.askable != "" {
		via = nil
		f, _ = in.link.Requests.callOfOneClient()
	}
	if f == nil || f.client == nil {
		in.drop("the end of an elicitation of an unknown client")
		return
	}
	in.deliver(f, via, switchboard.Notification{Method: m.Method, Params: m.Params})
}

// handleUpdated passes an update on. A modern server names the subscription. The update of a legacy
// server goes to the subscribers of that resource. If there are none, it goes to those with a URI
// that the updated one begins with, since the updated resource may be a part of theirs.
func (in *inbox) handleUpdated(m wire.Message, via *Request) {
	uri, ok := updatedURI(m.Params)
	if !ok {
		in.drop("an update without a URI")
		return
	}
	if in.link.Hello().Modern() {
		if f := in.subscriptionOf(m, via); f == nil || f.Method != wire.MethodListen || !f.enqueue(switchboard.Notification{Method: m.Method, Params: m.Params}) {
			in.drop("an update without a subscription")
		}
		return
	}
	for _, s := range in.link.Subscriptions.receiversOf(uri) {
		s.Updated(uri)
	}
}

// A floodMeter counts unwanted messages of a server within a window of time. It is not safe for
// concurrent use.
type floodMeter struct {
	since                    time.Time
	junk, junkBytes, chatter int
}

// add counts, and returns the reason to close the connection, or "".
func (w *floodMeter) add(junk, junkBytes, chatter int) string {
	if now := time.Now(); now.Sub(w.since) > floodWindow {
		*w = floodMeter{since: now}
	}
	w.junk += junk
	w.junkBytes += junkBytes
	w.chatter += chatter
	switch {
	case w.junk > MaxJunk:
		return "it writes lines that are not messages, without end"
	case w.junkBytes > maxJunkBytes:
		return "it writes text that is not a message, without end"
	case w.chatter > maxChatter:
		return "it sends notifications without end"
	}
	return ""
}
