package edit

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// defaultStep is the indentation of one level where the text shows none.
const defaultStep = 2

// addRows returns the splices that add the rows.
func (s *source) addRows(rows []Server) ([]splice, error) {
	switch {
	case s.section == nil && s.flowAt(s.skipTop()):
		quote := s.quote()
		return s.addFlow(s.skipTop(), s.top.Pairs, []string{quote(s.key) + ": {" + strings.Join(formatFlow(rows, quote), ", ") + "}"})
	case s.section == nil:
		return s.addSection(rows), nil
	case s.section.Value.Kind == document.KindNull:
		return s.fillSection(rows, s.value, s.value+len(s.wordAt(s.value)))
	case !s.flowAt(s.value):
		last := len(s.rows) - 1
		end := s.rowEnd(last)
		text := formatBlock(rows, s.rows[last].Key.Column-1, s.step(), s.lineEnd(s.lineStart(end)), s.partedByBlank())
		return []splice{s.insertLines(s.lineStart(end+1), text)}, nil
	case len(s.rows) == 0 && string(s.text[s.colon:min(len(s.text), s.value+2)]) == " {}" && s.blockTop():
		return s.fillSection(rows, s.value, s.value+2)
	}
	return s.addFlow(s.value, s.rows, formatFlow(rows, s.quote()))
}

// removeRows returns the splices that remove the servers.
func (s *source) removeRows(ids []switchboard.ServerID) ([]splice, error) {
	if s.flowAt(s.value) {
		return s.removeFlow(ids)
	}
	var cuts []lines
	kept := 0
	for i, r := range s.rows {
		if !slices.Contains(ids, switchboard.ServerID(r.Key.Text)) {
			kept++
			continue
		}
		c := lines{r.Key.Line, s.rowEnd(i)}
		switch {
		case i > 0 && s.blank(c.from-1):
			c.from-- // the blank line that parts it from the row before
		case i == 0 && len(ids) < len(s.rows) && c.from == s.section.Key.Line+1 && s.blank(c.to+1):
			c.to++
		}
		if n := len(cuts); n > 0 && c.from <= cuts[n-1].to+1 {
			cuts[n-1].to = c.to
		} else {
			cuts = append(cuts, c)
		}
	}
	var out []splice
	if kept == 0 {
		out = append(out, splice{s.colon, s.colon, " {}"})
	}
	for _, c := range cuts {
		out = append(out, s.cutLines(c))
	}
	return out, nil
}

// lines are the lines from one number to another, both included.
type lines struct{ from, to int }

// fillSection returns the splices that put rows in block style in the place of an absent or empty value, which stands
// from start to end on the line of the key.
func (s *source) fillSection(rows []Server, start, end int) ([]splice, error) {
	if !s.blockTop() {
		return nil, s.refuse()
	}
	var out []splice
	if start >= 0 {
		out = append(out, splice{start: s.colon, end: end})
	}
	key := s.section.Key
	text := formatBlock(rows, key.Column-1+defaultStep, defaultStep, s.lineEnd(s.colon), false)
	return append(out, s.insertLines(s.lineStart(s.lineOf(s.colon)+1), text)), nil
}

// addSection returns the splice that adds the section's key behind the last key of the document.
func (s *source) addSection(rows []Server) []splice {
	indent, at := 0, len(s.text)
	if n := len(s.top.Pairs); n > 0 {
		last := s.top.Pairs[n-1].Key
		indent = last.Column - 1
		at = s.lineStart(s.entryEnd(last, len(s.starts)+1) + 1)
	}
	eol := s.lineEnd(0)
	return []splice{s.insertLines(at, strings.Repeat(" ", indent)+s.key+":"+eol+formatBlock(rows, indent+defaultStep, defaultStep, eol, false))}
}

// step returns the indentation of one level, as the rows show it.
func (s *source) step() int {
	for _, r := range s.rows {
		if p := r.Value.Pairs; len(p) > 0 && p[0].Key.Line > r.Key.Line && p[0].Key.Column > r.Key.Column {
			return p[0].Key.Column - r.Key.Column
		}
	}
	return max(1, s.rows[0].Key.Column-s.section.Key.Column)
}

// partedByBlank reports whether blank lines part the rows.
func (s *source) partedByBlank() bool {
	for i := 1; i < len(s.rows); i++ {
		if !s.blank(s.rowEnd(i-1) + 1) {
			return false
		}
	}
	return len(s.rows) > 1
}

// rowEnd returns the number of the last line of a row in block style.
func (s *source) rowEnd(i int) int {
	limit := len(s.starts) + 1
	if i+1 < len(s.rows) {
		limit = s.rows[i+1].Key.Line
	} else {
		for _, p := range s.top.Pairs {
			if p.Key.Line > s.rows[i].Key.Line {
				limit = min(limit, p.Key.Line)
			}
		}
	}
	return s.entryEnd(s.rows[i].Key, limit)
}
