package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of a JSON file of another program, which may hold much besides servers.
const (
	MaxJSONBytes = 8 << 20
	maxJSONDepth = 64
)

const notJSON = "this is not valid JSON"

// ReadJSON reads one JSON value with comments and trailing commas, as editors write it. ok is false if
// there is none; the fault is then recorded, and repeats nothing of the file.
func ReadJSON(name string, data []byte, s *Sink) (v Value, ok bool) {
	v = Value{File: name, Sink: s}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	node, offset, why := parseJSON(data)
	if why != "" {
		line, col := Position(data, offset)
		s.Add(switchboard.Fault{File: name, Line: line, Column: col, Text: why})
		return v, false
	}
	v.Node = node
	return v, true
}

// parseJSON returns the value in data, or where and why there is none.
func parseJSON(data []byte) (n Node, offset int, why string) {
	if offset := deepBracket(data); offset >= 0 {
		return n, offset, "objects and lists stand within each other too deep"
	}
	if !utf8.Valid(data) {
		return n, len(data) - len(bytes.TrimLeftFunc(data, func(r rune) bool { return r != utf8.RuneError })), notJSON
	}
	// hujson requires a line break after each line comment, also after the last one.
	text := append(bytes.Clone(data), '\n')
	tree, err := hujson.Parse(text)
	if err != nil {
		offset, why = jsonFault(text, err)
		return n, offset, why
	}
	c := jsonConverter{data: data, line: 1, col: 1}
	if n, err = c.convert(&tree); err != nil {
		return n, c.offset, err.Error()
	}
	return n, 0, ""
}

// deepBracket returns the offset of the first bracket that is nested too deep, or -1. hujson recurses
// without a limit, so a file full of brackets would exceed the stack and end the process.
func deepBracket(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch rest := data[i:]; {
		case rest[0] == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")):
			end := "\n"
			if rest[1] == '*' {
				end = "*/"
			}
			length := bytes.Index(rest[2:], []byte(end))
			if length < 0 {
				return -1 // the parser stops here as well
			}
			i += length + len(end) + 1
		case rest[0] == '[', rest[0] == '{':
			if depth++; depth > maxJSONDepth {
				return i
			}
		case rest[0] == ']', rest[0] == '}':
			depth--
		}
	}
	return -1
}

// jsonFault returns where and why hujson refuses data. hujson's own text may repeat a part of the file.
func jsonFault(data []byte, err error) (offset int, why string) {
	var line, col int
	if _, err := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &col); err != nil {
		return 0, notJSON
	}
	for ; line > 1; line-- {
		offset += bytes.IndexByte(data[offset:], '\n') + 1
	}
	offset += col - 1 // the column counts bytes
	switch text := err.Error(); {
	case errors.Is(err, io.ErrUnexpectedEOF) && strings.Contains(text, "parsing comment"):
		return offset, "the comment is not closed"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return offset, "the JSON ends too early; a bracket or quote is missing"
	case strings.HasSuffix(text, "after top-level value"):
		return offset, "something follows the JSON value; a file holds one"
	}
	return offset, notJSON
}

// jsonConverter converts a syntax tree of hujson to Nodes.
type jsonConverter struct {
	data []byte

	// The position of offset, which only increases.
	offset, line, col int
}

func (c *jsonConverter) convert(v *hujson.Value) (Node, error) {
	c.moveTo(v.StartOffset)
	n := Node{Line: c.line, Column: c.col}
	switch v := v.Value.(type) {
	case *hujson.Object:
		n.Kind = KindMap
		seen := map[string]bool{}
		for i := range v.Members {
			key, err := c.convert(&v.Members[i].Name)
			if err != nil {
				return n, err
			}
			if seen[key.Text] {
				return n, errors.New("a key stands here twice")
			}
			seen[key.Text] = true
			val, err := c.convert(&v.Members[i].Value)
			if err != nil {
				return n, err
			}
			n.Pairs = append(n.Pairs, NodePair{key, val})
		}
	case *hujson.Array:
		n.Kind = KindList
		for i := range v.Elements {
			item, err := c.convert(&v.Elements[i])
			if err != nil {
				return n, err
			}
			n.Items = append(n.Items, item)
		}
	case hujson.Literal:
		return convertLiteral(n, v)
	}
	return n, nil
}

func convertLiteral(n Node, literal hujson.Literal) (Node, error) {
	n.Text, n.Quoted = string(literal), true
	switch literal.Kind() {
	case '"':
		n.Kind = KindText
		text, err := jsontext.AppendUnquote(nil, []byte(literal))
		if err != nil {
			return n, errors.New(notJSON) // half of a surrogate pair
		}
		n.Text = string(text)
	case '0':
		n.Kind = KindFloat
		if !strings.ContainsAny(n.Text, ".eE") {
			n.Kind = KindInt
		}
	case 't', 'f':
		n.Kind = KindBool
	default:
		n.Kind = KindNull
	}
	return n, nil
}

// moveTo advances line and col to offset.
func (c *jsonConverter) moveTo(offset int) {
	for ; c.offset < offset && c.offset < len(c.data); c.offset++ {
		switch b := c.data[c.offset]; {
		case b == '\n':
			c.line, c.col = c.line+1, 1
		case b&0xc0 != 0x80:
			c.col++
		}
	}
}

// Position converts an offset into line and column.
func Position(data []byte, offset int) (line, col int) {
	before := data[:max(0, min(offset, len(data)))]
	last := bytes.LastIndexByte(before, '\n')
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[last+1:]) + 1
}
