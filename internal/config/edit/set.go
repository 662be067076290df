package edit

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// Append is the last element of a path that stands for a new item of a list.
const Append = "-"

// maxPath limits the elements of a path.
const maxPath = 16

// Set returns the text with the value at the path: keys of maps, and for items of lists their numbers from 0, or Append. Maps on the way that are
// missing are made. The lines of a list whose items only get another order move with their comments. A nil value removes what is at the path. All other bytes stay, with their comments; comments within the old value go
// with it. file names the text in faults. The error is switchboard.Faults: there is nothing to remove, the path leads into a text, or the edit would have
// changed something else.
func Set(file string, text []byte, path []string, value *document.Node) ([]byte, error) {
	s, err := readSource(file, text, "")
	if err != nil {
		return nil, err
	}
	e := &setting{source: s, value: value, limit: len(s.starts) + 1}
	if len(path) == 0 || len(path) > maxPath {
		return nil, s.faultAt(document.Node{}, "a path has 1 to %d elements", maxPath)
	}
	if s.holdsNothing() {
		if value == nil {
			return nil, s.faultAt(document.Node{}, "nothing is there to remove")
		}
		at := len(text)
		s.top = nest(path, *value)
		line := document.Quote(path[0]) + ": " + Format(s.top.Pairs[0].Value)
		return e.check([]splice{s.insertLines(at, line+s.lineEnd(0))}, s.top)
	}
	want, err := e.changed(s.top, path)
	if err != nil {
		return nil, err
	}
	edits, err := e.edit(s.top, s.skipTop(), path)
	if err != nil {
		return nil, err
	}
	return e.check(edits, want)
}

// A setting is the state of one Set.
type setting struct {
	*source
	value *document.Node // nil removes
	limit int            // the number of the first line behind the value that the edit has come to
	flow  bool           // that value is within one in flow style
	moved bool           // lines only get another order
}

// check returns the text with the splices, unless it is not the document want.
func (e *setting) check(edits []splice, want document.Node) ([]byte, error) {
	e.key, e.section = "", nil
	out, err := e.applyAll(edits)
	if err != nil {
		return nil, err
	}
	after, err := readSource(e.file, out, "")
	if err != nil || !sameNode(after.top, want) || !bytes.Equal(bytes.TrimLeft(commentsOf(out), "\n"), bytes.TrimLeft(e.commentsLeft(edits), "\n")) {
		return nil, e.refuseSet()
	}
	return out, nil
}

// commentsLeft returns the comments of the text outside of the splices.
func (e *setting) commentsLeft(edits []splice) []byte {
	var kept []byte
	at := 0
	for _, s := range edits {
		kept = append(kept, e.text[at:s.start]...)
		if at = s.end; e.moved {
			kept = append(kept, s.text...)
		} else if !e.lineBegins(s.start) || !e.lineBegins(s.end) {
			kept = append(kept, 'x') // what stands behind it on its line is no line of its own
		}
	}
	return commentsOf(append(kept, e.text[at:]...))
}

// lineBegins reports whether a line begins at the offset.
func (e *setting) lineBegins(at int) bool { return at == 0 || e.text[at-1] == '\n' }

// commentsOf returns the lines that are comments only, one a line, without their indentation.
func commentsOf(text []byte) (all []byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] == '#' {
			all = append(append(all, line...), '\n')
		}
	}
	return all
}

func (e *setting) refuseSet() error {
	return e.faultAt(document.Node{}, "this part is written in a way that cannot be edited here without changing something else; change the whole file")
}

// nest returns the maps on the path with the value.
func nest(path []string, value document.Node) document.Node {
	for _, name := range slices.Backward(path) {
		value = document.Node{Kind: document.KindMap, Pairs: []document.NodePair{{Key: document.Node{Kind: document.KindText, Text: name}, Value: value}}}
	}
	return value
}

