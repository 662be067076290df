package canonical

import (
	"strconv"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxOpen limits how deeply a Writer nests objects and lists.
const maxOpen = 8

// A Writer writes one JSON value in canonical form, member by member:
//
//	w := canonical.NewWriter(buf)
//	w.BeginObject()
//	w.Name("id")
//	w.String(id)
//	w.EndObject()
//	buf = w.Bytes()
//
// It writes commas and escapes, and sorts the members of each object. Members that come in order cost a comparison
// each. An object with members out of order is sorted when it ends, which costs a second pass over its bytes. The
// caller calls the methods in an order that makes JSON, and gives the members of an object distinct names.
type Writer struct {
	buf   []byte
	depth int
	open  [maxOpen]openValue // the open objects and lists, outermost first
}

// An openValue is an object or list that has not ended.
type openValue struct {
	start    int    // its first byte in Writer.buf
	lastName string // of an object: the name of the member written last
	unsorted bool
}

// NewWriter returns a Writer that appends to buf.
func NewWriter(buf []byte) Writer { return Writer{buf: buf} }

// Bytes returns the buffer with the value.
func (w *Writer) Bytes() []byte { return w.buf }

// separate writes the comma before a member or element, unless it is the first one.
func (w *Writer) separate() {
	if w.depth == 0 {
		return
	}
	switch w.buf[len(w.buf)-1] {
	case '{', '[', ':':
	default:
		w.buf = append(w.buf, ',')
	}
}

func (w *Writer) begin(bracket byte) {
	w.separate()
	w.open[w.depth] = openValue{start: len(w.buf)}
	w.depth++
	w.buf = append(w.buf, bracket)
}

// BeginObject begins an object.
func (w *Writer) BeginObject() { w.begin('{') }

// EndObject ends the object that began last.
func (w *Writer) EndObject() {
	w.depth--
	w.buf = append(w.buf, '}')
	if o := &w.open[w.depth]; o.unsorted {
		object := append([]byte(nil), w.buf[o.start:]...)
		sorted, err := AppendScanned(w.buf[:o.start], object)
		if err != nil {
			panic("canonical: a Writer wrote invalid JSON: " + err.Error())
		}
		w.buf = sorted
	}
}

// BeginList begins a list.
func (w *Writer) BeginList() { w.begin('[') }

// EndList ends the list that began last.
func (w *Writer) EndList() {
	w.depth--
	w.buf = append(w.buf, ']')
}

// Name begins a member with this name; its value is written next.
func (w *Writer) Name(name string) { w.buf = w.appendName(name) }

// Member writes a member with a string.
func (w *Writer) Member(name, value string) { w.buf = wire.AppendString(w.appendName(name), value) }

func (w *Writer) appendName(name string) []byte {
	o, b := &w.open[w.depth-1], w.buf
	if name < o.lastName {
		o.unsorted = true
	}
	o.lastName = name
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	if needsEscape(name) { // hardly ever
		return append(wire.AppendString(b, name), ':')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func needsEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return true
		}
	}
	return false
}

// String writes a string. Invalid UTF-8 becomes U+FFFD.
func (w *Writer) String(s string) {
	w.separate()
	w.buf = wire.AppendString(w.buf, s)
}

// Joined writes the parts as one string. Invalid UTF-8 in a part becomes U+FFFD.
func (w *Writer) Joined(parts ...string) {
	w.separate()
	b := append(w.buf, '"')
	for _, part := range parts {
		if !needsEscape(part) { // nearly always
			b = append(b, part...)
			continue
		}
		// AppendString writes quotes, which are not wanted between parts. The opening one overwrites the last byte,
		// which is put back.
		at := len(b) - 1
		last := b[at]
		b = wire.AppendString(b[:at], part)
		b[at] = last
		b = b[:len(b)-1]
	}
	w.buf = append(b, '"')
}

// Int writes a number.
func (w *Writer) Int(n int64) {
	w.separate()
	w.buf = strconv.AppendInt(w.buf, n, 10)
}

// Uint writes a number.
func (w *Writer) Uint(n uint64) {
	w.separate()
	w.buf = strconv.AppendUint(w.buf, n, 10)
}

// Bool writes true or false.
func (w *Writer) Bool(b bool) {
	w.separate()
	w.buf = strconv.AppendBool(w.buf, b)
}

// Raw writes a value that is in canonical form already.
func (w *Writer) Raw(value []byte) {
	w.separate()
	w.buf = append(w.buf, value...)
}
