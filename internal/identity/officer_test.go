package identity_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// revoked are the hashes of revoked keys; nil refuses every key.
type revoked map[[32]byte]bool

func (r revoked) CheckKey(hash [32]byte) error {
	if r == nil {
		return switchboard.Refuse(switchboard.CodeStoreUnavailable, "not read")
	}
	if r[hash] {
		return switchboard.Refuse(switchboard.CodeNotAuthenticated, "revoked")
	}
	return nil
}

func personKey(t *testing.T, r identity.OfficerKey) (text string, row identity.OfficerKey) {
	t.Helper()
	text, _ = identity.Mint(identity.PersonPrefix)
	r.Hash = sha256.Sum256([]byte(text))
	return text, r
}

func refusal(err error) string {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return string(e.Code) + " " + e.Text
	}
	return ""
}

func TestAllRowsOfAPersonsKeyAddUp(t *testing.T) {
	ann, member := personKey(t, identity.OfficerKey{ID: "ann", Tenant: "acme", Offices: []switchboard.Office{switchboard.OfficeViewer}})
	approver, operator, expired := member, member, member
	approver.Offices = []switchboard.Office{switchboard.OfficeApprover}
	operator.Tenant, operator.Offices, operator.Operator, operator.ID = "", nil, true, "ops"
	expired.Tenant, expired.Expires = "umbrella", time.Now().Add(-time.Second)
	for _, tt := range []struct {
		name            string
		rows            []identity.OfficerKey
		id              string
		acme, umbrella  string // the offices
		operates        bool
		mayApproveAcme  bool
		maySeeUmbrellas bool
	}{
		{"a member", []identity.OfficerKey{member}, "ann", "viewer", "", false, false, false},
		{"a member who approves", []identity.OfficerKey{approver, member}, "ann", "approver viewer", "", false, true, false},
		{"an operator approves nothing", []identity.OfficerKey{operator}, "ops", "", "", true, false, true},
		{"an operator who approves", []identity.OfficerKey{approver, operator}, "ops", "approver", "", true, true, true},
		{"an expired row gives nothing", []identity.OfficerKey{member, expired}, "ann", "viewer", "", false, false, false},
	} {
		o, err := identity.NewOfficers(tt.rows, nil, nil).Authenticate(request("192.0.2.7:1", "/v1/status", "Authorization", "Bearer "+ann))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		words := func(tenant switchboard.TenantID) string {
			var all []string
			for _, office := range o.Offices[tenant] {
				all = append(all, string(office))
			}
			return strings.Join(all, " ")
		}
		if o.ID != tt.id || o.Operator != tt.operates || words("acme") != tt.acme || words("umbrella") != tt.umbrella ||
			o.Holds(switchboard.OfficeApprover, "acme") != tt.mayApproveAcme || o.Sees("umbrella") != tt.maySeeUmbrellas {
			t.Errorf("%s: %+v", tt.name, o)
		}
	}
}

// AZ-13: no credential opens both listeners, and one of the other listener gets the answer of an unknown one, to the letter.
func TestAZ13AKeyOfTheOtherListenerIsUnknown(t *testing.T) {
	agents, alice := ring(t)
	ann, row := personKey(t, identity.OfficerKey{ID: "ann", Operator: true})
	officers := identity.NewOfficers([]identity.OfficerKey{row}, nil, nil)
	strangeAgent, _ := identity.Mint(identity.AgentPrefix)
	strangePerson, _ := identity.Mint(identity.PersonPrefix)
	ask := func(key string) *http.Request { return request("192.0.2.7:1", "/", "Authorization", "Bearer "+key) }
	for _, tt := range []struct {
		name         string
		known, other string
		ask          func(key string) error
	}{
		{"at /mcp", strangeAgent, ann, func(key string) error { _, err := agents.Authenticate(ask(key)); return err }},
		{"at the admin side", strangePerson, alice, func(key string) error { _, err := officers.Authenticate(ask(key)); return err }},
	} {
		unknown, other := refusal(tt.ask(tt.known)), refusal(tt.ask(tt.other))
		if unknown == "" || unknown != other {
			t.Errorf("%s: an unknown key gets %q, and one of the other listener %q", tt.name, unknown, other)
		}
	}
}

