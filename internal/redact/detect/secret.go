package detect

import (
	"math"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Expressions read at most freeExprBytes bytes of the texts of a result, plus a 32nd of their
// length. Text after that which looks like a credential counts as one.
const freeExprBytes = 32 << 10

// Limits, in bytes: the length of a row of characters, of the name before a keyword, and how far
// around a keyword the search reads.
const (
	maxRow    = 300
	maxPrefix = 50
	maxNear   = 256
	maxAfter  = 512
)

// secretWords are the last words, alone or joined, in the names of members that hold credentials.
var secretWords = []string{
	"password", "passwd", "pwd", "passphrase", "secret", "apikey", "apisecret", "privatekey", "secretkey", "accesskey", "authkey",
	"accesstoken", "refreshtoken", "authtoken", "bearertoken", "apitoken", "sessiontoken", "authorization", "cookie",
}

func namesCredential(words []string) bool {
	name := strings.TrimSuffix(strings.Join(words, ""), "s")
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.HasSuffix(name, w) })
}

// findSecrets searches the text for credentials, also by the name of its member.
func (s *Search) findSecrets(text, name string, named nameHints) {
	set := loadRules()
	clear(s.covered)
	if named&namesSecret != 0 && isSecret(text, name) {
		s.addFound(switchboard.DetectSecret, 0, len(text))
		return
	}
	set.keywords.eachMatch(text, func(word, end int) {
		for _, r := range set.byWord[word] {
			s.tryRule(set, r, text, end-len(set.words[word]), end)
		}
	})
	if name != "" && len(text) >= minAssigned && len(text) <= maxRow && rowEnd(text, 0) == len(text) {
		s.findAssigned(set, text, name)
	}
}

// phraseWords name credentials that may contain spaces.
var phraseWords = []string{"password", "passwd", "pwd", "passphrase"}

// Limits for them. Longer text is a sentence about a credential, unless the name says that it is a
// phrase.
const (
	maxPhrase      = 64 // bytes
	maxPhraseWords = 3
)

func isPhrase(text, name string) bool {
	name = strings.TrimSuffix(strings.Join(wordsOf(name), ""), "s")
	return len(text) <= maxPhrase && slices.ContainsFunc(phraseWords, func(w string) bool { return strings.HasSuffix(name, w) }) &&
		(strings.Count(text, " ") < maxPhraseWords || strings.HasSuffix(name, "passphrase"))
}

// isSecret reports whether the value of a member with this name can be a credential. It may have
// spaces only if it is a short phrase or begins with a scheme. It must not be a placeholder such as
// a mask or <password>.
func isSecret(text, name string) bool {
	if len(text) < 3 || strings.Trim(text, "*•xX.") == "" || strings.HasPrefix(text, "[redacted]") || strings.HasPrefix(text, "${") ||
		strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">") {
		return false
	}
	word, rest, spaced := strings.Cut(text, " ")
	return !spaced || isPhrase(text, name) || strings.Contains(word, "=") || !strings.Contains(rest, " ") && (strings.EqualFold(word, "bearer") || strings.EqualFold(word, "basic"))
}

// tryRule applies the rule to the text around its keyword, if that looks like a match.
func (s *Search) tryRule(set *ruleSet, r *secretRule, text string, from, end int) {
	switch r.position {
	case inRow:
		from, end, ok := r.rowAround(text, from, end)
		if ok {
			s.applyRule(set, r, text, max(0, from-1), min(len(text), end+2), from, end)
		}
	case assignedValue:
		at, ok := r.valueStart(text, end)
		if ok {
			for n := 0; from > 0 && n < maxPrefix && (isWord(text[from-1]) || text[from-1] == '.' || text[from-1] == '-'); n++ {
				from--
			}
			row := rowEnd(text, at)
			s.applyRule(set, r, text, from, min(len(text), row+2), at, row)
		}
	case nearKeyword:
		if end <= s.covered[r] {
			return
		}
		near := maxNear
		if r.heads != nil {
			near = 1
		}
		first, last := max(0, from-near), min(len(text), end+maxAfter)
		last = rowEnd(text, last)
		if hasRow(text[first:last], r) {
			s.applyRule(set, r, text, first, last, from, lineEnd(text, from, last))
			s.covered[r] = last - maxNear
		}
	case customRule:
		if from < s.covered[r] {
			return
		}
		if from, end := r.find(text, from, end); end > from {
			s.addFound(switchboard.DetectSecret, from, end)
			s.covered[r] = end
		}
	}
}

