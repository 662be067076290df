package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Bounds of what a server may ask of the client of a call.
const (
	maxQuestions = 64       // under way, of one link
	maxAsks      = 16       // at once, of a modern call
	maxRounds    = 64       // of them, before it has a result
	maxAskable   = 16 << 10 // bytes of the capabilities that a client declares

	// A question that comes before any call looks every askEvery for the call
	// that it is part of, for askPatience.
	askPatience = 10 * time.Second
	askEvery    = 20 * time.Millisecond

	// listenPatience is how long a server may take to begin the stream on which it
	// speaks unasked. Some begin it when they have something to say.
	listenPatience = time.Second

	// heedPatience is how long what a modern server offers is not asked for, until
	// it tells of changes. Where that takes longer, it is asked once more.
	heedPatience = 100 * time.Millisecond
)

// The capabilities by which a client can be asked.
const (
	capRoots    = "roots"
	capSampling = "sampling"
	capElicit   = "elicitation"

	capChanges = "listChanged" // of the roots
)

// The members of a modern result that asks, and of the params that answer.
const (
	inputAsked   = "inputRequests"
	inputAnswers = "inputResponses"
	inputState   = "requestState"
)

// codeURLFirst is the error of a legacy server's that the client has to visit
// URLs before it makes the request again.
const codeURLFirst = -32042

var errCrowded = errors.New("it asks for too much at once")

// asking says by which capability a client can be asked for a method.
var asking = map[string]string{
	wire.MethodRootsList: capRoots,
	wire.MethodSample:    capSampling,
	wire.MethodElicit:    capElicit,
}

// askable returns, of the capabilities that a client has declared, those by which
// it can be asked for something: an object, or nil where there are none. tells is
// set where changes of its roots are passed on.
func askable(capabilities []byte, tells bool) []byte {
	if len(capabilities) > maxAskable {
		return nil
	}
	var edits []wire.Edit
	for _, name := range []string{capElicit, capRoots, capSampling} {
		value, ok := wire.Field(capabilities, name)
		switch {
		case !ok || value[0] != '{':
		case name == capRoots && tells && says(value, capChanges):
			edits = append(edits, wire.Edit{Name: name, Value: []byte(`{"` + capChanges + `":true}`)})
		case name == capRoots:
			edits = append(edits, wire.Edit{Name: name, Value: []byte("{}")})
		default:
			edits = append(edits, wire.Edit{Name: name, Value: value})
		}
	}
	if len(edits) == 0 {
		return nil
	}
	return wire.Rewrite(nil, nil, edits...)
}

// offered reports whether a client of these capabilities can be asked this.
func offered(capabilities []byte, method string, params []byte) bool {
	name := asking[method]
	if name == "" || len(capabilities) == 0 {
		return false
	}
	has, ok := wire.Field(capabilities, name)
	if !ok || has[0] != '{' {
		return false
	}
	if name != capElicit {
		return true
	}
	_, form := wire.Field(has, "form")
	_, url := wire.Field(has, modeURL)
	if byURL(params) {
		return url
	}
	return form || !url // neither means forms
}

const (
	modeURL       = "url"
	elicitationID = "elicitationId" // which only the legacy era has
)

// byURL reports whether the params of an elicitation send somebody to a URL.
func byURL(params []byte) bool {
	raw, _ := wire.Field(params, "mode")
	mode, _ := wire.String(raw)
	return mode == modeURL
}

// declared is what a modern server is told that it may ask for. A client of the
// same era says it in its own words.
func declared(c *switchboard.Client) []byte {
	switch {
	case c.TakesQuestions && len(c.Capabilities) <= maxAskable:
		return c.Capabilities
	case c.Ask != nil:
		return askable(c.Capabilities, false)
	}
	return nil
}

// errAsking says that the call whose turn it is waits for its client.
var errAsking = errors.New("another call waits for its client")

// takeTurn waits until the call may use the link, and returns how it gives it
// back. A legacy child does not say which call its questions belong to: where
// its link is of several clients, it gets one call at a time. The error is
// errAsking where that may last for as long as a person takes.
func (l *link) takeTurn(ctx context.Context, c *switchboard.Call) (leave func(), err error) {
	if !l.severs || l.asks == "" || c.Client.Session != "" || l.hello().modern() {
		return func() {}, nil
	}
	l.mu.Lock()
	yields := l.yields
	l.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-yields:
		return nil, errAsking
	case <-l.done:
		return nil, unsentFault(l.failure())
	case <-ctx.Done():
		return nil, ourFault(kindSilent, false, "another call of the same client is still under way")
	}
}

