package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxFaults limits how many faults are listed; the others are only counted.
const MaxFaults = 1000

// A Sink collects the faults of a file, or of a part of several files.
type Sink struct {
	Faults   switchboard.Faults
	unlisted int
	Warnings switchboard.Faults
}

// Faulty reports whether there is a fault.
func (s *Sink) Faulty() bool { return len(s.Faults) > 0 }

// AddAll adds the faults and warnings of another sink.
func (s *Sink) AddAll(other *Sink) {
	for _, f := range other.Faults {
		s.Add(f)
	}
	s.unlisted += other.unlisted
	for _, w := range other.Warnings {
		s.Warn(w)
	}
}

// Warn records a warning.
func (s *Sink) Warn(f switchboard.Fault) {
	if len(s.Warnings) < MaxFaults {
		s.Warnings = append(s.Warnings, f)
	}
}

// Add records a fault.
func (s *Sink) Add(f switchboard.Fault) {
	if len(s.Faults) == MaxFaults {
		s.unlisted++
		return
	}
	s.Faults = append(s.Faults, f)
}

// Err returns the faults, sorted and without repetitions, or nil. name is the file that the
// fault with the number of unlisted faults names.
func (s *Sink) Err(name string) error {
	if len(s.Faults) == 0 {
		return nil
	}
	s.Faults = SortFaults(s.Faults)
	if s.unlisted > 0 {
		s.Faults = append(s.Faults, switchboard.Fault{File: name, Text: fmt.Sprintf("%d more faults are not listed", s.unlisted)})
	}
	return s.Faults
}

// SortFaults returns the faults in the order of the files, without repetitions.
func SortFaults(all switchboard.Faults) switchboard.Faults {
	slices.SortStableFunc(all, func(a, b switchboard.Fault) int {
		return cmp.Or(
			strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			strings.Compare(a.Text, b.Text),
		)
	})
	return slices.Compact(all)
}

// maxShown limits how many bytes of a value a fault repeats.
const maxShown = 64

// Shown quotes a text from a file. Quoting keeps control characters from the terminal. A text
// that looks like a credential is masked.
func Shown(s string) string {
	if switchboard.CredentialValue(s) {
		return `"***"`
	}
	if len(s) > maxShown {
		cut := maxShown
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return fmt.Sprintf("%q (and %d bytes more)", s[:cut], len(s)-cut)
	}
	return fmt.Sprintf("%q", s)
}

// maxListed limits how many known names a fault lists.
const maxListed = 12

// Suggestion returns the end of a fault about the unknown name s: the nearest known name, or the list
// of known names.
func Suggestion(s, noun string, known []string) string {
	if near := Nearest(s, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; " + ListKnown(noun, known)
}

// ListKnown returns a list of the known names for the end of a fault.
func ListKnown(noun string, known []string) string {
	if len(known) == 0 {
		return "there are no " + noun
	}
	names := known[:min(len(known), maxListed)]
	text := "known " + noun + ": " + strings.Join(names, ", ")
	if n := len(known) - len(names); n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// Nearest returns the known name that s most probably stands for, or "". If several are equally
// near, it returns the first.
func Nearest(s string, known []string) string {
	if s == "" || len(s) > maxShown {
		return ""
	}
	best, far := "", max(1, len(s)/3)+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(s), strings.ToLower(k)); d < far {
			best, far = k, d
		}
	}
	return best
}

// editDistance returns how many bytes must be inserted, removed, replaced, or swapped with their
// neighbor to turn a into b.
func editDistance(a, b string) int {
	if d := len(a) - len(b); d > maxShown || -d > maxShown {
		return maxShown
	}
	// Three rows of the table are enough. The row before the last one is needed for swaps.
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		older, old, row = old, row, older
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
