package identity

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type callerKey struct{}

// AsCaller returns the context of a request that this process itself makes for a principal. No request from outside has one.
func AsCaller(ctx context.Context, p switchboard.Principal) context.Context {
	return context.WithValue(ctx, callerKey{}, p)
}

// CallerOf returns the principal of a context of AsCaller.
func CallerOf(ctx context.Context) (p switchboard.Principal, ok bool) {
	p, ok = ctx.Value(callerKey{}).(switchboard.Principal)
	return p, ok
}

// Caller returns the principal as which the officer calls tools of a tenant: the person through the page. All member rows that match add up. The error is
// a *switchboard.Error: SB-AUTH-002 if no row gives the person a task there.
func (o *Officers) Caller(who *switchboard.Officer, tenant switchboard.TenantID) (switchboard.Principal, error) {
	if who.Auth == switchboard.AuthPersonKey && who.Operator {
		e := switchboard.Refuse(switchboard.CodeNotAuthorized, "an operator's key calls no tools")
		e.Hint = "use a key, or sign in as a person, with a task in a row under members of the tenant"
		return switchboard.Principal{}, e
	}
	var rows []switchboard.CallRights
	if who.Auth == switchboard.AuthPersonKey {
		var name string
		if rows, name = o.keyRights(who.Credential, tenant); name != who.ID && name != "" {
			// Else the call would be another person's, and its person could approve it under the other name.
			e := switchboard.Refuse(switchboard.CodeNotAuthorized, "the rows of your key name you %.64s, and in tenant %.64s %.64s, so you can call no tool", who.ID, tenant, name)
			e.Hint = "give the key one id in all its rows"
			return switchboard.Principal{}, e
		}
	} else if issuer, _, ok := strings.Cut(who.ID, "/"); ok && who.Auth == switchboard.AuthSignIn {
		rows = o.claimRights(issuer, who.Claims, tenant)
	}
	p, ok := addUp(rows)
	if !ok {
		e := switchboard.Refuse(switchboard.CodeNotAuthorized, "no row gives you a task in tenant %.64s, so you can call no tool there", tenant)
		e.Hint = "an admin of the tenant can add tasks: [TASK] to your row under members"
		return switchboard.Principal{}, e
	}
	p.Tenant, p.ID, p.Auth = tenant, switchboard.PersonThrough(who.ID, switchboard.PageClient), who.Auth
	return p, nil
}

// keyRights returns the rights that the rows of a person's key in a tenant give, and the name of the last of them. Rows that have expired give none.
func (o *Officers) keyRights(credential string, tenant switchboard.TenantID) (rights []switchboard.CallRights, name string) {
	var hash [32]byte
	if n, err := hex.Decode(hash[:], []byte(credential)); err != nil || n != len(hash) {
		return nil, ""
	}
	for _, r := range o.rows[hash] {
		if r.Tenant == tenant && !r.Operator && (r.Expires.IsZero() || time.Now().Before(r.Expires)) {
			rights, name = append(rights, r.Calls), r.ID
		}
	}
	return rights, name
}

// claimRights returns the rights that the rows of an issuer in a tenant give to a person with the claims.
func (o *Officers) claimRights(issuer string, claims map[string][]string, tenant switchboard.TenantID) (rights []switchboard.CallRights) {
	for _, r := range o.claims[issuer] {
		if r.Tenant == tenant && !r.Operator && slices.Contains(claims[r.Claim], r.Value) {
			rights = append(rights, r.Calls)
		}
	}
	return rights
}

// addUp adds rows up: all tasks, all roles, the first tier, the least mode. ok is false if no row has a task.
func addUp(rows []switchboard.CallRights) (p switchboard.Principal, ok bool) {
	p.Mode = switchboard.Autopilot
	for _, r := range rows {
		p.Tasks, p.Roles = append(p.Tasks, r.Tasks...), append(p.Roles, r.Roles...)
		p.Tier, p.Mode = cmp.Or(p.Tier, r.Tier), p.Mode.Narrower(r.Mode)
	}
	slices.Sort(p.Tasks)
	slices.Sort(p.Roles)
	p.Tasks, p.Roles = slices.Compact(p.Tasks), slices.Compact(p.Roles)
	return p, len(p.Tasks) > 0
}

// A personCalls finds what persons who call tools may do now.
type personCalls struct {
	officers *Officers
	signedIn *SignedIn

	assumed []switchboard.TaskID // without officers: see AssumePersons
}

// LetPersonsCall returns a ring that also knows the persons to whom member rows give tasks. They are neighbors of the principals with keys, and of the
// local principal.
func LetPersonsCall(r *Ring, officers *Officers, signedIn *SignedIn) *Ring {
	own := *r
	own.persons = &personCalls{officers: officers, signedIn: signedIn}
	counts := officers.callerCounts()
	if len(counts) == 0 {
		return &own
	}
	if r.keyless {
		counts[r.local.Tenant]++
	}
	for tenant, n := range r.principalCounts {
		counts[tenant] += n
	}
	own.principalCounts = counts
	return &own
}

