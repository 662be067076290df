package identity_test

import (
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func ring(t *testing.T) (r *identity.Ring, alice string) {
	t.Helper()
	text, hash := identity.Mint(identity.AgentPrefix)
	var h [32]byte
	if n, err := hex.Decode(h[:], []byte(strings.TrimPrefix(hash, "sha256:"))); n != len(h) || err != nil {
		t.Fatalf("hash %q: %v", hash, err)
	}
	return identity.New([]identity.Key{{Tenant: "acme", ID: "alice", Hash: h, Tasks: []switchboard.TaskID{"browse"}, Roles: []string{"analyst"}, Tier: "pro", Mode: switchboard.Assist}}, &switchboard.Tenant{ID: "default"}, false, nil), text
}

func request(remote, target string, header ...string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, target, nil)
	req.RemoteAddr = remote
	req = req.WithContext(identity.WithPeer(req.Context(), func() error { return nil }))
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

func TestWhoIsCalling(t *testing.T) {
	keyed, alice := ring(t)
	keyless := identity.New(nil, &switchboard.Tenant{ID: "default"}, true, nil)
	stranger, _ := identity.Mint(identity.AgentPrefix)
	const local, far = "127.0.0.1:4711", "192.0.2.7:4711"
	for _, tt := range []struct {
		name string
		ring *identity.Ring
		req  *http.Request
		want string // tenant/id, or the code
	}{
		{"a key says who", keyed, request(far, "/mcp", "Authorization", "Bearer "+alice), "acme/alice"},
		{"no key", keyed, request(local, "/mcp"), "SB-AUTH-001"},
		{"a key that nobody made", keyed, request(local, "/mcp", "Authorization", "Bearer "+stranger), "SB-AUTH-001"},
		{"AZ-07 two Authorization headers", keyed, request(far, "/mcp", "Authorization", "Bearer "+alice, "Authorization", "Bearer "+alice), "SB-AUTH-001"},
		{"AZ-07 bearer in lower case", keyed, request(far, "/mcp", "Authorization", "bearer "+alice), "SB-AUTH-001"},
		{"AZ-07 an empty key", keyed, request(far, "/mcp", "Authorization", "Bearer "), "SB-AUTH-001"},
		{"AZ-07 a key in the URL", keyed, request(far, "/mcp?Access_Token="+alice, "Authorization", "Bearer "+alice), "SB-AUTH-001"},
		{"AZ-08 headers that claim an identity change nothing", keyed, request(far, "/mcp", "Authorization", "Bearer "+alice, "X-User", "root", "X-Tenant", "other", "X-Forwarded-For", "127.0.0.1"), "acme/alice"},
		{"the tenant that the key belongs to may be named", keyed, request(far, "/mcp", "Authorization", "Bearer "+alice, identity.TenantHeader, "acme"), "acme/alice"},
		{"another tenant may not", keyed, request(far, "/mcp", "Authorization", "Bearer "+alice, identity.TenantHeader, "other"), "SB-AUTH-002"},
		{"keyless, from this machine", keyless, request(local, "/mcp"), "default/local"},
		{"keyless, from this machine by IPv6", keyless, request("[::1]:9", "/mcp"), "default/local"},
		{"keyless, from this machine by a mapped address", keyless, request("[::ffff:127.0.0.1]:9", "/mcp"), "default/local"},
		{"keyless, from elsewhere", keyless, request(far, "/mcp"), "SB-AUTH-001"},
		{"keyless, through a proxy", keyless, request(local, "/mcp", "X-Forwarded-For", "203.0.113.9"), "SB-AUTH-001"},
		{"keyless, through a standard proxy", keyless, request(local, "/mcp", "Forwarded", "for=203.0.113.9"), "SB-AUTH-001"},
		{"keyless, with a key that cannot exist", keyless, request(local, "/mcp", "Authorization", "Bearer "+stranger), "SB-AUTH-001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.ring.Authenticate(tt.req)
			got := string(p.Tenant) + "/" + p.ID
			if err != nil {
				var e *switchboard.Error
				if !errors.As(err, &e) {
					t.Fatalf("error %v is no *switchboard.Error", err)
				}
				got = string(e.Code)
				if strings.Contains(err.Error(), alice) || strings.Contains(err.Error(), stranger) {
					t.Errorf("the refusal repeats the key: %v", err)
				}
			}
			if got != tt.want {
				t.Errorf("got %s, want %s (%v)", got, tt.want, err)
			}
		})
	}
}

func TestAKeyBringsItsTasksRolesTierAndMode(t *testing.T) {
	r, alice := ring(t)
	p, err := r.Authenticate(request("192.0.2.7:1", "/", "Authorization", "Bearer "+alice))
	want := switchboard.Principal{
		Tenant: "acme", ID: "alice", Auth: switchboard.AuthAPIKey, Tasks: []switchboard.TaskID{"browse"},
		Roles: []string{"analyst"}, Tier: "pro", Mode: switchboard.Assist,
	}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("Authenticate = %+v, %v; want %+v", p, err, want)
	}
}

