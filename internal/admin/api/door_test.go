package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// newDoor returns an API that knows one key. It has no parts behind it: only GET /v1/openapi.json can be answered.
func newDoor(url string) *API {
	return New(Options{
		Authenticate: func(r *http.Request) (switchboard.Officer, error) {
			if r.Header.Get("Authorization") != "Bearer good" {
				return switchboard.Officer{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, "no")
			}
			return switchboard.Officer{ID: "ops", Operator: true}, nil
		},
		URL: func() string { return url }, Version: "1", Stopping: context.Background(), Log: slog.New(slog.DiscardHandler),
	})
}

// OR-05: the same checks as for agents, and stricter ones for pages: only a page of this address may ask.
func TestOR05WhoMayReachTheAdminSideFromAPageOfTheWeb(t *testing.T) {
	for _, tt := range []struct {
		name   string
		url    string // admin.url
		host   string
		header []string
		want   int
	}{
		{"a program", "", "127.0.0.1:7422", nil, 200},
		{"by name", "", "localhost:7422", nil, 200},
		{"OR-02, another host", "", "evil.example", nil, 403},
		{"a name that begins right", "", "localhost.evil.example", nil, 403},
		{"the host of admin.url", "https://sb.example.com", "sb.example.com", nil, 200},
		{"another host than that of admin.url", "https://sb.example.com", "mcp.example.com", nil, 403},
		{"OR-01, another site", "", "127.0.0.1:7422", []string{"Origin", "https://evil.example"}, 403},
		{"a page of another port of this machine", "", "127.0.0.1:7422", []string{"Origin", "http://127.0.0.1:3000"}, 403},
		{"no origin that can be named", "", "127.0.0.1:7422", []string{"Origin", "null"}, 403},
		{"our own page", "", "127.0.0.1:7422", []string{"Origin", "http://127.0.0.1:7422", "Sec-Fetch-Site", "same-origin"}, 200},
		{"our own page behind the proxy", "https://sb.example.com", "sb.example.com", []string{"Origin", "https://sb.example.com"}, 200},
		{"our own page without TLS", "https://sb.example.com", "sb.example.com", []string{"Origin", "http://sb.example.com:80"}, 403},
		{"OR-03, cross-site", "", "127.0.0.1:7422", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"same-site", "", "127.0.0.1:7422", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"typed by a person", "", "127.0.0.1:7422", []string{"Sec-Fetch-Site", "none"}, 200},
		{"two origins", "", "127.0.0.1:7422", []string{"Origin", "http://127.0.0.1:7422", "Origin", "https://evil.example"}, 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil)
		r.Host = tt.host
		r.Header.Set("Authorization", "Bearer good")
		for i := 0; i < len(tt.header); i += 2 {
			r.Header.Add(tt.header[i], tt.header[i+1])
		}
		w := httptest.NewRecorder()
		newDoor(tt.url).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d: %s", tt.name, w.Code, tt.want, w.Body)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: a page of another origin may read the answer", tt.name)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s: the headers are %v", tt.name, w.Header())
		}
	}
}

func TestEveryResourceHasOneSpelling(t *testing.T) {
	for path, want := range map[string]int{
		"/v1/openapi.json": 200, "/v1/openapi.json/": 404, "//v1/openapi.json": 404, "/v1/./openapi.json": 404, "/v1/x/../openapi.json": 404, "/%761/openapi.json": 404, "/V1/openapi.json": 404,
		"/v1/servers/a%2Fb": 404, "/": 404, "/v1": 404, "/mcp": 404, "/debug/pprof/": 404, "/v1/status?tenant=a&tenant=b": 400, "/v1/status?x=%zz": 400,
		"/v1/status?capability=a&capability=b": 400, "/v1/resolve?tenant=a&tenant=b": 400,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7422/", nil)
		target, query, _ := strings.Cut(path, "?")
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = target, "", query
		if strings.Contains(target, "%") {
			r.URL.RawPath = target
			r.URL.Path = strings.NewReplacer("%76", "v", "%2F", "/").Replace(target)
		}
		r.Header.Set("Authorization", "Bearer good")
		w := httptest.NewRecorder()
		newDoor("").ServeHTTP(w, r)
		if w.Code != want || want >= 400 && w.Header().Get("Content-Type") != problemType {
			t.Errorf("%s: %d %s, want %d: %s", path, w.Code, w.Header().Get("Content-Type"), want, w.Body)
		}
	}
}

func TestAQuestionMayNameSeveralCapabilities(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7422/v1/resolve?capability=a.b&capability=c.d", nil)
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	newDoor("").ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), "name the tenant") { // the only fault
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Guessing is slow: of many wrong keys of one network, all but the first ten wait.
func TestWrongKeysWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := newDoor("")
		for i := range 12 {
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7422/v1/openapi.json", nil)
			r.Header.Set("Authorization", "Bearer bad")
			w := httptest.NewRecorder()
			began := time.Now()
			door.ServeHTTP(w, r)
			if waited := time.Since(began) >= time.Second; w.Code != http.StatusUnauthorized || waited != (i >= 10) || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("wrong key %d: %d, waited %v", i+1, w.Code, waited)
			}
		}
	})
}

// Values of a request are not repeated in a refusal: they may be secrets, such as the text of a file.
func TestARefusalRepeatsNoValueOfTheRequest(t *testing.T) {
	const secret = "xyzzy-plugh"
	for _, body := range []string{`{"text":7,"reason":"` + secret + `"}`, `{"text":"x","` + secret + `":1}`, `{"text":"` + secret + `","text":"y"}`, `{"reason":"` + strings.Repeat(secret, 60) + `","text":"x"}`} {
		r := httptest.NewRequest(http.MethodPut, "http://127.0.0.1:7422/v1/configuration/file?path=switchboard.yaml", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer good")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		newDoor("").ServeHTTP(w, r)
		var p apiProblem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusBadRequest || len(p.Faults) == 0 {
			t.Errorf("%.40s: %d %s", body, w.Code, w.Body)
		}
		for _, f := range p.Faults {
			if strings.Contains(f.Text, secret) {
				t.Errorf("%.40s: the refusal says %q", body, f.Text)
			}
		}
	}
}