// callerCounts returns how many persons may call tools, by tenant. A row with a claim counts as two, because any number of persons can match it.
func (o *Officers) callerCounts() map[switchboard.TenantID]int {
	counts := map[switchboard.TenantID]int{}
	for name := range o.callers {
		counts[name.tenant]++
	}
	for _, rows := range o.claims {
		for i := range rows {
			if len(rows[i].Calls.Tasks) > 0 {
				counts[rows[i].Tenant] += 2
			}
		}
	}
	return counts
}

// KeysOf returns the keys of the person behind a principal, as Officer.Credential names them; none for a person who has signed in.
func (o *Officers) KeysOf(p *switchboard.Principal) (keys []string) {
	for _, hash := range o.callers[principalName{p.Tenant, switchboard.PersonBehind(p.ID), p.Auth}] {
		keys = append(keys, hex.EncodeToString(hash[:]))
	}
	return keys
}

// AssumePersons returns a ring to which persons are what a record says of them, and which lets them bind the tasks. A record does not say which rows have
// made them so.
func AssumePersons(r *Ring, tasks []switchboard.TaskID) *Ring {
	own := *r
	own.persons = &personCalls{assumed: tasks}
	return &own
}

// current is Ring.Current for a person. Since the person was authenticated, the key may have been revoked, the person blocked, or the last session ended.
func (c *personCalls) current(p switchboard.Principal) (switchboard.Principal, error) {
	if c.officers == nil {
		p.Tasks = c.assumed
		return p, nil
	}
	id := switchboard.PersonBehind(p.ID)
	refused := error(switchboard.Refuse(switchboard.CodeNotAuthenticated, "your row under members is gone, or you are not signed in any more"))
	if p.Auth == switchboard.AuthPersonKey {
		for _, hash := range c.officers.callers[principalName{p.Tenant, id, p.Auth}] {
			who, err := c.officers.ByHash(hash)
			if err != nil {
				refused = err
				continue
			}
			now, err := c.officers.Caller(&who, p.Tenant)
			if err == nil && now.ID == p.ID {
				return now, nil
			}
		}
		return switchboard.Principal{}, refused
	}
	issuer, subject, _ := strings.Cut(id, "/")
	claims, ok, err := c.signedIn.claimsOf(id)
	if err != nil {
		return switchboard.Principal{}, err
	}
	if !ok {
		return switchboard.Principal{}, refused
	}
	who, err := c.officers.ByPerson(&Person{Issuer: issuer, Subject: subject, Claims: claims})
	if err != nil {
		return switchboard.Principal{}, err
	}
	return c.officers.Caller(&who, p.Tenant)
}

// signedInTime is how long the sessions that were read count: also for a person who was not among them, who may have signed in at another replica since. It
// limits how often they are read, since one call of a tool asks several times, and runs of persons who have signed out ask at each new state.
const signedInTime = time.Second

// SignedIn knows the claims of all persons with a session. When the last session of a person has ended, the person calls nothing any more, and a call that
// waits for an approval is refused. The zero value knows no person. It is safe for concurrent use.
type SignedIn struct {
	// List returns the claims of each person's newest session, by the person's id. The error is a *switchboard.Error.
	List func() (map[string]map[string][]string, error)

	changes atomic.Int64 // counts Reread

	mu   sync.Mutex       // not held while the sessions are read
	last *sessionsReading // nil before the first
}

// A sessionsReading is one reading of the sessions. All who ask meanwhile wait for it.
type sessionsReading struct {
	changes int64         // before it began
	done    chan struct{} // closed when it has ended, and the fields below are set

	claims map[string]map[string][]string
	err    error
	at     time.Time // when it began; if it failed, when it ended, so that not every question waits for a store that is away
}

// counts reports whether the reading answers a question, now or when it ends.
func (r *sessionsReading) counts(changes int64) bool {
	if r == nil || r.changes != changes {
		return false
	}
	select {
	case <-r.done:
		return time.Since(r.at) < signedInTime
	default:
		return true
	}
}

// Reread makes the next question read the sessions again, because one has begun or ended. It does not wait.
func (s *SignedIn) Reread() { s.changes.Add(1) }

// claimsOf returns the claims of a person. ok is false if the person has no session.
func (s *SignedIn) claimsOf(id string) (claims map[string][]string, ok bool, err error) {
	if s == nil || s.List == nil {
		return nil, false, nil
	}
	r := s.reading()
	<-r.done
	claims, ok = r.claims[id]
	return claims, ok, r.err
}

// reading returns a reading that counts. It may have begun just now, or be in progress.
func (s *SignedIn) reading() *sessionsReading {
	s.mu.Lock()
	changes := s.changes.Load()
	if r := s.last; r.counts(changes) {
		s.mu.Unlock()
		return r
	}
	r := &sessionsReading{changes: changes, done: make(chan struct{}), at: time.Now()}
	s.last = r
	s.mu.Unlock()
	defer close(r.done)
	if r.claims, r.err = s.List(); r.err != nil {
		r.at = time.Now()
	}
	return r
}
