package link

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
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of the questions of a server to the client of a call.
const (
	maxQuestions       = 64       // open at once, on one link
	maxQuestionsAtOnce = 16       // in one result of a modern server
	maxInputRounds     = 64       // of questions, before a modern call has a result
	maxAskableBytes    = 16 << 10 // bytes of the capabilities that a client declares

	// A question that comes before its call waits for the call: callSearchEvery is the interval of
	// the checks, callSearchTimeout the limit.
	callSearchTimeout = 10 * time.Second
	callSearchEvery   = 20 * time.Millisecond

	// listenTimeout limits how long the handshake waits for the server to open its stream of
	// notifications and requests. Some servers open it only when they have something to send.
	listenTimeout = time.Second

	// acknowledgeTimeout limits how long the first listing waits for a modern server to acknowledge
	// subscriptions/listen. If that takes longer, the offer is listed once more.
	acknowledgeTimeout = 100 * time.Millisecond
)

// The client capabilities that allow questions.
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

// codeURLFirst is the error code of a legacy server that wants the client to visit URLs before it
// repeats the request.
const codeURLFirst = -32042

var errTooManyQuestions = errors.New("it has too many open questions")

// capabilityOf maps the methods of questions to the client capability that allows them.
var capabilityOf = map[string]string{
	wire.MethodRootsList: capRoots,
	wire.MethodSample:    capSampling,
	wire.MethodElicit:    capElicit,
}

// AskableCapabilities returns the part of a client's capabilities that allows questions, as an
// object, or nil if there is none. tells says whether changes of its roots are passed on.
func AskableCapabilities(capabilities []byte, tells bool) []byte {
	if len(capabilities) > maxAskableBytes {
		return nil
	}
	var edits []wire.Edit
	for _, name := range []string{capElicit, capRoots, capSampling} {
		value, ok := wire.Field(capabilities, name)
		switch {
		case !ok || value[0] != '{':
		case name == capRoots && tells && memberIsTrue(value, capChanges):
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

// clientOffers reports whether a client with these capabilities can be asked this.
func clientOffers(capabilities []byte, method string, params []byte) bool {
	name := capabilityOf[method]
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
	elicitationID = "elicitationId" // only in the legacy era
)

// byURL reports whether the params of an elicitation send the user to a URL.
func byURL(params []byte) bool {
	raw, _ := wire.Field(params, "mode")
	mode, _ := wire.String(raw)
	return mode == modeURL
}

// requestCapabilities returns the client capabilities that a call declares to a modern server.
// Those of a modern client are passed on unchanged.
func requestCapabilities(c *switchboard.Client) []byte {
	switch {
	case c.TakesQuestions && len(c.Capabilities) <= maxAskableBytes:
		return c.Capabilities
	case c.Ask != nil:
		return AskableCapabilities(c.Capabilities, false)
	}
	return nil
}

// ErrOtherAsking says that the call that has the turn waits for its client.
var ErrOtherAsking = errors.New("another call waits for its client")

// An AskFunc asks a client, like switchboard.Client.Ask.
type AskFunc = func(ctx context.Context, method string, params []byte) (result []byte, err error)

// A Questioner asks the clients of a link's calls what the server wants to know.
type Questioner struct {
	link    *Link
	askable string        // the client capabilities that the server was given; "" means none
	turn    chan struct{} // held by the one call that may use the link; see TakeTurn

	mu         sync.Mutex
	asking     chan struct{}                 // closed while a client is being asked
	askCount   int                           // number of clients that are being asked
	open       map[string]context.CancelFunc // open questions of the server, by id as spelled
	rootsAsker AskFunc                       // asks the client for its roots outside a call; nil until the roots change
}

func newQuestioner(askable string) Questioner {
	return Questioner{
		askable: askable, turn: make(chan struct{}, 1),
		asking: make(chan struct{}), open: map[string]context.CancelFunc{},
	}
}

// TakeTurn waits until the call may use the link. leave ends the turn. A legacy child process does
// not say which call a question belongs to. If clients share its link, it gets one call at a time.
// The error is ErrOtherAsking if the wait could last as long as a person needs to answer.
func (q *Questioner) TakeTurn(left *slot.Allowance, c *switchboard.Call) (leave func(), err error) {
	if !q.link.Requests.endsPending || q.askable == "" || c.Client.Session != "" || q.link.Hello().Modern() {
		return func() {}, nil
	}
	q.mu.Lock()
	yields := q.asking
	q.mu.Unlock()
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn }, nil
	case <-yields:
		return nil, ErrOtherAsking
	case <-q.link.Requests.Done:
		return nil, AsUnsent(q.link.Failure())
	case <-left.Context().Done():
		return nil, OwnError(KindSilent, false, "another call of the same client is still in flight")
	}
}

// announceAsking makes TakeTurn of other calls return ErrOtherAsking until over is called.
func (q *Questioner) announceAsking() (over func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.askCount++; q.askCount == 1 {
		close(q.asking)
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.askCount--; q.askCount == 0 {
			q.asking = make(chan struct{})
		}
	}
}

// handleQuestion handles a request of a legacy server. via is the request that has m on its own
// stream, or nil for a shared stream.
func (q *Questioner) handleQuestion(m wire.Message, via *Request) {
	refuse := func() {
		q.link.inbox.dropped.Add(1)
		q.link.port.Post(wire.AppendError(nil, m.ID, wire.CodeMethodNotFound, "the client offers no such method", nil))
	}
	if !clientOffers([]byte(q.askable), m.Method, m.Params) {
		refuse()
		return
	}
	ctx, cancel := q.link.lifetime()
	id := string(m.ID)
	q.mu.Lock()
	crowded := len(q.open) >= maxQuestions || q.open[id] != nil
	if !crowded {
		q.open[id] = cancel
	}
	q.mu.Unlock()
	if crowded {
		cancel()
		q.link.inbox.dropped.Add(1)
		q.link.port.Post(responseTo(m.ID, nil, errTooManyQuestions))
		return
	}
	go func() {
		defer cancel()
		defer func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			delete(q.open, id)
		}()
		f := via
		if f == nil || f.client == nil {
			f = q.findCall(ctx, m.Method)
		}
		var result []byte
		var err error
		switch aside := q.rootsAskerFor(m.Method); {
		case f != nil && f.client.Ask != nil:
			result, err = q.askClient(ctx, f, m.Method, m.Params)
			if err != nil && f.context().Err() != nil && aside != nil { // the call has ended, and the question did not belong to it
				result, err = aside(ctx, m.Method, m.Params)
			}
		case f == nil && aside != nil:
			result, err = aside(ctx, m.Method, m.Params)
		default:
			refuse()
			return
		}
		if ctx.Err() == nil { // otherwise the link has ended, or the server has cancelled the question
			q.link.port.Post(responseTo(m.ID, result, err))
		}
	}()
}

