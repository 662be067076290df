package catalog

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxFaults limits the faults that are kept for one server. One more fault then gives the number of the rest. Their
// tools stay refused.
const MaxFaults = 256

// A ToolFault is a mistake in a statement about a server's tools. The tool that it names is not offered, unless Offered is set. If it names no
// tool, see the package comment.
type ToolFault struct {
	Server switchboard.ServerID

	// Tool is the tool's name, or as much of it as can be shown safely; "" if the fault is not about one tool.
	Tool string

	Source switchboard.Source
	Where  string // the manifest's file or URL
	Field  string // the place in it, such as "_meta.x-summit-capabilities[0].verb"
	Reason string

	// Offered says that the tool is offered: only its labels have ended, or are about to.
	Offered bool
}

// Error returns the fault in one line.
func (f ToolFault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server %q", f.Server)
	if f.Tool != "" {
		b.WriteString(`, tool "` + f.Tool + `"`) // Tool is already safe to show
	}
	if f.Source != "" {
		fmt.Fprintf(&b, ", %s", strings.ReplaceAll(string(f.Source), "_", " "))
	}
	if f.Where != "" {
		fmt.Fprintf(&b, " %s", f.Where)
	}
	if f.Field != "" {
		fmt.Fprintf(&b, ": %s", f.Field)
	}
	fmt.Fprintf(&b, ": %s", f.Reason)
	return b.String()
}

func (f ToolFault) compare(o ToolFault) int {
	return cmp.Or(
		cmp.Compare(f.Server, o.Server),
		cmp.Compare(f.Tool, o.Tool),
		cmp.Compare(f.Source, o.Source),
		cmp.Compare(f.Where, o.Where),
		cmp.Compare(f.Field, o.Field),
		cmp.Compare(f.Reason, o.Reason),
	)
}

// A problem is a fault without its server and tool.
type problem struct {
	field, reason string
}

func problemf(field, format string, args ...any) *problem {
	return &problem{field, fmt.Sprintf(format, args...)}
}

// toFault returns p as a Fault of this server, tool and source.
func (p problem) toFault(id switchboard.ServerID, tool string, source switchboard.Source, where string) ToolFault {
	return ToolFault{Server: id, Tool: safeText(tool), Source: source, Where: where, Field: p.field, Reason: p.reason}
}

// maxShown limits how many bytes of foreign text are repeated.
const maxShown = 64

// safeText returns s in a form that is harmless on a terminal and cannot be mistaken for other text: in ASCII or escaped,
// and of limited length.
func safeText(s string) string {
	cut := ""
	if len(s) > MaxNameBytes {
		s, cut = s[:maxShown], "…"
	}
	if CheckName(s) == "" {
		return s + cut
	}
	q := strconv.QuoteToASCII(s)
	return q[1:len(q)-1] + cut
}

// safeQuote returns s in quotes, escaped as by shown, but shorter.
func safeQuote(s string) string {
	cut := ""
	if len(s) > maxShown {
		s, cut = s[:maxShown], "…"
	}
	return strconv.QuoteToASCII(s) + cut
}

// suggestNearest returns the end of a sentence about an unknown word: it gives the nearest known word.
func suggestNearest[T ~string](word string, known []T) string {
	best, at := T(""), -1
	for _, k := range known {
		if d := switchboard.EditDistance(strings.ToLower(word), string(k)); at < 0 || d < at {
			best, at = k, d
		}
	}
	if at <= max(2, len(best)/3) {
		return fmt.Sprintf("; did you mean %q?", string(best))
	}
	return fmt.Sprintf("; the nearest known is %q", string(best))
}
