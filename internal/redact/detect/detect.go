// Package detect finds personal data and credentials in texts: e-mail addresses, phone numbers,
// numbers of payment cards and bank accounts, network addresses, credentials.
//
// It decides where such data begins and ends. Package redact finds repetitions of the data in a
// result, and replaces them.
//
// A search reads each text once. Costlier checks (the numbering plans of phone numbers, expressions
// for credentials) run only on text that plainly looks like data, and within a limit: after the
// limit, such text counts as found. So the time is proportional to the length of every text.
package detect

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Finding is a piece of data in a text.
type Finding struct {
	Kind     switchboard.Detector
	From, To int // in bytes

	// Digits are the digits of a card or phone number without separators. A phone number also has
	// its national digits. Equal digits are the same data.
	Digits []string
}

// How a byte begins data, if its detector is wanted.
const (
	noData = iota
	atDigit
	atSign
	atColon
)

// A Search searches the texts of one result. Use New. It is for one goroutine.
type Search struct {
	want   map[switchboard.Detector]bool
	begins [256]byte
	names  map[string]nameHints
	found  []Finding

	phoneChecks int // of phone numbers against the numbering plans
	textBytes   int // bytes of all texts
	exprBytes   int // bytes that expressions have read

	covered map[*secretRule]int // up to which position of the text each rule was applied
}

// New returns a search with these detectors.
func New(detectors []switchboard.Detector) *Search {
	s := &Search{want: map[switchboard.Detector]bool{}, names: map[string]nameHints{}, covered: map[*secretRule]int{}}
	for _, d := range detectors {
		s.want[d] = true
	}
	if s.want[switchboard.DetectEmail] {
		s.begins['@'], s.begins['%'] = atSign, atSign
	}
	if s.want[switchboard.DetectIP] {
		s.begins[':'] = atColon
	}
	for _, d := range []switchboard.Detector{switchboard.DetectIP, switchboard.DetectIBAN, switchboard.DetectCard, switchboard.DetectPhone} {
		if s.want[d] {
			for c := byte('0'); c <= '9'; c++ {
				s.begins[c] = atDigit
			}
		}
	}
	return s
}

// Find returns the data in the text, in any order. One find may be inside another. name is the
// member that holds the text, or "". The result is valid until the next call.
func (s *Search) Find(text, name string) []Finding {
	s.found = s.found[:0]
	s.textBytes += len(text)
	named := s.hintsOf(name)
	for i := 0; i < len(text); {
		switch s.begins[text[i]] {
		case atDigit:
			i = s.findNumber(text, i, named)
		case atSign:
			i = s.findEmail(text, i)
		case atColon:
			i = s.findIPv6(text, i)
		default:
			i++
		}
	}
	if s.want[switchboard.DetectSecret] {
		s.findSecrets(text, name, named)
	}
	return s.found
}

// Number reports whether a JSON number is data, judged by its digits and the name of its member.
func (s *Search) Number(spelt, name string) (Finding, bool) {
	for i := range len(spelt) {
		if !isDigit(spelt[i]) {
			return Finding{}, false // a fraction, or negative
		}
	}
	for _, f := range s.Find(spelt, name) {
		if f.From == 0 && f.To == len(spelt) {
			return f, true
		}
	}
	return Finding{}, false
}

func (s *Search) addFound(kind switchboard.Detector, from, to int, digits ...string) {
	s.found = append(s.found, Finding{kind, from, to, digits})
}

// findNumber checks the digits that begin at i, and returns where the search continues.
func (s *Search) findNumber(text string, i int, named nameHints) int {
	end := i + 1
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	if s.want[switchboard.DetectIP] {
		if to := ipv4End(text, i, named); to > 0 {
			s.addFound(switchboard.DetectIP, i, to)
			return to
		}
	}
	if s.want[switchboard.DetectIBAN] {
		if to := ibanEnd(text, i); to > 0 {
			s.addFound(switchboard.DetectIBAN, i-2, to)
			return to
		}
	}
	if s.want[switchboard.DetectCard] {
		if to, number := cardNumber(text, i); to > 0 {
			s.addFound(switchboard.DetectCard, i, to, number)
			return to
		}
	}
	if s.want[switchboard.DetectPhone] {
		if to := s.findPhone(text, i, named); to > 0 {
			return to
		}
	}
	return end
}

// A nameHints holds what the name of a member says about its value.
type nameHints byte

const (
	namesPhone nameHints = 1 << iota
	namesSecret
	namesVersion
)

// maxNames limits the names that a search remembers.
const maxNames = 1_000

func (s *Search) hintsOf(name string) nameHints {
	if name == "" {
		return 0
	}
	n, ok := s.names[name]
	if ok {
		return n
	}
	words := wordsOf(name)
	if slices.ContainsFunc(words, func(w string) bool { return phoneWords[w] }) {
		n |= namesPhone
	}
	if slices.ContainsFunc(words, func(w string) bool { return versionWords[w] }) {
		n |= namesVersion
	}
	if namesCredential(words) {
		n |= namesSecret
	}
	if len(s.names) < maxNames {
		s.names[name] = n
	}
	return n
}

// wordsOf splits a name into words: phoneNumber, phone_number and PHONE-NUMBER have the same two.
func wordsOf(name string) (words []string) {
	var word []byte
	end := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	for i := range min(len(name), maxName) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			if i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z') {
				end()
			}
			word = append(word, c|0x20)
		case 'a' <= c && c <= 'z' || c >= 0x80 || isDigit(c):
			word = append(word, c)
		default:
			end()
		}
	}
	end()
	return words
}

// maxName limits how much of a name is read, in bytes.
const maxName = 100

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isWord(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }

// SeparatorLength returns the length of the separator at i: one or two spaces, hyphens or points, as between
// the groups of a number. Non-breaking and thin spaces count too.
func SeparatorLength(text string, i int) (size int) {
	for range 2 {
		rest := text[min(i+size, len(text)):]
		switch {
		case rest == "":
		case rest[0] == ' ' || rest[0] == '-' || rest[0] == '.':
			size++
			continue
		case strings.HasPrefix(rest, "\u00a0"):
			size += len("\u00a0")
			continue
		case strings.HasPrefix(rest, "\u2009"), strings.HasPrefix(rest, "\u202f"), strings.HasPrefix(rest, "\u2011"):
			size += len("\u2009")
			continue
		}
		break
	}
	return size
}

// byteAt returns the byte at i, or 0 outside the text.
func byteAt(text string, i int) byte {
	if i < 0 || i >= len(text) {
		return 0
	}
	return text[i]
}

// maxWord limits the words that are compared, in bytes.
const maxWord = 16

// wordBefore returns the word that ends before i, and its start. At most skip bytes that are not
// letters may stand between the word and i.
func wordBefore(text string, i, skip int) (string, int) {
	for skip > 0 && i > 0 && !isLetter(text[i-1]) && text[i-1] < 0x80 {
		i--
		skip--
	}
	from := i
	for from > 0 && i-from < maxWord && (isLetter(text[from-1]) || text[from-1] >= 0x80) {
		from--
	}
	return text[from:i], from
}

// containsFold reports whether words contains word, ignoring case.
func containsFold(words map[string]bool, word string) bool {
	var lower [maxWord]byte
	n := copy(lower[:], word)
	for i, c := range lower[:n] {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	return words[string(lower[:n])]
}
