package detect

import (
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// versionWords name what looks like an address and is none.
var versionWords = map[string]bool{
	"version": true, "versions": true, "ver": true, "release": true, "build": true, "section": true, "chapter": true, "rev": true,
}

// maxLocal bounds the part of an e-mail address before the sign, and maxDomain the part after it, in bytes.
const (
	maxLocal  = 64
	maxDomain = 253
)

// email looks at the sign at i, @ or %40, and returns where to go on.
func (s *Search) email(text string, i int) int {
	width := 1
	if text[i] == '%' {
		if !strings.HasPrefix(text[i:], "%40") {
			return i + 1
		}
		width = 3
	}
	from, to := localPart(text, i), domain(text, i+width)
	if from == i || to == 0 || text[from:i] == "git" || strings.HasPrefix(text[i+width:], "odata.") {
		return i + width // git is the user of git servers, and what follows odata a property of OData
	}
	s.add(switchboard.DetectEmail, from, to)
	return to
}

// localPart returns where the mailbox begins whose name ends at i, or i where there is none.
func localPart(text string, i int) int {
	if at(text, i-1) == '"' { // "ann b"@example.com
		if from := strings.LastIndexByte(text[max(0, i-maxLocal):i-1], '"'); from >= 0 {
			return max(0, i-maxLocal) + from
		}
	}
	from, dense := i, false
	for from > 0 && i-from < maxLocal {
		c := text[from-1]
		if c < 0x80 {
			if !isWord(c) && c != '.' && c != '+' && c != '-' && c != '\'' {
				break
			}
			from--
			continue
		}
		r, n := utf8.DecodeLastRuneInString(text[:from])
		if from == i {
			dense = unspaced(r)
		}
		if !unicode.IsLetter(r) || unspaced(r) != dense {
			break
		}
		from -= n
	}
	for from < i && (text[from] == '.' || text[from] == '\'' || text[from] == '-') {
		from++
	}
	return from
}

// unspaced reports whether r is of a script that puts no spaces between words, so that an address may follow a
// word directly.
func unspaced(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// domain returns where the domain ends that begins at i, or 0 where there is none: two labels or more, of which
// the last is no number; or an address in brackets.
func domain(text string, i int) (end int) {
	if at(text, i) == '[' {
		n := strings.IndexByte(text[i:min(len(text), i+64)], ']')
		if n < 0 {
			return 0
		}
		if _, err := netip.ParseAddr(strings.TrimPrefix(text[i+1:i+n], "IPv6:")); err != nil {
			return 0
		}
		return i + n + 1
	}
	first, _ := utf8.DecodeRuneInString(text[min(i, len(text)):])
	dense := first >= utf8.RuneSelf && unspaced(first)
	for label, labels := i, 1; ; labels++ {
		j, letters := label, true
		for j < len(text) && j-i < maxDomain {
			r, n := rune(text[j]), 1
			if r >= utf8.RuneSelf {
				r, n = utf8.DecodeRuneInString(text[j:])
			}
			if r < utf8.RuneSelf && !isLetter(byte(r)) || r >= utf8.RuneSelf && (!unicode.IsLetter(r) || unspaced(r) != dense) {
				if r != '-' && (r >= utf8.RuneSelf || !isDigit(byte(r))) {
					break
				}
				letters = false
			}
			j += n
		}
		size := j - label
		if size == 0 || size > 63 || labels == 1 && size == 2 && text[label+1]|0x20 == 'x' && isDigit(text[label]) {
			return end // the last is that of a picture for a dense screen: logo@2x.png
		}
		if labels > 1 && size > 1 && (letters || strings.HasPrefix(text[label:j], "xn--")) {
			end = j
		}
		if at(text, j) != '.' {
			return end
		}
		label = j + 1
	}
}

// ipv4 returns where the address ends that begins at i, or 0.
func ipv4(text string, i int, named naming) int {
	if c := at(text, i-1); isWord(c) || c == '.' || c >= 0x80 && at(text, i-2) >= 0x80 || named&namesVersion != 0 {
		return 0
	}
	end := quad(text, i)
	if end == 0 {
		return 0
	}
	switch c, next := at(text, end), at(text, end+1); {
	case isWord(c), c == '.' && isWord(next), c == '-' && isLetter(next), c == '-' && next == '_':
		return 0 // more of a version, of the name of a host, or of an object
	}
	if w, _ := before(text, i, 3); isOne(versionWords, w) || w == "v" || w == "V" {
		return 0
	}
	return end
}

// quad returns where four numbers up to 255 with points between them end, or 0.
func quad(text string, i int) int {
	for n := range 4 {
		if n > 0 {
			if at(text, i) != '.' {
				return 0
			}
			i++
		}
		from, value := i, 0
		for i < len(text) && isDigit(text[i]) && i-from < 4 {
			value = value*10 + int(text[i]-'0')
			i++
		}
		if i == from || value > 255 || i-from > 3 || i-from > 1 && text[from] == '0' {
			return 0
		}
	}
	return i
}

// colon looks whether the colon at i stands in an IPv6 address, and returns where to go on.
func (s *Search) colon(text string, i int) int {
	from := i
	for from > 0 && i-from < 5 && isHex(text[from-1]) {
		from--
	}
	to, colons, digits := i, 0, false
	for to < len(text) && to-from < 46 && (isHex(text[to]) || text[to] == ':' || text[to] == '.') {
		if text[to] == ':' {
			colons++
		}
		digits = digits || isDigit(text[to])
		to++
	}
	digits = digits || strings.ContainsAny(text[from:i], "0123456789")
	next := i + 1
	if colons < 2 {
		return next
	}
	for to > from && (text[to-1] == '.' || text[to-1] == ':' && at(text, to-2) != ':') {
		to--
	}
	if !digits || isWord(at(text, from-1)) || isWord(at(text, to)) || at(text, from-1) == ':' {
		return next
	}
	if _, err := netip.ParseAddr(text[from:to]); err != nil {
		return next
	}
	s.add(switchboard.DetectIP, from, to)
	return to
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
