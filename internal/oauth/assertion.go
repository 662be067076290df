package oauth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// assertionHolds is how long an assertion is good. It is used at once; the rest is for clocks that differ.
const assertionHolds = time.Minute

// assert returns the proof of private_key_jwt: RFC 7523 section 3. The audience is the issuer alone, as the update of RFC 7523 demands: an
// assertion for a token endpoint could be used at another authorization server that claims the same endpoint.
func (r *ClientRegistration) assert(p *Provider, now time.Time) (string, error) {
	key, alg, err := ParseKey(r.Key)
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": r.ClientID, "sub": r.ClientID, "aud": p.Issuer, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(assertionHolds).Unix(),
	})
	if err != nil {
		return "", err
	}
	header := jws.NewHeaders()
	if err := header.Set(jws.TypeKey, "JWT"); err != nil {
		return "", err
	}
	if r.KeyID != "" {
		if err := header.Set(jws.KeyIDKey, r.KeyID); err != nil {
			return "", err
		}
	}
	signed, err := jws.Sign(claims, jws.WithKey(alg, key, jws.WithProtectedHeaders(header)))
	return string(signed), err
}

// ParseKey returns the private key in the PEM text, and the algorithm that it signs with. Its errors do not repeat the text.
func ParseKey(text switchboard.Secret) (key any, alg jwa.SignatureAlgorithm, err error) {
	block, _ := pem.Decode([]byte(text.Reveal()))
	if block == nil {
		return nil, alg, errors.New("it is not in PEM")
	}
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		err = errors.New("")
	}
	if err != nil {
		return nil, alg, errors.New("it is no private key without a password, of PKCS #8, PKCS #1 or SEC 1")
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		switch k.Curve {
		case elliptic.P256():
			return k, jwa.ES256(), nil
		case elliptic.P384():
			return k, jwa.ES384(), nil
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() >= 2048 {
			return k, jwa.RS256(), nil
		}
	case ed25519.PrivateKey:
		return k, jwa.EdDSA(), nil
	}
	return nil, alg, errors.New("it is of another kind than ECDSA on P-256 or P-384, RSA of 2048 bits or more, and Ed25519")
}
