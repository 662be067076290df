package rig

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Authority is an authorization server that counts. It consents for anybody, rotates refresh tokens, remembers each one that was sent to it, and keeps all
// secrets that have passed through it.
type Authority struct {
	*httptest.Server

	mu       sync.Mutex
	lifetime time.Duration // of access tokens
	n        int
	codes    map[string]grantOf  // by code
	grants   map[string]grantOf  // by refresh token, also those that were used
	sent     map[string]int      // by refresh token
	access   map[string]grantOf  // by access token, also those that have expired
	secrets  map[string]string   // by what they are
	hold     func(person string) // called during a refresh, before its answer
	answer   func(w http.ResponseWriter, form url.Values) bool
	forms    []url.Values // of the token endpoint
	revoked  []string     // the tokens that the revocation endpoint was sent
	left     int          // requests for tokens that ended before their answer
}

// A grantOf says what a code or a token was given for.
type grantOf struct {
	person, challenge, resource, scope string
	expires                            time.Time
}

// ServeAuthority starts an Authority.
func ServeAuthority(t *testing.T, lifetime time.Duration) *Authority {
	t.Helper()
	a := &Authority{
		lifetime: lifetime, codes: map[string]grantOf{}, grants: map[string]grantOf{}, sent: map[string]int{}, access: map[string]grantOf{}, secrets: map[string]string{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{
			"issuer": a.URL, "authorization_endpoint": a.URL + "/authorize", "token_endpoint": a.URL + "/token",
			"registration_endpoint": a.URL + "/register", "revocation_endpoint": a.URL + "/revoke",
			"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
			"scopes_supported":                      []string{"files:read", "offline_access"},
			"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic", "client_secret_post", "private_key_jwt"},
		})
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		asked["client_id"] = a.keep("client id", "client-")
		asked["client_secret"], asked["registration_access_token"] = a.keep("client secret", "cs-"), a.keep("registration token", "reg-")
		write(w, http.StatusCreated, asked)
	})
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("POST /revoke", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		a.mu.Lock()
		answer := a.answer
		a.mu.Unlock()
		if answer != nil && answer(w, r.PostForm) {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.revoked = append(a.revoked, r.PostForm.Get("token"))
		delete(a.grants, r.PostForm.Get("token"))
		delete(a.access, r.PostForm.Get("token"))
		w.WriteHeader(http.StatusOK)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// keep makes a secret, and keeps it as what it is.
func (a *Authority) keep(what, prefix string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keepLocked(what, prefix)
}

func (a *Authority) keepLocked(what, prefix string) string {
	a.n++
	secret := prefix + rand.Text()
	a.secrets[fmt.Sprintf("%s %d", what, a.n)] = secret
	return secret
}

// Consent does what the browser of the person does at the address: it returns the URL that the authority sends the browser to.
func (a *Authority) Consent(t *testing.T, address, person string) *url.URL {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := at.Query()
	if at.Scheme+"://"+at.Host != a.URL || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" || q.Get("resource") == "" {
		t.Fatalf("the browser is led to %s", address)
	}
	code := a.keep("code", "code-")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secrets[fmt.Sprintf("state %d", a.n)] = q.Get("state")
	a.codes[code] = grantOf{person: person, challenge: q.Get("code_challenge"), resource: q.Get("resource"), scope: q.Get("scope")}
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		t.Fatal(err)
	}
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {a.URL}}.Encode()
	return back
}

