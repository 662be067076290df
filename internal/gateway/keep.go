package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A legacy session has one owner: the replica that holds its state. Another replica forwards a
// request to the owner, in one hop. So the requests in flight, the streams that can be resumed and
// the open questions are in one place. If the owner is gone, the replica that gets the next request
// takes the session over, as the store has it. A process that is started in place of the last one
// does the same.

// A Store keeps sessions. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

const (
	topicSessions = "sessions"
	groupSessions = "sessions/" // followed by tenant and principal

	// saveEvery is how often a session in use is written again, which moves its expiry.
	saveEvery = 5 * time.Minute
	storedFor = SessionIdle + 2*saveEvery

	// The n-th owner of a session numbers its questions and its streams from n times these. So the
	// number shows which owner a question or stream belongs to. Some clients read ids into 32 bits.
	questionsPerOwner = 1_000_000
	streamsPerOwner   = 1_000_000_000

	// maxEarlierOwners is how many earlier owners of a session are remembered.
	maxEarlierOwners = 8

	// maxLookups is how often the owner of a session is looked up, if it changes meanwhile.
	maxLookups = 3
)

// A storedSession is a session as the store keeps it.
type storedSession struct {
	Owner         string               `json:"home,omitempty"`   // "" means a process that does not share the store
	Moves         int                  `json:"moves,omitempty"`  // how often it was taken over
	EarlierOwners []string             `json:"before,omitempty"` // the latest, in the order of time
	Run           switchboard.RunID    `json:"run"`
	Capabilities  json.RawMessage      `json:"capabilities,omitempty"` // of the client
	Level         string               `json:"level"`
	Primes        bool                 `json:"primes,omitempty"` // see replays.sendsPrimers
	Subscriptions []storedSubscription `json:"subscriptions,omitempty"`
}

// A storedSubscription is a subscription as the store keeps it, with the server of its resource.
type storedSubscription struct {
	URI    string               `json:"uri"`
	Server switchboard.ServerID `json:"server"`
	Own    string               `json:"own"` // the URI as the server spells it
}

// sessionKey returns the key of a session in the store. It has a digest of the id, because the id
// is as good as a password.
func sessionKey(o principalKey, id string) store.Key {
	sum := sha256.Sum256([]byte(id))
	return store.Key{Group: groupSessions + string(o.tenant) + "/" + o.id, Name: hex.EncodeToString(sum[:])}
}

// saveSession writes s to the store. It returns store.ErrConflict if another replica has taken s
// over, and then yields s. If the store fails, the session is written when the store is back.
func (g *Gateway) saveSession(ctx context.Context, s *session) error {
	if g.store == nil {
		return nil
	}
	err := g.saveOwnedSession(ctx, s)
	if errors.Is(err, store.ErrConflict) {
		g.yieldSession(s)
	}
	return err
}

func (g *Gateway) saveOwnedSession(ctx context.Context, s *session) error {
	s.storeMu.Lock()
	defer s.storeMu.Unlock()
	k := storedSession{
		Owner: g.cluster.Self(), Moves: s.moves, EarlierOwners: s.earlierOwners, Run: s.run.ID(), Level: s.client.logLevel(), Primes: s.replays.sendsPrimers,
		Subscriptions: s.client.subscriptions.stored(),
	}
	if own := s.client.capabilities.Load(); own != nil {
		k.Capabilities = *own
	}
	for {
		if s.lost {
			return store.ErrConflict
		}
		err := s.writeStored(ctx, g.store, k)
		if s.unsaved = err != nil; !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := g.checkOwner(ctx, s); err != nil {
			return err
		}
	}
}

// checkOwner reads whether the store's session is still that of this replica, and adopts its
// version: a write may have succeeded though the store reported an error. Otherwise another replica
// has taken s over, and lost is set. The caller holds s.storeMu.
func (g *Gateway) checkOwner(ctx context.Context, s *session) error {
	now, version, err := g.readStoredSession(ctx, s.key)
	if err == nil {
		s.lost = version == 0 || now.Owner != g.cluster.Self() || now.Moves != s.moves
		s.storedVersion = version
	}
	return err
}

// writeStored replaces the stored session by k. The caller holds s.storeMu.
func (s *session) writeStored(ctx context.Context, st Store, k storedSession) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	version, err := st.Apply(ctx, store.Change{Group: s.key.Group, Writes: []store.Write{{Name: s.key.Name, Was: s.storedVersion, Data: text, TTL: storedFor}}})
	if err == nil {
		s.storedVersion = version
	}
	return err
}

// deleteStoredSession deletes a session that has ended from the store. After an error, the session
// may be found again until it expires.
func (g *Gateway) deleteStoredSession(s *session) error {
	if g.store == nil {
		return nil
	}
	s.storeMu.Lock()
	defer s.storeMu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), bodyTimeout)
	defer cancel()
	for !s.lost && s.storedVersion != 0 { // otherwise nothing is stored, or another replica owns it
		_, err := g.store.Apply(ctx, store.Change{Group: s.key.Group, Writes: []store.Write{{Name: s.key.Name, Was: s.storedVersion}}})
		if errors.Is(err, store.ErrConflict) {
			if err = g.checkOwner(ctx, s); err == nil {
				continue
			}
		}
		if err != nil {
			g.log.Warn("an ended session stays in the store until it expires", "err", err)
			return err
		}
		s.lost = true // a save that waits for storeMu comes too late
	}
	return nil
}

