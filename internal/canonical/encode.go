package canonical

import (
	"encoding/json"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Encode returns v's JSON. v consists of our own types, which always encode, and always in the
// same way: maps are sorted. The result is not in canonical form.
func Encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("encode: " + err.Error())
	}
	return text
}

// SumOf returns the digest of v's JSON; see Encode.
func SumOf(v any) switchboard.Digest { return Sum(Encode(v)) }
