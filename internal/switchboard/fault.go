package switchboard

import (
	"fmt"
	"strings"
)

// A Fault is one mistake in a file: where it is, what it is, and what to do about it. Its text never contains the value
// of a secret.
type Fault struct {
	File string

	// Line and Column count from 1, columns in characters. Line 0 means the whole file or folder.
	Line, Column int

	Text string
}

// String returns "file:line:column: text", or "file: text".
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Text)
}

// Faults are all mistakes in some files, in the order of files, lines and columns.
type Faults []Fault

// Error returns the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}