// readStoredSession reads a session from the store; version is 0 if there is none. A value that
// cannot be decrypted counts as none: the client opens another session.
func (g *Gateway) readStoredSession(ctx context.Context, key store.Key) (k storedSession, version store.Version, err error) {
	v, err := g.store.Value(ctx, key)
	if errors.Is(err, store.ErrUnopened) {
		return k, 0, nil
	}
	if err != nil || v.Version == 0 {
		return k, 0, err
	}
	if err := json.Unmarshal(v.Data, &k); err != nil {
		return k, 0, fmt.Errorf("stored session: %w", err)
	}
	return k, v.Version, nil
}

// An httpRequest is an HTTP request that names a session.
type httpRequest struct {
	w    http.ResponseWriter
	r    *http.Request
	p    switchboard.Principal
	body []byte // nil if there is none
	id   []byte // of the JSON-RPC request; nil for other messages
}

// findSession returns the session with the id, which the caller must release. It returns nil if e
// has been answered: by the owner of the session, or because there is no such session.
func (g *Gateway) findSession(e httpRequest, id string) *session {
	if s := g.sessions.find(id, e.p); s != nil {
		return s
	}
	if g.store == nil || !g.sessions.isMinted(principalKeyOf(e.p), id) {
		g.writeFailure(e.w, http.StatusNotFound, e.id, noSuchSession)
		return nil
	}
	_, hop := cluster.Principal(e.r)
	for range maxLookups {
		k, version, err := g.readStoredSession(e.r.Context(), sessionKey(principalKeyOf(e.p), id))
		switch {
		case err != nil:
			g.refuseSession(e, err)
			return nil
		case version == 0:
			g.writeFailure(e.w, http.StatusNotFound, e.id, noSuchSession)
			return nil
		case hop && (k.Owner != g.cluster.Self() || g.isClosing()):
			cluster.NotHere(e.w)
			return nil
		case g.isClosing():
			g.refuseSession(e, errStopping)
			return nil
		}
		if g.isOtherReplica(k.Owner) && g.isForwarded(e, g.cluster.Forward(e.w, e.r, e.body, e.p, k.Owner)) {
			return nil
		}
		switch s, err := g.takeOver(e.r.Context(), e.p, id, k, version); {
		case err == nil && s != nil:
			return s
		case err == nil:
			g.writeFailure(e.w, http.StatusNotFound, e.id, noSuchSession)
			return nil
		case !errors.Is(err, store.ErrConflict):
			g.refuseSession(e, err)
			return nil
		}
		if s := g.sessions.find(id, e.p); s != nil { // another request has taken it over at this replica
			return s
		}
	}
	g.refuseSession(e, errors.New("the session had another owner at each lookup"))
	return nil
}

// isForwarded reports whether e has been answered after another replica was asked to answer it,
// with err. It returns false if that replica does not have the session, or is gone.
func (g *Gateway) isForwarded(e httpRequest, err error) bool {
	switch {
	case err == nil:
	case errors.Is(err, cluster.ErrGone):
		return false
	case errors.Is(err, cluster.ErrBroken):
		g.log.Warn("the connection to another replica broke", "err", err)
		g.writeFailure(e.w, http.StatusBadGateway, e.id, failureOf(connectionLost(err)))
	default:
		g.refuseSession(e, err)
	}
	return true
}

// connectionLost tells a client that its request was lost with a replica.
func connectionLost(err error) *switchboard.Error {
	return &switchboard.Error{
		Code: switchboard.CodeOutcomeUnknown, Cause: err,
		Text: "the connection to the replica that answered this was lost; a tool that was being called may have been executed: check before you repeat the call",
	}
}

// refuseSession answers that it is unknown now whether the session exists.
func (g *Gateway) refuseSession(e httpRequest, err error) {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		own = switchboard.Unavailable("the session cannot be looked up, so nothing was done", err)
	}
	g.log.Warn("cannot find or open a session", "tenant", e.p.Tenant, "principal", e.p.ID, "err", err)
	if own.RetryAfter > 0 {
		e.w.Header().Set("Retry-After", "1")
	}
	g.writeFailure(e.w, http.StatusServiceUnavailable, e.id, failureOf(own))
}

