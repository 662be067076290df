package identity_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func rights(mode switchboard.Mode, roles []string, tasks ...switchboard.TaskID) switchboard.CallRights {
	return switchboard.CallRights{Tasks: tasks, Roles: roles, Mode: mode}
}

// A person calls tools as the sum of the member rows of the tenant, and as a principal that no key can be.
func TestAPersonsMemberRowsAddUp(t *testing.T) {
	viewer := []switchboard.Office{switchboard.OfficeViewer}
	key, row := personKey(t, identity.OfficerKey{ID: "ann", Tenant: "acme", Offices: viewer, Calls: rights(switchboard.Assist, []string{"b"}, "two")})
	second, other, bare, operator, expired := row, row, row, row, row
	second.Calls = rights(switchboard.Observe, []string{"a", "b"}, "one", "two")
	other.Tenant, other.Calls = "umbrella", rights("", nil, "three")
	bare.Calls = rights(switchboard.Observe, []string{"boss"})
	operator.Tenant, operator.Offices, operator.Operator, operator.Calls = "", nil, true, switchboard.CallRights{}
	expired.Expires = time.Now().Add(-time.Second)
	renamed := row
	renamed.ID, renamed.Tenant = "abe", "umbrella"
	for _, tt := range []struct {
		name string
		rows []identity.OfficerKey
		want string // tasks, roles and mode, or the code
	}{
		{"one row", []identity.OfficerKey{row}, "two b assist"},
		{"two rows", []identity.OfficerKey{row, second}, "one,two a,b observe"},
		{"a row of another tenant", []identity.OfficerKey{row, other}, "two b assist"},
		{"a row without a task", []identity.OfficerKey{bare, row}, "two b,boss observe"},
		{"no row with a task", []identity.OfficerKey{bare}, "SB-AUTH-002"},
		{"a row that has expired", []identity.OfficerKey{expired, bare}, "SB-AUTH-002"},
		{"a row of another tenant with another name", []identity.OfficerKey{renamed, row}, "SB-AUTH-002"},
		{"the key of an operator", []identity.OfficerKey{row, operator}, "SB-AUTH-002"},
	} {
		officers := identity.NewOfficers(tt.rows, nil, nil)
		who, err := officers.ByKey(key)
		if err != nil {
			t.Fatal(err)
		}
		p, err := officers.Caller(&who, "acme")
		got := strings.Join([]string{strings.Join(textsOf(p.Tasks), ","), strings.Join(p.Roles, ","), string(p.Mode)}, " ")
		if err != nil {
			got, _, _ = strings.Cut(refusal(err), " ")
		} else if p.ID != "ann@page" || p.Tenant != "acme" || p.Auth != switchboard.AuthPersonKey || switchboard.PersonBehind(p.ID) != "ann" || switchboard.CheckID(p.ID) == nil {
			t.Errorf("%s: the principal is %+v", tt.name, p)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if keys := officers.KeysOf(&p); err == nil && !slices.Contains(keys, who.Credential) {
			t.Errorf("%s: the keys are %q", tt.name, keys)
		}
		now, again := identity.LetPersonsCall(identity.New(nil, &switchboard.Tenant{ID: "acme"}, true, nil), officers, nil).Current(switchboard.Principal{Tenant: "acme", ID: "ann@page", Auth: switchboard.AuthPersonKey})
		if (again == nil) != (err == nil) || again == nil && (!slices.Equal(now.Tasks, p.Tasks) || now.Mode != p.Mode) {
			t.Errorf("%s: later it is %+v, %v", tt.name, now, again)
		}
	}
}

func textsOf(tasks []switchboard.TaskID) (texts []string) {
	for _, t := range tasks {
		texts = append(texts, string(t))
	}
	return texts
}

// What a person may do is found out at each use: with the rows of now and the claims of the newest session, and unless the key is revoked, the person
// blocked, or the last session ended.
func TestAPersonWhoCallsToolsIsJudgedByTheRowsOfNow(t *testing.T) {
	ring := identity.New(nil, &switchboard.Tenant{ID: "acme"}, true, nil)
	claim := identity.OfficerClaim{Issuer: "idp", Claim: "groups", Value: "dev", Tenant: "acme", Offices: []switchboard.Office{switchboard.OfficeViewer}, Calls: rights("", nil, "all")}
	person := &identity.Person{Issuer: "idp", Subject: "00u1", Claims: map[string][]string{"groups": {"dev"}}}
	principal := switchboard.Principal{Tenant: "acme", ID: "idp/00u1@page", Auth: switchboard.AuthSignIn}
	signedIn := &identity.SignedIn{List: func() (map[string]map[string][]string, error) {
		return map[string]map[string][]string{person.ID(): person.Claims, "idp/00u3": {"groups": {"sales"}}}, nil
	}}
	current := func(p switchboard.Principal, check identity.KeyCheck, claims ...identity.OfficerClaim) string {
		now, err := identity.LetPersonsCall(ring, identity.NewOfficers(nil, claims, check), signedIn).Current(p)
		if err != nil {
			code, _, _ := strings.Cut(refusal(err), " ")
			return code
		}
		return strings.Join(textsOf(now.Tasks), ",")
	}
	officers := identity.NewOfficers(nil, []identity.OfficerClaim{claim}, nil)
	who, err := officers.ByPerson(person)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := officers.Caller(&who, "acme"); err != nil || p.ID != principal.ID || p.Auth != principal.Auth {
		t.Errorf("the principal is %+v, %v", p, err)
	}
	narrow := claim
	narrow.Calls = rights(switchboard.Observe, nil)
	named := func(id string) switchboard.Principal {
		return switchboard.Principal{Tenant: "acme", ID: id, Auth: switchboard.AuthSignIn}
	}
	for _, tt := range []struct {
		name   string
		p      switchboard.Principal
		check  identity.KeyCheck
		claims []identity.OfficerClaim
		want   string
	}{
		{"with the row", principal, nil, []identity.OfficerClaim{claim}, "all"},
		{"without the row", principal, nil, nil, "SB-AUTH-002"},
		{"with a row that has no task", principal, nil, []identity.OfficerClaim{narrow}, "SB-AUTH-002"},
		{"blocked", principal, revoked{person.Hash(): true}, []identity.OfficerClaim{claim}, "SB-AUTH-001"},
		{"without a session", named("idp/00u2@page"), nil, []identity.OfficerClaim{claim}, "SB-AUTH-001"},
		{"whose session has other claims", named("idp/00u3@page"), nil, []identity.OfficerClaim{claim}, "SB-AUTH-002"},
		{"with the id of an agent", switchboard.Principal{Tenant: "acme", ID: "idp/00u1@page", Auth: switchboard.AuthAPIKey}, nil, []identity.OfficerClaim{claim}, "SB-AUTH-001"},
	} {
		if got := current(tt.p, tt.check, tt.claims...); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}

	// A row without an office narrows the mode, and gives nothing: no sign-in, and no role of approvers.
	bare := identity.OfficerClaim{Issuer: "idp", Claim: "level", Value: "trainee", Tenant: "acme", Calls: rights(switchboard.Observe, nil)}
	person.Claims = map[string][]string{"groups": {"dev"}, "level": {"trainee"}}
	officers = identity.NewOfficers(nil, []identity.OfficerClaim{claim, bare}, nil)
	who, err = officers.ByPerson(person)
	if p, err2 := officers.Caller(&who, "acme"); err != nil || err2 != nil || p.Mode != switchboard.Observe || !slices.Equal(who.Roles["acme"], []string{"dev"}) {
		t.Errorf("with a row without an office: %+v as %+v, %v, %v", p, who, err, err2)
	}
	if who, err := identity.NewOfficers(nil, []identity.OfficerClaim{bare}, nil).ByPerson(person); !strings.HasPrefix(refusal(err), "SB-AUTH-002") {
		t.Errorf("with no other row: %+v, %v", who, err)
	}

	text, row := personKey(t, identity.OfficerKey{ID: "ann", Tenant: "acme", Offices: claim.Offices, Calls: rights("", nil, "all")})
	byKey := switchboard.Principal{Tenant: "acme", ID: "ann@page", Auth: switchboard.AuthPersonKey}
	for check, want := range map[bool]string{false: "", true: "SB-AUTH-001"} {
		_, err := identity.LetPersonsCall(ring, identity.NewOfficers([]identity.OfficerKey{row}, nil, revoked{sha256.Sum256([]byte(text)): check}), signedIn).Current(byKey)
		if got, _, _ := strings.Cut(refusal(err), " "); got != want {
			t.Errorf("the key is revoked: %t: %q", check, got)
		}
	}
}

// The sessions are read again when one has begun or ended here, and after a second: also for persons who have none. While they cannot be read, nobody is said
// to have none.
func TestSessionsThatWereReadCountForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := identity.OfficerClaim{Issuer: "idp", Claim: "groups", Value: "dev", Tenant: "acme", Offices: []switchboard.Office{switchboard.OfficeViewer}, Calls: rights("", nil, "all")}
		sessions, away, reads := map[string]map[string][]string{}, error(nil), 0
		signedIn := &identity.SignedIn{List: func() (map[string]map[string][]string, error) {
			reads++
			return maps.Clone(sessions), away
		}}
		ring := identity.LetPersonsCall(identity.New(nil, &switchboard.Tenant{ID: "acme"}, true, nil), identity.NewOfficers(nil, []identity.OfficerClaim{row}, nil), signedIn)
		check := func(when, want string, read int) {
			t.Helper()
			_, err := ring.Current(switchboard.Principal{Tenant: "acme", ID: "idp/ann@page", Auth: switchboard.AuthSignIn})
			if got, _, _ := strings.Cut(refusal(err), " "); got != want || reads != read {
				t.Errorf("%s: %q after %d reads, want %q after %d", when, got, reads, want, read)
			}
		}
		check("before the sign-in", "SB-AUTH-001", 1)
		for i := range 200 {
			_, err := ring.Current(switchboard.Principal{Tenant: "acme", ID: fmt.Sprintf("idp/%d@page", i), Auth: switchboard.AuthSignIn})
			if got, _, _ := strings.Cut(refusal(err), " "); got != "SB-AUTH-001" || reads != 1 {
				t.Fatalf("a person who has signed out: %q after %d reads", got, reads)
			}
		}
		sessions["idp/ann"] = map[string][]string{"groups": {"dev"}}
		signedIn.Reread()
		check("after it", "", 2)
		check("again", "", 2)
		clear(sessions)
		time.Sleep(time.Second - 1)
		check("the notice of the end was lost", "", 2)
		time.Sleep(time.Nanosecond)
		check("a second later", "SB-AUTH-001", 3)
		sessions["idp/ann"] = map[string][]string{"groups": {"dev"}}
		check("signed in at another replica just now", "SB-AUTH-001", 3)
		time.Sleep(time.Second)
		check("signed in there a second ago", "", 4)
		clear(sessions)
		signedIn.Reread()
		check("the session has ended", "SB-AUTH-001", 5)
		time.Sleep(time.Second)
		away = switchboard.Refuse(switchboard.CodeStoreUnavailable, "away")
		check("the store is away", "SB-ROUT-004", 6)
		check("it still is", "SB-ROUT-004", 6)
		away, sessions["idp/ann"] = nil, map[string][]string{"groups": {"dev"}}
		time.Sleep(time.Second)
		check("it is back", "", 7)
	})
}

