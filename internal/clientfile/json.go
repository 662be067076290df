package clientfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/tailscale/hujson"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// A jsonBody is a parsed JSON text.
type jsonBody struct {
	file   string
	text   []byte
	root   *hujson.Object
	end    int // the offset behind root
	values map[string]any
}

func readJSON(file string, text []byte, syntax Syntax) (*jsonBody, error) {
	sink := &document.Sink{}
	v, ok := document.ReadJSON(file, withoutLoneSurrogates(text), sink) // strict: no key twice, bounded depth
	if !ok {
		return nil, sink.Err(file)
	}
	if v.Kind != document.KindMap {
		return nil, faultAt(file, text, 0, fmt.Sprintf("want an object, not %v", v.Kind))
	}
	// hujson requires a line break after each line comment, also after the last one.
	tree, err := hujson.Parse(append(bytes.Clone(text), '\n'))
	if err != nil {
		return nil, faultAt(file, text, -1, "this is not valid JSON")
	}
	b := &jsonBody{file: file, text: text, root: tree.Value.(*hujson.Object), end: tree.EndOffset}
	if at, what := b.findExtra(&tree, syntax); at >= 0 {
		return nil, faultAt(file, text, at, "the client reads no "+what+" in this file, and so could not read it; remove it")
	}
	plain := tree.Clone()
	plain.Standardize()
	if b.values, err = decodeObject(plain.Pack()); err != nil {
		return nil, faultAt(file, text, -1, "this is not valid JSON")
	}
	return b, nil
}

// readEscapedUnit returns the UTF-16 code unit of the escape \uXXXX at that place of the text, or 0 if there is none.
func readEscapedUnit(text []byte, at int) rune {
	if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(unit)
}

// withoutLoneSurrogates returns the text with each escape of half a surrogate pair replaced by one of U+FFFD, of the same length. Clients cut the texts
// of their history anywhere, and read such an escape; package document does not. Only the servers must be without.
func withoutLoneSurrogates(text []byte) []byte {
	out := text
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch unit := readEscapedUnit(text, i); {
		case utf16.DecodeRune(unit, readEscapedUnit(text, i+6)) != unicode.ReplacementChar: // a pair
			i += 11
		case utf16.IsSurrogate(unit):
			if &out[0] == &text[0] {
				out = bytes.Clone(text)
			}
			copy(out[i:], `\ufffd`)
			i += 5
		default:
			i++ // the escaped character, which can be a backslash
		}
	}
	return out
}

// findExtra returns the offset of the first thing that the syntax does not have, or -1.
func (b *jsonBody) findExtra(tree *hujson.Value, syntax Syntax) (at int, what string) {
	at = -1
	found := func(offset int, name string) {
		if at < 0 || offset < at {
			at, what = offset, name
		}
	}
	comment := func(start int, extra hujson.Extra) {
		if i := bytes.IndexByte(extra, '/'); i >= 0 && syntax == JSON {
			found(start+i, "comment")
		}
	}
	for v := range tree.All() {
		comment(v.StartOffset-len(v.BeforeExtra), v.BeforeExtra)
		comment(v.EndOffset, v.AfterExtra)
		var last *hujson.Value
		var extra hujson.Extra
		switch c := v.Value.(type) {
		case *hujson.Object:
			extra = c.AfterExtra
			if n := len(c.Members); n > 0 {
				last = &c.Members[n-1].Value
			}
		case *hujson.Array:
			extra = c.AfterExtra
			if n := len(c.Elements); n > 0 {
				last = &c.Elements[n-1]
			}
		default:
			continue
		}
		comment(v.EndOffset-1-len(extra), extra)
		if last != nil && syntax != JSONC {
			if i := last.EndOffset + len(last.AfterExtra); b.text[i] == ',' {
				found(i, "comma behind the last member")
			}
		}
	}
	return at, what
}

// decodeObject returns the values of a JSON object; numbers keep their spelling.
func decodeObject(text []byte) (map[string]any, error) {
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

func (b *jsonBody) tree() map[string]any { return b.values }

func (b *jsonBody) decode(value json.RawMessage) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&v); err != nil && err != io.EOF {
		return nil, err
	}
	return v, nil
}

