package suspect

import (
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxDepth is the depth below which a value is read as one text. The catalog takes no deeper definitions.
const maxDepth = wire.MaxDepth

// A textWalk yields the texts of a JSON value in one pass: the names of members, and the values that are strings. The value is valid JSON; anything else is
// read as far as it goes.
type textWalk struct {
	json string
	at   int
	// text gets each text, and the same text in its own spelling, without quotes. isName says that it is the name of a member, the last one of the place.
	text func(at textPlace, spelling string, isName bool)
}

// eachText calls f with each text in the value, in its own spelling.
func eachText(value string, f func(at textPlace, spelling string, isName bool)) {
	w := textWalk{json: value, text: f}
	w.value(make(textPlace, 0, 16))
}

// value reads the value at w.at.
func (w *textWalk) value(at textPlace) {
	w.skipSpace()
	if w.at == len(w.json) {
		return
	}
	c := w.json[w.at]
	switch {
	case (c == '{' || c == '[') && len(at) > maxDepth:
		from := w.at
		w.skipNested()
		w.text(at, w.json[from:w.at], false)
	case c == '{':
		w.object(at)
	case c == '[':
		w.list(at)
	case c == '"':
		w.text(at, w.spelling(), false)
	default:
		for w.at < len(w.json) && !strings.ContainsRune(",]}", rune(w.json[w.at])) {
			w.at++
		}
	}
}

func (w *textWalk) object(at textPlace) {
	for w.at++; ; w.at++ {
		w.skipSpace()
		if w.at == len(w.json) || w.json[w.at] != '"' {
			break
		}
		spelling := w.spelling()
		name := spelling
		if strings.IndexByte(spelling, '\\') >= 0 {
			name = unquote(spelling)
		}
		below := append(at, name)
		w.text(below, spelling, true)
		if w.skipSpace(); w.at < len(w.json) && w.json[w.at] == ':' {
			w.at++
		}
		w.value(below)
		if w.skipSpace(); w.at == len(w.json) || w.json[w.at] != ',' {
			break
		}
	}
	if w.at < len(w.json) && w.json[w.at] == '}' {
		w.at++
	}
}

func (w *textWalk) list(at textPlace) {
	w.at++
	for i := 0; ; i++ {
		w.skipSpace()
		if w.at == len(w.json) || w.json[w.at] == ']' {
			break
		}
		w.value(append(at, strconv.Itoa(i)))
		if w.skipSpace(); w.at == len(w.json) || w.json[w.at] != ',' {
			break
		}
		w.at++
	}
	if w.at < len(w.json) && w.json[w.at] == ']' {
		w.at++
	}
}

func (w *textWalk) skipSpace() {
	for w.at < len(w.json) && isSpace(w.json[w.at]) {
		w.at++
	}
}

// spelling reads the string at w.at, and returns it without its quotes.
func (w *textWalk) spelling() string {
	w.at++
	from := w.at
	for {
		i := strings.IndexByte(w.json[w.at:], '"')
		if i < 0 {
			w.at = len(w.json)
			return w.json[from:]
		}
		w.at += i + 1
		escapes := 0
		for before := w.at - 2; before >= from && w.json[before] == '\\'; before-- {
			escapes++
		}
		if escapes%2 == 0 {
			return w.json[from : w.at-1]
		}
	}
}

// skipNested passes over the object or list at w.at.
func (w *textWalk) skipNested() {
	for depth := 0; w.at < len(w.json); {
		switch w.json[w.at] {
		case '"':
			w.spelling()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		w.at++
		if depth == 0 {
			return
		}
	}
}

// unquote returns the text of a string in its own spelling. A spelling that is no valid string is its own text, so that the scan reads it too.
func unquote(spelling string) string {
	if strings.IndexByte(spelling, '\\') < 0 {
		return spelling
	}
	text, ok := wire.String([]byte(`"` + spelling + `"`))
	if !ok {
		return spelling
	}
	return text
}
