package detect

import (
	"strings"

	"github.com/nyaruka/phonenumbers"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// phoneWords name phone numbers: in the name of a member, or before a number in a text.
var phoneWords = map[string]bool{
	"phone": true, "phones": true, "phonenumber": true, "telephone": true, "tel": true, "telefon": true, "telefono": true,
	"teléfono": true, "téléphone": true, "mobile": true, "mobil": true, "cell": true, "cellphone": true, "fax": true,
	"whatsapp": true, "msisdn": true, "handy": true, "hotline": true, "sms": true,
}

// trunkRegions are where numbers without the code of their country begin with a 0, and where that is most written.
var trunkRegions = []string{"DE", "FR", "GB", "NL", "BE", "AT", "CH", "SE", "AU", "NZ", "JP", "KR", "IN", "ZA", "TR", "PL"}

// How many digits a phone number has.
const (
	minPhone   = 6  // behind a word that says that it is one
	minForeign = 8  // with the code of its country
	maxPhone   = 15 // E.164
)

// maxChecks bounds the candidates of a result that are held against the metadata, which takes some 10 µs each.
// The others count as found.
const maxChecks = 500

// A dialled is a row of digits that could be a phone number.
type dialled struct {
	from   int // with its + and parenthesis
	plus   bool
	digits [maxPhone + 3]byte
	n      int
	ends   [8]struct{ at, n int } // of each group: where, and after how many digits
	groups int
	spaced bool // a space, and nothing else, parts the groups
}

// phone looks at the digits that begin at i. It returns where to go on, or 0 where they are no phone number.
func (s *Search) phone(text string, i int, named naming) int {
	var d dialled
	if !canBegin(text, i, named) || !d.read(text, i) {
		return 0
	}
	switch {
	case d.plus:
		return s.foreign(&d, 0)
	case d.n >= minPhone && !d.date() && (named&namesPhone != 0 || labelled(text, d.from)):
		return s.called(text, &d, d.groups)
	case d.n > 10 && d.digits[0] == '0' && d.digits[1] == '0' && d.digits[2] != '0':
		return s.foreign(&d, 2)
	case d.digits[0] == '0' && d.ends[0].n > 1: // the 0 is written with the code of the town
		for groups := 2; groups <= d.groups; groups++ {
			if n := d.ends[groups-1].n; n >= 9 && n <= 12 && s.trunk(&d, groups) {
				return s.called(text, &d, groups)
			}
		}
	default:
		if groups := d.american(text); groups > 0 && s.american(&d, groups) {
			return s.called(text, &d, groups)
		}
	}
	return 0
}

// canBegin reports whether a phone number may begin with the digits at i. It is cheap, and spares reading most numbers.
func canBegin(text string, i int, named naming) bool {
	first := i + 1
	for first < len(text) && first-i < 4 && isDigit(text[first]) {
		first++
	}
	american := first-i == 3 || first-i == 1 && text[i] == '1'
	from := i
	if at(text, from-1) == '(' {
		from--
	}
	return american || text[i] == '0' && isDigit(at(text, i+1)) || named&namesPhone != 0 || at(text, from-1) == '+' || labelled(text, from)
}

// read reads groups of digits from i on, and what stands before them. It reports false for what is a part of
// something else.
func (d *dialled) read(text string, i int) bool {
	d.from, d.spaced = i, true
	if at(text, d.from-1) == '(' {
		d.from--
	}
	if at(text, d.from-1) == '+' {
		d.from--
		d.plus = true
	}
	if c := at(text, d.from-1); isWord(c) || !d.plus && isDigit(at(text, d.from-2)) && strings.IndexByte(".,-/:", c) >= 0 {
		return false
	}
	for j := i; d.groups < len(d.ends); {
		from := j
		for j < len(text) && isDigit(text[j]) && d.n < len(d.digits) {
			d.digits[d.n] = text[j]
			d.n++
			j++
		}
		if d.n > maxPhone+2 || isDigit(at(text, j)) {
			d.n -= j - from
			return d.groups > 0 // the group belongs to something else
		}
		d.ends[d.groups].at, d.ends[d.groups].n = j, d.n
		d.groups++
		size := Gap(text, j)
		for size < 3 && j+size < len(text) && strings.IndexByte(" -./()", text[j+size]) >= 0 {
			size++
		}
		if size == 0 || !isDigit(at(text, j+size)) {
			break
		}
		d.spaced = d.spaced && text[j] == ' '
		j += size
	}
	return true
}

// date reports whether the groups are those of a date.
func (d *dialled) date() bool {
	if d.groups < 3 || d.spaced {
		return false
	}
	a, b, c := d.ends[0].n, d.ends[1].n-d.ends[0].n, d.ends[2].n-d.ends[1].n
	return a == 4 && b == 2 && c == 2 || a <= 2 && b <= 2 && c == 4
}

// american returns how many groups are those of a number of the United States, Canada or the Caribbean: 3, 3 and 4
// digits, perhaps behind a 1; or 0.
func (d *dialled) american(text string) int {
	groups, own := 3, 0
	if d.digits[0] == '1' && d.ends[0].n == 1 {
		groups, own = 4, 1
	}
	if d.groups < groups || d.ends[groups-3].n != 3+own || d.ends[groups-2].n != 6+own || d.ends[groups-1].n != 10+own {
		return 0
	}
	end := d.ends[groups-1].at
	if isWord(at(text, end)) || strings.IndexByte("-./", at(text, end)) >= 0 && isWord(at(text, end+1)) {
		return 0
	}
	return groups
}

// american reports whether the ten digits at the end of so many groups are a number that is given out, or one that
// is kept for examples.
func (s *Search) american(d *dialled, groups int) bool {
	n := d.ends[groups-1].n
	number := string(d.digits[n-10 : n])
	if strings.HasPrefix(number, "555") {
		return true
	}
	if s.checks++; s.checks > maxChecks {
		return true
	}
	parsed, err := phonenumbers.Parse(number, "US")
	return err == nil && phonenumbers.IsValidNumber(parsed)
}

// trunk reports whether so many groups are a number in one of trunkRegions, in groups as that region writes it.
func (s *Search) trunk(d *dialled, groups int) bool {
	if s.checks += len(trunkRegions); s.checks > maxChecks {
		return true
	}
	n := d.ends[groups-1].n
	for _, region := range trunkRegions {
		parsed, err := phonenumbers.Parse(string(d.digits[:n]), region)
		if err != nil || !phonenumbers.IsValidNumberForRegion(parsed, region) {
			continue
		}
		written := strings.NewReplacer("(", "", ")", "").Replace(phonenumbers.Format(parsed, phonenumbers.NATIONAL))
		if own := (dialled{}); own.read(written, 0) && own.groups == groups && own.sizes(groups) == d.sizes(groups) {
			return true
		}
	}
	return false
}

// sizes are after how many digits each of so many groups ends.
func (d *dialled) sizes(groups int) (sizes [8]int) {
	for i := range groups {
		sizes[i] = d.ends[i].n
	}
	return sizes
}

// foreign looks for a number with the code of its country in as many groups as can be, behind the first skip
// digits: one that is given out, else one of the right length.
func (s *Search) foreign(d *dialled, skip int) int {
	possible := 0
	for groups := d.groups; groups > 0; groups-- {
		n := d.ends[groups-1].n - skip
		if n < minForeign || n > maxPhone {
			continue
		}
		if s.checks++; s.checks > maxChecks {
			return s.dialled(d, groups, skip, nil)
		}
		parsed, err := phonenumbers.Parse("+"+string(d.digits[skip:skip+n]), "")
		switch {
		case err != nil || !phonenumbers.IsPossibleNumber(parsed):
		case phonenumbers.IsValidNumber(parsed):
			return s.dialled(d, groups, skip, parsed)
		case possible == 0 && skip == 0:
			possible = groups
		}
	}
	if possible > 0 {
		return s.dialled(d, possible, skip, nil)
	}
	return 0
}

// dialled notes the number in so many groups.
func (s *Search) dialled(d *dialled, groups, skip int, parsed *phonenumbers.PhoneNumber) int {
	n, end := d.ends[groups-1].n, d.ends[groups-1].at
	same := []string{string(d.digits[:n]), string(d.digits[skip:n])}
	if parsed != nil {
		own := phonenumbers.GetNationalSignificantNumber(parsed)
		same = append(same, "0"+own)
		if len(own) > minPhone {
			same = append(same, own)
		}
	}
	s.add(switchboard.DetectPhone, d.from, end, same...)
	return end
}

// called notes the number in so many groups, with its extension.
func (s *Search) called(text string, d *dialled, groups int) int {
	for groups > 1 && d.ends[groups-1].n > maxPhone {
		groups--
	}
	n, end := d.ends[groups-1].n, d.ends[groups-1].at
	s.add(switchboard.DetectPhone, d.from, extension(text, end), string(d.digits[:n]))
	return end
}

// extension returns where the number of an extension ends that follows at i, or i.
func extension(text string, i int) int {
	j := i
	for at(text, j) == ' ' || at(text, j) == ',' {
		j++
	}
	for _, word := range []string{"extension", "ext.", "ext", "x"} {
		if len(text)-j > len(word) && strings.EqualFold(text[j:j+len(word)], word) {
			j += len(word)
			for at(text, j) == ' ' || at(text, j) == ':' {
				j++
			}
			from := j
			for isDigit(at(text, j)) && j-from < 7 {
				j++
			}
			if j > from && j-from < 7 && !isWord(at(text, j)) {
				return j
			}
			return i
		}
	}
	return i
}

// labelled reports whether the number that begins at i stands behind a word that says that it is one, perhaps
// with a word or two between them, as in "the phone number is".
func labelled(text string, i int) bool {
	for skip := range 3 {
		word, from := before(text, i, 6-2*skip)
		if isOne(phoneWords, word) {
			return true
		}
		if !isOne(linking, word) {
			return false
		}
		i = from
	}
	return false
}

var linking = map[string]bool{"number": true, "no": true, "nr": true, "is": true, "at": true, "to": true}
