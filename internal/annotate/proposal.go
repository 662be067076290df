package annotate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of a proposal, so that it can be read again, and accepted into an overlay that has rows already.
const (
	maxRows  = 1000
	maxBytes = document.MaxFileBytes * 3 / 4
)

// maxShownSigns limits the signs that a proposal shows for one tool, for and against together.
const maxShownSigns = 12

// forKey is the key of an overlay with the digest of the definition that it was given to.
const forKey = "for"

// neverMark begins a comment with a tool and a digest: a person wants no suggestion for that definition.
const neverMark = "# never "

// A ProposedRow is the suggested overlay of one tool.
type ProposedRow struct {
	Tool   string
	Digest switchboard.Digest // of the definition that it was made for; "" if the row does not say
	Value  document.Node      // the overlay
	Line   int                // where it stands in the file; 0 if it is new
}

// Row returns the suggestion as an overlay; ok is false if there is none.
func (s *ToolSuggestion) Row() (r ProposedRow, ok bool) {
	if s.Capability == nil || NameFault(s.Tool) != "" {
		return r, false
	}
	c := mapOf("verb", textOf(s.Capability.Verb), "resource", textOf(s.Capability.Resource))
	if names := s.Capability.Constraints; len(names) > 0 {
		list := document.Node{Kind: document.KindList}
		for _, name := range names {
			list.Items = append(list.Items, textOf(name))
		}
		c.Pairs = append(c.Pairs, mapOf("constraints", list).Pairs...)
	}
	value := mapOf("capabilities", document.Node{Kind: document.KindList, Items: []document.Node{c}})
	for _, f := range s.Facts {
		value.Pairs = append(value.Pairs, mapOf(f.Key, f.node()).Pairs...)
	}
	return ProposedRow{Tool: s.Tool, Digest: s.Digest, Value: givenTo(value, s.Digest)}, true
}

// givenTo returns the overlay with the digest of the definition that it is given to.
func givenTo(overlay document.Node, digest switchboard.Digest) document.Node {
	overlay.Pairs = slices.DeleteFunc(slices.Clone(overlay.Pairs), func(p document.NodePair) bool { return p.Key.Text == forKey })
	overlay.Pairs = append(overlay.Pairs, mapOf(forKey, textOf(digest)).Pairs...)
	return overlay
}

// NewRow returns the row of a person for the tool with the definition of that digest. overlay is its overlay in YAML or JSON, in one map.
func NewRow(tool string, digest switchboard.Digest, overlay []byte) (ProposedRow, error) {
	if why := NameFault(tool); why != "" {
		return ProposedRow{}, errors.New(why)
	}
	sink := &document.Sink{}
	v, ok := document.ReadYAML("overlay", overlay, sink)
	if err := sink.Err("overlay"); err != nil {
		return ProposedRow{}, err
	}
	if !ok || v.Kind != document.KindMap {
		return ProposedRow{}, errors.New("want a map, such as {capabilities: [{verb: read, resource: fs}]}")
	}
	return ProposedRow{Tool: tool, Digest: digest, Value: givenTo(v.Node, digest)}, nil
}

func textOf[T ~string](s T) document.Node {
	return document.Node{Kind: document.KindText, Text: string(s)}
}

// mapOf returns a map of keys and values, which alternate.
func mapOf(pairs ...any) document.Node {
	m := document.Node{Kind: document.KindMap}
	for i := 0; i+1 < len(pairs); i += 2 {
		m.Pairs = append(m.Pairs, document.NodePair{Key: textOf(pairs[i].(string)), Value: pairs[i+1].(document.Node)})
	}
	return m
}

// NameFault says why an overlay cannot name the tool, or returns "".
func NameFault(tool string) string {
	if tool == "" || len(tool) > 128 || strings.Trim(tool, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/") != "" {
		return "an overlay cannot name this tool"
	}
	return ""
}

