package detect

import (
	_ "embed"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

// The rules of gitleaks, in its own file. Rules and conditions about the path of a file are left
// out: a result has no path. Expressions are compiled when a text first looks as if they could
// match.
//
//go:embed gitleaks/gitleaks.toml
var ruleFile string

// loadRules reads the rules when the first text is searched for credentials.
var loadRules = sync.OnceValue(func() *ruleSet {
	set, err := readRules(ruleFile)
	if err != nil {
		panic("the rules for credentials: " + err.Error()) // a test reads them
	}
	return set
})

// A ruleSet holds everything that is known about credentials.
type ruleSet struct {
	rules    []*secretRule
	words    []string // the keywords of all rules, in lower case
	keywords *keywordMatcher
	byWord   [][]*secretRule // by index in words
	allowed  []*allowedPattern
}

// A secretPosition says where a credential is, relative to the keyword of its rule.
type secretPosition byte

const (
	// nearKeyword: anywhere near the keyword.
	nearKeyword secretPosition = iota
	// inRow: a row of characters without spaces or quotes that contains the keyword.
	inRow
	// assignedValue: the value assigned to a name that contains the keyword: api_key = "…".
	assignedValue
	// customRule: rules of our own that are not expressions.
	customRule
)

// A secretRule describes one kind of credential.
type secretRule struct {
	id        string
	keywords  []string // in lower case
	position  secretPosition
	minLength int     // the length of the shortest credential
	maxLength int     // of the longest; at most maxMatch
	entropy   float64 // must be exceeded; 0 means any
	group     int
	allowed   []*allowedPattern

	// For rules with a match that begins with the keyword or near it.
	heads        []matchStart
	wordBoundary bool // only at the border of a word
	singleRow    bool // a match is one row of characters

	expr func() *regexp.Regexp
	find func(text string, from, end int) (int, int) // for shape ours
}

// A matchStart describes the first bytes of a credential, and the position of the keyword among
// them.
type matchStart struct {
	bytes   []charset
	keyword int
}

// A charset is a set of ASCII characters.
type charset [2]uint64

func (c *charset) add(b byte) {
	if b < 0x80 {
		c[b/64] |= 1 << (b % 64)
	}
}

func (c *charset) has(b byte) bool { return b < 0x80 && c[b/64]&(1<<(b%64)) != 0 }

// oneLetter reports whether c holds no more than the spellings of one letter.
func (c *charset) oneLetter() bool { return bits.OnesCount64(c[0])+bits.OnesCount64(c[1]) <= 4 }

// matchesAt reports whether the text at i matches the head.
func (h *matchStart) matchesAt(text string, i int) bool {
	if i < 0 || len(text)-i < len(h.bytes) {
		return false
	}
	for n := range h.bytes {
		if !h.bytes[n].has(text[i+n]) {
			return false
		}
	}
	return true
}

// An allowedPattern describes text that looks like a credential but is not one.
type allowedPattern struct {
	target string // secret, match or line
	expr   func() *regexp.Regexp
	words  func() *keywordMatcher
}

// covers reports whether the allowance covers the match.
func (a *allowedPattern) covers(secret, match, line string) bool {
	text := secret
	switch a.target {
	case "match":
		text = match
	case "line":
		text = line
	}
	return a.expr != nil && a.expr().MatchString(text) || a.words != nil && a.words().containsAny(secret)
}

// The format of the rules in the file.
type (
	ruleTable struct {
		ID          string
		Regex       string
		Path        string
		Entropy     float64
		SecretGroup int
		Keywords    []string
		Allowlists  []allowTable
	}
	allowTable struct {
		Condition   string
		RegexTarget string
		Paths       []string
		Regexes     []string
		StopWords   []string
	}
)

func readRules(text string) (*ruleSet, error) {
	var file struct {
		Rules     []ruleTable
		Allowlist allowTable
	}
	if err := toml.Unmarshal([]byte(text), &file); err != nil {
		return nil, err
	}
	set := &ruleSet{allowed: newAllowed([]allowTable{file.Allowlist})}
	for _, t := range file.Rules {
		if t.Regex == "" || t.Path != "" || t.ID == "private-key" { // our own rule finds longer ones
			continue
		}
		allowed := newAllowed(t.Allowlists)
		for _, expr := range splitAlternatives(t.Regex) {
			r := &secretRule{id: t.ID, entropy: t.Entropy, group: t.SecretGroup, allowed: allowed, expr: compileLater(expr)}
			if err := r.analyse(expr, t.Keywords); err != nil {
				return nil, fmt.Errorf("%s: %w", t.ID, err)
			}
			set.rules = append(set.rules, r)
		}
	}
	set.rules = append(set.rules, ownRules...)
	at := map[string]int{}
	for _, r := range set.rules {
		for _, k := range r.keywords {
			if _, ok := at[k]; !ok {
				at[k] = len(set.words)
				set.words = append(set.words, k)
				set.byWord = append(set.byWord, nil)
			}
			set.byWord[at[k]] = append(set.byWord[at[k]], r)
		}
	}
	set.keywords = newKeywords(set.words)
	return set, nil
}

// compileLater returns the expressions as one, which is compiled on first use. In prose, punctuation
// may follow a credential.
func compileLater(exprs ...string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		if len(exprs) == 1 {
			return regexp.MustCompile(strings.ReplaceAll(exprs[0], ruleEnds, proseEnds))
		}
		return regexp.MustCompile("(?:" + strings.Join(exprs, ")|(?:") + ")")
	})
}

