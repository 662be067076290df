package token

import (
	"encoding/binary"

	"github.com/tiktoken-go/tokenizer/codec"
)

// A vocabulary maps each token to its rank: of two candidates, the one with the lower rank is merged first. It is a
// hash table in one slice of bytes. The library's own table cannot be queried for ranks, and a map would take three
// times the memory.
type vocabulary struct {
	bits    uint8    // there are 1<<bits buckets
	ends    []uint32 // the end of each bucket in tokens, after a leading 0
	tokens  []byte   // all tokens by bucket, and by rank within a bucket: length (one byte), rank (three bytes), text
	longest int      // the length of the longest token
}

// noRank is the rank of a text that is not a token.
const noRank = 1<<32 - 1

// readVocabulary copies the library's vocabulary into a table.
func readVocabulary(c *codec.Codec, bits uint8) *vocabulary {
	var texts []string
	for {
		text, err := c.Decode([]uint{uint(len(texts))})
		if err != nil {
			break // that was the last token, because the ranks have no gaps
		}
		texts = append(texts, text)
	}
	v := &vocabulary{bits: bits, ends: make([]uint32, 1<<bits+1)}
	total := 0
	for _, text := range texts {
		v.longest = max(v.longest, len(text))
		v.ends[bucketOf([]byte(text), bits)+1] += uint32(4 + len(text))
		total += 4 + len(text)
	}
	at := make([]uint32, 1<<bits) // the offset of the next token of each bucket
	for b := range at {
		at[b] = v.ends[b]
		v.ends[b+1] += v.ends[b]
	}
	v.tokens = make([]byte, total)
	for rank, text := range texts {
		i := &at[bucketOf([]byte(text), bits)]
		copy(v.tokens[*i:], []byte{byte(len(text)), byte(rank), byte(rank >> 8), byte(rank >> 16)})
		*i += 4 + uint32(copy(v.tokens[*i+4:], text))
	}
	return v
}

// rankOf returns the text's index among all tokens, or noRank if it is not a token.
func (v *vocabulary) rankOf(text []byte) uint32 {
	if len(text) > v.longest {
		return noRank
	}
	b := bucketOf(text, v.bits)
	for t := v.tokens[v.ends[b]:v.ends[b+1]]; len(t) > 0; {
		end := 4 + int(t[0])
		if string(t[4:end]) == string(text) {
			return uint32(t[1]) | uint32(t[2])<<8 | uint32(t[3])<<16
		}
		t = t[end:]
	}
	return noRank
}

// bucketOf returns the number of the bucket that the text is in, if it is a token.
func bucketOf(text []byte, bits uint8) uint32 {
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
