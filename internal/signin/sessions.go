package signin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The groups of this package in the store.
const (
	SessionGroup = "session"
	onceGroup    = "signin" // codes, and states that were used
)

// How long things hold.
const (
	SessionTime = 12 * time.Hour
	IdleTime    = time.Hour
	CodeTime    = time.Minute

	touchAfter = time.Minute // a use is stored that often
)

// maxSessions limits the sessions of all people. It is less than one read of the store returns.
const maxSessions = 4096

const topic = "session"

const storeTimeout = 2 * time.Second

// A Store keeps sessions. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// A Holder is the owner of a session or a code. Exactly one of its fields is set.
type Holder struct {
	Person *identity.Person `json:"person,omitempty"` // signed in at an issuer
	Key    string           `json:"key,omitempty"`    // the SHA-256 of a person's key, in hex
	Local  bool             `json:"local,omitempty"`  // has read the data folder: this machine's operator
}

// A PersonSession is the time between somebody's sign-in and sign-out.
type PersonSession struct {
	Holder
	Began time.Time `json:"began"`
	Used  time.Time `json:"used"` // to a minute
}

// Ends returns when the session ends if it is not used any more.
func (s *PersonSession) Ends() time.Time {
	if idle := s.Used.Add(IdleTime); idle.Before(s.Began.Add(SessionTime)) {
		return idle
	}
	return s.Began.Add(SessionTime)
}

// A ListedSession is a PersonSession with its id for End.
type ListedSession struct {
	ID string
	PersonSession
}

// Sessions keeps sessions and one-time codes in the store. The store has no secret of them, only hashes. It is safe for concurrent use.
type Sessions struct {
	store Store
	began func()
	ended func()
	stop  func()
}

// NewSessions returns Sessions. began is called when a session has begun here, and ended when sessions have ended here or at another replica. They must not
// wait.
func NewSessions(s Store, began, ended func()) *Sessions {
	return &Sessions{store: s, began: began, ended: ended, stop: s.Subscribe(topic, func([]byte) { ended() })}
}

// Close ends the subscription.
func (s *Sessions) Close() { s.stop() }

// unavailable returns the refusal while the store is away. Then all sessions are refused.
func unavailable(err error) error {
	return switchboard.Refuse(switchboard.CodeStoreUnavailable, "sessions cannot be read: %.200v", err)
}

// nameOf returns the name of a secret's row. Its beginning is the id of a session.
func nameOf(kind, secret string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + secret))
	return hex.EncodeToString(sum[:])
}

// idDigits is the length of the id of a session.
const idDigits = 16

// Start starts a session, and returns the secret that the browser has to send. The error is a *switchboard.Error: SB-ROUT-003 if there are too many.
func (s *Sessions) Start(ctx context.Context, h Holder) (secret string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := s.store.List(ctx, SessionGroup)
	if err != nil {
		return "", unavailable(err)
	}
	if len(rows) >= maxSessions {
		return "", switchboard.Refuse(switchboard.CodeOverloaded, "%d people are signed in, the most that may be; \"switchboard sessions end\" ends sessions", len(rows))
	}
	secret = newSecret()
	now := time.Now().UTC().Truncate(time.Second)
	err = s.write(ctx, nameOf("session", secret), 0, &PersonSession{Holder: h, Began: now, Used: now})
	s.began() // also after an error: it may have been written
	return secret, err
}

// write writes the row of a session.
func (s *Sessions) write(ctx context.Context, name string, was store.Version, v *PersonSession) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.store.Apply(ctx, store.Change{Group: SessionGroup, Writes: []store.Write{{Name: name, Was: was, Data: text, TTL: time.Until(v.Ends())}}})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// Read returns the session with the secret. The error is a *switchboard.Error: SB-AUTH-001 if there is none any more.
func (s *Sessions) Read(ctx context.Context, secret string) (*PersonSession, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	name := nameOf("session", secret)
	v, err := s.store.Value(ctx, store.Key{Group: SessionGroup, Name: name})
	if err != nil {
		return nil, unavailable(err)
	}
	var own PersonSession
	now := time.Now()
	if v.Data == nil || json.Unmarshal(v.Data, &own) != nil || !now.Before(own.Ends()) {
		return nil, refuse("you are not signed in, or not any more: a session ends after %.0f hours, and after %.0f minutes without use", SessionTime.Hours(), IdleTime.Minutes())
	}
	if now.Sub(own.Used) >= touchAfter {
		own.Used = now.UTC().Truncate(time.Second)
		_ = s.write(ctx, name, v.Version, &own) // if it was ended meanwhile, it stays ended
	}
	return &own, nil
}

