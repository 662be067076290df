package catalog

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxFaults bounds the faults that are kept of one server; one more then
// counts the rest. What is refused stays refused.
const MaxFaults = 256

// A Fault is something wrong with what is said of a server's tools. The tool
// that it names is not offered; where it names none, see the package comment.
type Fault struct {
	Server switchboard.ServerID

	// Tool is the tool's name, or as much of it as can be shown safely; ""
	// where the fault is not of one tool.
	Tool string

	Source switchboard.Source
	Where  string // the manifest's file or URL
	Field  string // where in that, such as "_meta.x-summit-capabilities[0].verb"
	Reason string
}

// Error says all of it on one line.
func (f Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server %q", f.Server)
	if f.Tool != "" {
		b.WriteString(`, tool "` + f.Tool + `"`) // safe as it is
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

func (f Fault) compare(o Fault) int {
	return cmp.Or(
		cmp.Compare(f.Server, o.Server),
		cmp.Compare(f.Tool, o.Tool),
		cmp.Compare(f.Source, o.Source),
		cmp.Compare(f.Where, o.Where),
		cmp.Compare(f.Field, o.Field),
		cmp.Compare(f.Reason, o.Reason),
	)
}

// A problem is a fault before it is known whose it is.
type problem struct {
	field, reason string
}

func problemf(field, format string, args ...any) *problem {
	return &problem{field, fmt.Sprintf(format, args...)}
}

// of says whose fault p is.
func (p problem) of(id switchboard.ServerID, tool string, source switchboard.Source, where string) Fault {
	return Fault{Server: id, Tool: shown(tool), Source: source, Where: where, Field: p.field, Reason: p.reason}
}

// maxShown bounds how much of a stranger's word is repeated, in bytes.
const maxShown = 64

// shown returns s in a form that does no harm on a terminal and that nobody
// takes for something else: ASCII, or escaped, and bounded.
func shown(s string) string {
	cut := ""
	if len(s) > MaxNameBytes {
		s, cut = s[:maxShown], "…"
	}
	if checkName(s) == "" {
		return s + cut
	}
	q := strconv.QuoteToASCII(s)
	return q[1:len(q)-1] + cut
}

// quoted returns s within quotes, as shown, and shorter.
func quoted(s string) string {
	cut := ""
	if len(s) > maxShown {
		s, cut = s[:maxShown], "…"
	}
	return strconv.QuoteToASCII(s) + cut
}

// suggest ends a sentence about a word that is not known with the nearest one
// that is.
func suggest[T ~string](word string, known []T) string {
	best, at := T(""), -1
	for _, k := range known {
		if d := distance(strings.ToLower(word), string(k)); at < 0 || d < at {
			best, at = k, d
		}
	}
	if at <= max(2, len(best)/3) {
		return fmt.Sprintf("; did you mean %q?", string(best))
	}
	return fmt.Sprintf("; the nearest known is %q", string(best))
}

// distance is the number of bytes to insert, delete, replace or swap with
// their neighbour to make b of a. Of both only the first maxShown count.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxShown)], b[:min(len(b), maxShown)]
	var rows [3][maxShown + 1]int // the one in work, the one before, and that before it
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		row, prev, before := &rows[(i+1)%3], &rows[i%3], &rows[(i+2)%3]
		row[0] = i + 1
		for j := range len(b) {
			d := prev[j]
			if a[i] != b[j] {
				d++
			}
			row[j+1] = min(d, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
