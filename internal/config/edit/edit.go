// Package edit changes the servers in the text of a switchboard.yaml, and no other byte of it. AddRows does the same for
// the rows of other files, such as the tools of an overlay.
//
// AddServers, RemoveServers and AddRows take a text and return a text. They find the bytes to change by the positions of the
// parsed rows, so that comments, order, indentation, line ends and a byte order mark stay. They parse the result again:
// unless it is the old document with exactly the announced change, they return an error and no text.
//
// The package knows how a row is written, in block style, in flow style and as JSON. What the keys of a row mean is for
// package config; package rewrite writes files.
package edit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// servers is the key of the servers.
const servers = "servers"

// A Server is a row to add.
type Server struct {
	ID switchboard.ServerID

	// Comment is written behind the id, unless the servers stand in flow style. It is one line, without the #.
	Comment string

	Settings []Setting // in the order in which they are written

	value *document.Node // of a NamedNode, in the place of Settings
}

// A NamedNode is a pair of a name and a value, for a map of names that the user chose.
type NamedNode struct {
	Name  string
	Value document.Node // written in flow style, on one line
}

// A Setting is one key of a row, with one kind of value. Make it with Text, List or Map.
type Setting struct {
	Key string

	text  string
	items []string  // of a list
	pairs []Setting // of a map
	kind  document.Kind
}

// Text returns a setting with a text.
func Text(key, text string) Setting { return Setting{Key: key, kind: document.KindText, text: text} }

// List returns a setting with a list of texts.
func List(key string, items ...string) Setting {
	return Setting{Key: key, kind: document.KindList, items: items}
}

// Map returns a setting with a map of settings. Those below the first level are written in flow style.
func Map(key string, pairs ...Setting) Setting {
	return Setting{Key: key, kind: document.KindMap, pairs: pairs}
}

// A Place is where a server stands in a text. Line and Column count from 1, columns in characters.
type Place struct {
	ID           switchboard.ServerID
	Line, Column int
}

// ListServers returns the servers in the text, in its order. A row with faults counts too. file names the text in faults.
// The error is switchboard.Faults.
func ListServers(file string, text []byte) ([]Place, error) {
	s, err := readSource(file, text, servers)
	if err != nil {
		return nil, err
	}
	out := make([]Place, len(s.rows))
	for i, r := range s.rows {
		out[i] = Place{switchboard.ServerID(r.Key.Text), r.Key.Line, r.Key.Column}
	}
	return out, nil
}

// AddServers returns the text with the rows behind the last server. A text without content, or without the key servers,
// gets that key. It is an error if a server of the same id stands in the text. file names the text in faults. The error
// is switchboard.Faults, or says that the edit would have changed something else.
func AddServers(file string, text []byte, rows []Server) ([]byte, error) {
	if len(rows) == 0 {
		return text, nil
	}
	s, err := readSource(file, text, servers)
	if err != nil {
		return nil, err
	}
	want := slices.Clone(s.rows)
	for _, r := range rows {
		if err := switchboard.CheckID(string(r.ID)); err != nil {
			return nil, s.faultAt(document.Node{}, "%v", err)
		}
		if i := indexOf(want, string(r.ID)); i >= 0 {
			return nil, s.faultAt(want[i].Key, "server %q stands here already; remove it first, or give the new one another id", r.ID)
		}
		want = append(want, r.node())
	}
	edits, err := s.addRows(rows)
	if err != nil {
		return nil, err
	}
	return s.apply(edits, want)
}

// AddRows returns the text with the rows behind the last row of the map under key. A text without content, or without the
// key, gets it. It is an error if a row of the same name stands in the text. file names the text in faults. The error is
// switchboard.Faults, or says that the edit would have changed something else.
func AddRows(file string, text []byte, key string, rows []NamedNode) ([]byte, error) {
	if len(rows) == 0 {
		return text, nil
	}
	s, err := readSource(file, text, key)
	if err != nil {
		return nil, err
	}
	want := slices.Clone(s.rows)
	added := make([]Server, len(rows))
	for i, r := range rows {
		if i := indexOf(want, r.Name); i >= 0 {
			return nil, s.faultAt(want[i].Key, "%s stands here already; remove it first", document.Shown(r.Name))
		}
		added[i] = Server{ID: switchboard.ServerID(r.Name), value: &rows[i].Value}
		want = append(want, added[i].node())
	}
	edits, err := s.addRows(added)
	if err != nil {
		return nil, err
	}
	return s.apply(edits, want)
}