// List returns all sessions, the oldest first.
func (s *Sessions) List(ctx context.Context) ([]ListedSession, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := s.store.List(ctx, SessionGroup)
	if err != nil {
		return nil, unavailable(err)
	}
	var all []ListedSession
	for _, row := range rows {
		one := ListedSession{ID: row.Name[:idDigits]}
		if json.Unmarshal(row.Data, &one.PersonSession) == nil && time.Now().Before(one.Ends()) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b ListedSession) int { return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

// EndOwn ends the session with the secret. To end one that has ended is no error.
func (s *Sessions) EndOwn(ctx context.Context, secret string) error {
	return s.end(ctx, nameOf("session", secret))
}

// End ends the session with an id of List, and reports whether there was one.
func (s *Sessions) End(ctx context.Context, id string) (bool, error) {
	rows, err := s.store.List(ctx, SessionGroup)
	if err != nil {
		return false, unavailable(err)
	}
	i := slices.IndexFunc(rows, func(r store.NamedValue) bool { return len(id) == idDigits && r.Name[:idDigits] == id })
	if i < 0 {
		return false, nil
	}
	return true, s.end(ctx, rows[i].Name)
}

func (s *Sessions) end(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if _, err := s.store.Apply(ctx, store.Change{Group: SessionGroup, Writes: []store.Write{{Name: name, Was: store.Any}}}); err != nil {
		return unavailable(err)
	}
	s.ended()
	_ = s.store.Publish(ctx, topic, []byte("ended")) // others notice it at their next look
	return nil
}

// NewCode returns a code with which a browser starts a session, once, within CodeTime.
func (s *Sessions) NewCode(ctx context.Context, h Holder) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	text, err := json.Marshal(h)
	if err != nil {
		return "", err
	}
	code := newSecret()
	_, err = s.store.Apply(ctx, store.Change{Group: onceGroup, Writes: []store.Write{{Name: nameOf("code", code), Data: text, TTL: CodeTime}}})
	if err != nil {
		return "", unavailable(err)
	}
	return code, nil
}

// UseCode returns whose code it is, the first time. The error is a *switchboard.Error.
func (s *Sessions) UseCode(ctx context.Context, code string) (h Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	name := nameOf("code", code)
	v, err := s.store.Value(ctx, store.Key{Group: onceGroup, Name: name})
	if err != nil {
		return h, unavailable(err)
	}
	if v.Data == nil || json.Unmarshal(v.Data, &h) != nil {
		return Holder{}, refuse("this code was used, or is older than %.0f seconds; \"switchboard page\" gives another one", CodeTime.Seconds())
	}
	_, err = s.store.Apply(ctx, store.Change{Group: onceGroup, Writes: []store.Write{{Name: name, Was: v.Version}}})
	switch {
	case errors.Is(err, store.ErrConflict):
		return Holder{}, refuse("this code was used")
	case err != nil:
		return Holder{}, unavailable(err)
	}
	return h, nil
}

// UseState records that the state of a sign-in was used. The error is a *switchboard.Error if it was used before.
func (s *Sessions) UseState(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := s.store.Apply(ctx, store.Change{Group: onceGroup, Writes: []store.Write{{Name: nameOf("state", state), Data: []byte("{}"), TTL: AttemptTime}}})
	switch {
	case errors.Is(err, store.ErrConflict):
		return refuse("this sign-in has ended already; start again")
	case err != nil:
		return unavailable(err)
	}
	return nil
}
