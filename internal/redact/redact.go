// Package redact removes data from results, notifications and errors of servers before a client
// gets them.
//
// The caller names fields to remove, and detectors (package detect) that find data anywhere. The
// package removes these, and then the same data in the rest of the result: many servers repeat
// their structured content as text. Package policy decides which fields and detectors apply.
package redact

import (
	"github.com/summit-switchboard/switchboard/internal/redact/detect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Redacted replaces a field, as JSON. Without the quotes it replaces a part of a text.
const Redacted = `"[redacted]"`

const redacted = "[redacted]"

// withheld replaces a result that cannot be searched.
const withheld = `{"content":[{"type":"text","text":"[redacted]"}],"isError":true}`

// Result removes from the result the fields that the JSON pointers (RFC 6901) name, the data that
// the detectors find, and every repetition of both:
//
//   - A text that is the structured content as JSON is replaced by the redacted content.
//   - In every other text, key and value, each redacted text and number is replaced, even if it is
//     spelt with JSON escapes, at any depth of JSON within texts. Phone numbers and cards are
//     replaced with any separators between their digits.
//   - A whole text is replaced if it has more levels of escapes than are resolved, or if it
//     mentions a member that held true, false or null.
//
// Binary data (data, blob) and other encodings such as base64 stay as they are. If nothing is
// redacted, the result is returned unchanged. A pointer to a missing field does nothing.
//
// If the search panics, which would be a bug here, the whole result is withheld.
func Result(r switchboard.Result, fields []string, detectors []switchboard.Detector) (left switchboard.Result) {
	defer func() {
		if p := recover(); p != nil {
			left = switchboard.Result{JSON: []byte(withheld), Moved: r.Moved, Repeated: r.Repeated}
		}
	}()
	text, v := r.JSON, newValues()
	for _, p := range fields {
		text = v.removeField(text, p)
	}
	m := &masker{redactedValues: v}
	if !sameMemory(text, r.JSON) {
		m.recordContent(r.JSON, text)
	}
	if len(detectors) > 0 {
		m.runDetectors(detectors, func(w *walker) { w.walkResult(text) })
	}
	if sameMemory(text, r.JSON) && v.isEmpty() {
		return r
	}
	m.buildSearch()
	text = m.newWalker().walkResult(text)
	if sameMemory(text, r.JSON) {
		return r
	}
	if r.Release != nil {
		r.Release() // the rest has been copied
	}
	return switchboard.Result{JSON: text, Moved: r.Moved, Repeated: r.Repeated}
}

// Object removes the data that the detectors find from the params of a notification or question, or
// from the object of an error. If they find nothing, it returns raw itself. If the search panics,
// all texts are withheld.
func Object(raw []byte, detectors []switchboard.Detector) (left []byte) {
	defer func() {
		if p := recover(); p != nil {
			w := &walker{text: func(string, string) string { return redacted }, number: func([]byte, string) bool { return false }}
			left = w.walkObject(raw)
		}
	}()
	m := &masker{redactedValues: newValues()}
	m.runDetectors(detectors, func(w *walker) { w.walkObject(raw) })
	if m.isEmpty() {
		return raw
	}
	m.buildSearch()
	return m.newWalker().walkObject(raw)
}

// Text removes the data that the detectors find from a text. If the search panics, the text is
// withheld.
func Text(text string, detectors []switchboard.Detector) (left string) {
	defer func() {
		if p := recover(); p != nil {
			left = redacted
		}
	}()
	m := &masker{redactedValues: newValues()}
	m.runDetectors(detectors, func(w *walker) { w.text(text, "") })
	if m.isEmpty() {
		return text
	}
	m.buildSearch()
	return m.maskText(text)
}

// redactedValues holds the redacted values.
type redactedValues struct {
	texts   map[string]bool // true: replaced as a whole word only
	numbers map[string]bool // in their normal form
	digits  map[string]bool // of phone numbers and cards
	silent  map[string]bool // names of members that held true, false or null, which cannot be searched
}

func newValues() *redactedValues {
	return &redactedValues{texts: map[string]bool{}, numbers: map[string]bool{}, digits: map[string]bool{}, silent: map[string]bool{}}
}

func (v *redactedValues) isEmpty() bool {
	return len(v.texts)+len(v.numbers)+len(v.digits)+len(v.silent) == 0
}

// runDetectors runs the detectors on everything that visit reaches, and records what they find.
func (v *redactedValues) runDetectors(detectors []switchboard.Detector, visit func(*walker)) {
	s := detect.New(detectors)
	note := func(text string, f detect.Finding) {
		v.addText(text[f.From:f.To], f.Kind == switchboard.DetectSecret && f.To-f.From < shortSecret)
		for _, digits := range f.Digits {
			v.digits[digits] = true
			v.addNumber(digits)
		}
	}
	visit(&walker{
		text: func(text, name string) string {
			if text == redacted {
				return text
			}
			deeper := text
			for depth := 0; ; depth++ {
				for _, f := range s.Find(deeper, name) {
					note(deeper, f)
				}
				var ok bool
				if deeper, ok = unescapeOnce(deeper); !ok {
					return text
				}
				if depth == maxEscapes {
					v.addText(text, false) // its content cannot be determined
					return text
				}
			}
		},
		number: func(raw []byte, name string) bool {
			if f, ok := s.Number(string(raw), name); ok {
				note(string(raw), f)
			}
			return false
		},
	})
}

// addValue records the texts and numbers within raw, which is strict JSON and the value of the
// member name.
func (v *redactedValues) addValue(name string, raw []byte) {
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '{':
		for name, sub := range wire.Members(raw) {
			v.addValue(name, sub)
		}
	case '[':
		for sub := range wire.Elements(raw) {
			v.addValue(name, sub)
		}
	case '"':
		if text, ok := wire.String(raw); ok {
			v.addText(text, isShort(text))
			if len(text) >= longNumber && isDigit(text[0]) {
				v.addNumber(text) // another text may have it as a number
			}
		}
	case 't', 'f', 'n':
		v.silent[name] = false
	default:
		if !v.addNumber(string(raw)) {
			v.addText(string(raw), false)
		}
	}
}

// addText records a text that is replaced, anywhere or as a whole word only.
func (v *redactedValues) addText(text string, word bool) {
	if text == "" {
		return
	}
	if was, ok := v.texts[text]; ok {
		word = word && was
	}
	v.texts[text] = word
}

// addNumber records a number, and reports whether spelt is one.
func (v *redactedValues) addNumber(spelt string) bool {
	normal, ok := appendNormal(nil, spelt)
	if ok {
		v.numbers[string(normal)] = true
	}
	return ok
}

// shortSecret is the length below which a credential may be an ordinary word. Such a credential is
// replaced as a whole word only.
const shortSecret = 8
