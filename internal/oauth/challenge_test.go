package oauth

import (
	"strings"
	"testing"
)

func TestOnlyABearerChallengeThatIsWellFormedDemandsSomething(t *testing.T) {
	const md = "https://mcp.example.com/.well-known/oauth-protected-resource"
	for _, tt := range []struct {
		name   string
		values []string
		want   Challenge
		ok     bool
	}{
		{"all of it", []string{`Bearer resource_metadata="` + md + `", scope="files:read files:write", error="insufficient_scope"`}, Challenge{md, "files:read files:write", "insufficient_scope"}, true},
		{"tokens instead of strings, other letters, more blanks", []string{"bEARER   Error = invalid_token ,\tSCOPE=a"}, Challenge{Scope: "a", Error: "invalid_token"}, true},
		{"alone", []string{"Bearer"}, Challenge{}, true},
		{"after others in one value", []string{`Basic realm="a, Bearer scope=\"x\"", Negotiate a8b==, Bearer scope="b", Digest x="y"`}, Challenge{Scope: "b"}, true},
		{"after others in several values", []string{`Basic realm="a"`, "", `Bearer scope="b"`}, Challenge{Scope: "b"}, true},
		{"the first of two", []string{`Bearer scope="a", Bearer scope="b"`, `Bearer scope="c"`}, Challenge{Scope: "a"}, true},
		{"escapes", []string{`Bearer scope="a\"b\\c"`}, Challenge{Scope: `a"b\c`}, true},
		{"empty list items", []string{`,, Bearer scope="a",, error="b",`}, Challenge{Scope: "a", Error: "b"}, true},
		{"a token68 is no parameter", []string{`Bearer abc==`}, Challenge{}, true},
		{"unknown parameters", []string{`Bearer realm="x", scope="a", authz_uri="y"`}, Challenge{Scope: "a"}, true},
		{"none", nil, Challenge{}, false},
		{"another scheme", []string{`DPoP scope="a"`}, Challenge{}, false},
		{"a scheme that begins alike", []string{`BearerToken scope="a"`}, Challenge{}, false},
		{"a parameter twice", []string{`Bearer scope="a", scope="b"`}, Challenge{}, false},
		{"a parameter twice in other letters", []string{`Bearer scope="a", SCOPE="b"`}, Challenge{}, false},
		{"a parameter without a scheme", []string{`scope="a"`}, Challenge{}, false},
		{"no comma", []string{`Bearer scope="a" error="b"`}, Challenge{}, false},
		{"an open string", []string{`Bearer scope="a`}, Challenge{}, false},
		{"an open escape", []string{`Bearer scope="a\`}, Challenge{}, false},
		{"a control character", []string{"Bearer scope=\"a\x00b\""}, Challenge{}, false},
		{"a line break", []string{"Bearer scope=\"a\r\nb\""}, Challenge{}, false},
		{"a parameter after a token68", []string{`Bearer abc==, scope="a"`}, Challenge{}, false},
		{"a broken value beside a good one", []string{`Bearer scope="a"`, `Basic realm="`}, Challenge{}, false},
		{"a long value", []string{`Bearer scope="` + strings.Repeat("a", maxChallengeValue+1) + `"`}, Challenge{}, false},
		{"many values", []string{`Bearer scope="a"`, strings.Repeat(",", maxChallenges)}, Challenge{}, false},
	} {
		got, ok := ParseChallenge(tt.values)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: %+v %t, want %+v %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParseChallenge(f *testing.F) {
	for _, s := range []string{
		`Bearer resource_metadata="https://x/y", scope="a b"`, `Basic realm="a", Bearer error=x`, "Negotiate abc==, Bearer", `Bearer a="\`, ",,,", "Bearer =", "a=b=c",
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		c, ok := ParseChallenge([]string{a, b})
		if !ok {
			if c != (Challenge{}) {
				t.Errorf("%+v of no challenge", c)
			}
			return
		}
		if !strings.Contains(strings.ToLower(a+b), "bearer") {
			t.Errorf("%q %q is a Bearer challenge", a, b)
		}
		for _, v := range []string{c.ResourceMetadata, c.Scope, c.Error} {
			if len(v) > maxChallengeValue || strings.ContainsAny(v, "\r\n\x00") {
				t.Errorf("%q", v)
			}
		}
		// A quoted form of what was read says the same.
		quoted := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
		again, ok := ParseChallenge([]string{"Bearer resource_metadata=" + quoted(c.ResourceMetadata) + ", scope=" + quoted(c.Scope) + ", error=" + quoted(c.Error)})
		if !ok || again != c {
			t.Errorf("%+v became %+v %t", c, again, ok)
		}
	})
}
