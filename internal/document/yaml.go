package document

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of one YAML file. The parser's time grows with the square of the number of keys in a map and
// of the depth, and its stack with the depth. Therefore the limits are checked on the tokens, before
// the parser runs.
const (
	MaxFileBytes = 1 << 20
	maxTokens    = 100_000
	maxDepth     = 24   // nested maps and lists
	maxKeys      = 2048 // of one map
)

// ReadYAML reads one document. ok is false if the document cannot be read; the fault is then recorded.
func ReadYAML(name string, data []byte, s *Sink) (v Value, ok bool) {
	v = Value{File: name, Sink: s}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if line, col, why := badText(data); why != "" {
		s.Add(switchboard.Fault{File: name, Line: line, Column: col, Text: why})
		return v, false
	}
	tokens := lexer.Tokenize(string(data))
	if f := checkTokens(tokens); f.Text != "" {
		f.File = name
		s.Add(f)
		return v, false
	}
	body, err := parseYAML(tokens)
	if err != nil {
		f := switchboard.Fault{File: name, Text: "this cannot be read as YAML"}
		if e, ok := errors.AsType[*yaml.SyntaxError](err); ok && e.Token != nil {
			f = switchboard.Fault{File: name, Line: e.Token.Position.Line, Column: e.Token.Position.Column, Text: syntaxText(e.Message)}
		}
		s.Add(f)
		return v, false
	}
	if body == nil {
		s.Add(switchboard.Fault{File: name, Text: "the file holds nothing; fill it or remove it"})
		return v, false
	}
	v.Node, err = convertNode(body, 0)
	if err != nil {
		s.Add(switchboard.Fault{File: name, Text: err.Error()})
		return v, false
	}
	return v, true
}

// parseYAML returns the body of the document, or nil if it has none.
func parseYAML(tokens token.Tokens) (body ast.Node, err error) {
	// The parser has panicked on broken input before. Here that is a reading error.
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the parser gave up")
		}
	}()
	// Duplicate keys are accepted here; readObject and readEntries report them with the other faults.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	for _, d := range file.Docs {
		if d.Body != nil {
			if _, comment := d.Body.(*ast.CommentGroupNode); !comment {
				return d.Body, nil
			}
		}
	}
	return nil, nil
}

// badText finds characters that no configuration should contain: invalid UTF-8, and characters that
// are invisible or change the direction of the text.
func badText(data []byte) (line, col int, why string) {
	line, col = 1, 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && n == 1:
			return line, col, "this is not UTF-8; save the file in that encoding"
		case r == '\n':
			line, col = line+1, 0
		case r < ' ' && r != '\t', r >= 0x7f && r < 0xa0, r == 0xfeff, r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return line, col, fmt.Sprintf("the invisible character %U stands here; remove it", r)
		}
		col++
		data = data[n:]
	}
	return 0, 0, ""
}

// checkTokens refuses syntax that is not supported, and documents that exceed the limits of the
// parser.
func checkTokens(tokens token.Tokens) (f switchboard.Fault) {
	fault := func(t *token.Token, format string, args ...any) switchboard.Fault {
		return switchboard.Fault{Line: t.Position.Line, Column: t.Position.Column, Text: fmt.Sprintf(format, args...)}
	}
	if len(tokens) > maxTokens {
		return fault(tokens[maxTokens], "the file holds more than %d words and signs; split it", maxTokens)
	}
	var levels []blockLevel // block maps and lists that are open
	var flow []int          // flow maps and lists that are open, with their keys
	begun := false
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fault(t, "anchors, aliases and merge keys (&, *, <<) are not read here; write the value out, or put a text that begins so in quotes")
		case token.TagType:
			return fault(t, "tags (!) are not read here; put a text that begins so in quotes")
		case token.DirectiveType:
			return fault(t, "directives (%%) are not read here; put a text that begins so in quotes")
		case token.MappingKeyType:
			return fault(t, "keys that begin with ? are not read here; write key: value")
		case token.DocumentHeaderType:
			if begun {
				return fault(t, "a second document begins here; a file holds one")
			}
			continue
		case token.DocumentEndType:
			return fault(t, "the document ends here (...); a file holds one, without this line")
		case token.CommentType:
			continue
		case token.SequenceStartType, token.MappingStartType:
			flow = append(flow, 0)
		case token.SequenceEndType, token.MappingEndType:
			if len(flow) > 0 {
				flow = flow[:len(flow)-1]
			}
		case token.CollectEntryType:
			if len(flow) > 0 {
				flow[len(flow)-1]++
				if flow[len(flow)-1] > maxKeys {
					return fault(t, "more than %d entries stand here; split the file", maxKeys)
				}
			}
		case token.MappingValueType:
			if len(flow) == 0 && t.Prev != nil {
				levels = enterColumn(levels, t.Prev.Position.Column)
				levels[len(levels)-1].keys++
				if levels[len(levels)-1].keys > maxKeys {
					return fault(t, "more than %d keys stand in this map; split the file", maxKeys)
				}
			}
		case token.SequenceEntryType:
			if len(flow) == 0 {
				levels = enterColumn(levels, t.Position.Column)
			}
		}
		begun = true
		if len(levels)+len(flow) > maxDepth {
			return fault(t, "maps and lists stand within each other more than %d deep", maxDepth)
		}
	}
	return switchboard.Fault{}
}

