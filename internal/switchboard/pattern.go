package switchboard

import "strings"

// MatchPattern reports whether the pattern matches the whole of s. In the pattern, * matches any characters, also none.
// It takes at most len(pattern)*len(s) steps.
func MatchPattern(pattern, s string) bool {
	star, mark := -1, 0 // the last * in pattern, and where in s its match ends
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p, i = p+1, i+1
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