// handleCancelled handles notifications/cancelled of the server.
func (q *Questioner) handleCancelled(params []byte) {
	id, _ := wire.Field(params, "requestId")
	q.mu.Lock()
	defer q.mu.Unlock()
	if cancel := q.open[string(id)]; cancel != nil {
		cancel()
	}
}

// responseTo returns the response to a question of the server.
func responseTo(id, result []byte, err error) []byte {
	said, ok := errors.AsType[*switchboard.ClientError](err)
	switch {
	case err == nil:
		return wire.AppendResult(nil, id, result)
	case ok:
		return wire.AppendErrorObject(nil, id, said.Object)
	}
	return wire.AppendError(nil, id, wire.CodeInternal, "the client could not be asked", nil)
}

// findCall returns a call in flight that a question of the server belongs to, if that is certain:
// it is the only call, or all calls belong to one client. If there is no call yet, findCall waits
// for one, unless the client can be asked outside a call.
func (q *Questioner) findCall(ctx context.Context, method string) *Request {
	for deadline := time.Now().Add(callSearchTimeout); time.Now().Before(deadline); {
		if f, sure := q.link.Requests.callOfOneClient(); f != nil || !sure || q.rootsAskerFor(method) != nil {
			return f
		}
		if task.Sleep(ctx, callSearchEvery) != nil {
			return nil
		}
	}
	return nil
}

