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

	"github.com/BurntSushi/toml"
)

// The rules are those of gitleaks, in its own file. What it leaves to the path of a file is left out: a result has
// none. Expressions are compiled when something in a text looks as if they could match.
//
//go:embed gitleaks/gitleaks.toml
var ruleFile string

// rules are read when the first text is searched for credentials.
var rules = sync.OnceValue(func() *ruleSet {
	set, err := readRules(ruleFile)
	if err != nil {
		panic("the rules for credentials: " + err.Error()) // a test reads them
	}
	return set
})

// A ruleSet is what is known of credentials.
type ruleSet struct {
	rules    []*rule
	words    []string // the keywords of all rules, in lower case
	keywords *keywords
	by       [][]*rule // by word
	allowed  []*allowance
}

// A shape is where the credential stands that a rule finds by a keyword.
type shape byte

const (
	// around is anywhere near the keyword.
	around shape = iota
	// within is a row of characters without a space or quote, of which the keyword is a part.
	within
	// assigned is what a name is given, of which the keyword is a part: api_key = "…".
	assigned
	// ours are rules that are no expressions.
	ours
)

// A rule says what one kind of credential looks like.
type rule struct {
	id       string
	keywords []string // in lower case
	shape    shape
	least    int     // the length of the shortest credential
	most     int     // of the longest; at most maxMatch
	entropy  float64 // more than this; 0 is any
	group    int
	allowed  []*allowance

	// Of those that begin with the keyword or near it.
	heads   []head
	bounded bool // at the border of a word
	solid   bool // a match is one row of characters

	expr func() *regexp.Regexp
	find func(text string, from, end int) (int, int) // of ours
}

// A head is what the first bytes of a credential can be, and where among them the keyword is.
type head struct {
	bytes   []charset
	keyword int
}

// A charset is a set of ASCII characters.
type charset [2]uint64

func (c *charset) put(b byte) {
	if b < 0x80 {
		c[b/64] |= 1 << (b % 64)
	}
}

func (c *charset) has(b byte) bool { return b < 0x80 && c[b/64]&(1<<(b%64)) != 0 }

// few reports whether c is no more than some spellings of one letter.
func (c *charset) few() bool { return bits.OnesCount64(c[0])+bits.OnesCount64(c[1]) <= 4 }

// begins reports whether the text goes on like that from i on.
func (h *head) begins(text string, i int) bool {
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

// An allowance is what looks like a credential and is none.
type allowance struct {
	target string // secret, match or line
	expr   func() *regexp.Regexp
	words  func() *keywords
}

// allows reports whether the credential in the match is none.
func (a *allowance) allows(secret, match, line string) bool {
	text := secret
	switch a.target {
	case "match":
		text = match
	case "line":
		text = line
	}
	return a.expr != nil && a.expr().MatchString(text) || a.words != nil && a.words().has(secret)
}

// The form of rules in the file.
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
	if _, err := toml.Decode(text, &file); err != nil {
		return nil, err
	}
	set := &ruleSet{allowed: allowances([]allowTable{file.Allowlist})}
	for _, t := range file.Rules {
		if t.Regex == "" || t.Path != "" || t.ID == "private-key" { // ours finds longer ones
			continue
		}
		allowed := allowances(t.Allowlists)
		for _, expr := range alternatives(t.Regex) {
			r := &rule{id: t.ID, entropy: t.Entropy, group: t.SecretGroup, allowed: allowed, expr: compiled(expr)}
			if err := r.understand(expr, t.Keywords); err != nil {
				return nil, fmt.Errorf("%s: %w", t.ID, err)
			}
			set.rules = append(set.rules, r)
		}
	}
	set.rules = append(set.rules, own...)
	at := map[string]int{}
	for _, r := range set.rules {
		for _, k := range r.keywords {
			if _, ok := at[k]; !ok {
				at[k] = len(set.words)
				set.words = append(set.words, k)
				set.by = append(set.by, nil)
			}
			set.by[at[k]] = append(set.by[at[k]], r)
		}
	}
	set.keywords = newKeywords(set.words)
	return set, nil
}

// compiled is the expressions as one, which is compiled when it is needed. In prose a sign may follow a credential.
func compiled(exprs ...string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		if len(exprs) == 1 {
			return regexp.MustCompile(strings.ReplaceAll(exprs[0], ruleEnds, proseEnds))
		}
		return regexp.MustCompile("(?:" + strings.Join(exprs, ")|(?:") + ")")
	})
}