func TestWhyAPersonsKeyIsRefused(t *testing.T) {
	ann, row := personKey(t, identity.OfficerKey{ID: "ann", Operator: true})
	stranger, _ := personKey(t, identity.OfficerKey{})
	typo := []byte(ann)
	if typo[10]--; !strings.ContainsRune("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", rune(typo[10])) {
		typo[10] = 'x'
	}
	for _, tt := range []struct {
		name   string
		check  identity.KeyCheck
		header []string
		want   string
	}{
		{"no key", nil, nil, "SB-AUTH-001 the request has no key: send yours as \"Authorization: Bearer swo_…\""},
		{"two keys", nil, []string{"Authorization", "Bearer " + ann, "Authorization", "Bearer " + ann}, "SB-AUTH-001 the request has 2 headers"},
		{"no bearer", nil, []string{"Authorization", ann}, "SB-AUTH-001 the header Authorization holds no key"},
		{"another word", nil, []string{"Authorization", "Bearer secret"}, "SB-AUTH-001 the header Authorization holds no key"},
		{"a typing error", nil, []string{"Authorization", "Bearer " + string(typo)}, "SB-AUTH-001 this key is mistyped"},
		{"half of it", nil, []string{"Authorization", "Bearer " + ann[:20]}, "SB-AUTH-001 this is not a whole key"},
		{"with a line end", nil, []string{"Authorization", "Bearer " + ann[:52] + "="}, "SB-AUTH-001 this is not a whole key"},
		{"of another Switchboard", nil, []string{"Authorization", "Bearer " + stranger}, "SB-AUTH-001 this key is not known here"},
		{"a revoked key", revoked{row.Hash: true}, []string{"Authorization", "Bearer " + ann}, "SB-AUTH-001 revoked"},
		{"before the revocations are known", revoked(nil), []string{"Authorization", "Bearer " + ann}, "SB-ROUT-004 not read"},
	} {
		_, err := identity.NewOfficers([]identity.OfficerKey{row}, nil, tt.check).Authenticate(request("127.0.0.1:1", "/", tt.header...))
		if !strings.HasPrefix(refusal(err), tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, refusal(err), tt.want)
		}
	}
	if _, err := identity.NewOfficers([]identity.OfficerKey{row}, nil, nil).Authenticate(request("127.0.0.1:1", "/?key="+ann, "Authorization", "Bearer "+ann)); !strings.Contains(refusal(err), "in the URL") {
		t.Errorf("a key in the URL: %v", err)
	}
}

func TestAPersonsKeyEndsWithItsLastRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, row := personKey(t, identity.OfficerKey{ID: "ann", Tenant: "acme", Offices: []switchboard.Office{switchboard.OfficeViewer}, Expires: time.Now().Add(time.Hour)})
		officers := identity.NewOfficers([]identity.OfficerKey{row}, nil, nil)
		ask := func() string {
			_, err := officers.Authenticate(request("127.0.0.1:1", "/", "Authorization", "Bearer "+ann))
			return refusal(err)
		}
		time.Sleep(time.Hour - 1)
		if got := ask(); got != "" {
			t.Errorf("before its end: %s", got)
		}
		time.Sleep(time.Nanosecond)
		if got := ask(); !strings.HasPrefix(got, "SB-AUTH-003") {
			t.Errorf("at its end: %q", got)
		}
	})
}

func TestARevokedKeyOfAnAgentIsRefusedAndTheNextOneIsNot(t *testing.T) {
	old, _ := identity.Mint(identity.AgentPrefix)
	next, _ := identity.Mint(identity.AgentPrefix)
	check := revoked{}
	r := identity.New([]identity.Key{
		{Tenant: "acme", ID: "alice", Hash: sha256.Sum256([]byte(old))}, {Tenant: "acme", ID: "alice", Hash: sha256.Sum256([]byte(next))},
	}, &switchboard.Tenant{ID: "default"}, false, check)
	p, err := r.Authenticate(request("192.0.2.7:1", "/mcp", "Authorization", "Bearer "+old))
	if err != nil {
		t.Fatal(err)
	}
	check[sha256.Sum256([]byte(old))] = true
	if _, err := r.Authenticate(request("192.0.2.7:1", "/mcp", "Authorization", "Bearer "+old)); refusal(err) != "SB-AUTH-001 revoked" {
		t.Errorf("the revoked key: %v", err)
	}
	if _, err := r.Authenticate(request("192.0.2.7:1", "/mcp", "Authorization", "Bearer "+next)); err != nil {
		t.Errorf("the next key: %v", err)
	}
	if _, err := r.Current(p); err != nil {
		t.Errorf("the principal, which has another key: %v", err)
	}
	check[sha256.Sum256([]byte(next))] = true
	if _, err := r.Current(p); refusal(err) != "SB-AUTH-001 revoked" {
		t.Errorf("the principal without a key: %v", err)
	}
	if got := r.Hashes("acme", "alice"); len(got) != 2 || !slices.Equal(r.KeyIDs("acme"), []string{"alice"}) {
		t.Errorf("the keys: %x %q", got, r.KeyIDs("acme"))
	}
}

