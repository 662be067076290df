package redact

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/redact/detect"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// appendNormal appends the normal form of a number: equal numbers have the same form in every
// spelling (1.50, 15e-1). ok is false if spelt is not a number. The time is proportional to the
// length of the spelling.
func appendNormal(b []byte, spelt string) (normal []byte, ok bool) {
	i, sign := 0, false
	if strings.HasPrefix(spelt, "-") {
		i, sign = 1, true
	}
	begin := len(b)
	b = append(b, '-')
	point, seen := -1, false
	for ; i < len(spelt) && strings.IndexByte("eE", spelt[i]) < 0; i++ {
		switch c := spelt[i]; {
		case isDigit(c):
			seen = true
			if c != '0' || len(b) > begin+1 { // ignore leading zeros
				b = append(b, c)
			}
			if point >= 0 {
				point++
			}
		case c == '.' && point < 0:
			point = 0
		case c != ',':
			return b[:begin], false
		}
	}
	exponent := 0
	if i < len(spelt) {
		n, err := strconv.ParseInt(spelt[i+1:], 10, 32)
		if err != nil {
			return b[:begin], false
		}
		exponent = int(n)
	}
	exponent -= max(point, 0)
	for len(b) > begin+1 && b[len(b)-1] == '0' {
		b = b[:len(b)-1]
		exponent++
	}
	if len(b) == begin+1 { // zero, with either sign
		return append(b, '0'), seen
	}
	if !sign {
		b[begin] = '+'
	}
	return strconv.AppendInt(append(b, 'e'), int64(exponent), 10), seen
}

// A masker replaces values in the rest of a result.
type masker struct {
	*redactedValues
	finder    *textFinder
	names     *textFinder // names of members with values that cannot be searched
	maxDigits int         // the most digits of a redacted phone number or card

	before any    // the structured content, decoded; nil if there is none
	after  []byte // the same content, redacted
}

// recordContent records the structured content before and after redaction, so that texts which
// repeat it can be written again.
func (m *masker) recordContent(was, is []byte) {
	if before, ok := wire.Field(was, "structuredContent"); ok {
		m.before = decodeJSON(before)
	}
	m.after, _ = wire.Field(is, "structuredContent")
}

// buildSearch builds the search. Call it when all values are known.
func (m *masker) buildSearch() {
	m.finder, m.names = newFinder(m.texts), newFinder(m.silent)
	for digits := range m.digits {
		m.maxDigits = max(m.maxDigits, len(digits))
	}
}

// newWalker returns a walker that replaces the values.
func (m *masker) newWalker() *walker {
	w := &walker{
		text:   func(text, _ string) string { return m.maskText(text) },
		number: func(raw []byte, _ string) bool { return m.hasNumber(string(raw)) },
	}
	if len(m.silent) > 0 {
		w.silent, w.mentions = m.silent, m.mentionsSilent
	}
	if m.before != nil {
		w.mirror = func(raw []byte) ([]byte, bool) {
			if !m.repeatsContent(raw) {
				return nil, false
			}
			return wire.AppendString(nil, string(w.walkValue(m.after, "", false, 0))), true
		}
	}
	return w
}

// decodeJSON decodes JSON for comparison. Numbers keep their spelling.
func decodeJSON(raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil || d.More() {
		return nil
	}
	return value
}

// repeatsContent reports whether raw is a text that repeats the structured content as JSON.
func (m *masker) repeatsContent(raw []byte) bool {
	text, ok := wire.String(raw)
	return ok && strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && equalJSON(decodeJSON([]byte(text)), m.before)
}

// mentionsSilent reports whether the text mentions a member that held true, false or null.
func (m *masker) mentionsSilent(text string) bool {
	_, nameless := m.silent[""]
	return nameless || m.names.matchesAny(text)
}

// maskText replaces the values in a text, in clear and behind escapes, up to the limit of levels.
func (m *masker) maskText(text string) string {
	if _, ok := m.texts[text]; ok {
		return redacted
	}
	spans, ok := rangesAtAllLevels(text, m.appendMatches)
	if !ok {
		return redacted // its content cannot be determined
	}
	return replaceRanges(text, spans)
}

// rangesAtAllLevels calls find for the text, and for the text with its escapes resolved once, twice and so on. It returns what find has appended as positions
// in the text itself. ok is false if there are more levels than are resolved.
func rangesAtAllLevels(text string, find func(spans []textRange, text string) []textRange) (spans []textRange, ok bool) {
	spans = find(nil, text)
	for levels := []string{text}; ; {
		deeper, ok := unescapeOnce(levels[len(levels)-1])
		if !ok {
			return spans, true
		}
		if len(levels) > maxEscapes {
			return nil, false
		}
		found := find(nil, deeper)
		for i := len(levels) - 1; i >= 0 && len(found) > 0; i-- {
			found = mapToEscaped(levels[i], found)
		}
		spans = append(spans, found...)
		levels = append(levels, deeper)
	}
}

