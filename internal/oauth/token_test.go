package oauth

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestCD05TheCodeGoesOnlyToTheIssuerThatWasAsked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(q url.Values, p *Provider, a *Attempt)
		words  string
		kind   FailureKind
	}{
		{"a sound answer", func(url.Values, *Provider, *Attempt) {}, "", ""},
		{"no iss, and none is promised", func(q url.Values, _ *Provider, _ *Attempt) { q.Del("iss") }, "", ""},
		{"iss, and none is promised", func(url.Values, *Provider, *Attempt) {}, "", ""},
		{"no iss, though it is promised", func(q url.Values, p *Provider, _ *Attempt) { q.Del("iss"); p.StatesIssuer = true }, "does not state its issuer", Refused},
		{"an empty iss", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("iss", "") }, "is of the issuer", Refused},
		{"another iss", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("iss", "https://evil.example.com") }, "is of the issuer", Refused},
		{"iss with a slash more", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("iss", q.Get("iss")+"/") }, "is of the issuer", Refused},
		{"iss in other letters", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("iss", strings.ToUpper(q.Get("iss"))) }, "is of the issuer", Refused},
		{"iss twice", func(q url.Values, _ *Provider, _ *Attempt) { q.Add("iss", q.Get("iss")) }, "iss twice", Refused},
		{"the state of another attempt", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("state", "x") }, "another attempt", Refused},
		{"no state", func(q url.Values, _ *Provider, _ *Attempt) { q.Del("state") }, "another attempt", Refused},
		{"no state anywhere", func(q url.Values, _ *Provider, a *Attempt) { q.Del("state"); a.State = switchboard.Secret{} }, "another attempt", Refused},
		{"state twice", func(q url.Values, _ *Provider, _ *Attempt) { q.Add("state", "x") }, "state twice", Refused},
		{"code twice", func(q url.Values, _ *Provider, _ *Attempt) { q.Add("code", "x") }, "code twice", Refused},
		{"no code", func(q url.Values, _ *Provider, _ *Attempt) { q.Del("code") }, "no code", Refused},
		{"a code with a line break", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("code", "a\nb") }, "no code", Refused},
		{"late", func(_ url.Values, _ *Provider, a *Attempt) { a.Ends = time.Now().Add(-time.Second) }, "has expired", Refused},
		{"the server has another issuer now", func(_ url.Values, p *Provider, _ *Attempt) { p.Issuer = p.TokenEndpoint }, "is registered at the issuer", Misconfigured},
		{"the server is another resource now", func(_ url.Values, p *Provider, _ *Attempt) { p.Resource += "/x" }, "has changed its authorization server", Refused},
		{"another client began it", func(_ url.Values, _ *Provider, a *Attempt) { a.ClientID = "other" }, "has changed its authorization server", Refused},
		{"the person said no", func(q url.Values, _ *Provider, _ *Attempt) { q.Set("error", "access_denied") }, "access_denied", Refused},
		{"the scope is unknown", func(q url.Values, _ *Provider, _ *Attempt) {
			q.Set("error", "invalid_scope")
			q.Set("error_description", "no\r\nsuch scope")
		}, `"no  such scope"`, Misconfigured},
		{"an error with the iss of another", func(q url.Values, _ *Provider, _ *Attempt) {
			q.Set("error", "call 555-1234")
			q.Set("iss", "https://evil.example.com")
		}, "is of the issuer", Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			c, p, r := w.client(Options{}), w.provider(), w.registration()
			_, a := w.begin(c, p, r)
			q := answerOf(a)
			tt.change(q, p, a)
			_, err := c.Redeem(t.Context(), p, r, a, q)
			wants(t, err, tt.kind, tt.words)
			if n := len(w.took("/token")); (n == 1) != (tt.words == "") {
				t.Errorf("the code was sent %d times", n)
			}
			if err != nil && strings.Contains(err.Error(), "555") {
				t.Errorf("it shows the text of somebody else: %v", err)
			}
		})
	}
}

