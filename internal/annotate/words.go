package annotate

import (
	"unicode"
	"unicode/utf8"
)

// maxWordBytes limits one word. The rest of a longer word is not read.
const maxWordBytes = 40

// splitWords returns the words of a text in lower case: runs of letters and digits, divided where a capital letter
// begins a new word (getUser, HTTPServer). It returns at most limit words.
func splitWords(text string, limit int) []string {
	var words []string
	var word []byte
	flush := func() {
		if len(word) > 0 && len(words) < limit {
			words = append(words, string(word))
		}
		word = word[:0]
	}
	before := ' '
	for i, r := range text {
		if len(words) >= limit {
			break
		}
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana), !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
		case unicode.IsUpper(r) && (!unicode.IsUpper(before) || startsLower(text[i+utf8.RuneLen(r):])):
			flush()
			fallthrough
		default:
			if len(word)+utf8.UTFMax <= maxWordBytes {
				word = utf8.AppendRune(word, unicode.ToLower(r))
			}
		}
		before = r
	}
	flush()
	return words
}

// startsLower reports whether the text begins with a small letter that is not the plural "s" of an abbreviation (URLs).
func startsLower(text string) bool {
	r, size := utf8.DecodeRuneInString(text)
	if r == 's' {
		next, _ := utf8.DecodeRuneInString(text[size:])
		return unicode.IsLower(next)
	}
	return unicode.IsLower(r)
}

// singular returns the word without the ending of a plural or of a verb's third person: "searches" is "search". It
// returns other words unchanged.
func singular(word string) string {
	n := len(word)
	switch {
	case n < 4 || word[n-1] != 's':
		return word
	case hasAnySuffix(word, "ss", "us", "is", "news"):
		return word
	case n > 4 && hasAnySuffix(word, "ies"):
		return word[:n-3] + "y"
	case hasAnySuffix(word, "ches", "shes", "sses", "xes", "zzes"):
		return word[:n-2]
	}
	return word[:n-1]
}

func hasAnySuffix(word string, endings ...string) bool {
	for _, e := range endings {
		if len(word) >= len(e) && word[len(word)-len(e):] == e {
			return true
		}
	}
	return false
}

// firstSentence returns the text up to the end of its first sentence or paragraph.
func firstSentence(text string) string {
	began := false
	for i, r := range text {
		switch {
		case r == '。' || r == '！':
			return text[:i]
		case r == '\n':
			// A single line break is a space; an empty line ends the sentence.
			rest := text[i+1:]
			for len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r') {
				rest = rest[1:]
			}
			if began && (rest == "" || rest[0] == '\n' || rest[0] == '-' || rest[0] == '*' || rest[0] == '#') {
				return text[:i]
			}
		case (r == '.' || r == '!' || r == '?' || r == ':') && began:
			// "e.g." and "v1.2" do not end a sentence.
			if rest := text[i+1:]; rest == "" || (rest[0] == ' ' || rest[0] == '\n' || rest[0] == '\r') && !isAbbreviation(text[:i]) {
				return text[:i]
			}
		case unicode.IsLetter(r):
			began = true
		}
	}
	return text
}

// isAbbreviation reports whether the text ends in an abbreviation that takes a full stop.
func isAbbreviation(text string) bool {
	return hasAnySuffix(text, "e.g", "i.e", "etc", " vs", "approx")
}