// yield lets the calls that wait for a turn know that a client is being asked,
// until that is over.
func (l *link) yield() (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.yielding++; l.yielding == 1 {
		close(l.yields)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.yielding--; l.yielding == 0 {
			l.yields = make(chan struct{})
		}
	}
}

// asked deals with a request of a legacy server's, which came on the stream of
// via, or on one that all share.
func (l *link) asked(m wire.Message, via *flight) {
	refuse := func() {
		l.dropped.Add(1)
		l.port.tell(wire.AppendError(nil, m.ID, wire.CodeMethodNotFound, "the client offers no such method", nil))
	}
	if !offered([]byte(l.asks), m.Method, m.Params) {
		refuse()
		return
	}
	ctx, cancel := l.until()
	id := string(m.ID)
	l.mu.Lock()
	crowded := len(l.questions) >= maxQuestions || l.questions[id] != nil
	if !crowded {
		l.questions[id] = cancel
	}
	l.mu.Unlock()
	if crowded {
		cancel()
		l.dropped.Add(1)
		l.port.tell(answerTo(m.ID, nil, errCrowded))
		return
	}
	go func() {
		defer cancel()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.questions, id)
		}()
		f := via
		if f == nil || f.client == nil {
			f = l.asker(ctx, m.Method)
		}
		var result []byte
		var err error
		switch aside := l.besides(m.Method); {
		case f != nil && f.client.Ask != nil:
			result, err = l.askClient(ctx, f, m.Method, m.Params)
			if err != nil && f.ctx.Err() != nil && aside != nil { // the call is over, and the question was not of it
				result, err = aside(ctx, m.Method, m.Params)
			}
		case f == nil && aside != nil:
			result, err = aside(ctx, m.Method, m.Params)
		default:
			refuse()
			return
		}
		if ctx.Err() == nil { // else the server has gone, or no longer wants to know
			l.port.tell(answerTo(m.ID, result, err))
		}
	}()
}

// withdrawn takes back a question, as the params of notifications/cancelled ask
// for.
func (l *link) withdrawn(params []byte) {
	id, _ := wire.Field(params, "requestId")
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.questions[string(id)]; cancel != nil {
		cancel()
	}
}

// answerTo is what the server is told that has asked.
func answerTo(id, result []byte, err error) []byte {
	said, ok := errors.AsType[*switchboard.ClientError](err)
	switch {
	case err == nil:
		return wire.AppendResult(nil, id, result)
	case ok:
		return wire.AppendErrorObject(nil, id, said.Object)
	}
	return wire.AppendError(nil, id, wire.CodeInternal, "the client could not be asked", nil)
}

// asker returns a call under way whose client a question of the server's is for,
// though it does not say so: there is only one, or all are of one client. A
// question that comes before any call waits for one, unless the client can be
// asked besides.
func (l *link) asker(ctx context.Context, method string) *flight {
	for deadline := time.Now().Add(askPatience); time.Now().Before(deadline); {
		if f, sure := l.caller(); f != nil || !sure || l.besides(method) != nil {
			return f
		}
		if sleep(ctx, askEvery) != nil {
			return nil
		}
	}
	return nil
}

// caller returns a call under way, where all are of one client. sure is false
// where they are not.
func (l *link) caller() (one *flight, sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flights {
		if f.client == nil {
			continue
		}
		if one != nil && (f.client.Session == "" || f.client.Session != one.client.Session) {
			return nil, false
		}
		one = f
	}
	return one, true
}

