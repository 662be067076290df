package gateway_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

func TestOR01to03_WhoMayReachUsFromAPageOfTheWeb(t *testing.T) {
	w := newWorld(t)
	port := w.url[strings.LastIndex(w.url, ":"):]
	list, h := modern("1", "tools/list", "", "")
	for _, tt := range []struct {
		name string
		head head
		want int
	}{
		{"nothing special", head{}, 200},
		{"localhost", head{"Host": "LocalHost" + port}, 200},
		{"localhost without a port", head{"Host": "localhost"}, 200},
		{"IPv6", head{"Host": "[::1]" + port}, 200},
		{"IPv6 without a port", head{"Host": "[::1]"}, 200},
		{"all of 127/8", head{"Host": "127.9.9.9"}, 200},
		{"IPv4 in IPv6", head{"Host": "[::ffff:127.0.0.1]:80"}, 200},
		{"configured, any port", head{"Host": "GW.example.com:99"}, 200},
		{"configured, its port", head{"Host": "other.example.com:8443"}, 200},
		{"configured, another port", head{"Host": "other.example.com:8444"}, 403},
		{"OR-02", head{"Host": "evil.example"}, 403},
		{"a name that begins right", head{"Host": "localhost.evil.example"}, 403},
		{"a name that ends right", head{"Host": "evil-gw.example.com"}, 403},
		{"a trailing dot", head{"Host": "localhost."}, 403},
		{"decimal", head{"Host": "2130706433"}, 403},
		{"octal", head{"Host": "0177.0.0.1"}, 403},
		{"any address", head{"Host": "0.0.0.0" + port}, 403},
		{"another address", head{"Host": "192.168.1.5" + port}, 403},

		{"OR-01", head{"Origin": "https://evil.example"}, 403},
		{"no origin that can be named", head{"Origin": "null"}, 403},
		{"our own", head{"Origin": "http://localhost" + port}, 200},
		{"this machine", head{"Origin": "http://127.0.0.1:5173"}, 200},
		{"the same host", head{"Host": "gw.example.com", "Origin": "https://gw.example.com"}, 200},
		{"another port of the same host", head{"Host": "gw.example.com", "Origin": "https://gw.example.com:99"}, 403},
		{"configured", head{"Origin": "https://app.example.com"}, 200},
		{"configured, in another scheme", head{"Origin": "http://app.example.com"}, 403},
		{"a name in the user's place", head{"Origin": "http://localhost@evil.example"}, 403},
		{"a user before this machine", head{"Origin": "http://evil.example@localhost"}, 403},
		{"a path", head{"Origin": "http://localhost/x"}, 403},
		{"another scheme", head{"Origin": "chrome-extension://localhost"}, 403},

		{"OR-03, cross-site", head{"Sec-Fetch-Site": "cross-site"}, 403},
		{"cross-site from this machine", head{"Origin": "http://localhost:5173", "Sec-Fetch-Site": "cross-site"}, 403},
		{"cross-site from a configured origin", head{"Origin": "https://app.example.com", "Sec-Fetch-Site": "cross-site"}, 200},
		{"same-origin", head{"Sec-Fetch-Site": "same-origin"}, 200},
		{"typed by a person", head{"Sec-Fetch-Site": "none"}, 200},

		{"OR-03, text", head{"Content-Type": "text/plain"}, 415},
		{"OR-03, a form", head{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"no type", head{"Content-Type": absent}, 415},
		{"a type that only begins right", head{"Content-Type": "application/jsonp"}, 415},
		{"a charset", head{"Content-Type": "application/json; charset=utf-8"}, 200},
		{"compressed", head{"Content-Encoding": "gzip"}, 415},

		{"reads nothing that we write", head{"Accept": "text/html"}, 406},
		{"refuses what we write", head{"Accept": "application/json;q=0, text/event-stream; q=0"}, 406},
		{"reads anything", head{"Accept": "*/*"}, 200},
		{"does not say what it reads", head{"Accept": absent}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := head{}
			maps.Copy(all, h)
			maps.Copy(all, tt.head)
			before := w.calls()
			res, body := w.post(list, all)
			if res.StatusCode != tt.want {
				t.Errorf("got %s, want %d: %s", res.Status, tt.want, body)
			}
			if tt.head["Content-Encoding"] != "" && (res.Header.Get("Accept-Encoding") != "identity" || !strings.Contains(body, "without that header")) {
				t.Errorf("the answer does not say what to send instead: %s", body)
			}
			if w.calls() != before {
				t.Error("a server was called")
			}
		})
	}
}

