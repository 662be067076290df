package switchboard

import "testing"

func TestCredentials(t *testing.T) {
	for _, name := range []string{"Authorization", "X-Api-Key", "GITHUB_TOKEN", "github_personal_access_token", "githubToken", "APIKEY", "DB_PASSWORD", "clientSecret", "AWS_ACCESS_KEY_ID", "GITLAB_PAT", "Cookie"} {
		if !CredentialName(name) {
			t.Errorf("%s is not taken for the name of a credential", name)
		}
	}
	for _, name := range []string{"MAX_TOKENS", "KEYBOARD", "X-Region", "SSH_KEY_PATH", "TOKEN_FILE", "PATTERN", "SECRETARY"} {
		if CredentialName(name) {
			t.Errorf("%s is taken for the name of a credential", name)
		}
	}
	for _, s := range []string{"Bearer abcdef123456", "x: basic dXNlcjpwYXNz", "--key=sk-proj-0123456789", "ghp_0123456789abcdef", "postgres://u:p@h/db", "-----BEGIN RSA PRIVATE KEY-----"} {
		if !CredentialValue(s) {
			t.Errorf("%q is not taken for a credential", s)
		}
	}
	for _, s := range []string{"", "Bearer ", "production", "https://a.example/x@y", "npm_config_cache", "basic plan", "me@a.example", "http://a.example:80/"} {
		if CredentialValue(s) {
			t.Errorf("%q is taken for a credential", s)
		}
	}
}
