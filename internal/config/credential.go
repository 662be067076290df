package config

import (
	"net/url"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// VaultSecrets say with which secrets the tokens for servers are sealed in the store. See package vault.
type VaultSecrets struct {
	// Keys are the secrets: the first seals, all of them open. Without any, there is a key file in the data folder.
	Keys []switchboard.Secret
}

// minVaultKey is the minimal length of a secret of the vault, in bytes.
const minVaultKey = 32

// vaultReader is the state of reading the secrets of the vault.
type vaultReader struct{ *loader }

func (f vaultReader) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "key", Type: document.Custom("a text with a reference, or a list of such texts", document.Schema{"type": []string{"string", "array"}, "items": document.Schema{"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 2}, f.readSecrets), Required: "write the secret as ${file:PATH}, or two of them, the new one first", Doc: "The secret that seals the tokens, of at least 32 bytes: `${file:PATH}` or `${env:NAME}`. Of two secrets, `[new, old]`, the first one seals, and both open."},
		},
	}
}

func (f vaultReader) readSecrets(v document.Value) {
	v.Hidden = true
	items := []document.Value{v}
	if v.Kind == document.KindList {
		if items = v.ReadList(2); len(v.Items) == 0 {
			v.Fault("the list is empty; write a secret, such as ${file:secrets/vault}")
		}
	}
	for _, item := range items {
		item.Hidden = true
		s, ok := f.readSecret(item, "key")
		if ok && len(s.Reveal()) < minVaultKey {
			item.Fault("this has %d bytes; a secret that seals tokens has at least %d, as `openssl rand -base64 32` makes it", len(s.Reveal()), minVaultKey)
		}
		f.cfg.Vault.Keys = append(f.cfg.Vault.Keys, s)
	}
}

// credentialKeys are the keys of how Switchboard gets the tokens for a server.
func (r *serverRow) credentialKeys() *document.Keys {
	c := &r.server.Credential
	grant := func(kind switchboard.CredentialKind) document.Type {
		return document.Map(func() *document.Keys { return r.grantKeys(c, kind) }, func(m document.FixedMap) {
			if c.Kind != "" {
				m.Fault("a server has one kind of credential: remove %q or %q", c.Kind, kind)
			}
			c.Kind = kind
		})
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: string(switchboard.CredentialUser), Type: grant(switchboard.CredentialUser), Doc: "Each caller has a connection: the person signs in at the server's provider and consents. The calls of one caller never carry the token of another."},
			{Key: string(switchboard.CredentialClient), Type: grant(switchboard.CredentialClient), Doc: "Switchboard is registered at the provider itself (the client credentials grant). Its token is used for everybody."},
			{Key: string(switchboard.CredentialOperator), Type: grant(switchboard.CredentialOperator), Doc: "The connection that an operator makes with `switchboard server connect ID` is used for everybody."},
		},
		Later: []string{"exchange"},
		Hints: map[string]string{"oauth": `write "user"`, "token": `write a static token into "headers"`},
	}
}

// grantKeys are the keys of one kind of credential.
func (r *serverRow) grantKeys(c *switchboard.Credential, kind switchboard.CredentialKind) *document.Keys {
	secret := document.Schema{"type": "string", "minLength": 1}
	keys := &document.Keys{
		Rows: []document.Row{
			{Key: "id", Type: document.Text("a client id", func(v document.Value, s string) {
				if len(s) > maxClaimBytes || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
					v.Fault("%s: want the client id that the provider gave Switchboard: at most %d printable characters", v.Shown(), maxClaimBytes)
				}
				c.ClientID = s
			}), Doc: "The client id that the provider gave Switchboard. If absent, Switchboard registers itself, where the provider allows that."},
			{Key: "secret", Type: document.Custom("a text with a reference", secret, func(v document.Value) {
				v.Hidden = true
				c.ClientSecret, _ = r.readSecret(v, "secret")
			}), Doc: "The client secret, as `${file:PATH}`, `${env:NAME}` or `${secret:NAME}`."},
			{Key: "issuer", Type: document.Text("an https URL", func(v document.Value, s string) {
				if u, err := url.Parse(s); err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
					v.Fault("%s: want the provider's issuer identifier, an https URL such as https://id.example.com/main; its metadata states it as \"issuer\"", v.Shown())
				}
				c.Issuer = s
			}), Doc: "The provider's issuer identifier, byte for byte as its metadata states it. If absent, the server's metadata names the provider. Required with a secret or key, which goes to no other provider."},
			{Key: "scopes", Type: document.Texts("a list of scopes", func(texts []document.TextValue) {
				c.Scopes = []string{} // an empty list allows none
				for i, t := range texts {
					if i >= maxScopes || !isScope(t.String) {
						t.Fault("%s: want at most %d scopes, each a word of RFC 6749", t.Shown(), maxScopes)
						return
					}
					c.Scopes = append(c.Scopes, t.String)
				}
				slices.Sort(c.Scopes)
				c.Scopes = slices.Compact(c.Scopes)
			}), Doc: "The most that Switchboard asks for. If absent, what the server asks for."},
		},
		Hints: map[string]string{"client_id": `write "id"`, "client_secret": `write "secret"`, "scope": `write "scopes"`},
	}
	if kind == switchboard.CredentialClient {
		keys.Rows[0].Required = "register Switchboard at the provider as a service, which gives it an id"
		keys.Rows = append(keys.Rows, document.Row{Key: "key", Type: document.Custom("a text with a reference", secret, func(v document.Value) {
			v.Hidden = true
			c.ClientKey, _ = r.readSecret(v, "key")
		}), Doc: "The private key of Switchboard's registration, as PEM: `${file:PATH}`. It is used in the place of a secret (private_key_jwt)."})
	}
	return keys
}

func isScope(s string) bool {
	return s != "" && len(s) <= maxClaimBytes && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// checkCredential reports what does not go together with the credential of the server.
func (r *serverRow) checkCredential(at document.FixedMap) {
	c := &r.server.Credential
	_, static := r.server.Headers["Authorization"]
	share, shared := r.row.Lookup("share")
	switch {
	case c.Kind == "":
		at.Fault("say whose token it is: user: {}, client: {…} or operator: {}")
	case static:
		at.Fault("the server has the header Authorization already; remove it from headers, or remove credential")
	case c.Kind == switchboard.CredentialUser && shared && r.server.Share != switchboard.SharePrincipal:
		share.Fault("with credential: {user: …} each caller has a session of its own: remove share")
	default:
		if row, ok := at.Lookup(string(c.Kind)); ok {
			checkClientSecret(c, row)
		}
	}
}

// checkClientSecret reports what does not go together with the secret or key of Switchboard's registration.
func checkClientSecret(c *switchboard.Credential, row document.Value) {
	secret, key := row.HasMember("secret"), row.HasMember("key")
	switch {
	case c.Kind == switchboard.CredentialClient && secret == key:
		row.Fault("client wants a secret or a key: secret: \"${file:PATH}\" or key: \"${file:PATH}\"")
	case (secret || key) && !row.HasMember("issuer"):
		row.Fault("the secret or key belongs to one provider, which is not named: write issuer: https://…, as the provider's metadata states it. Without it, the server could name a provider of its own, which would get the secret")
	}
}
