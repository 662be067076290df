package suspect

import (
	"iter"
	"slices"
	"strings"
	"unicode"
)

// minMistyped is the number of letters of the shortest word in which one changed letter looks like a slip: mysql and mssql are two programs.
const minMistyped = 6

// AlikeNames yields the indexes of names of servers or packages that are easily taken for each other, and are different names: they have the same skeleton, or one
// word of them differs by one letter that is missing, added, changed or in the place of its neighbour. The first letter of the word is the same, as slips rarely are in
// the first letter. Numbers, and an s at the end, tell honest names apart: server-1 and server-2, file and files. Each name is yielded at most once as the later one.
func AlikeNames(names []string) iter.Seq2[int, int] {
	type slot struct {
		others string // the other words
		at     int
	}
	type wordAt struct {
		word string
		name int
	}
	return func(yield func(earlier, later int) bool) {
		forms, slots := map[string]int{}, map[slot][]wordAt{}
		for later, name := range names {
			form, alike := skeleton(name), -1
			if earlier, ok := forms[form]; !ok {
				forms[form] = later
			} else if names[earlier] != name {
				alike = earlier
			}
			words := nameWords(name)
			for i, word := range words {
				s := slot{strings.Join(slices.Concat(words[:i], []string{""}, words[i+1:]), " "), i}
				for _, w := range slots[s] {
					if alike < 0 && mistyped(w.word, word) {
						alike = w.name
					}
				}
				slots[s] = append(slots[s], wordAt{word, later})
			}
			if alike >= 0 && !yield(alike, later) {
				return
			}
		}
	}
}

// nameWords returns the words of a name, in small letters.
func nameWords(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// mistyped reports whether one slip leads from one word to the other.
func mistyped(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	if a == b || len(b) < minMistyped || len(a)-len(b) > 1 || a[0] != b[0] || strings.TrimSuffix(a, "s") == b {
		return false
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	if isDigitAt(a, i) || isDigitAt(b, i) {
		return false
	}
	if len(a) > len(b) {
		return a[i+1:] == b[i:]
	}
	swapped := i+1 < len(b) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	return swapped || a[i+1:] == b[i+1:]
}

func isDigitAt(word string, i int) bool { return i < len(word) && '0' <= word[i] && word[i] <= '9' }
