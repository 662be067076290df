package wire

import (
	"bytes"
	"iter"
	"slices"
)

// The functions of this file take an object or array that Parse or ParseEnvelope has scanned. From other bytes they
// read as much as they can, and never panic.

// A memberSpan is the position of one member of an object.
type memberSpan struct {
	name, nameEnd int // the inside of the quotes
	escaped       bool
	value, end    int
}

// hasName reports whether the member of obj has the name.
func (m memberSpan) hasName(obj []byte, name string) bool {
	raw := obj[m.name:m.nameEnd]
	if !m.escaped {
		return string(raw) == name
	}
	var scratch [64]byte
	return string(unescape(scratch[:0], raw)) == name
}

// unescapedName returns the member's unescaped name.
func (m memberSpan) unescapedName(obj []byte) string {
	if m.escaped {
		return string(unescape(nil, obj[m.name:m.nameEnd]))
	}
	return string(obj[m.name:m.nameEnd])
}

// A memberWalk visits the members of an object, or with bracket '[' the elements of an array.
type memberWalk struct {
	obj     []byte
	pos     int
	done    bool
	bracket byte
}

func newMemberWalk(obj []byte, bracket byte) memberWalk {
	w := memberWalk{obj: obj, bracket: bracket}
	i := skipSpace(obj, 0)
	if w.done = i >= len(obj) || obj[i] != bracket; w.done {
		return w
	}
	w.pos = skipSpace(obj, i+1)
	w.done = w.pos < len(obj) && obj[w.pos] == bracket+2
	return w
}

// next returns the next member, if there is one.
func (w *memberWalk) next() (m memberSpan, ok bool) {
	if w.done {
		return memberSpan{}, false
	}
	w.done = true
	var f flaw
	m.value = w.pos
	if w.bracket == '{' {
		m.name = w.pos + 1
		if m.value, m.nameEnd, m.escaped, f = skipName(w.obj, w.pos, false); f != 0 {
			return memberSpan{}, false
		}
		m.nameEnd--
	}
	if m.end, f = skipValue(w.obj, m.value, 1, MaxListDepth); f != 0 {
		return memberSpan{}, false
	}
	if w.pos, w.done, f = nextElement(w.obj, m.end, w.bracket+2); f != 0 {
		w.done = true
	}
	return m, true
}

// Field returns the value of the named member, in its own spelling. If there are several, which only a server can send,
// it returns the last, as nearly all readers do.
func Field(obj []byte, name string) (value []byte, ok bool) {
	w := newMemberWalk(obj, '{')
	for m, more := w.next(); more; m, more = w.next() {
		if m.hasName(obj, name) {
			value, ok = obj[m.value:m.end], true
		}
	}
	return value, ok
}

// Members yields the names and values of the object's members, in their order. Values are in their own spelling.
func Members(obj []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		w := newMemberWalk(obj, '{')
		for m, more := w.next(); more; m, more = w.next() {
			if !yield(m.unescapedName(obj), obj[m.value:m.end]) {
				return
			}
		}
	}
}

// MembersAsBytes is like Members, but does not allocate a string for each name. A name is valid until the next one is yielded.
func MembersAsBytes(obj []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		var unescaped []byte // hardly any name has an escape
		w := newMemberWalk(obj, '{')
		for m, more := w.next(); more; m, more = w.next() {
			name := obj[m.name:m.nameEnd]
			if m.escaped {
				unescaped = unescape(unescaped[:0], name)
				name = unescaped
			}
			if !yield(name, obj[m.value:m.end]) {
				return
			}
		}
	}
}

// Elements yields the array's elements in their own spelling, in their order.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w := newMemberWalk(array, '[')
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
	Value []byte // JSON; nil removes the member
}

// MaxEdits limits the edits of one Rewrite. More edits are a mistake in the calling code, and panic.
const MaxEdits = 64

