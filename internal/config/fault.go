package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Fault is one mistake in one file.
type Fault = switchboard.Fault

// Faults are all mistakes, sorted by file, line and column. The functions of this package return it as
// their error.
type Faults = switchboard.Faults

// MaxFaults limits how many faults are listed; the others are only counted.
const MaxFaults = 1000

// sink collects the faults of one part of the configuration.
type sink struct {
	faults   Faults
	unlisted int
	warnings Faults
}

// faulty reports whether the part has a fault.
func (s *sink) faulty() bool { return len(s.faults) > 0 }

// addAll adds the faults and warnings of another sink.
func (s *sink) addAll(other *sink) {
	for _, f := range other.faults {
		s.addFault(f)
	}
	s.unlisted += other.unlisted
	for _, w := range other.warnings {
		s.addWarning(w)
	}
}

func (s *sink) addWarning(f Fault) {
	if len(s.warnings) < MaxFaults {
		s.warnings = append(s.warnings, f)
	}
}

func (s *sink) addFault(f Fault) {
	if len(s.faults) == MaxFaults {
		s.unlisted++
		return
	}
	s.faults = append(s.faults, f)
}

// sortedErr returns the faults, sorted and without repetitions, or nil. name is the file that the
// fault with the number of unlisted faults names.
func (s *sink) sortedErr(name string) error {
	if len(s.faults) == 0 {
		return nil
	}
	s.faults = sortFaults(s.faults)
	if s.unlisted > 0 {
		s.faults = append(s.faults, Fault{File: name, Text: fmt.Sprintf("%d more faults are not listed", s.unlisted)})
	}
	return s.faults
}

// sortFaults returns the faults in the order of the files, without repetitions.
func sortFaults(all Faults) Faults {
	slices.SortStableFunc(all, func(a, b Fault) int {
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

// quoteShown quotes a text from a file. Quoting keeps control characters from the terminal. A text
// that looks like a credential is masked.
func quoteShown(s string) string {
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

// suggestion returns the end of a fault about the unknown name s: the nearest known name, or the list
// of known names.
func suggestion(s, noun string, known []string) string {
	if near := nearestName(s, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	text := "; " + listKnown(noun, known)
	if noun == "resources" || noun == "constraints" {
		text += "; more of them are named in " + taxonomyFile
	}
	return text
}

func listKnown(noun string, known []string) string {
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

// nearestName returns the known name that s most probably stands for, or "". If several are equally
// near, it returns the first.
func nearestName(s string, known []string) string {
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
