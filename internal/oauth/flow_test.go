package oauth

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAWholeConsentFromTheChallengeToTheRevocation(t *testing.T) {
	w := newWorld(t)
	c := w.client(Options{})
	w.on("/register", answerJSON(http.StatusCreated, map[string]any{"client_id": "dyn", "client_secret": "s3cret", "token_endpoint_auth_method": "client_secret_basic", "redirect_uris": []string{redirect}}))
	w.on("/revoke", func(http.ResponseWriter, *http.Request) {})
	ch, ok := ParseChallenge([]string{`Bearer resource_metadata="` + w.origin + `/.well-known/oauth-protected-resource/mcp", scope="files:read"`})
	if !ok {
		t.Fatal("the challenge is not read")
	}
	p, err := c.Discover(t.Context(), ch, ForPerson)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.ChooseRegistration(t.Context(), p, Ways{Request: RegistrationRequest{Redirect: redirect}})
	if err != nil {
		t.Fatal(err)
	}
	scopes, err := p.ChooseScopes(ch, nil)
	if err != nil {
		t.Fatal(err)
	}
	address, a, err := c.Begin(p, r, redirect, scopes)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(address)
	q := u.Query()
	for name, want := range map[string]string{
		"response_type": "code", "client_id": "dyn", "redirect_uri": redirect, "resource": w.origin + "/mcp", "code_challenge_method": "S256",
		"scope": "files:read offline_access", "prompt": "consent", "state": a.State.Reveal(),
	} {
		if q.Get(name) != want {
			t.Errorf("the address has %s=%q, want %q", name, q.Get(name), want)
		}
	}
	if strings.Contains(address, a.Verifier.Reveal()) || len(q.Get("code_challenge")) != 43 {
		t.Errorf("the address is %s", address)
	}
	tokens, err := c.Redeem(t.Context(), p, r, a, answerOf(a))
	if err != nil {
		t.Fatal(err)
	}
	if tokens.Access.Reveal() != "access-1" || tokens.Refresh.Reveal() != "refresh-1" || len(tokens.Scopes) != 1 || time.Until(tokens.Expires) > time.Hour || time.Until(tokens.Expires) < 59*time.Minute {
		t.Errorf("the tokens are %+v", tokens)
	}
	sent := w.took("/token")[0]
	id, secret, _ := (&http.Request{Header: sent.header}).BasicAuth()
	if id != "dyn" || secret != "s3cret" {
		t.Errorf("it proved to be %q with %q", id, secret)
	}
	for name, want := range map[string]string{
		"grant_type": "authorization_code", "code": "code-1", "redirect_uri": redirect, "code_verifier": a.Verifier.Reveal(), "resource": w.origin + "/mcp",
		"client_secret": "", "client_id": "",
	} {
		if sent.form.Get(name) != want {
			t.Errorf("it sent %s=%q, want %q", name, sent.form.Get(name), want)
		}
	}
	w.json("/token", tokenAnswer(map[string]any{"access_token": "access-2", "refresh_token": nil, "scope": nil}))
	again, err := c.Refresh(t.Context(), p, r, tokens)
	if err != nil {
		t.Fatal(err)
	}
	if again.Access.Reveal() != "access-2" || again.Refresh.Reveal() != "refresh-1" || len(again.Scopes) != 1 {
		t.Errorf("the new tokens are %+v", again)
	}
	if f := w.took("/token")[1].form; f.Get("refresh_token") != "refresh-1" || f.Get("resource") != w.origin+"/mcp" || f.Get("grant_type") != "refresh_token" {
		t.Errorf("it sent %v", f)
	}
	if err := c.Revoke(t.Context(), p, r, again); err != nil {
		t.Error(err)
	}
	if f := w.took("/revoke")[0].form; f.Get("token") != "refresh-1" || f.Get("token_type_hint") != "refresh_token" {
		t.Errorf("it revoked %v", f)
	}
	if err := c.Revoke(t.Context(), p, r, &Tokens{Access: switchboard.NewSecret("only")}); err != nil || w.took("/revoke")[1].form.Get("token") != "only" {
		t.Errorf("without a refresh token: %v", err)
	}
}
