package detect

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// phoneWords announce phone numbers, as the name of a member or before a number in a text.
var phoneWords = map[string]bool{
	"phone": true, "phones": true, "phonenumber": true, "telephone": true, "tel": true, "telefon": true, "telefono": true,
	"teléfono": true, "téléphone": true, "mobile": true, "mobil": true, "cell": true, "cellphone": true, "fax": true,
	"whatsapp": true, "msisdn": true, "handy": true, "hotline": true, "sms": true,
}

// trunkCodes are the country codes of regions with a leading 0 in national numbers, which are often
// written without the country code: DE, FR, GB, NL, BE, AT, CH, SE, AU, NZ, JP, KR, IN, ZA, TR and PL.
var trunkCodes = []string{"49", "33", "44", "31", "32", "43", "41", "46", "61", "64", "81", "82", "91", "27", "90", "48"}

// The number of digits of a phone number.
const (
	minPhone   = 6  // after a word that announces it
	minForeign = 8  // with its country code
	maxPhone   = 15 // E.164
)

// maxChecks limits the candidates of a result that are checked against the numbering plans, which
// takes 0.2 to 0.5 µs each. The others count as found.
const maxChecks = 20_000

// A digitRow is a row of digits that could be a phone number.
type digitRow struct {
	from   int // including + and parenthesis
	plus   bool
	digits [maxPhone + 3]byte
	n      int
	ends   [8]struct{ at, n int } // of each group: its end, and the digits up to there
	groups int
	spaced bool // spaces alone separate the groups
}

// findPhone checks the digits that begin at i. It returns where the search continues, or 0 if they
// are not a phone number.
func (s *Search) findPhone(text string, i int, named nameHints) int {
	var d digitRow
	if !canBegin(text, i, named) || !d.readGroups(text, i) {
		return 0
	}
	switch {
	case d.plus:
		return s.findInternational(&d, 0)
	case d.n >= minPhone && !d.isDate() && (named&namesPhone != 0 || isAnnounced(text, d.from)):
		return s.addPhone(text, &d, d.groups)
	case d.n > 10 && d.digits[0] == '0' && d.digits[1] == '0' && d.digits[2] != '0':
		return s.findInternational(&d, 2)
	case d.digits[0] == '0' && d.ends[0].n > 1: // the 0 is written together with the area code
		for groups := 2; groups <= d.groups; groups++ {
			if n := d.ends[groups-1].n; n >= 9 && n <= 12 && s.isNational(&d, groups) {
				return s.addPhone(text, &d, groups)
			}
		}
	default:
		if groups := d.northAmericanGroups(text); groups > 0 && s.isNorthAmerican(&d, groups) {
			return s.addPhone(text, &d, groups)
		}
	}
	return 0
}

// canBegin reports whether a phone number may begin with the digits at i. It is cheap, and excludes
// most numbers.
func canBegin(text string, i int, named nameHints) bool {
	first := i + 1
	for first < len(text) && first-i < 4 && isDigit(text[first]) {
		first++
	}
	american := first-i == 3 || first-i == 1 && text[i] == '1'
	from := i
	if byteAt(text, from-1) == '(' {
		from--
	}
	return american || text[i] == '0' && isDigit(byteAt(text, i+1)) || named&namesPhone != 0 || byteAt(text, from-1) == '+' || isAnnounced(text, from)
}

// readGroups reads groups of digits from i on, and the characters before them. It returns false for
// digits that are part of something else.
func (d *digitRow) readGroups(text string, i int) bool {
	d.from, d.spaced = i, true
	if byteAt(text, d.from-1) == '(' {
		d.from--
	}
	if byteAt(text, d.from-1) == '+' {
		d.from--
		d.plus = true
	}
	if c := byteAt(text, d.from-1); isWord(c) || !d.plus && isDigit(byteAt(text, d.from-2)) && strings.IndexByte(".,-/:", c) >= 0 {
		return false
	}
	for j := i; d.groups < len(d.ends); {
		from := j
		for j < len(text) && isDigit(text[j]) && d.n < len(d.digits) {
			d.digits[d.n] = text[j]
			d.n++
			j++
		}
		if d.n > maxPhone+2 || isDigit(byteAt(text, j)) {
			d.n -= j - from
			return d.groups > 0 // the group belongs to something else
		}
		d.ends[d.groups].at, d.ends[d.groups].n = j, d.n
		d.groups++
		size := SeparatorLength(text, j)
		for size < 3 && j+size < len(text) && strings.IndexByte(" -./()", text[j+size]) >= 0 {
			size++
		}
		if size == 0 || !isDigit(byteAt(text, j+size)) {
			break
		}
		d.spaced = d.spaced && text[j] == ' '
		j += size
	}
	return true
}

// isDate reports whether the groups form a date.
func (d *digitRow) isDate() bool {
	if d.groups < 3 || d.spaced {
		return false
	}
	a, b, c := d.ends[0].n, d.ends[1].n-d.ends[0].n, d.ends[2].n-d.ends[1].n
	return a == 4 && b == 2 && c == 2 || a <= 2 && b <= 2 && c == 4
}

