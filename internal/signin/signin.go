// Package signin lets people sign in to the admin side: at an OpenID provider, with a person's key, or with a code from the data folder.
//
// It decides who somebody is (provider.go, idtoken.go), and how long that holds (sessions.go). Package identity decides at each request
// which offices the person has. Package page decides how browsers carry cookies.
//
// The flow is the authorization code flow with PKCE (RFC 7636), state and nonce: OpenID Connect Core 1.0 section 3.1, RFC 9700 section
// 2.1. The browser carries the state of a sign-in in progress, sealed. So strangers cost no memory, and another replica can end the
// sign-in.
package signin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// AttemptTime is how long a sign-in may take.
const AttemptTime = 10 * time.Minute

// maxAttempt limits what a browser sends of a sign-in in progress.
const maxAttempt = 4 << 10

// A Registration says how Switchboard is registered at an OpenID provider.
type Registration struct {
	ID       string // in the configuration
	URL      string // its issuer identifier
	ClientID string
	Secret   switchboard.Secret // the zero Secret for a public client
	Scopes   []string           // besides openid
}

func (is Registration) equal(o Registration) bool {
	return is.ID == o.ID && is.URL == o.URL && is.ClientID == o.ClientID && is.Secret.Reveal() == o.Secret.Reveal() && slices.Equal(is.Scopes, o.Scopes)
}

// Providers are the issuers at which people can sign in. It is safe for concurrent use.
type Providers struct {
	seal cipher.AEAD

	mu  sync.Mutex
	all map[string]*provider // by id
}

// NewProviders returns Providers without any. Replicas with the same secret can end each other's sign-ins; without a secret, only this process
// can end its own.
func NewProviders(secret switchboard.Secret) *Providers {
	key := make([]byte, 32)
	rand.Read(key)
	if text := secret.Reveal(); text != "" {
		key, _ = hkdf.Key(sha256.New, []byte(text), nil, "switchboard sign-in", len(key)) // the length is possible
	}
	block, _ := aes.NewCipher(key) // the key has 32 bytes
	seal, _ := cipher.NewGCMWithRandomNonce(block)
	return &Providers{seal: seal, all: map[string]*provider{}}
}

// Set replaces the issuers. An issuer that stays the same keeps what is known of it.
func (p *Providers) Set(issuers []Registration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.all
	p.all = map[string]*provider{}
	for _, is := range issuers {
		if old := was[is.ID]; old != nil && old.equal(is) {
			p.all[is.ID] = old
			continue
		}
		p.all[is.ID] = newProvider(is)
	}
}

func (p *Providers) get(id string) *provider {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

// IDs returns the ids of the issuers, sorted.
func (p *Providers) IDs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.all))
	for id := range p.all {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// An attempt is a sign-in in progress.
type attempt struct {
	Issuer   string    `json:"issuer"`
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Redirect string    `json:"redirect"`
	Ends     time.Time `json:"ends"`
}

// An Answer is the answer of an issuer, which the browser brings.
type Answer struct {
	State, Code, Issuer string // Issuer is the parameter iss of RFC 9207
	Error               string // the code of RFC 6749 section 4.1.2.1
	Attempt             string // what Begin returned, from the same browser
}

// Begin starts a sign-in at an issuer. It returns the address where the browser has to go, and a sealed text that it has to bring back with the answer. The error is a
// *switchboard.Error: SB-AUTH-006 if the issuer cannot be asked.
func (p *Providers) Begin(ctx context.Context, issuer, redirect string) (address, sealed string, err error) {
	at := p.get(issuer)
	if at == nil {
		return "", "", &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "nobody signs in at an issuer of that name"}
	}
	m, _, err := at.read(ctx, "")
	if err != nil {
		return "", "", err
	}
	a := attempt{issuer, newSecret(), newSecret(), oauth2.GenerateVerifier(), redirect, time.Now().Add(AttemptTime)}
	text, err := json.Marshal(a)
	if err != nil {
		return "", "", err
	}
	address = at.oauth(m, redirect).AuthCodeURL(a.State, oauth2.S256ChallengeOption(a.Verifier), oauth2.SetAuthURLParam("nonce", a.Nonce))
	return address, base64.RawURLEncoding.EncodeToString(p.seal.Seal(nil, nil, text, nil)), nil
}

// End ends a sign-in: it returns who has signed in. want returns the claims that the configuration compares for an issuer. once reports
// whether the state is used for the first time; it is asked after the issuer has confirmed the person. The error is a *switchboard.Error.
func (p *Providers) End(ctx context.Context, answer Answer, want func(issuer string) []string, once func(ctx context.Context, state string) error) (*identity.Person, error) {
	a, ok := p.open(answer.Attempt)
	switch {
	case !ok:
		return nil, refuse("this browser has not started this sign-in, or it took longer than %.0f minutes; start again", AttemptTime.Minutes())
	case subtle.ConstantTimeCompare([]byte(a.State), []byte(answer.State)) != 1:
		return nil, refuse("this is the answer to another sign-in than the one that this browser started; start again")
	}
	at := p.get(a.Issuer)
	if at == nil {
		return nil, refuse("nobody signs in at issuer %s any more", a.Issuer)
	}
	m, _, err := at.read(ctx, "")
	switch {
	case err != nil:
		return nil, err
	case answer.Issuer != "" && answer.Issuer != at.URL, answer.Issuer == "" && m.SaysIssuer: // RFC 9207 section 2.4
		return nil, refuse("the answer is not of issuer %s", at.ID)
	case answer.Error != "":
		return nil, refuse("issuer %s has signed nobody in: %.64q", at.ID, answer.Error)
	case answer.Code == "" || len(answer.Code) > maxAttempt:
		return nil, refuse("the answer of issuer %s has no code", at.ID)
	}
	person, err := at.redeem(ctx, a, answer.Code, want(at.ID))
	if err != nil {
		return nil, err
	}
	if err := once(ctx, a.State); err != nil {
		return nil, err
	}
	return person, nil
}

// open returns the sign-in that a browser brings back.
func (p *Providers) open(sealed string) (*attempt, bool) {
	if len(sealed) > maxAttempt {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return nil, false
	}
	text, err := p.seal.Open(nil, nil, raw, nil)
	var a attempt
	if err != nil || json.Unmarshal(text, &a) != nil || !time.Now().Before(a.Ends) {
		return nil, false
	}
	return &a, true
}

// newSecret returns 256 random bits as text.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}
