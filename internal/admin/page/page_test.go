package page_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A desk is a page, and a person's key that opens it.
type desk struct {
	*page.Page
	key      string
	row      identity.OfficerKey
	sessions *signin.Sessions
	kept     *sessionStore
	failures int
	opened   atomic.Int64
	consents consentBook
	document string // the URL of the client document
	api      http.Handler
	asked    []string // of the API
	work     sync.WaitGroup
	stop     context.CancelFunc
	tenants  []switchboard.TenantID
}

// A sessionStore can be away.
type sessionStore struct {
	signin.Store
	away bool
}

func (s *sessionStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.away {
		return store.Value{}, errors.New("no connection")
	}
	return s.Store.Value(ctx, k)
}

func newDesk(t *testing.T, adminURL string) *desk {
	t.Helper()
	d := &desk{}
	var stopping context.Context
	stopping, d.stop = context.WithCancel(context.Background())
	t.Cleanup(d.stop)
	d.key, _ = identity.Mint(identity.PersonPrefix)
	d.row = identity.OfficerKey{ID: "ann", Hash: sha256.Sum256([]byte(d.key)), Operator: true}
	d.kept = &sessionStore{Store: store.NewMemory()}
	d.sessions = signin.NewSessions(d.kept, func() {}, func() {})
	t.Cleanup(d.sessions.Close)
	d.Page = page.New(page.Options{
		Providers: signin.NewProviders(switchboard.Secret{}), Sessions: d.sessions, URL: func() string { return adminURL },
		Officers: func() *identity.Officers { return identity.NewOfficers([]identity.OfficerKey{d.row}, nil, nil) },
		Tenants:  func() []switchboard.TenantID { return d.tenants }, Version: "1.2.3", Cursor: func() string { return "boot-7" },
		API: func(o *switchboard.Officer) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				d.asked = append(d.asked, o.ID+" "+r.Method+" "+r.URL.RequestURI()+r.URL.RawPath) // the API refuses paths that are spelt otherwise
				d.api.ServeHTTP(w, r)
			})
		},
		Work: d.work.Go, Stopping: stopping,
		Connections: &d.consents, Document: func() string { return d.document }, Failed: func(*http.Request, error) { d.failures++ }, Opened: func() { d.opened.Add(1) }, Log: slog.New(slog.DiscardHandler),
	})
	return d
}

