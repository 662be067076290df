package contract

import (
	"errors"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A definition is what is worked out, when it is needed first, of a tool's
// definition. It is safe for concurrent use.
type definition struct {
	input, output func() (*schema, error)

	// form is that of the input schema.
	form func() *form

	// shape is the digest of the input schema, and result that of the output
	// schema; "" where there is none.
	shape, result func() switchboard.Digest
}

// maxKnown bounds the definitions that are kept, by the bytes of their text.
const maxKnown = 32 << 20

// known are the definitions that have been needed, by their digest: what is
// worked out of one hangs on nothing else.
var known = struct {
	sync.RWMutex
	of    map[switchboard.Digest]*definition
	bytes int
}{of: map[switchboard.Digest]*definition{}}

// definitionOf returns what is known of the tool's definition.
func definitionOf(t *switchboard.Tool) *definition {
	if t.Digest == "" { // nobody has read it
		return newDefinition(t.Definition)
	}
	known.RLock()
	d := known.of[t.Digest]
	known.RUnlock()
	if d != nil {
		return d
	}
	known.Lock()
	defer known.Unlock()
	if d := known.of[t.Digest]; d != nil {
		return d
	}
	if known.bytes += len(t.Definition); known.bytes > maxKnown {
		clear(known.of)
		known.bytes = len(t.Definition)
	}
	d = newDefinition(t.Definition)
	known.of[t.Digest] = d
	return d
}

func newDefinition(text []byte) *definition {
	compiled := func(name string) func() (*schema, error) {
		return sync.OnceValues(func() (*schema, error) {
			raw, ok := wire.Field(text, name)
			if !ok {
				return nil, errors.New("there is none")
			}
			return compile(raw)
		})
	}
	digest := func(name string) func() switchboard.Digest {
		return sync.OnceValue(func() switchboard.Digest {
			raw, ok := wire.Field(text, name)
			if !ok {
				return ""
			}
			d, err := canonical.Digest(raw)
			if err != nil {
				return "" // the catalog has refused it
			}
			return d
		})
	}
	outlined := sync.OnceValue(func() *form {
		raw, ok := wire.Field(text, input)
		if !ok {
			return nil
		}
		doc, err := decode(raw)
		if err != nil {
			return nil // and so nobody can tell what fits
		}
		return formOf(doc)
	})
	return &definition{compiled(input), compiled(output), outlined, digest(input), digest(output)}
}

// The members of a definition that hold schemas.
const (
	input  = "inputSchema"
	output = "outputSchema"
)