// changed returns the document after the edit.
func (e *setting) changed(n document.Node, path []string) (document.Node, error) {
	name, rest := path[0], path[1:]
	switch n.Kind {
	case document.KindMap:
		i := indexOf(n.Pairs, name)
		n.Pairs = slices.Clone(n.Pairs)
		switch {
		case i < 0 && e.value == nil:
			return n, e.faultAt(n, "there is no %s to remove", document.Shown(name))
		case i < 0:
			n.Pairs = append(n.Pairs, nest(path, *e.value).Pairs...)
		case len(rest) == 0 && e.value == nil:
			n.Pairs = slices.Delete(n.Pairs, i, i+1)
		case len(rest) == 0:
			n.Pairs[i].Value = *e.value
		default:
			below, err := e.changed(n.Pairs[i].Value, rest)
			if err != nil {
				return n, err
			}
			n.Pairs[i].Value = below
		}
		return n, nil
	case document.KindList:
		i, err := strconv.Atoi(name)
		n.Items = slices.Clone(n.Items)
		switch {
		case name == Append && len(rest) == 0 && e.value != nil:
			n.Items = append(n.Items, *e.value)
		case err != nil || i < 0 || i >= len(n.Items):
			return n, e.faultAt(n, "%s is no item of this list of %d; the first is 0, and %s is a new one", document.Shown(name), len(n.Items), Append)
		case len(rest) == 0 && e.value == nil:
			n.Items = slices.Delete(n.Items, i, i+1)
		case len(rest) == 0:
			n.Items[i] = *e.value
		default:
			below, err := e.changed(n.Items[i], rest)
			if err != nil {
				return n, err
			}
			n.Items[i] = below
		}
		return n, nil
	}
	return n, e.faultAt(n, "%s stands within a value that is neither a map nor a list", document.Shown(name))
}

// edit returns the splices that change the value n, which begins at the offset at.
func (e *setting) edit(n document.Node, at int, path []string) ([]splice, error) {
	if at < 0 {
		return nil, e.refuseSet()
	}
	e.flow = e.flow || e.text[at] == '{' || e.text[at] == '['
	if n.Kind == document.KindList {
		return e.editItem(n, at, path)
	}
	i := indexOf(n.Pairs, path[0])
	if i < 0 {
		return e.addPair(n, at, path)
	}
	p := n.Pairs[i]
	if e.flow {
		entries, ok := e.scanFlow(at)
		if !ok || len(entries) != len(n.Pairs) {
			return nil, e.refuseSet()
		}
		if len(path) == 1 && e.value == nil {
			return e.cutFlow(entries, i), nil
		}
		return e.editAt(p.Value, e.behindColon(entries[i].start), entries[i].end, path[1:])
	}
	if i+1 < len(n.Pairs) {
		e.limit = min(e.limit, n.Pairs[i+1].Key.Line)
	}
	end := e.entryEnd(p.Key, e.limit)
	if len(path) == 1 && e.value == nil {
		if len(n.Pairs) == 1 {
			return nil, e.faultAt(p.Key, "%s is the only key here; remove the map, or change the whole file", document.Shown(p.Key.Text))
		}
		return []splice{e.cutLines(lines{p.Key.Line, end})}, nil
	}
	colon := e.behindColon(e.offset(p.Key.Line, p.Key.Column))
	return e.editAt(p.Value, colon, e.restOfLine(e.lineStart(end)), path[1:])
}

// editAt edits the value whose text is between the offsets colon, behind its key's colon, and end.
func (e *setting) editAt(v document.Node, colon, end int, rest []string) ([]splice, error) {
	if colon < 0 {
		return nil, e.refuseSet()
	}
	begin := e.skipSpace(colon)
	if begin < 0 || begin > end {
		begin = end // there is no value
	}
	if len(rest) > 0 {
		return e.edit(v, begin, rest)
	}
	if moved, ok := e.moveItems(v, begin); ok {
		return []splice{moved}, nil
	}
	text := Format(*e.value)
	if stop := e.scalarEnd(v, begin, end); stop >= 0 && e.lineOf(begin) == e.lineOf(colon) {
		return []splice{{begin, stop, text}}, nil // a comment behind it stays
	}
	if e.flow {
		return []splice{{begin, end, text}}, nil
	}
	return []splice{{colon, end, " " + text}}, nil
}

// moveItems returns the splice that puts the lines of a list in block style, which begins at the offset, in another order. ok is false if the new value has
// other items, or if the items do not stand on lines of their own.
func (e *setting) moveItems(v document.Node, begin int) (moved splice, ok bool) {
	if e.flow || v.Kind != document.KindList || e.value.Kind != document.KindList || len(v.Items) != len(e.value.Items) || len(v.Items) == 0 || e.text[begin] != '-' {
		return splice{}, false
	}
	isComment := func(n int) bool {
		line := bytes.TrimSpace(e.line(n))
		return len(line) > 0 && line[0] == '#'
	}
	from := v.Items[0].Line
	if slices.ContainsFunc(v.Items[1:], func(item document.Node) bool { return isComment(item.Line - 1) }) { // else the comment above the first item is about the list
		for from > 1 && isComment(from-1) {
			from--
		}
	}
	return e.orderParts(v, e.lineStart(from))
}

