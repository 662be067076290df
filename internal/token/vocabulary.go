package token

import (
	_ "embed"
	"encoding/binary"
)

// A vocabulary maps each token to its rank: of two candidates, the one with the lower rank is merged first. It is a
// hash table in the program's read-only data: nothing is loaded, and the system can drop its pages. A test writes the
// tables from a library's vocabularies, and compares them.
type vocabulary struct {
	bits    int    // there are 1<<bits buckets
	longest int    // the length of the longest token
	ends    string // the end of each bucket in tokens, after a leading 0; four bytes each, little-endian
	tokens  string // all tokens by bucket, and by rank within a bucket: length (one byte), rank (three bytes), text
}

//go:embed o200k_base.table
var o200kTable string

//go:embed cl100k_base.table
var cl100kTable string

var (
	o200k  = vocabularyIn(o200kTable)
	cl100k = vocabularyIn(cl100kTable)
)

// vocabularyIn returns the vocabulary in a table: one byte with its bits, one with the length of the longest token,
// the ends, and the tokens.
func vocabularyIn(table string) *vocabulary {
	v := &vocabulary{bits: int(table[0]), longest: int(table[1])}
	size := 4 * (1<<v.bits + 1)
	v.ends, v.tokens = table[2:2+size], table[2+size:]
	return v
}

// noRank is the rank of a text that is not a token.
const noRank = 1<<32 - 1

// rankOf returns the text's index among all tokens, or noRank if it is not a token.
func (v *vocabulary) rankOf(text []byte) uint32 {
	if len(text) > v.longest {
		return noRank
	}
	b := 4 * bucketOf(text, v.bits)
	for t := v.tokens[readNumber(v.ends[b:]):readNumber(v.ends[b+4:])]; len(t) > 0; {
		end := 4 + int(t[0])
		if t[4:end] == string(text) {
			return readNumber(t) >> 8
		}
		t = t[end:]
	}
	return noRank
}

// readNumber returns the number in the first four bytes of s, little-endian.
func readNumber(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// bucketOf returns the number of the bucket that the text is in, if it is a token.
func bucketOf(text []byte, bits int) uint32 {
	const odd = 0x9e3779b97f4a7c15
	h := uint64(len(text))
	for ; len(text) >= 8; text = text[8:] {
		h = (h ^ binary.LittleEndian.Uint64(text)) * odd
		h ^= h >> 32
	}
	for _, c := range text {
		h = (h ^ uint64(c)) * odd
	}
	return uint32((h ^ h>>29) * odd >> (64 - bits))
}
