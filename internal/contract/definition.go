package contract

import (
	"errors"
	"fmt"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A toolSchemas holds what this package computes from a tool's definition. Each part is computed when it is first
// needed. It is safe for concurrent use.
type toolSchemas struct {
	input, output func() (*schema, error)

	// form is the form of the input schema.
	form func() *form

	// closed is the input schema, read as closed.
	closed func() (*ClosedSchema, error)

	// shape is the digest of the input schema, and result that of the output schema; "" if there is none.
	shape, result func() switchboard.Digest
}

// maxKnownBytes limits the cached definitions, by the bytes of their text.
const maxKnownBytes = 32 << 20

// knownSchemas caches definitions by their digest. That is valid because a definition's results depend only on its text.
var knownSchemas = struct {
	sync.RWMutex
	of    map[switchboard.Digest]*toolSchemas
	bytes int
}{of: map[switchboard.Digest]*toolSchemas{}}

// schemasOf returns the cached results for the tool's definition.
func schemasOf(t *switchboard.Tool) *toolSchemas {
	if t.Digest == "" { // it has no digest to cache it by
		return newToolSchemas(t.Definition)
	}
	knownSchemas.RLock()
	d := knownSchemas.of[t.Digest]
	knownSchemas.RUnlock()
	if d != nil {
		return d
	}
	knownSchemas.Lock()
	defer knownSchemas.Unlock()
	if d := knownSchemas.of[t.Digest]; d != nil {
		return d
	}
	if knownSchemas.bytes += len(t.Definition); knownSchemas.bytes > maxKnownBytes {
		clear(knownSchemas.of)
		knownSchemas.bytes = len(t.Definition)
	}
	d = newToolSchemas(t.Definition)
	knownSchemas.of[t.Digest] = d
	return d
}

func newToolSchemas(text []byte) *toolSchemas {
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
			return nil // without a form, nothing is checked
		}
		return formOf(doc)
	})
	closed := sync.OnceValues(func() (*ClosedSchema, error) {
		raw, ok := wire.Field(text, input)
		if !ok {
			return nil, errors.New("there is none")
		}
		return NewClosedSchema(raw)
	})
	return &toolSchemas{compiled(input), compiled(output), outlined, closed, digest(input), digest(output)}
}

// The members of a definition that hold schemas.
const (
	input  = "inputSchema"
	output = "outputSchema"
)

// CheckDefinition returns why the definition of a contract's tool cannot be used, or nil. It applies the checks of package
// catalog, compiles the schemas, and refuses a regular expression that cannot be checked.
func CheckDefinition(definition []byte) error {
	if err := catalog.CheckDefinition(definition); err != nil {
		return err
	}
	for _, name := range []string{input, output} {
		raw, ok := wire.Field(definition, name)
		if !ok {
			continue
		}
		if _, err := compileWhole(raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