func TestCD09OnlyATokenThatWasAskedForIsUsed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer any
		words  string
		kind   FailureKind
	}{
		{"a sound answer", tokenAnswer(nil), "", ""},
		{"no scope means those asked for", tokenAnswer(map[string]any{"scope": nil}), "", ""},
		{"bearer in small letters", tokenAnswer(map[string]any{"token_type": "bearer"}), "", ""},
		{"seconds as a text", tokenAnswer(map[string]any{"expires_in": "3600"}), "", ""},
		{"no expiry", tokenAnswer(map[string]any{"expires_in": nil}), "", ""},
		{"a wider scope", tokenAnswer(map[string]any{"scope": "files:read files:write"}), `"files:write"`, Refused},
		{"another scope", tokenAnswer(map[string]any{"scope": "admin"}), `"admin"`, Refused},
		{"a scope that is none", tokenAnswer(map[string]any{"scope": "files:read \x01"}), "no scope", Refused},
		{"the type mac", tokenAnswer(map[string]any{"token_type": "mac"}), `"mac"`, Refused},
		{"the type DPoP", tokenAnswer(map[string]any{"token_type": "DPoP"}), `"DPoP"`, Refused},
		{"no type", tokenAnswer(map[string]any{"token_type": nil}), `""`, Refused},
		{"no token", tokenAnswer(map[string]any{"access_token": nil}), "access token", Refused},
		{"NUL in the token", tokenAnswer(map[string]any{"access_token": "a\x00b"}), "access token", Refused},
		{"a line break in the token", tokenAnswer(map[string]any{"access_token": "a\r\nX-Evil: 1"}), "access token", Refused},
		{"a blank in the token", tokenAnswer(map[string]any{"access_token": "a b"}), "access token", Refused},
		{"a long token", tokenAnswer(map[string]any{"access_token": strings.Repeat("a", maxToken+1)}), "access token", Refused},
		{"the longest token", tokenAnswer(map[string]any{"access_token": strings.Repeat("a", maxToken)}), "", ""},
		{"a long refresh token", tokenAnswer(map[string]any{"refresh_token": strings.Repeat("a", maxToken+1)}), "refresh token", Refused},
		{"NUL in the refresh token", tokenAnswer(map[string]any{"refresh_token": "a\x00"}), "refresh token", Refused},
		{"a negative expiry", tokenAnswer(map[string]any{"expires_in": -1}), "expires_in", Refused},
		{"an expiry of words", tokenAnswer(map[string]any{"expires_in": "soon"}), "expires_in", Refused},
		{"a member twice", `{"access_token":"a","token_type":"Bearer","access_token":"b"}`, "twice", Lost},
		{"a number as token", `{"access_token":1,"token_type":"Bearer"}`, "another form", Lost},
		{"an array", `[]`, "another form", Lost},
		{"half of it", `{"access_token":"a"`, "another form", Lost},
		{"bad UTF-8", "{\"access_token\":\"a\xff\",\"token_type\":\"Bearer\"}", "another form", Lost},
		{"a refusal with status 200", `{"error":"bad_refresh_token"}`, "bad_refresh_token", Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.json("/token", tt.answer)
			c, p, r := w.client(Options{}), w.provider(), w.registration()
			_, a := w.begin(c, p, r)
			tokens, err := c.Redeem(t.Context(), p, r, a, answerOf(a))
			wants(t, err, tt.kind, tt.words)
			if (tokens == nil) != (err != nil) {
				t.Errorf("%+v with %v", tokens, err)
			}
			old := tokensOf("old")
			old.Scopes = []string{"files:read"}
			_, err = c.Refresh(t.Context(), p, r, old)
			wants(t, err, tt.kind, tt.words)
		})
	}
}

func TestAnExpiryIsNeverLaterThanTheAnswerSaysAndEnds(t *testing.T) {
	asked := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		`60`: asked.Add(time.Minute), `"60"`: asked.Add(time.Minute), `0`: asked, `1.5`: asked.Add(1500 * time.Millisecond), `1e300`: asked.Add(maxLifetime),
		`"Infinity"`: asked.Add(maxLifetime), `null`: {}, ``: {},
	} {
		w := tokenWire{Access: "a", Type: "Bearer", ExpiresIn: []byte(text)}
		got, err := w.tokens(&Provider{}, nil, asked, nil)
		if err != nil || !got.Expires.Equal(want) {
			t.Errorf("%s: %v %v, want %v", text, got, err, want)
		}
	}
	w := tokenWire{Access: "a", Type: "Bearer", ExpiresIn: []byte(`"NaN"`)}
	if _, err := w.tokens(&Provider{}, nil, asked, nil); err == nil {
		t.Error("NaN is an expiry")
	}
}

