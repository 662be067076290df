package vault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// An Ask asks the provider for new tokens with the grant of the connection, once. It returns the connection with the new
// tokens: Access, Expires, and Grant if it has changed. The other fields do not matter.
//
// Its error says what became of the grant. One that wraps ErrNotSent says that no byte of the request was sent, or that the
// provider has surely not used it; ErrRefused says that the provider refused the grant. After any other error, the grant may be
// used up, and it is never sent again.
type Ask func(ctx context.Context, c ServerConnection) (ServerConnection, error)

// The errors of an Ask that say what became of the grant.
var (
	ErrNotSent = errors.New("the provider was not asked")
	ErrRefused = errors.New("the provider has refused to renew the connection")
)

// A RenewalPause is an error that says how long the provider must not be asked. An Ask returns one, around ErrNotSent, if the provider has said so. The vault
// returns one around ErrPaused.
type RenewalPause struct {
	Wait time.Duration // at most MaxPause counts
	Err  error
}

// Error says why.
func (e *RenewalPause) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RenewalPause) Unwrap() error { return e.Err }

// MaxPause is the longest pause that a provider can ask for. It could take a person's connection away for longer than that person would wait.
const MaxPause = 5 * time.Minute

const (
	pauseData = "pause" // the data of a claim that says that there is a pause

	pollInterval = 100 * time.Millisecond // between two looks at a row that another process renews
	flightTime   = 45 * time.Second       // the longest that a call waits for a renewal

	writeTime  = 5 * time.Second  // how long a call waits until the answer is written
	settleTime = 10 * time.Minute // how long the answer is kept in memory until it can be written
	closeTime  = 5 * time.Second  // how long Close waits for renewals
)

// renewalTimes bound a renewal.
type renewalTimes struct {
	// claim is how long a renewal has the row, by the clock of the store. When it is over, the grant counts as used.
	claim time.Duration

	// ask is how long a renewal may take until the provider has answered, from before its claim. The rest of claim is for the
	// write of the answer.
	ask time.Duration

	// pause is the time between ErrNotSent and the next request to the provider, by the clock of the store. A RenewalPause can make it longer.
	pause time.Duration
}

var usualTimes = renewalTimes{claim: 30 * time.Second, ask: 20 * time.Second, pause: 5 * time.Second}

// pauseAfter returns how long the provider is not asked after the error.
func (t *renewalTimes) pauseAfter(err error) time.Duration {
	p, ok := errors.AsType[*RenewalPause](err)
	if !ok {
		return t.pause
	}
	return max(t.pause, min(p.Wait, MaxPause))
}

// A renewer renews connections, each once at a time in this process and once over all processes.
type renewer struct {
	rows     *rowStore
	orphaned func(Owner, ServerConnection)
	lost     func(Owner, error)
	ctx      context.Context // of renewals, which outlive the calls that began them
	times    renewalTimes
	flights  workCount
	later    workCount // ends of renewals that are written when the store is back
}

// A flight is one renewal in this process. All calls that want it wait for it.
type flight struct {
	seen Generation
	done chan struct{} // closed when c and err are set
	c    ServerConnection
	err  error
}

// Renew returns a newer token. The server has refused the token of the generation seen, so this process does not serve it any more. One call of ask gets the new tokens, over all processes; all other calls wait for its end. ask goes on
// if ctx ends: it has a context of its own.
//
// The errors are ErrConnectAgain, ErrPaused, ErrNone, ErrUnreadable, errors of ask that wrap ErrNotSent, errors of the store, and
// the error of ctx.
func (v *Vault) Renew(ctx context.Context, o Owner, seen Generation, ask Ask) (Token, error) {
	s := v.slots.add(o)
	s.reject(seen)
	s.touch(time.Now())
	return v.renew(ctx, s, seen, ask)
}

func (v *Vault) renew(ctx context.Context, s *slot, seen Generation, ask Ask) (Token, error) {
	for {
		if k := s.known.Load(); k != nil && k.token.Generation != seen && v.mayServe(k, time.Now()) {
			return k.token, nil
		}
		f := v.renewer.join(s, seen, ask)
		select {
		case <-f.done:
		case <-ctx.Done():
			return Token{}, ctx.Err()
		}
		if f.seen == seen || f.err == nil && f.c.Generation != seen {
			return f.c.token(), f.err
		}
	}
}

// join returns the flight of the slot, and begins one if there is none.
func (w *renewer) join(s *slot, seen Generation, ask Ask) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		return s.flight
	}
	f := &flight{seen: seen, done: make(chan struct{})}
	if !w.flights.begin() {
		f.err = errClosed
		close(f.done)
		return f
	}
	s.flight = f
	go func() {
		defer w.flights.end()
		f.c, f.err = w.fly(s, seen, ask)
		if k := s.known.Load(); f.err != nil && (k == nil || k.token.Generation == seen) { // else there is a new consent
			s.paused.Store(time.Now().Add(w.times.pauseAfter(f.err)).UnixNano())
		}
		s.mu.Lock()
		s.flight = nil
		s.mu.Unlock()
		close(f.done)
	}()
	return f
}

var errUnwritten = fmt.Errorf("%w: the tokens of the last renewal are not written yet", store.ErrUnavailable)

var errClosed = fmt.Errorf("%w: the vault is closed", store.ErrUnavailable)

