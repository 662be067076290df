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
	return func(yield func(earlier, later int) bool) {
		var known NameIndex
		for later, name := range names {
			if earlier, ok := known.Alike(name); ok && !yield(earlier, later) {
				return
			}
			known.Add(name)
		}
	}
}

// A NameIndex holds names that others are compared with, in the sense of AlikeNames. The zero value has no names.
type NameIndex struct {
	names []string
	forms map[string]int // the first name of each skeleton
	slots map[wordSlot][]wordAt
}

// A wordSlot is a place for a word in a name: the other words of the name, the word's position, and its first byte.
type wordSlot struct {
	others string
	at     int
	first  byte
}

// A wordAt is a word in a wordSlot, and the index of the first name that has it there.
type wordAt struct {
	word string
	name int
}

// Add adds a name. Its index is the number of names that were added before.
func (k *NameIndex) Add(name string) {
	if k.forms == nil {
		k.forms, k.slots = map[string]int{}, map[wordSlot][]wordAt{}
	}
	at, form := len(k.names), skeleton(name)
	k.names = append(k.names, name)
	if _, ok := k.forms[form]; !ok {
		k.forms[form] = at
	}
	for s, word := range slotsOf(name) {
		if !slices.ContainsFunc(k.slots[s], func(w wordAt) bool { return w.word == word }) {
			k.slots[s] = append(k.slots[s], wordAt{word, at})
		}
	}
}

// Alike returns the index of a known name that is easily taken for the name, and is another one.
func (k *NameIndex) Alike(name string) (index int, ok bool) {
	if first, ok := k.forms[skeleton(name)]; ok && k.names[first] != name {
		return first, true
	}
	for s, word := range slotsOf(name) {
		for _, w := range k.slots[s] {
			if mistyped(w.word, word) {
				return w.name, true
			}
		}
	}
	return 0, false
}

// slotsOf yields the words of a name, with their slots.
func slotsOf(name string) iter.Seq2[wordSlot, string] {
	return func(yield func(wordSlot, string) bool) {
		words := nameWords(name)
		for i, word := range words {
			if !yield(wordSlot{strings.Join(slices.Concat(words[:i], []string{""}, words[i+1:]), " "), i, word[0]}, word) {
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
