package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Bounds of the values that are looked for. Beyond them, texts are replaced whole.
const (
	maxValues = 1_000
	maxBytes  = 32 << 10 // of all texts together
)

// shortText is how many characters a text has that is looked for as a word alone: in the middle of words, it
// is most likely something else.
const shortText = 3

// values are what was redacted.
type values struct {
	texts   map[string]bool
	numbers map[string][]*big.Rat // by their significant digits
	names   map[string]bool       // of members that held true, false or null, which cannot be looked for
	bytes   int
}

// many reports whether there is more than texts are searched for.
func (v *values) many() bool { return v.bytes > maxBytes || len(v.texts)+len(v.numbers) > maxValues }

// add notes the texts and numbers within raw, which is strict JSON and stood under the name.
func (v *values) add(name string, raw []byte) {
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '{':
		for name, sub := range wire.Members(raw) {
			v.add(name, sub)
		}
	case '[':
		for sub := range wire.Elements(raw) {
			v.add(name, sub)
		}
	case '"':
		text, ok := wire.String(raw)
		if ok && text != "" && !v.texts[text] {
			v.texts[text] = true
			v.bytes += len(text)
		}
	case 't', 'f', 'n':
		v.names[name] = true
	default:
		if n := numberOf(string(raw)); n != nil {
			digits := significant(string(raw))
			v.numbers[digits] = append(v.numbers[digits], n)
		} else {
			v.texts[string(raw)] = true
			v.bytes += len(raw)
		}
	}
}

// maxNumber bounds the characters of a number that is reckoned with exactly: 1e999999 is megabytes.
const maxNumber = 40

func numberOf(spelt string) *big.Rat {
	spelt = strings.ReplaceAll(spelt, ",", "")
	if i := strings.IndexAny(spelt, "eE"); len(spelt) > maxNumber || i >= 0 && len(spelt)-i > 5 {
		return nil
	}
	n, ok := new(big.Rat).SetString(spelt)
	if !ok {
		return nil
	}
	return n
}

// A masker replaces values in the rest of a result.
type masker struct {
	*values
	plain   *strings.Replacer // of the texts as they are; nil where they are too many
	escaped *regexp.Regexp    // of the texts with escapes
	words   *regexp.Regexp    // of short texts; nil where there are none

	before any    // the structured content, decoded; nil where there is none
	after  []byte // the same, redacted
}

func (v *values) masker(before, after []byte) *masker {
	m := &masker{values: v, after: after}
	if before != nil {
		m.before = decode(before)
	}
	if len(v.texts) == 0 || v.many() {
		return m
	}
	// The longest first, so that none hides behind a part of its own.
	var plain, escaped, words []string
	for _, text := range slices.SortedFunc(maps.Keys(v.texts), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
		if utf8.RuneCountInString(text) < shortText {
			words = append(words, spellings(text))
			continue
		}
		plain, escaped = append(plain, text, "[redacted]"), append(escaped, spellings(text))
	}
	m.plain = strings.NewReplacer(plain...)
	if escaped != nil {
		m.escaped = regexp.MustCompile(strings.Join(escaped, "|")) // of characters that are quoted
	}
	if words != nil {
		m.words = regexp.MustCompile(`\b(?:` + strings.Join(words, "|") + `)\b`)
	}
	return m
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

// spellings is an expression for the text as it can stand within JSON, at any depth of JSON within texts of
// JSON: with any character escaped, and each escape again and again.
func spellings(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteString("(?:")
		switch r {
		case '"', '\\', '/':
			b.WriteString(`\\*` + regexp.QuoteMeta(string(r)))
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
		if i := strings.IndexRune("\n\t\r\b\f", r); i >= 0 {
			b.WriteString(`|\\+` + string("ntrbf"[i]))
		}
		b.WriteByte('|')
		if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
			b.WriteString(unicode4(hi) + unicode4(lo))
		} else {
			b.WriteString(unicode4(r))
		}
		b.WriteByte(')')
	}
	return b.String()
}

// unicode4 is an expression for \u and four digits, in either case.
func unicode4(r rune) string {
	return fmt.Sprintf(`\\+u(?i:%04x)`, r)
}

