package redact

import (
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

var unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")

// removeField removes the field that the pointer names, and records its values. The other bytes
// stay, except for space between the elements of a changed array. If the pointer names nothing, it
// returns raw itself, else a copy.
func (v *redactedValues) removeField(raw []byte, pointer string) []byte {
	return v.removeAt("", raw, strings.Split(pointer, "/")[1:])
}

func (v *redactedValues) removeAt(name string, raw []byte, path []string) []byte {
	if len(path) == 0 {
		if string(raw) != Redacted {
			v.addValue(name, raw)
		}
		return []byte(Redacted)
	}
	token := unescapeToken.Replace(path[0])
	switch {
	case len(raw) > 0 && raw[0] == '{':
		was, ok := wire.Field(raw, token)
		if !ok {
			return raw
		}
		now := v.removeAt(token, was, path[1:])
		if sameMemory(was, now) {
			return raw
		}
		return wire.Rewrite(nil, raw, wire.Edit{Name: token, Value: now})
	case len(raw) > 0 && raw[0] == '[':
		n, err := strconv.Atoi(token)
		if err != nil || strconv.Itoa(n) != token {
			return raw
		}
		return v.removeElement(name, raw, n, path[1:])
	}
	return raw
}

func (v *redactedValues) removeElement(name string, array []byte, n int, path []string) []byte {
	b := []byte{'['}
	i, changed := 0, false
	for was := range wire.Elements(array) {
		if i > 0 {
			b = append(b, ',')
		}
		now := was
		if i == n {
			now = v.removeAt(name, was, path)
			changed = !sameMemory(was, now)
		}
		b = append(b, now...)
		i++
	}
	if !changed {
		return array
	}
	return append(b, ']')
}

// sameMemory reports whether both slices are the same memory.
func sameMemory(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
