package search

import (
	"strings"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/porter"
)

// stemOf returns the word without its English endings, so that "listing", "listed" and "lists" are equal. The algorithm
// is M. F. Porter's ("An algorithm for suffix stripping", 1980), from the Snowball project. It has one exception,
// because tools often use the word: "news" is not the plural of "new". A word with other characters than lower-case
// ASCII letters stays unchanged, and so does one of two letters.
func stemOf(word string) string {
	if len(word) <= 2 || word == "news" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") != "" {
		return word
	}
	env := snowballstem.NewEnv(word)
	porter.Stem(env)
	return env.Current()
}
