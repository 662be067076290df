// Package identity decides which principal sent a request, and the tenant of that principal.
//
// A request is identified by an API key (Authorization: Bearer swb_…) or, while no key exists at all, by
// coming from this machine. Nothing else in a request identifies its sender: no header, no path, no session.
package identity

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Key is the stored form of an API key. It does not contain the key itself.
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

// A Ring holds all keys. It is immutable; a reload makes a new one.
type Ring struct {
	byHash          map[[sha256.Size]byte]switchboard.Principal
	byName          map[principalName]switchboard.Principal
	hashes          map[principalName][][sha256.Size]byte // the keys of each principal
	check           KeyCheck
	expiries        map[principalName]time.Time  // only of keys that expire
	principalCounts map[switchboard.TenantID]int // number of principals with keys, and of persons who call tools
	local           switchboard.Principal
	keyless         bool
	persons         *personCalls // nil where no person calls tools
}

// A principalName identifies a principal across reloads, which may change everything else about it.
type principalName struct {
	tenant switchboard.TenantID
	id     string
	auth   switchboard.Auth
}

func principalNameOf(p switchboard.Principal) principalName {
	return principalName{p.Tenant, p.ID, p.Auth}
}

// New returns the ring of keys. check, if not nil, says which keys are revoked. The local principal belongs to the tenant local, with the roles, tier and
// mode that the operator gives to that tenant. keyless says that no key exists, not even an unreadable one:
// then any caller on this machine is the local principal.
func New(keys []Key, local *switchboard.Tenant, keyless bool, check KeyCheck) *Ring {
	r := &Ring{
		byHash:          make(map[[sha256.Size]byte]switchboard.Principal, len(keys)),
		byName:          make(map[principalName]switchboard.Principal, len(keys)+1),
		hashes:          make(map[principalName][][sha256.Size]byte, len(keys)),
		check:           check,
		expiries:        map[principalName]time.Time{},
		principalCounts: map[switchboard.TenantID]int{},
		local:           Local(local.ID),
		keyless:         keyless && len(keys) == 0,
	}
	r.local.Roles, r.local.Tier, r.local.Mode = local.Roles, local.Tier, local.Mode.Narrower(switchboard.Autopilot)
	r.byName[principalNameOf(r.local)] = r.local
	for _, k := range keys {
		p := switchboard.Principal{
			Tenant: k.Tenant, ID: k.ID, Auth: switchboard.AuthAPIKey, Tasks: k.Tasks,
			Roles: k.Roles, Tier: k.Tier, Mode: k.Mode,
		}
		name := principalNameOf(p)
		if _, has := r.byName[name]; !has { // a principal may have several keys
			r.principalCounts[k.Tenant]++
		}
		r.byHash[k.Hash], r.byName[name] = p, p
		r.hashes[name] = append(r.hashes[name], k.Hash)
		if !k.Expires.IsZero() {
			r.expiries[name] = k.Expires
		}
	}
	return r
}

// Neighbors reports whether tenants other than p's have principals, and whether its tenant has others. The local principal has no
// neighbors with keys, because it is served only while there are no keys; but persons may call tools beside it.
func (r *Ring) Neighbors(p switchboard.Principal) (tenants, principals bool) {
	if p.Auth == switchboard.AuthLocal && !r.keyless {
		return false, false
	}
	return len(r.principalCounts) > 1, r.principalCounts[p.Tenant] > 1
}

// Local returns the name of the principal of keyless use: stdio, or loopback while no key exists. The Ring
// knows its roles, tier and mode.
func Local(tenant switchboard.TenantID) switchboard.Principal {
	return switchboard.Principal{Tenant: tenant, ID: switchboard.LocalID, Auth: switchboard.AuthLocal}
}

// Local returns the local principal.
func (r *Ring) Local() switchboard.Principal { return r.local }

// Current returns p with the tasks, roles, tier and mode that the files give it now, which may have changed
// since p was authenticated. The error is a *switchboard.Error: SB-AUTH-001 if its key is gone, and
// SB-AUTH-003 if the key has expired.
func (r *Ring) Current(p switchboard.Principal) (switchboard.Principal, error) {
	if r.persons != nil && (p.Auth == switchboard.AuthSignIn || p.Auth == switchboard.AuthPersonKey) {
		return r.persons.current(p)
	}
	now, ok := r.byName[principalNameOf(p)]
	if !ok {
		return now, switchboard.Refuse(switchboard.CodeNotAuthenticated, "your key is not known here any more")
	}
	if err := r.checkKeys(p); err != nil {
		return now, err
	}
	return now, r.checkExpiry(now)
}

// checkKeys returns a refusal if all keys of p are revoked.
func (r *Ring) checkKeys(p switchboard.Principal) (refused error) {
	if r.check == nil {
		return nil
	}
	for _, hash := range r.hashes[principalNameOf(p)] {
		if refused = r.check.CheckKey(hash); refused == nil {
			return nil
		}
	}
	return refused
}

// Hashes returns the hashes of the keys of a principal.
func (r *Ring) Hashes(tenant switchboard.TenantID, id string) [][sha256.Size]byte {
	return r.hashes[principalName{tenant, id, switchboard.AuthAPIKey}]
}

// Someone returns a principal of the tenant that may bind the task: the local one, or else the first one whose key names it; any one with a key, if
// none does.
func (r *Ring) Someone(tenant switchboard.TenantID, task switchboard.TaskID) (p switchboard.Principal, ok bool) {
	if r.local.Tenant == tenant {
		return r.local, true
	}
	for _, id := range r.KeyIDs(tenant) {
		one := r.byName[principalName{tenant, id, switchboard.AuthAPIKey}]
		if slices.Contains(one.Tasks, task) {
			return one, true
		}
		if !ok {
			p, ok = one, true
		}
	}
	return p, ok
}

