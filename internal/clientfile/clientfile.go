// Package clientfile changes the MCP servers in the text of a client's configuration file, and no other byte of it.
//
// A client keeps its servers in JSON, in JSON with comments, or in TOML. ListServers finds them; Rewrite removes and adds some. Both are pure:
// text in, text out. Rewrite parses its result again, and returns an error unless the result is the old document with exactly the announced change.
//
// The package knows syntax only. Where a client keeps its file, and what an entry means, is for package connect.
package clientfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Syntax is the language of a file.
type Syntax int

// The languages. The client must still be able to read its file.
const (
	JSON         Syntax = iota // without comments
	JSONComments               // with comments, but without a comma behind the last member
	JSONC                      // with both
	TOML
)

// A Form is what a client accepts as its file.
type Form struct {
	Syntax Syntax
	BOM    bool // the client accepts a byte order mark
}

// Limits of a file. A client's file can hold much besides servers.
const (
	maxJSON = document.MaxJSONBytes
	maxTOML = 1 << 20
)

// MaxBytes returns the largest file that is read.
func (f Form) MaxBytes() int {
	if f.Syntax == TOML {
		return maxTOML
	}
	return maxJSON
}

// An Entry is one server in a client's file.
type Entry struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"` // the entry's value as standard JSON, its keys in the order of the file

	// Source is the text of the whole entry with its name, as it stands in the file, or "" if there is none. Indent is the
	// indentation of its first line. Rewrite writes an entry with its Source where the place permits.
	Source string `json:"source,omitempty"`
	Indent string `json:"indent,omitempty"`

	// Fixed says why the entry cannot be removed, or is "".
	Fixed string `json:"-"`
}

// A Splice replaces the bytes from Start to End of a text by Text.
type Splice struct {
	Start, End int
	Text       string
}

// Apply returns the text with the splices, which must be in order and not overlap. The result is not nil, because an empty file is a file.
func Apply(text []byte, splices []Splice) ([]byte, error) {
	out := make([]byte, 0, len(text))
	at := 0
	for _, s := range splices {
		if s.Start < at || s.End < s.Start || s.End > len(text) {
			return nil, errors.New("the changes do not fit the text")
		}
		out = append(out, text[at:s.Start]...)
		out = append(out, s.Text...)
		at = s.End
	}
	return append(out, text[at:]...), nil
}

// Invert returns the splices that undo others: applied to the result, they give text again.
func Invert(text []byte, splices []Splice) []Splice {
	var out []Splice
	shift := 0
	for _, s := range splices {
		start := s.Start + shift
		out = append(out, Splice{Start: start, End: start + len(s.Text), Text: string(text[s.Start:s.End])})
		shift += len(s.Text) - (s.End - s.Start)
	}
	return out
}

// A body is a parsed text, without its byte order mark.
type body interface {
	// entries returns the servers of the section. The error is a switchboard.Fault without its file.
	entries(section []string) ([]Entry, error)

	// rewrite returns the splices for a change; see Rewrite.
	rewrite(section, remove []string, add []Entry) ([]Splice, error)

	// tree returns all values.
	tree() map[string]any

	// decode returns the value of an entry as it would stand in the tree.
	decode(value json.RawMessage) (any, error)
}

var byteOrderMark = []byte("\ufeff")

// read parses a text, and returns the length of its byte order mark.
func read(file string, text []byte, form Form) (b body, mark int, err error) {
	if len(text) > form.MaxBytes() {
		return nil, 0, faultAt(file, text, -1, fmt.Sprintf("the file is larger than %d bytes", form.MaxBytes()))
	}
	rest, marked := bytes.CutPrefix(text, byteOrderMark)
	if marked && !form.BOM {
		return nil, 0, faultAt(file, text, 0, "the file begins with a byte order mark, with which the client cannot read it; save it as UTF-8 without one")
	}
	if form.Syntax == TOML {
		b, err = readTOML(file, rest)
	} else {
		b, err = readJSON(file, rest, form.Syntax)
	}
	return b, len(text) - len(rest), err
}

// faultAt returns the fault at an offset of the text, or of the whole file if the offset is -1.
func faultAt(file string, text []byte, offset int, why string) error {
	f := switchboard.Fault{File: file, Text: why}
	if offset >= 0 {
		f.Line, f.Column = document.Position(text, offset)
	}
	return switchboard.Faults{f}
}

// faultAtLine returns the fault at a position.
func faultAtLine(file string, line, column int, why string) error {
	return switchboard.Faults{{File: file, Line: line, Column: column, Text: why}}
}

