package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A server that demands a token, and does not say where to sign in, may work in the client. Behind Switchboard it would not.
func TestAServerAtWhichSwitchboardCannotSignInStaysInTheClient(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://example.com/"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	home := useOwnHome(t)
	t.Chdir(home)
	file := filepath.Join(home, ".claude.json")
	before := `{"mcpServers": {"closed": {"type": "http", "url": "` + s.URL + `"}}}`
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"connect", "claude-code"}, streams{strings.NewReader(""), &out, &errs, &out}); code != exitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(after), s.URL) || !strings.Contains(string(after), `"switchboard"`) || !strings.Contains(out.String(), "stays  closed       Switchboard cannot sign in at it: ") {
		t.Errorf("it says\n%s\nand the file is\n%s", out.String(), after)
	}
}

// "import" asks each server over HTTP once, and again for its list if it answers. One that cannot be asked is imported all the same, and a dry run asks none.
func TestImportNamesTheServersThatNeedASignIn(t *testing.T) {
	var asked atomic.Int32
	serve := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.Header.Get("Authorization") != "" {
				t.Error("a static token was sent to find out about a sign-in")
			}
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://example.com/"`)
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	closed := serve(http.StatusUnauthorized)
	useOwnHome(t)
	dir := t.TempDir()
	t.Chdir(dir)
	text := fmt.Sprintf(`{"mcpServers": {
  "closed": {"url": %q}, "open": {"url": %q}, "gone": {"url": "%s/mcp"},
  "static": {"url": "%s/static", "headers": {"Authorization": "Bearer x"}}, "program": {"command": "x"}
}}`, closed, serve(http.StatusOK), gone.URL, closed)
	if err := os.WriteFile("mcp.json", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	importFile := func(words ...string) string {
		var out, errs strings.Builder
		if code := run(t.Context(), append([]string{"import", "mcp.json"}, words...), streams{strings.NewReader(""), &out, &errs, &out}); code != exitOK {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		return out.String()
	}
	if out := importFile("--dry-run"); asked.Load() != 0 || strings.Contains(out, "sign-in") {
		t.Errorf("a dry run asks %d times, and says\n%s", asked.Load(), out)
	}
	out := importFile()
	_, rest, _ := strings.Cut(out, "switchboard.yaml")
	for _, line := range []string{"closed needs a sign-in: run switchboard server connect closed\n", "gone could not be asked whether it needs a sign-in (server gone cannot be reached: "} {
		if !strings.Contains(rest, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	if asked.Load() != 3 || // the open one demands a token neither for initialize nor for the list
		strings.Contains(rest, "open") || strings.Contains(rest, "static ") {
		t.Errorf("%d requests, and it says\n%s", asked.Load(), out)
	}
}