// The caller sends the same refresh token again after NotSent and Busy only.
func TestAnErrorSaysWhetherTheRefreshTokenIsStillGood(t *testing.T) {
	for _, tt := range []struct {
		name  string
		h     http.HandlerFunc
		kind  FailureKind
		words string
	}{
		{"invalid_grant", answerJSON(400, `{"error":"invalid_grant","error_description":"revoked"}`), Refused, "invalid_grant revoked"},
		{"invalid_grant with another type of JSON", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		}, Refused, "invalid_grant"},
		{"a long description", answerJSON(400, `{"error":"`+strings.Repeat("e", 500)+`","error_description":"`+strings.Repeat("ä", 60<<10)+`"}`), Misconfigured, strings.Repeat("e", 60) + "… ää"},
		{"invalid_client", answerJSON(401, `{"error":"invalid_client"}`), Misconfigured, "invalid_client"},
		{"invalid_scope", answerJSON(400, `{"error":"invalid_scope"}`), Misconfigured, "invalid_scope"},
		{"invalid_target", answerJSON(400, `{"error":"invalid_target"}`), Misconfigured, "invalid_target"},
		{"too many requests", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, Busy, "429"},
		{"temporarily unavailable, in words", answerJSON(400, `{"error":"temporarily_unavailable"}`), Busy, "temporarily_unavailable"},
		{"the person must come", answerJSON(400, `{"error":"interaction_required"}`), Refused, "interaction_required"},
		{"a fault, in words", answerJSON(400, `{"error":"server_error"}`), Lost, "server_error"},
		{"500", answerJSON(500, `{"error":"invalid_grant"}`), Lost, "500"},
		{"502 of a proxy", status(502), Lost, "502"},
		{"503", status(503), Lost, "503"},
		{"403 of a wall, in HTML", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(403)
			_, _ = io.WriteString(w, "<html>wall-text</html>")
		}, Lost, "403"},
		{"200 in HTML", page, Lost, "not JSON"},
		{"404", status(404), Misconfigured, "404"},
		{"a redirect", redirectTo("https://evil.example.com/token"), Misconfigured, "redirects are not followed"},
		{"more than 1 MiB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range 200 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, Lost, "more than"},
		{"a compression bomb", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				t.Errorf("it accepts %s", r.Header.Get("Accept-Encoding"))
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write([]byte(`{"access_token":"a","token_type":"Bearer"}`))
			_ = z.Close()
		}, Lost, "not JSON"},
		{"many headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("a", maxHeader+1))
		}, Lost, "answer is lost"},
		{"the connection ends before the answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Lost, "answer is lost"},
		{"the connection ends within the answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, Lost, "broke off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.on("/token", tt.h)
			_, err := w.client(Options{}).Refresh(t.Context(), w.provider(), w.registration(), tokensOf("refresh-1"))
			wants(t, err, tt.kind, tt.words)
			if err == nil || strings.Contains(err.Error(), "wall-text") || strings.Contains(err.Error(), "<") {
				t.Errorf("the error quotes a page: %v", err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if n := len(w.took("/token")); n != 1 {
				t.Errorf("the refresh token was sent %d times", n)
			}
			if e, _ := errors.AsType[*RequestError](err); tt.name == "too many requests" && e.RetryAfter != 7*time.Second {
				t.Errorf("again after %s", e.RetryAfter)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		w := newWorld(t)
		w.server.Close()
		_, err := w.client(Options{}).Refresh(t.Context(), w.provider(), w.registration(), tokensOf("refresh-1"))
		wants(t, err, NotSent, "cannot be reached")
	})
	t.Run("the handshake of TLS fails", func(t *testing.T) {
		w := newWorld(t)
		c, p, r := w.client(Options{}), w.provider(), w.registration()
		p.TokenEndpoint = "https" + strings.TrimPrefix(p.TokenEndpoint, "http")
		_, err := c.Refresh(t.Context(), p, r, tokensOf("refresh-1"))
		wants(t, err, NotSent, "cannot be reached")
	})
	t.Run("there is no refresh token", func(t *testing.T) {
		w := newWorld(t)
		_, err := w.client(Options{}).Refresh(t.Context(), w.provider(), w.registration(), &Tokens{})
		wants(t, err, Refused, "connect again")
	})
	if KindOf(errors.New("of another package")) != Lost {
		t.Error("an unknown error is harmless")
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// pipeTo returns a Dialer of connections in memory, each of which h serves.
func pipeTo(h func(net.Conn)) Dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go h(far)
		return near, nil
	}
}

// readRequest reads a request, for a fake that answers it in its own way.
func readRequest(c net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	go func() { _, _ = io.Copy(io.Discard, c) }()
}

func TestAProviderThatHangsIsLeftAfterTenSeconds(t *testing.T) {
	for name, tt := range map[string]struct {
		dial Dialer
		kind FailureKind
	}{
		"it reads and never answers": {pipeTo(func(c net.Conn) { _, _ = io.Copy(io.Discard, c); _ = c.Close() }), Lost},
		"it never reads":             {pipeTo(func(c net.Conn) { time.Sleep(time.Hour); _ = c.Close() }), Lost},
		"it answers a byte a second": {pipeTo(func(c net.Conn) {
			readRequest(c)
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, " ")
			}
			_ = c.Close()
		}), Lost},
		"it begins again and again": {pipeTo(func(c net.Conn) {
			readRequest(c)
			var err error
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, "HTTP/1.1 102 Processing\r\n\r\n")
			}
			_ = c.Close()
		}), Lost},
		"it does not accept": {func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, NotSent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New("http://localhost/mcp", Options{Trusted: tt.dial})
				if err != nil {
					t.Fatal(err)
				}
				p := &Provider{Issuer: "http://localhost", TokenEndpoint: "http://localhost/token"}
				began := time.Now()
				_, err = c.Refresh(t.Context(), p, &ClientRegistration{ClientID: "sb"}, tokensOf("refresh-1"))
				if KindOf(err) != tt.kind || err == nil {
					t.Errorf("%v (%s)", err, KindOf(err))
				}
				if took := time.Since(began); took != answerTimeout {
					t.Errorf("it took %s", took)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// LK-03: an authorization server may repeat what it was sent, as it came or decoded.
func TestLK03NoErrorRepeatsASecret(t *testing.T) {
	const secret, refresh = "client secret/+&", "refresh=token/1+"
	w := newWorld(t)
	var echo func(r request) string
	answer := func(rw http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		said := echo(w.requests[len(w.requests)-1])
		w.mu.Unlock()
		answerJSON(400, map[string]string{"error": said, "error_description": "x " + said})(rw, nil)
	}
	w.on("/token", answer)
	w.on("/revoke", answer)
	c, p := w.client(Options{}), w.provider()
	echoes := map[string]func(request) string{
		"header":   func(r request) string { return r.header.Get("Authorization") },
		"password": func(r request) string { _, s, _ := (&http.Request{Header: r.header}).BasicAuth(); return s },
		"body":     func(r request) string { return r.body },
		"start": func(r request) string {
			return strings.Repeat("a", 190) + r.form.Get("refresh_token") + r.form.Get("code")
		},
	}
	for _, name := range []string{"code", "code_verifier", "refresh_token", "client_secret", "token"} {
		echoes[name] = func(r request) string { return r.form.Get(name) }
		echoes[name+", escaped"] = func(r request) string { return url.PathEscape(r.form.Get(name)) }
	}
	for name, e := range echoes {
		w.mu.Lock()
		echo = e
		w.mu.Unlock()
		for _, method := range []string{methodBasic, methodPost} {
			r := &ClientRegistration{Issuer: w.origin, ClientID: "sb", Secret: switchboard.NewSecret(secret), Method: method}
			_, a := w.begin(c, p, r)
			_, err1 := c.Refresh(t.Context(), p, r, tokensOf(refresh))
			_, err2 := c.Redeem(t.Context(), p, r, a, answerOf(a))
			_, err3 := c.ClientCredentials(t.Context(), p, r, nil)
			err4 := c.Revoke(t.Context(), p, r, tokensOf(refresh))
			basic, _ := strings.CutPrefix(w.took("/token")[0].header.Get("Authorization"), "Basic ")
			for i, err := range []error{err1, err2, err3, err4} {
				text := fmt.Sprintf("%v %+v %#v", err, err, err)
				for _, s := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), refresh, url.QueryEscape(refresh), url.PathEscape(refresh), refresh[:6], "code-1", a.Verifier.Reveal(), basic} {
					if err == nil || s != "" && s != refresh[:6] && strings.Contains(text, s) || strings.Contains(text, "aaa"+refresh[:6]) {
						t.Errorf("%s by %s, %d: %s is in %s", name, method, i, s, text)
					}
				}
				if len(err.Error()) > 1000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
		}
	}
}

func TestHalfASecretIsNotShown(t *testing.T) {
	long := strings.Repeat("s3cret", 1000)
	m := newMasker(long, "two words")
	for _, text := range []string{
		strings.Repeat(long, 20), strings.Repeat("a", 199) + long, long[:100] + long, "two\nwords", "two words",
	} {
		if got := m.text(text, 200); strings.Contains(strings.TrimPrefix(got, long[:100]), "s3cret") || strings.Contains(got, "two words") || len(got) > 210 {
			t.Errorf("%.50q: %q", text, got)
		}
	}
	if got := m.text("a\u2028b\u202ec\xff\td", 200); got != "a b c  d" {
		t.Errorf("%q", got)
	}
}

func FuzzTokenAnswer(f *testing.F) {
	for _, v := range []any{tokenAnswer(nil), tokenAnswer(map[string]any{"expires_in": "1e9", "scope": "a b"}), map[string]any{"error": "x"}} {
		f.Add(jsonOf(v))
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := httpAnswer{json: true, text: []byte(text)}
		var w tokenWire
		if a.read(&w) != nil {
			return
		}
		asked := time.Now()
		got, err := w.tokens(&Provider{Issuer: "https://idp.example.com"}, []string{"files:read"}, asked, newMasker("s3cret"))
		if err != nil {
			if s := err.Error(); strings.ContainsAny(s, "\r\n\x00") || strings.Contains(s, "s3cret") || len(s) > 2000 {
				t.Errorf("%q", s)
			}
			return
		}
		if !isVisible(got.Access.Reveal()) || len(got.Access.Reveal()) > maxToken || len(without(got.Scopes, []string{"files:read"})) > 0 {
			t.Errorf("%q is accepted", text)
		}
		if !got.Expires.IsZero() && (got.Expires.Before(asked) || got.Expires.After(asked.Add(maxLifetime))) {
			t.Errorf("%q expires at %s", text, got.Expires)
		}
	})
}

