package edit

import (
	"bytes"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A flowEntry is one entry of a map in flow style, by offsets.
type flowEntry struct {
	start, end int
	comma      int // of the comma behind it, or -1
}

// scanFlow returns the entries of the map in flow style that begins at open. ok is false if it finds no end of the map.
func (l *layout) scanFlow(open int) (entries []flowEntry, ok bool) {
	now := flowEntry{start: -1, comma: -1}
	depth, begins := 0, true // begins: a quote here would begin a text
	for i := open + 1; i < len(l.text); i++ {
		c := l.text[i]
		if strings.IndexByte(" \t\r\n", c) >= 0 {
			continue
		}
		if c == '#' && strings.IndexByte(" \t\r\n", l.text[i-1]) >= 0 {
			if i = l.restOfLine(i); i == len(l.text) {
				return nil, false
			}
			continue
		}
		if c == ',' && depth == 0 {
			if now.start < 0 {
				return nil, false
			}
			now.comma = i
			entries = append(entries, now)
			now, begins = flowEntry{start: -1, comma: -1}, true
			continue
		}
		if c == '}' && depth == 0 {
			if now.start >= 0 {
				entries = append(entries, now)
			}
			return entries, true
		}
		if now.start < 0 {
			now.start = i
		}
		switch c {
		case '{', '[':
			depth, begins = depth+1, true
		case '}', ']':
			depth, begins = depth-1, false
		case ',':
			begins = true
		case ':':
			begins = strings.IndexByte(" \t\r\n,[]{}", l.byteAt(i+1)) >= 0 || strings.IndexByte(`"'`, l.text[i-1]) >= 0
		case '"', '\'':
			if begins {
				if i = l.quoteEnd(i); i < 0 {
					return nil, false
				}
			}
			begins = false
		default:
			begins = false
		}
		if depth < 0 {
			return nil, false
		}
		now.end = i + 1
	}
	return nil, false
}

// quoteEnd returns the offset of the quote that ends the quoted text at i, or -1.
func (l *layout) quoteEnd(i int) int {
	quote := l.text[i]
	for i++; i < len(l.text); i++ {
		switch {
		case quote == '"' && l.text[i] == '\\':
			i++
		case l.text[i] == quote && quote == '\'' && l.byteAt(i+1) == quote:
			i++
		case l.text[i] == quote:
			return i
		}
	}
	return -1
}

// addFlow returns the splices that add entries to the map in flow style at open, which has the pairs.
func (s *source) addFlow(open int, pairs []document.NodePair, added []string) ([]splice, error) {
	entries, ok := s.scanFlow(open)
	if !ok || len(entries) != len(pairs) { // the parser reads the text in another way; then the rows could not be removed again
		return nil, s.refuse()
	}
	text := strings.Join(added, ", ")
	if len(entries) == 0 {
		return []splice{{open + 1, open + 1, text}}, nil
	}
	last := entries[len(entries)-1]
	indent, own := s.ownLine(last.start)
	if own {
		text = strings.Join(added, ","+s.lineEnd(last.start)+indent)
	}
	behind := max(last.end, last.comma+1)
	switch {
	case own && s.lineOver(behind):
		at := s.restOfLine(behind)
		line := s.lineEnd(behind) + indent + text
		if last.comma >= 0 {
			return []splice{{at, at, line + ","}}, nil
		}
		return []splice{{last.end, last.end, ","}, {at, at, line}}, nil
	case last.comma >= 0:
		return []splice{{behind, behind, " " + text + ","}}, nil
	case own:
		return []splice{{last.end, last.end, "," + s.lineEnd(last.end) + indent + text}}, nil
	}
	return []splice{{last.end, last.end, ", " + text}}, nil
}

// removeFlow returns the splices that remove the servers from a map in flow style.
func (s *source) removeFlow(ids []switchboard.ServerID) ([]splice, error) {
	entries, ok := s.scanFlow(s.value)
	if !ok || len(entries) != len(s.rows) {
		return nil, s.refuse()
	}
	kept := -1 // the last entry that stays
	gone := func(i int) bool { return slices.Contains(ids, switchboard.ServerID(s.rows[i].Key.Text)) }
	for i := range entries {
		if !gone(i) {
			kept = i
		}
	}
	var out []splice
	for i, e := range entries {
		switch {
		case !gone(i):
		case i < kept:
			out = append(out, splice{start: e.start, end: s.nextEntry(entries[i+1], e)})
		case i == 0:
			out = append(out, splice{start: e.start, end: max(e.end, e.comma+1)})
		default:
			out = append(out, s.cutTail(entries[i-1], e))
		}
	}
	if kept >= 0 && kept < len(entries)-1 && entries[len(entries)-1].comma < 0 { // no comma stood behind the last entry
		comma := entries[kept].comma
		out = append(out, splice{start: comma, end: comma + 1})
	}
	return out, nil
}

// nextEntry returns where the text goes on if the entry e is removed: at the entry after it, or at a comment above that
// entry. A comment behind the comma of e is removed too.
func (l *layout) nextEntry(after, e flowEntry) int {
	if !l.lineOver(e.comma + 1) {
		return after.start
	}
	at := l.restOfLine(e.comma + 1)
	for strings.IndexByte(" \t\r\n", l.text[at]) >= 0 {
		at++
	}
	return at
}

// cutTail returns the splice that removes an entry if all entries behind it are removed too. before is the entry before it.
func (l *layout) cutTail(before, e flowEntry) splice {
	end := max(e.end, e.comma+1)
	if _, own := l.ownLine(e.start); !own {
		return splice{start: before.comma + 1, end: end}
	}
	if l.lineOver(end) {
		end = l.restOfLine(end)
	}
	start := bytes.LastIndexByte(l.text[:e.start], '\n')
	if start > 0 && l.text[start-1] == '\r' {
		start--
	}
	return splice{start: start, end: end}
}

// quote returns how texts are quoted in the style of the document: as JSON if its keys stand in double quotes.
func (s *source) quote() func(string) string {
	keys := s.top.Pairs
	if s.section != nil {
		keys = []document.NodePair{*s.section}
	}
	if len(keys) > 0 && s.byteAt(max(0, s.offset(keys[0].Key.Line, keys[0].Key.Column))) == '"' {
		return quoteJSON
	}
	return document.Quote
}
