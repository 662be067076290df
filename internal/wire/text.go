package wire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// String decodes a JSON string with its quotes. It returns false for anything else, and for a string that is not
// Unicode: one with invalid UTF-8, or with half of a surrogate pair.
func String(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	end, escaped, f := skipString(raw, 0, true)
	if f != 0 || end != len(raw) {
		return "", false
	}
	text := raw[1 : end-1]
	if !escaped {
		return string(text), true
	}
	return string(unescape(make([]byte, 0, len(text)), text)), true
}

// unescape appends text with its escapes decoded. text is the inside of a valid string. Half of a surrogate pair
// becomes U+FFFD.
func unescape(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 >= len(text) {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		c := text[i+1]
		text = text[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(text, 0)
			text = text[min(4, len(text)):]
			if utf16.IsSurrogate(r) {
				low := rune(0)
				if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
					low, _ = hex4(text, 2)
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					text = text[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string, with quotes and as few escapes as possible. Invalid UTF-8 in s becomes
// U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, s...)
	plain := skipPlain(dst, start)
	for plain < len(dst) && ' ' <= dst[plain] && dst[plain] < utf8.RuneSelf && dst[plain] != '"' && dst[plain] != '\\' {
		plain++
	}
	if plain == len(dst) {
		return append(dst, '"')
	}
	dst = dst[:plain]
	from := plain - start
	for i := from; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = utf8.AppendRune(dst, utf8.RuneError)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// IDKey returns a map key for an id. Two spellings of the same id, such as "a" and "\u0061", have the same key; answers
// still use the client's spelling. IDKey returns false if raw cannot be an id, and so for nil.
func IDKey(raw []byte) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	if raw[0] == '"' {
		s, ok := String(raw)
		return `"` + s, ok && len(raw) <= MaxIDBytes
	}
	if end, f := skipScalar(raw, 0, true); f != 0 || end != len(raw) || checkID(raw) != "" {
		return "", false
	}
	return string(raw), true
}