func TestAClientProvesItselfAsBothSidesCan(t *testing.T) {
	for _, tt := range []struct {
		name      string
		r         ClientRegistration
		supported []string
		want      string
		words     string
	}{
		{"public", ClientRegistration{}, nil, methodNone, ""},
		{"public, though that is not listed", ClientRegistration{}, []string{methodBasic}, methodNone, ""},
		{"a secret, nothing said", ClientRegistration{Secret: switchboard.NewSecret("s")}, nil, methodBasic, ""},
		{"a secret, post only", ClientRegistration{Secret: switchboard.NewSecret("s")}, []string{methodPost}, methodPost, ""},
		{"a secret, none of both", ClientRegistration{Secret: switchboard.NewSecret("s")}, []string{methodKey}, "", "no client secret"},
		{"a secret, as registered", ClientRegistration{Secret: switchboard.NewSecret("s"), Method: methodPost}, []string{methodBasic}, methodPost, ""},
		{"a key", ClientRegistration{Key: switchboard.NewSecret("k")}, nil, methodKey, ""},
		{"a method without its secret", ClientRegistration{Method: methodBasic}, nil, "", "has nothing for"},
		{"a method that is unknown", ClientRegistration{Method: "tls_client_auth"}, nil, "", "does not support"},
	} {
		got, err := tt.r.method(&Provider{AuthMethods: tt.supported})
		wants(t, err, Misconfigured, tt.words)
		if got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

// A secret must not follow a server that names another authorization server.
func TestASecretGoesOnlyToTheIssuerItIsFor(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(Options{}), w.provider()
	for _, issuer := range []string{"", "https://idp.example.com", w.origin + "/"} {
		r := &ClientRegistration{Issuer: issuer, ClientID: "sb", Secret: switchboard.NewSecret("s")}
		_, err1 := c.ClientCredentials(t.Context(), p, r, nil)
		_, err2 := c.Refresh(t.Context(), p, r, tokensOf("refresh-1"))
		_, _, err3 := c.Begin(p, r, redirect, nil)
		_, err4 := c.ChooseRegistration(t.Context(), p, Ways{Configured: r})
		err5 := c.Revoke(t.Context(), p, r, tokensOf("refresh-1"))
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if KindOf(err) != Misconfigured {
				t.Errorf("%d with the issuer %q: %v", i, issuer, err)
			}
		}
	}
	if len(w.requests) > 0 {
		t.Errorf("it sent %v", w.requests)
	}
}

func TestClientCredentialsWithEachKindOfKey(t *testing.T) {
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p521, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	long, _ := rsa.GenerateKey(rand.Reader, 2048)
	encode := func(kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs8 := func(key any) string {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return encode("PRIVATE KEY", der, err)
	}
	sec1, err := x509.MarshalECPrivateKey(p256)
	for _, tt := range []struct {
		name, text string
		alg        jwa.SignatureAlgorithm
		public     any
		words      string
	}{
		{"P-256", pkcs8(p256), jwa.ES256(), p256.Public(), ""},
		{"P-256, SEC 1", encode("EC PRIVATE KEY", sec1, err), jwa.ES256(), p256.Public(), ""},
		{"P-384", pkcs8(p384), jwa.ES384(), p384.Public(), ""},
		{"Ed25519", pkcs8(ed), jwa.EdDSA(), ed.Public(), ""},
		{"RSA", pkcs8(long), jwa.RS256(), long.Public(), ""},
		{"RSA, PKCS #1", encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(long), nil), jwa.RS256(), long.Public(), ""},
		{"P-521", pkcs8(p521), jwa.EmptySignatureAlgorithm(), nil, "another kind"},
		{"a public key", encode("PUBLIC KEY", []byte("x"), nil), jwa.EmptySignatureAlgorithm(), nil, "no private key"},
		{"no PEM", "canary-of-a-key", jwa.EmptySignatureAlgorithm(), nil, "not in PEM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r := &ClientRegistration{Issuer: w.origin, ClientID: "sb", KeyID: "k1", Key: switchboard.NewSecret(tt.text)}
			tokens, err := w.client(Options{}).ClientCredentials(t.Context(), w.provider(), r, []string{"files:read"})
			wants(t, err, Misconfigured, tt.words)
			if err != nil {
				if strings.Contains(err.Error(), "canary") {
					t.Error(err)
				}
				return
			}
			form := w.took("/token")[0].form
			text, err := jws.Verify([]byte(form.Get("client_assertion")), jws.WithKey(tt.alg, tt.public))
			if err != nil {
				t.Fatal(err)
			}
			var claims map[string]any
			if err := json.Unmarshal(text, &claims); err != nil {
				t.Fatal(err)
			}
			if claims["iss"] != "sb" || claims["sub"] != "sb" || claims["aud"] != w.origin || claims["jti"] == "" || claims["exp"].(float64)-claims["iat"].(float64) != 60 {
				t.Errorf("it says %v", claims)
			}
			if form.Get("resource") != w.origin+"/mcp" || form.Get("scope") != "files:read" || form.Get("grant_type") != "client_credentials" || tokens.Access.Reveal() != "access-1" {
				t.Errorf("it sent %v", form)
			}
		})
	}
	w := newWorld(t)
	_, err = w.client(Options{}).ClientCredentials(t.Context(), w.provider(), &ClientRegistration{ClientID: "sb"}, nil)
	wants(t, err, Misconfigured, "neither secret nor key")
}

