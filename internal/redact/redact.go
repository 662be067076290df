// Package redact takes data out of results, before a client or a cache gets them.
//
// The caller says which fields to remove. The package removes them, and then the same values in the rest of the
// result: many servers repeat their structured content as text. Package policy decides which fields these are.
package redact

import (
	"math/big"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Redacted stands in place of a field, as JSON; and without the quotes in place of a part of a text.
const Redacted = `"[redacted]"`

// Fields removes what the JSON pointers (RFC 6901) name from the result, and the values that they named from
// the rest of it:
//
//   - A text that is the structured content as JSON is written again from the redacted one.
//   - In every other text, key and value, each redacted text and number is replaced, also where it is spelt
//     with escapes of JSON, at any depth of JSON within texts.
//   - A text is replaced whole if the values are too many or too long to search for, or if the text mentions a
//     member that held true, false or null.
//
// Binary data (data, blob), and what is encoded in another way, such as base64, stays as it is. If nothing is
// redacted, the result stays as it is, to the byte. A pointer to what is not there names nothing.
func Fields(r switchboard.Result, pointers []string) switchboard.Result {
	text, v := r.JSON, &values{texts: map[string]bool{}, numbers: map[string][]*big.Rat{}, names: map[string]bool{}}
	for _, p := range pointers {
		text = v.without(text, p)
	}
	if same(text, r.JSON) {
		return r
	}
	before, _ := wire.Field(r.JSON, "structuredContent")
	after, _ := wire.Field(text, "structuredContent")
	text = v.masker(before, after).result(text)
	if r.Release != nil {
		r.Release() // what is left has been copied
	}
	return switchboard.Result{JSON: text, Moved: r.Moved, Again: r.Again}
}
