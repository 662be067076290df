package receipt

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A termColumn is a member of receipts that a Query can ask for, apart from node and time. The index
// keeps the terms of each column.
type termColumn int

const (
	kindColumn termColumn = iota
	tenantColumn
	taskColumn
	toolColumn // see appendToolTerm
	codeColumn
	outcomeColumn
	principalColumn
	columnCount
)

// searchTerms are the terms of one receipt. Equal texts share their memory. The zero searchTerms
// means that the terms are not known yet.
type searchTerms [columnCount]*string

// anyTerms stands for terms that are unknown: every Query may select a receipt with them.
var (
	anyTerms  = searchTerms{new(string)}
	emptyTerm = new(string)
)

// toolSeparator stands between the parts of a term of toolColumn.
const toolSeparator = "\n"

// maxToolTerm limits the bytes of a term of toolColumn.
const maxToolTerm = 16 << 10

// appendToolTerm appends the term of r in toolColumn: server/tool, served_by, and the tools that r
// lists. ok is false if there is no such term.
func appendToolTerm(b []byte, r *Receipt) (term []byte, ok bool) {
	if len(r.Tools) > maxTools || !isToolPart(string(r.Server)) || strings.Contains(string(r.Server), "/") || !isToolPart(r.Tool) || !isToolPart(r.ServedBy) {
		return b, false
	}
	b = append(append(append(b, r.Server...), '/'), r.Tool...)
	b = append(append(b, toolSeparator...), r.ServedBy...)
	for _, tool := range r.Tools {
		if !isToolPart(tool) {
			return b, false
		}
		b = append(append(b, toolSeparator...), tool...)
	}
	return b, len(b) <= maxToolTerm
}

// isToolPart reports whether the text can be a part of a term of toolColumn.
func isToolPart(text string) bool {
	return isStoredUnchanged(text) && !strings.Contains(text, toolSeparator)
}

// isStoredUnchanged reports whether a stored receipt has the text as it is: not cut, and in UTF-8.
func isStoredUnchanged(text string) bool { return len(text) <= maxText && utf8.ValidString(text) }

// matchesToolTerm reports whether q selects the tools of a term of toolColumn. It makes no copy, because a search
// asks it about every tool of every block.
func (q *Query) matchesToolTerm(term string) bool {
	called, rest, _ := strings.Cut(term, toolSeparator)
	servedBy, rest, more := strings.Cut(rest, toolSeparator)
	for more {
		var id string
		id, rest, more = strings.Cut(rest, toolSeparator)
		if q.matchesToolID(id) {
			return true
		}
	}
	_, tool, _ := strings.Cut(called, "/")
	return tool != "" && (q.matchesToolID(called) || switchboard.MatchPattern(q.Tool, servedBy))
}

// matchesToolID reports whether q selects the tool with the id server/tool.
func (q *Query) matchesToolID(id string) bool {
	_, name, _ := strings.Cut(id, "/")
	return switchboard.MatchPattern(q.Tool, id) || switchboard.MatchPattern(q.Tool, name)
}

// matchesTools reports whether q selects a receipt with the tools of r.
func (q *Query) matchesTools(r *Receipt) bool {
	if q.Tool == "" || slices.ContainsFunc(r.Tools, q.matchesToolID) {
		return true
	}
	return r.Tool != "" && (switchboard.MatchPattern(q.Tool, r.Tool) ||
		switchboard.MatchPattern(q.Tool, string(r.Server)+"/"+r.Tool) || switchboard.MatchPattern(q.Tool, r.ServedBy))
}

// exactTerm returns the text that receipts of q have in the column; "" means any.
func (q *Query) exactTerm(c termColumn) string {
	switch c {
	case kindColumn:
		return string(q.Kind)
	case tenantColumn:
		return string(q.Tenant)
	case taskColumn:
		return string(q.Task)
	case codeColumn:
		return string(q.Code)
	case outcomeColumn:
		return string(q.Outcome)
	case principalColumn:
		return q.Principal
	}
	return ""
}

// asksForTerms reports whether q selects by terms, and not by node and time alone.
func (q *Query) asksForTerms() bool {
	return q.Tool != "" || slices.ContainsFunc(allColumns[:], func(c termColumn) bool { return q.exactTerm(c) != "" })
}

var allColumns = [columnCount]termColumn{kindColumn, tenantColumn, taskColumn, toolColumn, codeColumn, outcomeColumn, principalColumn}

// A termTable keeps one copy of equal texts. It is for one goroutine at a time.
type termTable struct {
	known  map[string]*string
	bytes  int
	buffer []byte
}

// The table begins anew when it is full. Terms that were taken from it stay valid.
const (
	maxTableTerms = 4096
	maxTableBytes = 256 << 10
)

// find returns the terms of r, or anyTerms. It keeps no reference to r.
func (t *termTable) find(r *Receipt) (terms searchTerms) {
	for c, text := range [...]string{
		kindColumn: string(r.Kind), tenantColumn: string(r.Tenant), taskColumn: string(r.Task),
		codeColumn: string(r.Code), outcomeColumn: string(r.Outcome), principalColumn: r.Principal.ID,
	} {
		switch {
		case termColumn(c) == toolColumn:
			term, ok := appendToolTerm(t.buffer[:0], r)
			if t.buffer = term; !ok {
				return anyTerms
			}
			if terms[c] = t.known[string(term)]; terms[c] == nil {
				terms[c] = t.add(string(term))
			}
		case text == "":
			terms[c] = emptyTerm
		default:
			if terms[c] = t.known[text]; terms[c] != nil {
				continue
			}
			if !isStoredUnchanged(text) {
				return anyTerms
			}
			terms[c] = t.add(strings.Clone(text))
		}
	}
	return terms
}

func (t *termTable) add(own string) *string {
	if t.known == nil || len(t.known) >= maxTableTerms || t.bytes >= maxTableBytes {
		t.known, t.bytes = map[string]*string{}, 0
	}
	t.known[own] = &own
	t.bytes += len(own)
	return &own
}

// matchesEntry reports whether q selects e, apart from its node. q selects every entry that cannot be
// read, because its content is unknown.
func (q *Query) matchesEntry(e *ChainEntry) bool {
	r := &e.Receipt
	switch {
	case e.Fault != nil:
		return true
	case q.Tenant != "" && r.Tenant != q.Tenant,
		q.Task != "" && r.Task != q.Task,
		q.Code != "" && r.Code != q.Code,
		q.Outcome != "" && r.Outcome != q.Outcome,
		q.Kind != "" && r.Kind != q.Kind,
		q.Principal != "" && r.Principal.ID != q.Principal,
		!q.Since.IsZero() && r.Time.Before(q.Since),
		!q.Until.IsZero() && !r.Time.Before(q.Until):
		return false
	}
	return q.matchesTools(r)
}

// A termMatcher says which terms a Query may select.
type termMatcher struct {
	query    *Query
	may      [columnCount][]bool // memory for indexBlock.find
	compared int                 // terms until now
}

// asks reports whether the query asks for terms of the column.
func (m *termMatcher) asks(c termColumn) bool {
	return c == toolColumn && m.query.Tool != "" || m.query.exactTerm(c) != ""
}

func (m *termMatcher) matches(c termColumn, text string) bool {
	m.compared++
	if c == toolColumn {
		return m.query.matchesToolTerm(text)
	}
	return text == m.query.exactTerm(c)
}