// allowances leaves out what depends on paths alone.
func allowances(tables []allowTable) (all []*allowance) {
	for _, t := range tables {
		if t.Condition == "AND" && len(t.Paths) > 0 || len(t.Regexes)+len(t.StopWords) == 0 {
			continue
		}
		a := &allowance{target: t.RegexTarget}
		if len(t.Regexes) > 0 {
			a.expr = compiled(t.Regexes...)
		}
		if len(t.StopWords) > 0 {
			a.words = sync.OnceValue(func() *keywords {
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

// Parts that many expressions of the file share.
const (
	ruleAssigns = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}`                  // behind the keyword, and then a sign such as = or :
	ruleSign    = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}` // between the name and the credential
	ruleEnds    = "(?:[\\x60'\"\\s;]|\\\\[nr]|$)"                   // behind the credential
	proseEnds   = "(?:[\\x60'\"\\s;,.!?:&|<>(){}\\[\\]*#~]|\\\\[nr]|$)"
)

// maxMatch bounds how far a match is looked for.
const maxMatch = 16 << 10

// alternatives takes an expression apart that is several, each with an end of its own.
func alternatives(expr string) []string {
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

// understand works out from the expression where its matches can be.
func (r *rule) understand(expr string, keywords []string) error {
	core, _ := strings.CutSuffix(expr, ruleEnds)
	tree, err := syntax.Parse(core, syntax.Perl)
	if err != nil {
		return err
	}
	r.least, r.most = lengths(tree)
	r.solid = !spaced(tree)
	for _, k := range keywords {
		r.keywords = append(r.keywords, strings.ToLower(k))
	}
	_, value, isAssigned := strings.Cut(strings.Replace(core, ruleAssigns+")", ruleAssigns, 1), ruleAssigns+ruleSign)
	said := strings.ToLower(strings.ReplaceAll(core, `\`, ""))
	spelt := slices.DeleteFunc(slices.Clone(r.keywords), func(k string) bool { return !strings.Contains(said, k) })
	switch {
	case isAssigned:
		r.shape = assigned
		if tree, err = syntax.Parse(value, syntax.Perl); err != nil {
			return err
		}
		r.least, r.most = lengths(tree)
	case r.anchor(tree) && r.solid:
		r.shape = within
	case r.solid && len(spelt) > 0:
		r.shape, r.keywords = within, spelt
	}
	return nil
}

// anchor notes how matches begin, and reports whether each begins with one of the keywords, or near it. The other
// keywords then say nothing.
func (r *rule) anchor(tree *syntax.Regexp) bool {
	var heads []head
	var keywords []string
	begins, _ := headsOf(tree)
	for _, bytes := range begins {
		found := false
		for _, k := range r.keywords {
			if at := keywordAt(bytes, k); at >= 0 {
				heads, found = append(heads, head{bytes, at}), true
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
			r.bounded = true
		}
		if first.Op != syntax.OpCapture && first.Op != syntax.OpConcat {
			return true
		}
	}
}

// keywordAt returns where the keyword stands in what begins so, or -1.
func keywordAt(bytes []charset, keyword string) int {
	for at := range bytes {
		fits := len(bytes)-at >= len(keyword)
		for i := 0; fits && i < len(keyword); i++ {
			set := &bytes[at+i]
			fits = set.few() && (set.has(keyword[i]) || isLetter(keyword[i]) && set.has(keyword[i]&^0x20))
		}
		if fits {
			return at
		}
	}
	return -1
}

// How much of what matches begin with is looked at.
const (
	maxHead  = 24
	maxHeads = 8
)

// headsOf returns what matches of t can begin with, and whether that is all of them. Where there are too many ways,
// it returns one that says nothing.
func headsOf(t *syntax.Regexp) (heads [][]charset, all bool) {
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
			set.put(byte(r))
			if t.Flags&syntax.FoldCase != 0 && isLetter(byte(r)) {
				set.put(byte(r) | 0x20)
				set.put(byte(r) &^ 0x20)
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
				set.put(byte(r))
			}
		}
		return [][]charset{{set}}, true
	case syntax.OpCapture:
		return headsOf(t.Sub[0])
	case syntax.OpPlus:
		heads, _ = headsOf(t.Sub[0])
		return heads, false
	case syntax.OpRepeat:
		one, exact := headsOf(t.Sub[0])
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
			more, exact := headsOf(sub)
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
			more, exact := headsOf(sub)
			heads, all = append(heads, more...), all && exact
		}
		if len(heads) > maxHeads {
			return unknown, false
		}
		return heads, all
	}
	return unknown, false
}

// lengths are how short and how long a match can be, in bytes.
func lengths(t *syntax.Regexp) (least, most int) {
	repeat := func(low, high int) {
		a, b := lengths(t.Sub[0])
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
		return lengths(t.Sub[0])
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
			a, b := lengths(sub)
			least, most = least+a, min(most+b, maxMatch)
		}
	case syntax.OpAlternate:
		least = math.MaxInt
		for _, sub := range t.Sub {
			a, b := lengths(sub)
			least, most = min(least, a), max(most, b)
		}
	}
	return least, most
}

// spaced reports whether a match can hold what parts words: see isPart.
func spaced(t *syntax.Regexp) bool {
	switch t.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpEndText, syntax.OpEndLine, syntax.OpBeginText, syntax.OpBeginLine:
		return true
	case syntax.OpLiteral:
		return strings.ContainsFunc(string(t.Rune), func(r rune) bool { return r < 0x80 && !isPart(byte(r)) })
	case syntax.OpCharClass:
		for c := range byte(0x80) {
			for i := 0; i < len(t.Rune); i += 2 {
				if !isPart(c) && t.Rune[i] <= rune(c) && rune(c) <= t.Rune[i+1] {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(t.Sub, spaced)
}

// isPart reports whether a credential can hold the byte, if it stands in a row without spaces and quotes.
func isPart(c byte) bool { return c > ' ' && c != '"' && c != '\'' && c != '`' && c < 0x7f }