// takeOver makes this replica the owner of a session. It returns nil if the session's run has
// ended. The caller must release the session.
func (g *Gateway) takeOver(ctx context.Context, p switchboard.Principal, id string, k storedSession, version store.Version) (*session, error) {
	bound, err := g.runs.Find(ctx, p, k.Run)
	if err != nil || bound == nil {
		return nil, err
	}
	s, own := g.sessions.reserve(p, id)
	if s == nil {
		return nil, tooManySessions(own)
	}
	k.EarlierOwners = append(k.EarlierOwners, k.Owner)
	k.EarlierOwners = k.EarlierOwners[max(0, len(k.EarlierOwners)-maxEarlierOwners):]
	s.storedVersion, s.moves, s.earlierOwners = version, k.Moves+1, k.EarlierOwners
	s.replays.sendsPrimers, s.replays.first = k.Primes, s.moves*streamsPerOwner
	s.replays.last = s.replays.first
	s.client.questions.last = int64(s.moves) * questionsPerOwner
	if k.Capabilities != nil {
		s.client.setCapabilities(k.Capabilities)
	}
	s.client.initialized.Store(true)
	if slices.Contains(logLevels, k.Level) {
		s.client.level.Store(k.Level)
	}
	k.Owner, k.Moves = g.cluster.Self(), s.moves
	err = s.writeStored(ctx, g.store, k)
	if err == nil {
		q := &clientRequest{Message: &wire.Message{}, principal: p, client: s.client}
		s.client.subscriptions.restore(g, q, bound, k.Subscriptions)
		if !g.sessions.publish(s, bound) {
			err = store.ErrConflict
		}
	}
	if err != nil {
		s.lost = true // the stored session belongs to another owner now
		g.sessions.end(s)
		g.sessions.release(s)
		return nil, err
	}
	g.takenOver.Add(1)
	s.client.queue.addChanges(switchboard.AllKinds)                           // changes since the last owner were not reported
	g.publishMove(ctx, moveNotice{Key: s.key, Home: k.Owner, Moves: k.Moves}) // otherwise the earlier owner notices at its next write
	g.log.Debug("session taken over", "tenant", p.Tenant, "principal", p.ID, "task", bound.Task())
	return s, nil
}

// TakenOver returns how many sessions this replica has taken over.
func (g *Gateway) TakenOver() int64 { return g.takenOver.Load() }

// A moveNotice says that a session has another owner, or has ended there.
type moveNotice struct {
	Key   store.Key `json:"key"`
	Home  string    `json:"home"`
	Moves int       `json:"moves"` // including this one
	Ended bool      `json:"ended,omitempty"`
}

// publishMove publishes m to all replicas.
func (g *Gateway) publishMove(ctx context.Context, m moveNotice) {
	if notice, err := json.Marshal(m); err == nil {
		_ = g.store.Publish(ctx, topicSessions, notice)
	}
}

// Follow yields the sessions that other replicas take over, until ctx is done.
func (g *Gateway) Follow(ctx context.Context) {
	if g.store == nil {
		return
	}
	missed := make(chan struct{}, 1)
	defer g.store.Subscribe(topicSessions, func(data []byte) {
		var m moveNotice
		if data == nil || json.Unmarshal(data, &m) != nil {
			select {
			case missed <- struct{}{}:
			default:
			}
			return
		}
		if m.Home == g.cluster.Self() && !m.Ended {
			return
		}
		for s := range g.sessions.all() {
			switch {
			case s.key != m.Key:
			case m.Ended:
				g.sessions.end(s)
			case m.Moves > s.moves: // otherwise the session has come back since
				go g.yieldSession(s)
			}
		}
	})()
	for {
		select {
		case <-ctx.Done():
			return
		case <-missed:
			for s := range g.sessions.all() {
				if g.confirmOwner(ctx, s) != nil {
					break // the store reports another missed notice when it is back
				}
			}
		}
	}
}

// confirmOwner yields s if another replica has taken it over. It saves s if the last save failed.
func (g *Gateway) confirmOwner(ctx context.Context, s *session) error {
	s.storeMu.Lock()
	unkept := s.unsaved
	s.storeMu.Unlock()
	if unkept {
		return g.saveSession(ctx, s)
	}
	k, version, err := g.readStoredSession(ctx, s.key)
	if err == nil && version != 0 && (k.Owner != g.cluster.Self() || k.Moves != s.moves) {
		g.yieldSession(s)
	}
	return err
}

// yieldSession gives up a session that another replica owns now. Requests that still run here
// continue. The client opens its notification stream again at the new owner.
func (g *Gateway) yieldSession(s *session) {
	s.storeMu.Lock()
	s.lost = true
	s.storeMu.Unlock()
	g.sessions.yield(s)
	s.closeStream()
	go s.client.subscriptions.end() // may wait for servers
}

// Sweep extends the expiry of the sessions in use, and starts subscriptions that failed to start.
// The program calls it every few minutes.
func (g *Gateway) Sweep(ctx context.Context) {
	for s := range g.sessions.all() {
		s.client.subscriptions.reviewAll()
		if idle, ok := s.idleSince(); ok && time.Since(idle) > saveEvery {
			continue
		}
		if err := g.saveSession(ctx, s); err != nil && !errors.Is(err, store.ErrConflict) {
			return // the next sweep tries again
		}
	}
}

func (x *exchange) envelope() httpRequest {
	e := httpRequest{w: x.w, r: x.r, p: x.principal, body: x.body}
	if x.message.Kind == wire.Request {
		e.id = x.message.ID
	}
	return e
}

// fixedRun is a runBinder that returns r.
func fixedRun(r *run.Run) runBinder {
	return func(context.Context) (*run.Run, error) { return r, nil }
}
