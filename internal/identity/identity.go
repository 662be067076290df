// Package identity decides who is calling, and for which tenant.
//
// A request is known by an API key (Authorization: Bearer swb_…) or, while no
// key exists at all, by coming from this machine. Nothing else that a client
// sends says who it is: no header, no path, no session.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// KeyPrefix starts every key, so that people and secret scanners know one.
const KeyPrefix = "swb_"

// keyBytes is the entropy of a key. At 256 random bits a plain SHA-256 is as
// good as a slow hash: there is nothing to guess.
const keyBytes = 32

// A Key is what is kept of an API key: never the key.
type Key struct {
	Tenant switchboard.TenantID
	ID     string // names the principal
	Hash   [sha256.Size]byte
	Tasks  []switchboard.TaskID
	Roles  []string
	Tier   string
	Mode   switchboard.Mode

	// Expires is when the key ends; the zero time means never.
	Expires time.Time `json:",omitzero"`
}

// Mint makes a new key. The text is shown to a person once; the hash goes into
// the tenant's file.
func Mint() (text, hash string) {
	var b [keyBytes]byte
	rand.Read(b[:])
	text = KeyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(text))
	return text, "sha256:" + hex.EncodeToString(sum[:])
}

// A Ring knows all keys. It is immutable; a reload makes a new one.
type Ring struct {
	byHash  map[[sha256.Size]byte]switchboard.Principal
	byName  map[principalName]switchboard.Principal
	expiries    map[principalName]time.Time           // of those that end
	principalCounts map[switchboard.TenantID]int // how many principals have keys
	local   switchboard.Principal
	keyless bool
}

// A name is what stays of a principal when a reload changes the rest.
type principalName struct {
	tenant switchboard.TenantID
	id     string
	auth   switchboard.Auth
}

func principalNameOf(p switchboard.Principal) principalName { return principalName{p.Tenant, p.ID, p.Auth} }

// New returns the ring of keys. The local principal is of the tenant, with all
// that the operator gives that. keyless says that no key exists, also none that could
// not be read: then any caller on this machine is the local principal.
func New(keys []Key, local *switchboard.Tenant, keyless bool) *Ring {
	r := &Ring{
		byHash:  map[[sha256.Size]byte]switchboard.Principal{},
		byName:  map[principalName]switchboard.Principal{},
		expiries:    map[principalName]time.Time{},
		principalCounts: map[switchboard.TenantID]int{},
		local:   Local(local.ID),
		keyless: keyless && len(keys) == 0,
	}
	r.local.Roles, r.local.Tier, r.local.Mode = local.Roles, local.Tier, local.Mode.Narrower(switchboard.Autopilot)
	r.byName[principalNameOf(r.local)] = r.local
	for _, k := range keys {
		p := switchboard.Principal{
			Tenant: k.Tenant, ID: k.ID, Auth: switchboard.AuthAPIKey, Tasks: k.Tasks,
			Roles: k.Roles, Tier: k.Tier, Mode: k.Mode,
		}
		if _, has := r.byName[principalNameOf(p)]; !has { // a principal may have several keys
			r.principalCounts[k.Tenant]++
		}
		r.byHash[k.Hash], r.byName[principalNameOf(p)] = p, p
		if !k.Expires.IsZero() {
			r.expiries[principalNameOf(p)] = k.Expires
		}
	}
	return r
}

// Neighbors says whether tenants other than p's have keys, and whether other principals
// of its tenant have. The local principal has no neighbors: while it is served, nobody
// else is.
func (r *Ring) Neighbors(p switchboard.Principal) (tenants, principals bool) {
	if p.Auth == switchboard.AuthLocal {
		return false, false
	}
	return len(r.principalCounts) > 1, r.principalCounts[p.Tenant] > 1
}

// Local names the principal of keyless use: stdio, or loopback while no key
// exists. What it may do, the Ring knows.
func Local(tenant switchboard.TenantID) switchboard.Principal {
	return switchboard.Principal{Tenant: tenant, ID: switchboard.LocalID, Auth: switchboard.AuthLocal}
}

// Local returns the local principal.
func (r *Ring) Local() switchboard.Principal { return r.local }

// Current returns p as the ring knows it: by what the files say now of its
// tasks, roles, tier and mode, whatever they said when p became known. The error
// is a *switchboard.Error: SB-AUTH-001 where its key is gone, and SB-AUTH-003 where
// the key has expired.
func (r *Ring) Current(p switchboard.Principal) (switchboard.Principal, error) {
	now, ok := r.byName[principalNameOf(p)]
	if !ok {
		return now, switchboard.Refuse(switchboard.CodeNotAuthenticated, "your key is not known here any more")
	}
	return now, r.checkExpiry(now)
}