// rowAround returns the row of characters around the keyword, and whether it can be a match.
func (r *secretRule) rowAround(text string, from, end int) (int, int, bool) {
	if r.heads != nil {
		for i := range r.heads {
			h := &r.heads[i]
			at := from - h.keyword
			inWord := at > 0 && isWord(text[at-1])
			if h.matchesAt(text, at) && (!r.wordBoundary || !inWord || !isWord(text[at])) {
				to := at + len(h.bytes)
				for to < len(text) && to-at < r.maxLength && isSecretByte(text[to]) {
					to++
				}
				return at, to, to-at >= r.minLength
			}
		}
		return 0, 0, false
	}
	for n := 0; from > 0 && n < r.maxLength && isSecretByte(text[from-1]); n++ {
		from--
	}
	for n := 0; end < len(text) && n < r.maxLength && isSecretByte(text[end]); n++ {
		end++
	}
	return from, end, end-from >= r.minLength
}

// lineEnd returns the end of the line that contains i, or most if that is smaller.
func lineEnd(text string, i, most int) int {
	if n := strings.IndexByte(text[i:most], '\n'); n >= 0 {
		return i + n
	}
	return most
}

// minAssigned is the length of the shortest credential that is found by its name.
const minAssigned = 8

// valueStart returns the start of the value that is assigned to the name with the keyword before i.
// It follows ruleAssigns and ruleSign, and accepts slightly more than they do.
func (r *secretRule) valueStart(text string, i int) (int, bool) {
	for n := 0; n < 23 && i < len(text) && (isWord(text[i]) || strings.IndexByte(" \t.-'\"\n\r\f\v", text[i]) >= 0); n++ {
		i++
	}
	if i >= len(text) || strings.IndexByte("=>|:?,", text[i]) < 0 {
		return 0, false
	}
	for n := 0; n < 9 && i < len(text) && strings.IndexByte("=>|:?,`'\" \t\n\r\f\v", text[i]) >= 0; n++ {
		i++
	}
	end := i
	for end < len(text) && end-i < r.minLength && isSecretByte(text[end]) {
		end++
	}
	return i, end-i >= r.minLength
}

// rowEnd returns the end of the row of characters that begins at i.
func rowEnd(text string, i int) int {
	end := i
	for end < len(text) && end-i <= maxRow && isSecretByte(text[end]) {
		end++
	}
	return end
}

// hasRow reports whether the text has a row of characters that is long enough for the rule.
func hasRow(text string, r *secretRule) bool {
	if !r.singleRow {
		return true
	}
	n := 0
	for i := range len(text) {
		if n++; !isSecretByte(text[i]) {
			n = 0
		}
		if n >= r.minLength {
			return true
		}
	}
	return false
}

// applyRule applies the rule to a part of the text. If the limit is reached, the row counts as
// found.
func (s *Search) applyRule(set *ruleSet, r *secretRule, text string, from, end, rowFrom, rowTo int) {
	if s.exprBytes += end - from; s.exprBytes > freeExprBytes+s.textBytes/32 {
		s.addFound(switchboard.DetectSecret, rowFrom, rowTo)
		return
	}
	for _, m := range r.expr().FindAllStringSubmatchIndex(text[from:end], -1) {
		a, b := m[0], m[1]
		for g := 1; g < len(m)/2; g++ {
			if m[2*g+1] > m[2*g] && (r.group == 0 || r.group == g) {
				a, b = m[2*g], m[2*g+1]
				break
			}
		}
		if b == end-from {
			b = rowEnd(text, end) - from // the part ends within the match
		}
		if set.isCredential(r, text, from+a, from+b, from+m[0], from+m[1]) {
			s.addFound(switchboard.DetectSecret, from+a, from+b)
		}
	}
}

// isCredential reports whether the match of the rule is a credential.
func (set *ruleSet) isCredential(r *secretRule, text string, a, b, from, end int) bool {
	secret := text[a:b]
	if r.entropy > 0 && shannonEntropy(secret) <= r.entropy {
		return false
	}
	start := max(0, from-maxNear)
	start += strings.LastIndexByte(text[start:from], '\n') + 1
	stop := lineEnd(text, end, min(len(text), end+maxNear))
	allows := func(l *allowedPattern) bool { return l.covers(secret, text[from:end], text[start:stop]) }
	return !slices.ContainsFunc(set.allowed, allows) && !slices.ContainsFunc(r.allowed, allows)
}