type blockLevel struct{ col, keys int }

// enterColumn returns the open levels after a token in the column.
func enterColumn(levels []blockLevel, col int) []blockLevel {
	for len(levels) > 0 && levels[len(levels)-1].col > col {
		levels = levels[:len(levels)-1]
	}
	if len(levels) == 0 || levels[len(levels)-1].col < col {
		levels = append(levels, blockLevel{col: col})
	}
	return levels
}

// syntaxText returns the parser's message, with a remedy if people need one. It cuts off every
// quotation of the file, because that may be a secret.
func syntaxText(message string) string {
	message, _, _ = strings.Cut(message, ": ")
	switch {
	case strings.Contains(message, `'\t'`), strings.Contains(message, "\t"):
		return "a tab stands here; indent with spaces"
	case strings.Contains(message, "reserved character"):
		return message + "; put the text in quotes"
	case strings.Contains(message, "mapping value is not allowed"):
		return `a ": " within a text; put the text in quotes, or begin the map on a line of its own`
	case strings.Contains(message, "end character"):
		return message + "; a quote is missing"
	}
	return message
}

// convertNode converts a syntax tree to a Node. Its error contains nothing of the file.
func convertNode(n ast.Node, depth int) (Node, error) {
	if depth > 2*maxDepth {
		return Node{}, errors.New("maps and lists stand within each other too deep")
	}
	out := Node{}
	if t := n.GetToken(); t != nil {
		out.Text, out.Line, out.Column = t.Value, t.Position.Line, t.Position.Column
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.Kind, out.Text = KindMap, ""
		for _, p := range n.Values {
			if err := out.addPair(p, depth); err != nil {
				return Node{}, err
			}
		}
		if !n.IsFlowStyle && len(out.Pairs) > 0 {
			out.Line, out.Column = out.Pairs[0].Key.Line, out.Pairs[0].Key.Column
		}
	case *ast.MappingValueNode:
		out.Kind, out.Text = KindMap, ""
		if err := out.addPair(n, depth); err != nil {
			return Node{}, err
		}
		out.Line, out.Column = out.Pairs[0].Key.Line, out.Pairs[0].Key.Column
	case *ast.SequenceNode:
		out.Kind, out.Text = KindList, ""
		for _, v := range n.Values {
			item, err := convertNode(v, depth+1)
			if err != nil {
				return Node{}, err
			}
			if m, ok := v.(*ast.MappingNode); ok && n.IsFlowStyle && !m.IsFlowStyle && len(item.Pairs) == 1 {
				item = joinText(item)
			}
			out.Items = append(out.Items, item)
		}
	case *ast.StringNode:
		out.Kind, out.Text = KindText, n.Value
		out.Quoted = n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		out.Kind, out.Text, out.Quoted = KindText, n.Value.Value, true
	case *ast.IntegerNode:
		out.Kind = KindInt
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.Kind = KindFloat
	case *ast.BoolNode:
		out.Kind = KindBool
	case *ast.NullNode:
		out.Kind = KindNull
	default:
		return Node{}, fmt.Errorf("at line %d stands something that is not read here (%v)", out.Line, n.Type())
	}
	return out, nil
}

// joinText returns the text of an item such as example.com:443 in {hosts: [example.com:443]}, which the parser takes for a map: for YAML, a colon without a
// space behind it is part of the text.
func joinText(n Node) Node {
	key, value := n.Pairs[0].Key, n.Pairs[0].Value
	scalar := value.Kind != KindMap && value.Kind != KindList && value.Kind != KindNull && !value.Quoted
	if key.Kind != KindText || key.Quoted || !scalar || value.Line != key.Line || value.Column != key.Column+utf8.RuneCountInString(key.Text)+1 {
		return n
	}
	key.Text += ":" + value.Text
	return key
}

func (out *Node) addPair(p *ast.MappingValueNode, depth int) error {
	if p.Key == nil || p.Value == nil {
		return errors.New("a key or a value is missing")
	}
	key, err := convertNode(p.Key, depth+1)
	if err != nil {
		return err
	}
	val, err := convertNode(p.Value, depth+1)
	if err != nil {
		return err
	}
	if val.Kind == KindNull {
		// An absent value has no position of its own.
		val.Line, val.Column = key.Line, key.Column
	}
	out.Pairs = append(out.Pairs, NodePair{key, val})
	return nil
}
