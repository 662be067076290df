package detect

import (
	"math"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Expressions read at most freeTries bytes of the texts of a result, and a 32nd of what the texts have. What looks
// like a credential after that counts as one.
const freeTries = 32 << 10

// A named row of characters may be so long, and is looked for so far before and behind a keyword.
const (
	maxRow    = 300
	maxPrefix = 50
	vicinity  = 256
	farther   = 512
)

// secretWords end the names of members whose value is a credential, by themselves or joined.
var secretWords = []string{
	"password", "passwd", "pwd", "passphrase", "secret", "apikey", "apisecret", "privatekey", "secretkey", "accesskey", "authkey",
	"accesstoken", "refreshtoken", "authtoken", "bearertoken", "apitoken", "sessiontoken", "authorization", "cookie",
}

func secretName(words []string) bool {
	name := strings.TrimSuffix(strings.Join(words, ""), "s")
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.HasSuffix(name, w) })
}

// secrets looks for credentials in the text, and in what its name says of it.
func (s *Search) secrets(text, name string, named naming) {
	set := rules()
	clear(s.covered)
	if named&namesSecret != 0 && isSecret(text, name) {
		s.add(switchboard.DetectSecret, 0, len(text))
		return
	}
	set.keywords.find(text, func(word, end int) {
		for _, r := range set.by[word] {
			s.try(set, r, text, end-len(set.words[word]), end)
		}
	})
	if name != "" && len(text) >= minAssigned && len(text) <= maxRow && rowEnd(text, 0) == len(text) {
		s.assigned(set, text, name)
	}
}

// phraseWords name credentials that may have spaces.
var phraseWords = []string{"password", "passwd", "pwd", "passphrase"}

// Bounds of those. What is longer tells about a credential, unless the name says that it is a phrase.
const (
	maxPhrase      = 64 // bytes
	maxPhraseWords = 3
)

func isPhrase(text, name string) bool {
	name = strings.TrimSuffix(strings.Join(wordsOf(name), ""), "s")
	return len(text) <= maxPhrase && slices.ContainsFunc(phraseWords, func(w string) bool { return strings.HasSuffix(name, w) }) &&
		(strings.Count(text, " ") < maxPhraseWords || strings.HasSuffix(name, "passphrase"))
}

// isSecret reports whether the value of a member that is named so can be a credential: it has no spaces unless it is
// a short phrase or its first word says what it is, and stands for none, as a mask and <password> do.
func isSecret(text, name string) bool {
	if len(text) < 3 || strings.Trim(text, "*•xX.") == "" || strings.HasPrefix(text, "[redacted]") || strings.HasPrefix(text, "${") ||
		strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">") {
		return false
	}
	word, rest, spaced := strings.Cut(text, " ")
	return !spaced || isPhrase(text, name) || strings.Contains(word, "=") || !strings.Contains(rest, " ") && (strings.EqualFold(word, "bearer") || strings.EqualFold(word, "basic"))
}

// try holds the rule against the text around its keyword, if what stands there looks like a match.
func (s *Search) try(set *ruleSet, r *rule, text string, from, end int) {
	switch r.shape {
	case within:
		from, end, ok := r.row(text, from, end)
		if ok {
			s.match(set, r, text, max(0, from-1), min(len(text), end+2), from, end)
		}
	case assigned:
		at, ok := r.value(text, end)
		if ok {
			for n := 0; from > 0 && n < maxPrefix && (isWord(text[from-1]) || text[from-1] == '.' || text[from-1] == '-'); n++ {
				from--
			}
			row := rowEnd(text, at)
			s.match(set, r, text, from, min(len(text), row+2), at, row)
		}
	case around:
		if end <= s.covered[r] {
			return
		}
		near := vicinity
		if r.heads != nil {
			near = 1
		}
		first, last := max(0, from-near), min(len(text), end+farther)
		last = rowEnd(text, last)
		if hasRow(text[first:last], r) {
			s.match(set, r, text, first, last, from, lineEnd(text, from, last))
			s.covered[r] = last - vicinity
		}
	case ours:
		if from < s.covered[r] {
			return
		}
		if from, end := r.find(text, from, end); end > from {
			s.add(switchboard.DetectSecret, from, end)
			s.covered[r] = end
		}
	}
}

// row returns the characters of which the keyword is a part, and whether they can be a match.
func (r *rule) row(text string, from, end int) (int, int, bool) {
	if r.heads != nil {
		for i := range r.heads {
			h := &r.heads[i]
			at := from - h.keyword
			inWord := at > 0 && isWord(text[at-1])
			if h.begins(text, at) && (!r.bounded || !inWord || !isWord(text[at])) {
				to := at + len(h.bytes)
				for to < len(text) && to-at < r.most && isPart(text[to]) {
					to++
				}
				return at, to, to-at >= r.least
			}
		}
		return 0, 0, false
	}
	for n := 0; from > 0 && n < r.most && isPart(text[from-1]); n++ {
		from--
	}
	for n := 0; end < len(text) && n < r.most && isPart(text[end]); n++ {
		end++
	}
	return from, end, end-from >= r.least
}

// lineEnd returns where the line ends in which i is, but most at the latest.
func lineEnd(text string, i, most int) int {
	if n := strings.IndexByte(text[i:most], '\n'); n >= 0 {
		return i + n
	}
	return most
}

// minAssigned is the length of the shortest credential that is found by the name that it is given to.
const minAssigned = 8

