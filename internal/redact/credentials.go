package redact

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/redact/detect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A part of a credential that has at least longPart characters is also hidden where it stands elsewhere: a line of a private key, for example, or the text after "Bearer".
const longPart = 16

// CredentialFinder finds the credentials in one JSON value, for a person who must see everything else in it exactly. Use FindCredentials. It is
// for one goroutine.
type CredentialFinder struct {
	search   *detect.Search
	repeated *textFinder // credentials, wherever they occur
}

// FindCredentials reads a JSON value, and learns its credentials. raw is strict JSON.
func FindCredentials(raw []byte) *CredentialFinder {
	only := []switchboard.Detector{switchboard.DetectSecret}
	all := newValues()
	all.runDetectors(only, func(w *walker) { w.walkValue(raw, "", true, 0) })
	repeated := map[string]bool{}
	for text := range all.texts {
		// Whoever writes the value could call any words a password, to hide them everywhere. So words are hidden only where they are one.
		parts := strings.Fields(text)
		for _, part := range parts {
			if len(part) >= shortSecret && len(parts) == 1 || len(part) >= longPart {
				repeated[part] = false
			}
		}
	}
	return &CredentialFinder{detect.New(only), newFinder(repeated)}
}

// Positions returns where credentials are in a text of the value, as pairs of a begin and an end in bytes, sorted and apart. name is the member that holds
// the text, or "". Positions are those of whole characters.
func (c *CredentialFinder) Positions(text, name string) (pairs [][2]int) {
	spans, ok := rangesAtAllLevels(text, func(spans []textRange, level string) []textRange {
		for _, f := range c.search.Find(level, name) {
			spans = append(spans, textRange{f.From, f.To})
		}
		return c.repeated.appendMatches(spans, level)
	})
	if !ok { // its content cannot be determined
		return [][2]int{{0, len(text)}}
	}
	slices.SortFunc(spans, func(a, b textRange) int { return a.from - b.from })
	for _, s := range spans {
		for s.from > 0 && s.from < len(text) && !utf8.RuneStart(text[s.from]) {
			s.from--
		}
		for s.to < len(text) && !utf8.RuneStart(text[s.to]) {
			s.to++
		}
		switch last := len(pairs) - 1; {
		case s.from >= s.to:
		case last >= 0 && s.from <= pairs[last][1]:
			pairs[last][1] = max(pairs[last][1], s.to)
		default:
			pairs = append(pairs, [2]int{s.from, s.to})
		}
	}
	return pairs
}

// Number reports whether a number of the value is a credential. name is the member that holds it.
func (c *CredentialFinder) Number(spelt, name string) bool {
	if _, ok := c.search.Number(spelt, name); ok {
		return true
	}
	return len(spelt) >= shortSecret && c.repeated.matchLength(spelt, 0) == len(spelt)
}