func TestTheLocalPrincipalHasWhatItsTenantHas(t *testing.T) {
	for _, tt := range []struct{ tenant, want switchboard.Mode }{
		{"", switchboard.Autopilot}, {switchboard.Observe, switchboard.Observe},
	} {
		r := identity.New(nil, &switchboard.Tenant{ID: "default", Roles: []string{"admin"}, Tier: "pro", Mode: tt.tenant}, true, nil)
		want := switchboard.Principal{Tenant: "default", ID: "local", Auth: switchboard.AuthLocal, Roles: []string{"admin"}, Tier: "pro", Mode: tt.want}
		if got, err := r.Authenticate(request("127.0.0.1:1", "/")); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("over HTTP it is %+v, %v; want %+v", got, err, want)
		}
		if got := r.Local(); !reflect.DeepEqual(got, want) {
			t.Errorf("on stdio it is %+v, want %+v", got, want)
		}
		if got, err := r.Current(identity.Local("default")); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("by its name it is %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestAPrincipalIsWhatTheRingKnowsNowAndNotWhatItWas(t *testing.T) {
	r, _ := ring(t)
	alice := switchboard.Principal{Tenant: "acme", ID: "alice", Auth: switchboard.AuthAPIKey}
	was := alice
	was.Tasks, was.Roles, was.Tier, was.Mode = []switchboard.TaskID{"rest"}, []string{"admin", "analyst"}, "max", switchboard.Autopilot
	now, err := r.Current(was)
	if err != nil || len(now.Tasks) != 1 || now.Tasks[0] != "browse" || len(now.Roles) != 1 || now.Tier != "pro" || now.Mode != switchboard.Assist {
		t.Errorf("Current = %+v, %v", now, err)
	}
	for name, change := range map[string]func(p *switchboard.Principal){
		"without a key any more":       func(p *switchboard.Principal) { p.ID = "bob" },
		"of another tenant":            func(p *switchboard.Principal) { p.Tenant = "other" },
		"of the name, with local auth": func(p *switchboard.Principal) { p.Auth = switchboard.AuthLocal },
		"local to another tenant":      func(p *switchboard.Principal) { *p = identity.Local("acme") },
		"with the local one's name":    func(p *switchboard.Principal) { p.Tenant, p.ID = "default", "local" },
		"without a name":               func(p *switchboard.Principal) { *p = switchboard.Principal{} },
	} {
		p := alice
		change(&p)
		if now, err := r.Current(p); err == nil {
			t.Errorf("one %s is %+v", name, now)
		}
	}
}

func TestMintedKeysDifferAndTheirHashIsNotTheKey(t *testing.T) {
	a, hashA := identity.Mint(identity.AgentPrefix)
	b, hashB := identity.Mint(identity.AgentPrefix)
	if a == b || hashA == hashB || strings.Contains(hashA, strings.TrimPrefix(a, identity.AgentPrefix)) {
		t.Errorf("minted %q (%s) and %q (%s)", a, hashA, b, hashB)
	}
	if len(a) != len(identity.AgentPrefix)+43+6 {
		t.Errorf("key %q does not hold 256 bits and a checksum", a)
	}
}

func TestNeighborsAreTenantsAndPrincipalsThatHaveKeys(t *testing.T) {
	one := identity.Key{Tenant: "acme", ID: "alice", Hash: [32]byte{1}}
	second := identity.Key{Tenant: "acme", ID: "alice", Hash: [32]byte{2}}
	bob := identity.Key{Tenant: "acme", ID: "bob", Hash: [32]byte{3}}
	eve := identity.Key{Tenant: "other", ID: "eve", Hash: [32]byte{4}}
	alice := switchboard.Principal{Tenant: "acme", ID: "alice", Auth: switchboard.AuthAPIKey}
	for _, tt := range []struct {
		name                string
		keys                []identity.Key
		who                 switchboard.Principal
		tenants, principals bool
	}{
		{"the only key", []identity.Key{one}, alice, false, false},
		{"two keys of one principal", []identity.Key{one, second}, alice, false, false},
		{"two principals of a tenant", []identity.Key{one, bob}, alice, false, true},
		{"two tenants", []identity.Key{one, eve}, alice, true, false},
		{"both", []identity.Key{one, bob, eve}, alice, true, true},
		{"the local principal", []identity.Key{one, bob, eve}, identity.Local("acme"), false, false},
	} {
		r := identity.New(tt.keys, &switchboard.Tenant{ID: "acme"}, false, nil)
		if tenants, principals := r.Neighbors(tt.who); tenants != tt.tenants || principals != tt.principals {
			t.Errorf("%s: other tenants %v, other principals %v", tt.name, tenants, principals)
		}
	}
}

func TestAttack9AKeyEndsWhenItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, hash := identity.Mint(identity.AgentPrefix)
		sum, err := hex.DecodeString(strings.TrimPrefix(hash, "sha256:"))
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(time.Hour)
		r := identity.New([]identity.Key{
			{Tenant: "acme", ID: "alice", Hash: [32]byte(sum), Expires: end},
			{Tenant: "acme", ID: "bob", Hash: [32]byte{2}, Expires: end.Add(time.Hour)},
			{Tenant: "acme", ID: "carol", Hash: [32]byte{3}},
		}, &switchboard.Tenant{ID: "acme"}, false, nil)
		req := request("192.0.2.1:1", "/", "Authorization", "Bearer "+text)
		for _, tt := range []struct {
			after time.Duration
			code  switchboard.Code
			next  time.Time
		}{
			{0, "", end},
			{time.Hour - 1, "", end},
			{1, switchboard.CodeKeyExpired, end.Add(time.Hour)},
			{time.Hour, switchboard.CodeKeyExpired, time.Time{}},
		} {
			time.Sleep(tt.after)
			alice := switchboard.Principal{Tenant: "acme", ID: "alice", Auth: switchboard.AuthAPIKey}
			_, asked := r.Authenticate(req)
			_, known := r.Current(alice)
			for _, err := range []error{asked, known} {
				if got := codeOf(err); got != tt.code {
					t.Errorf("%s before its end: %v, want %q", time.Until(end), err, tt.code)
				}
			}
			if next := r.NextExpiry(time.Now()); !next.Equal(tt.next) {
				t.Errorf("%s before its end, the next ends at %v, want %v", time.Until(end), next, tt.next)
			}
		}
	})
}

func codeOf(err error) switchboard.Code {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return e.Code
	}
	return ""
}