// shannonEntropy returns Shannon's entropy of the text, in bits per byte.
func shannonEntropy(text string) float64 {
	var count [256]int
	for i := range len(text) {
		count[text[i]]++
	}
	bits := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(text))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}

// findAssigned applies the rules to a member: its name and its value in the form of JSON.
func (s *Search) findAssigned(set *ruleSet, text, name string) {
	if len(name) > maxName || !set.keywords.containsAny(name) {
		return
	}
	member := name + `": "` + text + `"`
	value := len(member) - 1 - len(text)
	set.keywords.eachMatch(name, func(word, end int) {
		for _, r := range set.byWord[word] {
			if r.position == assignedValue && len(text) >= r.minLength {
				before := len(s.found)
				s.applyRule(set, r, member, 0, len(member), value, value+len(text))
				for i := before; i < len(s.found); i++ {
					s.found[i].From, s.found[i].To = max(0, s.found[i].From-value), min(len(text), s.found[i].To-value)
				}
			}
		}
	})
}

// ownRules are Switchboard's own rules: passwords in URLs, private keys, values of Authorization,
// and members named as credentials.
var ownRules = []*secretRule{
	{id: "url-password", keywords: []string{"://"}, position: customRule, find: urlPassword},
	{id: "private-key", keywords: []string{"-----begin"}, position: customRule, find: privateKey},
	{id: "authorization", keywords: []string{"bearer ", "basic "}, position: customRule, find: authorization},
	{id: "member", keywords: []string{`":`, `" :`}, position: customRule, find: memberValue},
}

// urlPassword returns the position of the password in a URL with the scheme that ends at end.
func urlPassword(text string, _, end int) (int, int) {
	stop := rowEnd(text, end)
	if i := strings.IndexAny(text[end:stop], "/?#"); i >= 0 {
		stop = end + i
	}
	at := strings.LastIndexByte(text[end:stop], '@')
	if at < 0 {
		return 0, 0
	}
	colon := strings.IndexByte(text[end:end+at], ':')
	if colon < 0 || colon+1 == at {
		return 0, 0
	}
	return end + colon + 1, end + at
}

// maxKey limits a private key, in bytes.
const maxKey = 64 << 10

// privateKey returns the position of the private key that begins at from. A key without an end
// extends to the end of the text.
func privateKey(text string, from, end int) (int, int) {
	header, _, ok := strings.Cut(text[end:min(len(text), end+maxPrefix*2)], "-----")
	if !ok || !containsWordFold(header, "PRIVATE KEY") {
		return 0, 0
	}
	body := end + len(header) + len("-----")
	if first := strings.TrimLeft(text[body:min(len(text), body+maxRow)], " \t\r\n"); rowEnd(first, 0) < minAssigned && !strings.Contains(first, ": ") {
		return 0, 0 // the words alone, without a key
	}
	stop := min(len(text), from+maxKey)
	for _, end := range []string{"KEY-----", "KEY BLOCK-----"} {
		if i := strings.Index(text[body:stop], end); i >= 0 {
			stop = body + i + len(end)
		}
	}
	return from, stop
}

// memberValue returns the position of a member's value within a text, as in {"password": "…"}, if
// its name says that the value is a credential. The name ends at from.
func memberValue(text string, from, end int) (int, int) {
	begin := strings.LastIndexByte(text[max(0, from-maxName):from], '"')
	if begin < 0 {
		return 0, 0
	}
	name := text[max(0, from-maxName)+begin+1 : from]
	for end < len(text) && strings.IndexByte(" \t\r\n", text[end]) >= 0 {
		end++
	}
	if byteAt(text, end) != '"' || !namesCredential(wordsOf(name)) {
		return 0, 0
	}
	end++
	stop := end
	for stop < len(text) && stop-end < maxKey && text[stop] != '"' {
		if text[stop] == '\\' {
			stop++
		}
		stop++
	}
	stop = min(stop, len(text))
	if !isSecret(text[end:stop], name) {
		return 0, 0
	}
	return end, stop
}

// containsWordFold reports whether the ASCII word occurs in the text, ignoring case.
func containsWordFold(text, word string) bool {
	for i := range len(text) - len(word) + 1 {
		if strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// authorization returns the position of the credential after the name of its scheme.
func authorization(text string, from, end int) (int, int) {
	stop := rowEnd(text, end)
	if from > 0 && isWord(text[from-1]) || stop-end < 8 || !strings.ContainsAny(text[end:stop], "0123456789=") {
		return 0, 0
	}
	return end, stop
}
