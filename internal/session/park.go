package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A modern client is asked by an interim result, and makes its request again with the answers. A
// legacy server, however, asks within the call. So the call is parked meanwhile, and the request
// state that the client sends back identifies it.

// Limits on parked calls.
const (
	// MaxParked is how many calls of one principal may be parked.
	MaxParked = 100

	// ParkedFor is how long a call waits for an answer.
	ParkedFor = time.Hour
)

// statePrefix begins the request states of every Switchboard. The name of the replica follows.
// States of other servers pass through; such a server may be another Switchboard.
const statePrefix = "switchboard-1."

// The members of params that carry a client's answers, and the state of the call that asked.
const (
	MemberAnswers = "inputResponses"
	MemberState   = "requestState"
)

var (
	errParkedTooLong = errors.New("the client has not answered for " + ParkedFor.String())
	errParkedTooMany = errors.New("too many calls of the client wait for answers")
	errPanicked      = errors.New("the call has panicked")
)

// ParkedCalls holds the calls that wait for answers of modern clients. Use NewParkedCalls.
type ParkedCalls struct {
	key    []byte // seals states; shared by all replicas, else made by this process
	self   string // the name of this replica
	prefix string // of the states of this replica
	log    *slog.Logger

	mu          sync.Mutex
	closed      error // why nothing may be parked any more
	byID        map[string]*parkedCall
	byPrincipal map[PrincipalKey]int // calls that are parked, or that a client is answering now
}

// NewParkedCalls returns a table without calls. self is the name of this replica, and key the secret
// that all replicas share; "" means that there are no others.
func NewParkedCalls(self string, key []byte, log *slog.Logger) *ParkedCalls {
	if self == "" {
		self, key = rand.Text()[:8], []byte(rand.Text())
	}
	return &ParkedCalls{
		key: key, self: self, prefix: statePrefix + self + ".", log: log,
		byID: map[string]*parkedCall{}, byPrincipal: map[PrincipalKey]int{},
	}
}

// A parkedCall runs beside the requests that wait for it. At most one request waits at a time.
type parkedCall struct {
	principal PrincipalKey
	digest    switchboard.Digest // of the request, without the answers and _meta
	cancel    context.CancelCauseFunc
	asked     chan *serverQuestion
	done      chan callOutcome

	// listener takes the server's notifications while a request waits.
	listener atomic.Pointer[func(switchboard.Notification)]

	questions map[string]*serverQuestion // sent to the client; used only by the request that waits now
	last      int                        // number of the last question; each key is used once in a call
	until     time.Time                  // when the client must have answered
	timer     *time.Timer                // cancels the call at until; set while the call is parked
}

// A serverQuestion is one request of a server to the client.
type serverQuestion struct {
	method string
	params []byte
	answer chan []byte // buffers one answer
	failed chan error  // buffers one error
}

type callOutcome struct {
	result switchboard.Result
	err    error
}

// Call calls next for the request m of a modern client that servers may ask. The result may be a
// question to the client. Then the call is parked until the client repeats the request with the
// answers: see Resume.
func (ps *ParkedCalls) Call(ctx context.Context, key PrincipalKey, m *wire.Message, next switchboard.Caller, c *switchboard.Call) (switchboard.Result, error) {
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	p := &parkedCall{
		principal: key, digest: digestOf(m), cancel: end,
		asked: make(chan *serverQuestion), done: make(chan callOutcome, 1), questions: map[string]*serverQuestion{},
	}
	c.Client.Ask = p.ask
	notify := c.Notify
	c.Notify = func(n switchboard.Notification) {
		if listener := p.listener.Load(); listener != nil {
			(*listener)(n)
		}
	}
	p.setListener(notify)
	go func() {
		defer end(nil)
		o := callOutcome{err: errPanicked}
		defer func() {
			if p := recover(); p != nil {
				ps.log.Error("panic while calling", "method", m.Method, "tenant", key.Tenant, "panic", p, "stack", string(debug.Stack()))
			}
			p.done <- o
		}()
		o.result, o.err = next.Call(own, c)
	}()
	return ps.wait(ctx, p)
}

// setListener sets which function takes the server's notifications; nil drops them.
func (p *parkedCall) setListener(listener func(switchboard.Notification)) {
	if listener == nil {
		p.listener.Store(nil)
		return
	}
	p.listener.Store(&listener)
}

