package wire

import "math"

// An index is where the members of a message's params and of its _meta stand,
// as noted when they were scanned: what is looked up in it is not read again. The
// zero index knows nothing.
type index struct {
	whole   bool // nothing is missing
	n       int
	entries [maxIndexed]entry
	from    uint32 // where params start
}

// maxIndexed is how many members are noted. What the protocol knows is less.
const maxIndexed = 12

// An entry is where the name of a member, which has no escapes, and its value
// stand in the text.
type entry struct {
	value, end uint32
	name       uint32
	length     uint16 // of the name
	meta       bool   // it is one of _meta
}

// note notes the member of an object at where, if that is one to note.
func (x *index) note(where place, name span, value, end int) {
	length := name.end - name.start
	switch {
	case where != inParams && where != inMeta:
	case x.n == maxIndexed || name.escaped || length > math.MaxUint16:
		x.whole = false
	default:
		x.entries[x.n] = entry{uint32(value), uint32(end), name.start, uint16(length), where == inMeta}
		x.n++
	}
}

func (m *Message) find(meta bool, name string) (value []byte, ok bool) {
	for i := range m.index.entries[:m.index.n] {
		e := &m.index.entries[i]
		if at := e.name - m.index.from; e.meta == meta && string(m.Params[at:at+uint32(e.length)]) == name {
			return m.Params[e.value-m.index.from : e.end-m.index.from], true
		}
	}
	return nil, false
}

// Param returns the value of the member of params with the name, as Field does.
func (m *Message) Param(name string) (value []byte, ok bool) {
	if value, ok = m.find(false, name); ok || m.index.whole {
		return value, ok
	}
	return Field(m.Params, name)
}

// Meta returns the value of the member of params._meta with the name, as Field
// does.
func (m *Message) Meta(name string) (value []byte, ok bool) {
	if value, ok = m.find(true, name); ok || m.index.whole {
		return value, ok
	}
	meta, _ := Field(m.Params, MemberMeta)
	return Field(meta, name)
}
