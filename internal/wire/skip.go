package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth limits how deeply objects and arrays may be nested. The envelope itself is the first level.
const MaxDepth = 64

// MaxListDepth is the depth limit for the result of a server. It is higher than MaxDepth so that one item of a list
// that is too deep costs only that item. See Message.Deep.
const MaxListDepth = 1024

// A flaw says why bytes are not JSON; 0 means that they are.
type flaw uint8

const (
	flawEnd flaw = iota + 1
	flawValue
	flawName
	flawColon
	flawComma
	flawControl
	flawEscape
	flawSurrogate
	flawDepth
	flawText
)

// String returns the reason, for the sender of the bytes.
func (f flaw) String() string {
	return [...]string{
		flawEnd:       "the text ends too early",
		flawValue:     "a value should stand here",
		flawName:      "a quoted name should stand here",
		flawColon:     "a colon should stand here",
		flawComma:     "a comma, or the end of the object or array, should stand here",
		flawControl:   "a control character stands unescaped in a string",
		flawEscape:    "no such escape",
		flawSurrogate: "half of a surrogate pair stands alone",
		flawDepth:     "objects and arrays stand more than 64 deep in each other",
		flawText:      notUTF8,
	}[f]
}

// skipSpace returns the offset of the first byte that is not space, from i on.
func skipSpace(data []byte, i int) int {
	for i < len(data) && data[i] <= ' ' && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x80 * eachByte
)

// specialBytes sets the high bit of each byte of w that is not plain: quotes, backslashes, control characters and bytes
// beyond ASCII. Its result is correct up to the lowest set bit; above it, a borrow can set false bits.
func specialBytes(w uint64) uint64 { return specialBits(w) & highBits }

// specialBits is special with further bits set. One subtraction finds both quotes and control characters: flipping a bit maps
// the quote to the code of the space, next to the control characters.
func specialBits(w uint64) uint64 {
	return (w ^ ('"'^' ')*eachByte - (' '+1)*eachByte) | (w ^ '\\'*eachByte - eachByte) | w
}

