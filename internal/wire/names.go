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
// for, where that is not name itself.
func lookalike(name []byte, where place) (like string, found bool) {
	var scratch [maxWatched]byte
	folded, ok := fold(scratch[:0], name)
	if ok {
		like, found = watchedNames[where][string(folded)]
	}
	if !found {
		if before, _, cut := bytes.Cut(name, []byte{0}); cut {
			if folded, ok = fold(scratch[:0], before); ok {
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
		c := name[i]
		if c < utf8.RuneSelf {
			i++
			if c = foldASCII[c]; c == 0 {
				continue
			}
		} else {
			r, n := utf8.DecodeRune(name[i:])
			i += n
			if unseen(r) {
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

// foldASCII is the lower case of each character, and 0 where it leaves no mark.
var foldASCII = func() (t [utf8.RuneSelf]byte) {
	for c := range rune(utf8.RuneSelf) {
		if !unseen(c) {
			t[c] = byte(unicode.ToLower(c))
		}
	}
	return t
}()

// foldRune returns the lower-case ASCII character that r, which is not ASCII,
// equals for some reader that ignores case, or 0: ſ is s, the Kelvin sign is k,
// and for those that map to upper or lower case rather than fold, İ and ı are i.
func foldRune(r rune) byte {
	for _, c := range [...]rune{unicode.ToLower(r), unicode.ToUpper(r)} {
		if c < utf8.RuneSelf {
			return byte(unicode.ToLower(c))
		}
	}
	return 0
}

// unseen reports whether r leaves no mark: controls, spaces, formats (zero
// width, bidirectional, tags) and variation selectors.
func unseen(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Z, unicode.Variation_Selector)
}