// KeyIDs returns the ids of the principals of a tenant that have keys, sorted.
func (r *Ring) KeyIDs(tenant switchboard.TenantID) (ids []string) {
	for name := range r.byName {
		if name.tenant == tenant && name.auth == switchboard.AuthAPIKey {
			ids = append(ids, name.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// checkExpiry returns the refusal of a principal with an expired key, or nil.
func (r *Ring) checkExpiry(p switchboard.Principal) error {
	end, ok := r.expiries[principalNameOf(p)]
	if !ok || time.Now().Before(end) {
		return nil
	}
	return refuseExpired(end)
}

// NextExpiry returns when the next key expires after now; the zero time if none does.
func (r *Ring) NextExpiry(now time.Time) (next time.Time) {
	for _, end := range r.expiries {
		if end.After(now) && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next
}

// Keyless reports whether no key exists.
func (r *Ring) Keyless() bool { return r.keyless }

// TenantHeader lets a client state its tenant. It grants nothing: it must name the tenant of the key.
const TenantHeader = "Switchboard-Tenant"

// Authenticate returns the principal that sent req. The error is a *switchboard.Error: SB-AUTH-001 if there
// is no valid key, SB-AUTH-003 if the key has expired, or SB-AUTH-002 if the request names another tenant.
func (r *Ring) Authenticate(req *http.Request) (switchboard.Principal, error) {
	p, err := r.authenticateKey(req)
	if err != nil {
		return switchboard.Principal{}, err
	}
	for _, tenant := range req.Header.Values(TenantHeader) {
		if tenant != string(p.Tenant) {
			return switchboard.Principal{}, switchboard.Refuse(switchboard.CodeNotAuthorized,
				"%s names another tenant than the tenant of your key", TenantHeader)
		}
	}
	return p, nil
}

func (r *Ring) authenticateKey(req *http.Request) (switchboard.Principal, error) {
	refuse := func(format string, args ...any) (switchboard.Principal, error) {
		return switchboard.Principal{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, format, args...)
	}
	if r.Keyless() {
		if hasKeyInURL(req) {
			return switchboard.Principal{}, errKeyInURL()
		}
		if len(req.Header.Values("Authorization")) > 0 {
			return refuse("no keys exist here; make one with \"switchboard key new\", or send no Authorization header")
		}
		if name, ok := proxyHeader(req.Header); ok {
			return refuse("%s is set: behind a proxy, requests of strangers look local; make a key with \"switchboard key new\"", name)
		}
		if !req.ProtoAtLeast(1, 1) {
			return refuse("it is HTTP/1.0, as proxies send it: behind a proxy, requests of strangers look local; make a key with \"switchboard key new\"")
		}
		if !isLoopback(req.RemoteAddr) {
			return refuse("without keys only this machine may call; make a key with \"switchboard key new\"")
		}
		switch why := PeerRefusal(req.Context()); {
		case errors.Is(why, errNoDescriptors):
			return switchboard.Principal{}, why
		case why != nil:
			return refuse("without keys only the user of Switchboard may call, and %s; make a key with \"switchboard key new\"", why)
		}
		return r.local, nil
	}
	text, err := bearer(req, AgentPrefix)
	if err != nil {
		return switchboard.Principal{}, err
	}
	// The map is looked up by hash, so the time that it takes reveals nothing about any key: a caller cannot
	// choose the hash of a guess.
	var room [64]byte // a key fits, and needs no allocation then
	hash := sha256.Sum256(append(room[:0], text...))
	p, ok := r.byHash[hash]
	if !ok {
		return switchboard.Principal{}, refuseUnknown(text)
	}
	if r.check != nil {
		if err := r.check.CheckKey(hash); err != nil {
			return switchboard.Principal{}, err
		}
	}
	return p, r.checkExpiry(p)
}

// proxyHeaders are the headers, in lower case, that proxies, tunnels and content networks add to requests
// that they forward. An entry that ends in a hyphen is a prefix.
var proxyHeaders = []string{
	"forwarded", "via", "x-forwarded-", "x-forwarded", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "x-cluster-client-ip", "x-originating-ip",
	"x-remote-ip", "x-remote-addr", "x-remote-user", "remote-user", "x-original-", "x-proxyuser-ip", "proxy-client-ip", "wl-proxy-client-ip", "x-host",
	"x-authenticated-", "x-auth-request-", "x-goog-", "x-appengine-", "x-cloud-trace-context", "x-amzn-", "x-azure-", "x-arr-", "x-envoy-", "x-istio-",
	"x-vercel-", "x-nf-", "x-render-", "x-railway-", "x-sucuri-", "cf-", "cdn-loop", "fly-", "fastly-", "akamai-", "incap-", "tailscale-", "ngrok-",
}

// proxyHeadersByLetter are the proxyHeaders by their first letter: each request of a keyless caller is checked.
var proxyHeadersByLetter = func() (all ['z' + 1][]string) {
	for _, f := range proxyHeaders {
		all[f[0]] = append(all[f[0]], f)
	}
	return all
}()

// proxyHeader returns the name of a header that shows that a proxy forwarded the request.
func proxyHeader(h http.Header) (string, bool) {
	for name := range h {
		first := byte(0)
		if name != "" && name[0] <= 'z' {
			first = name[0] | ('a' - 'A')
		}
		for _, f := range proxyHeadersByLetter[min(first, 'z')] {
			if len(name) >= len(f) && strings.EqualFold(name[:len(f)], f) && (len(name) == len(f) || strings.HasSuffix(f, "-")) {
				return name, true
			}
		}
	}
	return "", false
}

func isLoopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
