package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
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
	Subscribe(topic string, received func(data []byte)) (stop func())
}

const (
	topicSessions = "sessions"
	groupSessions = "sessions/" // followed by tenant and principal

	// saveEvery is how often a session in use is written again, which moves its expiry.
	saveEvery = 5 * time.Minute
	storedFor = Idle + 2*saveEvery

	// deleteTimeout limits the deletion of a session that has ended.
	deleteTimeout = 30 * time.Second

	// The n-th owner of a session numbers its questions and its streams from n times these. So the
	// number shows which owner a question or stream belongs to. Some clients read ids into 32 bits.
	questionsPerOwner = 1_000_000
	streamsPerOwner   = 1_000_000_000

	// maxEarlierOwners is how many earlier owners of a session are remembered.
	maxEarlierOwners = 8
)

// A Stored is a session as the store keeps it.
type Stored struct {
	Owner         string               `json:"home,omitempty"`   // "" means a process that does not share the store
	Moves         int                  `json:"moves,omitempty"`  // how often it was taken over
	EarlierOwners []string             `json:"before,omitempty"` // the latest, in the order of time
	Run           switchboard.RunID    `json:"run"`
	OwnsRun       bool                 `json:"owns_run,omitempty"`     // see Bind
	Capabilities  json.RawMessage      `json:"capabilities,omitempty"` // of the client
	Level         string               `json:"level"`
	Primes        bool                 `json:"primes,omitempty"` // see Replays.sendsPrimers
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
func sessionKey(o PrincipalKey, id string) store.Key {
	sum := sha256.Sum256([]byte(id))
	return store.Key{Group: groupSessions + string(o.Tenant) + "/" + o.ID, Name: hex.EncodeToString(sum[:])}
}

// A Replicator keeps the sessions of a directory in the store, where other replicas find them, and
// takes sessions over from replicas that are gone. Use NewReplicator.
type Replicator struct {
	sessions  *Directory
	store     Store // nil means that sessions end with the process
	self      string
	runs      *run.Runs
	subscribe SubscribeFunc
	log       *slog.Logger
	taken     atomic.Int64 // sessions that earlier had another owner
}

// NewReplicator returns a Replicator. self is the name of this replica; "" means that there are no
// others. A nil store keeps nothing.
func NewReplicator(d *Directory, st Store, self string, runs *run.Runs, subscribe SubscribeFunc, log *slog.Logger) *Replicator {
	return &Replicator{sessions: d, store: st, self: self, runs: runs, subscribe: subscribe, log: log}
}

// Keeps reports whether sessions are kept in a store.
func (r *Replicator) Keeps() bool { return r.store != nil }

// Lookup reads p's session of that id from the store; version is 0 if there is none.
func (r *Replicator) Lookup(ctx context.Context, p PrincipalKey, id string) (v Stored, version store.Version, err error) {
	return r.read(ctx, sessionKey(p, id))
}

// EndEverywhere ends s, deletes it from the store, and cancels the requests that still run at earlier
// owners. After an error, the session may be found again until it expires.
func (r *Replicator) EndEverywhere(ctx context.Context, s *Session) error {
	r.sessions.End(s)
	if err := r.Delete(s); err != nil {
		return err
	}
	if s.owners.moves > 0 {
		r.publish(ctx, moveNotice{Key: s.key, Ended: true})
	}
	return nil
}

// Save writes s to the store. It returns store.ErrConflict if another replica has taken s
// over, and then yields s. If the store fails, the session is written when the store is back.
func (r *Replicator) Save(ctx context.Context, s *Session) error {
	if r.store == nil {
		return nil
	}
	err := r.saveOwned(ctx, s)
	if errors.Is(err, store.ErrConflict) {
		r.yield(s)
	}
	return err
}

func (r *Replicator) saveOwned(ctx context.Context, s *Session) error {
	s.copy.mu.Lock()
	defer s.copy.mu.Unlock()
	v := Stored{
		Owner: r.self, Moves: s.owners.moves, EarlierOwners: s.owners.earlier, Run: s.run.ID(), OwnsRun: s.ownsRun, Level: s.Client.LogLevel(), Primes: s.Replays.sendsPrimers,
		Subscriptions: s.Client.Subscriptions.stored(),
	}
	if own := s.Client.capabilities.Load(); own != nil {
		v.Capabilities = *own
	}
	for {
		if s.copy.lost {
			return store.ErrConflict
		}
		err := s.writeStored(ctx, r.store, v)
		if s.copy.unsaved = err != nil; !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := r.checkOwner(ctx, s); err != nil {
			return err
		}
	}
}

// checkOwner reads whether the store's session is still that of this replica, and adopts its
// version: a write may have succeeded though the store reported an error. Otherwise another replica
// has taken s over, and lost is set. The caller holds s.copy.mu.
func (r *Replicator) checkOwner(ctx context.Context, s *Session) error {
	now, version, err := r.read(ctx, s.key)
	if err == nil {
		s.copy.lost = version == 0 || now.Owner != r.self || now.Moves != s.owners.moves
		s.copy.version = version
	}
	return err
}

// writeStored replaces the stored session by k. The caller holds s.copy.mu.
func (s *Session) writeStored(ctx context.Context, st Store, k Stored) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	version, err := st.Apply(ctx, store.Change{Group: s.key.Group, Writes: []store.Write{{Name: s.key.Name, Was: s.copy.version, Data: text, TTL: storedFor}}})
	if err == nil {
		s.copy.version = version
	}
	return err
}