// CanBeAsked reports whether a client declares a capability that lets servers ask it something.
func CanBeAsked(capabilities []byte) bool {
	for name := range wire.Members(capabilities) {
		switch name {
		case "elicitation", "sampling", "roots":
			return true
		}
	}
	return false
}

// digestOf returns the same digest for a request and for its repetition with answers.
func digestOf(m *wire.Message) switchboard.Digest {
	params := wire.Without(nil, m.Params, func(name string) bool {
		return name == MemberAnswers || name == MemberState || name == wire.MemberMeta
	})
	text := append([]byte(m.Method), 0)
	if c, err := canonical.Append(text, params); err == nil {
		return canonical.Sum(c)
	}
	return canonical.Sum(append(text, params...))
}

// ask sends a question of the server. It waits for a request that can pass the question on, and
// then for the answer.
func (p *parkedCall) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	q := &serverQuestion{method: method, params: params, answer: make(chan []byte, 1), failed: make(chan error, 1)}
	select {
	case p.asked <- q:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case result := <-q.answer:
		return result, nil
	case err := <-q.failed:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// wait waits for the result of the call or for a question, which it returns as an interim result.
func (ps *ParkedCalls) wait(ctx context.Context, p *parkedCall) (switchboard.Result, error) {
	defer p.setListener(nil)
	for {
		select {
		case o := <-p.done:
			return o.result, o.err
		case <-ctx.Done():
			p.cancel(context.Cause(ctx))
			o := <-p.done
			return o.result, o.err
		case q := <-p.asked:
			p.addQuestion(q)
			for more := true; more; {
				select {
				case q := <-p.asked:
					p.addQuestion(q)
				default:
					more = false
				}
			}
			p.until = time.Now().Add(ParkedFor)
			state, err := ps.park(p, false)
			if err == nil {
				return p.inputRequired(state), nil
			}
			for key, q := range p.questions {
				q.failed <- err
				delete(p.questions, key)
			}
		}
	}
}

func (p *parkedCall) addQuestion(q *serverQuestion) {
	p.last++
	p.questions[strconv.Itoa(p.last)] = q
}

// inputRequired returns the interim result that asks the client.
func (p *parkedCall) inputRequired(state string) switchboard.Result {
	var edits []wire.Edit
	for i := range p.last {
		key := strconv.Itoa(i + 1)
		q := p.questions[key]
		if q == nil {
			continue
		}
		value := wire.AppendString([]byte(`{"method":`), q.method)
		if q.params != nil {
			value = append(append(value, `,"params":`...), q.params...)
		}
		edits = append(edits, wire.Edit{Name: key, Value: append(value, '}')})
	}
	b := append([]byte(`{"resultType":"input_required","inputRequests":`), wire.Rewrite(nil, nil, edits...)...)
	b = wire.AppendString(append(b, `,"requestState":`...), state)
	return switchboard.Result{JSON: append(b, '}')}
}

// park parks p and returns the request state that finds it again, once. hasSlot means that p has its
// slot already. The error says why p cannot be parked.
func (ps *ParkedCalls) park(p *parkedCall, hasSlot bool) (state string, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch {
	case ps.closed != nil:
		return "", ps.closed
	case hasSlot:
	case ps.byPrincipal[p.principal] >= MaxParked:
		return "", errParkedTooMany
	default:
		ps.byPrincipal[p.principal]++
	}
	id := rand.Text()
	ps.byID[id] = p
	p.timer = time.AfterFunc(time.Until(p.until), func() {
		if ps.remove(id) == p {
			ps.releaseSlot(p)
			p.cancel(errParkedTooLong)
		}
	})
	return ps.prefix + id + "." + ps.sealState(id, p), nil
}

// sealState authenticates a state for the principal and the request that it was given to.
func (ps *ParkedCalls) sealState(id string, p *parkedCall) string {
	mac := hmac.New(sha256.New, ps.key)
	for _, s := range []string{id, string(p.principal.Tenant), p.principal.ID, string(p.digest)} {
		_, _ = mac.Write(append([]byte(s), 0)) // Write never fails
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// remove takes a parked call out of the table, so that no other request finds it; nil if there is
// none. The call keeps its slot until releaseSlot.
func (ps *ParkedCalls) remove(id string) *parkedCall {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byID[id]
	if p == nil {
		return nil
	}
	p.timer.Stop()
	delete(ps.byID, id)
	return p
}

// releaseSlot releases the slot of p, which no longer waits for its client.
func (ps *ParkedCalls) releaseSlot(p *parkedCall) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.byPrincipal[p.principal]--; ps.byPrincipal[p.principal] == 0 {
		delete(ps.byPrincipal, p.principal)
	}
}

// Close cancels all parked calls and lets none be parked later, because no client can come back for
// them.
func (ps *ParkedCalls) Close(why error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed = why
	for id, p := range ps.byID {
		p.timer.Stop()
		p.cancel(why)
		delete(ps.byID, id)
		ps.byPrincipal[p.principal]--
	}
}

// takeByState removes and returns the parked call of a state. The state must have been given for the
// request that m repeats.
func (ps *ParkedCalls) takeByState(key PrincipalKey, m *wire.Message, state string) *parkedCall {
	id, seal, ok := strings.Cut(strings.TrimPrefix(state, ps.prefix), ".")
	if !ok {
		return nil
	}
	expected := &parkedCall{principal: key, digest: digestOf(m)}
	if !hmac.Equal([]byte(seal), []byte(ps.sealState(id, expected))) {
		return nil
	}
	return ps.remove(id)
}

// ReplicaOf returns the name of the other replica that has parked the call of m, or "".
func (ps *ParkedCalls) ReplicaOf(key PrincipalKey, m *wire.Message) string {
	raw, _ := m.Param(MemberState)
	state, _ := wire.String(raw)
	own, ok := strings.CutPrefix(state, statePrefix)
	if !ok || strings.HasPrefix(state, ps.prefix) {
		return ""
	}
	part := strings.Split(own, ".")
	if len(part) != 3 {
		return ""
	}
	expected := &parkedCall{principal: key, digest: digestOf(m)}
	if !hmac.Equal([]byte(part[2]), []byte(ps.sealState(part[1], expected))) {
		return "" // not a state of these replicas; perhaps of a Switchboard behind this one
	}
	return part[0]
}

// StateOf returns the state in m, and whether it is one of this replica.
func (ps *ParkedCalls) StateOf(m *wire.Message) (state string, ok bool) {
	raw, _ := m.Param(MemberState)
	state, _ = wire.String(raw)
	return state, strings.HasPrefix(state, ps.prefix)
}

// HasState reports whether m continues a call that a server has begun, here or elsewhere.
func HasState(m *wire.Message) bool {
	_, ok := m.Param(MemberState)
	return ok
}

// Resume continues the parked call of the state with the answers in m. notify gets the server's
// notifications from now on. found is false if there is no such call.
func (ps *ParkedCalls) Resume(ctx context.Context, key PrincipalKey, m *wire.Message, state string, notify func(switchboard.Notification)) (result switchboard.Result, found bool, err error) {
	p := ps.takeByState(key, m, state)
	if p == nil {
		return switchboard.Result{}, false, nil
	}
	p.setListener(withOwnToken(notify, m)) // before the server continues
	answers, _ := m.Param(MemberAnswers)
	for key, question := range p.questions {
		if given, ok := wire.Field(answers, key); ok && given[0] == '{' {
			question.answer <- given
			delete(p.questions, key)
		}
	}
	if len(p.questions) > 0 && len(p.done) == 0 { // ask again for the answers that are missing
		p.setListener(nil)
		state, err := ps.park(p, true)
		if err == nil {
			return p.inputRequired(state), true, nil
		}
		p.cancel(err)
	}
	ps.releaseSlot(p)
	result, err = ps.wait(ctx, p)
	return result, true, err
}

// withOwnToken returns notify for a call that another request than m began: it puts the progress
// token of m into progress notifications.
func withOwnToken(notify func(switchboard.Notification), m *wire.Message) func(switchboard.Notification) {
	if notify == nil {
		return nil
	}
	token, ok := m.Meta(wire.MetaProgressToken)
	return func(n switchboard.Notification) {
		if n.Method == wire.MethodProgress {
			if !ok {
				return // m wants no progress
			}
			n.Params = wire.Rewrite(nil, n.Params, wire.Edit{Name: wire.MetaProgressToken, Value: token})
		}
		notify(n)
	}
}
