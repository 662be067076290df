// Package strictclient checks definitions as clients do that check a whole list: against the types of the protocol's schema, and against
// the values that the official TypeScript SDK takes. It shares no code with Switchboard, so that both can be compared.
package strictclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Check returns why a strict client of the era refuses a list with the definition, or nil.
func Check(k switchboard.Kind, modern bool, definition []byte) error {
	d := json.NewDecoder(bytes.NewReader(definition))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%.40q is no object", definition)
	}
	want := members{"name!": text, "title": text, "description": text, "_meta": anyObject, "icons": listOf(members{
		"src!": text, "mimeType": text, "sizes": listOf(text), "theme": oneOf("light", "dark"),
	}.check)}
	annotations := members{"audience": listOf(oneOf("user", "assistant")), "priority": priority, "lastModified": timestamp}.check
	switch k {
	case switchboard.Tools:
		want["inputSchema!"], want["outputSchema"] = schema.check, schema.check
		if modern {
			want["outputSchema"] = members{"$schema": text}.check
			if output, ok := o["outputSchema"].(map[string]any); ok && (output["type"] == "object" || output["type"] == nil) {
				want["outputSchema"] = schema.check
			}
		}
		want["annotations"] = members{"title": text, "readOnlyHint": boolean, "destructiveHint": boolean, "idempotentHint": boolean, "openWorldHint": boolean}.check
		want["execution"] = members{"taskSupport": oneOf("required", "optional", "forbidden")}.check
	case switchboard.Resources:
		want["uri!"], want["mimeType"], want["size"], want["annotations"] = text, text, integer, annotations
	case switchboard.Templates:
		want["uriTemplate!"], want["mimeType"], want["annotations"] = text, text, annotations
	case switchboard.Prompts:
		want["arguments"] = listOf(members{"name!": text, "title": text, "description": text, "required": boolean}.check)
	}
	return want.check(o)
}

// A check returns why a value is refused, or nil. null is a value like others.
type check func(v any) error

// members are the checks of members by name. The name of a required one ends in "!".
type members map[string]check

func (m members) check(v any) error {
	o, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no object", v)
	}
	for name, check := range m {
		name, required := bytes.CutSuffix([]byte(name), []byte("!"))
		one, has := o[string(name)]
		if !has {
			if required {
				return fmt.Errorf("%s is missing", name)
			}
			continue
		}
		if err := check(one); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

var schema = members{"$schema": text, "type!": oneOf("object"), "required": listOf(text), "properties": func(v any) error {
	o, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no object", v)
	}
	for name, one := range o {
		if err := anyObject(one); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}}

var anyObject check = members{}.check

func listOf(each check) check {
	return func(v any) error {
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%v is no list", v)
		}
		for i, one := range list {
			if err := each(one); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
}

func text(v any) error {
	if _, ok := v.(string); !ok {
		return fmt.Errorf("%v is no text", v)
	}
	return nil
}

func boolean(v any) error {
	if _, ok := v.(bool); !ok {
		return fmt.Errorf("%v is no boolean", v)
	}
	return nil
}

func integer(v any) error {
	n, _ := v.(json.Number)
	if _, err := n.Int64(); err != nil {
		return fmt.Errorf("%v is no integer", v)
	}
	return nil
}

func priority(v any) error {
	n, _ := v.(json.Number)
	if p, err := n.Float64(); err != nil || p < 0 || p > 1 {
		return fmt.Errorf("%v is no number from 0 to 1", v)
	}
	return nil
}

func oneOf(words ...string) check {
	return func(v any) error {
		if word, ok := v.(string); !ok || !slices.Contains(words, word) {
			return fmt.Errorf("%v is none of %q", v, words)
		}
		return nil
	}
}

var dated = regexp.MustCompile(`^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func timestamp(v any) error {
	if text, ok := v.(string); !ok || !dated.MatchString(text) {
		return fmt.Errorf("%v is no timestamp with an offset", v)
	}
	return nil
}
