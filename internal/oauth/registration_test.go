package oauth

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var discardLog = log.New(io.Discard, "", 0)

func TestARegistrationIsChosenInTheOrderOfTheSpecification(t *testing.T) {
	const document = "https://sb.example.com/oauth/client.json"
	configured := &ClientRegistration{ClientID: "configured"}
	request := RegistrationRequest{Redirect: redirect}
	kept := func(w *world, change func(*ClientRegistration)) *ClientRegistration {
		r := &ClientRegistration{Source: Registered, Issuer: w.origin, ClientID: "kept", Redirect: redirect}
		change(r)
		return r
	}
	same := func(*ClientRegistration) {}
	for _, tt := range []struct {
		name      string
		ways      func(w *world) Ways
		documents bool
		closed    bool // it registers nobody
		want      string
		words     string
	}{
		{"the configured one first", func(w *world) Ways { return Ways{configured, document, kept(w, same), request} }, true, false, "configured", ""},
		{"then the document", func(w *world) Ways { return Ways{nil, document, kept(w, same), request} }, true, false, document, ""},
		{"but only where documents are read", func(w *world) Ways { return Ways{nil, document, kept(w, same), request} }, false, false, "kept", ""},
		{"then the kept one", func(w *world) Ways { return Ways{nil, "", kept(w, same), request} }, true, false, "kept", ""},
		{"of this issuer only", func(w *world) Ways {
			return Ways{nil, "", kept(w, func(r *ClientRegistration) { r.Issuer += "/" }), request}
		}, true, false, "new", ""},
		{"of this redirect only", func(w *world) Ways {
			return Ways{nil, "", kept(w, func(r *ClientRegistration) { r.Redirect += "/" }), request}
		}, true, false, "new", ""},
		{"before its secret expires", func(w *world) Ways {
			return Ways{nil, "", kept(w, func(r *ClientRegistration) { r.Expires = time.Now().Add(time.Second) }), request}
		}, true, false, "new", ""},
		{"and of registrations only", func(w *world) Ways {
			return Ways{nil, "", kept(w, func(r *ClientRegistration) { r.Source = Configured }), request}
		}, true, false, "new", ""},
		{"then a new one", func(*world) Ways { return Ways{Request: request} }, true, false, "new", ""},
		{"else the operator must act", func(*world) Ways { return Ways{Document: document, Request: request} }, false, true, "", "register Switchboard there"},
		{"a document without a path", func(*world) Ways { return Ways{Document: "https://sb.example.com/"} }, true, false, "", "with a path"},
		{"a document with dots", func(*world) Ways { return Ways{Document: "https://sb.example.com/a/%2E./b"} }, true, false, "", "with a path"},
		{"a document over http", func(*world) Ways { return Ways{Document: "http://sb.example.com/a"} }, true, false, "", "with a path"},
		{"a client id with a line break", func(*world) Ways { return Ways{Configured: &ClientRegistration{ClientID: "a\nb"}} }, true, false, "", "characters"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.on("/register", answerJSON(http.StatusCreated, `{"client_id":"new"}`))
			p := w.provider()
			p.MetadataDocuments = tt.documents
			if tt.closed {
				p.RegistrationEndpoint = ""
			}
			r, err := w.client(Options{}).ChooseRegistration(t.Context(), p, tt.ways(w))
			wants(t, err, Misconfigured, tt.words)
			if err == nil && r.ClientID != tt.want {
				t.Errorf("it is %+v", r)
			}
			if n := len(w.took("/register")); (n == 1) != (tt.want == "new") {
				t.Errorf("it registered %d times", n)
			}
		})
	}
}