// replaceRanges replaces parts of a text. The parts may overlap.
func replaceRanges(text string, spans []textRange) string {
	if len(spans) == 0 {
		return text
	}
	slices.SortFunc(spans, func(a, b textRange) int { return a.from - b.from })
	var b strings.Builder
	b.Grow(len(text))
	for i, last := 0, 0; i < len(spans); {
		b.WriteString(text[last:spans[i].from])
		b.WriteString(redacted)
		for last = spans[i].to; i < len(spans) && spans[i].from < last; i++ {
			last = max(last, spans[i].to)
		}
		if i == len(spans) {
			b.WriteString(text[last:])
		}
	}
	return b.String()
}

// appendMatches appends the positions of values that occur in clear in a text.
func (m *masker) appendMatches(spans []textRange, text string) []textRange {
	spans = m.finder.appendMatches(spans, text)
	if len(m.numbers) > 0 {
		spans = m.findNumbers(spans, text)
	}
	if len(m.digits) > 0 {
		spans = m.findDigits(spans, text)
	}
	return spans
}

// longNumber is the number of characters from which a number is replaced inside a word too:
// SSN123456789.
const longNumber = 8

// findNumbers appends the positions of numbers that equal a redacted one. Short numbers count only
// outside words.
func (m *masker) findNumbers(spans []textRange, text string) []textRange {
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) {
			continue
		}
		from, to := i, endOfNumber(text, i)
		i = to - 1
		if from > 0 && text[from-1] == '-' && m.isNumber(text[from-1:to]) {
			from--
		}
		glued := from > 0 && isWord(text[from-1]) || to < len(text) && isWord(text[to])
		if glued && to-from < longNumber || !m.isNumber(text[from:to]) {
			continue
		}
		spans = append(spans, textRange{from, to})
	}
	return spans
}

// maxDigitGroups limits the groups of digits in one number.
const maxDigitGroups = 10

// findDigits appends the positions of the digits of redacted phone numbers and cards, with any
// separators.
func (m *masker) findDigits(spans []textRange, text string) []textRange {
	var digits [32]byte
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) || i > 0 && isWord(text[i-1]) {
			continue
		}
		n := 0
		for j, parts := i, 0; parts < maxDigitGroups && n < m.maxDigits; parts++ {
			for j < len(text) && isDigit(text[j]) && n < len(digits) {
				digits[n] = text[j]
				n++
				j++
			}
			if m.digits[string(digits[:n])] && (j == len(text) || !isWord(text[j])) {
				spans = append(spans, textRange{i, j})
			}
			sep := j + detect.SeparatorLength(text, j)
			for sep < len(text) && sep-j < 3 && strings.IndexByte(" -./()", text[sep]) >= 0 {
				sep++
			}
			if sep == j || sep == len(text) || !isDigit(text[sep]) {
				break
			}
			j = sep
		}
	}
	return spans
}

// endOfNumber returns the end of the number that begins with digits at i. It may have separators of
// thousands, a fraction and an exponent.
func endOfNumber(text string, i int) int {
	digits := func(i int) int {
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		return i
	}
	i = digits(i)
	for i < len(text) && text[i] == ',' && digits(i+1) == i+4 {
		i += 4
	}
	if i < len(text) && text[i] == '.' {
		if end := digits(i + 1); end > i+1 {
			i = end
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		at := i + 1
		if at < len(text) && (text[at] == '+' || text[at] == '-') {
			at++
		}
		if end := digits(at); end > at {
			i = end
		}
	}
	return i
}

// isNumber reports whether spelt equals a redacted number.
func (m *masker) isNumber(spelt string) bool {
	var buf [64]byte
	normal, ok := appendNormal(buf[:0], spelt)
	return ok && m.numbers[string(normal)]
}

// hasNumber reports whether a JSON number equals a redacted number, or the digits of a redacted
// text.
func (m *masker) hasNumber(spelt string) bool {
	_, ok := m.texts[spelt]
	return ok || m.isNumber(spelt) || m.digits[spelt]
}

// equalJSON compares two JSON values. 1 and 1.0 are equal; the order of members does not count.
func equalJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		o, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, o, equalJSON)
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, equalJSON)
	case json.Number:
		n, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, ok := appendNormal(nil, string(a))
		y, same := appendNormal(nil, string(n))
		return a == n || ok && same && bytes.Equal(x, y)
	}
	return a == b
}
