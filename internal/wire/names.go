package wire

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// watchedNames maps the lower-case form of each name that must not be imitated to the name. Some readers ignore case
// (as encoding/json does), stop at a NUL, or drop invisible characters. Such a reader would take an imitation for the
// name itself, and so read another message than Switchboard did.
var watchedNames = [...]map[string]string{
	inEnvelope: watchedSet("jsonrpc", "id", "method", "params", "result", "error"),

	// The params of all methods form one set. Refusing the imitation of another method's name does no harm.
	inParams: watchedSet(
		"_meta", "name", "arguments", "uri", "cursor", "protocolVersion", "capabilities", "clientInfo", "level",
		"requestId", "progressToken", "reason", "notifications", "inputResponses", "requestState", "task", "taskId",
		"progress", "total", "message", "logger", "data", "ref", "argument", "context", "status", "ttl",
	),
	inMeta: watchedSet(
		MetaProgressToken, MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaServerInfo, MetaLogLevel,
		MetaSubscriptionID, MetaRelatedTask,
	),
}

func watchedSet(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, n := range names {
		m[strings.ToLower(n)] = n
	}
	return m
}

// maxWatched is the greatest length of a watched name.
const maxWatched = 64

// lookalike returns the watched name that a lenient reader could read instead of name, unless name is that name.
func lookalike(name []byte, where objectRole) (like string, found bool) {
	var scratch [maxWatched]byte
	folded, ok := foldName(scratch[:0], name)
	if ok {
		like, found = watchedNames[where][string(folded)]
	}
	if !found {
		if before, _, cut := bytes.Cut(name, []byte{0}); cut {
			if folded, ok = foldName(scratch[:0], before); ok {
				like, found = watchedNames[where][string(folded)]
			}
		}
	}
	if found {
		return like, like != string(name)
	}
	// In _meta, a prefix identifies the protocol's keys and ours.
	if where == inMeta {
		for _, prefix := range [...]string{MetaPrefix, MetaOurPrefix} {
			if bytes.HasPrefix(folded, []byte(prefix)) && !bytes.HasPrefix(name, []byte(prefix)) {
				return prefix, true
			}
		}
	}
	return "", false
}

// foldName appends name in lower-case ASCII, without invisible characters. It stops and returns false if the result cannot
// equal a watched name.
func foldName(dst, name []byte) ([]byte, bool) {
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			i++
			if c = foldASCII[c]; c == 0 {
				continue
			}
		} else {
			r, n := utf8.DecodeRune(name[i:])
			i += n
			if invisible(r) {
				continue
			}
			if c = foldRune(r); c == 0 {
				return dst, false
			}
		}
		if len(dst) == maxWatched {
			return dst, false
		}
		dst = append(dst, c)
	}
	return dst, true
}

// foldASCII maps each ASCII character to lower case, and invisible ones to 0.
var foldASCII = func() (t [utf8.RuneSelf]byte) {
	for c := range rune(utf8.RuneSelf) {
		if !invisible(c) {
			t[c] = byte(unicode.ToLower(c))
		}
	}
	return t
}()

// foldRune returns the lower-case ASCII character that some reader that ignores case treats as equal to r, or 0. r is
// not ASCII. For example, ſ equals s and the Kelvin sign equals k; for readers that map to upper or lower case instead
// of folding, İ and ı equal i.
func foldRune(r rune) byte {
	for _, c := range [...]rune{unicode.ToLower(r), unicode.ToUpper(r)} {
		if c < utf8.RuneSelf {
			return byte(unicode.ToLower(c))
		}
	}
	return 0
}

// invisible reports whether r is invisible: controls, spaces, formats (zero width, bidirectional, tags) and variation
// selectors.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Z, unicode.Variation_Selector)
}
