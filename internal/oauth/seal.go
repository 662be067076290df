package oauth

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The types below are the plain forms of the values with secrets. They are made only here, for a caller that encrypts the bytes at once: a
// Secret in JSON is "***", so that no other path can write it by mistake.

type registrationSealed struct {
	Source   Source    `json:"source"`
	Issuer   string    `json:"issuer,omitzero"`
	ClientID string    `json:"client_id"`
	Secret   string    `json:"secret,omitzero"`
	Key      string    `json:"key,omitzero"`
	KeyID    string    `json:"key_id,omitzero"`
	Method   string    `json:"method,omitzero"`
	Redirect string    `json:"redirect,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`
}

type attemptSealed struct {
	State    string    `json:"state"`
	Verifier string    `json:"verifier"`
	Issuer   string    `json:"issuer"`
	ClientID string    `json:"client_id"`
	Resource string    `json:"resource"`
	Redirect string    `json:"redirect"`
	Scopes   []string  `json:"scopes,omitzero"`
	Ends     time.Time `json:"ends"`
}

type tokensSealed struct {
	Access  string    `json:"access"`
	Refresh string    `json:"refresh,omitzero"`
	Scopes  []string  `json:"scopes,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// Seal returns the registration with its secrets in plain text, to be encrypted.
func (r *ClientRegistration) Seal() ([]byte, error) {
	return json.Marshal(registrationSealed{r.Source, r.Issuer, r.ClientID, r.Secret.Reveal(), r.Key.Reveal(), r.KeyID, r.Method, r.Redirect, r.Expires})
}

// UnsealRegistration reads the bytes of Seal.
func UnsealRegistration(plain []byte) (*ClientRegistration, error) {
	s, err := unseal[registrationSealed](plain, "registration")
	if err != nil {
		return nil, err
	}
	return &ClientRegistration{s.Source, s.Issuer, s.ClientID, switchboard.NewSecret(s.Secret), switchboard.NewSecret(s.Key), s.KeyID, s.Method, s.Redirect, s.Expires}, nil
}

// Seal returns the attempt with its secrets in plain text, to be encrypted.
func (a *Attempt) Seal() ([]byte, error) {
	return json.Marshal(attemptSealed{a.State.Reveal(), a.Verifier.Reveal(), a.Issuer, a.ClientID, a.Resource, a.Redirect, a.Scopes, a.Ends})
}

// UnsealAttempt reads the bytes of Seal.
func UnsealAttempt(plain []byte) (*Attempt, error) {
	s, err := unseal[attemptSealed](plain, "attempt")
	if err != nil {
		return nil, err
	}
	return &Attempt{switchboard.NewSecret(s.State), switchboard.NewSecret(s.Verifier), s.Issuer, s.ClientID, s.Resource, s.Redirect, s.Scopes, s.Ends}, nil
}

// Seal returns the tokens in plain text, to be encrypted.
func (t *Tokens) Seal() ([]byte, error) {
	return json.Marshal(tokensSealed{t.Access.Reveal(), t.Refresh.Reveal(), t.Scopes, t.Expires})
}

// UnsealTokens reads the bytes of Seal.
func UnsealTokens(plain []byte) (*Tokens, error) {
	s, err := unseal[tokensSealed](plain, "tokens")
	if err != nil {
		return nil, err
	}
	return &Tokens{switchboard.NewSecret(s.Access), switchboard.NewSecret(s.Refresh), s.Scopes, s.Expires}, nil
}

// unseal decodes the plain form. Its error does not repeat the text.
func unseal[T any](plain []byte, what string) (T, error) {
	var s T
	if err := json.Unmarshal(plain, &s, json.RejectUnknownMembers(true)); err != nil {
		var none T
		return none, fail(Refused, "the %s that was kept cannot be read", what)
	}
	return s, nil
}
