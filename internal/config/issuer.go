package config

import (
	"net/url"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of issuers and their rows.
const (
	maxIssuers    = 32
	maxScopes     = 16
	maxClaimBytes = 256 // of a claim's name, of its value
)

// An Issuer is an OpenID provider at which people sign in.
type Issuer struct {
	ID  string
	URL string // the provider's issuer identifier, which the claim iss must equal byte for byte

	SignIn *SignIn // nil if nobody signs in there
}

// SignIn is Switchboard's registration at a provider.
type SignIn struct {
	ClientID string
	Secret   switchboard.Secret // the zero Secret for a public client, which PKCE alone protects
	Scopes   []string           // besides openid
}

// A PersonClaim is a row that gives offices to everybody for whom an issuer states a claim. All rows that match a person add up.
type PersonClaim struct {
	Issuer string // the id of an Issuer
	Claim  string // the name of a claim of the ID token
	Value  string // the claim is this text, or a list with this text

	Operator bool
	Tenant   switchboard.TenantID
	Offices  []switchboard.Office // within Tenant; sorted

	Calls switchboard.CallRights // only of members
}

// An issuerReader is the state of reading the issuers.
type issuerReader struct {
	*loader
	urls map[string]document.Value
	row  Issuer
}

// read reads the issuers.
func (f *issuerReader) read(v document.Value) {
	f.urls = map[string]document.Value{}
	for _, e := range v.ReadNamed(maxIssuers, true) {
		if err := switchboard.CheckID(e.Name); err != nil {
			e.Key.Fault("%v", err)
			continue
		}
		f.row = Issuer{ID: e.Name}
		m, ok := e.Value.WithContext("issuer %q: ", e.Name).Open(f.keys())
		if !ok {
			continue
		}
		m.Line, m.Column = e.Key.Line, e.Key.Column
		m.Read()
		f.cfg.Issuers = append(f.cfg.Issuers, f.row) // even if it is faulty, so that rows that name it are not faults too
	}
	slices.SortFunc(f.cfg.Issuers, func(a, b Issuer) int { return strings.Compare(a.ID, b.ID) })
}

// keys are the keys of an issuer.
func (f *issuerReader) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "url", Type: document.Text("an https URL", func(v document.Value, s string) {
				u, err := url.Parse(s)
				switch at, again := f.urls[s]; {
				case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
					v.Fault("%s: want the provider's issuer identifier, an https URL such as https://id.example.com/main; its metadata states it as \"issuer\"", v.Shown())
				case again:
					v.Fault("%s has a row already, at line %d", v.Shown(), at.Line)
				default:
					f.row.URL, f.urls[s] = s, v
				}
			}), Required: "write the issuer identifier that the provider's metadata states", Doc: "The provider's issuer identifier, byte for byte as its metadata and the claim `iss` state it."},
			{Key: "sign_in", Type: document.Map(func() *document.Keys {
				f.row.SignIn = &SignIn{Scopes: []string{"profile", "email"}}
				return f.signInKeys(f.row.SignIn)
			}, nil), Doc: "Switchboard's registration at the provider: people sign in there to use the admin side. The redirect URI to register is the admin address and `/sign-in/callback`."},
		},
		Later: []string{"audience", "claims", "clients"},
		Hints: map[string]string{"issuer": `write "url"`, "id": `write sign_in: {id: …}`, "client_id": `write sign_in: {id: …}`},
	}
}

func (f *issuerReader) signInKeys(s *SignIn) *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "id", Type: document.Text("a client id", func(v document.Value, id string) {
				if len(id) > maxClaimBytes {
					v.Fault("%d bytes are too long; at most %d", len(id), maxClaimBytes)
				}
				s.ClientID = id
			}), Required: "register Switchboard at the provider as a web application, which gives it an id", Doc: "The client id that the provider gave Switchboard."},
			{Key: "secret", Type: document.Custom("a text with a reference", document.Schema{"type": "string", "minLength": 1}, func(v document.Value) {
				v.Hidden = true
				s.Secret, _ = f.readSecret(v, "secret")
			}), Doc: "The client secret, as `${file:PATH}`, `${env:NAME}` or `${secret:NAME}`. If absent, Switchboard is a public client."},
			{Key: "scopes", Type: document.Texts("a list of scopes", func(texts []document.TextValue) {
				s.Scopes = nil
				for i, t := range texts {
					if i >= maxScopes || len(t.String) > maxClaimBytes || t.String == "" || strings.ContainsFunc(t.String, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
						t.Fault("%s: want at most %d scopes, each a word of RFC 6749", t.Shown(), maxScopes)
						return
					}
					if t.String != "openid" {
						s.Scopes = append(s.Scopes, t.String)
					}
				}
			}), Doc: "What to ask for besides `openid`; `profile` and `email` if absent. Some providers state groups only with a scope of that name."},
		},
		Hints: map[string]string{"client_id": `write "id"`, "client_secret": `write "secret"`, "scope": `write "scopes"`},
	}
}

// readIssuerName reads the id of an issuer of the file. within, if not nil, are those that a tenant may name.
func (l *loader) readIssuerName(v document.Value, s string, within []string) string {
	i := slices.IndexFunc(l.cfg.Issuers, func(is Issuer) bool { return is.ID == s })
	switch {
	case i < 0:
		v.Fault("there is no issuer %s in switchboard.yaml%s", v.Shown(), document.Suggestion(s, "issuers", l.issuerIDs()))
	case l.cfg.Issuers[i].SignIn == nil:
		v.Fault("nobody signs in at issuer %s: it has no sign_in in switchboard.yaml", v.Shown())
	case within != nil && !slices.Contains(within, s):
		v.Fault("the operator does not let this tenant use issuer %s: issuers in its row of switchboard.yaml", v.Shown())
	default:
		return s
	}
	return ""
}

func (l *loader) issuerIDs() []string {
	ids := make([]string, len(l.cfg.Issuers))
	for i, is := range l.cfg.Issuers {
		ids[i] = is.ID
	}
	return ids
}

// compareClaims orders rows by issuer, claim, value and tenant.
func compareClaims(a, b PersonClaim) int {
	return slices.Compare([]string{a.Issuer, a.Claim, a.Value, string(a.Tenant)}, []string{b.Issuer, b.Claim, b.Value, string(b.Tenant)})
}
