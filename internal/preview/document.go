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

// A document is what a model reads of a result: its texts. Images, sounds and blobs are no
// part of it.
type document struct {
	parts      []part
	size       int      // bytes of all texts
	others     [][]byte // the items of content that have no text, as spelt
	structured bool     // structuredContent is one of the parts
}

// A part is one text.
type part struct{ name, text string }

// documentOf returns the document of a complete result, nil if there is none that can be
// told apart from the rest. promised says that the tool has an output schema: then
// structuredContent is for programs, and no part.
func documentOf(result []byte, promised bool) *document {
	d := &document{}
	seen := map[string]bool{}
	var structured []byte
	for name, value := range wire.Members(result) {
		if seen[name] {
			return &document{parts: []part{{"result", string(result)}}, size: len(result)} // readers differ on what it says
		}
		seen[name] = true
		switch name {
		case wire.MemberResultType:
			if string(value) != `"complete"` {
				return nil
			}
		case "content":
			if value[0] != '[' {
				d.put("content", string(value))
			}
			for item := range wire.Elements(value) {
				d.add(item)
			}
		case "structuredContent":
			structured = value
		}
	}
	if structured != nil && !promised {
		d.structured = true
		own := compacted(structured)
		if !slices.ContainsFunc(d.parts, func(p part) bool { return compacted([]byte(p.text)) == own }) {
			d.put("structuredContent", string(structured))
		}
	}
	return d
}

// add takes in one item of content.
func (d *document) add(item []byte) {
	raw, _ := wire.Field(item, "type")
	kind, _ := textIn(raw)
	switch kind {
	case "image", "audio", "resource_link":
		d.others = append(d.others, item)
		return
	case "text":
		raw, _ := wire.Field(item, "text")
		if text, ok := textIn(raw); ok && len(item)-len(raw) < maxBeside {
			d.put("text", text)
			return
		}
	case "resource":
		resource, _ := wire.Field(item, "resource")
		raw, _ := wire.Field(resource, "text")
		if text, ok := textIn(raw); ok {
			uri, _ := wire.Field(resource, "uri")
			name, _ := textIn(uri)
			d.put("resource "+line(name), text)
			return
		}
		if _, binary := wire.Field(resource, "blob"); binary {
			d.others = append(d.others, item)
			return
		}
	}
	d.put("item", string(item)) // whatever it is, a model reads it
}

// maxBeside is how many bytes stand beside the text of an item, in most results. In an item with more, all is
// taken for text.
const maxBeside = 1024

// textIn reads a string of JSON, also one that a server has cut in the middle of a character.
func textIn(raw []byte) (text string, ok bool) {
	if text, ok = wire.String(raw); ok {
		return text, true
	}
	err := json.Unmarshal(raw, &text)
	return text, err == nil && len(raw) > 0 && raw[0] == '"'
}

func (d *document) put(name, text string) {
	d.parts = append(d.parts, part{name, text})
	d.size += len(text)
}

// compacted is JSON without space between its parts, "" for what is no JSON.
func compacted(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	return b.String()
}

// line is a stranger's word on one line, cut.
func line(s string) string {
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

// text is all of the document: the one text, or all with a line before each.
func (d *document) text() string {
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

// shape says of what the document is made.
func (d *document) shape() string {
	if len(d.parts) == 1 {
		return shapeOf(d.parts[0].text)
	}
	var all []string
	for i, p := range d.parts {
		if i == maxNamed {
			all = append(all, fmt.Sprintf("%d parts more", len(d.parts)-i))
			break
		}
		all = append(all, fmt.Sprintf("%d: %s, %s", i, p.name, shapeOf(p.text)))
	}
	return fmt.Sprintf("%d parts: %s", len(d.parts), strings.Join(all, "; "))
}

// Bounds of what a shape names.
const (
	maxNamed = 8
	maxNests = 3
	maxShape = 600 // bytes
)

func shapeOf(text string) string {
	if !isJSON(text) {
		return fmt.Sprintf("text of %s in %s", plural(len(text), "byte"), plural(1+strings.Count(strings.TrimSuffix(text, "\n"), "\n"), "line"))
	}
	return shorten("JSON: "+shape([]byte(strings.TrimSpace(text)), maxNests), maxShape)
}

// shape describes a JSON value: its members and their types, the number of elements and the
// shape of the first.
func shape(value []byte, nests int) string {
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
				first = shape(element, nests-1)
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
			all = append(all, line(name)+": "+shape(member, nests-1))
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
	return s[:boundary(s, most)] + "…"
}

// boundary is the last byte at or before at at which a character begins.
func boundary(s string, at int) int {
	at = max(0, min(at, len(s)))
	for at > 0 && at < len(s) && !utf8.RuneStart(s[at]) {
		at--
	}
	return at
}

// Tokens bounds a result that has a preview in place of its texts, as it stands in JSON.
const Tokens = 2000

// text is the preview of the document: what there is, how to read on, its shape, and its
// beginning, as much of it as has room in Tokens and most bytes.
func (k *Keeper) text(d *document, handle string, most int) string {
	whole := d.text()
	const (
		envelope = 150  // tokens of what stands around the text
		around   = 400  // bytes of the words before the shape
		maxShape = 1500 // bytes
	)
	shape := d.shape()
	shape = "Shape: " + shape[:boundary(shape, min(len(shape), maxShape, max(most-around, 0)/2))] + "\n"
	n := min(max(most-around-len(shape), 256), usualPiece)
	for {
		head := whole[:boundary(whole, n)]
		text := fmt.Sprintf(`This result has %d bytes of text, and %d are given at once. All of it is kept for an hour. Read on with %s: {"handle":%q,"range":"%d-"}; or a value of it with "path":"/a/0"; or find text with "search":"words".`+"\n", len(whole), most, ReadTool, handle, len(head)) +
			shape + "It begins:\n" + head
		if n == 0 || k.o.Count(wire.AppendString(nil, text)) <= Tokens-envelope {
			return text
		}
		if n = n * 4 / 5; n < 256 {
			shape = "" // it is what costs so much
		}
	}
}
