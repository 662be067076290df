package wire

import (
	"bytes"
	"iter"
	"slices"
)

// The functions of this file take an object or array that has been scanned, by
// Parse or ParseEnvelope. Of other bytes they see as much as can be read, and
// never panic.

// A member is where one member of an object stands.
type member struct {
	name, nameEnd int // between the quotes
	escaped       bool
	value, end    int
}

// is reports whether the member of obj has the name.
func (m member) is(obj []byte, name string) bool {
	raw := obj[m.name:m.nameEnd]
	if !m.escaped {
		return string(raw) == name
	}
	var scratch [64]byte
	return string(unescape(scratch[:0], raw)) == name
}

// text returns the member's name.
func (m member) text(obj []byte) string {
	if m.escaped {
		return string(unescape(nil, obj[m.name:m.nameEnd]))
	}
	return string(obj[m.name:m.nameEnd])
}

// A walk goes through the members of an object, or with bracket '[' through the
// elements of an array.
type walk struct {
	obj     []byte
	at      int
	done    bool
	bracket byte
}

func newWalk(obj []byte, bracket byte) walk {
	w := walk{obj: obj, bracket: bracket}
	i := skipSpace(obj, 0)
	if w.done = i >= len(obj) || obj[i] != bracket; w.done {
		return w
	}
	w.at = skipSpace(obj, i+1)
	w.done = w.at < len(obj) && obj[w.at] == bracket+2
	return w
}

// next returns the next member, if there is one.
func (w *walk) next() (m member, ok bool) {
	if w.done {
		return member{}, false
	}
	w.done = true
	var f flaw
	m.value = w.at
	if w.bracket == '{' {
		m.name = w.at + 1
		if m.value, m.nameEnd, m.escaped, f = skipName(w.obj, w.at, false); f != 0 {
			return member{}, false
		}
		m.nameEnd--
	}
	if m.end, f = skipValue(w.obj, m.value, 1, MaxListDepth); f != 0 {
		return member{}, false
	}
	if w.at, w.done, f = next(w.obj, m.end, w.bracket+2); f != 0 {
		w.done = true
	}
	return m, true
}

// Field returns the value of the object's member with the name, as spelt. Of
// several, which only a server can send, it is the last: that is how nearly all
// readers read them.
func Field(obj []byte, name string) (value []byte, ok bool) {
	w := newWalk(obj, '{')
	for m, more := w.next(); more; m, more = w.next() {
		if m.is(obj, name) {
			value, ok = obj[m.value:m.end], true
		}
	}
	return value, ok
}

// Members yields the names and the values, as spelt, of the object's members,
// in their order.
func Members(obj []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		w := newWalk(obj, '{')
		for m, more := w.next(); more; m, more = w.next() {
			if !yield(m.text(obj), obj[m.value:m.end]) {
				return
			}
		}
	}
}

// Elements yields the values, as spelt, of the array's elements, in their order.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w := newWalk(array, '[')
		for m, more := w.next(); more; m, more = w.next() {
			if !yield(array[m.value:m.end]) {
				return
			}
		}
	}
}

// An Edit is a change to one member of an object.
type Edit struct {
	Name  string
	Value []byte // in JSON; nil removes the member
}

// MaxEdits bounds the edits of one Rewrite; those beyond it are a mistake of the
// caller's, and panic.
const MaxEdits = 64

// Rewrite appends obj with the edits, whose names are distinct. A member that is
// there changes its value where it stands, one that is not is added at the end,
// in the order of edits; all else stays byte for byte. An obj of no bytes is
// taken for {}. An edited name that stood in obj more than once is there once at
// most afterwards. What is no object is appended as it is.
func Rewrite(dst, obj []byte, edits ...Edit) []byte {
	if len(edits) > MaxEdits {
		panic("wire: too many edits")
	}
	var used uint64 // the edits that have found their member
	c := newCutter(dst, obj)
	for m, ok := c.next(); ok; m, ok = c.next() {
		i := slices.IndexFunc(edits, func(e Edit) bool { return m.is(c.obj, e.Name) })
		switch {
		case i < 0:
			c.keep(m, nil)
		case edits[i].Value == nil || used&(1<<i) != 0:
			c.drop(m)
		default:
			used |= 1 << i
			c.keep(m, edits[i].Value)
		}
	}
	for i, e := range edits {
		if e.Value != nil && used&(1<<i) == 0 {
			c.add(e.Name, e.Value)
		}
	}
	return c.finish()
}