// All who ask while the sessions are read get the answer of that reading, unless a session has begun or ended since: then they do not wait for it.
func TestNoQuestionWaitsForAnOlderReadingOfTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := identity.OfficerClaim{Issuer: "idp", Claim: "groups", Value: "dev", Tenant: "acme", Offices: []switchboard.Office{switchboard.OfficeViewer}, Calls: rights("", nil, "all")}
		slow, reads := make(chan struct{}), 0
		signedIn := &identity.SignedIn{List: func() (map[string]map[string][]string, error) {
			if reads++; reads == 1 {
				<-slow
				return nil, nil
			}
			return map[string]map[string][]string{"idp/ann": {"groups": {"dev"}}}, nil
		}}
		ring := identity.LetPersonsCall(identity.New(nil, &switchboard.Tenant{ID: "acme"}, true, nil), identity.NewOfficers(nil, []identity.OfficerClaim{row}, nil), signedIn)
		var refused atomic.Int32
		ask := func() {
			if _, err := ring.Current(switchboard.Principal{Tenant: "acme", ID: "idp/ann@page", Auth: switchboard.AuthSignIn}); err != nil {
				refused.Add(1)
			}
		}
		for range 10 {
			go ask()
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		go ask()
		synctest.Wait()
		if reads != 1 || refused.Load() != 0 {
			t.Errorf("%d reads, and %d answers of a reading that goes on", reads, refused.Load())
		}
		signedIn.Reread()
		ask()
		if reads != 2 || refused.Load() != 0 {
			t.Errorf("after a sign-in: %d reads, %d refused", reads, refused.Load())
		}
		close(slow)
		synctest.Wait()
		if ask(); reads != 2 || refused.Load() != 11 {
			t.Errorf("in the end: %d reads, %d refused", reads, refused.Load())
		}
	})
}

