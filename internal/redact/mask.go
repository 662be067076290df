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

// appendNormal appends the normal form of a number: equal numbers have the same, however they are spelt (1.50, 15e-1).
// ok is false for what is none. It takes time in proportion to the length of its spelling.
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
			if c != '0' || len(b) > begin+1 { // a zero before the others says nothing
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
	if len(b) == begin+1 { // it is zero, of either sign
		return append(b, '0'), seen
	}
	if !sign {
		b[begin] = '+'
	}
	return strconv.AppendInt(append(b, 'e'), int64(exponent), 10), seen
}

// A masker replaces values in the rest of a result.
type masker struct {
	*values
	finder *finder
	names  *finder // of the members that cannot be looked for
	most   int     // digits of a phone number or card

	before any    // the structured content, decoded; nil where there is none
	after  []byte // the same, redacted
}

// mirror notes the structured content of a result as it was and as it is, so that texts that are the same can be
// written again.
func (m *masker) mirror(was, is []byte) {
	if before, ok := wire.Field(was, "structuredContent"); ok {
		m.before = decode(before)
	}
	m.after, _ = wire.Field(is, "structuredContent")
}

// prepare is called when all values are known.
func (m *masker) prepare() {
	m.finder, m.names = newFinder(m.texts), newFinder(m.silent)
	for digits := range m.digits {
		m.most = max(m.most, len(digits))
	}
}

// walker replaces the values.
func (m *masker) walker() *walker {
	w := &walker{
		text:   func(text, _ string) string { return m.mask(text) },
		number: func(raw []byte, _ string) bool { return m.hasNumber(string(raw)) },
	}
	if len(m.silent) > 0 {
		w.silent, w.says = m.silent, m.namesIn
	}
	if m.before != nil {
		w.mirror = func(raw []byte) ([]byte, bool) {
			if !m.mirrors(raw) {
				return nil, false
			}
			return wire.AppendString(nil, string(w.value(m.after, "", false, 0))), true
		}
	}
	return w
}

// decode reads JSON for comparison; numbers stay as they are spelt.
func decode(raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil || d.More() {
		return nil
	}
	return value
}

// mirrors reports whether raw is a text that repeats the structured content as JSON.
func (m *masker) mirrors(raw []byte) bool {
	text, ok := wire.String(raw)
	return ok && strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && equal(decode([]byte(text)), m.before)
}

// namesIn reports whether the text mentions a member that held true, false or null.
func (m *masker) namesIn(text string) bool {
	_, nameless := m.silent[""]
	return nameless || m.names.has(text)
}

// mask replaces the values in a text: as they are, and as they are spelt with escapes, at any depth.
func (m *masker) mask(text string) string {
	if _, ok := m.texts[text]; ok {
		return redacted
	}
	spans := m.find(nil, text)
	for levels := []string{text}; ; {
		deeper, ok := unescaped(levels[len(levels)-1])
		if !ok {
			return replace(text, spans)
		}
		if len(levels) > maxEscapes {
			return redacted // nobody can tell
		}
		found := m.find(nil, deeper)
		for i := len(levels) - 1; i >= 0 && len(found) > 0; i-- {
			found = before(levels[i], found)
		}
		spans = append(spans, found...)
		levels = append(levels, deeper)
	}
}

// replace replaces parts of a text, which may overlap.
func replace(text string, spans []span) string {
	if len(spans) == 0 {
		return text
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
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

// find appends where the values stand in a text, as they are.
func (m *masker) find(spans []span, text string) []span {
	spans = m.finder.find(spans, text)
	if len(m.numbers) > 0 {
		spans = m.findNumbers(spans, text)
	}
	if len(m.digits) > 0 {
		spans = m.findDigits(spans, text)
	}
	return spans
}

// tellingNumber is how many characters a number has that is replaced in the middle of a word too: SSN123456789.
const tellingNumber = 8

// findNumbers appends where numbers stand in a text that equal a redacted one. Short ones are no part of a word.
func (m *masker) findNumbers(spans []span, text string) []span {
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
		if glued && to-from < tellingNumber || !m.isNumber(text[from:to]) {
			continue
		}
		spans = append(spans, span{from, to})
	}
	return spans
}

// maxParts bounds the groups into which somebody parts a number.
const maxParts = 10

// findDigits appends where the digits of redacted phone numbers and cards stand, whatever parts them.
func (m *masker) findDigits(spans []span, text string) []span {
	var digits [32]byte
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) || i > 0 && isWord(text[i-1]) {
			continue
		}
		n := 0
		for j, parts := i, 0; parts < maxParts && n < m.most; parts++ {
			for j < len(text) && isDigit(text[j]) && n < len(digits) {
				digits[n] = text[j]
				n++
				j++
			}
			if m.digits[string(digits[:n])] && (j == len(text) || !isWord(text[j])) {
				spans = append(spans, span{i, j})
			}
			sep := j + detect.Gap(text, j)
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

// endOfNumber returns where a number ends that begins with digits at i: perhaps with its thousands parted, a
// fraction and an exponent.
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

// isNumber reports whether a number that was redacted is spelt so.
func (m *masker) isNumber(spelt string) bool {
	var buf [64]byte
	normal, ok := appendNormal(buf[:0], spelt)
	return ok && m.numbers[string(normal)]
}

// hasNumber reports whether a number of JSON is spelt so that was redacted, as a number or as a text.
func (m *masker) hasNumber(spelt string) bool {
	_, ok := m.texts[spelt]
	return ok || m.isNumber(spelt) || m.digits[spelt]
}

// equal compares two values of JSON. 1 and 1.0 are equal; the order of members does not count.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		o, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, o, equal)
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, equal)
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
