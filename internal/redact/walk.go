package redact

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A walker visits all texts, keys and numbers of a result, and may replace them.
type walker struct {
	// text returns the replacement of a text or key that is not JSON. name is the member that holds
	// the text, or "".
	text func(text, name string) string

	// number reports whether a number must be replaced.
	number func(raw []byte, name string) bool

	// mentions, if set, reports whether a text mentions a member with a value that cannot be
	// searched.
	mentions func(text string) bool

	// silent holds the names of those members.
	silent map[string]bool

	// mirror, if set, returns the replacement of a whole text.
	mirror func(raw []byte) ([]byte, bool)
}

// Members of objects that belong to the protocol or hold binary data. They stay as they are.
var (
	topOpaque     = map[string]bool{"isError": true, "resultType": true, "ttlMs": true, "cacheScope": true, "requestState": true}
	contentOpaque = map[string]bool{"type": true, "mimeType": true, "data": true, "blob": true, "role": true}
	paramsOpaque  = map[string]bool{"progressToken": true, "progress": true, "total": true, "level": true, "code": true, "mode": true, "url": true, "elicitationId": true}
)

// walkResult visits a result.
func (w *walker) walkResult(raw []byte) []byte {
	return w.walkMembers(raw, false, func(name string, value []byte) []byte {
		switch {
		case topOpaque[name]:
			return value
		case name == "content" || name == "contents" || name == "messages":
			return w.walkBlocks(value)
		case name == "inputRequests":
			return w.walkQuestions(value)
		}
		return w.walkValue(value, name, false, 0)
	})
}

// walkQuestions visits the questions of a server that come in place of a result: the params of
// each, like the params of a request.
func (w *walker) walkQuestions(raw []byte) []byte {
	return w.walkMembers(raw, false, func(_ string, question []byte) []byte {
		return w.walkMembers(question, false, func(name string, value []byte) []byte {
			if name == "params" {
				return w.walkObject(value)
			}
			return value
		})
	})
}

// walkObject visits the params of a notification or question, or an error.
func (w *walker) walkObject(raw []byte) []byte {
	return w.walkMembers(raw, false, func(name string, value []byte) []byte {
		switch {
		case paramsOpaque[name]:
			return value
		case name == "content" || name == "messages":
			return w.walkBlocks(value)
		}
		return w.walkValue(value, name, true, 0)
	})
}

// walkBlocks visits blocks of content, or one block.
func (w *walker) walkBlocks(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '[' {
		return w.walkElements(raw, w.walkBlocks)
	}
	return w.walkMembers(raw, false, func(name string, value []byte) []byte {
		switch {
		case contentOpaque[name]:
			return value
		case name == "resource" || name == "content":
			return w.walkBlocks(value)
		case name == "text":
			if w.mirror != nil {
				if now, ok := w.mirror(value); ok {
					return now
				}
			}
			name = ""
		}
		return w.walkValue(value, name, true, 0)
	})
}

// walkValue visits every text, key and number within raw, which is JSON and the value of the member
// name. inText says that raw is or was inside a text. nested is the number of JSON texts around it.
func (w *walker) walkValue(raw []byte, name string, inText bool, nested int) []byte {
	if len(raw) == 0 {
		return raw
	}
	switch raw[0] {
	case '{':
		return w.walkMembers(raw, true, func(name string, value []byte) []byte {
			_, silent := w.silent[name]
			if inText && silent && strings.IndexByte("tfn", value[0]) >= 0 {
				return []byte(Redacted)
			}
			return w.walkValue(value, name, inText, nested)
		})
	case '[':
		return w.walkElements(raw, func(value []byte) []byte { return w.walkValue(value, name, inText, nested) })
	case '"':
		text, ok := wire.String(raw)
		if !ok {
			return []byte(Redacted) // a client must not see what cannot be read here
		}
		if now := w.walkText(text, name, inText, nested); now != text {
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

// walkMembers replaces the value of each member by the value that each returns. names says that the
// names do not belong to the protocol and may be replaced too. Without a change it returns raw.
func (w *walker) walkMembers(raw []byte, names bool, each func(name string, value []byte) []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return w.walkValue(raw, "", true, 0)
	}
	var b []byte
	var taken map[string]int // set once a name has changed
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
				key = uniqueName(taken, key)
			}
		}
		if b == nil && (key != name || !sameMemory(now, was)) {
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

// uniqueName returns the name, with a number added if it is taken, and takes it: a reader may drop a
// member with a duplicate name. taken holds, by name, the last number added to it.
func uniqueName(taken map[string]int, name string) string {
	is := name
	for n := taken[name]; taken[is] > 0; {
		n++
		is = name + " " + strconv.Itoa(n)
		taken[name] = n
	}
	taken[is] = 1
	return is
}

func (w *walker) walkElements(raw []byte, each func([]byte) []byte) []byte {
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
		if b == nil && !sameMemory(now, was) {
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

// maxNested limits the JSON texts within each other that are parsed. Deeper ones are searched as
// text.
const maxNested = 8

// walkText visits a text. A JSON text stays JSON.
func (w *walker) walkText(text, name string, inText bool, nested int) string {
	if inText && nested < maxNested && strings.ContainsAny(text[:min(len(text), 64)], "{[") {
		if raw := []byte(strings.TrimSpace(text)); json.Valid(raw) {
			return string(w.walkValue(raw, name, true, nested+1))
		}
	}
	if inText && w.mentions != nil && w.mentions(text) {
		return redacted
	}
	return w.text(text, name)
}