// WriteProposal returns the file of suggestions for a server, which has the form of an overlay with the signs as comments. Rows
// of an earlier file stay as they are if they were made for the same definition, because a person may have changed them.
// Tools in never get no row while they have that definition. It returns nil if there is nothing to write. If there are too many rows for one file, it ends with a comment that says so.
func WriteProposal(server switchboard.ServerID, suggestions []ToolSuggestion, earlier []ProposedRow, never map[string]switchboard.Digest) []byte {
	var b bytes.Buffer
	kept := map[string]switchboard.Digest{}
	for _, s := range suggestions {
		if never[s.Tool] == s.Digest && s.Digest != "" {
			kept[s.Tool] = s.Digest
		}
	}
	fmt.Fprintf(&b, `# Suggestions of "switchboard annotate" for the server %[1]s. Nothing in this file counts: it is not loaded.
# Read each row. Change what is wrong, and remove what you do not want. Then accept the rest:
#   switchboard annotate --accept %[1]s          all rows
#   switchboard annotate --accept %[1]s TOOL     one row
# Or look at one tool after the other: switchboard annotate --review %[1]s
`, server)
	for _, tool := range slices.Sorted(maps.Keys(kept)) {
		b.WriteString(neverLine(tool, kept[tool]))
	}
	fmt.Fprintf(&b, "server: %s\ntools:\n", server)
	rows, left := 0, 0
	for _, s := range suggestions {
		if kept[s.Tool] != "" {
			continue
		}
		r, ok := s.Row()
		was := slices.IndexFunc(earlier, func(e ProposedRow) bool { return e.Tool == s.Tool && e.Digest == s.Digest })
		if !ok && was < 0 {
			continue
		}
		if rows == maxRows || b.Len() > maxBytes {
			left++
			continue
		}
		rows++
		changed := ""
		if was >= 0 && (!ok || edit.Format(earlier[was].Value) != edit.Format(r.Value)) {
			r, changed = earlier[was], "; the row below was here before, and stays"
		}
		if ok {
			fmt.Fprintf(&b, "\n  # %s, %d %% sure%s\n", s.Capability, s.Confidence, changed)
			if len(s.Resources) > 1 {
				fmt.Fprintf(&b, "  # or the resource %s\n", joinTexts(s.Resources[1:], " or "))
			}
		} else {
			fmt.Fprintf(&b, "\n  # no suggestion%s\n", changed)
		}
		for _, c := range s.Contradictions {
			fmt.Fprintf(&b, "  # LOOK: %s\n", oneLine(c))
		}
		for _, f := range s.Facts {
			fmt.Fprintf(&b, "  # %s, because of %s\n", f, oneLine(strings.Join(f.Why, "; ")))
		}
		writeSigns(&b, s)
		fmt.Fprintf(&b, "  %s: %s\n", document.Quote(r.Tool), edit.Format(r.Value))
	}
	switch {
	case rows == 0 && len(kept) == 0:
		return nil
	case rows == 0:
		return onlyNever(server, kept)
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n# %d more tools have suggestions: accept these first, then run annotate again.\n", left)
	}
	return b.Bytes()
}

// neverLine returns the comment that keeps suggestions away from that definition of the tool.
func neverLine(tool string, digest switchboard.Digest) string {
	return neverMark + oneLine(tool) + " " + string(digest) + "\n"
}

// onlyNever returns a file of suggestions without any.
func onlyNever(server switchboard.ServerID, never map[string]switchboard.Digest) []byte {
	var b bytes.Buffer
	for _, tool := range slices.Sorted(maps.Keys(never)) {
		b.WriteString(neverLine(tool, never[tool]))
	}
	fmt.Fprintf(&b, "server: %s\ntools: {}\n", server)
	return b.Bytes()
}

// AddNever returns the file of suggestions with the comment that keeps suggestions away from that definition of the tool.
func AddNever(text []byte, tool string, digest switchboard.Digest) []byte {
	return append([]byte(neverLine(tool, digest)), text...)
}

// ReadNever returns the tools in the comments of AddNever, with the digests of their definitions.
func ReadNever(text []byte) map[string]switchboard.Digest {
	never := map[string]switchboard.Digest{}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), neverMark)
		if at := strings.LastIndexByte(rest, ' '); ok && at > 0 {
			never[rest[:at]] = switchboard.Digest(rest[at+1:])
		}
	}
	return never
}

func joinTexts[T ~string](all []T, separator string) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = string(t)
	}
	return strings.Join(texts, separator)
}

// writeSigns writes the heaviest signs as comments.
func writeSigns(b *bytes.Buffer, s ToolSuggestion) {
	left := maxShownSigns
	for _, side := range []struct {
		name  string
		signs []Sign
	}{{"for    ", s.For}, {"against", s.Against}} {
		for i, sign := range side.signs {
			if i >= maxShownSigns/2 && left <= 0 || i >= maxShownSigns*2/3 {
				fmt.Fprintf(b, "  #   %s and %d more\n", side.name, len(side.signs)-i)
				break
			}
			left--
			fmt.Fprintf(b, "  #   %s %2d  %s: %s\n", side.name, sign.Weight, sign.Where, oneLine(sign.Says))
		}
	}
}

// oneLine returns the text without anything that could end a comment.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
			return ' '
		}
		return r
	}, text)
}

// A LostRow is a row of an earlier file that a new file does not have, and why.
type LostRow struct {
	Tool string `json:"tool"`
	Why  string `json:"why"`
}

