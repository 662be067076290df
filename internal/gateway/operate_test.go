package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestOnlyTheOperatorDoesSomethingToAServerAndNoPage(t *testing.T) {
	const path, why = "/v1/servers/s/disable", `{"reason":"because"}`
	for _, tt := range []struct {
		name, method, path, body string
		head                     head
		status                   int
		code                     string
		done                     string
	}{
		{name: "with a reason", path: path, body: why, status: 200, done: "disable s because"},
		{name: "without one", path: "/v1/servers/s/enable", body: "{}", status: 200, done: "enable s "},
		{name: "without a body", path: path, status: 200, done: "disable s "},
		{name: "with a key", path: path, body: why, head: head{"Authorization": "Bearer bob"}, status: 403, code: "SB-AUTH-002"},
		{name: "an unknown server", path: "/v1/servers/other/disable", body: why, status: 404, code: "SB-DISC-001"},
		{name: "a form", path: path, body: "reason=because", head: head{"Content-Type": "application/x-www-form-urlencoded"}, status: 415},
		{name: "plain text", path: path, body: why, head: head{"Content-Type": "text/plain"}, status: 415},
		{name: "no content type", path: path, body: why, head: head{"Content-Type": absent}, status: 415},
		{name: "no body and no content type", path: path, head: head{"Content-Type": absent}, status: 415},
		{name: "a page of another site", path: path, body: why, head: head{"Origin": "https://evil.example"}, status: 403, code: "SB-AUTH-002"},
		{name: "a page of this machine", path: path, body: why, head: head{"Origin": "http://localhost:3000"}, status: 403, code: "SB-AUTH-002"},
		{name: "a page that may speak MCP", path: path, body: why, head: head{"Origin": "https://app.example.com"}, status: 403, code: "SB-AUTH-002"},
		{name: "its preflight", method: "OPTIONS", path: path, head: head{"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}, status: 403, code: "SB-AUTH-002"},
		{name: "a page that hides its origin", path: path, body: why, head: head{"Sec-Fetch-Site": "same-site"}, status: 403, code: "SB-AUTH-002"},
		{name: "a name that leads to us", path: path, body: why, head: head{"Host": "evil.example"}, status: 403, code: "SB-AUTH-002"},
		{name: "something else in the body", path: path, body: `{"raison":"because"}`, status: 400},
		{name: "no object", path: path, body: `"because"`, status: 400},
		{name: "two of them", path: path, body: `{}{}`, status: 400},
		{name: "a novel", path: path, body: `{"reason":"` + strings.Repeat("x", 501) + `"}`, status: 400},
		{name: "something else", path: "/v1/servers/s/delete", body: why, status: 404},
		{name: "reading", method: "GET", path: path, status: 405},
		{name: "another spelling", path: "/v1/servers/%73/disable", body: why, status: 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.method == "" {
				tt.method = http.MethodPost
			}
			res, body := w.do(tt.method, tt.path, tt.body, tt.head)
			var problem struct {
				Status int
				Detail string
				Code   string
			}
			_ = json.Unmarshal([]byte(body), &problem)
			if res.StatusCode != tt.status || problem.Code != tt.code || strings.Join(w.done, ", ") != tt.done {
				t.Errorf("%s %s; done: %q", res.Status, body, w.done)
			}
			if tt.status == 200 || tt.status == 405 || tt.status == 404 && tt.code == "" {
				return
			}
			if res.Header.Get("Content-Type") != "application/problem+json" || problem.Status != tt.status || problem.Detail == "" {
				t.Errorf("the problem: %s %s", res.Header.Get("Content-Type"), body)
			}
		})
	}
}

func TestMetricsAreForWhoIsKnown(t *testing.T) {
	w := newWorld(t)
	w.revoke("gone")
	res, body := w.do(http.MethodGet, "/metrics", "", head{"Accept": "text/plain", "Authorization": "Bearer bob"})
	if res.StatusCode != 200 || body != "for bob text/plain" || res.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%s %s", res.Status, body)
	}
	if res, body := w.do(http.MethodGet, "/metrics", "", head{"Authorization": "Bearer gone"}); res.StatusCode != 401 {
		t.Errorf("an unknown caller: %s %s", res.Status, body)
	}
	w.Close()
	if res, body := w.do(http.MethodGet, "/metrics", "", nil); res.StatusCode != 200 {
		t.Errorf("while it stops: %s %s", res.Status, body)
	}
}

func TestEveryRefusalIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	w.play("denied", refusing(switchboard.CodeDenied))
	w.play("failing", refusing(switchboard.CodeServerFailed))
	w.revoke("gone")
	in := w.session(nil)
	unknown, h := modern("1", "tools/call", `"name":"nowhere",`, "nowhere")
	for _, tt := range []struct {
		name string
		do   func()
		want []switchboard.Code
	}{
		{"a call that succeeds", func() { w.post(legacyCall("1", "echo", ""), in) }, nil},
		{"a tool that is not there", func() { w.post(unknown, h) }, []switchboard.Code{switchboard.CodeNoSuchTool}},
		{"what the model is told", func() { w.post(legacyCall("1", "denied", ""), in) }, []switchboard.Code{switchboard.CodeDenied}},
		{"what it is not", func() { w.post(legacyCall("1", "failing", ""), in) }, []switchboard.Code{switchboard.CodeServerFailed}},
		{"who is not known", func() { w.post(initialize, head{"Authorization": "Bearer gone"}) }, []switchboard.Code{switchboard.CodeNotAuthenticated}},
		{"a host that is not ours", func() { w.do(http.MethodGet, "/v1/status", "", head{"Host": "evil.example"}) }, nil},
		{"another page", func() { w.post(initialize, head{"Origin": "https://evil.example"}) }, []switchboard.Code{switchboard.CodeNotAuthorized}},
		{"a task that cannot start", func() { w.do(http.MethodPost, "/v1/tasks/unmet/runs", "", nil) }, []switchboard.Code{switchboard.CodeUnmet}},
		{"what is no refusal of ours", func() { w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}`, in) }, nil},
		{"over stdio", func() {
			c := w.stdio(t.Context(), "")
			c.send(initialize)
			c.next()
			c.send(legacyCall("1", "nowhere", ""))
			c.next()
			_ = c.end()
		}, []switchboard.Code{switchboard.CodeNoSuchTool}},
		{"while it stops", func() {
			w.Close()
			w.post(initialize, nil)
		}, []switchboard.Code{switchboard.CodeOverloaded}},
	} {
		tt.do()
		w.mu.Lock()
		if !slices.Equal(w.refused, tt.want) {
			t.Errorf("%s: counted %q, want %q", tt.name, w.refused, tt.want)
		}
		w.refused = nil
		w.mu.Unlock()
	}
}

func refusing(code switchboard.Code) switchboard.CallerFunc {
	return func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, switchboard.Refuse(code, "no")
	}
}