// value returns where the value begins that is given to the name of which the keyword before i is a part. It
// follows ruleAssigns and ruleSign, and takes a little more than they do.
func (r *rule) value(text string, i int) (int, bool) {
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
	for end < len(text) && end-i < r.least && isPart(text[end]) {
		end++
	}
	return i, end-i >= r.least
}

// rowEnd returns where the row of characters ends that begins at i.
func rowEnd(text string, i int) int {
	end := i
	for end < len(text) && end-i <= maxRow && isPart(text[end]) {
		end++
	}
	return end
}

// hasRow reports whether the text has a row of characters that is long enough for the rule.
func hasRow(text string, r *rule) bool {
	if !r.solid {
		return true
	}
	n := 0
	for i := range len(text) {
		if n++; !isPart(text[i]) {
			n = 0
		}
		if n >= r.least {
			return true
		}
	}
	return false
}

// match holds the rule against a part of the text. The row is what counts as found if the bound is reached.
func (s *Search) match(set *ruleSet, r *rule, text string, from, end, rowFrom, rowTo int) {
	if s.tried += end - from; s.tried > freeTries+s.read/32 {
		s.add(switchboard.DetectSecret, rowFrom, rowTo)
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
			b = rowEnd(text, end) - from // the part ends within it
		}
		if set.is(r, text, from+a, from+b, from+m[0], from+m[1]) {
			s.add(switchboard.DetectSecret, from+a, from+b)
		}
	}
}

// is reports whether what the rule has found in a match is a credential.
func (set *ruleSet) is(r *rule, text string, a, b, from, end int) bool {
	secret := text[a:b]
	if r.entropy > 0 && entropy(secret) <= r.entropy {
		return false
	}
	start := max(0, from-vicinity)
	start += strings.LastIndexByte(text[start:from], '\n') + 1
	stop := lineEnd(text, end, min(len(text), end+vicinity))
	allows := func(l *allowance) bool { return l.allows(secret, text[from:end], text[start:stop]) }
	return !slices.ContainsFunc(set.allowed, allows) && !slices.ContainsFunc(r.allowed, allows)
}

// entropy is how many bits each byte of the text tells, after Shannon.
func entropy(text string) float64 {
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

// assigned holds the rules against a member: its name and its value as they stand in JSON.
func (s *Search) assigned(set *ruleSet, text, name string) {
	if len(name) > maxName || !set.keywords.has(name) {
		return
	}
	member := name + `": "` + text + `"`
	value := len(member) - 1 - len(text)
	set.keywords.find(name, func(word, end int) {
		for _, r := range set.by[word] {
			if r.shape == assigned && len(text) >= r.least {
				before := len(s.found)
				s.match(set, r, member, 0, len(member), value, value+len(text))
				for i := before; i < len(s.found); i++ {
					s.found[i].From, s.found[i].To = max(0, s.found[i].From-value), min(len(text), s.found[i].To-value)
				}
			}
		}
	})
}

// own are what Switchboard knows besides: passwords in URLs, and the values of Authorization.
var own = []*rule{
	{id: "url-password", keywords: []string{"://"}, shape: ours, find: urlPassword},
	{id: "private-key", keywords: []string{"-----begin"}, shape: ours, find: privateKey},
	{id: "authorization", keywords: []string{"bearer ", "basic "}, shape: ours, find: authorization},
	{id: "member", keywords: []string{`":`, `" :`}, shape: ours, find: member},
}

// urlPassword returns where the password stands in a URL whose scheme ends at end.
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

// maxKey bounds a private key, in bytes.
const maxKey = 64 << 10

// privateKey returns where the private key stands that begins at from; one without an end goes on to that of the
// text.
func privateKey(text string, from, end int) (int, int) {
	header, _, ok := strings.Cut(text[end:min(len(text), end+maxPrefix*2)], "-----")
	if !ok || !hasFold(header, "PRIVATE KEY") {
		return 0, 0
	}
	body := end + len(header) + len("-----")
	if first := strings.TrimLeft(text[body:min(len(text), body+maxRow)], " \t\r\n"); rowEnd(first, 0) < minAssigned && !strings.Contains(first, ": ") {
		return 0, 0 // the words alone
	}
	stop := min(len(text), from+maxKey)
	for _, end := range []string{"KEY-----", "KEY BLOCK-----"} {
		if i := strings.Index(text[body:stop], end); i >= 0 {
			stop = body + i + len(end)
		}
	}
	return from, stop
}

// member returns where the value stands of a member within a text, as in {"password": "…"}, if its name says that the value is a
// credential. The name ends at from.
func member(text string, from, end int) (int, int) {
	begin := strings.LastIndexByte(text[max(0, from-maxName):from], '"')
	if begin < 0 {
		return 0, 0
	}
	name := text[max(0, from-maxName)+begin+1 : from]
	for end < len(text) && strings.IndexByte(" \t\r\n", text[end]) >= 0 {
		end++
	}
	if at(text, end) != '"' || !secretName(wordsOf(name)) {
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

// hasFold reports whether the ASCII word stands in the text, whatever the case of its letters.
func hasFold(text, word string) bool {
	for i := range len(text) - len(word) + 1 {
		if strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// authorization returns where the credential stands behind the name of its scheme.
func authorization(text string, from, end int) (int, int) {
	stop := rowEnd(text, end)
	if from > 0 && isWord(text[from-1]) || stop-end < 8 || !strings.ContainsAny(text[end:stop], "0123456789=") {
		return 0, 0
	}
	return end, stop
}
