package token

import (
	"encoding/binary"

	"github.com/tiktoken-go/tokenizer/codec"
)

// A vocabulary says of a text whether it is a token, and which of two is merged first.
// It is a hash table in one piece: the library's own cannot be asked, and a map would
// take three times the memory.
type vocabulary struct {
	bits    uint8    // there are 1<<bits buckets
	ends    []uint32 // of each bucket, and of one that is empty before them, in tokens
	tokens  []byte   // of each, in the order of ranks within a bucket: length (one byte), rank (three bytes), text
	longest int      // token
}

// noRank is that of what is no token.
const noRank = 1<<32 - 1

// read makes a table of the vocabulary of the library.
func read(c *codec.Codec, bits uint8) *vocabulary {
	var texts []string
	for {
		text, err := c.Decode([]uint{uint(len(texts))})
		if err != nil {
			break // there are no more: the ranks have no gaps
		}
		texts = append(texts, text)
	}
	v := &vocabulary{bits: bits, ends: make([]uint32, 1<<bits+1)}
	total := 0
	for _, text := range texts {
		v.longest = max(v.longest, len(text))
		v.ends[bucket([]byte(text), bits)+1] += uint32(4 + len(text))
		total += 4 + len(text)
	}
	at := make([]uint32, 1<<bits) // where the next one of a bucket goes
	for b := range at {
		at[b] = v.ends[b]
		v.ends[b+1] += v.ends[b]
	}
	v.tokens = make([]byte, total)
	for rank, text := range texts {
		i := &at[bucket([]byte(text), bits)]
		copy(v.tokens[*i:], []byte{byte(len(text)), byte(rank), byte(rank >> 8), byte(rank >> 16)})
		*i += 4 + uint32(copy(v.tokens[*i+4:], text))
	}
	return v
}

// rank returns the place of the text among all tokens, noRank where it is none.
func (v *vocabulary) rank(text []byte) uint32 {
	if len(text) > v.longest {
		return noRank
	}
	b := bucket(text, v.bits)
	for t := v.tokens[v.ends[b]:v.ends[b+1]]; len(t) > 0; {
		end := 4 + int(t[0])
		if string(t[4:end]) == string(text) {
			return uint32(t[1]) | uint32(t[2])<<8 | uint32(t[3])<<16
		}
		t = t[end:]
	}
	return noRank
}

// bucket returns the one in which the text must be, if it is a token.
func bucket(text []byte, bits uint8) uint32 {
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