// skipPlain returns the offset of the first byte that special marks, from i on. It may stop earlier, where less than
// one word of data is left.
func skipPlain(data []byte, i int) int {
	for long := i + longTextBytes; i+16 <= len(data); i += 16 {
		if i >= long {
			return skipLong(data, i)
		}
		two := data[i : i+16]
		a, b := specialBits(binary.LittleEndian.Uint64(two)), specialBits(binary.LittleEndian.Uint64(two[8:]))
		if (a|b)&highBits == 0 {
			continue
		}
		if a &= highBits; a != 0 {
			return i + bits.TrailingZeros64(a)>>3
		}
		return i + 8 + bits.TrailingZeros64(b&highBits)>>3
	}
	if i+8 <= len(data) {
		if m := specialBytes(binary.LittleEndian.Uint64(data[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	return i
}

// After longTextBytes plain bytes, the text is searched in sections, each twice as long as the previous one. So the bytes
// searched in vain are never more than the plain bytes before them.
const (
	longTextBytes   = 128
	maxSectionBytes = 8 << 10 // fits into the first-level cache
)

// skipLong is skipPlain for long text. Package bytes finds quotes and backslashes many bytes at a time, so only the
// other special bytes need a loop here.
func skipLong(data []byte, i int) int {
	for size := longTextBytes; i < len(data); size = min(2*size, maxSectionBytes) {
		text := data[i:min(i+size, len(data))]
		n := len(text)
		for _, c := range [...]byte{'"', '\\'} {
			if at := bytes.IndexByte(text, c); at >= 0 {
				text = text[:at]
			}
		}
		at := skipPrinted(text)
		if i += at; at < n {
			break
		}
	}
	return i
}

// skipPrinted returns the offset of the first control character or byte beyond ASCII.
func skipPrinted(text []byte) int {
	i := 0
	for ; i+32 <= len(text); i += 32 {
		four := text[i : i+32]
		a, b := binary.LittleEndian.Uint64(four), binary.LittleEndian.Uint64(four[8:])
		c, d := binary.LittleEndian.Uint64(four[16:]), binary.LittleEndian.Uint64(four[24:])
		const spaces = ' ' * eachByte
		if (a|(a-spaces)|b|(b-spaces)|c|(c-spaces)|d|(d-spaces))&highBits != 0 {
			break
		}
	}
	for i < len(text) && ' ' <= text[i] && text[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// skipString returns the offset after the string that opens at i, and whether it has an escape. If there is a flaw, it
// returns the offset of the flaw. If pairs is set, each escaped surrogate must be half of a pair.
func skipString(data []byte, i int, pairs bool) (end int, escaped bool, f flaw) {
	i++
	for {
		if i+8 <= len(data) {
			if m := specialBytes(binary.LittleEndian.Uint64(data[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
			} else {
				i = skipPlain(data, i+8)
			}
		}
		if i >= len(data) {
			return len(data), escaped, flawEnd
		}
		switch c := data[i]; {
		case c == '"':
			return i + 1, escaped, 0
		case c == '\\':
			escaped = true
			if i+1 < len(data) && shortEscape[data[i+1]] {
				i += 2
			} else if i, f = skipEscape(data, i, pairs); f != 0 {
				return i, escaped, f
			}
		case c < ' ':
			return i, escaped, flawControl
		case c < utf8.RuneSelf:
			i++
		default:
			if i, f = skipRunes(data, i); f != 0 {
				return i, escaped, f
			}
		}
	}
}

// skipRunes returns the offset after the characters beyond ASCII at i.
func skipRunes(data []byte, i int) (int, flaw) {
	for i < len(data) && data[i] >= utf8.RuneSelf {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i, flawText
		}
		i += n
	}
	return i, 0
}

// shortEscape marks the characters that form an escape together with a backslash.
var shortEscape = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// skipEscape returns the offset after the escape at i.
func skipEscape(data []byte, i int, pairs bool) (int, flaw) {
	if i+1 >= len(data) {
		return len(data), flawEnd
	}
	if c := data[i+1]; c != 'u' {
		if shortEscape[c] {
			return i + 2, 0
		}
		return i, flawEscape
	}
	u, ok := hex4(data, i+2)
	switch {
	case !ok:
		return i, flawEscape
	case !pairs || u < 0xD800 || u > 0xDFFF:
		return i + 6, 0
	case u >= 0xDC00 || i+7 >= len(data) || data[i+6] != '\\' || data[i+7] != 'u':
		return i, flawSurrogate
	}
	if low, ok := hex4(data, i+8); !ok || low < 0xDC00 || low > 0xDFFF {
		return i, flawSurrogate
	}
	return i + 12, 0
}

// hex4 parses the four hexadecimal digits at i.
func hex4(data []byte, i int) (rune, bool) {
	if i+4 > len(data) {
		return 0, false
	}
	var r rune
	for _, c := range data[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// skipNumber returns the offset after the number that starts at i.
func skipNumber(data []byte, i int) (int, flaw) {
	if data[i] == '-' {
		i++
	}
	switch {
	case i >= len(data):
		return i, flawEnd
	case data[i] == '0':
		i++
	default:
		var f flaw
		if i, f = skipDigits(data, i); f != 0 {
			return i, f
		}
	}
	if i < len(data) && data[i] == '.' {
		var f flaw
		if i, f = skipDigits(data, i+1); f != 0 {
			return i, f
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		return skipDigits(data, i)
	}
	return i, 0
}

// skipDigits returns the offset after the digits at i. There must be at least one.
func skipDigits(data []byte, i int) (int, flaw) {
	from := i
	for i < len(data) && '0' <= data[i] && data[i] <= '9' {
		i++
	}
	switch {
	case i > from:
		return i, 0
	case i >= len(data):
		return i, flawEnd
	}
	return i, flawValue
}

// skipScalar returns the offset after the string, number, true, false or null that starts at i. i is within data.
func skipScalar(data []byte, i int, pairs bool) (int, flaw) {
	var word string
	switch data[i] {
	case '"':
		end, _, f := skipString(data, i, pairs)
		return end, f
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return skipNumber(data, i)
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	default:
		return i, flawValue
	}
	if len(data)-i < len(word) || string(data[i:i+len(word)]) != word {
		return i, flawValue
	}
	return i + len(word), 0
}

// skipName returns the offset of the value of the member with a name that starts at i.
func skipName(data []byte, i int, pairs bool) (value, nameEnd int, escaped bool, f flaw) {
	if i >= len(data) {
		return i, i, false, flawEnd
	}
	if data[i] != '"' {
		return i, i, false, flawName
	}
	nameEnd, escaped, f = skipString(data, i, pairs)
	if f != 0 {
		return nameEnd, nameEnd, escaped, f
	}
	i = skipSpace(data, nameEnd)
	if i >= len(data) {
		return i, nameEnd, escaped, flawEnd
	}
	if data[i] != ':' {
		return i, nameEnd, escaped, flawColon
	}
	return skipSpace(data, i+1), nameEnd, escaped, 0
}

// skipValue returns the offset after the value that starts at i. The value is nested depth levels deep, and nothing in
// it may be nested deeper than most levels. skipValue is fast because it checks the grammar and the depth only, not
// names or surrogates.
func skipValue(data []byte, i, depth, most int) (int, flaw) {
	var (
		objects uint64   // one bit for each of the up to 64 innermost open levels, the innermost lowest; 1 means an object
		outer   []uint64 // the levels around them, 64 in each element
		open    int
		f       flaw
	)
	for {
		if i = skipSpace(data, i); i >= len(data) {
			return i, flawEnd
		}
		c := data[i]
		if c == '{' || c == '[' {
			if depth+open >= most {
				return i, flawDepth
			}
			if open > 0 && open%64 == 0 {
				outer = append(outer, objects)
			}
			open++
			objects <<= 1
			if i = skipSpace(data, i+1); i >= len(data) {
				return i, flawEnd
			}
			if c == '{' {
				objects |= 1
				if data[i] != '}' {
					if i, _, _, f = skipName(data, i, false); f != 0 {
						return i, f
					}
					continue
				}
			} else if data[i] != ']' {
				continue
			}
		} else if i, f = skipScalar(data, i, false); f != 0 {
			return i, f
		} else if open == 0 {
			return i, 0
		}

		// After a value, or inside an empty object or array.
		for {
			if i = skipSpace(data, i); i >= len(data) {
				return i, flawEnd
			}
			closer := byte(']')
			if objects&1 == 1 {
				closer = '}'
			}
			if data[i] == closer {
				i++
				open--
				objects >>= 1
				if open == 0 {
					return i, 0
				}
				if open%64 == 0 {
					objects, outer = outer[len(outer)-1], outer[:len(outer)-1]
				}
				continue
			}
			if data[i] != ',' {
				return i, flawComma
			}
			i++
			if objects&1 == 1 {
				if i, _, _, f = skipName(data, skipSpace(data, i), false); f != 0 {
					return i, f
				}
			}
			break
		}
	}
}
