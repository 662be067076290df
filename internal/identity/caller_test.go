package identity_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
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
		{"a row without a task", []identity.OfficerKey{bare, row}, "two b assist"},
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

// What a person may do is found out at each use: with the rows of now, and unless the key is revoked or the person blocked.
func TestAPersonWhoCallsToolsIsJudgedByTheRowsOfNow(t *testing.T) {
	ring := identity.New(nil, &switchboard.Tenant{ID: "acme"}, true, nil)
	claim := identity.OfficerClaim{Issuer: "idp", Claim: "groups", Value: "dev", Tenant: "acme", Offices: []switchboard.Office{switchboard.OfficeViewer}, Calls: rights("", nil, "all")}
	person := &identity.Person{Issuer: "idp", Subject: "00u1", Claims: map[string][]string{"groups": {"dev"}}}
	principal := switchboard.Principal{Tenant: "acme", ID: "idp/00u1@page", Auth: switchboard.AuthSignIn}
	looked := 0
	recent := &identity.RecentPersons{Find: func(id string) (map[string][]string, bool) {
		looked++
		return map[string][]string{"groups": {"dev"}}, id == "idp/00u2"
	}}
	current := func(p switchboard.Principal, check identity.KeyCheck, claims ...identity.OfficerClaim) string {
		now, err := identity.LetPersonsCall(ring, identity.NewOfficers(nil, claims, check), recent).Current(p)
		if err != nil {
			code, _, _ := strings.Cut(refusal(err), " ")
			return code
		}
		return strings.Join(textsOf(now.Tasks), ",")
	}
	if got := current(principal, nil, claim); got != "SB-AUTH-001" {
		t.Errorf("a person who is not known: %q", got)
	}
	officers := identity.NewOfficers(nil, []identity.OfficerClaim{claim}, nil)
	who, err := officers.ByPerson(person)
	if err != nil {
		t.Fatal(err)
	}
	recent.Remember(&who)
	if p, err := officers.Caller(&who, "acme"); err != nil || p.ID != principal.ID || p.Auth != principal.Auth {
		t.Errorf("the principal is %+v, %v", p, err)
	}
	elsewhere := principal
	elsewhere.ID = "idp/00u2@page"
	for _, tt := range []struct {
		name   string
		p      switchboard.Principal
		check  identity.KeyCheck
		claims []identity.OfficerClaim
		want   string
	}{
		{"with the row", principal, nil, []identity.OfficerClaim{claim}, "all"},
		{"without the row", principal, nil, nil, "SB-AUTH-002"},
		{"blocked", principal, revoked{person.Hash(): true}, []identity.OfficerClaim{claim}, "SB-AUTH-001"},
		{"who has a session at another replica", elsewhere, nil, []identity.OfficerClaim{claim}, "all"},
		{"with the id of an agent", switchboard.Principal{Tenant: "acme", ID: "idp/00u1@page", Auth: switchboard.AuthAPIKey}, nil, []identity.OfficerClaim{claim}, "SB-AUTH-001"},
	} {
		if got := current(tt.p, tt.check, tt.claims...); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if current(elsewhere, nil, claim); looked != 2 {
		t.Errorf("sessions were looked through %d times", looked)
	}

	text, row := personKey(t, identity.OfficerKey{ID: "ann", Tenant: "acme", Offices: claim.Offices, Calls: rights("", nil, "all")})
	byKey := switchboard.Principal{Tenant: "acme", ID: "ann@page", Auth: switchboard.AuthPersonKey}
	for check, want := range map[bool]string{false: "", true: "SB-AUTH-001"} {
		_, err := identity.LetPersonsCall(ring, identity.NewOfficers([]identity.OfficerKey{row}, nil, revoked{sha256.Sum256([]byte(text)): check}), recent).Current(byKey)
		if got, _, _ := strings.Cut(refusal(err), " "); got != want {
			t.Errorf("the key is revoked: %t: %q", check, got)
		}
	}
}
