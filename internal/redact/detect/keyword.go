package detect

// keywordMatcher finds all of a set of words in a text in one pass, ignoring case. It is an
// automaton after Aho and Corasick.
type keywordMatcher struct {
	class  [256]byte // of a byte; 0 for bytes that are in no word
	width  int       // the number of classes
	next   []uint16  // by state and class
	ending [][]int   // by state: the words that end there
}

// newKeywords builds the automaton for these words, which are in lower case.
func newKeywords(words []string) *keywordMatcher {
	k := &keywordMatcher{width: 1}
	for _, w := range words {
		for i := range len(w) {
			if c := w[i]; k.class[c] == 0 {
				k.class[c] = byte(k.width)
				k.width++
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		k.class[c] = k.class[c|0x20]
	}
	grow := func() int {
		k.next = append(k.next, make([]uint16, k.width)...)
		k.ending = append(k.ending, nil)
		return len(k.ending) - 1
	}
	grow()
	for n, w := range words {
		state := 0
		for i := range len(w) {
			at := state*k.width + int(k.class[w[i]])
			if k.next[at] == 0 {
				k.next[at] = uint16(grow())
			}
			state = int(k.next[at])
		}
		k.ending[state] = append(k.ending[state], n)
	}
	k.linkSuffixes()
	return k
}

// linkSuffixes fills in the next state for bytes that continue no word: the state of the longest
// suffix that begins a word.
func (k *keywordMatcher) linkSuffixes() {
	fail := make([]int, len(k.ending))
	var queue []int
	for c := range k.width {
		if s := int(k.next[c]); s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		k.ending[state] = append(k.ending[state], k.ending[fail[state]]...)
		for c := range k.width {
			to := &k.next[state*k.width+c]
			shorter := k.next[fail[state]*k.width+c]
			if *to == 0 {
				*to = shorter
				continue
			}
			fail[*to] = int(shorter)
			queue = append(queue, int(*to))
		}
	}
}

// eachMatch calls each for every word in the text, with its end.
func (k *keywordMatcher) eachMatch(text string, each func(word, end int)) {
	state := 0
	for i := range len(text) {
		state = int(k.next[state*k.width+int(k.class[text[i]])])
		for _, w := range k.ending[state] {
			each(w, i+1)
		}
	}
}

// containsAny reports whether a word occurs in the text.
func (k *keywordMatcher) containsAny(text string) bool {
	state := 0
	for i := range len(text) {
		state = int(k.next[state*k.width+int(k.class[text[i]])])
		if k.ending[state] != nil {
			return true
		}
	}
	return false
}
