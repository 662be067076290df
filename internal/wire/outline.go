package wire

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The members of a result that are recorded while its envelope is read: those that differ between the eras, and
// isError.
const (
	MemberMeta       = "_meta"
	MemberResultType = "resultType"
	MemberTTL        = "ttlMs"
	MemberScope      = "cacheScope"
	MemberError      = "isError"
)

// maxOutlined limits how many members are recorded. Only a result that repeats members has more than five.
const maxOutlined = 64

// recordedName returns the name if it is the name of a recorded member. All spellings of _meta are recorded, because a reader
// that ignores case treats them as equal.
func recordedName(name []byte) (string, bool) {
	switch string(name) {
	case MemberMeta:
		return MemberMeta, true
	case MemberResultType:
		return MemberResultType, true
	case MemberTTL:
		return MemberTTL, true
	case MemberScope:
		return MemberScope, true
	case MemberError:
		return MemberError, true
	}
	if len(name) == len(MemberMeta) && strings.EqualFold(string(name), MemberMeta) {
		return string(name), true
	}
	return "", false
}

// OutlineOf returns the outline of the object at the start of obj, which has been scanned. ParseEnvelope makes the same
// outline of a result.
func OutlineOf(obj []byte) switchboard.Outline {
	var o switchboard.Outline
	if len(obj) > 0 && obj[0] == '{' {
		_, _ = scanOutline(obj, 0, MaxListDepth, &o) // scanned text has no flaw
	}
	return o
}

// scanOutline does the work of skipValue for a result, an object that starts at i. It also records positions in o, relative
// to i.
func scanOutline(data []byte, i, most int, o *switchboard.Outline) (int, flaw) {
	*o = switchboard.Outline{End: 1}
	start, after := i, i+1
	if i = skipSpace(data, after); i < len(data) && data[i] == '}' {
		return i + 1, 0
	}
	for {
		quote := i
		value, nameEnd, escaped, f := skipName(data, quote, false)
		if f != 0 {
			return value, f
		}
		end, f := skipValue(data, value, 2, most)
		if f != 0 {
			return end, f
		}
		name := data[quote+1 : nameEnd-1]
		if escaped {
			name = unescape(nil, name)
		}
		if name, ok := recordedName(name); ok {
			if o.Truncated = len(o.Members) == maxOutlined; !o.Truncated {
				o.Members = append(o.Members, switchboard.Member{Name: name, After: after - start, Quote: quote - start, Value: value - start, End: end - start})
			}
		}
		after, o.End = end, end-start
		var last bool
		if i, last, f = nextElement(data, end, '}'); f != 0 || last {
			return i, f
		}
	}
}

// Splice returns obj with the edits, as parts that share the memory of obj. o must not be crowded. The result equals
// that of Rewrite byte for byte, but Splice reads only the members in o.
func Splice(obj []byte, o switchboard.Outline, edits ...Edit) [][]byte {
	if len(edits) > MaxEdits {
		panic("wire: too many edits")
	}
	parts := make([][]byte, 0, 2*len(edits)+3)
	from := 0       // the start of the part of obj that is not in parts yet
	kept := false   // some member remains
	was := 1        // the end of the previous member
	var done uint64 // the edits that were applied
	for _, m := range o.Members {
		kept = kept || m.After > was // there is a member between them that is not recorded
		was = m.End
		i := slices.IndexFunc(edits, func(e Edit) bool { return e.Name == m.Name })
		switch {
		case i < 0:
			kept = true
		case edits[i].Value != nil && done&(1<<i) == 0:
			done |= 1 << i
			kept = true
			parts = append(parts, obj[from:m.Value], edits[i].Value)
			from = m.End
		case kept:
			parts = append(parts, obj[from:m.After])
			from = m.End
		default: // remove the member and the comma and space after it, but not what precedes it
			follows, last, _ := nextElement(obj, m.End, '}')
			if last {
				parts, from = append(parts[:0], obj[:1]), m.End
				break
			}
			if len(parts) == 0 {
				parts = append(parts, obj[:m.Quote])
			}
			from = follows
		}
	}
	kept = kept || o.End > was
	if from < o.End {
		parts = append(parts, obj[from:o.End])
	}
	var added []byte
	for i, e := range edits {
		if e.Value == nil || done&(1<<i) != 0 {
			continue
		}
		if kept {
			added = append(added, ',')
		}
		kept = true
		added = append(append(AppendString(added, e.Name), ':'), e.Value...)
	}
	if added != nil {
		parts = append(parts, added)
	}
	return append(parts, obj[o.End:])
}