// Rewrite appends obj with the edits. The edits have distinct names. An existing member gets its new value in place,
// and a new member is added at the end, in the order of edits. Everything else stays byte for byte. An empty obj counts
// as {}. If an edited name occurs more than once in obj, at most one occurrence remains. If obj is not an object, it is
// appended as it is.
func Rewrite(dst, obj []byte, edits ...Edit) []byte {
	if len(edits) > MaxEdits {
		panic("wire: too many edits")
	}
	var used uint64 // the edits that were applied
	c := newMemberCopier(dst, obj)
	for m, ok := c.next(); ok; m, ok = c.next() {
		i := slices.IndexFunc(edits, func(e Edit) bool { return m.hasName(c.obj, e.Name) })
		switch {
		case i < 0:
			c.copyMember(m, nil)
		case edits[i].Value == nil || used&(1<<i) != 0:
			c.skipMember(m)
		default:
			used |= 1 << i
			c.copyMember(m, edits[i].Value)
		}
	}
	for i, e := range edits {
		if e.Value != nil && used&(1<<i) == 0 {
			c.addMember(e.Name, e.Value)
		}
	}
	return c.finish()
}

// Map appends obj with each member changed by edit, and with more at the end. edit gets the name and value of a member,
// and returns the new value, or nil to remove the member. The names in more must be names that edit removes. If edit
// returns the value that it got, everything stays byte for byte. name is valid until edit returns.
func Map(dst, obj []byte, edit func(name, value []byte) []byte, more ...Edit) []byte {
	c := newMemberCopier(dst, obj)
	var scratch [64]byte
	for m, ok := c.next(); ok; m, ok = c.next() {
		name := c.obj[m.name:m.nameEnd]
		if m.escaped {
			name = unescape(scratch[:0], name)
		}
		if value := edit(name, c.obj[m.value:m.end]); value != nil {
			c.copyMember(m, value)
		} else {
			c.skipMember(m)
		}
	}
	for _, e := range more {
		if e.Value != nil {
			c.addMember(e.Name, e.Value)
		}
	}
	return c.finish()
}

// Without appends obj without the members that drop selects by name. Everything else stays byte for byte.
func Without(dst, obj []byte, drop func(name string) bool) []byte {
	c := newMemberCopier(dst, obj)
	for m, ok := c.next(); ok; m, ok = c.next() {
		if drop(m.unescapedName(c.obj)) {
			c.skipMember(m)
		} else {
			c.copyMember(m, nil)
		}
	}
	return c.finish()
}

// A memberCopier copies an object member by member.
type memberCopier struct {
	memberWalk
	dst          []byte
	object       bool
	leadingSpace []byte // the space before the first member
	first        bool   // no member has been read
	wroteMember  bool   // a member has been written
	from         int    // the end of the part of obj that has been read
}

func newMemberCopier(dst, obj []byte) memberCopier {
	if len(obj) == 0 {
		obj = []byte("{}")
	}
	c := memberCopier{memberWalk: newMemberWalk(obj, '{'), dst: dst, first: true}
	if i := skipSpace(obj, 0); i < len(obj) && obj[i] == '{' {
		c.object, c.from = true, i+1
		c.dst = append(c.dst, obj[:i+1]...)
	}
	return c
}

// copyMember writes the member, with value instead of its own value unless value is nil.
func (c *memberCopier) copyMember(m memberSpan, value []byte) {
	quote := m.name - 1
	if c.first {
		c.leadingSpace, c.first = c.obj[c.from:quote], false
	}
	if c.wroteMember {
		c.dst = append(c.dst, c.obj[c.from:quote]...)
	} else {
		c.dst, c.wroteMember = append(c.dst, c.leadingSpace...), true
	}
	if value == nil {
		value = c.obj[m.value:m.end]
	}
	c.dst = append(append(c.dst, c.obj[quote:m.value]...), value...)
	c.from = m.end
}

// skipMember skips the member, and the comma that it no longer needs.
func (c *memberCopier) skipMember(m memberSpan) {
	if c.first {
		c.leadingSpace, c.first = c.obj[c.from:m.name-1], false
	}
	c.from = m.end
}

// addMember writes a new member.
func (c *memberCopier) addMember(name string, value []byte) {
	if !c.object {
		return
	}
	if c.wroteMember {
		c.dst = append(c.dst, ',')
	}
	c.wroteMember = true
	c.dst = append(append(AppendString(c.dst, name), ':'), value...)
}

// finish writes the rest of obj.
func (c *memberCopier) finish() []byte { return append(c.dst, c.obj[c.from:]...) }

// OneLine returns the text in one line. In JSON, line breaks that are not escaped are space between tokens, so they are
// replaced with spaces. OneLine returns data itself if it has no line breaks, and a copy otherwise.
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