// find returns the object at the keys of section, and the keys that do not exist below it. name is the offset of the key that holds the object,
// or -1 for the whole document; end is the offset behind it.
func (b *jsonBody) find(section []string) (o *hujson.Object, missing []string, name, end int, err error) {
	o, name, end = b.root, -1, b.end
	for i, key := range section {
		m := memberOf(o, key)
		if m == nil {
			return o, section[i:], name, end, nil
		}
		inner, ok := m.Value.Value.(*hujson.Object)
		if !ok {
			return nil, nil, 0, 0, faultAt(b.file, b.text, m.Value.StartOffset, fmt.Sprintf("%s: want an object", document.Shown(key)))
		}
		o, name, end = inner, m.Name.StartOffset, m.Value.EndOffset
	}
	return o, nil, name, end, nil
}

func memberOf(o *hujson.Object, key string) *hujson.ObjectMember {
	for i := range o.Members {
		if nameOf(&o.Members[i]) == key {
			return &o.Members[i]
		}
	}
	return nil
}

func nameOf(m *hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

func (b *jsonBody) entries(section []string) ([]Entry, error) {
	o, missing, _, _, err := b.find(section)
	if err != nil || len(missing) > 0 {
		return nil, err
	}
	var out []Entry
	for i := range o.Members {
		m := &o.Members[i]
		value := m.Value.Clone()
		value.Standardize()
		value.BeforeExtra, value.AfterExtra = nil, nil
		out = append(out, Entry{
			Name: nameOf(m), Value: value.Pack(),
			Source: string(b.text[m.Name.StartOffset:m.Value.EndOffset]),
			Indent: indentAt(b.text, m.Name.StartOffset),
		})
	}
	return out, nil
}

// indentAt returns the spaces at the begin of the line at an offset.
func indentAt(text []byte, at int) string {
	line := text[lineStart(text, at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// A memberLayout says how members are written in one object.
type memberLayout struct {
	multi  bool // each member has lines of its own
	indent string
	unit   string // one more level
	eol    string
	colon  string
}

// layoutOf returns how the members of an object are written. name is the offset of the key that holds it, or -1.
func (b *jsonBody) layoutOf(o *hujson.Object, name int) memberLayout {
	l := memberLayout{eol: eolOf(b.text), unit: "  ", colon: ": "}
	for i := range b.root.Members {
		if at := b.root.Members[i].Name.StartOffset; b.firstOnLine(at) && indentAt(b.text, at) != "" {
			l.unit = indentAt(b.text, at)
			break
		}
	}
	for i := range o.Members {
		m := &o.Members[i]
		if i == 0 && m.Value.StartOffset == m.Name.EndOffset+1 {
			l.colon = ":"
		}
		if b.firstOnLine(m.Name.StartOffset) {
			l.multi, l.indent = true, indentAt(b.text, m.Name.StartOffset)
			return l
		}
	}
	if len(o.Members) == 0 && (bytes.IndexByte(b.text, '\n') >= 0 || len(b.root.Members) == 0) {
		l.multi = true
		if name >= 0 {
			l.indent = indentAt(b.text, name)
		}
		l.indent += l.unit
	}
	return l
}

// firstOnLine reports whether only spaces stand before the offset in its line, and a line break before them.
func (b *jsonBody) firstOnLine(at int) bool {
	start := lineStart(b.text, at)
	return start > 0 && isBlank(b.text[start:at])
}

// separator is what stands between two members.
func (l memberLayout) separator() string {
	if l.multi {
		return "," + l.eol + l.indent
	}
	if l.colon == ":" {
		return ","
	}
	return ", "
}

// format returns the text of a member.
func (l memberLayout) format(e Entry) string {
	if e.Source != "" && l.keepsSource(e) {
		return setLineEnds(e.Source, l.eol)
	}
	return quoteJSON(e.Name) + l.colon + l.formatValue(e.Value)
}

// keepsSource reports whether the text of an entry looks well in this place, or has comments, which must not be lost.
func (l memberLayout) keepsSource(e Entry) bool {
	tree, err := hujson.Parse([]byte("{" + e.Source + "\n}"))
	if err != nil {
		return false
	}
	o, ok := tree.Value.(*hujson.Object)
	if !ok || len(o.Members) != 1 || nameOf(&o.Members[0]) != e.Name {
		return false
	}
	return !strings.Contains(e.Source, "\n") || e.Indent == l.indent && l.multi || !tree.IsStandard()
}

func (l memberLayout) formatValue(value []byte) string {
	var out bytes.Buffer
	if l.multi {
		if json.Indent(&out, value, l.indent, l.unit) == nil {
			return strings.ReplaceAll(out.String(), "\n", l.eol)
		}
	} else if json.Compact(&out, value) == nil {
		return out.String()
	}
	return string(value)
}

func quoteJSON(s string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always has a form
	return strings.TrimSuffix(out.String(), "\n")
}

// newJSON returns the splice that makes a new file.
func newJSON(section []string, add []Entry) ([]Splice, error) {
	if len(add) == 0 {
		return nil, nil
	}
	value := nest(section, add)
	var out bytes.Buffer
	if err := json.Indent(&out, value, "", "  "); err != nil {
		return nil, err
	}
	return []Splice{{Text: out.String() + "\n"}}, nil
}

// nest returns an object with the entries under the keys.
func nest(keys []string, add []Entry) []byte {
	var members []string
	for _, e := range add {
		members = append(members, quoteJSON(e.Name)+":"+string(e.Value))
	}
	text := "{" + strings.Join(members, ",") + "}"
	for _, key := range slices.Backward(keys) {
		text = "{" + quoteJSON(key) + ":" + text + "}"
	}
	return []byte(text)
}

func (b *jsonBody) rewrite(section, remove []string, add []Entry) ([]Splice, error) {
	o, missing, name, end, err := b.find(section)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		add = []Entry{{Name: missing[0], Value: nest(missing[1:], add)}}
	}
	l := b.layoutOf(o, name)
	var texts []string
	for _, e := range add {
		texts = append(texts, l.format(e))
	}
	text := strings.Join(texts, l.separator())
	if len(remove) == 0 {
		return []Splice{b.insert(o, l, end, text)}, nil
	}
	return b.replace(o, remove, text), nil
}

// insert returns the splice that adds members behind the last one of an object. end is the offset behind the object.
func (b *jsonBody) insert(o *hujson.Object, l memberLayout, end int, text string) Splice {
	if n := len(o.Members); n > 0 {
		at := o.Members[n-1].Value.EndOffset
		return Splice{at, at, l.separator() + text}
	}
	at := end - 1 // the closing bracket
	inside := b.text[at-len(o.AfterExtra) : at]
	if !l.multi && isBlank(inside) {
		return Splice{at - len(inside), at, text}
	}
	kept := bytes.TrimRight(inside, " \t\r\n") // comments
	closing := strings.TrimSuffix(l.indent, l.unit)
	return Splice{at - len(inside) + len(kept), at, l.eol + l.indent + text + l.eol + closing}
}

// replace returns the splices that remove members, and write a text in the place of the first one unless the text is "". Comments between the
// members stay.
func (b *jsonBody) replace(o *hujson.Object, remove []string, text string) []Splice {
	var out []Splice
	last := -1 // the last member that stays, or holds the text
	placed := text == ""
	trailing := true // the last member that was removed had a comma behind it
	for i := range o.Members {
		m := &o.Members[i]
		if !slices.Contains(remove, nameOf(m)) {
			last, trailing = i, true
			continue
		}
		start, end := m.Name.StartOffset, m.Value.EndOffset
		if !placed {
			out = append(out, Splice{start, end, text})
			placed, last, trailing = true, i, true
			continue
		}
		comma := end + len(m.Value.AfterExtra)
		trailing = comma < len(b.text) && b.text[comma] == ','
		switch {
		case !trailing:
			out = append(out, b.cut(start, end))
		case isBlank(m.Value.AfterExtra):
			out = append(out, b.cut(start, comma+1))
		default: // a comment stands before the comma
			out = append(out, Splice{start, end, ""}, Splice{comma, comma + 1, ""})
		}
	}
	if !trailing && last >= 0 {
		// Nothing follows the last member that stays, so that its comma must go.
		v := o.Members[last].Value
		comma := v.EndOffset + len(v.AfterExtra)
		out = append(out, Splice{comma, comma + 1, ""})
	}
	return sortSplices(out)
}

// cut removes the bytes from start to end, and the line or the spaces that they leave behind.
func (b *jsonBody) cut(start, end int) Splice {
	line, next := lineStart(b.text, start), lineEnd(b.text, end)
	before, after := b.text[line:start], b.text[end:next]
	switch {
	case isBlank(before) && isBlank(after):
		return Splice{line, next, ""}
	case isBlank(after) || len(bytes.TrimLeft(after, " \t")) > 0 && bytes.TrimLeft(after, " \t")[0] == '}':
		return Splice{start - (len(before) - len(bytes.TrimRight(before, " \t"))), end, ""}
	}
	return Splice{start, end + len(after) - len(bytes.TrimLeft(after, " \t")), ""}
}
