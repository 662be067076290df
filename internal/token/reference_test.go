package token

import (
	"math"
	"slices"
	"testing"

	"github.com/dlclark/regexp2/v2"
	"github.com/tiktoken-go/tokenizer/codec"
)

var encodings = []string{"o200k_base", "cl100k_base"}

// vocabularyOf returns the tokens of an encoding, by rank.
func vocabularyOf(encoding string) (tokens []string) {
	c := codec.NewO200kBase()
	if encoding == "cl100k_base" {
		c = codec.NewCl100kBase()
	}
	for {
		text, err := c.Decode([]uint{uint(len(tokens))})
		if err != nil {
			return tokens
		}
		tokens = append(tokens, text)
	}
}

// A reference counts as the encodings are defined, slowly: with the regular expressions of their makers, and with one
// merge after another.
//
// The library that has the vocabulary is no reference. It splits "\n  \n" in two, ignores U+007F, and needs hours to
// count 512 KiB of " \n". The error is in the code generated from its expressions; the expressions are right.
type reference struct {
	pieces *regexp2.Regexp
	ranks  map[string]int
}

func newReference(encoding string) *reference {
	// The group makes the library use the expression, not the generated code.
	r := &reference{ranks: map[string]int{}, pieces: regexp2.MustCompile("(?:" + map[string]string{
		"o200k_base": `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		"cl100k_base": `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	}[encoding] + ")")}
	for rank, text := range vocabularyOf(encoding) {
		r.ranks[text] = rank
	}
	return r
}

func (r *reference) split(t testing.TB, text string) (pieces []string) {
	m, err := r.pieces.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = r.pieces.FindNextMatch(m) {
		pieces = append(pieces, m.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return pieces
}

func (r *reference) count(t testing.TB, text string) (n int) {
	for _, piece := range r.split(t, text) {
		n += len(r.merge(piece))
	}
	return n
}

func (r *reference) merge(piece string) (parts []string) {
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		least, at := math.MaxInt, 0
		for i := range len(parts) - 1 {
			if rank, ok := r.ranks[parts[i]+parts[i+1]]; ok && rank < least {
				least, at = rank, i
			}
		}
		if least == math.MaxInt {
			return parts
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
}
