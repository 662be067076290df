package switchboard

import "strings"

// maxCompared limits how many bytes of a word EditDistance compares.
const maxCompared = 64

// Misspells reports whether name is a misspelling of known: another case, another separator, or a typing mistake. A
// misspelt name is refused, because a restriction that is not read is worse than none.
func Misspells(name []byte, known string) bool {
	if len(name) < len(known)-3 || len(name) > len(known)+3 || string(name) == known {
		return false
	}
	s := strings.ToLower(string(name))
	return strings.EqualFold(string(name), known) || EditDistance(s, known) <= allowedMistakes(known)
}

// allowedMistakes returns how many typing mistakes a misspelling may have: none in short names, which have real neighbours
// ("title" and "tile").
func allowedMistakes(known string) int {
	switch {
	case len(known) >= len(BlockName):
		return 3
	case len(known) >= len("capabilities"):
		return 2
	}
	return 0
}

// EditDistance returns how many bytes must be inserted, deleted, replaced or swapped with their neighbour to change a into
// b. Only the first maxCompared bytes of each count.
func EditDistance(a, b string) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	var rows [3][maxCompared + 1]int // the current row, the previous one, and the one before that
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
