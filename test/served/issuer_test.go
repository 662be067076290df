package served_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// An issuer is a small OpenID provider that signs one person in: ann, who has the claim team only at the UserInfo endpoint. Its token endpoint fails in
// the way that mode names.
type issuer struct {
	*httptest.Server
	t      *testing.T
	key    *ecdsa.PrivateKey
	code   string // that it has given
	nonce  string // of the sign-in in progress
	mode   string
	access string
	idToken,
	refresh string
	gotVerifier, gotBasic string // what it was sent last
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &issuer{t: t, key: key}
	is.Server = httptest.NewServer(is)
	t.Cleanup(is.Close)
	return is
}

func (is *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	part := base64.RawURLEncoding.EncodeToString
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer(http.StatusOK, map[string]any{
			"issuer": is.URL, "authorization_endpoint": is.URL + "/auth", "token_endpoint": is.URL + "/token", "jwks_uri": is.URL + "/keys", "userinfo_endpoint": is.URL + "/me",
		})
	case "/keys":
		point, err := is.key.PublicKey.Bytes()
		if err != nil {
			is.t.Error(err)
		}
		answer(http.StatusOK, map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256", "use": "sig", "x": part(point[1:33]), "y": part(point[33:])}}})
	case "/token":
		_ = r.ParseForm()
		_, secret, _ := r.BasicAuth()
		is.gotVerifier, is.gotBasic = r.PostForm.Get("code_verifier"), r.Header.Get("Authorization")
		echo := fmt.Sprintf("%s of %s: %s, %s", secret, is.gotBasic, is.gotVerifier, r.PostForm.Get("code"))
		switch is.mode {
		case "the description echoes":
			answer(http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": echo})
			return
		case "the code of the error echoes":
			answer(http.StatusBadRequest, map[string]any{"error": echo})
			return
		case "it fails and echoes":
			http.Error(w, echo, http.StatusInternalServerError)
			return
		case "it answers what is no JSON":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"%s","id_token":%s`, is.access, echo)
			return
		case "it leads elsewhere":
			http.Redirect(w, r, "/token?echo="+echo, http.StatusTemporaryRedirect)
			return
		}
		is.idToken = is.sign()
		answer(http.StatusOK, map[string]any{"access_token": is.access, "refresh_token": is.refresh, "token_type": "Bearer", "id_token": is.idToken})
	case "/me":
		if is.mode == "the person's claims fail and echo" || r.Header.Get("Authorization") != "Bearer "+is.access {
			http.Error(w, "not by "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		answer(http.StatusOK, map[string]any{"sub": "ann", "team": "platform"})
	default:
		http.NotFound(w, r)
	}
}

// sign returns an ID token.
func (is *issuer) sign() string {
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()
	nonce := is.nonce
	if is.mode == "the nonce is wrong" {
		nonce += "x"
	}
	claims, err := json.Marshal(map[string]any{"iss": is.URL, "sub": "ann", "aud": "sb", "exp": now + 300, "iat": now, "nonce": nonce})
	if err != nil {
		is.t.Error(err)
	}
	text := part([]byte(`{"alg":"ES256","kid":"k","typ":"JWT"}`)) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, is.key, sum[:])
	if err != nil {
		is.t.Error(err)
	}
	if is.mode == "the signature is wrong" {
		s.Xor(s, r)
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + part(signature[:])
}

// signIn signs ann in at the admin side.
func (is *issuer) signIn(t *testing.T, g *rig.Gateway) *adminBrowser {
	t.Helper()
	b := openAdmin(t, g, "")
	_, page := b.post("/sign-in", url.Values{"issuer": {"idp"}})
	found := ledTo.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the sign-in does not lead to the issuer: %s", page)
	}
	at, err := url.Parse(html.UnescapeString(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	is.nonce, is.access = at.Query().Get("nonce"), "at"
	if status, page := b.get(b.base + "/sign-in/callback?" + url.Values{"code": {"good"}, "state": {at.Query().Get("state")}}.Encode()); status != http.StatusOK {
		t.Fatalf("the sign-in ends with %d %s", status, page)
	}
	return b
}

// try makes a call of a tool with the session of the browser.
func (b *adminBrowser) try(body string) (status int, answer string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.base+"/v1/try", strings.NewReader(body))
	if err != nil {
		b.t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", b.base)
	resp, err := b.Do(req)
	if err != nil {
		b.t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Error(err)
	}
	return resp.StatusCode, string(text)
}
