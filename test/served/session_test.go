package served_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// signInByKey exchanges a person's key for a session, as the form of the page does. It returns the secret of the cookie.
func signInByKey(t *testing.T, g *rig.Gateway, key string) string {
	t.Helper()
	at := g.AdminURL()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/sign-in", strings.NewReader(url.Values{"key": {key}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", at)
	resp, err := http.DefaultClient.Do(req)
	wait.Read(t, "the sign-in", err)
	defer func() { _ = resp.Body.Close() }()
	for _, c := range resp.Cookies() {
		if c.Value != "" {
			return c.Value
		}
	}
	text, _ := io.ReadAll(resp.Body)
	t.Fatalf("%s %s", resp.Status, text)
	return ""
}

// cookieAt returns the header of a session at a replica: on one machine the cookie's name has the port.
func cookieAt(g *rig.Gateway, secret string) string {
	at := g.AdminURL()
	return "switchboard" + strings.Replace(at[strings.LastIndex(at, ":"):], ":", "-", 1) + "=" + secret
}

// askWithSession sends a request of a browser. header has names and values in turn.
func askWithSession(t *testing.T, g *rig.Gateway, secret, method, path, body string, header ...string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.AdminURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", cookieAt(g, secret))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	wait.Read(t, path, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	wait.Read(t, path, err)
	return resp.StatusCode, string(text)
}

// A session opens the admin side as its holder's key does, and nothing else. What it changes must come from the page.
func TestASessionIsAnOfficerOfTheAdminSideOnly(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	operator, viewer := signInByKey(t, g, keys["operator"]), signInByKey(t, g, keys["viewer"])
	at := g.AdminURL()
	for _, tt := range []struct {
		name, secret, method, path string
		header                     []string
		want                       int
	}{
		{"an operator reads", operator, "GET", "/v1/search?query=work", nil, 200},
		{"a viewer reads", viewer, "GET", "/v1/status", nil, 200},
		{"a viewer reads what is an operator's", viewer, "GET", "/v1/search?query=work", nil, 403},
		{"another tenant's", viewer, "GET", "/v1/status?tenant=umbrella", nil, 404},
		{"nobody's cookie", operator + "x", "GET", "/v1/status", nil, 401},
		{"a change without an origin", operator, "POST", "/v1/servers/a/disable", []string{"Content-Type", "application/json"}, 403},
		{"a change of another origin", operator, "POST", "/v1/servers/a/disable", []string{"Content-Type", "application/json", "Origin", "https://evil.example"}, 403},
		{"a change of another port", operator, "POST", "/v1/servers/a/disable", []string{"Content-Type", "application/json", "Origin", g.URL}, 403},
		{"a change as a form", operator, "POST", "/v1/servers/a/disable", []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", at}, 415},
		{"a change of the page", operator, "POST", "/v1/servers/a/disable", []string{"Content-Type", "application/json", "Origin", at}, 200},
		{"a viewer's change of the page", viewer, "POST", "/v1/servers/a/enable", []string{"Content-Type", "application/json", "Origin", at}, 403},
		{"an operator's session beside a viewer's key", operator, "GET", "/v1/search?query=work", []string{"Authorization", "Bearer " + keys["viewer"]}, 403},
		{"a session beside an agent's key", operator, "GET", "/v1/status", []string{"Authorization", "Bearer " + keys["agent"]}, 401},
	} {
		sent := ""
		if tt.method == "POST" {
			sent = "{}"
		}
		if status, body := askWithSession(t, g, tt.secret, tt.method, tt.path, sent, tt.header...); status != tt.want {
			t.Errorf("%s: %d, want %d: %.300s", tt.name, status, tt.want, body)
		}
	}
	// AZ-13, for sessions.
	m, _ := g.Open(t, "/mcp", true, "Cookie", cookieAt(g, operator)).Ask(t, "tools/list", "")
	if rig.Code(m) != "SB-AUTH-001" {
		t.Errorf("/mcp answers a session with %s", m.Raw)
	}
	g.Do(0, fmt.Sprintf(`(?m)^[0-9a-f]{16} +%.12s +person_key `, hashOf(t, g, "operator", "ops")), "sessions", "list")
	if text, err := os.ReadFile(dir + "/.switchboard/store.db"); err != nil || strings.Contains(string(text), operator) {
		t.Errorf("the store has the secret of a session, %v", err)
	}

	// The session survives a restart, as its row does, and ends with its holder's key.
	_ = g.Cmd.Process.Kill()
	_ = g.Cmd.Wait()
	again := rig.Serve(t, dir)
	if status, body := askWithSession(t, again, viewer, "GET", "/v1/status", ""); status != 200 {
		t.Errorf("after a restart: %d %s", status, body)
	}
	again.Do(0, "is revoked", "key", "revoke", "vic")
	if status, body := askWithSession(t, again, viewer, "GET", "/v1/status", ""); status != 401 || !strings.Contains(body, "revoked") {
		t.Errorf("with its key revoked: %d %s", status, body)
	}
}

// A session that one replica has started is good at all of them, and ends at all of them, with its streams.
func TestASessionEndsAtAllReplicas(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir, keys := layOutOfficers(t)
	all, redis := replicate(t, dir, 3)
	secret, other := signInByKey(t, all[0], keys["operator"]), signInByKey(t, all[0], keys["admin"])
	for i, g := range all {
		if status, body := askWithSession(t, g, secret, "GET", "/v1/status", ""); status != 200 {
			t.Errorf("replica %d: %d %s", i, status, body)
		}
	}
	stream := follow(t, http.MethodGet, all[2].AdminURL()+"/v1/events", "", http.Header{"Cookie": {cookieAt(all[2], secret)}})
	_, list := askWithSession(t, all[1], secret, "GET", "/v1/sessions", "")
	id := ""
	for row := range strings.SplitSeq(list, "{") {
		if strings.Contains(row, hashOf(t, all[0], "operator", "ops")) {
			_, id, _ = strings.Cut(row, `"id":"`)
			id, _, _ = strings.Cut(id, `"`)
		}
	}
	if status, body := askWithSession(t, all[1], secret, "DELETE", "/v1/sessions/"+id, "", "Origin", all[1].AdminURL()); status != 204 {
		t.Fatalf("%s: %d %s", id, status, body)
	}
	wait.Receive(t, "the stream of the ended session ends", stream)
	for i, g := range all {
		if status, _ := askWithSession(t, g, secret, "GET", "/v1/status", ""); status != 401 {
			t.Errorf("replica %d answers the ended session with %d", i, status)
		}
		if status, body := askWithSession(t, g, other, "GET", "/v1/status?tenant=acme", ""); status != 200 {
			t.Errorf("replica %d answers another session with %d %s", i, status, body)
		}
	}
	redis.Kill()
	if status, body := askWithSession(t, all[0], other, "GET", "/v1/status?tenant=acme", ""); status != 503 || !strings.Contains(body, "SB-ROUT-004") {
		t.Errorf("while the store is away: %d %s", status, body)
	}
}
