package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"
	"golang.org/x/oauth2"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of requests to a provider, and of its answers.
const (
	answerTimeout = 10 * time.Second
	maxAnswer     = 1 << 20

	refreshAfter   = 15 * time.Minute // metadata and keys
	refreshForKey  = time.Minute      // for a key that is not known
	retryAfter     = 5 * time.Second  // while nothing is known
	knownHoldsAway = 24 * time.Hour   // while the provider does not answer
)

// metadata describes a provider: OpenID Connect Discovery 1.0 section 3.
type metadata struct {
	Issuer           string   `json:"issuer"`
	Authorization    string   `json:"authorization_endpoint"`
	Token            string   `json:"token_endpoint"`
	Keys             string   `json:"jwks_uri"`
	UserInfo         string   `json:"userinfo_endpoint"`
	ClientAuth       []string `json:"token_endpoint_auth_methods_supported"`
	SaysIssuer       bool     `json:"authorization_response_iss_parameter_supported"`
	ChallengeMethods []string `json:"code_challenge_methods_supported"`
}

// A provider is an OpenID provider of the configuration. It remembers the provider's metadata and keys.
type provider struct {
	Registration
	client *http.Client

	turn    chan struct{} // has one element while somebody reads or asks; guards the fields below
	known   *metadata
	keys    jwk.Set
	askedAt time.Time // the last attempt
	knownAt time.Time // the last success
	fault   error     // of the last attempt
}

