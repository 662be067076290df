// Package detect finds personal data and credentials in texts: e-mail addresses, phone numbers, numbers of
// payment cards and bank accounts, network addresses, credentials.
//
// It decides what is such a datum, and where it begins and ends. In how many ways a result repeats a datum, and
// what stands in its place, is decided by package redact.
//
// A search reads each text once. What costs more than that (the metadata of all phone numbers, expressions for
// credentials) is done only for what plainly looks like it, and within a bound: what comes after the bound counts
// as found. So a text costs time in proportion to its length, whatever stands in it.
package detect

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Found is a datum in a text.
type Found struct {
	Kind     switchboard.Detector
	From, To int // in bytes

	// Digits are the datum's digits without what stands between them, for cards and phone numbers; and of a
	// phone number also those that it has within its country. The same digits are the same datum.
	Digits []string
}

// What begins at a byte, where its detector is wanted.
const (
	plain = iota
	atDigit
	atSign
	atColon
)

// A Search looks for data in the texts of one result. Use New. It is for one goroutine.
type Search struct {
	want   map[switchboard.Detector]bool
	begins [256]byte
	names  map[string]naming
	found  []Found

	checks int // of phone numbers against the metadata
	read   int // bytes of texts
	tried  int // bytes that expressions have read

	covered map[*rule]int // where in the text a rule has been held against it
}

// New returns a search by these detectors.
func New(detectors []switchboard.Detector) *Search {
	s := &Search{want: map[switchboard.Detector]bool{}, names: map[string]naming{}, covered: map[*rule]int{}}
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

// Find returns what the text holds, in any order; one datum may lie within another. The name is that of the member
// whose value the text is, or "". The result is valid until the next call.
func (s *Search) Find(text, name string) []Found {
	s.found = s.found[:0]
	s.read += len(text)
	named := s.naming(name)
	for i := 0; i < len(text); {
		switch s.begins[text[i]] {
		case atDigit:
			i = s.digits(text, i, named)
		case atSign:
			i = s.email(text, i)
		case atColon:
			i = s.colon(text, i)
		default:
			i++
		}
	}
	if s.want[switchboard.DetectSecret] {
		s.secrets(text, name, named)
	}
	return s.found
}

// Number reports whether a number of JSON is a datum, by how it is spelt.
func (s *Search) Number(spelt, name string) (Found, bool) {
	for i := range len(spelt) {
		if !isDigit(spelt[i]) {
			return Found{}, false // it is a fraction, or negative
		}
	}
	for _, f := range s.Find(spelt, name) {
		if f.From == 0 && f.To == len(spelt) {
			return f, true
		}
	}
	return Found{}, false
}

func (s *Search) add(kind switchboard.Detector, from, to int, digits ...string) {
	s.found = append(s.found, Found{kind, from, to, digits})
}

// digits looks at the run of digits that begins at i, and returns where to go on.
func (s *Search) digits(text string, i int, named naming) int {
	end := i + 1
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	if s.want[switchboard.DetectIP] {
		if to := ipv4(text, i, named); to > 0 {
			s.add(switchboard.DetectIP, i, to)
			return to
		}
	}
	if s.want[switchboard.DetectIBAN] {
		if to := iban(text, i); to > 0 {
			s.add(switchboard.DetectIBAN, i-2, to)
			return to
		}
	}
	if s.want[switchboard.DetectCard] {
		if to, number := card(text, i); to > 0 {
			s.add(switchboard.DetectCard, i, to, number)
			return to
		}
	}
	if s.want[switchboard.DetectPhone] {
		if to := s.phone(text, i, named); to > 0 {
			return to
		}
	}
	return end
}

// A naming is what the name of a member says of its value.
type naming byte

const (
	namesPhone naming = 1 << iota
	namesSecret
	namesVersion
)

// maxNames bounds the names that a search remembers.
const maxNames = 1_000

func (s *Search) naming(name string) naming {
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
	if secretName(words) {
		n |= namesSecret
	}
	if len(s.names) < maxNames {
		s.names[name] = n
	}
	return n
}

// wordsOf takes a name apart: phoneNumber, phone_number and PHONE-NUMBER are the same two words.
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

// maxName is how much of a name is looked at, in bytes.
const maxName = 100

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isWord(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }

// Gap returns how many bytes of spaces, hyphens and points stand at i, as they stand between the groups of a number: one or two, of
// which spaces may be such as do not break.
func Gap(text string, i int) (size int) {
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

// at returns the byte at i, or 0 outside of the text.
func at(text string, i int) byte {
	if i < 0 || i >= len(text) {
		return 0
	}
	return text[i]
}

// maxWord bounds the words that are looked at, in bytes.
const maxWord = 16

// before returns the word that ends before i, and where it begins. At most skip bytes that are no letters may stand
// between.
func before(text string, i, skip int) (string, int) {
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

// isOne reports whether the word is one of these, whatever the case of its letters.
func isOne(words map[string]bool, word string) bool {
	var lower [maxWord]byte
	n := copy(lower[:], word)
	for i, c := range lower[:n] {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c | 0x20
		}
	}
	return words[string(lower[:n])]
}
