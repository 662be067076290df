// Package token counts the tokens of texts, exactly as the tokenizers of language
// models do, whatever the text is: what it says is charged against budgets, so nothing
// is estimated, and no text that a server makes up takes long.
//
// A text is split into pieces (split.go), and each piece is merged into tokens
// (merge.go) of a vocabulary, which is that of a library (vocabulary.go). The library's
// own splitting is not used: it is wrong for some texts and takes hours for others.
//
// A text of n bytes never has more than n tokens, so that whoever wants to know only
// whether it fits need not count a short one. The tokens of two texts one behind the
// other are not the sum of theirs. What tokenizers take for a special token, such as
// <|endoftext|>, is text here.
package token

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/tiktoken-go/tokenizer/codec"
)

const (
	// maxKept bounds how many counts a Counter remembers for certain; it remembers
	// up to twice as many. The largest catalog that we know has 9,366 tools.
	maxKept = 16 << 10

	// loaded is for how long a vocabulary that nobody needs is kept. To load it
	// takes a tenth of a second. It takes 2.6 MB; those of the library stay.
	loaded = time.Minute
)

// A Counter counts in one encoding, and remembers counts for a while. Use New. It is
// safe for concurrent use.
type Counter struct {
	read  func() *vocabulary
	split splitter

	// Counts by the SHA-256 of the text. When the young are maxKept, they become the
	// old, which are forgotten but for those that are asked for again.
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]func() int

	loading sync.Mutex
	words   *vocabulary // nil while nobody has needed it for long
	drop    *time.Timer
}

// New returns a Counter for the encoding, o200k_base or cl100k_base.
func New(encoding string) (*Counter, error) {
	c := &Counter{young: map[[sha256.Size]byte]func() int{}}
	switch encoding {
	case "o200k_base":
		c.read, c.split = func() *vocabulary { return read(codec.NewO200kBase(), 17) }, splitO200k
	case "cl100k_base":
		c.read, c.split = func() *vocabulary { return read(codec.NewCl100kBase(), 16) }, splitCl100k
	default:
		return nil, fmt.Errorf("no encoding of tokens is called %q", encoding)
	}
	return c, nil
}

// Count returns how many tokens the text has, which is UTF-8. It takes a tenth of a
// second at first, and then at worst half a second of work for a megabyte that it has
// not counted yet. Who asks for a text that is being counted waits for that; nobody
// waits for another.
func (c *Counter) Count(text []byte) int { return c.kept(text)() }

// kept returns what counts the text, once.
func (c *Counter) kept(text []byte) func() int {
	key := sha256.Sum256(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if count, ok := c.young[key]; ok {
		return count
	}
	count, ok := c.old[key]
	if !ok {
		count = sync.OnceValue(func() int { return c.count(text) }) // lets go of the text
	}
	if len(c.young) == maxKept {
		c.young, c.old = make(map[[sha256.Size]byte]func() int, maxKept), c.young
	}
	c.young[key] = count
	return count
}

func (c *Counter) count(text []byte) (n int) {
	m := merger{words: c.load()}
	for i := 0; i < len(text); {
		end := c.split(text, i)
		n += m.count(text[i:end])
		i = end
	}
	return n
}

// load returns the vocabulary, and lets go of it when nobody has asked for it for
// some time.
func (c *Counter) load() *vocabulary {
	c.loading.Lock()
	defer c.loading.Unlock()
	if c.words == nil {
		c.words = c.read()
		c.drop = time.AfterFunc(loaded, func() {
			c.loading.Lock()
			defer c.loading.Unlock()
			c.words = nil
		})
	} else {
		c.drop.Reset(loaded)
	}
	return c.words
}