// newAllowed leaves out conditions about paths alone.
func newAllowed(tables []allowTable) (all []*allowedPattern) {
	for _, t := range tables {
		if t.Condition == "AND" && len(t.Paths) > 0 || len(t.Regexes)+len(t.StopWords) == 0 {
			continue
		}
		a := &allowedPattern{target: t.RegexTarget}
		if len(t.Regexes) > 0 {
			a.expr = compileLater(t.Regexes...)
		}
		if len(t.StopWords) > 0 {
			a.words = sync.OnceValue(func() *keywordMatcher {
				words := make([]string, len(t.StopWords))
				for i, w := range t.StopWords {
					words[i] = strings.ToLower(w)
				}
				return newKeywords(words)
			})
		}
		all = append(all, a)
	}
	return all
}

// Parts that many expressions of the file have in common.
const (
	ruleAssigns = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}`                  // after the keyword, followed by a sign such as = or :
	ruleSign    = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}` // between the name and the credential
	ruleEnds    = "(?:[\\x60'\"\\s;]|\\\\[nr]|$)"                   // after the credential
	proseEnds   = "(?:[\\x60'\"\\s;,.!?:&|<>(){}\\[\\]*#~]|\\\\[nr]|$)"
)

// maxMatch limits the length of a match.
const maxMatch = 16 << 10

// splitAlternatives splits an expression that joins several, each with an end of its own.
func splitAlternatives(expr string) []string {
	parts := strings.Split(expr, ruleEnds+"|")
	for i := range parts {
		if i < len(parts)-1 {
			parts[i] += ruleEnds
		}
		if i > 0 && strings.HasPrefix(expr, "(?i)") {
			parts[i] = "(?i)" + parts[i]
		}
	}
	return parts
}