// ListRows returns the names of the rows of the map under key, in their order. file names the text in faults. The error is
// switchboard.Faults.
func ListRows(file string, text []byte, key string) (names []string, err error) {
	s, err := readSource(file, text, key)
	if err != nil {
		return nil, err
	}
	for _, r := range s.rows {
		names = append(names, r.Key.Text)
	}
	return names, nil
}

// RemoveServers returns the text without the rows of the servers. The comments within a row go with it, and those above
// it stay. It is an error if a server does not stand in the text. file names the text in faults. The error is
// switchboard.Faults, or says that the edit would have changed something else.
func RemoveServers(file string, text []byte, ids ...switchboard.ServerID) ([]byte, error) {
	s, err := readSource(file, text, servers)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return text, nil
	}
	want := slices.Clone(s.rows)
	var known []string
	for _, r := range s.rows {
		known = append(known, r.Key.Text)
	}
	for _, id := range ids {
		i := indexOf(want, string(id))
		if i < 0 {
			return nil, s.faultAt(document.Node{}, "%s is no server here%s", document.Shown(string(id)), document.Suggestion(string(id), "servers", known))
		}
		want = slices.Delete(want, i, i+1)
	}
	edits, err := s.removeRows(ids)
	if err != nil {
		return nil, err
	}
	return s.apply(edits, want)
}

// indexOf returns the index of the row of a server, or -1.
func indexOf(rows []document.NodePair, id string) int {
	return slices.IndexFunc(rows, func(p document.NodePair) bool { return p.Key.Text == id })
}

// A splice replaces the bytes from start to end by text.
type splice struct {
	start, end int
	text       string
}

// apply returns the text with the splices, which must not overlap. It is an error unless the result is the old document
// with the rows want.
func (s *source) apply(edits []splice, want []document.NodePair) ([]byte, error) {
	out, err := s.applyAll(edits)
	if err != nil {
		return nil, err
	}
	after, err := readSource(s.file, out, s.key)
	if err != nil || !samePairs(after.rows, want) || !samePairs(after.others(), s.others()) {
		return nil, s.refuse()
	}
	return out, nil
}

