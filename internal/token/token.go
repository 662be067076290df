// Package token counts the tokens of texts exactly as the tokenizers of language models do. The counts are charged
// against budgets, so nothing is estimated. No text that a server makes up takes long to count.
//
// A text is split into pieces (split.go), and each piece is merged into tokens (merge.go) of a vocabulary
// (vocabulary.go). The library that the vocabularies come from is not used: its splitter is wrong for some texts and takes
// hours for others, and its tables take 7 MiB of memory and 100 ms.
//
// A text of n bytes has at most n tokens. So a caller that only asks whether a text fits need not count a short one.
// The count of two joined texts is not the sum of their counts. Special tokens of tokenizers, such as <|endoftext|>,
// are ordinary text here.
package token

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// maxRememberedCounts limits how many counts a Counter is sure to remember; it remembers at most twice as many. The largest
// catalog that we know has 9,366 tools.
const maxRememberedCounts = 16 << 10

// A Counter counts tokens in one encoding, and remembers counts for a while. Use New. It is safe for concurrent use.
type Counter struct {
	vocabulary *vocabulary
	split      splitFunc

	// young and old map the SHA-256 of a text to its count. When young holds maxKept counts, it becomes old, and the
	// previous old is dropped. A count that is used again moves from old to young.
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]func() int
}

// New returns a Counter for the encoding, o200k_base or cl100k_base.
func New(encoding string) (*Counter, error) {
	c := &Counter{young: map[[sha256.Size]byte]func() int{}}
	switch encoding {
	case "o200k_base":
		c.vocabulary, c.split = o200k, splitO200k
	case "cl100k_base":
		c.vocabulary, c.split = cl100k, splitCl100k
	default:
		return nil, fmt.Errorf("no encoding of tokens is called %q", encoding)
	}
	return c, nil
}

// Count returns how many tokens the text has. The text is UTF-8. A text that has not been counted yet takes at most
// half a second for a megabyte. Callers with the same text wait for one count; callers with different texts never wait
// for each other.
func (c *Counter) Count(text []byte) int { return c.countFunc(text)() }

// countFunc returns a function that counts the text once.
func (c *Counter) countFunc(text []byte) func() int {
	key := sha256.Sum256(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if count, ok := c.young[key]; ok {
		return count
	}
	count, ok := c.old[key]
	if !ok {
		count = sync.OnceValue(func() int { return c.countTokens(text) }) // OnceValue releases text after the count
	}
	if len(c.young) == maxRememberedCounts {
		c.young, c.old = make(map[[sha256.Size]byte]func() int, maxRememberedCounts), c.young
	}
	c.young[key] = count
	return count
}

func (c *Counter) countTokens(text []byte) (n int) {
	m := merger{vocabulary: c.vocabulary}
	for i := 0; i < len(text); {
		end := c.split(text, i)
		n += m.countTokens(text[i:end])
		i = end
	}
	return n
}