// What objects hold that is the protocol's word, or binary: it is left alone.
var (
	topOpaque     = map[string]bool{"isError": true, "resultType": true, "ttlMs": true, "cacheScope": true}
	contentOpaque = map[string]bool{"type": true, "mimeType": true, "data": true, "blob": true, "role": true}
)

// result masks a result.
func (m *masker) result(raw []byte) []byte {
	return m.members(raw, false, func(name string, value []byte) []byte {
		switch {
		case topOpaque[name]:
			return value
		case name == "content" || name == "contents" || name == "messages":
			return m.blocks(value)
		}
		return m.value(value, false, 0)
	})
}

// blocks masks blocks of content, or one of them.
func (m *masker) blocks(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '[' {
		return m.elements(raw, m.blocks)
	}
	return m.members(raw, false, func(name string, value []byte) []byte {
		switch {
		case contentOpaque[name]:
			return value
		case name == "resource" || name == "content":
			return m.blocks(value)
		case name == "text" && m.mirrors(value):
			return wire.AppendString(nil, string(m.value(m.after, false, 0)))
		}
		return m.value(value, true, 0)
	})
}

// mirrors reports whether raw is a text that repeats the structured content as JSON.
func (m *masker) mirrors(raw []byte) bool {
	text, ok := wire.String(raw)
	return ok && m.before != nil && strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") && equal(decode([]byte(text)), m.before)
}

// value masks every text, key and number within raw, which is JSON. inText says that it is or was part of a
// text. nested is how many texts of JSON are around it.
func (m *masker) value(raw []byte, inText bool, nested int) []byte {
	if len(raw) == 0 {
		return raw
	}
	switch raw[0] {
	case '{':
		return m.members(raw, true, func(name string, value []byte) []byte {
			if inText && m.names[name] && strings.IndexByte("tfn", value[0]) >= 0 {
				return []byte(Redacted)
			}
			return m.value(value, inText, nested)
		})
	case '[':
		return m.elements(raw, func(value []byte) []byte { return m.value(value, inText, nested) })
	case '"':
		text, ok := wire.String(raw)
		if !ok {
			return []byte(Redacted) // no reader is to see what this one cannot read
		}
		if now := m.text(text, inText, nested); now != text {
			return wire.AppendString(nil, now)
		}
	case 't', 'f', 'n':
	default:
		if m.isNumber(string(raw)) {
			return []byte(Redacted)
		}
	}
	return raw
}

// members replaces the value of each member with the value that each returns. names masks the names too: names
// that the protocol gives are never masked. Without a change it returns raw.
func (m *masker) members(raw []byte, names bool, each func(name string, value []byte) []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return m.value(raw, true, 0)
	}
	b, changed := []byte{'{'}, false
	for name, was := range wire.Members(raw) {
		now, key := each(name, was), name
		if names && (m.texts[name] || !m.many()) {
			key = m.mask(name)
		}
		changed = changed || key != name || !same(now, was)
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(wire.AppendString(b, key), ':'), now...)
	}
	if !changed {
		return raw
	}
	return append(b, '}')
}

func (m *masker) elements(raw []byte, each func([]byte) []byte) []byte {
	b, changed := []byte{'['}, false
	for was := range wire.Elements(raw) {
		now := each(was)
		changed = changed || !same(now, was)
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, now...)
	}
	if !changed {
		return raw
	}
	return append(b, ']')
}

// maxNested bounds the texts of JSON within each other that are read as JSON. Deeper ones are searched.
const maxNested = 8

// text masks a text. A text of JSON stays JSON.
func (m *masker) text(text string, inText bool, nested int) string {
	if inText && nested < maxNested && strings.ContainsAny(text[:min(len(text), 64)], "{[") {
		if raw := []byte(text); json.Valid(raw) {
			return string(m.value(raw, true, nested+1))
		}
	}
	if inText && m.namesIn(text) {
		return "[redacted]"
	}
	return m.mask(text)
}