// askClient asks the client of f. The time of the call stops meanwhile.
func (q *Questioner) askClient(ctx context.Context, f *Request, method string, params []byte) (answer []byte, err error) {
	defer func() { // it runs in goroutines of its own, where no caller recovers
		if p := recover(); p != nil {
			q.link.log.Error("panic while a client is asked", "method", method, "panic", p, "stack", string(debug.Stack()))
			answer, err = nil, errors.New("internal error")
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.context(), cancel)()
	select {
	case <-f.notifications.allDelivered(): // earlier notifications of the server come first
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer f.allowance.Pause()()
	defer q.announceAsking()()
	return f.client.Ask(ctx, method, params)
}

// askInputs asks the client for the inputs that a modern result requests. It returns the params for
// the next round. given are the params of the last one.
func (q *Questioner) askInputs(ctx context.Context, f *Request, c *switchboard.Call, given, result []byte) ([]byte, error) {
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
		if c.Client.Ask == nil || !clientOffers(c.Client.Capabilities, method, params) {
			return nil, &switchboard.Error{
				Code: switchboard.CodeServerFailed,
				Text: fmt.Sprintf("the tool asks the client for %.40q, which the client does not support; the call was not completed", method),
			}
		}
		if _, named := wire.Field(params, elicitationID); method == wire.MethodElicit && byURL(params) && !named {
			params = wire.Rewrite(nil, params, wire.Edit{Name: elicitationID, Value: wire.AppendString(nil, rand.Text())})
		}
		questions = append(questions, &question{key: key, method: method, params: params})
	}
	if len(questions) > maxQuestionsAtOnce {
		return nil, Errorf(KindInvalid, true, "it asks the client for %d things at once", len(questions))
	}
	if len(questions) == 0 && state == nil {
		return nil, Errorf(KindInvalid, true, "it asks for input, but does not say which")
	}
	var asked sync.WaitGroup
	for _, one := range questions {
		asked.Go(func() { one.answer, one.err = q.askClient(ctx, f, one.method, one.params) })
	}
	asked.Wait()
	var edits []wire.Edit
	for _, one := range questions {
		if one.err != nil {
			return nil, noAnswerError(ctx, one.err)
		}
		edits = append(edits, wire.Edit{Name: one.key, Value: one.answer})
	}
	answers := wire.Edit{Name: inputAnswers, Value: wire.Rewrite(nil, nil, edits...)}
	return wire.Rewrite(nil, given, answers, wire.Edit{Name: inputState, Value: state}), nil
}

// askToVisit handles an error of a legacy server that asks the client to visit URLs first. It
// returns true if the client was asked and agreed, so that the call can be sent again. Only modern
// clients are asked: a legacy client understands the error itself.
func (q *Questioner) askToVisit(ctx context.Context, f *Request, c *switchboard.Call, object []byte) bool {
	if q.link.Hello().Modern() || !c.Client.TakesQuestions || c.Client.Ask == nil || errorCode(object) != codeURLFirst {
		return false
	}
	data, _ := wire.Field(object, "data")
	list, _ := wire.Field(data, "elicitations")
	var urls [][]byte
	for params := range wire.Elements(list) {
		if !byURL(params) || !clientOffers(c.Client.Capabilities, wire.MethodElicit, params) {
			return false
		}
		urls = append(urls, params)
	}
	if len(urls) == 0 || len(urls) > maxQuestionsAtOnce {
		return false
	}
	agreed := make([]bool, len(urls))
	var asked sync.WaitGroup
	for i, params := range urls {
		asked.Go(func() {
			answer, err := q.askClient(ctx, f, wire.MethodElicit, params)
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

// noAnswerError is the error of a call if its client did not answer a question.
func noAnswerError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return OwnError(KindSilent, true, "the client left while it was being asked")
	}
	return &switchboard.Error{
		Code: switchboard.CodeServerFailed, Cause: err,
		Text: "the tool asked for input that the client did not give; the call was not completed",
	}
}

// NotifyRootsChanged notifies the server unless it is modern: modern servers request the roots in
// each call.
func (q *Questioner) NotifyRootsChanged(ask AskFunc) {
	roots, _ := wire.Field([]byte(q.askable), capRoots)
	if q.link.Hello().Modern() || !memberIsTrue(roots, capChanges) {
		return
	}
	q.mu.Lock()
	q.rootsAsker = ask
	q.mu.Unlock()
	q.link.port.Post(wire.AppendNotification(nil, wire.MethodRootsChanged, nil))
}

// rootsAskerFor returns the function that asks the client outside a call. It is nil for methods
// other than roots/list.
func (q *Questioner) rootsAskerFor(method string) AskFunc {
	if method != wire.MethodRootsList {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rootsAsker
}
