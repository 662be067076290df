package config

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const maxRecipients = 32

// whsec begins the secrets of Standard Webhooks, which have 24 to 64 bytes.
const whsec = "whsec_"

// recipientReader is the state of reading the recipients of notices.
type recipientReader struct {
	*loader
	row switchboard.Recipient
}

// read reads the recipients.
func (f *recipientReader) read(v document.Value) {
	for _, e := range v.ReadNamed(maxRecipients, true) {
		if err := switchboard.CheckID(e.Name); err != nil {
			e.Key.Fault("%v", err)
			continue
		}
		f.row = switchboard.Recipient{Name: e.Name}
		m, ok := e.Value.WithContext("notify %q: ", e.Name).Open(f.keys())
		if !ok {
			continue
		}
		m.Line, m.Column = e.Key.Line, e.Key.Column
		m.Read()
		f.cfg.Recipients = append(f.cfg.Recipients, f.row)
	}
	slices.SortFunc(f.cfg.Recipients, func(a, b switchboard.Recipient) int { return strings.Compare(a.Name, b.Name) })
}

// keys are the keys of a recipient.
func (f *recipientReader) keys() *document.Keys {
	text := document.Schema{"type": "string", "minLength": 1}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "url", Type: document.Custom("an https address", text, f.readURL), Required: "write the https address that takes the notices", Doc: "The address that takes the notices. If it is secret itself, write `${file:PATH}` or `${env:NAME}`."},
			{Key: "secret", Type: document.Custom("a text with a reference", text, f.readSigningSecret), Required: "make one that you also give to the recipient, such as with echo whsec_$(openssl rand -base64 32), and write ${file:PATH}", Doc: "The secret that signs the notices, as Standard Webhooks writes it: `whsec_` and the base64 of 24 to 64 random bytes; `${file:PATH}`, `${env:NAME}` or `${secret:NAME}`."},
			{Key: "tenants", Type: document.Texts("a list of tenants", func(texts []document.TextValue) {
				f.row.Tenants = []switchboard.TenantID{} // an empty list is not a missing one
				for _, t := range texts {
					if id := switchboard.TenantID(t.String); f.bounds[t.String] == nil && (!f.noTenantRows || id != DefaultTenant) {
						t.Fault("there is no tenant %s in switchboard.yaml%s", t.Shown(), suggestTenant(t.String, f.bounds))
					} else if !slices.Contains(f.row.Tenants, id) {
						f.row.Tenants = append(f.row.Tenants, id)
					}
				}
				slices.Sort(f.row.Tenants)
			}), Doc: "The tenants that the recipient gets notices about; all if absent."},
		},
		Hints: map[string]string{"address": `write "url"`, "key": `write "secret"`, "tenant": `write "tenants"`},
	}
}

// readURL reads the address of a recipient. Faults do not repeat it.
func (f *recipientReader) readURL(v document.Value) {
	v.Hidden = true
	s, ok := f.readSecret(v, "url")
	if !ok {
		return
	}
	u, err := url.Parse(s.Reveal())
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		v.Fault("want an address such as https://alerts.example.com/switchboard, without user and fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		v.Fault("want an https address; only a recipient on this machine may have http")
	default:
		f.row.URL = s
	}
}

// readSigningSecret reads the secret of Standard Webhooks.
func (f *recipientReader) readSigningSecret(v document.Value) {
	v.Hidden = true
	s, ok := f.readSecret(v, "secret")
	if !ok {
		return
	}
	text, begins := strings.CutPrefix(s.Reveal(), whsec)
	key, err := base64.StdEncoding.DecodeString(text)
	if !begins || err != nil || len(key) < 24 || len(key) > 64 {
		v.Fault("want whsec_ and the base64 of 24 to 64 random bytes, as echo whsec_$(openssl rand -base64 32) makes it")
		return
	}
	f.row.Secret = s
}

// recipientsFor returns the names of the recipients that notices about the tenant may go to, sorted.
func recipientsFor(c *Config, id switchboard.TenantID) (names []string) {
	for _, r := range c.Recipients {
		if r.Serves(id) {
			names = append(names, r.Name)
		}
	}
	return names
}
