package clientfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/tailscale/hujson"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// A tomlBody is a parsed TOML text. Its section is one top-level table with a table for each server.
type tomlBody struct {
	file   string
	text   []byte
	values map[string]any
	lines  []expression
}

// An expression is a header of a table, or a key with its value. It has whole lines for itself.
type expression struct {
	header bool
	list   bool     // the header of an element of a list of tables
	table  []string // the keys of the table that it stands in
	keys   []string // its own
	start  int      // of its first line
	end    int      // behind its last line
}

func readTOML(file string, text []byte) (*tomlBody, error) {
	b := &tomlBody{file: file, text: text}
	if err := toml.Unmarshal(text, &b.values); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := at.Position()
			return nil, faultAtLine(file, line, column, "this is not valid TOML: "+strings.TrimPrefix(at.Error(), "toml: "))
		}
		return nil, faultAt(file, text, -1, "this is not valid TOML")
	}
	if b.values == nil {
		b.values = map[string]any{}
	}
	p := unstable.Parser{}
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		node := p.Expression()
		x := expression{header: node.Kind != unstable.KeyValue, list: node.Kind == unstable.ArrayTable}
		var first, behind int
		for it := node.Key(); it.Next(); {
			key := it.Node()
			if key.Kind != unstable.Key {
				break // a comment
			}
			if x.keys == nil {
				first = int(key.Raw.Offset)
			}
			behind = int(key.Raw.Offset + key.Raw.Length)
			x.keys = append(x.keys, string(key.Data))
		}
		if !x.header {
			first, behind = int(node.Raw.Offset), int(node.Raw.Offset+node.Raw.Length)
			x.table = table
		} else {
			table = x.keys
		}
		x.start, x.end = lineStart(text, first), lineEnd(text, behind)
		b.lines = append(b.lines, x)
	}
	if p.Error() != nil {
		return nil, faultAt(file, text, -1, "this is not valid TOML")
	}
	return b, nil
}

func (b *tomlBody) tree() map[string]any { return b.values }

func (b *tomlBody) decode(value json.RawMessage) (any, error) {
	var v map[string]any
	if err := toml.Unmarshal([]byte(formatTable("x", Entry{Name: "x", Value: value}, "\n")), &v); err != nil {
		return nil, err
	}
	inner, _ := v["x"].(map[string]any)
	return inner["x"], nil
}

// A shape is how a server is written.
type shape int

const (
	headed shape = iota // [mcp_servers.name]
	member              // name = {…} below [mcp_servers]
	dotted              // mcp_servers.name = {…} before the first header
)

// A chunk is a part of a server's text: whole lines.
type chunk struct {
	name       string
	shape      shape
	start, end int
}

// chunks returns the parts of all servers in the order of the text. fixed are the servers that cannot be edited, with the reason.
func (b *tomlBody) chunks(section string) (out []chunk, fixed map[string]string) {
	fixed = map[string]string{}
	add := func(c chunk) {
		if n := len(out); n > 0 && out[n-1].name == c.name && out[n-1].shape == c.shape && isBlank(b.text[out[n-1].end:c.start]) {
			out[n-1].end = c.end
			return
		}
		out = append(out, c)
	}
	for _, x := range b.lines {
		whole := slices.Concat(x.table, x.keys)
		if whole[0] != section {
			continue
		}
		switch {
		case len(whole) == 1 && !x.header:
			all, _ := b.values[section].(map[string]any)
			for name := range all {
				fixed[name] = "it stands in a table on one line, " + section + " = {…}, which is not edited here; give each server a table of its own"
			}
		case len(whole) == 1:
		case x.list && len(whole) == 2:
			fixed[whole[1]] = "it is a list"
		case x.header:
			add(chunk{whole[1], headed, x.start, x.end})
		case len(x.table) >= 2:
			// The comments between the header and this line belong to the server.
			if n := len(out); n > 0 && out[n-1].name == whole[1] && out[n-1].shape == headed {
				out[n-1].end = x.end
			}
		case len(x.table) == 1:
			add(chunk{whole[1], member, x.start, x.end})
		default:
			add(chunk{whole[1], dotted, x.start, x.end})
		}
	}
	return out, fixed
}