func TestRowsGiveThePersonsWhomTheyMatchOffices(t *testing.T) {
	const admin, author, viewer = switchboard.OfficeAdmin, switchboard.OfficeAuthor, switchboard.OfficeViewer
	in := func(tenant switchboard.TenantID, claim, value string, offices ...switchboard.Office) identity.OfficerClaim {
		return identity.OfficerClaim{Issuer: "idp", Claim: claim, Value: value, Tenant: tenant, Offices: offices}
	}
	platform := identity.OfficerClaim{Issuer: "idp", Claim: "groups", Value: "platform", Operator: true}
	elsewhere := identity.OfficerClaim{Issuer: "other", Claim: "groups", Value: "leads", Operator: true}
	for _, tt := range []struct {
		name   string
		claims map[string][]string
		rows   []identity.OfficerClaim
		want   string
	}{
		{"a group", map[string][]string{"groups": {"staff", "leads"}}, []identity.OfficerClaim{in("acme", "groups", "leads", viewer)}, "map[acme:[viewer]]"},
		{"all rows that match add up", map[string][]string{"groups": {"leads"}, "email": {"ann@example.com"}}, []identity.OfficerClaim{in("acme", "groups", "leads", viewer, author), in("acme", "email", "ann@example.com", admin), in("beta", "groups", "leads", viewer)}, "map[acme:[admin author viewer] beta:[viewer]]"},
		{"an operator", map[string][]string{"groups": {"platform"}}, []identity.OfficerClaim{platform, in("acme", "groups", "platform", viewer)}, "operator map[acme:[viewer]]"},
		{"no row matches", map[string][]string{"groups": {"lead", "leads2", "Leads"}}, []identity.OfficerClaim{in("acme", "groups", "leads", viewer)}, "SB-AUTH-002"},
		{"the claim is absent", nil, []identity.OfficerClaim{in("acme", "groups", "leads", viewer)}, "SB-AUTH-002"},
		{"the value stands in another claim", map[string][]string{"department": {"leads"}}, []identity.OfficerClaim{in("acme", "groups", "leads", viewer)}, "SB-AUTH-002"},
		{"AZ-15: another issuer states the group", map[string][]string{"groups": {"leads"}}, []identity.OfficerClaim{elsewhere}, "SB-AUTH-002"},
	} {
		o, err := identity.NewOfficers(nil, tt.rows, nil).ByPerson(&identity.Person{Issuer: "idp", Subject: "00u1", Claims: tt.claims})
		got := fmt.Sprint(o.Offices)
		if o.Operator {
			got = "operator " + got
		}
		if err != nil {
			got, _, _ = strings.Cut(refusal(err), " ")
		} else if o.ID != "idp/00u1" || o.Auth != switchboard.AuthSignIn {
			t.Errorf("%s: it is %s, by %s", tt.name, o.ID, o.Auth)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestABlockedPersonHasNoOffice(t *testing.T) {
	ann, ben := &identity.Person{Issuer: "idp", Subject: "ann"}, &identity.Person{Issuer: "idp", Subject: "ben"}
	rows := []identity.OfficerClaim{{Issuer: "idp", Claim: "sub", Value: "x", Operator: true}}
	ann.Claims, ben.Claims = map[string][]string{"sub": {"x"}}, map[string][]string{"sub": {"x"}}
	officers := identity.NewOfficers(nil, rows, revoked{ann.Hash(): true})
	if _, err := officers.ByPerson(ann); err == nil {
		t.Error("a blocked person is an officer")
	}
	if _, err := officers.ByPerson(ben); err != nil {
		t.Errorf("the other one is refused: %v", err)
	}
}