// Delete deletes a session that has ended from the store. After an error, the session
// may be found again until it expires.
func (r *Replicator) Delete(s *Session) error {
	if r.store == nil {
		return nil
	}
	s.copy.mu.Lock()
	defer s.copy.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	for !s.copy.lost && s.copy.version != 0 { // otherwise nothing is stored, or another replica owns it
		_, err := r.store.Apply(ctx, store.Change{Group: s.key.Group, Writes: []store.Write{{Name: s.key.Name, Was: s.copy.version}}})
		if errors.Is(err, store.ErrConflict) {
			if err = r.checkOwner(ctx, s); err == nil {
				continue
			}
		}
		if err != nil {
			r.log.Warn("an ended session stays in the store until it expires", "err", err)
			return err
		}
		s.copy.lost = true // a save that waits for copy.mu comes too late
	}
	return nil
}

// read reads a session from the store; version is 0 if there is none. A value that
// cannot be decrypted counts as none: the client opens another session.
func (r *Replicator) read(ctx context.Context, key store.Key) (v Stored, version store.Version, err error) {
	found, err := r.store.Value(ctx, key)
	if errors.Is(err, store.ErrUnopened) {
		return v, 0, nil
	}
	if err != nil || found.Version == 0 {
		return v, 0, err
	}
	if err := json.Unmarshal(found.Data, &v); err != nil {
		return v, 0, fmt.Errorf("stored session: %w", err)
	}
	return v, found.Version, nil
}

// TakeOver makes this replica the owner of a session. It returns nil if the session's run has
// ended. The caller must release the session.
func (r *Replicator) TakeOver(ctx context.Context, p switchboard.Principal, id string, v Stored, version store.Version) (*Session, error) {
	bound, err := r.runs.Find(ctx, p, v.Run)
	if err != nil || bound == nil {
		return nil, err
	}
	s, own := r.sessions.Reserve(p, id)
	if s == nil {
		return nil, TooMany(own)
	}
	v.EarlierOwners = append(v.EarlierOwners, v.Owner)
	v.EarlierOwners = v.EarlierOwners[max(0, len(v.EarlierOwners)-maxEarlierOwners):]
	s.copy.version, s.owners.moves, s.owners.earlier = version, v.Moves+1, v.EarlierOwners
	s.Replays.sendsPrimers, s.Replays.first = v.Primes, s.owners.moves*streamsPerOwner
	s.Replays.last = s.Replays.first
	s.Client.Questions.last = int64(s.owners.moves) * questionsPerOwner
	if v.Capabilities != nil {
		s.Client.SetCapabilities(v.Capabilities)
	}
	s.Client.initialized.Store(true)
	if slices.Contains(LogLevels, v.Level) {
		s.Client.level.Store(v.Level)
	}
	v.Owner, v.Moves = r.self, s.owners.moves
	err = s.writeStored(ctx, r.store, v)
	if err == nil {
		s.run, s.ownsRun = bound, v.OwnsRun
		s.Client.Subscriptions.restore(r.subscriber(p, s.Client), bound, v.Subscriptions)
		if !r.sessions.Publish(s) {
			err = store.ErrConflict
		}
	}
	if err != nil {
		s.copy.lost, s.ownsRun = true, false // the stored session belongs to another owner now
		r.sessions.End(s)
		r.sessions.Release(s)
		return nil, err
	}
	r.taken.Add(1)
	s.Client.Queue.Add(switchboard.AllKinds)                               // changes since the last owner were not reported
	r.publish(ctx, moveNotice{Key: s.key, Owner: v.Owner, Moves: v.Moves}) // otherwise the earlier owner notices at its next write
	r.log.Debug("session taken over", "tenant", p.Tenant, "principal", p.ID, "task", bound.Task())
	return s, nil
}

// subscriber returns the subscriber of a session that was taken over. Servers cannot ask it anything.
func (r *Replicator) subscriber(p switchboard.Principal, c *ClientState) Subscriber {
	return Subscriber{Principal: p, Subscribe: r.subscribe, Client: func() switchboard.Client {
		return switchboard.Client{Capabilities: bytes.Clone(c.Capabilities())}
	}}
}

// TakenOver returns how many sessions this replica has taken over.
func (r *Replicator) TakenOver() int64 { return r.taken.Load() }