// askClient asks the client of f, while the time of the call stands still.
func (l *link) askClient(ctx context.Context, f *flight, method string, params []byte) (answer []byte, err error) {
	defer func() { // nobody else would: it runs in goroutines of its own
		if p := recover(); p != nil {
			l.log.Error("panic while a client is asked", "method", method, "panic", p, "stack", string(debug.Stack()))
			answer, err = nil, errors.New("internal error")
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	select {
	case <-f.settled(): // what the server said before it asked comes first
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer f.left.pause()()
	defer l.yield()()
	return f.client.Ask(ctx, method, params)
}

// askAll asks the client what the result of a modern server asks for, and returns
// the params with which the call is made again; given are those with which it was
// made.
func (l *link) askAll(ctx context.Context, f *flight, c *switchboard.Call, given, result []byte) ([]byte, error) {
	wanted, _ := wire.Field(result, inputAsked)
	state, _ := wire.Field(result, inputState)
	type question struct {
		key, method string
		params      []byte
		answer      []byte
		err         error
	}
	var questions []*question
	for key, value := range wire.Members(wanted) {
		raw, _ := wire.Field(value, "method")
		method, _ := wire.String(raw)
		params, _ := wire.Field(value, "params")
		if c.Client.Ask == nil || !offered(c.Client.Capabilities, method, params) {
			return nil, &switchboard.Error{
				Code: switchboard.CodeServerFailed,
				Text: fmt.Sprintf("the tool asks the client for %.40q, which it has not offered; it was not completed", method),
			}
		}
		if _, named := wire.Field(params, elicitationID); method == wire.MethodElicit && byURL(params) && !named {
			params = wire.Rewrite(nil, params, wire.Edit{Name: elicitationID, Value: wire.AppendString(nil, rand.Text())})
		}
		questions = append(questions, &question{key: key, method: method, params: params})
	}
	if len(questions) > maxAsks {
		return nil, faultf(kindInvalid, true, "it asks the client for %d things at once", len(questions))
	}
	if len(questions) == 0 && state == nil {
		return nil, faultf(kindInvalid, true, "it asks for more, but not for what")
	}
	var asked sync.WaitGroup
	for _, q := range questions {
		asked.Go(func() { q.answer, q.err = l.askClient(ctx, f, q.method, q.params) })
	}
	asked.Wait()
	var edits []wire.Edit
	for _, q := range questions {
		if q.err != nil {
			return nil, unanswered(ctx, q.err)
		}
		edits = append(edits, wire.Edit{Name: q.key, Value: q.answer})
	}
	answers := wire.Edit{Name: inputAnswers, Value: wire.Rewrite(nil, nil, edits...)}
	return wire.Rewrite(nil, given, answers, wire.Edit{Name: inputState, Value: state}), nil
}

// visited reports whether object is the error of a legacy server's that the
// client has to visit URLs first, and it was asked to, and has agreed: then the
// call can be made again. Only a modern client is asked; to one of the server's
// era the error says all.
func (l *link) visited(ctx context.Context, f *flight, c *switchboard.Call, object []byte) bool {
	if l.hello().modern() || !c.Client.TakesQuestions || c.Client.Ask == nil || errorCode(object) != codeURLFirst {
		return false
	}
	data, _ := wire.Field(object, "data")
	list, _ := wire.Field(data, "elicitations")
	var urls [][]byte
	for params := range wire.Elements(list) {
		if !byURL(params) || !offered(c.Client.Capabilities, wire.MethodElicit, params) {
			return false
		}
		urls = append(urls, params)
	}
	if len(urls) == 0 || len(urls) > maxAsks {
		return false
	}
	agreed := make([]bool, len(urls))
	var asked sync.WaitGroup
	for i, params := range urls {
		asked.Go(func() {
			answer, err := l.askClient(ctx, f, wire.MethodElicit, params)
			if err != nil {
				return
			}
			raw, _ := wire.Field(answer, "action")
			action, _ := wire.String(raw)
			agreed[i] = action == "accept"
		})
	}
	asked.Wait()
	return !slices.Contains(agreed, false)
}

// completed passes on that somebody has done what a URL was for. A server need not
// say it on the stream of a call.
func (l *link) completed(m wire.Message, via *flight) {
	f := via
	if (f == nil || f.client == nil) && l.asks != "" {
		via = nil
		f, _ = l.caller()
	}
	if f == nil || f.client == nil {
		l.drop("an elicitation is complete that could be any client's")
		return
	}
	l.deliver(f, via, switchboard.Notification{Method: m.Method, Params: m.Params})
}

// unanswered is why a call ends whose question the client did not answer.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ourFault(kindSilent, true, "the client was asked, and went away")
	}
	return &switchboard.Error{
		Code: switchboard.CodeServerFailed, Cause: err,
		Text: "the tool asked for input that the client did not give; it was not completed",
	}
}
