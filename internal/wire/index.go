package wire

import "math"

// A memberIndex holds the positions of the members of a message's params and _meta, recorded during the scan. Lookups use it
// instead of reading the text again. The zero index knows no member.
type memberIndex struct {
	complete     bool // every member is in entries
	n            int
	entries      [maxIndexed]indexedMember
	paramsOffset uint32 // the offset of params in the text
}

// maxIndexed limits how many members are recorded. The protocol defines fewer.
const maxIndexed = 12

// An indexedMember is the position of one member in the text. Its name has no escapes.
type indexedMember struct {
	value, end uint32
	name       uint32
	length     uint16 // the length of the name
	meta       bool   // the member belongs to _meta
}

// record records a member of the object at where, if where is params or _meta.
func (x *memberIndex) record(where objectRole, name nameSpan, value, end int) {
	length := name.end - name.start
	switch {
	case where != inParams && where != inMeta:
	case x.n == maxIndexed || name.escaped || length > math.MaxUint16:
		x.complete = false
	default:
		x.entries[x.n] = indexedMember{uint32(value), uint32(end), name.start, uint16(length), where == inMeta}
		x.n++
	}
}

func (m *Message) findIndexed(meta bool, name string) (value []byte, ok bool) {
	for i := range m.index.entries[:m.index.n] {
		e := &m.index.entries[i]
		if at := e.name - m.index.paramsOffset; e.meta == meta && string(m.Params[at:at+uint32(e.length)]) == name {
			return m.Params[e.value-m.index.paramsOffset : e.end-m.index.paramsOffset], true
		}
	}
	return nil, false
}

// Param returns the value of the named member of params, like Field.
func (m *Message) Param(name string) (value []byte, ok bool) {
	if value, ok = m.findIndexed(false, name); ok || m.index.complete {
		return value, ok
	}
	return Field(m.Params, name)
}

// Meta returns the value of the named member of params._meta, like Field.
func (m *Message) Meta(name string) (value []byte, ok bool) {
	if value, ok = m.findIndexed(true, name); ok || m.index.complete {
		return value, ok
	}
	meta, _ := Field(m.Params, MemberMeta)
	return Field(meta, name)
}
