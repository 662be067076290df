package page

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/shown"
)

// maxDiffLines limits the lines of a difference that is shown.
const maxDiffLines = 400

// A diffLine is a line of a unified difference. Its text begins with the sign that says what became of it.
type diffLine struct {
	Text           string
	Added, Removed bool
}

// splitDifference returns the lines of a unified difference, without its head. Every character that is not visible as itself is spelt out.
func splitDifference(text string) (lines []diffLine) {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range all {
		switch {
		case len(lines) == 0 && !strings.HasPrefix(line, "@@"):
			continue // the names of the file
		case len(lines) == maxDiffLines:
			return append(lines, diffLine{Text: fmt.Sprintf("… and %d more lines", len(all)-i)})
		}
		sign := line[:min(1, len(line))]
		if len(line) > maxTheirs {
			line = strings.ToValidUTF8(line[:maxTheirs], "") + "…"
		}
		lines = append(lines, diffLine{shown.Line(line), sign == "+", sign == "-"})
	}
	return lines
}

// countRest returns how many elements of a list are behind the first n.
func countRest(list any, n int) int64 { return int64(max(0, reflect.ValueOf(list).Len()-n)) }