// fly renews the connection, or waits until another process has done so.
func (w *renewer) fly(s *slot, seen Generation, ask Ask) (ServerConnection, error) {
	ctx, cancel := context.WithTimeout(w.ctx, flightTime)
	defer cancel()
	for {
		r, version, err := w.rows.read(ctx, s)
		switch {
		case err != nil:
			return ServerConnection{}, err
		case (Generation{r.consent, r.Tokens}) != seen:
			return r.connection(), nil
		case r.unwritten:
			return ServerConnection{}, errUnwritten
		case r.connectAgain():
			return ServerConnection{}, ErrConnectAgain
		}
		claim, err := w.rows.store.Value(ctx, store.Key{Group: groupOf(s.name), Name: s.claimName()})
		paused := string(claim.Data) == pauseData
		if errors.Is(err, store.ErrUnopened) { // a stranger's, which only delays
			paused, err = true, nil
		}
		switch {
		case err != nil:
			return ServerConnection{}, fmt.Errorf("renew a connection: %w", err)
		case claim.Version != 0 && r.State == stateReady && paused: // else another process has claimed the row between the two looks
			return ServerConnection{}, &RenewalPause{Wait: time.Until(claim.Expires), Err: ErrPaused}
		case claim.Version != 0: // another process has it
			select {
			case <-time.After(pollInterval):
			case <-ctx.Done():
				return ServerConnection{}, fmt.Errorf("%w: the renewal of a connection takes too long", store.ErrUnavailable)
			}
		case r.State == stateAsking: // the process that had it is gone, and may have sent the grant
			err := w.rows.write(ctx, s, version, r, func(r *connectionRow) { r.State = stateSpent })
			if err == nil { // else the renewal has ended between the two looks
				w.rows.log.Warn("a connection was being renewed by a process that ended or lost the store, so its grant may be used up; the person must connect again",
					"tenant", s.owner.Tenant, "server", s.owner.Server)
				w.lost(s.owner, ErrConnectAgain)
			}
			if err != nil && !errors.Is(err, store.ErrConflict) {
				return ServerConnection{}, err
			}
		default:
			c, err := w.claimAndAsk(ctx, s, version, r, ask)
			if !errors.Is(err, store.ErrConflict) {
				return c, err
			}
		}
	}
}

// claimAndAsk takes the claim, asks, and writes what came of it. The error is store.ErrConflict if another process was first.
func (w *renewer) claimAndAsk(ctx context.Context, s *slot, version store.Version, r *connectionRow, ask Ask) (ServerConnection, error) {
	began, claim := time.Now(), newID()
	err := w.rows.write(ctx, s, version, r, func(r *connectionRow) { r.State, r.Claim = stateAsking, claim },
		store.Write{Name: s.claimName(), Data: []byte(claim), TTL: w.times.claim})
	if errors.Is(err, store.ErrConflict) {
		return ServerConnection{}, store.ErrConflict
	}
	if err == nil && time.Since(began) > w.times.ask/2 {
		err = fmt.Errorf("%w: it took %s to claim a renewal", store.ErrUnavailable, time.Since(began).Round(time.Second))
	}
	if err != nil { // the claim may be written: then it is taken back when the store answers
		w.settleLater(&settlement{slot: s, claim: claim, change: func(r *connectionRow) { r.State = stateReady }})
		return ServerConnection{}, err
	}
	answer, err := w.askOnce(r, began, ask)
	switch {
	case err == nil:
		return w.keepAnswer(s, claim, r, &answer)
	case errors.Is(err, ErrNotSent):
		_ = w.settle(&settlement{slot: s, claim: claim, change: func(r *connectionRow) { r.State = stateReady }, pause: w.times.pauseAfter(err)})
		return ServerConnection{}, err
	}
	state := stateSpent
	if errors.Is(err, ErrRefused) {
		state = stateRefused
	}
	w.rows.log.Warn("a connection could not be renewed; the person must connect again", "tenant", s.owner.Tenant, "server", s.owner.Server, "err", err)
	_ = w.settle(&settlement{slot: s, claim: claim, change: func(r *connectionRow) { r.State = state }, done: func() { w.lost(s.owner, err) }})
	return ServerConnection{}, fmt.Errorf("%w: %w", ErrConnectAgain, err)
}

// askOnce calls ask. Close does not interrupt it at once: see Close.
func (w *renewer) askOnce(r *connectionRow, began time.Time, ask Ask) (c ServerConnection, err error) {
	ctx, cancel := context.WithDeadline(w.ctx, began.Add(w.times.ask))
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // what it has sent is unknown
			c, err = ServerConnection{}, fmt.Errorf("panic: %v", p)
		}
	}()
	c, err = ask(ctx, r.connection())
	if err == nil && c.Access.Reveal() == "" {
		err = errors.New("the provider has sent no token")
	}
	return c, err
}

// keepAnswer writes the new tokens. If the store is away, this process uses them, and writes them later.
func (w *renewer) keepAnswer(s *slot, claim string, r *connectionRow, answer *ServerConnection) (ServerConnection, error) {
	now := time.Now().UTC()
	next := *r
	next.setTokens(answer, now)
	next.unwritten = true
	c := next.connection()
	s.io <- struct{}{} // a read or a write ends within storeTimeout
	s.held = &held{&next, claim}
	s.show(&next, 0)
	w.rows.unlock(s)
	err := w.settle(&settlement{slot: s, claim: claim, tokens: &c, change: func(r *connectionRow) {
		r.setTokens(answer, now)
		r.State = stateReady
	}})
	if errors.Is(err, errReplaced) { // the next look finds the new consent
		err = store.ErrConflict
	}
	if err != nil {
		return ServerConnection{}, err
	}
	return c, nil
}
