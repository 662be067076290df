package scan

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Spell returns a text for people: each character that is not visible as itself is written out, as in \u{200b}, line feeds and tabs too. A byte that belongs to no
// character has the form \x9b. Joiners and variation selectors of emoji, and of scripts that need them, stay.
//
// Each text of a server, an agent or a client that people see goes through Spell or SpellLines, or through package shown.
func Spell(text string) string { return spell(text, false) }

// SpellLines is like Spell, but line feeds and tabs stay.
func SpellLines(text string) string { return spell(text, true) }

func spell(text string, lines bool) string {
	at := 0
	for at < len(text) && (text[at] >= ' ' && text[at] < 0x7f || lines && isLineByte(text[at])) {
		at++
	}
	if at == len(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:at])
	before := lastRune(text[:at])
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		next := at + size
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[at]), 16))
			r = '}'
		case lines && r < utf8.RuneSelf && isLineByte(byte(r)):
			b.WriteRune(r)
		case isUnseen(r) && (!IsHidden(r) || r == '\n' || r == '\t' || !staysVisible(r, before, text[next:])):
			b.WriteString(`\u{` + strconv.FormatInt(int64(r), 16) + `}`)
			r = '}' // what follows belongs to the sign that people see
		default:
			b.WriteString(text[at:next])
		}
		before, at = r, next
	}
	return b.String()
}

func isLineByte(c byte) bool { return c == '\n' || c == '\t' }

// isUnseen reports whether a character is not visible as itself. Spaces are, also those that are wider or narrower than the usual one.
func isUnseen(r rune) bool {
	if r >= ' ' && r < 0x7f || r == utf8.RuneError {
		return false
	}
	return IsHidden(r) || !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) || r == 0x2800 || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