func TestOR04_OnlyAConfiguredOriginHearsThatItMay(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		origin string
		status int
		allow  string
	}{
		{"https://app.example.com", 204, "https://app.example.com"},
		{"https://evil.example", 403, ""},
		{"http://localhost:5173", 405, ""},
	} {
		res, _ := w.do(http.MethodOptions, "/mcp", "", head{"Origin": tt.origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, mcp-param-region"})
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != tt.status || got != tt.allow {
			t.Errorf("preflight of %s: %s, allowed %q; want %d, %q", tt.origin, res.Status, got, tt.status, tt.allow)
		}
		if res.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s may send credentials", tt.origin)
		}
	}
	list, h := modern("1", "tools/list", "", "")
	h["Origin"] = "https://app.example.com"
	res, _ := w.post(list, h)
	if res.Header.Get("Access-Control-Allow-Origin") != h["Origin"] || res.Header.Get("Vary") != "Origin" {
		t.Errorf("headers of an answer to a configured origin: %v", res.Header)
	}
}

func TestAZ10_EveryRouteHasOneSpellingAndTwoArePublic(t *testing.T) {
	w := newWorld(t)
	w.revoke("") // no key is valid
	run := strings.Repeat("0", 32)
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH", "TRACE"} {
		for _, path := range []string{
			"/", "/mcp", "/mcp/", "//mcp", "/mcp//", "/./mcp", "/x/../mcp", "/%6dcp", "/MCP", "/mcp%2f", "/mcp/tasks", "/mcp/tasks/", "/mcp/tasks/work",
			"/mcp/tasks/work/", "/mcp/tasks/../work", "/mcp/tasks/wo%2frk", "/mcp/tasks/%77ork", "/mcp/runs/" + run, "/mcp/runs/", "/v1/tasks/work/runs",
			"/v1/tasks/work/runs/", "/v1//tasks/work/runs", "/v1/tasks//runs", "/healthz/", "//healthz", "/HEALTHZ", "/readyz/", "/readyZ", "/ready%7a", "/debug/pprof/", "/metrics", "/metrics/", "/v1/servers/s/disable", "/v1/servers/s/disable/", "/v1/servers/s",
		} {
			res, body := w.do(method, path, "", head{"Content-Type": "application/json"})
			switch res.StatusCode {
			case 401, 404, 405:
			default:
				t.Errorf("%s %s: %s %s", method, path, res.Status, body)
			}
		}
	}
	for _, tt := range []struct {
		method, path string
		early        bool
		head         head
		status       int
		body         string
	}{
		{"GET", "/healthz", true, nil, 200, "ok\n"},
		{"HEAD", "/healthz", false, nil, 200, ""},
		{"GET", "/readyz", true, nil, 503, `{"ready":"so"}`},
		{"GET", "/readyz", false, nil, 200, `{"ready":"so"}`},
		{"HEAD", "/readyz", false, nil, 200, ""},
		{"POST", "/healthz", false, nil, 405, "allowed methods: GET, HEAD\n"},
		{"DELETE", "/readyz", false, nil, 405, "allowed methods: GET, HEAD\n"},
		{"GET", "/healthz", false, head{"Host": "evil.example"}, 403, ""},
		{"GET", "/readyz", false, head{"Origin": "https://evil.example"}, 403, ""},
	} {
		w.early.Store(tt.early)
		res, body := w.do(tt.method, tt.path, "", tt.head)
		if res.StatusCode != tt.status || tt.status != 403 && body != tt.body {
			t.Errorf("%s %s, early %v: %s %q", tt.method, tt.path, tt.early, res.Status, body)
		}
	}
	if w.calls() != 0 {
		t.Error("a server was called")
	}
}

func TestAnUnknownCallerIsToldWhy(t *testing.T) {
	w := newWorld(t)
	w.revoke("gone")
	res, body := w.post(initialize, head{"Authorization": "Bearer gone"})
	if res.StatusCode != 401 || res.Header.Get("WWW-Authenticate") == "" || !strings.Contains(body, `"code":"SB-AUTH-001"`) {
		t.Errorf("at /mcp: %s %v %s", res.Status, res.Header, body)
	}
	res, body = w.do("POST", "/v1/tasks/work/runs", "", head{"Authorization": "Bearer gone"})
	if res.StatusCode != 401 || res.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, `"code":"SB-AUTH-001"`) {
		t.Errorf("at /v1: %s %v %s", res.Status, res.Header, body)
	}
}

func TestAllowTakesEffectAtOnce(t *testing.T) {
	w := newWorld(t)
	list, h := modern("1", "tools/list", "", "")
	h["Host"], h["Origin"] = "new.example.com", "https://page.example.com"
	if res, _ := w.post(list, h); res.StatusCode != 403 {
		t.Fatalf("before Allow: %s", res.Status)
	}
	w.Allow([]string{"new.example.com"}, []string{"https://page.example.com"})
	if res, _ := w.post(list, h); res.StatusCode != 200 {
		t.Errorf("after Allow: %s", res.Status)
	}
	h["Host"] = "gw.example.com"
	if res, _ := w.post(list, h); res.StatusCode != 403 {
		t.Errorf("the host that is not allowed any more: %s", res.Status)
	}
}
