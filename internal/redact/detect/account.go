package detect

// cardNumber returns the end and the digits of a payment card number that begins at i; 0 if there is
// none. The digits stand together, or in the groups of an embossed card, with the same separator
// between all groups: see Gap.
func cardNumber(text string, i int) (end int, number string) {
	before := byteAt(text, i-1)
	if isWord(before) && before != '_' || (before == '.' || before == ',') && isDigit(byteAt(text, i-2)) {
		return 0, ""
	}
	var digits [19]byte
	n, groups, sep := 0, 0, ""
	for j := i; ; {
		from := j
		for j < len(text) && isDigit(text[j]) && n < len(digits) {
			digits[n] = text[j]
			n++
			j++
		}
		groups++
		size := j - from
		if size == 0 || isDigit(byteAt(text, j)) || groups == 1 && size != 4 && size < 12 || groups > 1 && size < 2 {
			break
		}
		c, parts := byteAt(text, j), text[j:j+SeparatorLength(text, j)]
		next := j + len(parts)
		more := parts != "" && isDigit(byteAt(text, next)) && (sep == "" || parts == sep) && groups < 5 && size <= 6
		goesOn := isWord(c) && c != '_' || (c == '.' || c == ',') && isDigit(byteAt(text, j+1))
		if !goesOn && validGrouping(n, groups) && validPrefix(digits[:n]) && luhnValid(digits[:n]) {
			end, number = j, string(digits[:n])
		}
		if !more {
			break
		}
		sep, j = parts, next
	}
	if sep == "-" && before == '-' && isWord(byteAt(text, i-2)) {
		return 0, "" // part of a longer row of groups
	}
	return end, number
}

// validGrouping reports whether a card has this number of digits in this number of groups.
func validGrouping(digits, groups int) bool {
	switch groups {
	case 1:
		return digits >= 14 && digits <= 19
	case 3:
		return digits == 14 || digits == 15
	case 4:
		return digits == 16
	}
	return groups == 5 && digits == 19
}

// validPrefix reports whether cards with this beginning and length are issued. Cards of 13 digits,
// and Maestro cards of less than 16, are not issued any more.
func validPrefix(d []byte) bool {
	prefix := func(n int) (v int) {
		for _, c := range d[:n] {
			v = v*10 + int(c-'0')
		}
		return v
	}
	two, three, four, n := prefix(2), prefix(3), prefix(4), len(d)
	long := n >= 16
	switch {
	case d[0] == '4':
		return n == 16 || n == 19
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720:
		return n == 16
	case four >= 2200 && four <= 2204:
		return long
	case two == 34, two == 37:
		return n == 15
	case four >= 3528 && four <= 3589:
		return long
	case three >= 300 && three <= 305, two == 36, two == 38, two == 39:
		return n == 14 || long
	case two == 50, two >= 56 && two <= 69, two == 81, two == 82, four == 9792:
		return long
	}
	return false
}

// luhnValid checks the last digit.
func luhnValid(d []byte) bool {
	sum := 0
	for i, c := range d {
		v := int(c - '0')
		if (len(d)-i)%2 == 0 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
	}
	return sum%10 == 0
}

// ibanLengths holds the length of the account numbers of each country that has IBANs.
var ibanLengths = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28,
	"CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
	"FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28,
	"IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
	"LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28,
	"NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24,
	"SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}

// maxIBAN is the longest length.
const maxIBAN = 33

// ibanEnd returns the end of the account number with check digits at i, after the letters of its
// country; 0 if there is none. A Gap may stand between any two characters.
func ibanEnd(text string, i int) int {
	if i < 2 || !isLetter(text[i-2]) || !isLetter(text[i-1]) || isWord(byteAt(text, i-3)) && text[i-3] != '_' || !isDigit(byteAt(text, i+1)) {
		return 0
	}
	length := ibanLengths[string([]byte{text[i-2] &^ 0x20, text[i-1] &^ 0x20})]
	if length == 0 {
		return 0
	}
	var chars [maxIBAN]byte
	j, n := i-2, 0
	for n < length {
		if size := SeparatorLength(text, j); n > 3 && isWord(byteAt(text, j+size)) {
			j += size
		}
		c := byteAt(text, j)
		switch {
		case isDigit(c):
			chars[n] = c
		case isLetter(c):
			chars[n] = c &^ 0x20
		default:
			return 0
		}
		n++
		j++
	}
	if isWord(byteAt(text, j)) && byteAt(text, j) != '_' || !checkDigitsValid(chars[:n]) {
		return 0
	}
	return j
}

// checkDigitsValid checks the check digits. The country and the check digits are moved to the end
// and letters are read as numbers from 10; then the remainder of the division by 97 must be 1.
func checkDigitsValid(chars []byte) bool {
	rest := 0
	for i := range chars {
		c := chars[(i+4)%len(chars)]
		if isDigit(c) {
			rest = (rest*10 + int(c-'0')) % 97
		} else {
			rest = (rest*100 + int(c-'A') + 10) % 97
		}
	}
	return rest == 1
}
