package preview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A textDocument is the part of a result that a model reads: its texts. Images, sounds and blobs are
// not part of it.
type textDocument struct {
	parts      []textPart
	size       int      // bytes of all texts
	others     [][]byte // the items of content that have no text, as spelt
	structured bool     // structuredContent is one of the parts
}

// A textPart is one text.
type textPart struct{ name, text string }

// documentOf returns the document of a complete result; nil if the result is not complete. promised
// says that the tool has an output schema: then structuredContent is for programs, and not part of
// the document.
func documentOf(result []byte, promised bool) *textDocument {
	d := &textDocument{}
	seen := map[string]bool{}
	var structured []byte
	for name, value := range wire.Members(result) {
		if seen[name] {
			return &textDocument{parts: []textPart{{"result", string(result)}}, size: len(result)} // readers differ on its meaning
		}
		seen[name] = true
		switch name {
		case wire.MemberResultType:
			if string(value) != `"complete"` {
				return nil
			}
		case "content":
			if value[0] != '[' {
				d.addPart("content", string(value))
			}
			for item := range wire.Elements(value) {
				d.addItem(item)
			}
		case "structuredContent":
			structured = value
		}
	}
	if structured != nil && !promised {
		d.structured = true
		own := compactJSON(structured)
		if !slices.ContainsFunc(d.parts, func(p textPart) bool { return compactJSON([]byte(p.text)) == own }) {
			d.addPart("structuredContent", string(structured))
		}
	}
	return d
}

// addItem adds one item of content.
func (d *textDocument) addItem(item []byte) {
	raw, _ := wire.Field(item, "type")
	kind, _ := decodeString(raw)
	switch kind {
	case "image", "audio", "resource_link":
		d.others = append(d.others, item)
		return
	case "text":
		raw, _ := wire.Field(item, "text")
		if text, ok := decodeString(raw); ok && len(item)-len(raw) < maxBeside {
			d.addPart("text", text)
			return
		}
	case "resource":
		resource, _ := wire.Field(item, "resource")
		raw, _ := wire.Field(resource, "text")
		if text, ok := decodeString(raw); ok {
			uri, _ := wire.Field(resource, "uri")
			name, _ := decodeString(uri)
			d.addPart("resource "+oneLine(name), text)
			return
		}
		if _, binary := wire.Field(resource, "blob"); binary {
			d.others = append(d.others, item)
			return
		}
	}
	d.addPart("item", string(item)) // an unknown item: a model reads it as text
}

// maxBeside limits the bytes of an item beside its text; most items have few. An item with more is
// treated as text as a whole.
const maxBeside = 1024

// decodeString decodes a JSON string. It also accepts one that the server has cut within a
// character.
func decodeString(raw []byte) (text string, ok bool) {
	if text, ok = wire.String(raw); ok {
		return text, true
	}
	err := json.Unmarshal(raw, &text)
	return text, err == nil && len(raw) > 0 && raw[0] == '"'
}

func (d *textDocument) addPart(name, text string) {
	d.parts = append(d.parts, textPart{name, text})
	d.size += len(text)
}

// compactJSON returns JSON without spaces; "" if the text is not JSON.
func compactJSON(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	return b.String()
}

// oneLine returns a name from a server on one line, shortened.
func oneLine(s string) string {
	const most = 100
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// text returns the whole document: its one text, or all texts with a line before each.
func (d *textDocument) text() string {
	if len(d.parts) == 1 {
		return d.parts[0].text
	}
	var b strings.Builder
	for i, p := range d.parts {
		fmt.Fprintf(&b, "=== %d: %s, %d bytes ===\n%s\n", i, p.name, len(p.text), p.text)
	}
	return b.String()
}

// isJSON reports whether the text is an object or a list in JSON.
func isJSON(text string) bool {
	t := strings.TrimSpace(text)
	return t != "" && (t[0] == '{' || t[0] == '[') && wire.Strict([]byte(t))
}

// describe describes the structure of the document.
func (d *textDocument) describe() string {
	if len(d.parts) == 1 {
		return describeText(d.parts[0].text)
	}
	var all []string
	for i, p := range d.parts {
		if i == maxNamed {
			all = append(all, fmt.Sprintf("%d parts more", len(d.parts)-i))
			break
		}
		all = append(all, fmt.Sprintf("%d: %s, %s", i, p.name, describeText(p.text)))
	}
	return fmt.Sprintf("%d parts: %s", len(d.parts), strings.Join(all, "; "))
}

// Limits of the description.
const (
	maxNamed = 8
	maxNests = 3
	maxShape = 600 // bytes
)

func describeText(text string) string {
	if !isJSON(text) {
		return fmt.Sprintf("text of %s in %s", plural(len(text), "byte"), plural(1+strings.Count(strings.TrimSuffix(text, "\n"), "\n"), "line"))
	}
	return shorten("JSON: "+describeJSON([]byte(strings.TrimSpace(text)), maxNests), maxShape)
}

// describeJSON describes a JSON value: the types of its members, or the number of elements and the
// shape of the first.
func describeJSON(value []byte, nests int) string {
	switch value[0] {
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	case '[':
		n, first := 0, ""
		for element := range wire.Elements(value) {
			if n++; n == 1 && nests > 0 {
				first = describeJSON(element, nests-1)
			}
		}
		if n == 0 || nests == 0 {
			return fmt.Sprintf("[%d]", n)
		}
		return fmt.Sprintf("[%d × %s]", n, first)
	case '{':
		var all []string
		n := 0
		for name, member := range wire.Members(value) {
			if n++; n > maxNamed || nests == 0 {
				continue
			}
			all = append(all, oneLine(name)+": "+describeJSON(member, nests-1))
		}
		if more := n - len(all); more > 0 {
			all = append(all, strconv.Itoa(more)+" more")
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	return "number"
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// shorten cuts s to at most that many bytes, between characters.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:charBoundary(s, most)] + "…"
}

// charBoundary returns the last position up to at where a character begins.
func charBoundary(s string, at int) int {
	at = max(0, min(at, len(s)))
	for at > 0 && at < len(s) && !utf8.RuneStart(s[at]) {
		at--
	}
	return at
}

// Tokens limits a result with a preview, as JSON.
const Tokens = 2000

// previewText returns the preview of the document: its size, how to read the rest, its shape and its
// beginning. It has at most Tokens tokens and about most bytes.
func (k *Keeper) previewText(d *textDocument, handle string, most int) string {
	whole := d.text()
	const (
		envelope = 150  // tokens of the JSON around the text
		around   = 400  // bytes of the words before the shape
		maxShape = 1500 // bytes
	)
	shape := d.describe()
	shape = "Shape: " + shape[:charBoundary(shape, min(len(shape), maxShape, max(most-around, 0)/2))] + "\n"
	n := min(max(most-around-len(shape), 256), defaultPiece)
	for {
		head := whole[:charBoundary(whole, n)]
		text := fmt.Sprintf(`This result has %d bytes of text, and %d are given at once. All of it is kept for an hour. Read on with %s: {"handle":%q,"range":"%d-"}; or a value of it with "path":"/a/0"; or find text with "search":"words".`+"\n", len(whole), most, ReadTool, handle, len(head)) +
			shape + "It begins:\n" + head
		if n == 0 || k.options.Count(wire.AppendString(nil, text)) <= Tokens-envelope {
			return text
		}
		if n = n * 4 / 5; n < 256 {
			shape = "" // the shape has too many tokens
		}
	}
}