// orderParts returns the splice of moveItems, for the lines from an offset on.
func (e *setting) orderParts(v document.Node, from int) (moved splice, ok bool) {
	var parts [][]byte
	at := from
	for i := range v.Items {
		first := e.lineStart(v.Items[i].Line)
		if dash := bytes.TrimLeft(e.text[first:], " "); first < at || dash[0] != '-' {
			return splice{}, false
		}
		limit := e.limit
		if i+1 < len(v.Items) {
			limit = v.Items[i+1].Line
		}
		column := bytes.IndexByte(e.text[first:], '-') + 1
		end := min(len(e.text), e.lineStart(e.entryEnd(document.Node{Line: v.Items[i].Line, Column: column}, limit)+1))
		if end == 0 || e.text[end-1] != '\n' {
			return splice{}, false
		}
		parts, at = append(parts, e.text[at:end]), end
	}
	var text []byte
	used := make([]bool, len(parts))
	for _, item := range e.value.Items {
		i := slices.IndexFunc(v.Items, func(o document.Node) bool { return sameNode(o, item) })
		for i >= 0 && used[i] {
			next := slices.IndexFunc(v.Items[i+1:], func(o document.Node) bool { return sameNode(o, item) })
			if i += 1 + next; next < 0 {
				i = -1
			}
		}
		if i < 0 {
			return splice{}, false
		}
		used[i], text = true, append(text, parts[i]...)
	}
	e.moved = true
	return splice{from, at, string(text)}, true
}

// scalarEnd returns the offset behind a value on one line that begins at begin, or -1.
func (e *setting) scalarEnd(v document.Node, begin, end int) int {
	line := min(end, e.restOfLine(begin))
	if begin >= end || v.Kind == document.KindNull {
		return -1
	}
	switch c := e.text[begin]; {
	case c == '"' || c == '\'':
		if i := e.quoteEnd(begin); i >= 0 && i < line {
			return i + 1
		}
		return -1
	case c == '{':
		return e.bracketEnd(begin, line)
	case c == '[':
		return e.bracketEnd(begin, line)
	case v.Kind == document.KindMap || v.Kind == document.KindList || strings.IndexByte("|>&*!", c) >= 0 || line < end && !e.flow:
		return -1
	}
	text := e.text[begin:line]
	if i := bytes.Index(text, []byte(" #")); i >= 0 {
		text = text[:i]
	}
	return begin + len(bytes.TrimRight(text, " \t"))
}

// bracketEnd returns the offset behind the bracket that closes the one at open, before the offset end, or -1.
func (e *setting) bracketEnd(open, end int) int {
	depth := 0
	for i := open; i < end; i++ {
		switch e.text[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"', '\'':
			if strings.IndexByte(" [{,:", e.text[i-1]) >= 0 {
				if i = e.quoteEnd(i); i < 0 {
					return -1
				}
			}
		case '#':
			if e.text[i-1] == ' ' {
				return -1
			}
		}
	}
	return -1
}

// behindColon returns the offset behind the colon of the key that begins at the offset, or -1.
func (e *setting) behindColon(at int) int {
	if at < 0 || at >= len(e.text) {
		return -1
	}
	if c := e.text[at]; c == '"' || c == '\'' {
		if at = e.quoteEnd(at); at < 0 {
			return -1
		}
	}
	if i := bytes.IndexByte(e.text[at:e.restOfLine(at)], ':'); i >= 0 {
		return at + i + 1
	}
	return -1
}

