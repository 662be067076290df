package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// JSONSchema returns the JSON Schema of files whose content has the type, for editors.
func JSONSchema(id, title string, content Type) ([]byte, error) {
	s := content.jsonSchema()
	s["$schema"], s["$id"], s["title"] = "https://json-schema.org/draft/2020-12/schema", id, title
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// KeysSchema returns the JSON Schema of a map with the keys.
func KeysSchema(keys *Keys) Schema { return mapSchema(keys) }

func mapSchema(keys *Keys) Schema {
	properties, required := Schema{}, []string{}
	for _, r := range keys.Rows {
		s := Schema{}
		maps.Copy(s, r.Type.jsonSchema())
		s["description"] = r.Doc
		properties[r.Key] = s
		if r.Required != "" {
			required = append(required, r.Key)
		}
	}
	out := Schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (t Type) jsonSchema() Schema {
	if t.keys == nil {
		return t.schema
	}
	inner := mapSchema(t.keys())
	if t.null {
		inner["type"] = []string{"object", "null"}
	}
	switch t.below {
	case "":
		return inner
	case "[]":
		return Schema{"type": "array", "items": inner}
	}
	return Schema{"type": "object", "additionalProperties": inner}
}

// Reference returns the keys of files whose content has the type as tables of Markdown, one for each map. heading precedes the
// path of a nested map.
func Reference(heading string, content Type) string {
	var b strings.Builder
	writeReference(&b, heading, content.below, content.keys())
	return b.String()
}

func writeReference(b *strings.Builder, heading, path string, keys *Keys) {
	if path != "" {
		fmt.Fprintf(b, "\n%s `%s`\n", heading, path)
	}
	b.WriteString("\n| key | value | meaning |\n| --- | --- | --- |\n")
	for _, r := range keys.Rows {
		text := r.Type.text
		if r.Required != "" {
			text += ", required"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", r.Key, text, r.Doc)
	}
	for _, r := range keys.Rows {
		if r.Type.keys == nil {
			continue
		}
		inner := strings.TrimPrefix(path+"."+r.Key, ".")
		switch r.Type.below {
		case "":
		case "[]":
			inner += "[]"
		default:
			inner += "." + r.Type.below
		}
		writeReference(b, heading, inner, r.Type.keys())
	}
}
