package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/summit-switchboard/switchboard/internal/identity"
)

// Bounds of an ID token.
const (
	maxToken   = 64 << 10
	maxSubject = 255
	maxClaims  = 128
	maxValues  = 1024 // of one claim
	skew       = 30 * time.Second
)

// algorithms are the signatures that count. Each needs a key of its own kind, which only the provider's key set has: no key of
// a token's header counts.
var algorithms = []jwa.SignatureAlgorithm{
	jwa.RS256(), jwa.RS384(), jwa.RS512(), jwa.PS256(), jwa.PS384(), jwa.PS512(), jwa.ES256(), jwa.ES384(), jwa.ES512(), jwa.EdDSA(),
}

// tokenHeader is the protected header of an ID token. jku, jwk, x5u and x5c are not read.
type tokenHeader struct {
	Algorithm string          `json:"alg"`
	Key       string          `json:"kid"`
	Type      string          `json:"typ"`
	Critical  json.RawMessage `json:"crit"`
}

// tokenClaims are the claims that are checked: OpenID Connect Core 1.0 section 3.1.3.7.
type tokenClaims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience audience `json:"aud"`
	Party    string   `json:"azp"`
	Nonce    string   `json:"nonce"`
	Expires  *float64 `json:"exp"`
	Issued   *float64 `json:"iat"`
	From     *float64 `json:"nbf"`
}

// An audience is a text, or a list of texts.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// verify returns the person of an ID token. The error is a *switchboard.Error, which never has a part of the token.
func (p *provider) verify(ctx context.Context, token, nonce string) (*identity.Person, error) {
	bad := func(why string) (*identity.Person, error) {
		return nil, refuse("issuer %s has sent an ID token that does not count: %s", p.ID, why)
	}
	if len(token) > maxToken {
		return bad(fmt.Sprintf("it has more than %d bytes", maxToken))
	}
	parts := strings.Split(token, ".")
	var h tokenHeader
	if len(parts) != 3 || decodePart(parts[0], &h) != nil {
		return bad("it is no signed JWT")
	}
	algorithm, ok := jwa.LookupSignatureAlgorithm(h.Algorithm)
	switch {
	case !ok || !slices.Contains(algorithms, algorithm):
		return bad("its algorithm is not one of RS, PS, ES and EdDSA")
	case h.Critical != nil:
		return bad("its header demands what is not known here (crit)")
	case h.Type != "" && !strings.EqualFold(h.Type, "JWT"):
		return bad("its type is not JWT")
	}
	_, keys, err := p.read(ctx, h.Key)
	if err != nil {
		return nil, err
	}
	key, err := keyFor(keys, h.Key, algorithm)
	if err != nil {
		return bad(err.Error())
	}
	payload, err := jws.Verify([]byte(token), jws.WithKey(algorithm, key))
	if err != nil {
		return bad("its signature is wrong")
	}
	var c tokenClaims
	if err := json.Unmarshal(payload, &c); err != nil {
		return bad("its claims cannot be read")
	}
	if why := p.checkClaims(&c, nonce, time.Now()); why != "" {
		return bad(why)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil {
		return bad("its claims cannot be read")
	}
	claims, err := readClaims(members)
	if err != nil {
		return bad(err.Error())
	}
	return &identity.Person{Issuer: p.ID, Subject: c.Subject, Claims: claims}, nil
}

// checkClaims says why the claims do not count; "" means that they do.
func (p *provider) checkClaims(c *tokenClaims, nonce string, now time.Time) string {
	at := func(seconds float64) time.Time {
		return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	for _, t := range []*float64{c.Expires, c.Issued, c.From} {
		if t != nil && (*t < 0 || *t > 1e10) { // year 2286
			return "it has an impossible time"
		}
	}
	switch {
	case c.Issuer != p.URL:
		return "it is another issuer's"
	case !slices.Contains(c.Audience, p.ClientID):
		return "it is not for Switchboard"
	case len(c.Audience) > 1 && c.Party == "" || c.Party != "" && c.Party != p.ClientID:
		return "it is for another client"
	case c.Expires == nil || !now.Before(at(*c.Expires).Add(skew)):
		return "it has expired"
	case c.Issued == nil || now.Add(skew).Before(at(*c.Issued)):
		return "it is from the future"
	case c.From != nil && now.Add(skew).Before(at(*c.From)):
		return "it does not count yet"
	case nonce == "" || c.Nonce != nonce:
		return "it belongs to another sign-in"
	case c.Subject == "" || len(c.Subject) > maxSubject || strings.ContainsFunc(c.Subject, func(r rune) bool { return r < ' ' || r > '~' }):
		return "its subject is not a text of up to 255 characters"
	}
	return ""
}

// keyFor returns the key of the set with the id; without an id, the only key for the algorithm. Keys of RSA with fewer than 2048 bits are not
// in the set: jwk.Parse refuses them.
func keyFor(keys jwk.Set, id string, algorithm jwa.SignatureAlgorithm) (any, error) {
	var found []any
	for i := range keys.Len() {
		key, _ := keys.Key(i)
		if has, _ := key.KeyID(); id != "" && has != id {
			continue
		}
		if use, ok := key.KeyUsage(); ok && use != "sig" {
			continue
		}
		if own, ok := key.Algorithm(); ok && own.String() != algorithm.String() {
			continue
		}
		public, err := key.PublicKey()
		if err != nil || !slices.Contains(kinds(public.KeyType()), algorithm.String()[:2]) {
			continue
		}
		var raw any
		if err := jwk.Export(public, &raw); err != nil {
			continue
		}
		found = append(found, raw)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("the issuer has %d keys for it", len(found))
	}
	return found[0], nil
}

// kinds returns the first letters of the algorithms for a kind of key.
func kinds(of jwa.KeyType) []string {
	switch of {
	case jwa.RSA():
		return []string{"RS", "PS"}
	case jwa.EC():
		return []string{"ES"}
	case jwa.OKP():
		return []string{"Ed"}
	}
	return nil
}

func decodePart(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// protocolClaims are claims about the token, not about the person.
var protocolClaims = []string{"iss", "aud", "azp", "exp", "iat", "nbf", "nonce", "at_hash", "c_hash", "s_hash", "auth_time", "acr", "amr", "sid", "jti"}

// readClaims returns the claims that are texts, truth values or lists of texts. Others do not count in rows.
func readClaims(members map[string]json.RawMessage) (map[string][]string, error) {
	claims := map[string][]string{}
	for name, text := range members {
		var one string
		var truth bool
		var list []string
		switch {
		case slices.Contains(protocolClaims, name):
			continue
		case json.Unmarshal(text, &one) == nil && string(text) != "null":
			list = []string{one}
		case json.Unmarshal(text, &truth) == nil && string(text) != "null":
			list = []string{fmt.Sprint(truth)}
		case json.Unmarshal(text, &list) != nil || list == nil:
			continue
		}
		if len(list) > maxValues {
			return nil, fmt.Errorf("the claim %.64q has more than %d values; let the provider state only those that Switchboard needs", name, maxValues)
		}
		claims[name] = list
	}
	if len(claims) > maxClaims {
		return nil, errors.New("it has too many claims")
	}
	return claims, nil
}