// ListServers returns the servers under the keys of section, in the order of the text. file names the text in faults. The error is
// switchboard.Faults: the text is no valid file of this form, or the section is no map.
func ListServers(file string, text []byte, form Form, section []string) ([]Entry, error) {
	b, _, err := read(file, text, form)
	if err != nil {
		return nil, err
	}
	return b.entries(section)
}

// Values returns all values of a file as encoding/json decodes them, or as TOML has them. The error is switchboard.Faults.
func Values(file string, text []byte, form Form) (map[string]any, error) {
	b, _, err := read(file, text, form)
	if err != nil {
		return nil, err
	}
	return b.tree(), nil
}

// Rewrite returns the splices that remove the servers of those names from a section, and write the servers of add in the place of the first
// removed one. If none is removed, they are written behind the last server; a section that does not exist is made. If there is no text at all,
// the result is a new file. It is an error if a name to remove is missing, or a name to add exists.
func Rewrite(file string, text []byte, form Form, section, remove []string, add []Entry) ([]Splice, error) {
	if len(text) == 0 && form.Syntax != TOML {
		return newJSON(section, add)
	}
	b, mark, err := read(file, text, form)
	if err != nil {
		return nil, err
	}
	want, err := change(b, file, section, remove, add)
	if err != nil {
		return nil, err
	}
	if len(remove) == 0 && len(add) == 0 {
		return nil, nil
	}
	splices, err := b.rewrite(section, remove, add)
	if err != nil {
		return nil, err
	}
	for i := range splices {
		splices[i].Start += mark
		splices[i].End += mark
	}
	refuse := fmt.Errorf("%s: the servers are written in a way that cannot be edited without changing something else; edit the file by hand", file)
	after, err := Apply(text, splices)
	if err != nil {
		return nil, refuse
	}
	again, _, err := read(file, after, form)
	if err != nil || !reflect.DeepEqual(withoutEmpty(again.tree(), section), withoutEmpty(want, section)) {
		return nil, refuse
	}
	return splices, nil
}

// change returns the tree as it must be after the change.
func change(b body, file string, section, remove []string, add []Entry) (map[string]any, error) {
	entries, err := b.entries(section)
	if err != nil {
		return nil, err
	}
	have := map[string]Entry{}
	for _, e := range entries {
		have[e.Name] = e
	}
	root := maps.Clone(b.tree())
	at := root
	for _, key := range section {
		inner, _ := at[key].(map[string]any)
		if inner = maps.Clone(inner); inner == nil {
			if len(add) == 0 {
				break
			}
			inner = map[string]any{}
		}
		at[key] = inner
		at = inner
	}
	for _, name := range remove {
		e, ok := have[name]
		if !ok {
			return nil, fmt.Errorf("%s: there is no server %s", file, document.Shown(name))
		}
		if e.Fixed != "" {
			return nil, fmt.Errorf("%s: server %s: %s", file, document.Shown(name), e.Fixed)
		}
		delete(have, name)
		delete(at, name)
	}
	for _, e := range add {
		if _, exists := have[e.Name]; exists {
			return nil, fmt.Errorf("%s: there is a server %s already", file, document.Shown(e.Name))
		}
		have[e.Name] = e
		if at[e.Name], err = b.decode(e.Value); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// withoutEmpty returns the tree without the section if that is empty: the last table of a TOML file leaves none behind.
func withoutEmpty(tree map[string]any, section []string) map[string]any {
	key := section[0]
	inner, ok := tree[key].(map[string]any)
	if !ok {
		return tree
	}
	tree = maps.Clone(tree)
	if len(section) > 1 {
		tree[key] = withoutEmpty(inner, section[1:])
	} else if len(inner) == 0 {
		delete(tree, key)
	}
	return tree
}

// eolOf returns how the lines of a text end.
func eolOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lineStart returns the offset of the first byte of the line at an offset.
func lineStart(text []byte, at int) int { return bytes.LastIndexByte(text[:at], '\n') + 1 }

// lineEnd returns the offset behind the line at an offset, with its line break.
func lineEnd(text []byte, at int) int {
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}

// isBlank reports whether a text has nothing but spaces and line breaks.
func isBlank(text []byte) bool { return len(bytes.TrimLeft(text, " \t\r\n")) == 0 }

// sortSplices puts splices in order, and joins cuts that overlap: two neighbours can cut the space between them.
func sortSplices(s []Splice) []Splice {
	slices.SortStableFunc(s, func(a, b Splice) int { return a.Start - b.Start })
	var out []Splice
	for _, next := range s {
		if n := len(out); n > 0 && next.Start < out[n-1].End && next.Text == "" && out[n-1].Text == "" {
			out[n-1].End = max(out[n-1].End, next.End)
			continue
		}
		out = append(out, next)
	}
	return out
}

// setLineEnds gives the lines of a text the ends of another one.
func setLineEnds(text, eol string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", eol)
}