// ListLost returns the rows of the earlier file that WriteProposal leaves out, unless the tool has a label now.
func ListLost(suggestions []ToolSuggestion, earlier []ProposedRow, labelled func(tool string) bool) (lost []LostRow) {
	for _, e := range earlier {
		i := slices.IndexFunc(suggestions, func(s ToolSuggestion) bool { return s.Tool == e.Tool })
		switch {
		case labelled(e.Tool):
		case i < 0:
			lost = append(lost, LostRow{e.Tool, "the server does not offer this tool now"})
		case suggestions[i].Digest != e.Digest:
			lost = append(lost, LostRow{e.Tool, "it was not made for the present definition of the tool"})
		}
	}
	return lost
}

// WithoutRows returns the file of suggestions without the rows of the tools, and nil if no row is left. The bytes of the other
// rows stay, unless several rows stand on one line.
func WithoutRows(text []byte, rows []ProposedRow, gone func(tool string) bool) []byte {
	stay := slices.DeleteFunc(slices.Clone(rows), func(r ProposedRow) bool { return gone(r.Tool) })
	if len(stay) == 0 {
		server, _, err := ReadProposal("", text)
		if never := ReadNever(text); err == nil && len(never) > 0 {
			return onlyNever(server, never)
		}
		return nil
	}
	out := cutRows(text, rows, gone)
	_, left, err := ReadProposal("", out)
	if err == nil && slices.EqualFunc(left, stay, func(a, b ProposedRow) bool {
		return a.Tool == b.Tool && a.Digest == b.Digest && edit.Format(a.Value) == edit.Format(b.Value)
	}) {
		return out
	}
	server, _, err := ReadProposal("", text)
	if err != nil {
		return text // the rows are not those of the text
	}
	var b []byte
	for tool, digest := range ReadNever(text) {
		b = append(b, neverLine(tool, digest)...)
	}
	b = fmt.Appendf(b, "server: %s\ntools:\n", server)
	for _, r := range stay {
		b = fmt.Appendf(b, "  %s: %s\n", document.Quote(r.Tool), edit.Format(r.Value))
	}
	return b
}

// cutRows cuts the lines of the rows.
func cutRows(text []byte, rows []ProposedRow, gone func(tool string) bool) []byte {
	lines := strings.SplitAfter(string(text), "\n")
	sorted := slices.SortedFunc(slices.Values(rows), func(a, b ProposedRow) int { return cmp.Compare(a.Line, b.Line) })
	var b strings.Builder
	from := 0
	for i, r := range sorted {
		begin := rowBegin(lines, r.Line-1)
		end := len(lines)
		if i+1 < len(sorted) {
			end = rowBegin(lines, sorted[i+1].Line-1)
		}
		b.WriteString(strings.Join(lines[from:begin], ""))
		if from = begin; gone(r.Tool) {
			from = end
		}
	}
	b.WriteString(strings.Join(lines[from:], ""))
	return []byte(b.String())
}

// rowBegin returns the index of the first line of the comments above a row.
func rowBegin(lines []string, at int) int {
	for at > 0 && strings.HasPrefix(strings.TrimLeft(lines[at-1], " \t"), "#") {
		at--
	}
	return at
}

// ReadProposal reads a file of suggestions, which a person may have changed. file names it in faults. The error is
// switchboard.Faults.
func ReadProposal(file string, text []byte) (server switchboard.ServerID, rows []ProposedRow, err error) {
	sink := &document.Sink{}
	doc, ok := document.ReadYAML(file, text, sink)
	if ok {
		keys := &document.Keys{Rows: []document.Row{
			{Key: "server", Type: document.Text("a server", func(_ document.Value, s string) { server = switchboard.ServerID(s) }), Required: "name the server", Doc: "The server."},
			{Key: "tools", Type: document.Named("a map from tool to overlay", "TOOL", func() *document.Keys { return &document.Keys{} }, func(v document.Value) {
				for _, e := range v.ReadNamed(document.MaxItems*10, true) {
					if why := NameFault(e.Name); why != "" {
						e.Key.Fault("%s: %s", document.Shown(e.Name), why)
					}
					rows = append(rows, ProposedRow{Tool: e.Name, Value: e.Value.Node, Line: e.Key.Line})
				}
			}), Required: "name at least one tool", Doc: "The suggested overlays."},
		}}
		if m, ok := doc.Open(keys); ok {
			m.Read()
		}
	}
	if err := sink.Err(file); err != nil {
		return "", nil, err
	}
	for i := range rows {
		for _, p := range rows[i].Value.Pairs {
			if p.Key.Text == forKey {
				rows[i].Digest = switchboard.Digest(p.Value.Text)
			}
		}
	}
	return server, rows, nil
}
