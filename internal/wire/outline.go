package wire

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The members of a result that are noted while its envelope is read: those in
// which the eras differ, and whether it is an error.
const (
	MemberMeta       = "_meta"
	MemberResultType = "resultType"
	MemberTTL        = "ttlMs"
	MemberScope      = "cacheScope"
	MemberError      = "isError"
)

// maxNoted is how many members are noted. Only a result that repeats them has
// more than five.
const maxNoted = 64

// noted returns the name where it is of a member that is noted. Of _meta each
// spelling is, since to a reader that ignores case it is the same.
func noted(name []byte) (string, bool) {
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

// OutlineOf returns the outline of an object that stands at the start of obj and
// has been scanned. It is what ParseEnvelope notes of a result.
func OutlineOf(obj []byte) switchboard.Outline {
	var o switchboard.Outline
	if len(obj) > 0 && obj[0] == '{' {
		_, _ = outline(obj, 0, MaxListDepth, &o) // what has been scanned has no flaw
	}
	return o
}

// outline is skipValue for the result, an object that starts at i, and notes in o
// what stands where, counted from i.
func outline(data []byte, i, most int, o *switchboard.Outline) (int, flaw) {
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
		if name, ok := noted(name); ok {
			if o.Crowded = len(o.Members) == maxNoted; !o.Crowded {
				o.Members = append(o.Members, switchboard.Member{Name: name, After: after - start, Quote: quote - start, Value: value - start, End: end - start})
			}
		}
		after, o.End = end, end-start
		var last bool
		if i, last, f = next(data, end, '}'); f != 0 || last {
			return i, f
		}
	}
}

// Splice returns obj with the edits as parts, which share the memory of obj. It
// does to the members of the outline, which is not crowded, what Rewrite would,
// byte for byte, and reads none of the others.
func Splice(obj []byte, o switchboard.Outline, edits ...Edit) [][]byte {
	if len(edits) > MaxEdits {
		panic("wire: too many edits")
	}
	parts := make([][]byte, 0, 2*len(edits)+3)
	from := 0       // what of obj is not in parts
	kept := false   // some member is
	was := 1        // the end of the member before
	var done uint64 // the edits that have found their member
	for _, m := range o.Members {
		kept = kept || m.After > was // one that is not noted
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
		default: // with the comma behind it, and the space, but not what is before it
			follows, last, _ := next(obj, m.End, '}')
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
