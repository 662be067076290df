package identity

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
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

// addUp adds rows up: all tasks, all roles, the least mode. ok is false if no row has a task.
func addUp(rows []switchboard.CallRights) (p switchboard.Principal, ok bool) {
	p.Mode = switchboard.Autopilot
	for _, r := range rows {
		if len(r.Tasks) == 0 {
			continue
		}
		p.Tasks, p.Roles = append(p.Tasks, r.Tasks...), append(p.Roles, r.Roles...)
		p.Tier, p.Mode = r.Tier, p.Mode.Narrower(r.Mode)
	}
	slices.Sort(p.Tasks)
	slices.Sort(p.Roles)
	p.Tasks, p.Roles = slices.Compact(p.Tasks), slices.Compact(p.Roles)
	return p, len(p.Tasks) > 0
}

// A personCalls finds what persons who call tools may do now.
type personCalls struct {
	officers *Officers
	recent   *RecentPersons

	assumed []switchboard.TaskID // without officers: see AssumePersons
}

// LetPersonsCall returns a ring that also knows the persons to whom member rows give tasks.
func LetPersonsCall(r *Ring, officers *Officers, recent *RecentPersons) *Ring {
	own := *r
	own.persons = &personCalls{officers: officers, recent: recent}
	return &own
}

// AssumePersons returns a ring to which persons are what a record says of them, and which lets them bind the tasks. A record does not say which rows have
// made them so.
func AssumePersons(r *Ring, tasks []switchboard.TaskID) *Ring {
	own := *r
	own.persons = &personCalls{assumed: tasks}
	return &own
}

// current is Ring.Current for a person. The person's key may be revoked since, or the person blocked.
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
	claims, ok := c.recent.claimsOf(id)
	if !ok {
		return switchboard.Principal{}, refused
	}
	who, err := c.officers.ByPerson(&Person{Issuer: issuer, Subject: subject, Claims: claims})
	if err != nil {
		return switchboard.Principal{}, err
	}
	return c.officers.Caller(&who, p.Tenant)
}

// How long, and of how many persons, claims are remembered. A session is no longer.
const (
	recentTime = 12 * time.Hour
	maxRecent  = 4096
)

// RecentPersons remember the claims of the persons who called tools lately: a run is decided again while its person sends no request. Their zero value
// remembers nobody. They are safe for concurrent use.
type RecentPersons struct {
	// Find, if not nil, looks for a person who is not remembered, for example among the sessions of other replicas.
	Find func(id string) (claims map[string][]string, ok bool)

	mu  sync.Mutex
	all map[string]recentPerson
}

type recentPerson struct {
	claims map[string][]string
	until  time.Time
	known  bool // false: it was looked for, and not found
}

// Remember keeps the claims of an officer who has signed in.
func (c *RecentPersons) Remember(o *switchboard.Officer) {
	if o.Auth == switchboard.AuthSignIn {
		c.keep(o.ID, recentPerson{o.Claims, time.Now().Add(recentTime), true})
	}
}

func (c *RecentPersons) keep(id string, p recentPerson) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]recentPerson{}
	}
	if len(c.all) >= maxRecent {
		now := time.Now()
		for other, o := range c.all {
			if o.until.Before(now) || len(c.all) >= maxRecent {
				delete(c.all, other) // if all are recent, any one: it is found again
			}
		}
	}
	c.all[id] = p
}

// claimsOf returns the claims of a person.
func (c *RecentPersons) claimsOf(id string) (claims map[string][]string, ok bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	p, found := c.all[id]
	c.mu.Unlock()
	if found && time.Now().Before(p.until) {
		return p.claims, p.known
	}
	if c.Find == nil {
		return nil, false
	}
	p = recentPerson{until: time.Now().Add(5 * time.Second)}
	if p.claims, p.known = c.Find(id); p.known {
		p.until = time.Now().Add(recentTime)
	}
	c.keep(id, p)
	return p.claims, p.known
}