// Persons who may call tools share the servers with everybody else.
func TestPersonsAreNeighbors(t *testing.T) {
	_, ann := personKey(t, identity.OfficerKey{ID: "ann", Tenant: "acme", Calls: rights("", nil, "all")})
	_, viewer := personKey(t, identity.OfficerKey{ID: "vic", Tenant: "acme"})
	devs := identity.OfficerClaim{Issuer: "idp", Claim: "groups", Value: "dev", Tenant: "umbrella", Calls: rights("", nil, "all")}
	agent := switchboard.Principal{Tenant: "acme", ID: "alice", Auth: switchboard.AuthAPIKey}
	person := switchboard.Principal{Tenant: "acme", ID: "ann@page", Auth: switchboard.AuthPersonKey}
	dev := switchboard.Principal{Tenant: "umbrella", ID: "idp/00u1@page", Auth: switchboard.AuthSignIn}
	local := identity.Local("acme")
	keyed := []identity.Key{{Tenant: "acme", ID: "alice"}}
	for _, tt := range []struct {
		name                string
		keys                []identity.Key
		people              []identity.OfficerKey
		claims              []identity.OfficerClaim
		who                 switchboard.Principal
		tenants, principals bool
	}{
		{"an agent beside a person", keyed, []identity.OfficerKey{ann}, nil, agent, false, true},
		{"a person beside an agent", keyed, []identity.OfficerKey{ann}, nil, person, false, true},
		{"an agent beside a person without a task", keyed, []identity.OfficerKey{viewer}, nil, agent, false, false},
		{"an agent beside persons of another tenant", keyed, nil, []identity.OfficerClaim{devs}, agent, true, false},
		{"persons whom one claim names", nil, nil, []identity.OfficerClaim{devs}, dev, true, true},
		{"the local user beside a person", nil, []identity.OfficerKey{ann}, nil, local, false, true},
		{"a person beside the local user", nil, []identity.OfficerKey{ann}, nil, person, false, true},
		{"the local user alone", nil, []identity.OfficerKey{viewer}, nil, local, false, false},
	} {
		ring := identity.LetPersonsCall(identity.New(tt.keys, &switchboard.Tenant{ID: "acme"}, len(tt.keys) == 0, nil), identity.NewOfficers(tt.people, tt.claims, nil), nil)
		if tenants, principals := ring.Neighbors(tt.who); tenants != tt.tenants || principals != tt.principals {
			t.Errorf("%s: %t %t, want %t %t", tt.name, tenants, principals, tt.tenants, tt.principals)
		}
	}
}