func newProvider(is Registration) *provider {
	return &provider{Registration: is, turn: make(chan struct{}, 1), client: &http.Client{
		Timeout:       answerTimeout,
		Transport:     &http.Transport{DialContext: dial.Context, Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// away returns the refusal of a sign-in while the provider cannot be asked.
func (p *provider) away(err error) error {
	e := switchboard.Refuse(switchboard.CodeProviderAway, "the issuer %s cannot be asked: %.300v", p.ID, err)
	e.RetryAfter = time.Minute
	return e
}

// read returns the provider's metadata and keys. If there is no key with the id, it asks for new ones, once a minute.
func (p *provider) read(ctx context.Context, kid string) (*metadata, jwk.Set, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, nil, p.away(ctx.Err())
	}
	age := time.Since(p.knownAt)
	wanted := p.known == nil || age > refreshAfter
	if kid != "" && !wanted {
		_, has := p.keys.LookupKeyID(kid)
		wanted = !has && time.Since(p.askedAt) > refreshForKey
	}
	pause := refreshForKey
	if p.known == nil && p.fault != nil {
		pause = retryAfter // those who have waited together get one answer
	}
	if wanted && (p.askedAt.IsZero() || time.Since(p.askedAt) > pause) {
		known, keys, err := p.ask(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, nil, p.away(err) // its browser has left
		}
		if p.askedAt, p.fault = time.Now(), err; err == nil {
			p.known, p.keys, p.knownAt = known, keys, time.Now()
		}
	}
	if p.fault != nil && (p.known == nil || age > knownHoldsAway) {
		return nil, nil, p.away(p.fault)
	}
	return p.known, p.keys, nil
}

// ask asks for metadata and keys.
func (p *provider) ask(ctx context.Context) (*metadata, jwk.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var m metadata
	if err := p.get(ctx, strings.TrimSuffix(p.URL, "/")+"/.well-known/openid-configuration", "", &m); err != nil {
		return nil, nil, err
	}
	if m.Issuer != p.URL {
		return nil, nil, fmt.Errorf("its metadata states the issuer %.200q, and the configuration has url: %q; they must be equal byte for byte", m.Issuer, p.URL)
	}
	if m.ChallengeMethods != nil && !slices.Contains(m.ChallengeMethods, "S256") {
		return nil, nil, errors.New("it does not support PKCE with S256")
	}
	endpoints := map[string]string{"authorization_endpoint": m.Authorization, "token_endpoint": m.Token, "jwks_uri": m.Keys}
	if m.UserInfo != "" {
		endpoints["userinfo_endpoint"] = m.UserInfo
	}
	for name, address := range endpoints {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !strings.HasPrefix(p.URL, "http://")) {
			return nil, nil, fmt.Errorf("its metadata has the %s %.200q, which is no https URL", name, address)
		}
	}
	var raw json.RawMessage
	if err := p.get(ctx, m.Keys, "", &raw); err != nil {
		return nil, nil, err
	}
	keys, err := jwk.Parse(raw, jwk.WithIgnoreParseError(true)) // one key of a new kind does not hide the others
	if err != nil {
		return nil, nil, fmt.Errorf("its keys cannot be read: %w", err)
	}
	return &m, keys, nil
}

// get reads a JSON document of the provider.
func (p *provider) get(ctx context.Context, address, token string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s; redirects are not followed", address, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxAnswer:
		return fmt.Errorf("%s answered with more than %d bytes", address, maxAnswer)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

// oauth returns Switchboard's registration, for the OAuth library.
func (p *provider) oauth(m *metadata, redirect string) *oauth2.Config {
	c := &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.Secret.Reveal(), RedirectURL: redirect, Scopes: append([]string{"openid"}, p.Scopes...),
		Endpoint: oauth2.Endpoint{AuthURL: m.Authorization, TokenURL: m.Token, AuthStyle: oauth2.AuthStyleInHeader},
	}
	if c.ClientSecret == "" || m.ClientAuth != nil && !slices.Contains(m.ClientAuth, "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return c
}

// redeem exchanges a code for the person who has signed in. want are the names of the claims that the configuration compares.
func (p *provider) redeem(ctx context.Context, a *attempt, code string, want []string) (*identity.Person, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerTimeout)
	defer cancel()
	m, _, err := p.read(ctx, "")
	if err != nil {
		return nil, err
	}
	tokens, err := p.oauth(m, a.Redirect).Exchange(context.WithValue(ctx, oauth2.HTTPClient, p.client), code, oauth2.VerifierOption(a.Verifier))
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok && failed.ErrorCode == "invalid_grant" {
		return nil, refuse("issuer %s does not accept the code of this sign-in; start again", p.ID)
	}
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text has the whole answer
		masked := p.maskSent(a, code)
		return nil, p.away(fmt.Errorf("its token endpoint answered %s %.100q %.200q", failed.Response.Status, masked.Replace(failed.ErrorCode), masked.Replace(failed.ErrorDescription)))
	}
	if err != nil {
		return nil, p.away(err)
	}
	text, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, p.away(errors.New("its answer has no ID token; the scope openid was asked for"))
	}
	person, err := p.verify(ctx, text, a.Nonce)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(claim string) bool { return person.Claims[claim] != nil })
	if len(missing) > 0 && m.UserInfo != "" {
		if err := p.addUserInfo(ctx, m, tokens.AccessToken, person); err != nil {
			return nil, err
		}
	}
	return person, nil
}

// maskSent returns what hides the secrets of a request for tokens: texts of a provider may repeat them.
func (p *provider) maskSent(a *attempt, code string) *strings.Replacer {
	secret := p.Secret.Reveal()
	escaped := url.QueryEscape(secret)
	var pairs []string
	for _, s := range []string{base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(p.ClientID) + ":" + escaped)), secret, escaped, code, url.QueryEscape(code), a.Verifier} {
		if s != "" {
			pairs = append(pairs, s, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// addUserInfo adds the claims that the provider states only at its UserInfo endpoint: OpenID Connect Core 1.0 section 5.3.
func (p *provider) addUserInfo(ctx context.Context, m *metadata, token string, person *identity.Person) error {
	var members map[string]json.RawMessage
	if err := p.get(ctx, m.UserInfo, token, &members); err != nil {
		return p.away(err)
	}
	claims, err := readClaims(members)
	if err != nil {
		return p.away(err)
	}
	if !slices.Equal(claims["sub"], []string{person.Subject}) {
		return refuse("issuer %s states the claims of another person", p.ID)
	}
	for name, values := range claims {
		if person.Claims[name] == nil {
			person.Claims[name] = values
		}
	}
	return nil
}

// refuse returns the refusal of a sign-in that has no proof.
func refuse(format string, args ...any) error {
	return switchboard.Refuse(switchboard.CodeNotAuthenticated, format, args...)
}