func TestAnAuthorizationEndpointKeepsItsQueryAndHasNoParameterOfOurs(t *testing.T) {
	w := newWorld(t)
	c, p, r := w.client(Options{}), w.provider(), w.registration()
	p.AuthorizationEndpoint = w.origin + "/authorize?tenant=a%20b"
	address, _ := w.begin(c, p, r)
	if u, err := url.Parse(address); err != nil || u.Query().Get("tenant") != "a b" || u.Query().Get("client_id") != "sb" {
		t.Errorf("%s %v", address, err)
	}
	for _, query := range []string{"redirect_uri=https://evil.example.com", "state=x", "scope=admin", "request_uri=https://evil.example.com", "response_mode=fragment", "a=%zz", "a;b"} {
		p.AuthorizationEndpoint = w.origin + "/authorize?" + query
		if address, _, err := c.Begin(p, r, redirect, nil); KindOf(err) != Misconfigured {
			t.Errorf("%s: %s %v", query, address, err)
		}
	}
	p.AuthorizationEndpoint = w.origin + "/authorize"
	if _, _, err := c.Begin(p, r, redirect, []string{"a b"}); KindOf(err) != Misconfigured {
		t.Error(err)
	}
	registered := &ClientRegistration{Source: Registered, Issuer: w.origin, ClientID: "dyn", Redirect: "https://old.example.com/callback"}
	if _, _, err := c.Begin(p, registered, redirect, nil); KindOf(err) != Misconfigured {
		t.Error(err)
	}
}

