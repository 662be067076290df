// Package redact takes data out of what servers say, before a client gets it.
//
// The caller names fields to remove, and detectors (package detect) that find data wherever it stands. The package
// removes these, and then the same data in the rest of the result: many servers repeat their structured content as
// text. Package policy decides which fields and detectors these are.
package redact

import (
	"github.com/summit-switchboard/switchboard/internal/redact/detect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Redacted stands in place of a field, as JSON; and without the quotes in place of a part of a text.
const Redacted = `"[redacted]"`

const redacted = "[redacted]"

// withheld stands in place of a result that cannot be searched.
const withheld = `{"content":[{"type":"text","text":"[redacted]"}],"isError":true}`

// Result removes what the JSON pointers (RFC 6901) name from the result, what the detectors find in it, and the
// same data from the rest of it:
//
//   - A text that is the structured content as JSON is written again from the redacted one.
//   - In every other text, key and value, each redacted text and number is replaced, also where it is spelt with
//     escapes of JSON, at any depth of JSON within texts; and each phone number and card whatever parts its digits.
//   - A text is replaced whole if it has more escapes within escapes than are resolved, or if it mentions a member
//     that held true, false or null.
//
// Binary data (data, blob), and what is encoded in another way, such as base64, stays as it is. If nothing is
// redacted, the result stays as it is, to the byte. A pointer to what is not there names nothing.
//
// Should the search fail, which would be a bug of ours, the whole result is withheld.
func Result(r switchboard.Result, fields []string, detectors []switchboard.Detector) (left switchboard.Result) {
	defer func() {
		if p := recover(); p != nil {
			left = switchboard.Result{JSON: []byte(withheld), Moved: r.Moved, Again: r.Again}
		}
	}()
	text, v := r.JSON, newValues()
	for _, p := range fields {
		text = v.without(text, p)
	}
	m := &masker{values: v}
	if !same(text, r.JSON) {
		m.mirror(r.JSON, text)
	}
	if len(detectors) > 0 {
		m.search(detectors, func(w *walker) { w.result(text) })
	}
	if same(text, r.JSON) && v.none() {
		return r
	}
	m.prepare()
	text = m.walker().result(text)
	if r.Release != nil {
		r.Release() // what is left has been copied
	}
	return switchboard.Result{JSON: text, Moved: r.Moved, Again: r.Again}
}

// Object removes what the detectors find from the params of what a server says or asks during a call, or from the
// object of an error. Without a find it returns raw itself. Should the search fail, all texts are withheld.
func Object(raw []byte, detectors []switchboard.Detector) (left []byte) {
	defer func() {
		if p := recover(); p != nil {
			w := &walker{text: func(string, string) string { return redacted }, number: func([]byte, string) bool { return false }}
			left = w.object(raw)
		}
	}()
	m := &masker{values: newValues()}
	m.search(detectors, func(w *walker) { w.object(raw) })
	if m.none() {
		return raw
	}
	m.prepare()
	return m.walker().object(raw)
}

// Text removes what the detectors find from a text. Should the search fail, the text is withheld.
func Text(text string, detectors []switchboard.Detector) (left string) {
	defer func() {
		if p := recover(); p != nil {
			left = redacted
		}
	}()
	m := &masker{values: newValues()}
	m.search(detectors, func(w *walker) { w.text(text, "") })
	if m.none() {
		return text
	}
	m.prepare()
	return m.mask(text)
}

// values are what was redacted.
type values struct {
	texts   map[string]bool // the value says that a text is looked for as a word alone
	numbers map[string]bool // in their normal form
	digits  map[string]bool // of phone numbers and cards
	silent  map[string]bool // names of members that held true, false or null, which cannot be looked for
}

func newValues() *values {
	return &values{texts: map[string]bool{}, numbers: map[string]bool{}, digits: map[string]bool{}, silent: map[string]bool{}}
}

func (v *values) none() bool { return len(v.texts)+len(v.numbers)+len(v.digits)+len(v.silent) == 0 }

// search has the detectors look at what visit goes through, and notes what they find.
func (v *values) search(detectors []switchboard.Detector, visit func(*walker)) {
	s := detect.New(detectors)
	note := func(text string, f detect.Found) {
		v.addText(text[f.From:f.To], f.Kind == switchboard.DetectSecret && f.To-f.From < wholeSecret)
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
				if deeper, ok = unescaped(deeper); !ok {
					return text
				}
				if depth == maxEscapes {
					v.addText(text, false) // nobody can tell
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
		if text, ok := wire.String(raw); ok {
			v.addText(text, short(text))
			if len(text) >= tellingNumber && isDigit(text[0]) {
				v.addNumber(text) // elsewhere it may be one
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

// addText notes a text that is replaced: anywhere, or as a word alone.
func (v *values) addText(text string, word bool) {
	if text == "" {
		return
	}
	if was, ok := v.texts[text]; ok {
		word = word && was
	}
	v.texts[text] = word
}

// addNumber reports whether a number is spelt so that can be told from others.
func (v *values) addNumber(spelt string) bool {
	normal, ok := appendNormal(nil, spelt)
	if ok {
		v.numbers[string(normal)] = true
	}
	return ok
}

// wholeSecret is how long a credential is that may be a word of the language: it is replaced as a word alone.
const wholeSecret = 8