func (b *tomlBody) entries(section []string) ([]Entry, error) {
	value, ok := b.values[section[0]]
	if !ok {
		return nil, nil
	}
	all, ok := value.(map[string]any)
	if !ok {
		return nil, faultAt(b.file, b.text, -1, section[0]+": want a table")
	}
	chunks, fixed := b.chunks(section[0])
	var names []string
	for _, c := range chunks {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	var others []string
	for name := range fixed {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	var out []Entry
	for _, name := range append(names, others...) {
		raw, err := json.Marshal(all[name])
		if err != nil {
			return nil, faultAt(b.file, b.text, -1, fmt.Sprintf("server %s: %v", document.Shown(name), err))
		}
		e := Entry{Name: name, Value: raw, Fixed: fixed[name]}
		whole := true
		for _, c := range chunks {
			if c.name == name {
				e.Source += string(b.text[c.start:c.end])
				whole = whole && c.shape == headed
			}
		}
		if !whole {
			e.Source = "" // its lines have their meaning only where they stand
		}
		out = append(out, e)
	}
	return out, nil
}

func (b *tomlBody) rewrite(section, remove []string, add []Entry) ([]Splice, error) {
	chunks, fixed := b.chunks(section[0])
	eol := eolOf(b.text)
	if len(fixed) > 0 && len(add) > 0 && len(chunks) == 0 {
		return nil, fmt.Errorf("%s: %s is a table on one line, which is not edited here; give each server a table of its own, [%s.NAME]", b.file, section[0], section[0])
	}
	if len(remove) == 0 {
		return []Splice{b.insert(chunks, b.join(section[0], add, headed, eol), eol)}, nil
	}
	var out []Splice
	placed := len(add) == 0
	for _, c := range chunks {
		if !slices.Contains(remove, c.name) {
			continue
		}
		if !placed {
			placed = true
			text := b.join(section[0], add, c.shape, eol)
			if end := b.text[c.start:c.end]; !bytes.HasSuffix(end, []byte("\n")) {
				text = strings.TrimSuffix(text, eol)
			}
			out = append(out, Splice{c.start, c.end, text})
			continue
		}
		out = append(out, b.cut(c))
	}
	return out, nil
}

// cut removes a chunk, and the blank lines that would stand beside others.
func (b *tomlBody) cut(c chunk) Splice {
	before := b.text[:c.start]
	if len(before) == 0 || bytes.HasSuffix(before, []byte("\n\n")) || bytes.HasSuffix(before, []byte("\n\r\n")) {
		for next := lineEnd(b.text, c.end); c.end < len(b.text) && isBlank(b.text[c.end:next]); next = lineEnd(b.text, c.end) {
			c.end = next
		}
	}
	return Splice{c.start, c.end, ""}
}

// join returns the lines of entries as they are written in a place where a server of that shape stood.
func (b *tomlBody) join(section string, add []Entry, s shape, eol string) string {
	var texts []string
	for _, e := range add {
		text := e.Source
		switch {
		case s != headed:
			text = quoteKey(e.Name) + " = " + formatInline(e.Value) + "\n"
			if s == dotted {
				text = section + "." + text
			}
		case text == "":
			text = formatTable(section, e, "\n")
		case !strings.HasSuffix(text, "\n"):
			text += "\n"
		}
		texts = append(texts, setLineEnds(text, eol))
	}
	if s == headed {
		return strings.Join(texts, eol)
	}
	return strings.Join(texts, "")
}

// insert returns the splice that adds tables behind those of the last server, or at the end.
func (b *tomlBody) insert(chunks []chunk, text, eol string) Splice {
	at := len(b.text)
	for _, c := range chunks {
		if c.shape == headed {
			at = c.end
		}
	}
	switch {
	case at == 0:
	case b.text[at-1] != '\n':
		text = eol + eol + text
	case at < len(b.text) && !isBlank(b.text[at:lineEnd(b.text, at)]):
		text = eol + text + eol
	case !bytes.HasSuffix(b.text[:at], []byte("\n"+eol)):
		text = eol + text
	}
	return Splice{at, at, text}
}

// quoteKey returns a key as TOML spells it.
func quoteKey(key string) string {
	bare := key != ""
	for _, r := range key {
		bare = bare && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}
	if bare {
		return key
	}
	return quoteTOML(key)
}

// quoteTOML returns a text as a basic string: JSON's form, and one more character that must not stand there.
func quoteTOML(s string) string { return strings.ReplaceAll(quoteJSON(s), "\x7f", `\u007F`) }

// formatTable returns a server as a table with a header. Its own tables follow it.
func formatTable(section string, e Entry, eol string) string {
	var out strings.Builder
	tree, err := hujson.Parse(e.Value)
	o, ok := tree.Value.(*hujson.Object)
	if err != nil || !ok {
		return ""
	}
	writeTable(&out, section+"."+quoteKey(e.Name), o, eol)
	return out.String()
}

func writeTable(out *strings.Builder, path string, o *hujson.Object, eol string) {
	out.WriteString("[" + path + "]" + eol)
	var inner []*hujson.ObjectMember
	for i := range o.Members {
		m := &o.Members[i]
		switch m.Value.Value.Kind() {
		case '{':
			inner = append(inner, m)
		case 'n': // TOML has no null
		default:
			out.WriteString(quoteKey(nameOf(m)) + " = " + formatInlineValue(m.Value.Value) + eol)
		}
	}
	for _, m := range inner {
		out.WriteString(eol)
		writeTable(out, path+"."+quoteKey(nameOf(m)), m.Value.Value.(*hujson.Object), eol)
	}
}

// formatInline returns a value on one line.
func formatInline(value []byte) string {
	tree, err := hujson.Parse(value)
	if err != nil {
		return ""
	}
	return formatInlineValue(tree.Value)
}

func formatInlineValue(v hujson.ValueTrimmed) string {
	var parts []string
	switch v := v.(type) {
	case *hujson.Object:
		for i := range v.Members {
			if m := &v.Members[i]; m.Value.Value.Kind() != 'n' {
				parts = append(parts, quoteKey(nameOf(m))+" = "+formatInlineValue(m.Value.Value))
			}
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case *hujson.Array:
		for i := range v.Elements {
			parts = append(parts, formatInlineValue(v.Elements[i].Value))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case hujson.Literal:
		if v.Kind() == '"' {
			return quoteTOML(v.String())
		}
		return string(v)
	}
	return ""
}