func TestSecretsAreInTheSealedFormOnly(t *testing.T) {
	const canary = "canary-of-oauth"
	s := switchboard.NewSecret(canary)
	expires := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &ClientRegistration{Registered, "https://idp.example.com", "sb", s, s, "k", methodBasic, redirect, expires}
	a := &Attempt{s, s, "https://idp.example.com", "sb", "https://mcp.example.com", redirect, []string{"a"}, expires}
	tokens := &Tokens{s, s, []string{"a"}, expires}
	for _, v := range []any{r, a, tokens} {
		text, err := json.Marshal(v)
		if shown := fmt.Sprintf("%s %v %+v %#v %v", text, v, v, v, err); strings.Contains(shown, canary) {
			t.Errorf("%s", shown)
		}
	}
	sealedR, err1 := r.Seal()
	sealedA, err2 := a.Seal()
	sealedT, err3 := tokens.Seal()
	r2, err4 := UnsealRegistration(sealedR)
	a2, err5 := UnsealAttempt(sealedA)
	t2, err6 := UnsealTokens(sealedT)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	if !r2.Secret.Equal(s) || !r2.Key.Equal(s) || r2.Method != methodBasic || r2.Source != Registered || r2.Issuer != r.Issuer || r2.ClientID != "sb" || r2.KeyID != "k" || r2.Redirect != redirect || !r2.Expires.Equal(expires) {
		t.Errorf("%+v", r2)
	}
	if !a2.State.Equal(s) || !a2.Verifier.Equal(s) || a2.Issuer != a.Issuer || a2.ClientID != "sb" || a2.Resource != a.Resource || a2.Redirect != redirect || !slices.Equal(a2.Scopes, a.Scopes) || !a2.Ends.Equal(expires) {
		t.Errorf("%+v", a2)
	}
	if !t2.Access.Equal(s) || !t2.Refresh.Equal(s) || !slices.Equal(t2.Scopes, tokens.Scopes) || !t2.Expires.Equal(expires) {
		t.Errorf("%+v", t2)
	}
	for _, text := range []string{"", "null2", `{"access":"` + canary + `","x":1}`, `{"access":"` + canary} {
		if _, err := UnsealTokens([]byte(text)); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
