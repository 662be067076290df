package wire

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// The marks around a header value that is not plain ASCII.
const (
	sentinelOpen  = "=?base64?"
	sentinelClose = "?="
)

// EncodeHeader returns s in the form for Mcp-Name and Mcp-Param-* headers. That is s itself, or Base64 between
// =?base64? and ?= if HTTP would change or refuse s, or if s looks like the Base64 form.
func EncodeHeader(s string) string {
	coded := strings.HasPrefix(s, sentinelOpen) && strings.HasSuffix(s, sentinelClose)
	if plainHeader(s) && !coded && strings.Trim(s, " ") == s {
		return s
	}
	return sentinelOpen + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelClose
}

// DecodeHeader reverses EncodeHeader. It returns false if the value has neither form, or is not UTF-8 once decoded.
func DecodeHeader(s string) (string, bool) {
	if !plainHeader(s) {
		return "", false
	}
	coded, ok := strings.CutPrefix(s, sentinelOpen)
	if ok {
		coded, ok = strings.CutSuffix(coded, sentinelClose)
	}
	if !ok {
		return s, true
	}
	text, err := base64.StdEncoding.Strict().DecodeString(coded)
	if err != nil || !utf8.Valid(text) {
		return "", false
	}
	return string(text), true
}

// plainHeader reports whether s is printable ASCII.
func plainHeader(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