// checkExpiry is the refusal of a principal whose key has checkExpiry, or nil.
func (r *Ring) checkExpiry(p switchboard.Principal) error {
	end, ok := r.expiries[principalNameOf(p)]
	if !ok || time.Now().Before(end) {
		return nil
	}
	e := switchboard.Refuse(switchboard.CodeKeyExpired, "your key has expired: it was good until %s", end.UTC().Format(time.RFC3339))
	e.Hint = "ask whoever gave it to you for a new one"
	return e
}

// NextEnd is when the next key expires after now; the zero time where none does.
func (r *Ring) NextEnd(now time.Time) (next time.Time) {
	for _, end := range r.expiries {
		if end.After(now) && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next
}

// Keyless reports whether no key exists.
func (r *Ring) Keyless() bool { return r.keyless }

// TenantHeader lets a client say which tenant it means to speak for. It grants
// nothing: it must name the tenant that the key belongs to.
const TenantHeader = "Switchboard-Tenant"

// Authenticate says who sent req. The error is a *switchboard.Error with
// SB-AUTH-001, SB-AUTH-003 where the key has expired, or SB-AUTH-002 where the request names another tenant.
func (r *Ring) Authenticate(req *http.Request) (switchboard.Principal, error) {
	p, err := r.authenticateKey(req)
	if err != nil {
		return switchboard.Principal{}, err
	}
	for _, tenant := range req.Header.Values(TenantHeader) {
		if tenant != string(p.Tenant) {
			return switchboard.Principal{}, switchboard.Refuse(switchboard.CodeNotAuthorized,
				"%s names another tenant than the one that you are known to", TenantHeader)
		}
	}
	return p, nil
}

func (r *Ring) authenticateKey(req *http.Request) (switchboard.Principal, error) {
	refuse := func(format string, args ...any) (switchboard.Principal, error) {
		return switchboard.Principal{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, format, args...)
	}
	if req.URL.RawQuery != "" {
		for name := range req.URL.Query() {
			switch strings.ToLower(name) {
			case "access_token", "api_key", "apikey", "authorization", "key", "token":
				return refuse("a key in the URL ends up in logs; send it as \"Authorization: Bearer …\", and replace the one that you sent")
			}
		}
	}
	auth := req.Header.Values("Authorization")
	if r.Keyless() {
		if len(auth) > 0 {
			return refuse("no keys exist here; make one with \"switchboard key new\", or send no Authorization header")
		}
		if name, ok := proxyHeader(req.Header); ok {
			return refuse("%s is set: behind a proxy, strangers look local; make a key with \"switchboard key new\"", name)
		}
		if !req.ProtoAtLeast(1, 1) {
			return refuse("it is HTTP/1.0, as proxies send it: behind a proxy, strangers look local; make a key with \"switchboard key new\"")
		}
		if !isLoopback(req.RemoteAddr) {
			return refuse("without keys only this machine may call; make a key with \"switchboard key new\"")
		}
		if why := peerRefusal(req.Context()); why != "" {
			return refuse("without keys only the user of Switchboard may call, and %s; make a key with \"switchboard key new\"", why)
		}
		return r.local, nil
	}
	if len(auth) != 1 {
		return refuse("send exactly one header \"Authorization: Bearer …\" with your key")
	}
	text, ok := strings.CutPrefix(auth[0], "Bearer ")
	if !ok || !strings.HasPrefix(text, KeyPrefix) {
		return refuse("want \"Authorization: Bearer %s…\"", KeyPrefix)
	}
	// The map is looked up by hash: how long it takes says nothing about any
	// key, since nobody can choose what their guess hashes to.
	p, ok := r.byHash[sha256.Sum256([]byte(text))]
	if !ok {
		return refuse("this key is not known here; it may have been removed")
	}
	return p, r.checkExpiry(p)
}

// proxyHeaders are headers with which proxies, tunnels and content networks say that they stand in front, in lower case. One that ends in
// a hyphen stands for all that begin so.
var proxyHeaders = []string{
	"forwarded", "via", "x-forwarded-", "x-forwarded", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "x-cluster-client-ip", "x-originating-ip",
	"x-remote-ip", "x-remote-addr", "x-remote-user", "remote-user", "x-original-", "x-proxyuser-ip", "proxy-client-ip", "wl-proxy-client-ip", "x-host",
	"x-authenticated-", "x-auth-request-", "x-goog-", "x-appengine-", "x-cloud-trace-context", "x-amzn-", "x-azure-", "x-arr-", "x-envoy-", "x-istio-",
	"x-vercel-", "x-nf-", "x-render-", "x-railway-", "x-sucuri-", "cf-", "cdn-loop", "fly-", "fastly-", "akamai-", "incap-", "tailscale-", "ngrok-",
}

// proxyHeader names the header with which a proxy says that it stands in front.
func proxyHeader(h http.Header) (string, bool) {
	for name := range h {
		lower := strings.ToLower(name)
		if slices.ContainsFunc(proxyHeaders, func(f string) bool {
			return lower == f || strings.HasSuffix(f, "-") && strings.HasPrefix(lower, f)
		}) {
			return name, true
		}
	}
	return "", false
}

func isLoopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