// token is the token endpoint.
func (a *Authority) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	form := r.PostForm
	a.mu.Lock()
	a.forms = append(a.forms, form)
	answer, hold := a.answer, a.hold
	for name, what := range map[string]string{"code_verifier": "verifier", "client_assertion": "assertion"} {
		if v := form.Get(name); v != "" {
			a.n++
			a.secrets[fmt.Sprintf("%s %d", what, a.n)] = v
		}
	}
	a.mu.Unlock()
	if answer != nil && answer(w, form) {
		return
	}
	grant, why := a.redeem(form)
	if why != "" {
		write(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": why})
		return
	}
	if hold != nil && form.Get("grant_type") == "refresh_token" {
		hold(grant.person)
	}
	a.mu.Lock()
	if r.Context().Err() != nil {
		a.left++
	}
	grant.expires = time.Now().Add(a.lifetime)
	out := map[string]any{"token_type": "Bearer", "expires_in": int(a.lifetime.Seconds()), "scope": grant.scope}
	access := a.keepLocked("access token", "at-")
	a.access[access], out["access_token"] = grant, access
	if form.Get("grant_type") != "client_credentials" {
		refresh := a.keepLocked("refresh token", "rt-")
		a.grants[refresh], out["refresh_token"] = grant, refresh
	}
	a.mu.Unlock()
	write(w, http.StatusOK, out)
}

// redeem returns what a request may have, or why it gets nothing.
func (a *Authority) redeem(form url.Values) (g grantOf, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := false
	switch form.Get("grant_type") {
	case "authorization_code":
		code := form.Get("code")
		g, ok = a.codes[code]
		delete(a.codes, code)
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		ok = ok && base64.RawURLEncoding.EncodeToString(sum[:]) == g.challenge
	case "refresh_token":
		refresh := form.Get("refresh_token")
		a.sent[refresh]++
		g, ok = a.grants[refresh]
		ok = ok && a.sent[refresh] == 1
	case "client_credentials":
		g, ok = grantOf{person: "program", resource: form.Get("resource"), scope: form.Get("scope")}, true
	}
	if !ok || form.Get("resource") != g.resource {
		return g, "it was used, or belongs to another request"
	}
	return g, ""
}

// person returns whose access token it is, and until when it is good; "" if it is not good now.
func (a *Authority) person(access, resource string) (person string, expires time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, ok := a.access[access]
	if !ok || g.resource != resource || !time.Now().Before(g.expires) {
		return "", time.Time{}
	}
	return g.person, g.expires
}

// Refreshes returns how many refresh tokens were sent, and those that were sent more than once.
func (a *Authority) Refreshes() (sent int, twice []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for refresh, n := range a.sent {
		sent += n
		if n > 1 {
			twice = append(twice, refresh)
		}
	}
	return sent, twice
}

// RefreshesOf returns how many refresh tokens of the person were sent.
func (a *Authority) RefreshesOf(person string) (sent int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for refresh, n := range a.sent {
		if a.grants[refresh].person == person {
			sent += n
		}
	}
	return sent
}

// IsGood reports whether an access token of the person is good now.
func (a *Authority) IsGood(person string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.access {
		if g.person == person && time.Now().Before(g.expires) {
			return true
		}
	}
	return false
}

// Forms returns all that the token endpoint was sent, as text.
func (a *Authority) Forms() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.forms)
}

// Asked returns how many requests the token endpoint has had.
func (a *Authority) Asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.forms)
}

// SetLifetime sets how long the next access tokens are good.
func (a *Authority) SetLifetime(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lifetime = d
}

// Hold has hold called during each refresh of a person, after the refresh token is used up, and before the answer.
func (a *Authority) Hold(hold func(person string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold = hold
}

// Left returns how many of those that asked for tokens were gone before the answer.
func (a *Authority) Left() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left
}

// Revoked returns the tokens that were revoked.
func (a *Authority) Revoked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.revoked...)
}

// TokensOf returns the tokens that the person was given.
func (a *Authority) TokensOf(person string) (tokens []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, all := range []map[string]grantOf{a.access, a.grants} {
		for token, g := range all {
			if g.person == person {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}

// Answer has answer answer the requests to the token endpoint and the revocation endpoint for which it returns true.
func (a *Authority) Answer(answer func(w http.ResponseWriter, form url.Values) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// ExpireAll ends all access tokens, which nobody is told.
func (a *Authority) ExpireAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for access, g := range a.access {
		g.expires = time.Time{}
		a.access[access] = g
	}
}

// Secrets returns the secrets so far, by what they are.
func (a *Authority) Secrets() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]string{}
	for what, secret := range a.secrets {
		if !strings.HasPrefix(what, "client id") { // no secret
			all[what] = secret
		}
	}
	return all
}
