package switchboard

import (
	"slices"
	"strings"
)

// credentialSuffixes are endings of words in names of secrets.
var credentialSuffixes = []string{
	"token", "key", "keys", "secret", "secrets", "password", "passwd", "passphrase", "pat",
	"credential", "credentials", "authorization", "cookie",
}

// CredentialName reports whether a header or variable with this name carries a secret, such as AUTHORIZATION, X-Api-Key
// or githubToken, but not MAX_TOKENS or KEY_FILE.
func CredentialName(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	if len(words) > 0 && slices.Contains([]string{"path", "file", "dir"}, words[len(words)-1]) {
		return false
	}
	return slices.ContainsFunc(words, func(w string) bool {
		if w == "pat" {
			return true
		}
		return slices.ContainsFunc(credentialSuffixes, func(c string) bool { return c != "pat" && strings.HasSuffix(w, c) })
	})
}

// credentialPrefixes are the prefixes of well-known credentials.
var credentialPrefixes = []string{
	"sk-", "sk_live_", "sk_test_", "rk_live_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
	"xoxb-", "xoxp-", "xoxa-", "xoxs-", "xapp-", "AKIA", "ASIA", "AIza", "ya29.", "eyJ", "hf_", "npm_", "tvly-",
	"dop_v1_", "shpat_", "pypi-",
}

// CredentialValue reports whether a text contains something that looks like a credential: a well-known prefix, an
// Authorization value, or a URL with a password.
func CredentialValue(s string) bool {
	words := strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'`=:,;&?/(){}[]<>|", r) })
	for i, w := range words {
		for _, start := range credentialPrefixes {
			// Without a digit it is an ordinary word with the same start, such as npm_config_cache.
			if rest, ok := strings.CutPrefix(w, start); ok && len(rest) >= 8 && strings.ContainsAny(rest, "0123456789") {
				return true
			}
		}
		if i > 0 && len(w) >= 8 && (strings.EqualFold(words[i-1], "bearer") || strings.EqualFold(words[i-1], "basic")) {
			return true
		}
	}
	if strings.Contains(s, "-----BEGIN ") {
		return true
	}
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		return false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	user, _, ok := strings.Cut(rest, "@")
	_, password, colon := strings.Cut(user, ":")
	return ok && colon && password != ""
}