// Map appends obj with each member as edit says, which gets its name and its value
// and returns the value to have instead, or nil to leave the member out; and with
// more at the end, of names that edit leaves out. Where edit returns the value that
// it got, all stays byte for byte. name is valid until edit returns.
func Map(dst, obj []byte, edit func(name, value []byte) []byte, more ...Edit) []byte {
	c := newCutter(dst, obj)
	var scratch [64]byte
	for m, ok := c.next(); ok; m, ok = c.next() {
		name := c.obj[m.name:m.nameEnd]
		if m.escaped {
			name = unescape(scratch[:0], name)
		}
		if value := edit(name, c.obj[m.value:m.end]); value != nil {
			c.keep(m, value)
		} else {
			c.drop(m)
		}
	}
	for _, e := range more {
		if e.Value != nil {
			c.add(e.Name, e.Value)
		}
	}
	return c.finish()
}

// Without appends obj without the members whose name drop picks; all else stays
// byte for byte.
func Without(dst, obj []byte, drop func(name string) bool) []byte {
	c := newCutter(dst, obj)
	for m, ok := c.next(); ok; m, ok = c.next() {
		if drop(m.text(c.obj)) {
			c.drop(m)
		} else {
			c.keep(m, nil)
		}
	}
	return c.finish()
}

// A cutter copies an object member by member.
type cutter struct {
	walk
	dst    []byte
	object bool
	lead   []byte // the space in front of the first member
	first  bool   // no member has been read
	kept   bool   // one has been written
	from   int    // what has been read ends here
}

func newCutter(dst, obj []byte) cutter {
	if len(obj) == 0 {
		obj = []byte("{}")
	}
	c := cutter{walk: newWalk(obj, '{'), dst: dst, first: true}
	if i := skipSpace(obj, 0); i < len(obj) && obj[i] == '{' {
		c.object, c.from = true, i+1
		c.dst = append(c.dst, obj[:i+1]...)
	}
	return c
}

// keep writes the member, with another value if that is not nil.
func (c *cutter) keep(m member, value []byte) {
	quote := m.name - 1
	if c.first {
		c.lead, c.first = c.obj[c.from:quote], false
	}
	if c.kept {
		c.dst = append(c.dst, c.obj[c.from:quote]...)
	} else {
		c.dst, c.kept = append(c.dst, c.lead...), true
	}
	if value == nil {
		value = c.obj[m.value:m.end]
	}
	c.dst = append(append(c.dst, c.obj[quote:m.value]...), value...)
	c.from = m.end
}

// drop leaves the member out, with the comma that it no longer needs.
func (c *cutter) drop(m member) {
	if c.first {
		c.lead, c.first = c.obj[c.from:m.name-1], false
	}
	c.from = m.end
}

// add writes a member that was not there.
func (c *cutter) add(name string, value []byte) {
	if !c.object {
		return
	}
	if c.kept {
		c.dst = append(c.dst, ',')
	}
	c.kept = true
	c.dst = append(append(AppendString(c.dst, name), ':'), value...)
}

// finish writes what is behind the last member.
func (c *cutter) finish() []byte { return append(c.dst, c.obj[c.from:]...) }

// OneLine returns the text in one line: in JSON, line ends that are not escaped
// are space between tokens, and become spaces. Without any it is data itself,
// else a copy.
func OneLine(data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return data
	}
	line := bytes.Clone(data)
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	return line
}
