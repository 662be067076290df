package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth limits how deeply an entry may be nested. A server.json has a depth of 8.
const maxDepth = 32

var errForm = errors.New("this is not JSON in the form of the registry API v0.1; check the address or the file in registries")

// A rawPage is a page whose entries have not been read.
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
					return fmt.Errorf("metadata: %w", err)
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

func readCursor(raw jsontext.Value) (string, error) {
	m, err := openObject(raw)
	if err != nil {
		return "", err
	}
	cursor, err := m.text("nextCursor")
	if err == nil && len(cursor) > maxCursor {
		err = fmt.Errorf("nextCursor is longer than %d bytes", maxCursor)
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

// members are those of a JSON object. Its methods take members out; the rest was not asked for.
type members map[string]jsontext.Value

// openObject reads an object strictly: it has no name twice, and is valid UTF-8, at any depth.
func openObject(raw jsontext.Value) (members, error) {
	if raw.Kind() != '{' {
		return nil, errors.New("it is no object")
	}
	if tooDeep(raw) {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	var m members
	if err := json.Unmarshal(raw, &m); err != nil {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return nil, errors.New("a name stands in it twice")
		}
		return nil, errors.New("it is not valid JSON in UTF-8")
	}
	return m, nil
}

// tooDeep reports whether valid JSON is nested more than maxDepth levels deep.
func tooDeep(raw []byte) bool {
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

// take takes a member out. ok is false if it is absent, or null.
func (m members) take(name string) (raw jsontext.Value, ok bool) {
	raw, ok = m[name]
	delete(m, name)
	return raw, ok && raw.Kind() != 'n'
}

// text takes a text out; "" if it is absent.
func (m members) text(name string) (s string, err error) {
	raw, ok := m.take(name)
	if ok && json.Unmarshal(raw, &s) != nil {
		return "", fmt.Errorf("%s is no text", name)
	}
	return s, nil
}

// truth takes a boolean out; false if it is absent.
func (m members) truth(name string) (b bool, err error) {
	raw, ok := m.take(name)
	if ok && json.Unmarshal(raw, &b) != nil {
		return false, fmt.Errorf("%s is neither true nor false", name)
	}
	return b, nil
}

// list takes a list of at most most objects out.
func (m members) list(name string, most int) ([]members, error) {
	raw, ok := m.take(name)
	if !ok {
		return nil, nil
	}
	var all []jsontext.Value
	switch err := json.Unmarshal(raw, &all); {
	case err != nil:
		return nil, fmt.Errorf("%s is no list", name)
	case len(all) > most:
		return nil, fmt.Errorf("%s has %d items; at most %d are read", name, len(all), most)
	}
	items := make([]members, len(all))
	for i, raw := range all {
		item, err := openObject(raw)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", name, i, err)
		}
		items[i] = item
	}
	return items, nil
}

// drop takes members out that are of no interest.
func (m members) drop(names ...string) {
	for _, name := range names {
		delete(m, name)
	}
}
