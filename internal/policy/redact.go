package policy

import (
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Redacted stands where something was that is not to be seen.
const Redacted = `"[redacted]"`

// redact takes out of a result what the JSON pointers name (RFC 6901). All
// else stays as it is, to the byte, but for space between the elements of an
// array that is changed. A pointer to what is not there names nothing.
func redact(r switchboard.Result, pointers []string) switchboard.Result {
	text := r.JSON
	for _, p := range pointers {
		text = without(text, strings.Split(p, "/")[1:])
	}
	if same(text, r.JSON) {
		return r
	}
	if r.Release != nil {
		r.Release() // what is left has been copied
	}
	return switchboard.Result{JSON: text, Moved: r.Moved, Again: r.Again}
}

var unescapeToken = strings.NewReplacer("~1", "/", "~0", "~")

// without returns raw itself where the path leads to nothing, else a copy.
func without(raw []byte, path []string) []byte {
	if len(path) == 0 {
		return []byte(Redacted)
	}
	token := unescapeToken.Replace(path[0])
	switch {
	case len(raw) > 0 && raw[0] == '{':
		was, ok := wire.Field(raw, token)
		if !ok {
			return raw
		}
		now := without(was, path[1:])
		if same(was, now) {
			return raw
		}
		return wire.Rewrite(nil, raw, wire.Edit{Name: token, Value: now})
	case len(raw) > 0 && raw[0] == '[':
		n, err := strconv.Atoi(token)
		if err != nil || strconv.Itoa(n) != token {
			return raw
		}
		return withoutElement(raw, n, path[1:])
	}
	return raw
}

func withoutElement(array []byte, n int, path []string) []byte {
	b := []byte{'['}
	i, changed := 0, false
	for was := range wire.Elements(array) {
		if i > 0 {
			b = append(b, ',')
		}
		now := was
		if i == n {
			now = without(was, path)
			changed = !same(was, now)
		}
		b = append(b, now...)
		i++
	}
	if !changed {
		return array
	}
	return append(b, ']')
}

// same reports whether both are the same memory.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
