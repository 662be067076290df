package wire

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The names that may not be imitated, by their lower-case form. A reader that
// ignores case (as encoding/json does), stops at a NUL, or drops what cannot be
// seen, would take an imitation for the name itself, and so read another
// message than we did.
var watchedNames = [...]map[string]string{
	inEnvelope: watched("jsonrpc", "id", "method", "params", "result", "error"),

	// The params of every method in one set: nothing is lost by refusing an
	// imitation of a name that belongs to another method.
	inParams: watched(
		"_meta", "name", "arguments", "uri", "cursor", "protocolVersion", "capabilities", "clientInfo", "level",
		"requestId", "progressToken", "reason", "notifications", "inputResponses", "requestState", "task", "taskId",
		"progress", "total", "message", "logger", "data", "ref", "argument", "context", "status", "ttl",
	),
	inMeta: watched(
		MetaProgressToken, MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaServerInfo, MetaLogLevel,
		MetaSubscriptionID, MetaRelatedTask,
	),
}

func watched(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, n := range names {
		m[strings.ToLower(n)] = n
	}
	return m
}

// maxWatched is how long a folded name may be and still be a watched one.
const maxWatched = 64

// lookalike returns the watched name that a lenient reader could take name
// for, and reports whether name is another. like is "" where there is none.
func lookalike(name []byte, where place) (like string, found bool) {
	var scratch [maxWatched]byte
	folded, ok := fold(scratch[:0], name)
	if ok {
		like, found = watchedNames[where][string(folded)]
	}
	if !found {
		if i := bytes.IndexByte(name, 0); i >= 0 {
			if folded, ok = fold(scratch[:0], name[:i]); ok {
				like, found = watchedNames[where][string(folded)]
			}
		}
	}
	if found {
		return like, like != string(name)
	}
	// In _meta, all of the protocol's keys and ours are known by their prefix.
	if where == inMeta {
		for _, prefix := range [...]string{MetaPrefix, MetaOurPrefix} {
			if bytes.HasPrefix(folded, []byte(prefix)) && !bytes.HasPrefix(name, []byte(prefix)) {
				return prefix, true
			}
		}
	}
	return "", false
}

// fold appends name in lower-case ASCII, without what cannot be seen. It stops
// and reports false where the result can equal no watched name.
func fold(dst, name []byte) ([]byte, bool) {
	for i := 0; i < len(name); {
		r, n := rune(name[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(name[i:])
		}
		i += n
		if unseen(r) {
			continue
		}
		c, ok := foldRune(r)
		if !ok || len(dst) == maxWatched {
			return dst, false
		}
		dst = append(dst, c)
	}
	return dst, true
}

// foldRune returns the lower-case ASCII character that r equals for some reader
// that ignores case: ſ is s, the Kelvin sign is k, and for those that map to
// upper or lower case rather than fold, İ and ı are i.
func foldRune(r rune) (byte, bool) {
	if 'A' <= r && r <= 'Z' {
		return byte(r) + 'a' - 'A', true
	}
	if r < utf8.RuneSelf {
		return byte(r), true
	}
	for _, c := range [...]rune{unicode.SimpleFold(r), unicode.ToLower(r), unicode.ToUpper(r)} {
		if c < utf8.RuneSelf {
			return byte(unicode.ToLower(c)), true
		}
	}
	return 0, false
}

// unseen reports whether r leaves no mark: controls, spaces, formats (zero
// width, bidirectional, tags) and variation selectors.
func unseen(r rune) bool {
	if r < utf8.RuneSelf {
		return r <= ' ' || r == 0x7F
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Z, unicode.Variation_Selector)
}
