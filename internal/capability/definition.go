package capability

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Hints are the annotations of a contract's tool. A nil hint states nothing.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld *bool }

// NewTool returns a tool of a contract. input and output are JSON Schemas; a nil input accepts every object, and a nil output
// promises nothing. The members of the definition are always in the same order.
func NewTool(name, description string, input, output []byte, hints Hints) (ContractTool, error) {
	if input == nil {
		input = []byte(`{"type":"object"}`)
	}
	b, err := jsontext.AppendQuote([]byte(`{"name":`), name)
	if err != nil {
		return ContractTool{}, fmt.Errorf("the name: %w", err)
	}
	if description != "" {
		if b, err = jsontext.AppendQuote(append(b, `,"description":`...), description); err != nil {
			return ContractTool{}, fmt.Errorf("the description: %w", err)
		}
	}
	b = append(append(b, `,"inputSchema":`...), input...)
	if output != nil {
		b = append(append(b, `,"outputSchema":`...), output...)
	}
	b = hints.append(b)
	return ContractTool{name, append(b, '}')}, nil
}

// append appends the member annotations, if a hint is stated.
func (h Hints) append(b []byte) []byte {
	before := `,"annotations":{`
	for _, hint := range []struct {
		name string
		is   *bool
	}{{"readOnlyHint", h.ReadOnly}, {"destructiveHint", h.Destructive}, {"idempotentHint", h.Idempotent}, {"openWorldHint", h.OpenWorld}} {
		if hint.is == nil {
			continue
		}
		b = append(b, before+strconv.Quote(hint.name)+":"...)
		b = strconv.AppendBool(b, *hint.is)
		before = ","
	}
	if before == "," {
		b = append(b, '}')
	}
	return b
}

// ContentDigest returns the digest of a version's content, in JSON and without its status.
func ContentDigest(content []byte) (switchboard.Digest, error) { return canonical.Digest(content) }