// northAmericanGroups returns the number of groups that form a number of the United States, Canada
// or the Caribbean: 3, 3 and 4 digits, perhaps after a 1; or 0.
func (d *digitRow) northAmericanGroups(text string) int {
	groups, own := 3, 0
	if d.digits[0] == '1' && d.ends[0].n == 1 {
		groups, own = 4, 1
	}
	if d.groups < groups || d.ends[groups-3].n != 3+own || d.ends[groups-2].n != 6+own || d.ends[groups-1].n != 10+own {
		return 0
	}
	end := d.ends[groups-1].at
	if isWord(byteAt(text, end)) || strings.IndexByte("-./", byteAt(text, end)) >= 0 && isWord(byteAt(text, end+1)) {
		return 0
	}
	return groups
}

// isNorthAmerican reports whether the ten digits at the end of the groups are an assigned number,
// or one that is reserved for examples.
func (s *Search) isNorthAmerican(d *digitRow, groups int) bool {
	n := d.ends[groups-1].n
	number := string(d.digits[n-10 : n])
	if strings.HasPrefix(number, "555") {
		return true
	}
	if s.phoneChecks++; s.phoneChecks > maxChecks {
		return true
	}
	read, ok := readPhone(number, "1")
	return ok && read.isValid()
}

// isNational reports whether the groups form a national number with one of trunkCodes, grouped as its
// main region writes it.
func (s *Search) isNational(d *digitRow, groups int) bool {
	if s.phoneChecks += len(trunkCodes); s.phoneChecks > maxChecks {
		return true
	}
	digits, marks := string(d.digits[:d.ends[groups-1].n]), d.groupMarks(groups)
	for _, code := range trunkCodes {
		if n, ok := readPhone(digits, code); ok && n.code == code && n.groups() == marks {
			return true
		}
	}
	return false
}

// groupMarks returns a letter for each group: A if it ends with the first digit of the row, B if it
// ends with the second, and so on.
func (d *digitRow) groupMarks(groups int) string {
	var marks [len(d.ends)]byte
	for i := range groups {
		marks[i] = 'A' - 1 + byte(d.ends[i].n)
	}
	return string(marks[:groups])
}

// findInternational looks for a number with a country code in as many groups as possible, after the
// first skip digits. It prefers an assigned number, and accepts one of a possible length.
func (s *Search) findInternational(d *digitRow, skip int) int {
	possible := 0
	for groups := d.groups; groups > 0; groups-- {
		n := d.ends[groups-1].n - skip
		if n < minForeign || n > maxPhone {
			continue
		}
		if s.phoneChecks++; s.phoneChecks > maxChecks {
			return s.addInternational(d, groups, skip, "")
		}
		read, ok := readPhone(string(d.digits[skip:skip+n]), "")
		switch {
		case !ok || !read.isPossible():
		case read.isValid():
			return s.addInternational(d, groups, skip, read.national)
		case possible == 0 && skip == 0:
			possible = groups
		}
	}
	if possible > 0 {
		return s.addInternational(d, possible, skip, "")
	}
	return 0
}

// addInternational records the number in these groups. national is the number without its country
// code, or "" if that is not known.
func (s *Search) addInternational(d *digitRow, groups, skip int, national string) int {
	n, end := d.ends[groups-1].n, d.ends[groups-1].at
	same := []string{string(d.digits[:n]), string(d.digits[skip:n])}
	if national != "" {
		same = append(same, "0"+national)
		if len(national) > minPhone {
			same = append(same, national)
		}
	}
	s.addFound(switchboard.DetectPhone, d.from, end, same...)
	return end
}

// addPhone records the number in these groups, with its extension.
func (s *Search) addPhone(text string, d *digitRow, groups int) int {
	for groups > 1 && d.ends[groups-1].n > maxPhone {
		groups--
	}
	n, end := d.ends[groups-1].n, d.ends[groups-1].at
	s.addFound(switchboard.DetectPhone, d.from, extensionEnd(text, end), string(d.digits[:n]))
	return end
}

// extensionEnd returns the end of an extension number that follows at i, or i.
func extensionEnd(text string, i int) int {
	j := i
	for byteAt(text, j) == ' ' || byteAt(text, j) == ',' {
		j++
	}
	for _, word := range []string{"extension", "ext.", "ext", "x"} {
		if len(text)-j > len(word) && strings.EqualFold(text[j:j+len(word)], word) {
			j += len(word)
			for byteAt(text, j) == ' ' || byteAt(text, j) == ':' {
				j++
			}
			from := j
			for isDigit(byteAt(text, j)) && j-from < 7 {
				j++
			}
			if j > from && j-from < 7 && !isWord(byteAt(text, j)) {
				return j
			}
			return i
		}
	}
	return i
}

// isAnnounced reports whether a word that announces a phone number precedes i, perhaps with a word
// or two between, as in "the phone number is".
func isAnnounced(text string, i int) bool {
	for skip := range 3 {
		word, from := wordBefore(text, i, 6-2*skip)
		if containsFold(phoneWords, word) {
			return true
		}
		if !containsFold(linkingWords, word) {
			return false
		}
		i = from
	}
	return false
}

var linkingWords = map[string]bool{"number": true, "no": true, "nr": true, "is": true, "at": true, "to": true}
