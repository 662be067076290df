package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A foreignOAuth is the registration with which the other program signs in at a server's provider. The program's tokens are never read.
type foreignOAuth struct {
	id     string
	scopes []string
}

// Bounds of a registration.
const (
	maxClientID = 256
	maxScopes   = 64
)

// readOAuth reads the registration of an entry: {"clientId", "clientSecret", "scopes", "callbackPort"}. All else has a note.
func (f *foreignServer) readOAuth(v document.Value) {
	o, ok := v.FindMember("oauth")
	if !ok || o.Kind == document.KindNull || o.Kind == document.KindBool {
		return
	}
	if o.Kind != document.KindMap {
		o.Fault("oauth: want an object, not %v", o.Kind)
		return
	}
	if slices.ContainsFunc(f.headers, func(s foreignSetting) bool { return s.name == "Authorization" }) {
		f.addNote("oauth is left out: the server has the header Authorization")
		return
	}
	found, port, secret := &foreignOAuth{}, "", false
	for _, e := range o.WithContext("%soauth: ", v.Context).ReadNamed(document.MaxItems, true) {
		switch e.Name {
		case "clientId":
			found.id = e.Value.Text
			if found.id == "" || len(found.id) > maxClientID || !isPrintable(found.id) || strings.Contains(found.id, "${") {
				e.Value.Fault("clientId: want the client id itself, of at most %d printable characters", maxClientID)
			}
		case "clientSecret":
			secret = true
		case "scopes", "scope":
			found.scopes = readScopes(e.Value)
		case "callbackPort":
			port = e.Value.Text
		case "enabled":
		default:
			f.addNote("oauth: %s is not used here", document.Shown(e.Name))
		}
	}
	if found.id != "" {
		f.addNote("the client id of its sign-in is used; its provider must accept that the browser comes back to %s", redirectText(port))
		if secret {
			f.addNote(`its client secret is left out, because the file does not say to which provider it belongs: add "secret" and "issuer" to "credential"`)
		} else {
			f.addNote(`if the client id has a secret, the program keeps it elsewhere, where it is not read: add "secret" and "issuer" to "credential"`)
		}
	}
	if found.id == "" && found.scopes == nil {
		return // Switchboard registers itself
	}
	f.oauth = found
}

// redirectText says where the browser comes back to.
func redirectText(port string) string {
	if port == "" {
		return "http://127.0.0.1:PORT/callback (switchboard server connect --port PORT)"
	}
	return fmt.Sprintf("http://127.0.0.1:%s/callback (switchboard server connect --port %[1]s)", port)
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// readScopes returns the scopes in a list, or in a text with spaces between them.
func readScopes(v document.Value) (scopes []string) {
	if v.Kind == document.KindText {
		scopes = strings.Fields(v.Text)
	} else {
		for _, item := range v.ReadList(maxScopes) {
			scopes = append(scopes, item.Text)
		}
	}
	for _, s := range scopes {
		if s == "" || len(scopes) > maxScopes || !isPrintable(s) || strings.ContainsAny(s, ` "\\`) {
			v.Fault("scopes: want a list of at most %d scopes, each a word", maxScopes)
			return nil
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// resolveOAuth returns the credential of a server with a registration. One connection, which the user makes, is for everybody.
func resolveOAuth(o *foreignOAuth) switchboard.Credential {
	return switchboard.Credential{Kind: switchboard.CredentialOperator, ClientID: o.id, Scopes: o.scopes}
}

// makeCredential returns the setting of a registration.
func makeCredential(f *foreignServer) []edit.Setting {
	if f.oauth == nil {
		return nil
	}
	var pairs []edit.Setting
	if f.oauth.id != "" {
		pairs = append(pairs, edit.Text("id", f.oauth.id))
	}
	if len(f.oauth.scopes) > 0 {
		pairs = append(pairs, edit.List("scopes", f.oauth.scopes...))
	}
	return []edit.Setting{edit.Map("credential", edit.Map(string(switchboard.CredentialOperator), pairs...))}
}

// sameRegistration reports whether the configured server a can take the place of the server b of another program: b has no registration, or that of a.
func sameRegistration(a, b *switchboard.Credential) bool {
	return b.Kind == "" || a.ClientID == b.ClientID && (b.Scopes == nil || slices.Equal(a.Scopes, b.Scopes))
}
