package config

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	known := []string{"transport", "url", "headers", "trust"}
	for _, tt := range []struct{ in, want string }{
		{"tranport", "transport"},
		{"transprot", "transport"},
		{"Transport", "transport"},
		{"ulr", "url"},
		{"header", "headers"},
		{"trsut", "trust"},
		{"x", ""},
		{"command", ""},
		{"", ""},
		{strings.Repeat("transport", 100), ""},
	} {
		if got := nearest(tt.in, known); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestDistanceIsThatOfEdits(t *testing.T) {
	word := rapid.StringMatching(`[ab]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) {
			t.Errorf("distance(%q, %q) depends on the order", a, b)
		}
		if (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Errorf("distance(%q, %q) = %d", a, b, d)
		}
		i := rapid.IntRange(0, len(a)).Draw(t, "i")
		if d := distance(a, a[:i]+"c"+a[i:]); d != 1 {
			t.Errorf("one letter more is %d away", d)
		}
	})
}

func TestCredentials(t *testing.T) {
	for _, name := range []string{"Authorization", "X-Api-Key", "GITHUB_TOKEN", "github_personal_access_token", "githubToken", "APIKEY", "DB_PASSWORD", "clientSecret", "AWS_ACCESS_KEY_ID", "GITLAB_PAT", "Cookie"} {
		if !credentialName(name) {
			t.Errorf("%s is not taken for the name of a credential", name)
		}
	}
	for _, name := range []string{"MAX_TOKENS", "KEYBOARD", "X-Region", "SSH_KEY_PATH", "TOKEN_FILE", "PATTERN", "SECRETARY"} {
		if credentialName(name) {
			t.Errorf("%s is taken for the name of a credential", name)
		}
	}
	for _, s := range []string{"Bearer abcdef123456", "x: basic dXNlcjpwYXNz", "--key=sk-proj-0123456789", "ghp_0123456789abcdef", "postgres://u:p@h/db", "-----BEGIN RSA PRIVATE KEY-----"} {
		if !credentialValue(s) {
			t.Errorf("%q is not taken for a credential", s)
		}
	}
	for _, s := range []string{"", "Bearer ", "production", "https://a.example/x@y", "npm_config_cache", "basic plan", "me@a.example", "http://a.example:80/"} {
		if credentialValue(s) {
			t.Errorf("%q is taken for a credential", s)
		}
	}
}

// What is written in quotes is read as the same text.
func TestQuotedTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		sink := &sink{}
		v, ok := readYAML("x", []byte("a: "+quote(s)), sink)
		if !ok || len(v.pairs) != 1 || v.pairs[0].val.kind != textKind || v.pairs[0].val.text != s {
			t.Fatalf("%q was written as %s and read as %+v %v", s, quote(s), v.node, sink.faults)
		}
	})
}
