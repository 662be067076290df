package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server that wants a sign-in works in the client, which can open a browser. Behind Switchboard it would not.
func TestAServerThatWantsASignInStaysInTheClient(t *testing.T) {
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
	if !strings.Contains(string(after), s.URL) || !strings.Contains(string(after), `"switchboard"`) || !strings.Contains(out.String(), "stays  closed       it wants a sign-in") {
		t.Errorf("it says\n%s\nand the file is\n%s", out.String(), after)
	}
}