// A moveNotice says that a session has another owner, or has ended there.
type moveNotice struct {
	Key   store.Key `json:"key"`
	Owner string    `json:"home"`
	Moves int       `json:"moves"` // including this one
	Ended bool      `json:"ended,omitempty"`
}

// publish publishes m to all replicas.
func (r *Replicator) publish(ctx context.Context, m moveNotice) {
	if notice, err := json.Marshal(m); err == nil {
		_ = r.store.Publish(ctx, topicSessions, notice)
	}
}

// decodeMove decodes a notice. A session that has ended has ended for its owner, too.
func decodeMove(data []byte) (m moveNotice, from string, err error) {
	if err = json.Unmarshal(data, &m); !m.Ended {
		from = m.Owner
	}
	return m, from, err
}

// Follow yields the sessions that other replicas take over, until ctx is done.
func (r *Replicator) Follow(ctx context.Context) {
	if r.store == nil {
		return
	}
	f := feed.Open(r.store, feed.Options[moveNotice]{Topic: topicSessions, Decode: decodeMove, Self: r.self})
	defer f.Close()
	// Notices do not wait for the check of all sessions, which reads the store once for each.
	check := make(chan struct{}, 1)
	var checking sync.WaitGroup
	defer checking.Wait()
	checking.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-check:
				r.confirmOwners(ctx)
			}
		}
	})
	for {
		moves, all, err := f.Next(ctx)
		if err != nil {
			return
		}
		for m := range moves {
			r.applyMove(m)
		}
		if all {
			select {
			case check <- struct{}{}:
			default:
			}
		}
	}
}

// confirmOwners confirms the owner of each session.
func (r *Replicator) confirmOwners(ctx context.Context) {
	for s := range r.sessions.all() {
		if r.confirmOwner(ctx, s) != nil {
			return // the store reports another missed notice when it is back
		}
	}
}

// applyMove ends or yields the session that the notice is about, if this replica has it.
func (r *Replicator) applyMove(m moveNotice) {
	for s := range r.sessions.all() {
		switch {
		case s.key != m.Key:
		case m.Ended:
			r.sessions.End(s)
		case m.Moves > s.owners.moves: // otherwise the session has come back since
			go r.yield(s)
		}
	}
}

// confirmOwner yields s if another replica has taken it over. It saves s if the last save failed.
func (r *Replicator) confirmOwner(ctx context.Context, s *Session) error {
	s.copy.mu.Lock()
	unsaved := s.copy.unsaved
	s.copy.mu.Unlock()
	if unsaved {
		return r.Save(ctx, s)
	}
	v, version, err := r.read(ctx, s.key)
	if err == nil && version != 0 && (v.Owner != r.self || v.Moves != s.owners.moves) {
		r.yield(s)
	}
	return err
}

// yield gives up a session that another replica owns now. Requests that still run here
// continue. The client opens its notification stream again at the new owner.
func (r *Replicator) yield(s *Session) {
	s.copy.mu.Lock()
	s.copy.lost = true
	s.copy.mu.Unlock()
	r.sessions.yield(s)
	s.closeStream()
	go s.Client.Subscriptions.End() // may wait for servers
}

// Sweep extends the expiry of the sessions in use, and starts subscriptions that failed to start.
// The program calls it every few minutes.
func (r *Replicator) Sweep(ctx context.Context) {
	for s := range r.sessions.all() {
		s.Client.Subscriptions.ReviewAll()
		if idle, ok := s.idleSince(); ok && time.Since(idle) > saveEvery {
			continue
		}
		if err := r.Save(ctx, s); err != nil && !errors.Is(err, store.ErrConflict) {
			return // the next sweep tries again
		}
	}
}

// StreamMoves returns how often the session had moved when the stream of an event began. ok is false
// for an id that names no stream of a request.
func StreamMoves(event string) (moves int64, ok bool) {
	number, _, _ := strings.Cut(event, "-")
	stream, err := strconv.ParseInt(number, 10, 64)
	return stream / streamsPerOwner, err == nil && stream > 0
}

// OwnerAfter returns the owner of the session after so many moves; "" if it is not remembered.
func (v *Stored) OwnerAfter(moves int64) string {
	back := int64(v.Moves) - moves
	switch {
	case back <= 0:
		return v.Owner
	case back > int64(len(v.EarlierOwners)):
		return ""
	}
	return v.EarlierOwners[int64(len(v.EarlierOwners))-back]
}

// PossibleOwners returns the owners that may have the request in flight that m refers to.
func (v *Stored) PossibleOwners(m *wire.Message) []string {
	if m.Kind == wire.Response {
		question, err := strconv.ParseInt(string(m.ID), 10, 64)
		if err != nil {
			return nil
		}
		return []string{v.OwnerAfter(question / questionsPerOwner)}
	}
	all := append(slices.Clone(v.EarlierOwners), v.Owner)
	slices.Reverse(all)
	return all
}