// analyse derives from the expression where its matches can be.
func (r *secretRule) analyse(expr string, keywords []string) error {
	core, _ := strings.CutSuffix(expr, ruleEnds)
	tree, err := syntax.Parse(core, syntax.Perl)
	if err != nil {
		return err
	}
	r.minLength, r.maxLength = matchLengths(tree)
	r.singleRow = !matchesSeparator(tree)
	for _, k := range keywords {
		r.keywords = append(r.keywords, strings.ToLower(k))
	}
	_, value, isAssigned := strings.Cut(strings.Replace(core, ruleAssigns+")", ruleAssigns, 1), ruleAssigns+ruleSign)
	said := strings.ToLower(strings.ReplaceAll(core, `\`, ""))
	spelt := slices.DeleteFunc(slices.Clone(r.keywords), func(k string) bool { return !strings.Contains(said, k) })
	switch {
	case isAssigned:
		r.position = assignedValue
		if tree, err = syntax.Parse(value, syntax.Perl); err != nil {
			return err
		}
		r.minLength, r.maxLength = matchLengths(tree)
	case r.anchorAtKeyword(tree) && r.singleRow:
		r.position = inRow
	case r.singleRow && len(spelt) > 0:
		r.position, r.keywords = inRow, spelt
	}
	return nil
}

// anchorAtKeyword records how matches begin, and reports whether each match begins with one of the
// keywords, or near it. Then the other keywords are not needed.
func (r *secretRule) anchorAtKeyword(tree *syntax.Regexp) bool {
	var heads []matchStart
	var keywords []string
	begins, _ := matchStarts(tree)
	for _, bytes := range begins {
		found := false
		for _, k := range r.keywords {
			if at := keywordIndex(bytes, k); at >= 0 {
				heads, found = append(heads, matchStart{bytes, at}), true
				keywords = append(keywords, k)
			}
		}
		if !found {
			return false
		}
	}
	slices.Sort(keywords)
	r.heads, r.keywords = heads, slices.Compact(keywords)
	for first := tree; ; first = first.Sub[0] {
		if first.Op == syntax.OpWordBoundary {
			r.wordBoundary = true
		}
		if first.Op != syntax.OpCapture && first.Op != syntax.OpConcat {
			return true
		}
	}
}

// keywordIndex returns the position of the keyword in bytes, or -1.
func keywordIndex(bytes []charset, keyword string) int {
	for at := range bytes {
		fits := len(bytes)-at >= len(keyword)
		for i := 0; fits && i < len(keyword); i++ {
			set := &bytes[at+i]
			fits = set.oneLetter() && (set.has(keyword[i]) || isLetter(keyword[i]) && set.has(keyword[i]&^0x20))
		}
		if fits {
			return at
		}
	}
	return -1
}

// How much of the beginning of matches is analysed.
const (
	maxHead  = 24
	maxHeads = 8
)

// matchStarts returns the possible beginnings of matches of t, and whether they are complete. If
// there are too many, it returns one empty beginning.
func matchStarts(t *syntax.Regexp) (heads [][]charset, all bool) {
	unknown := [][]charset{{}}
	switch t.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return unknown, true
	case syntax.OpLiteral:
		var one []charset
		for _, r := range t.Rune {
			var set charset
			if r >= 0x80 {
				return [][]charset{one}, false
			}
			set.add(byte(r))
			if t.Flags&syntax.FoldCase != 0 && isLetter(byte(r)) {
				set.add(byte(r) | 0x20)
				set.add(byte(r) &^ 0x20)
			}
			one = append(one, set)
		}
		return [][]charset{one}, true
	case syntax.OpCharClass:
		var set charset
		for i := 0; i < len(t.Rune); i += 2 {
			if t.Rune[i+1] >= 0x80 && t.Rune[i] != t.Rune[i+1] { // more than the long s and the Kelvin sign, which (?i) adds
				return unknown, false
			}
			for r := t.Rune[i]; r <= t.Rune[i+1] && r < 0x80; r++ {
				set.add(byte(r))
			}
		}
		return [][]charset{{set}}, true
	case syntax.OpCapture:
		return matchStarts(t.Sub[0])
	case syntax.OpPlus:
		heads, _ = matchStarts(t.Sub[0])
		return heads, false
	case syntax.OpRepeat:
		one, exact := matchStarts(t.Sub[0])
		switch {
		case t.Min == 0:
			return unknown, false
		case len(one) > 1 || !exact:
			return one, false
		}
		var row []charset
		for range min(t.Min, maxHead) {
			row = append(row, one[0]...)
		}
		return [][]charset{row}, t.Max == t.Min && t.Min <= maxHead
	case syntax.OpConcat:
		heads = unknown
		for _, sub := range t.Sub {
			more, exact := matchStarts(sub)
			if len(heads)*len(more) > maxHeads {
				return heads, false
			}
			var next [][]charset
			for _, h := range heads {
				for _, m := range more {
					next = append(next, slices.Concat(h, m))
				}
			}
			heads = next
			if !exact {
				return heads, false
			}
		}
		return heads, true
	case syntax.OpAlternate:
		all = true
		for _, sub := range t.Sub {
			more, exact := matchStarts(sub)
			heads, all = append(heads, more...), all && exact
		}
		if len(heads) > maxHeads {
			return unknown, false
		}
		return heads, all
	}
	return unknown, false
}

// matchLengths returns the shortest and the longest length of a match, in bytes.
func matchLengths(t *syntax.Regexp) (least, most int) {
	repeat := func(low, high int) {
		a, b := matchLengths(t.Sub[0])
		least = a * low
		if high < 0 || b*high > maxMatch {
			most = maxMatch
		} else {
			most = b * high
		}
	}
	switch t.Op {
	case syntax.OpLiteral:
		return len(string(t.Rune)), len(string(t.Rune))
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 4
	case syntax.OpCapture:
		return matchLengths(t.Sub[0])
	case syntax.OpStar:
		repeat(0, -1)
	case syntax.OpPlus:
		repeat(1, -1)
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpRepeat:
		repeat(t.Min, t.Max)
	case syntax.OpConcat:
		for _, sub := range t.Sub {
			a, b := matchLengths(sub)
			least, most = least+a, min(most+b, maxMatch)
		}
	case syntax.OpAlternate:
		least = math.MaxInt
		for _, sub := range t.Sub {
			a, b := matchLengths(sub)
			least, most = min(least, a), max(most, b)
		}
	}
	return least, most
}

// matchesSeparator reports whether a match can contain a separator of words: see isPart.
func matchesSeparator(t *syntax.Regexp) bool {
	switch t.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpEndText, syntax.OpEndLine, syntax.OpBeginText, syntax.OpBeginLine:
		return true
	case syntax.OpLiteral:
		return strings.ContainsFunc(string(t.Rune), func(r rune) bool { return r < 0x80 && !isSecretByte(byte(r)) })
	case syntax.OpCharClass:
		for c := range byte(0x80) {
			for i := 0; i < len(t.Rune); i += 2 {
				if !isSecretByte(c) && t.Rune[i] <= rune(c) && rune(c) <= t.Rune[i+1] {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(t.Sub, matchesSeparator)
}

// isSecretByte reports whether a credential without spaces and quotes can contain the byte.
func isSecretByte(c byte) bool { return c > ' ' && c != '"' && c != '\'' && c != '`' && c < 0x7f }