// applyAll returns the text with the splices, which must not overlap.
func (s *source) applyAll(edits []splice) ([]byte, error) {
	slices.SortStableFunc(edits, func(a, b splice) int { return a.start - b.start })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		if e.start < at || e.end < e.start || e.end > len(s.text) {
			return nil, s.refuse()
		}
		out.Write(s.text[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(s.text[at:])
	if out.Len() > document.MaxFileBytes {
		return nil, s.faultAt(document.Node{}, "the file would be larger than %d bytes", document.MaxFileBytes)
	}
	return out.Bytes(), nil
}

// refuse is the error of an edit that cannot be made safely.
func (s *source) refuse() error {
	at := document.Node{}
	if s.section != nil {
		at = s.section.Key
	}
	return s.faultAt(at, "the %s are written in a way that cannot be edited here without changing something else; edit the file by hand", s.key)
}

func (s *source) faultAt(n document.Node, format string, args ...any) error {
	return switchboard.Faults{{File: s.file, Line: n.Line, Column: n.Column, Text: fmt.Sprintf(format, args...)}}
}

// samePairs reports whether two maps have the same keys and values in the same order.
func samePairs(a, b []document.NodePair) bool {
	return slices.EqualFunc(a, b, func(a, b document.NodePair) bool { return sameNode(a.Key, b.Key) && sameNode(a.Value, b.Value) })
}

// sameNode compares two values without their positions.
func sameNode(a, b document.Node) bool {
	if a.Kind != b.Kind || a.Kind == document.KindText && a.Text != b.Text {
		return false
	}
	switch a.Kind {
	case document.KindBool, document.KindInt, document.KindFloat:
		return a.Text == b.Text
	case document.KindList:
		return slices.EqualFunc(a.Items, b.Items, sameNode)
	case document.KindMap:
		return samePairs(a.Pairs, b.Pairs)
	}
	return true
}

// node returns the row as it is expected after the edit.
func (r Server) node() document.NodePair {
	row := document.Node{Kind: document.KindMap}
	if r.value != nil {
		row = *r.value
	}
	for _, s := range r.Settings {
		row.Pairs = append(row.Pairs, s.pair())
	}
	return document.NodePair{Key: textValue(string(r.ID)), Value: row}
}

func textValue(s string) document.Node { return document.Node{Kind: document.KindText, Text: s} }

// pair returns the setting as it is expected after the edit.
func (s Setting) pair() document.NodePair {
	value := textValue(s.text)
	switch s.kind {
	case document.KindList:
		value = document.Node{Kind: document.KindList}
		for _, item := range s.items {
			value.Items = append(value.Items, textValue(item))
		}
	case document.KindMap:
		value = document.Node{Kind: document.KindMap}
		for _, p := range s.pairs {
			value.Pairs = append(value.Pairs, p.pair())
		}
	}
	return document.NodePair{Key: textValue(s.Key), Value: value}
}

// A source is a parsed text, with the positions that the edits need.
type source struct {
	layout
	file string
	key  string              // of the section
	top  document.Node       // the whole document: a map
	rows []document.NodePair // of the section

	// section is the pair of the key, or nil. colon is the offset behind its colon, and value that of the first
	// byte of its value, or -1 if the value is absent.
	section      *document.NodePair
	colon, value int
}

func readSource(file string, text []byte, key string) (*source, error) {
	s := &source{layout: newLayout(text), file: file, key: key, top: document.Node{Kind: document.KindMap}}
	if s.holdsNothing() {
		return s, nil
	}
	sink := &document.Sink{}
	doc, ok := document.ReadYAML(file, text, sink)
	if !ok {
		return nil, sink.Err(file)
	}
	if s.top = doc.Node; s.top.Kind != document.KindMap {
		return nil, s.faultAt(s.top, "want a map, not %v", s.top.Kind)
	}
	for i := range s.top.Pairs {
		p := &s.top.Pairs[i]
		if p.Key.Text != key {
			continue
		}
		if s.section != nil {
			return nil, s.faultAt(p.Key, "%q stands here twice, first at line %d; remove one of them", key, s.section.Key.Line)
		}
		s.section = p
	}
	if s.section == nil {
		return s, nil
	}
	v := s.section.Value
	if v.Kind != document.KindMap && v.Kind != document.KindNull {
		return nil, s.faultAt(v, "%s: want a map, not %v", key, v.Kind)
	}
	s.rows = v.Pairs
	first := map[string]document.Node{}
	for _, r := range s.rows {
		if at, again := first[r.Key.Text]; again {
			return nil, s.faultAt(r.Key, "%s stands here twice, first at line %d; remove one of them", document.Shown(r.Key.Text), at.Line)
		}
		first[r.Key.Text] = r.Key
	}
	return s, s.locateSection()
}

// holdsNothing reports whether the text has only blank lines, comments and the mark of a document's begin.
func (s *source) holdsNothing() bool {
	for line := range bytes.Lines(bytes.TrimPrefix(s.text, byteOrderMark)) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// others returns the pairs of the document without the section.
func (s *source) others() []document.NodePair {
	return slices.DeleteFunc(slices.Clone(s.top.Pairs), func(p document.NodePair) bool { return p.Key.Text == s.key })
}

// locateSection finds the colon and the value of the section's key.
func (s *source) locateSection() error {
	at := s.offset(s.section.Key.Line, s.section.Key.Column)
	if at < 0 {
		return s.refuse()
	}
	rest := s.text[at:]
	for _, spelled := range []string{s.key, `"` + s.key + `"`, `'` + s.key + `'`} {
		if after, ok := bytes.CutPrefix(rest, []byte(spelled)); ok {
			colon := bytes.TrimLeft(after, " \t")
			if len(colon) == 0 || colon[0] != ':' {
				return s.refuse()
			}
			s.colon = len(s.text) - len(colon) + 1
			s.value = s.skipSpace(s.colon)
			if s.section.Value.Kind == document.KindNull && (s.value < 0 || s.lineOf(s.value) != s.lineOf(s.colon) || strings.IndexByte(",}", s.text[s.value]) >= 0) {
				s.value = -1
			}
			return nil
		}
	}
	return s.refuse()
}
