package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Fault is one thing that is wrong with one file.
type Fault = switchboard.Fault

// Faults are all that is wrong, sorted by file, line and column. It is the error of
// this package's functions.
type Faults = switchboard.Faults

// MaxFaults bounds how many faults are kept; the rest is counted.
const MaxFaults = 1000

// sink gathers the faults of one part of the configuration.
type sink struct {
	faults   Faults
	more     int
	warnings Faults
}

// faulty reports whether anything is wrong with the part.
func (s *sink) faulty() bool { return len(s.faults) > 0 }

// take adds what another sink has gathered.
func (s *sink) take(other *sink) {
	for _, f := range other.faults {
		s.add(f)
	}
	s.more += other.more
	for _, w := range other.warnings {
		s.warn(w)
	}
}

func (s *sink) warn(f Fault) {
	if len(s.warnings) < MaxFaults {
		s.warnings = append(s.warnings, f)
	}
}

func (s *sink) add(f Fault) {
	if len(s.faults) == MaxFaults {
		s.more++
		return
	}
	s.faults = append(s.faults, f)
}

// err returns what was gathered, sorted and without repetitions, or nil. name
// is the file that a count of further faults is laid to.
func (s *sink) err(name string) error {
	if len(s.faults) == 0 {
		return nil
	}
	s.faults = inOrder(s.faults)
	if s.more > 0 {
		s.faults = append(s.faults, Fault{File: name, Text: fmt.Sprintf("%d more faults are not listed", s.more)})
	}
	return s.faults
}

// inOrder returns the faults in the order of the files, without repetitions.
func inOrder(all Faults) Faults {
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

// maxShown bounds how much of a value a fault repeats, in bytes.
const maxShown = 64

// shown quotes what a file says, so that it cannot disturb a terminal, and
// masks what looks like a credential wherever it stands.
func shown(s string) string {
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

// maxListed bounds how many known names a fault lists.
const maxListed = 12

// instead says what could have been meant in place of s: the nearest known
// name, else the known names.
func instead(s, noun string, known []string) string {
	if near := nearest(s, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	text := "; " + listed(noun, known)
	if noun == "resources" || noun == "constraints" {
		text += "; more of them are named in " + taxonomyFile
	}
	return text
}

func listed(noun string, known []string) string {
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

// nearest returns the known name that s was most likely meant to be, or "".
// Of names that are equally near it is the first.
func nearest(s string, known []string) string {
	if s == "" || len(s) > maxShown {
		return ""
	}
	best, far := "", max(1, len(s)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(s), strings.ToLower(k)); d < far {
			best, far = k, d
		}
	}
	return best
}

// distance is how many bytes must be inserted, removed, replaced, or swapped
// with their neighbour to turn a into b.
func distance(a, b string) int {
	if d := len(a) - len(b); d > maxShown || -d > maxShown {
		return maxShown
	}
	// Three rows of the table are enough: the one before last is for swaps.
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