// addPair adds a key to the map n, which begins at the offset at.
func (e *setting) addPair(n document.Node, at int, path []string) ([]splice, error) {
	if e.value == nil {
		return nil, e.refuseSet() // changed has refused it
	}
	below := *e.value
	if len(path) > 1 {
		below = nest(path[1:], below)
	}
	text := document.Quote(path[0]) + ": " + Format(below)
	if e.flow {
		if e.text[at] != '{' {
			return nil, e.refuseSet()
		}
		return e.addFlow(at, n.Pairs, []string{text})
	}
	if len(n.Pairs) == 0 {
		return nil, e.refuseSet()
	}
	last := n.Pairs[len(n.Pairs)-1]
	indent := strings.Repeat(" ", n.Pairs[0].Key.Column-1)
	end := e.lineStart(e.entryEnd(last.Key, e.limit) + 1)
	return []splice{e.insertLines(end, indent+text+e.lineEnd(max(0, end-1)))}, nil
}

// editItem edits an item of the list n, which begins at the offset at.
func (e *setting) editItem(n document.Node, at int, path []string) ([]splice, error) {
	i, err := strconv.Atoi(path[0])
	if e.flow {
		entries, ok := e.scanList(at)
		switch {
		case !ok || len(entries) != len(n.Items):
			return nil, e.refuseSet()
		case path[0] == Append && len(entries) == 0:
			return []splice{{at + 1, at + 1, Format(*e.value)}}, nil
		case path[0] == Append:
			last := entries[len(entries)-1]
			if last.comma >= 0 {
				return []splice{{last.comma + 1, last.comma + 1, " " + Format(*e.value)}}, nil
			}
			return []splice{{last.end, last.end, ", " + Format(*e.value)}}, nil
		case err != nil:
			return nil, e.refuseSet()
		case len(path) > 1:
			return e.edit(n.Items[i], entries[i].start, path[1:])
		case e.value == nil:
			return e.cutFlow(entries, i), nil
		}
		return []splice{{entries[i].start, entries[i].end, Format(*e.value)}}, nil
	}
	dash := func(i int) int { // of the item's dash
		from := e.lineStart(n.Items[i].Line)
		line := e.text[from:e.restOfLine(from)]
		if d := bytes.IndexByte(line, '-'); d >= 0 && len(bytes.TrimLeft(line[:d], " ")) == 0 {
			return from + d
		}
		return -1
	}
	end := func(i int) int { // the number of the item's last line
		limit := e.limit
		if i+1 < len(n.Items) {
			limit = n.Items[i+1].Line
		}
		return e.entryEnd(document.Node{Line: n.Items[i].Line, Column: dash(i) - e.lineStart(n.Items[i].Line) + 1}, limit)
	}
	if path[0] == Append {
		last := len(n.Items) - 1
		if last < 0 || dash(last) < 0 {
			return nil, e.refuseSet()
		}
		from := e.lineStart(n.Items[last].Line)
		to := e.lineStart(end(last) + 1)
		return []splice{e.insertLines(to, string(e.text[from:dash(last)])+"- "+Format(*e.value)+e.lineEnd(max(0, to-1)))}, nil
	}
	if err != nil || dash(i) < 0 {
		return nil, e.refuseSet()
	}
	begin := e.skipSpace(dash(i) + 1)
	e.limit = end(i) + 1
	switch {
	case len(path) > 1:
		return e.edit(n.Items[i], begin, path[1:])
	case e.value == nil && len(n.Items) == 1:
		return nil, e.faultAt(n.Items[i], "this is the only item; set the list to [], or remove it")
	case e.value == nil:
		return []splice{e.cutLines(lines{n.Items[i].Line, end(i)})}, nil
	}
	return e.editAt(n.Items[i], dash(i)+1, e.restOfLine(e.lineStart(end(i))), nil)
}

// scanList is scanFlow for a list in flow style.
func (e *setting) scanList(open int) (entries []flowEntry, ok bool) {
	if open < 0 || e.text[open] != '[' {
		return nil, false
	}
	as := layout{bytes.Clone(e.text), e.starts}
	end := e.bracketEnd(open, len(e.text))
	if end < 0 {
		return nil, false
	}
	as.text[open], as.text[end-1] = '{', '}'
	return as.scanFlow(open)
}

// cutFlow returns the splice that removes one entry.
func (e *setting) cutFlow(entries []flowEntry, i int) []splice {
	switch {
	case i+1 < len(entries):
		return []splice{{start: entries[i].start, end: entries[i+1].start}}
	case i > 0:
		return []splice{{start: entries[i-1].end, end: entries[i].end}}
	}
	return []splice{{start: entries[i].start, end: max(entries[i].end, entries[i].comma+1)}}
}
