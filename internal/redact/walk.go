package redact

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A walker goes through all texts, keys and numbers of a result, and may replace them.
type walker struct {
	// text gives what stands in place of a text, or of a key, that is no JSON. name is that of the member whose
	// value it is, or "".
	text func(text, name string) string

	// number reports whether a number is to be replaced.
	number func(raw []byte, name string) bool

	// says, where set, reports whether a text mentions a member that cannot be looked for.
	says func(text string) bool

	// silent are the members of that kind.
	silent map[string]bool

	// mirror, where set, gives what stands in place of a text as a whole.
	mirror func(raw []byte) ([]byte, bool)
}

// What objects hold that is the protocol's word, or binary: it is left alone.
var (
	topOpaque     = map[string]bool{"isError": true, "resultType": true, "ttlMs": true, "cacheScope": true, "requestState": true}
	contentOpaque = map[string]bool{"type": true, "mimeType": true, "data": true, "blob": true, "role": true}
	paramsOpaque  = map[string]bool{"progressToken": true, "progress": true, "total": true, "level": true, "code": true, "mode": true, "url": true, "elicitationId": true}
)

// result goes through a result.
func (w *walker) result(raw []byte) []byte {
	return w.members(raw, false, func(name string, value []byte) []byte {
		switch {
		case topOpaque[name]:
			return value
		case name == "content" || name == "contents" || name == "messages":
			return w.blocks(value)
		case name == "inputRequests":
			return w.questions(value)
		}
		return w.value(value, name, false, 0)
	})
}

// questions goes through what a server asks in the place of a result: the params of each, as those of a request.
func (w *walker) questions(raw []byte) []byte {
	return w.members(raw, false, func(_ string, question []byte) []byte {
		return w.members(question, false, func(name string, value []byte) []byte {
			if name == "params" {
				return w.object(value)
			}
			return value
		})
	})
}

// object goes through the params of a notification or question, or an error.
func (w *walker) object(raw []byte) []byte {
	return w.members(raw, false, func(name string, value []byte) []byte {
		switch {
		case paramsOpaque[name]:
			return value
		case name == "content" || name == "messages":
			return w.blocks(value)
		}
		return w.value(value, name, true, 0)
	})
}

// blocks goes through blocks of content, or one of them.
func (w *walker) blocks(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '[' {
		return w.elements(raw, w.blocks)
	}
	return w.members(raw, false, func(name string, value []byte) []byte {
		switch {
		case contentOpaque[name]:
			return value
		case name == "resource" || name == "content":
			return w.blocks(value)
		case name == "text":
			if w.mirror != nil {
				if now, ok := w.mirror(value); ok {
					return now
				}
			}
			name = ""
		}
		return w.value(value, name, true, 0)
	})
}

// value goes through every text, key and number within raw, which is JSON and stands under the name. inText says
// that it is or was part of a text. nested is how many texts of JSON are around it.
func (w *walker) value(raw []byte, name string, inText bool, nested int) []byte {
	if len(raw) == 0 {
		return raw
	}
	switch raw[0] {
	case '{':
		return w.members(raw, true, func(name string, value []byte) []byte {
			_, silent := w.silent[name]
			if inText && silent && strings.IndexByte("tfn", value[0]) >= 0 {
				return []byte(Redacted)
			}
			return w.value(value, name, inText, nested)
		})
	case '[':
		return w.elements(raw, func(value []byte) []byte { return w.value(value, name, inText, nested) })
	case '"':
		text, ok := wire.String(raw)
		if !ok {
			return []byte(Redacted) // no reader is to see what this one cannot read
		}
		if now := w.json(text, name, inText, nested); now != text {
			return wire.AppendString(nil, now)
		}
	case 't', 'f', 'n':
	default:
		if w.number(raw, name) {
			return []byte(Redacted)
		}
	}
	return raw
}

// members replaces the value of each member with the value that each returns. names says that the names are not
// the protocol's, and may be replaced too. Without a change it returns raw.
func (w *walker) members(raw []byte, names bool, each func(name string, value []byte) []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return w.value(raw, "", true, 0)
	}
	var b []byte
	var taken map[string]int // once a name has changed
	passed := 0
	put := func(name string, value []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(wire.AppendString(b, name), ':'), value...)
	}
	for name, was := range wire.Members(raw) {
		now, key := each(name, was), name
		if names {
			if key = w.text(name, ""); key != name {
				if taken == nil {
					taken = namesOf(raw)
				}
				key = free(taken, key)
			}
		}
		if b == nil && (key != name || !same(now, was)) {
			b = append(make([]byte, 0, len(raw)), '{')
			before := 0
			for name, was := range wire.Members(raw) {
				if before == passed {
					break
				}
				put(name, was)
				before++
			}
		}
		if b != nil {
			put(key, now)
		}
		passed++
	}
	if b == nil {
		return raw
	}
	return append(b, '}')
}

func namesOf(object []byte) map[string]int {
	names := map[string]int{}
	for name := range wire.Members(object) {
		names[name] = 1
	}
	return names
}

// free returns the name, with a number where it is taken, and takes it: a reader may drop a member that has the name
// of another. taken holds, by name, the last number that it was given.
func free(taken map[string]int, name string) string {
	is := name
	for n := taken[name]; taken[is] > 0; {
		n++
		is = name + " " + strconv.Itoa(n)
		taken[name] = n
	}
	taken[is] = 1
	return is
}

func (w *walker) elements(raw []byte, each func([]byte) []byte) []byte {
	var b []byte
	passed := 0
	put := func(value []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, value...)
	}
	for was := range wire.Elements(raw) {
		now := each(was)
		if b == nil && !same(now, was) {
			b = append(make([]byte, 0, len(raw)), '[')
			before := 0
			for was := range wire.Elements(raw) {
				if before == passed {
					break
				}
				put(was)
				before++
			}
		}
		if b != nil {
			put(now)
		}
		passed++
	}
	if b == nil {
		return raw
	}
	return append(b, ']')
}

// maxNested bounds the texts of JSON within each other that are read as JSON. Deeper ones are searched.
const maxNested = 8

// json goes through a text. A text of JSON stays JSON.
func (w *walker) json(text, name string, inText bool, nested int) string {
	if inText && nested < maxNested && strings.ContainsAny(text[:min(len(text), 64)], "{[") {
		if raw := []byte(strings.TrimSpace(text)); json.Valid(raw) {
			return string(w.value(raw, name, true, nested+1))
		}
	}
	if inText && w.says != nil && w.says(text) {
		return redacted
	}
	return w.text(text, name)
}
