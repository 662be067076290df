package oauth

import (
	"fmt"
	"slices"
	"strings"
)

const offlineAccess = "offline_access" // the scope that asks for a refresh token: OpenID Connect Core 1.0 section 11

// ChooseScopes returns the scopes to ask for: those of the server's challenge, else all those that the server's metadata names. The MCP
// specification calls this the scope selection strategy. allowed are the scopes of the server's row, which are never exceeded (CD-07); nil means that the row has
// none. A challenge that demands more is refused, since less would not serve the request. offline_access is added if the authorization server
// knows it, because a refresh token spares the person the next consent.
func (p *Provider) ChooseScopes(ch Challenge, allowed []string) ([]string, error) {
	demanded, err := ch.Scopes()
	if err != nil {
		return nil, fail(Misconfigured, "the server's challenge has %w", err)
	}
	if allowed != nil {
		if over := without(demanded, allowed); len(over) > 0 {
			return nil, fail(Refused, "the server demands the scopes %.200q, which its row does not allow", over)
		}
	}
	scopes := demanded
	if len(scopes) == 0 {
		scopes = slices.DeleteFunc(slices.Clone(p.Scopes), func(s string) bool { return allowed != nil && !slices.Contains(allowed, s) })
		if len(scopes) == 0 {
			scopes = slices.Clone(allowed)
		}
	}
	if p.OfflineAccess && !slices.Contains(scopes, offlineAccess) && len(scopes) > 0 && (allowed == nil || slices.Contains(allowed, offlineAccess)) {
		scopes = append(scopes, offlineAccess)
	}
	return scopes, nil
}

// Scopes returns the scopes that the challenge demands.
func (ch Challenge) Scopes() ([]string, error) { return checkScopes(strings.Fields(ch.Scope)) }

// checkScopes returns the scopes without repetitions. It refuses what is no scope: RFC 6749 section 3.3.
func checkScopes(scopes []string) ([]string, error) {
	if len(scopes) > maxScopes {
		return nil, fmt.Errorf("more than %d scopes", maxScopes)
	}
	var out []string
	for _, s := range scopes {
		for i := range len(s) {
			if s[i] <= ' ' || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
				return nil, fmt.Errorf("%.100q, which is no scope", s)
			}
		}
		if s == "" || len(s) > 512 {
			return nil, fmt.Errorf("%.100q, which is no scope", s)
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// without returns the texts of all that are not among others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}