// namesIn reports whether the text mentions a member that held true, false or null.
func (m *masker) namesIn(text string) bool {
	for name := range m.names {
		if name == "" || strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// mask replaces the values in a text that is no JSON.
func (m *masker) mask(text string) string {
	switch {
	case m.texts[text]:
		return "[redacted]"
	case m.many():
		return "[redacted]" // it takes too long to tell
	}
	if m.escaped != nil && strings.IndexByte(text, '\\') >= 0 {
		text = m.escaped.ReplaceAllLiteralString(text, "[redacted]")
	}
	text = m.replace(text)
	// What is escaped in yet another way is not taken apart: the text is withheld.
	for deeper, plain := text, ""; strings.IndexByte(deeper, '\\') >= 0; deeper = plain {
		if plain = unescaped(deeper); m.replace(plain) != plain {
			return "[redacted]"
		}
	}
	return text
}

// replace replaces the values in a text as they are.
func (m *masker) replace(text string) string {
	if m.plain != nil {
		text = m.plain.Replace(text)
	}
	if m.words != nil {
		text = m.words.ReplaceAllLiteralString(text, "[redacted]")
	}
	if len(m.numbers) > 0 {
		text = m.maskNumbers(text)
	}
	return text
}

// unescaped resolves escapes as JSON has them, once. It is shorter than the text.
func unescaped(text string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '\\')
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		text = text[i+1:]
		if text == "" {
			return b.String()
		}
		if c := strings.IndexByte("ntrbf", text[0]); c >= 0 {
			b.WriteByte("\n\t\r\b\f"[c])
			text = text[1:]
			continue
		}
		if r, n := unicodeEscape(text); n > 0 {
			if hi, m := unicodeEscape(strings.TrimPrefix(text[n:], "\\")); m > 0 && utf16.IsSurrogate(r) && strings.HasPrefix(text[n:], "\\") {
				r, n = utf16.DecodeRune(r, hi), n+1+m
			}
			b.WriteRune(r)
			text = text[n:]
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
}

// unicodeEscape reads uXXXX and returns how long it is; 0 where it stands not there.
func unicodeEscape(text string) (r rune, n int) {
	if len(text) < 5 || text[0] != 'u' {
		return 0, 0
	}
	code, err := strconv.ParseUint(text[1:5], 16, 32)
	if err != nil {
		return 0, 0
	}
	return rune(code), 5
}

// maskNumbers replaces the numbers in a text that equal a redacted one, and are no part of a word.
func (m *masker) maskNumbers(text string) string {
	var b strings.Builder
	last := 0
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) {
			continue
		}
		from, to := i, endOfNumber(text, i)
		i = to - 1
		if from > 0 && text[from-1] == '-' && m.isNumber(text[from-1:to]) {
			from--
		}
		if wordBefore(text, from) || wordAt(text, to) || !m.isNumber(text[from:to]) {
			continue
		}
		b.WriteString(text[last:from])
		b.WriteString("[redacted]")
		last = to
	}
	if last == 0 {
		return text
	}
	return b.String() + text[last:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func wordAt(text string, i int) bool {
	return i < len(text) && (text[i] == '_' || 'a' <= text[i]|0x20 && text[i]|0x20 <= 'z' || isDigit(text[i]))
}

// wordBefore reports whether a letter stands right before i, and no escape such as \n.
func wordBefore(text string, i int) bool {
	if i == 0 || !wordAt(text, i-1) {
		return false
	}
	return i < 2 || text[i-2] != '\\' || strings.IndexByte("nrtbf", text[i-1]) < 0
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

// significant are the digits of a number without sign, point and exponent, and without zeros at either end:
// equal numbers have the same.
func significant(spelt string) string {
	if i := strings.IndexAny(spelt, "eE"); i >= 0 {
		spelt = spelt[:i]
	}
	spelt = strings.TrimPrefix(spelt, "-")
	if strings.ContainsAny(spelt, ".,") {
		spelt = strings.NewReplacer(".", "", ",", "").Replace(spelt)
	}
	return strings.Trim(spelt, "0")
}

// isNumber reports whether a number that was redacted is spelt so.
func (m *masker) isNumber(spelt string) bool {
	same := m.numbers[significant(spelt)]
	if same == nil {
		return false
	}
	n := numberOf(spelt)
	return n != nil && slices.ContainsFunc(same, func(o *big.Rat) bool { return o.Cmp(n) == 0 })
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
		x, y := numberOf(string(a)), numberOf(string(n))
		return a == n || x != nil && y != nil && x.Cmp(y) == 0
	}
	return a == b
}
