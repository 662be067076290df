package page

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// maxFields limits the fields of the form of a tool.
const maxFields = 40

// A fieldKind says how a person writes an argument.
type fieldKind string

const (
	fieldText   fieldKind = "text"   // a text
	fieldNumber fieldKind = "number" // a number, as it is spelt
	fieldChoice fieldKind = "choice" // one of the values of the schema, each as JSON
	fieldJSON   fieldKind = "json"   // everything else, as JSON
)

// A tryField is an argument in the form of a tool. Its texts come from the server.
type tryField struct {
	Name, Title, Description string
	Kind                     fieldKind
	Required                 bool
	Choices                  []fieldChoiceValue
	Default                  string // as JSON; "" for none
}

// A fieldChoiceValue is a value that a person may choose.
type fieldChoiceValue struct {
	Value string // as JSON
	Words string
}

// Field returns the name of the field in the form.
func (f *tryField) Field() string { return "argument " + f.Name }

// formOf makes a form of the schema of a tool's arguments. beyond reports whether the schema allows arguments that the form has no field for.
func formOf(schema json.RawMessage) (fields []tryField, beyond bool) {
	var s struct {
		Properties json.RawMessage
		Required   []string
		AnyOf      json.RawMessage `json:"anyOf"`
		OneOf      json.RawMessage `json:"oneOf"`
		AllOf      json.RawMessage `json:"allOf"`
		Ref        string          `json:"$ref"`
		Pattern    json.RawMessage `json:"patternProperties"`
		Additional json.RawMessage `json:"additionalProperties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil, true
	}
	beyond = s.AnyOf != nil || s.OneOf != nil || s.AllOf != nil || s.Ref != "" || s.Pattern != nil || s.Additional != nil && string(s.Additional) != "false"
	eachMember(s.Properties, func(name string, value json.RawMessage) {
		if len(fields) == maxFields {
			beyond = true
			return
		}
		f := newTryField(name, value)
		f.Required = slices.Contains(s.Required, name)
		fields = append(fields, f)
	})
	return fields, beyond
}

// eachMember calls see with the members of a JSON object, in their order.
func eachMember(object json.RawMessage, see func(name string, value json.RawMessage)) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return
		}
		text, _ := name.(string)
		see(text, value)
	}
}

// newTryField makes the field of one argument.
func newTryField(name string, schema json.RawMessage) tryField {
	f := tryField{Name: name, Kind: fieldJSON}
	var s struct {
		Type               any
		Title, Description string
		Enum               []json.RawMessage
		Default            json.RawMessage
	}
	if json.Unmarshal(schema, &s) != nil {
		return f
	}
	f.Title, f.Description = s.Title, s.Description
	if string(s.Default) != "null" {
		f.Default = string(s.Default)
	}
	switch {
	case len(s.Enum) > 0:
		f.Kind = fieldChoice
		for _, v := range s.Enum {
			f.Choices = append(f.Choices, newChoice(v))
		}
	case s.Type == "string":
		f.Kind = fieldText
	case s.Type == "integer" || s.Type == "number":
		f.Kind = fieldNumber
	case s.Type == "boolean":
		f.Kind = fieldChoice
		f.Choices = []fieldChoiceValue{{"true", "true"}, {"false", "false"}}
	}
	return f
}

func newChoice(v json.RawMessage) fieldChoiceValue {
	c := fieldChoiceValue{string(v), string(v)}
	var text string
	if json.Unmarshal(v, &text) == nil && text != "" {
		c.Words = text
	}
	return c
}

// writeFields returns the arguments in the fields of a form, as JSON. A field that is empty is left out.
func writeFields(known []tryField, fields url.Values) (string, error) {
	var b strings.Builder
	for i := range known {
		f := &known[i]
		text := strings.ReplaceAll(fields.Get(f.Field()), "\r\n", "\n")
		if text == "" {
			continue
		}
		value, err := f.value(text)
		if err != nil {
			return "", err
		}
		if b.Len() > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n  " + quoteText(f.Name) + ": " + value)
	}
	if b.Len() == 0 {
		return "{}", nil
	}
	return "{" + b.String() + "\n}", nil
}

// value returns what was typed as JSON.
func (f *tryField) value(text string) (string, error) {
	switch f.Kind {
	case fieldText:
		return quoteText(text), nil
	case fieldChoice:
		if !slices.ContainsFunc(f.Choices, func(c fieldChoiceValue) bool { return c.Value == text }) {
			return "", refuseForm(f.Name + " is none of the values that the tool takes, so nothing was called")
		}
		return text, nil
	case fieldNumber:
		text = strings.TrimSpace(text)
		if !json.Valid([]byte(text)) || !strings.ContainsRune("-0123456789", rune(text[0])) {
			return "", refuseForm(f.Name + " is no number, so nothing was called")
		}
		return text, nil
	}
	if !json.Valid([]byte(text)) {
		return "", refuseForm(f.Name + " is no JSON, so nothing was called; a text stands in quotation marks")
	}
	return strings.TrimSpace(text), nil
}

// quoteText returns a text as a JSON string, without escapes that only HTML needs.
func quoteText(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text can be encoded
	return strings.TrimSuffix(b.String(), "\n")
}
