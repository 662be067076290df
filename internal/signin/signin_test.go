package signin_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const clientID = "sb"

// keys are the provider's keys, by the names of their algorithms' kinds; "stranger" is nobody's.
var keys = sync.OnceValue(func() map[string]any {
	rsaKey, err1 := rsa.GenerateKey(rand.Reader, 2048)
	small, err2 := rsa.GenerateKey(rand.Reader, 1024)
	ecKey, err3 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edKey, err4 := ed25519.GenerateKey(rand.Reader)
	stranger, err5 := rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		panic(err)
	}
	return map[string]any{"rsa": rsaKey, "small": small, "ec": ecKey, "ed": edKey, "stranger": stranger}
})

// An idp is an OpenID provider. The tests change its fields between requests.
type idp struct {
	*httptest.Server
	t *testing.T

	metadata func(m map[string]any)
	token    func(nonce string) string               // the ID token
	answer   func(w http.ResponseWriter) (done bool) // of the token endpoint
	userInfo map[string]any

	challenge, nonce string // of the sign-in in progress
	asked            atomic.Int32
	form             url.Values // of the last request of a token
	basic            string
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	p := &idp{t: t}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	switch r.URL.Path {
	case "/main/.well-known/openid-configuration":
		m := map[string]any{
			"issuer": p.issuer(), "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/me",
			"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
		}
		if p.metadata != nil {
			p.metadata(m)
		}
		_ = json.NewEncoder(w).Encode(m)
	case "/keys":
		small := keys()["small"].(*rsa.PrivateKey)
		all := []any{map[string]any{"kty": "RSA", "kid": "small", "n": base64.RawURLEncoding.EncodeToString(small.N.Bytes()), "e": "AQAB"}, map[string]any{"kty": "of the future", "kid": "new"}}
		for name, raw := range keys() {
			if name == "stranger" || name == "small" {
				continue
			}
			key, err := jwk.Import(raw)
			if err == nil {
				key, err = key.PublicKey()
			}
			if err == nil {
				err = key.Set(jwk.KeyIDKey, name)
			}
			if all = append(all, key); err != nil {
				p.t.Error(err)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": all})
	case "/token":
		_ = r.ParseForm()
		p.form = r.PostForm
		id, secret, _ := r.BasicAuth()
		p.basic = id + ":" + secret
		if p.answer != nil && p.answer(w) {
			return
		}
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if base64.RawURLEncoding.EncodeToString(sum[:]) != p.challenge || r.PostForm.Get("code") != "good" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": p.token(p.nonce)})
	case "/me":
		if r.Header.Get("Authorization") != "Bearer at" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(p.userInfo)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (p *idp) issuer() string { return p.URL + "/main" }

// claims returns good claims, with changes; nil deletes.
func (p *idp) claims(nonce string, changes map[string]any) map[string]any {
	now := time.Now().Unix()
	c := map[string]any{"iss": p.issuer(), "sub": "00u1", "aud": clientID, "exp": now + 300, "iat": now, "nonce": nonce, "groups": []string{"staff", "leads"}, "email_verified": true}
	for name, v := range changes {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

// sign signs claims.
func sign(t *testing.T, algorithm jwa.SignatureAlgorithm, key any, header, claims map[string]any) string {
	t.Helper()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	h := jws.NewHeaders()
	for name, v := range header {
		if err := h.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	token, err := jws.Sign(text, jws.WithKey(algorithm, key, jws.WithProtectedHeaders(h)))
	if err != nil {
		t.Fatal(err)
	}
	return string(token)
}

// good returns good ID tokens, with changes of the claims.
func (p *idp) good(changes map[string]any) func(string) string {
	return func(nonce string) string {
		return sign(p.t, jwa.RS256(), keys()["rsa"], map[string]any{"kid": "rsa", "typ": "JWT"}, p.claims(nonce, changes))
	}
}

const redirect = "https://sb.example.com/sign-in/callback"

func newProviders(p *idp) *signin.Providers {
	all := signin.NewProviders(switchboard.NewSecret("the key of this folder"))
	all.Set([]signin.Registration{{ID: "idp", URL: p.issuer(), ClientID: clientID, Secret: switchboard.NewSecret("s3cret"), Scopes: []string{"groups"}}})
	return all
}

// begin begins a sign-in, and plays the browser and the provider's page. It returns the answer that the browser brings back.
func (p *idp) begin(t *testing.T, all *signin.Providers) (signin.Answer, url.Values) {
	t.Helper()
	address, sealed, err := all.Begin(t.Context(), "idp", redirect)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	p.challenge, p.nonce = q.Get("code_challenge"), q.Get("nonce")
	return signin.Answer{State: q.Get("state"), Code: "good", Issuer: p.issuer(), Attempt: sealed}, q
}

// end ends a sign-in whose configuration compares the claim groups.
func end(ctx context.Context, all *signin.Providers, a signin.Answer) (*identity.Person, error) {
	return all.End(ctx, a, func(string) []string { return []string{"groups"} }, func(context.Context, string) error { return nil })
}

func TestAPersonSignsInByCodeWithPKCEStateAndNonce(t *testing.T) {
	p := newIDP(t)
	p.token = p.good(nil)
	all := newProviders(p)
	answer, q := p.begin(t, all)
	want := map[string]string{"response_type": "code", "client_id": clientID, "redirect_uri": redirect, "scope": "openid groups", "code_challenge_method": "S256"}
	for name, v := range want {
		if q.Get(name) != v {
			t.Errorf("%s is %q, want %q", name, q.Get(name), v)
		}
	}
	if len(q.Get("state")) < 43 || len(q.Get("nonce")) < 43 || q.Get("state") == q.Get("nonce") || len(q.Get("code_challenge")) != 43 {
		t.Errorf("state, nonce or challenge are too short or equal: %v", q)
	}
	if strings.Contains(answer.Attempt, p.nonce) || strings.Contains(answer.Attempt, answer.State) {
		t.Error("the browser can read what it carries")
	}
	person, err := end(t.Context(), all, answer)
	if err != nil {
		t.Fatal(err)
	}
	if person.ID() != "idp/00u1" || !slices.Equal(person.Claims["groups"], []string{"staff", "leads"}) || !slices.Equal(person.Claims["email_verified"], []string{"true"}) || person.Claims["nonce"] != nil {
		t.Errorf("it is %+v", person)
	}
	if p.basic != clientID+":s3cret" || p.form.Get("client_secret") != "" || p.form.Get("redirect_uri") != redirect {
		t.Errorf("the token was requested with %v, by %q", p.form, p.basic)
	}
	before := p.asked.Load()
	answer, _ = p.begin(t, all)
	if _, err := end(t.Context(), all, answer); err != nil || p.asked.Load() != before+1 {
		t.Errorf("the second sign-in sent %d requests, %v; metadata and keys are known", p.asked.Load()-before, err)
	}
}

func TestAnotherReplicaEndsTheSignIn(t *testing.T) {
	p := newIDP(t)
	p.token = p.good(nil)
	answer, _ := p.begin(t, newProviders(p))
	if _, err := end(t.Context(), newProviders(p), answer); err != nil {
		t.Error(err)
	}
	stranger := signin.NewProviders(switchboard.NewSecret("another key"))
	stranger.Set([]signin.Registration{{ID: "idp", URL: p.issuer(), ClientID: clientID}})
	if _, err := end(t.Context(), stranger, answer); err == nil {
		t.Error("a Switchboard with another key ends it too")
	}
}

// OR-07: a foreign code, a foreign answer, a state that is used twice.
func TestOR07AnAnswerThatIsNotThisBrowsersSignsNobodyIn(t *testing.T) {
	p := newIDP(t)
	p.token = p.good(nil)
	all := newProviders(p)
	theirs, _ := p.begin(t, all)
	for _, tt := range []struct {
		name   string
		change func(a *signin.Answer)
		want   string
	}{
		{"no cookie", func(a *signin.Answer) { a.Attempt = "" }, "SB-AUTH-001: this browser has not started"},
		{"another browser's cookie", func(a *signin.Answer) { a.Attempt = theirs.Attempt }, "SB-AUTH-001: this is the answer to another sign-in"},
		{"another browser's answer", func(a *signin.Answer) { a.State = theirs.State }, "SB-AUTH-001: this is the answer to another sign-in"},
		{"a cookie with one letter changed", func(a *signin.Answer) { a.Attempt = "A" + a.Attempt[1:] + "A" }, "SB-AUTH-001: this browser has not started"},
		{"no state", func(a *signin.Answer) { a.State = "" }, "SB-AUTH-001: this is the answer to another sign-in"},
		{"a foreign code", func(a *signin.Answer) { a.Code = "theirs" }, "SB-AUTH-001: issuer idp does not accept the code"},
		{"no code", func(a *signin.Answer) { a.Code = "" }, "SB-AUTH-001: the answer of issuer idp has no code"},
		{"another issuer's answer", func(a *signin.Answer) { a.Issuer = "https://evil.example" }, "SB-AUTH-001: the answer is not of issuer"},
		{"no issuer, though it states it", func(a *signin.Answer) { a.Issuer = "" }, "SB-AUTH-001: the answer is not of issuer"},
		{"the person has refused", func(a *signin.Answer) { a.Error = "access_denied" }, `SB-AUTH-001: issuer idp has signed nobody in: "access_denied"`},
	} {
		answer, _ := p.begin(t, all)
		tt.change(&answer)
		if person, err := end(t.Context(), all, answer); err == nil || person != nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", tt.name, person, err)
		}
	}
	answer, _ := p.begin(t, all)
	used := map[string]bool{}
	once := func(_ context.Context, state string) error {
		if used[state] {
			return errors.New("again")
		}
		used[state] = true
		return nil
	}
	for i, want := range []bool{true, false} {
		_, err := all.End(t.Context(), answer, func(string) []string { return nil }, once)
		if (err == nil) != want {
			t.Errorf("use %d of the state: %v", i+1, err)
		}
	}
}

// AZ-16, and the list: only the one token that is right in everything counts, and nothing is fetched from addresses in tokens.
func TestOf500GeneratedIDTokensOnlyThoseCountThatAreRightInEverything(t *testing.T) {
	p := newIDP(t)
	all := newProviders(p)
	var fetched atomic.Int32
	evil := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched.Add(1) }))
	defer evil.Close()
	strangerKey, err := jwk.Import(keys()["stranger"].(*rsa.PrivateKey).Public())
	if err != nil {
		t.Fatal(err)
	}
	type choice struct {
		name  string
		right bool
		do    func(m map[string]any)
	}
	set := func(name string, v any) func(m map[string]any) { return func(m map[string]any) { m[name] = v } }
	drop := func(name string) func(m map[string]any) { return func(m map[string]any) { delete(m, name) } }
	in := func(name string, seconds int64) func(m map[string]any) {
		return func(m map[string]any) { m[name] = time.Now().Unix() + seconds }
	}
	keep := func(map[string]any) {}
	// The first choice of each list is the usual one.
	signatures := []choice{
		{"RS256", true, keep},
		{"RS512", true, keep},
		{"PS256", true, keep},
		{"ES256", true, keep},
		{"EdDSA", true, keep},
		{"HS256", false, keep},
		{"none", false, keep},
		{"stranger", false, keep},
		{"small", false, keep},
	}
	headers := [][]choice{
		{{"kid", true, keep}, {"another key's kid", false, set("kid", "ec!")}, {"an unknown kid", false, set("kid", "nope")}},
		{{"typ JWT", true, keep}, {"no typ", true, drop("typ")}, {"an access token", false, set("typ", "at+jwt")}, {"a logout token", false, set("typ", "logout+jwt")}},
		{{"nothing else", true, keep}, {"jwk", false, set("jwk", strangerKey)}, {"jku", false, set("jku", evil.URL+"/keys")}, {"x5u", false, set("x5u", evil.URL+"/x5u")}, {"crit", false, set("crit", []string{"exp"})}},
	}
	claims := [][]choice{
		{{"iss", true, keep}, {"iss with a slash", false, func(m map[string]any) { m["iss"] = fmt.Sprint(m["iss"]) + "/" }}, {"no iss", false, drop("iss")}},
		{{"aud", true, keep}, {"aud is a list of us", true, set("aud", []string{clientID})}, {"other aud", false, set("aud", "other")}, {"no aud", false, drop("aud")}, {"aud of two, without azp", false, set("aud", []string{clientID, "other"})}, {"aud of two, for us", true, func(m map[string]any) { m["aud"], m["azp"] = []string{"other", clientID}, clientID }}, {"azp is another", false, set("azp", "other")}},
		{{"exp", true, keep}, {"exp, within the skew", true, in("exp", -20)}, {"expired", false, in("exp", -40)}, {"no exp", false, drop("exp")}, {"exp is a text", false, set("exp", "tomorrow")}, {"exp is huge", false, set("exp", 1e300)}},
		{{"iat", true, keep}, {"iat, within the skew", true, in("iat", 20)}, {"from the future", false, in("iat", 60)}, {"no iat", false, drop("iat")}},
		{{"no nbf", true, keep}, {"nbf", true, in("nbf", -10)}, {"not yet", false, in("nbf", 60)}},
		{{"nonce", true, keep}, {"another nonce", false, set("nonce", "theirs")}, {"no nonce", false, drop("nonce")}},
		{{"sub", true, keep}, {"no sub", false, drop("sub")}, {"sub is empty", false, set("sub", "")}, {"sub is too long", false, set("sub", strings.Repeat("x", 256))}, {"sub has a line break", false, set("sub", "a\nb")}, {"sub is a number", false, set("sub", 7)}},
	}
	dice := mathrand.New(mathrand.NewPCG(22, 7))
	counts := map[bool]int{}
	for range 500 {
		right, names := true, []string{}
		pick := func(from []choice) choice {
			c := from[0]
			if dice.IntN(7) == 0 {
				c = from[dice.IntN(len(from))]
			}
			right = right && c.right
			names = append(names, c.name)
			return c
		}
		signature := pick(signatures).name
		header := map[string]any{"typ": "JWT"}
		p.token = func(nonce string) string {
			payload := p.claims(nonce, nil)
			algorithm, key := jwa.RS256(), keys()["rsa"]
			header["kid"] = "rsa"
			switch signature {
			case "RS512":
				algorithm = jwa.RS512()
			case "PS256":
				algorithm = jwa.PS256()
			case "ES256":
				algorithm, key, header["kid"] = jwa.ES256(), keys()["ec"], "ec"
			case "EdDSA":
				algorithm, key, header["kid"] = jwa.EdDSA(), keys()["ed"], "ed"
			case "HS256":
				algorithm, key = jwa.HS256(), keys()["rsa"].(*rsa.PrivateKey).N.Bytes() // a public key as a secret
			case "stranger":
				key = keys()["stranger"]
			case "small":
				header["kid"] = "small"
			}
			for _, h := range headers {
				c := pick(h)
				if c.do(header); header["kid"] == "ec!" {
					header["kid"] = map[bool]string{true: "ed", false: "ec"}[signature == "ES256"]
				}
			}
			for _, c := range claims {
				pick(c).do(payload)
			}
			if header["jwk"] != nil || header["jku"] != nil {
				key, algorithm = keys()["stranger"], jwa.RS256() // the key that the header offers
			}
			if signature == "none" {
				h, _ := json.Marshal(map[string]any{"alg": "none"})
				b, _ := json.Marshal(payload)
				return base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(b) + "."
			}
			if signature == "small" {
				return signRaw(t, keys()["small"].(*rsa.PrivateKey), header, payload)
			}
			if header["crit"] != nil || header["x5u"] != nil {
				return signRaw(t, keys()["rsa"].(*rsa.PrivateKey), header, payload)
			}
			return sign(t, algorithm, key, header, payload)
		}
		answer, _ := p.begin(t, all)
		person, err := end(t.Context(), all, answer)
		if x5u := header["x5u"] != nil; x5u && err == nil { // it is ignored, and the signature is right
			right = true
		}
		if (err == nil) != right {
			t.Errorf("%q: %+v, %v", names, person, err)
		}
		if err != nil && codeOf(err) != switchboard.CodeNotAuthenticated {
			t.Errorf("%q: %v", names, err)
		}
		counts[err == nil]++
	}
	if counts[true] < 50 || counts[false] < 50 {
		t.Errorf("the tokens are of one kind: %v", counts)
	}
	if n := fetched.Load(); n > 0 {
		t.Errorf("%d requests went to addresses in tokens", n)
	}
}

func codeOf(err error) switchboard.Code {
	e, _ := errors.AsType[*switchboard.Error](err)
	if e == nil {
		return ""
	}
	return e.Code
}

// signRaw signs with RS256, with any header and any key of RSA.
func signRaw(t *testing.T, key *rsa.PrivateKey, header, claims map[string]any) string {
	t.Helper()
	header["alg"] = "RS256"
	h, err1 := json.Marshal(header)
	c, err2 := json.Marshal(claims)
	input := base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(c)
	sum := sha256.Sum256([]byte(input))
	signature, err3 := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// A provider that does not answer as it must is away: nobody is signed in, and the person is told whose fault it is.
func TestAProviderThatDoesNotAnswerAsItMustIsAway(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin bool // Begin fails
		set   func(p *idp)
		want  string
	}{
		{"another issuer's metadata", true, func(p *idp) { p.metadata = func(m map[string]any) { m["issuer"] = p.issuer() + "/" } }, "equal byte for byte"},
		{"no PKCE", true, func(p *idp) {
			p.metadata = func(m map[string]any) { m["code_challenge_methods_supported"] = []string{"plain"} }
		}, "S256"},
		{"an endpoint of another scheme", true, func(p *idp) { p.metadata = func(m map[string]any) { m["token_endpoint"] = "file:///etc/passwd" } }, "no https URL"},
		{"no keys", true, func(p *idp) { p.metadata = func(m map[string]any) { m["jwks_uri"] = p.URL + "/nothing" } }, "404"},
		{"500", false, func(p *idp) {
			p.answer = func(w http.ResponseWriter) bool {
				http.Error(w, "out of order: secret-of-theirs", http.StatusInternalServerError)
				return true
			}
		}, "500"},
		{"a redirect", false, func(p *idp) {
			p.answer = func(w http.ResponseWriter) bool {
				w.Header().Set("Location", p.URL+"/keys")
				w.WriteHeader(http.StatusTemporaryRedirect)
				return true
			}
		}, "307"},
		{"200 MiB", false, func(p *idp) {
			p.answer = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"id_token":"`))
				for range 200 {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return true
					}
				}
				t.Error("all 200 MiB were read")
				return true
			}
		}, "SB-AUTH-006"},
		{"no ID token", false, func(p *idp) {
			p.answer = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"access_token":"at","token_type":"Bearer"}`))
				return true
			}
		}, "no ID token"},
		{"it does not know Switchboard", false, func(p *idp) {
			p.answer = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
				return true
			}
		}, "invalid_client"},
		{"it repeats what it was sent", false, func(p *idp) {
			p.answer = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnauthorized)
				text, _ := json.Marshal(map[string]string{"error": "not " + p.basic, "error_description": "not " + base64.StdEncoding.EncodeToString([]byte(p.basic)) + " or " + p.form.Get("code_verifier") + p.form.Get("code")})
				_, _ = w.Write(text)
				return true
			}
		}, `"not sb:***" "not *** or ******"`},
	} {
		p := newIDP(t)
		p.token = p.good(nil)
		all := newProviders(p)
		tt.set(p)
		address, sealed, err := all.Begin(t.Context(), "idp", redirect)
		if !tt.begin {
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			u, _ := url.Parse(address)
			_, err = end(t.Context(), all, signin.Answer{State: u.Query().Get("state"), Code: "good", Issuer: p.issuer(), Attempt: sealed})
		}
		if codeOf(err) != switchboard.CodeProviderAway || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret-of-theirs") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestAProviderThatHangsDelaysOnlyItsOwnSignIns(t *testing.T) {
	release := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hung.Close()
	defer close(release)
	p := newIDP(t)
	p.token = p.good(nil)
	all := signin.NewProviders(switchboard.Secret{})
	all.Set([]signin.Registration{{ID: "hung", URL: hung.URL, ClientID: clientID}, {ID: "idp", URL: p.issuer(), ClientID: clientID}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 2)
	for range 2 {
		go func() { _, _, err := all.Begin(ctx, "hung", redirect); failed <- err }()
	}
	answer, _ := p.begin(t, all)
	if _, err := end(t.Context(), all, answer); err != nil {
		t.Error(err)
	}
	cancel()
	for range 2 {
		if err := <-failed; codeOf(err) != switchboard.CodeProviderAway {
			t.Errorf("%v", err)
		}
	}
	if p.basic != ":" || p.form.Get("client_id") != clientID {
		t.Errorf("a public client has authenticated as %q", p.basic)
	}
}

func TestClaimsOfUserInfoCountWhereTheTokenLacksThem(t *testing.T) {
	for _, tt := range []struct {
		name  string
		token map[string]any
		info  map[string]any
		want  any
	}{
		{"the token has them", nil, map[string]any{"sub": "00u1", "groups": []string{"others"}}, []string{"staff", "leads"}},
		{"only there", map[string]any{"groups": nil}, map[string]any{"sub": "00u1", "groups": []string{"leads"}}, []string{"leads"}},
		{"of another person", map[string]any{"groups": nil}, map[string]any{"sub": "00u2", "groups": []string{"leads"}}, switchboard.CodeNotAuthenticated},
		{"of nobody", map[string]any{"groups": nil}, map[string]any{"groups": []string{"leads"}}, switchboard.CodeNotAuthenticated},
		{"a list that is none", map[string]any{"groups": nil}, map[string]any{"sub": "00u1", "groups": []any{"leads", 7}}, []string(nil)},
	} {
		p := newIDP(t)
		p.token, p.userInfo = p.good(tt.token), tt.info
		all := newProviders(p)
		answer, _ := p.begin(t, all)
		person, err := end(t.Context(), all, answer)
		var got any = codeOf(err)
		if err == nil {
			got = person.Claims["groups"]
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
