package suspect

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/summit-switchboard/switchboard/internal/scan"
)

// A textPlace is a way from the definition to one of its texts: names of members, and numbers in lists.
type textPlace []string

// begin returns the place with dots, or its beginning of limit bytes or a little more: a name may have half a MiB.
func (p textPlace) begin() string {
	const limit = maxWhere
	var b strings.Builder
	for i, name := range p {
		if b.Len() > limit {
			break
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name[:min(len(name), limit+utf8.UTFMax)])
	}
	return b.String()
}

// A placeKind says what a text is in its definition.
type placeKind uint8

const (
	otherValue   placeKind = iota
	givenValue             // an argument that the definition gives: default, enum, const, examples
	memberName             // the name of a member
	propertyName           // the name of a property of a schema
)

// kind returns the kind of the text at the place. isName says that it is the name of a member.
func (p textPlace) kind(isName bool) placeKind {
	switch {
	case isName && p.isProperty():
		return propertyName
	case isName:
		return memberName
	}
	for _, name := range slices.Backward(p) {
		if name != "" && name[0] >= '0' && name[0] <= '9' { // in a list
			continue
		}
		switch name {
		case "default", "enum", "const", "examples":
			return givenValue
		}
		break
	}
	return otherValue
}

// isProperty reports whether the last name of the place is the name of a property of a schema.
func (p textPlace) isProperty() bool { return len(p) > 1 && p[len(p)-2] == "properties" }

// textLooks says what one pass over a text finds out about it.
type textLooks uint8

const (
	unusual textLooks = 1 << iota // a byte that isPlain does not take
	escaped                       // a backslash
	spaced                        // a space or a line feed
)

var looksOfByte = func() (all [256]textLooks) {
	for i := range all {
		switch c := byte(i); {
		case c == '\\':
			all[i] = escaped
		case c == ' ' || c == '\n':
			all[i] = spaced
		case !isPlain(string(rune(c))) || c >= utf8.RuneSelf:
			all[i] = unusual
		}
	}
	return all
}()

func glance(text string) (looks textLooks) {
	for i := range len(text) {
		looks |= looksOfByte[text[i]]
	}
	return looks
}

// isPlain reports whether a text is of printable ASCII characters, tabs and line feeds.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// normalize returns a text as a reader takes it: without hidden characters, in the form NFKC, and with Latin letters in the place of those that look like them.
func normalize(text string) string {
	if isPlain(text) {
		return text
	}
	text, _ = scan.Clean(text)
	return strings.Map(asLatin, norm.NFKC.String(text))
}

// asLatin returns the Latin letter that r looks like, or r.
func asLatin(r rune) rune {
	if r < utf8.RuneSelf {
		return r
	}
	if l, ok := lookAlikes[r]; ok {
		return l
	}
	return r
}

// lookAlikes are letters of other alphabets, and signs, that look like a Latin letter in most fonts. NFKC has replaced wide, small and mathematical letters.
var lookAlikes = func() map[rune]rune {
	all := map[rune]rune{}
	for latin, others := range map[rune]string{
		'a': "аɑα", 'b': "Ьƅ", 'c': "сϲᴄ", 'd': "ԁ", 'e': "еҽ", 'g': "ɡց", 'h': "һհ", 'i': "іıɩι", 'j': "јϳ", 'k': "κк", 'l': "ӏǀ", 'm': "м",
		'n': "ոп", 'o': "оοօჿ", 'p': "рρ", 'q': "ԛզ", 'r': "гᴦ", 's': "ѕꜱ", 'u': "υսᴜ", 'v': "νѵᴠ", 'w': "ԝѡᴡ", 'x': "хχ", 'y': "уγү", 'z': "ᴢ",
		'A': "АΑᎪ", 'B': "ВΒᏴ", 'C': "СϹᏟ", 'D': "Ꭰ", 'E': "ЕΕᎬ", 'F': "Ϝ", 'G': "Ԍ", 'H': "НΗᎻ", 'I': "ІΙ", 'J': "ЈᎫ", 'K': "КΚᏦ", 'L': "Ꮮ", 'M': "МΜᎷ",
		'N': "Ν", 'O': "ОΟՕ", 'P': "РΡᏢ", 'Q': "Ԛ", 'S': "ЅՏᏚ", 'T': "ТΤᎢ", 'V': "ѴᏙ", 'W': "ԜᎳ", 'X': "ХΧ", 'Y': "ҮΥ", 'Z': "ΖᏃ",
		'-': "‐‑‒–—−", '_': "ˍ",
	} {
		for _, r := range others {
			all[r] = latin
		}
	}
	return all
}()

// skeleton returns the form of a name that it shares with each name that looks like it: after normalize, characters of ASCII that look alike are one. Capital
// letters stay, because readFile and readfile are two honest names. A zero beside a small letter stands for a small one.
func skeleton(name string) string {
	name = alikeInASCII.Replace(normalize(name))
	if strings.IndexByte(name, '0') < 0 {
		return name
	}
	form := []byte(name)
	for i, c := range form {
		switch {
		case c != '0':
		case i > 0 && byteKinds[form[i-1]] == smallByte, i+1 < len(form) && byteKinds[form[i+1]] == smallByte:
			form[i] = 'o'
		default:
			form[i] = 'O'
		}
	}
	return string(form)
}

var alikeInASCII = strings.NewReplacer("1", "l", "I", "l", "|", "l", "rn", "m", "vv", "w")

// hasMixedWord reports whether a word of the text has Latin letters and, between them, Cyrillic ones or others that look like Latin ones.
func hasMixedWord(text string) (word string, mixed bool) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin, alike, other := false, false, false
		for _, r := range word {
			_, is := lookAlikes[r]
			latin, alike = latin || r < utf8.RuneSelf || unicode.Is(unicode.Latin, r), alike || is && !unicode.Is(unicode.Latin, r)
			other = other || r >= utf8.RuneSelf && !is && !unicode.Is(unicode.Latin, r)
		}
		if latin && alike && !other && utf8.RuneCountInString(word) > 2 {
			return word, true
		}
	}
	return "", false
}
