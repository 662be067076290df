package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth limits how deeply an entry may be nested. A server.json has a depth of 8.
const maxDepth = 32

var errForm = errors.New("this is not JSON in the form of the registry API v0.1; check the address or the file in registries")

// A rawPage is a page with entries that have not been read.
type rawPage struct {
	items  []jsontext.Value
	list   bool // it has the form of the API
	more   bool // it has more entries than were wanted
	cursor string
}

// splitPage finds at most most entries of a page, or of a file. It does not look into the entries: one that is wrong does not make the page wrong.
func splitPage(data []byte, most int) (p rawPage, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // some editors begin files with it
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	switch dec.PeekKind() {
	case '[':
		err = p.readItems(dec, most)
	case '{':
		if err = p.readObject(dec, most); err == nil && !p.list {
			p.items = append(p.items, data) // one server.json
		}
	default:
		return rawPage{}, errForm
	}
	if err != nil || p.more {
		return p, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return rawPage{}, errors.New("something follows the JSON value")
	}
	return p, nil
}

// readObject reads a page. An object without servers is none.
func (p *rawPage) readObject(dec *jsontext.Decoder, most int) error {
	_, err := dec.ReadToken()
	for told := false; err == nil && dec.PeekKind() == '"'; {
		var token jsontext.Token
		if token, err = dec.ReadToken(); err != nil {
			break
		}
		switch name := token.String(); {
		case name == "servers" && p.list, name == "metadata" && told:
			return fmt.Errorf("%s stands in it twice", name)
		case name == "servers":
			p.list = true
			if dec.PeekKind() != '[' { // null
				err = dec.SkipValue()
			} else if err := p.readItems(dec, most); err != nil || p.more {
				return err
			}
		case name == "metadata":
			told = true
			var raw jsontext.Value
			if raw, err = dec.ReadValue(); err == nil && raw.Kind() != 'n' {
				if p.cursor, err = readCursor(raw); err != nil {
					return err
				}
			}
		default:
			err = dec.SkipValue()
		}
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	return badJSON(err)
}

func (p *rawPage) readItems(dec *jsontext.Decoder, most int) error {
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != ']' {
		if p.more = len(p.items) >= most; p.more {
			return nil
		}
		var raw jsontext.Value
		raw, err = dec.ReadValue()
		p.items = append(p.items, raw.Clone())
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	return badJSON(err)
}

func readCursor(raw jsontext.Value) (cursor string, err error) {
	m := openMembers(raw, "metadata", &err)
	if cursor = m.text("nextCursor"); len(cursor) > maxCursor {
		m.refuse("nextCursor", "is longer than %d bytes", maxCursor)
	}
	return cursor, err
}

// badJSON returns a decoder's error without what it repeats of the text.
func badJSON(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("this is not valid JSON, at byte %d", e.ByteOffset)
	}
	return errors.New("this is not valid JSON: it ends too early")
}

// members are those of a JSON object. The methods take members out, so that in the end those are left that are never taken. The first fault is kept; after it,
// the values mean nothing.
type members struct {
	values map[string]jsontext.Value
	path   string // of the object, for messages
	fault  *error
}

// openMembers reads an object strictly: it has no name twice, and is valid UTF-8, at any depth.
func openMembers(raw jsontext.Value, path string, fault *error) members {
	m := members{path: path, fault: fault}
	switch {
	case raw.Kind() != '{':
		m.refuse("", "is no object")
	case isTooDeep(raw):
		m.refuse("", "is nested more than %d levels deep", maxDepth)
	default:
		if err := json.Unmarshal(raw, &m.values); errors.Is(err, jsontext.ErrDuplicateName) {
			m.refuse("", "has a name twice")
		} else if err != nil {
			m.refuse("", "is not valid JSON in UTF-8")
		}
	}
	return m
}

// isTooDeep reports whether valid JSON is nested more than maxDepth levels deep.
func isTooDeep(raw []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// place returns the path of a member; that of the object for "".
func (m members) place(name string) string {
	if m.path == "" || name == "" {
		return m.path + name
	}
	return m.path + "." + name
}

// refuse notes what is wrong with a member, or with the object.
func (m members) refuse(name, format string, args ...any) {
	if *m.fault == nil {
		*m.fault = fmt.Errorf("%s %s", cmp.Or(m.place(name), "the entry"), fmt.Sprintf(format, args...))
	}
}

// take takes a member out. ok is false if it is absent, or null.
func (m members) take(name string) (raw jsontext.Value, ok bool) {
	raw, ok = m.values[name]
	delete(m.values, name)
	return raw, ok && raw.Kind() != 'n'
}

// text takes a text out; "" if it is absent.
func (m members) text(name string) (s string) {
	if raw, ok := m.take(name); ok && json.Unmarshal(raw, &s) != nil {
		m.refuse(name, "is no text")
	}
	return s
}

// isTrue takes a boolean out; false if it is absent.
func (m members) isTrue(name string) (b bool) {
	if raw, ok := m.take(name); ok && json.Unmarshal(raw, &b) != nil {
		m.refuse(name, "is neither true nor false")
	}
	return b
}

// object takes an object out; one without members if it is absent.
func (m members) object(name string) members {
	raw, ok := m.take(name)
	if !ok {
		return members{path: m.place(name), fault: m.fault}
	}
	return openMembers(raw, m.place(name), m.fault)
}

// list takes a list of at most most objects out.
func (m members) list(name string, most int) (items []members) {
	var all []jsontext.Value
	if raw, ok := m.take(name); ok && json.Unmarshal(raw, &all) != nil {
		m.refuse(name, "is no list")
	}
	if len(all) > most {
		m.refuse(name, "has %d items; at most %d are read", len(all), most)
		return nil
	}
	for i, raw := range all {
		items = append(items, openMembers(raw, m.place(name)+"["+strconv.Itoa(i)+"]", m.fault))
	}
	return items
}

// drop takes members out that are of no interest.
func (m members) drop(names ...string) {
	for _, name := range names {
		delete(m.values, name)
	}
}
