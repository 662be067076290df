package detect

import (
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// versionWords precede version numbers, which look like IPv4 addresses.
var versionWords = map[string]bool{
	"version": true, "versions": true, "ver": true, "release": true, "build": true, "section": true, "chapter": true, "rev": true,
}

// maxLocal limits the part of an e-mail address before the @, and maxDomain the part after it, in
// bytes.
const (
	maxLocal  = 64
	maxDomain = 253
)

// findEmail checks the @ or %40 at i, and returns where the search continues.
func (s *Search) findEmail(text string, i int) int {
	width := 1
	if text[i] == '%' {
		if !strings.HasPrefix(text[i:], "%40") {
			return i + 1
		}
		width = 3
	}
	from, to := mailboxStart(text, i), domainEnd(text, i+width)
	if from == i || to == 0 || text[from:i] == "git" || strings.HasPrefix(text[i+width:], "odata.") {
		return i + width // git is the user of git servers, and odata. begins a property of OData
	}
	s.addFound(switchboard.DetectEmail, from, to)
	return to
}

// mailboxStart returns the start of the mailbox name that ends at i, or i if there is none.
func mailboxStart(text string, i int) int {
	if byteAt(text, i-1) == '"' { // "ann b"@example.com
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
			dense = writesWithoutSpaces(r)
		}
		if !unicode.IsLetter(r) || writesWithoutSpaces(r) != dense {
			break
		}
		from -= n
	}
	for from < i && (text[from] == '.' || text[from] == '\'' || text[from] == '-') {
		from++
	}
	return from
}

// writesWithoutSpaces reports whether the script of r has no spaces between words, so that an
// address may follow a word directly.
func writesWithoutSpaces(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// domainEnd returns the end of the domain that begins at i, or 0 if there is none: two labels or
// more, the last of them not a number, or an address in brackets.
func domainEnd(text string, i int) (end int) {
	if byteAt(text, i) == '[' {
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
	dense := first >= utf8.RuneSelf && writesWithoutSpaces(first)
	for label, labels := i, 1; ; labels++ {
		j, letters := label, true
		for j < len(text) && j-i < maxDomain {
			r, n := rune(text[j]), 1
			if r >= utf8.RuneSelf {
				r, n = utf8.DecodeRuneInString(text[j:])
			}
			if r < utf8.RuneSelf && !isLetter(byte(r)) || r >= utf8.RuneSelf && (!unicode.IsLetter(r) || writesWithoutSpaces(r) != dense) {
				if r != '-' && (r >= utf8.RuneSelf || !isDigit(byte(r))) {
					break
				}
				letters = false
			}
			j += n
		}
		size := j - label
		if size == 0 || size > 63 || labels == 1 && size == 2 && text[label+1]|0x20 == 'x' && isDigit(text[label]) {
			return end // the second label belongs to an image for high-resolution screens: logo@2x.png
		}
		if labels > 1 && size > 1 && (letters || strings.HasPrefix(text[label:j], "xn--")) {
			end = j
		}
		if byteAt(text, j) != '.' {
			return end
		}
		label = j + 1
	}
}

// ipv4End returns the end of the IPv4 address that begins at i, or 0.
func ipv4End(text string, i int, named nameHints) int {
	if c := byteAt(text, i-1); isWord(c) || c == '.' || c >= 0x80 && byteAt(text, i-2) >= 0x80 || named&namesVersion != 0 {
		return 0
	}
	end := dottedQuadEnd(text, i)
	if end == 0 {
		return 0
	}
	switch c, next := byteAt(text, end), byteAt(text, end+1); {
	case isWord(c), c == '.' && isWord(next), c == '-' && isLetter(next), c == '-' && next == '_':
		return 0 // part of a version, a host name or an object
	}
	if w, _ := wordBefore(text, i, 3); containsFold(versionWords, w) || w == "v" || w == "V" {
		return 0
	}
	return end
}

// dottedQuadEnd returns the end of four numbers up to 255 with points between them, or 0.
func dottedQuadEnd(text string, i int) int {
	for n := range 4 {
		if n > 0 {
			if byteAt(text, i) != '.' {
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

// findIPv6 checks whether the colon at i is part of an IPv6 address, and returns where the search
// continues.
func (s *Search) findIPv6(text string, i int) int {
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
	for to > from && (text[to-1] == '.' || text[to-1] == ':' && byteAt(text, to-2) != ':') {
		to--
	}
	if !digits || isWord(byteAt(text, from-1)) || isWord(byteAt(text, to)) || byteAt(text, from-1) == ':' {
		return next
	}
	if _, err := netip.ParseAddr(text[from:to]); err != nil {
		return next
	}
	s.addFound(switchboard.DetectIP, from, to)
	return to
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