// ask sends a request, which comes from the user of Switchboard. header has names and values in turn.
func (d *desk) ask(method, target, host, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = host
	r = r.WithContext(identity.WithPeer(context.Background(), func() error { return nil }))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

const form = "application/x-www-form-urlencoded"

func TestOnlyFormsOfThePageCount(t *testing.T) {
	const local, proxied = "127.0.0.1:7422", "sb.example.com"
	for _, tt := range []struct {
		name, method, path, host string
		header                   []string
		body                     string // KEY is the key
		want                     int
	}{
		{"a key", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form, "Sec-Fetch-Site", "same-origin"}, "key=KEY", 200},
		{"a key, behind the proxy", "POST", "/sign-in", proxied, []string{"Origin", "https://sb.example.com", "Content-Type", form}, "key=KEY", 200},
		{"a wrong key", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form}, "key=swo_wrong", 401},
		{"without an origin", "POST", "/sign-in", local, []string{"Content-Type", form}, "key=KEY", 403},
		{"of another origin", "POST", "/sign-in", local, []string{"Origin", "https://evil.example", "Content-Type", form}, "key=KEY", 403},
		{"of another port", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:3000", "Content-Type", form}, "key=KEY", 403},
		{"of a page without an origin", "POST", "/sign-in", local, []string{"Origin", "null", "Content-Type", form}, "key=KEY", 403},
		{"without TLS, behind the proxy", "POST", "/sign-in", proxied, []string{"Origin", "http://sb.example.com", "Content-Type", form}, "key=KEY", 403},
		{"of another site, as the browser says", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Sec-Fetch-Site", "same-site", "Content-Type", form}, "key=KEY", 403},
		{"two origins", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Origin", "http://127.0.0.1:7422", "Content-Type", form}, "key=KEY", 403},
		{"as text", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", "text/plain"}, "key=KEY", 403},
		{"as JSON", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", "application/json"}, `{"key":"KEY"}`, 403},
		{"a field twice", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form}, "key=KEY&key=KEY", 403},
		{"in the address", "POST", "/sign-in?key=KEY", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form}, "", 403},
		{"too long", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form}, "key=" + strings.Repeat("x", 64<<10), 413},
		{"by GET", "GET", "/sign-in?key=KEY", local, nil, "", 404},
		{"another host", "POST", "/sign-in", "evil.example", []string{"Origin", "http://evil.example", "Content-Type", form}, "key=KEY", 403},
		{"sign out without a session", "POST", "/sign-out", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form}, "token=", 403},
		{"an issuer that is not there", "POST", "/sign-in", local, []string{"Origin", "http://127.0.0.1:7422", "Content-Type", form}, "issuer=nope", 400},
		{"the start", "GET", "/", local, nil, "", 200},
		{"the start, from a page of another site", "GET", "/", local, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, "", 200},
		{"the start, read by a page of another site", "GET", "/", local, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, "", 403},
		{"a code, from a page of another site", "GET", "/sign-in/code?code=x", local, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, "", 404},
		{"an answer of nobody", "GET", "/sign-in/callback?code=x&state=y", local, nil, "", 401},
		{"another method", "DELETE", "/", local, nil, "", 405},
	} {
		d := newDesk(t, "https://"+proxied)
		body, path := strings.ReplaceAll(tt.body, "KEY", d.key), strings.ReplaceAll(tt.path, "KEY", d.key)
		w := d.ask(tt.method, path, tt.host, body, tt.header...)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d: %s", tt.name, w.Code, tt.want, w.Body)
		}
		signedIn := false
		for _, c := range w.Result().Cookies() {
			signedIn = signedIn || c.Value != "" && !strings.Contains(c.Name, "sign-in")
		}
		if want := tt.method == "POST" && tt.want == 200; signedIn != want {
			t.Errorf("%s: it has a session: %t", tt.name, signedIn)
		}
		if strings.Contains(w.Body.String(), d.key) {
			t.Errorf("%s: the answer repeats the key", tt.name)
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; style-src 'self'; form-action 'self'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the headers are %v", tt.name, w.Header())
		}
	}
}

// Behind TLS the cookie is __Host-. On this machine it has the port, and counts only from the user of Switchboard.
func TestTheCookieOfASessionIsThatOfItsSite(t *testing.T) {
	for _, tt := range []struct {
		name, host, origin, cookie string
		secure                     bool
		stranger                   int // what another user of this machine gets with it
	}{
		{"behind TLS", "sb.example.com", "https://sb.example.com", "__Host-switchboard", true, 200},
		{"on this machine", "127.0.0.1:7422", "http://127.0.0.1:7422", "switchboard-7422", false, 401},
		{"by name", "localhost:7423", "http://localhost:7423", "switchboard-7423", false, 401},
	} {
		d := newDesk(t, "https://sb.example.com")
		w := d.ask("POST", "/sign-in", tt.host, url.Values{"key": {d.key}}.Encode(), "Origin", tt.origin, "Content-Type", form)
		var c *http.Cookie
		for _, one := range w.Result().Cookies() {
			c = one
		}
		if c == nil || c.Name != tt.cookie || c.Secure != tt.secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("%s: the cookie is %v", tt.name, c)
			continue
		}
		r := httptest.NewRequest("GET", "/v1/status", nil)
		r.Host, r.RemoteAddr = tt.host, net.JoinHostPort("127.0.0.1", "1")
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		for peer, want := range map[error]int{nil: 200, errors.New("it is another user"): tt.stranger} {
			_, err := d.Officer(r.WithContext(identity.WithPeer(context.Background(), func() error { return peer })))
			if (err == nil) != (want == 200) {
				t.Errorf("%s: from %v: %v", tt.name, peer, err)
			}
		}
		r.AddCookie(&http.Cookie{Name: c.Name, Value: "another"})
		if d.HasSession(r) {
			t.Errorf("%s: of two cookies one counts", tt.name)
		}
	}
}

func TestFailuresAreCounted(t *testing.T) {
	d := newDesk(t, "")
	for range 3 {
		d.ask("POST", "/sign-in", "127.0.0.1:7422", "key=swo_wrong", "Origin", "http://127.0.0.1:7422", "Content-Type", form)
	}
	d.ask("GET", "/sign-in/code?code=x", "127.0.0.1:7422", "")
	if d.failures != 4 {
		t.Errorf("%d failures are counted", d.failures)
	}
}