func TestARegistrationIsUsedAsItWasAnswered(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		answer string
		method string
		words  string
		kind   FailureKind
	}{
		{"a secret", 201, `{"client_id":"a","client_secret":"s","token_endpoint_auth_method":"client_secret_post"}`, methodPost, "", ""},
		{"nothing but an id", 201, `{"client_id":"a"}`, methodNone, "", ""},
		{"a secret, and no method", 201, `{"client_id":"a","client_secret":"s"}`, methodBasic, "", ""},
		{"status 200", 200, `{"client_id":"a","token_endpoint_auth_method":"none"}`, methodNone, "", ""},
		{"a secret without use", 201, `{"client_id":"a","client_secret":"s","token_endpoint_auth_method":"none"}`, methodNone, "", ""},
		{"no id", 201, `{}`, "", "no client_id", Misconfigured},
		{"an id with a line break", 201, `{"client_id":"a\nb"}`, "", "no client_id", Misconfigured},
		{"a long id", 201, `{"client_id":"` + strings.Repeat("a", maxClientText+1) + `"}`, "", "no client_id", Misconfigured},
		{"a secret with NUL", 201, `{"client_id":"a","client_secret":"s\u0000"}`, "", "client_secret", Misconfigured},
		{"another redirect", 201, `{"client_id":"a","redirect_uris":["https://evil.example.com/"]}`, "", "redirect_uris", Misconfigured},
		{"a method that was not asked for", 201, `{"client_id":"a","token_endpoint_auth_method":"private_key_jwt"}`, "", "not asked for", Misconfigured},
		{"a method without its secret", 201, `{"client_id":"a","token_endpoint_auth_method":"client_secret_basic"}`, "", "no client_secret", Misconfigured},
		{"an id twice", 201, `{"client_id":"a","client_id":"b"}`, "", "twice", Misconfigured},
		{"a refusal", 400, `{"error":"invalid_redirect_uri","error_description":"https only"}`, "", "invalid_redirect_uri https only", Misconfigured},
		{"a refusal without words", 403, ``, "", "403", Lost},
		{"a fault", 500, `{}`, "", "500", Lost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.on("/register", answerJSON(tt.status, tt.answer))
			r, err := w.client(Options{}).Register(t.Context(), w.provider(), RegistrationRequest{Redirect: redirect})
			wants(t, err, tt.kind, tt.words)
			if err == nil && (r.Method != tt.method || r.Issuer != w.origin || r.Source != Registered || r.Redirect != redirect) {
				t.Errorf("it is %+v", r)
			}
		})
	}
}

// An answer without end is cut, and its bytes are not kept.
func TestARegistrationWithoutEndIsCut(t *testing.T) {
	w := newWorld(t)
	w.on("/register", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(201)
		for {
			if _, err := io.WriteString(rw, `{"client_id":"a",`+strings.Repeat(" ", 1<<16)); err != nil {
				return
			}
		}
	})
	_, err := w.client(Options{}).Register(t.Context(), w.provider(), RegistrationRequest{Redirect: redirect})
	wants(t, err, Lost, "more than")
}

func TestARegistrationSaysWhatSwitchboardIs(t *testing.T) {
	for _, tt := range []struct {
		redirect  string
		supported []string
		kind      string
		method    string
	}{
		{redirect, nil, "web", methodBasic},
		{redirect, []string{methodNone, methodPost}, "web", methodPost},
		{redirect, []string{methodKey}, "web", methodNone},
		{"http://127.0.0.1:7420/connect/callback", []string{methodBasic, methodNone}, "native", methodNone},
		{"http://localhost:7420/connect/callback", []string{methodBasic}, "native", methodBasic},
	} {
		w := newWorld(t)
		w.on("/register", answerJSON(201, `{"client_id":"a","client_secret":"s","client_secret_expires_at":1900000000}`))
		p := w.provider()
		p.AuthMethods = tt.supported
		r, err := w.client(Options{}).Register(t.Context(), p, RegistrationRequest{Redirect: tt.redirect, Scopes: []string{"a", "b"}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Expires.Unix() != 1900000000 || !r.Secret.Equal(switchboard.NewSecret("s")) {
			t.Errorf("it is %+v", r)
		}
		var sent registrationWire
		if err := json.Unmarshal([]byte(w.took("/register")[0].body), &sent); err != nil {
			t.Fatal(err)
		}
		if sent.ApplicationType != tt.kind || sent.Method != tt.method || sent.Name != "Switchboard" || sent.Scope != "a b" || !slices.Equal(sent.Redirects, []string{tt.redirect}) ||
			!slices.Equal(sent.GrantTypes, []string{"authorization_code", "refresh_token"}) || !slices.Equal(sent.ResponseTypes, []string{"code"}) {
			t.Errorf("%s: it sent %+v", tt.redirect, sent)
		}
	}
	text, err := MetadataDocument("https://sb.example.com/oauth/client.json", RegistrationRequest{Redirect: redirect, URL: "https://sb.example.com"})
	if want := `{"client_id":"https://sb.example.com/oauth/client.json","client_name":"Switchboard","client_uri":"https://sb.example.com","redirect_uris":["` + redirect + `"],"grant_types":["authorization_code","refresh_token"],"response_types":["code"],"token_endpoint_auth_method":"none","application_type":"web"}`; err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
	if _, err := MetadataDocument("https://sb.example.com", RegistrationRequest{}); err == nil {
		t.Error("a document without a path")
	}
}
