package detect

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
)

// The numbering plans of all country codes. A test writes the file from the metadata of a library. Its
// first lines describe the format.
//
//go:embed phoneplans.txt
var planFile string

// states are an automaton that reads country codes and national numbers. The program follows it in the
// text of the file, so nothing of it is loaded or compiled.
var _, states, _ = strings.Cut(planFile, "\n\n")

// firstState is the place of the state that reads the first digit of a country code, in the last row.
var firstState = strings.LastIndexByte(strings.TrimSuffix(states, "\n"), '\n') + 1

// A numberPlan is the numbering plan of a country code. The main region with the code, such as Great
// Britain with 44, sets the rules for all.
type numberPlan struct {
	code    string // the country code
	abroad  string // what callers dial before a country code, with trunkCodes and 1; see replacePrefix
	trunk   string // what callers dial before a national number; see replacePrefix
	rewrite string // replaces trunk
	lengths string // for each number of digits from 0 to 17: one of the length… constants, or another character
	start   int    // the place of the state that reads the first digit of a national number
}

// What a plan says of national numbers with some number of digits.
const (
	lengthTooLong  = '>'
	lengthPossible = 'p'
	lengthLocal    = 'l' // possible, without the area code
)

// The marks of a state. Those of groupMarks follow if the digits are valid in the main region of one of
// trunkCodes.
const (
	markPlan    = '=' // the digits are a country code, and its plan follows
	markGeneral = "g" // the digits match the main region's pattern for all kinds of numbers
	markValid   = "v" // the digits are a valid number in a region with the country code
)

// A phoneNumber is a number that was read with the plan of its country code.
type phoneNumber struct {
	numberPlan
	national string // without country code and prefixes
	marks    string // of national
}

// readPhone reads at most 17 digits as people dial them in the main region of a country code, which is
// one of trunkCodes or 1. If the code is "", the digits begin with a country code. The number need not be
// possible. A test compares each step with the library that the plans come from.
func readPhone(digits, code string) (n phoneNumber, ok bool) {
	number, international := digits, code == ""
	if !international {
		n.numberPlan, _ = findPlan(code)
		if rest := replacePrefix(digits, n.abroad, ""); rest != digits && !strings.HasPrefix(rest, "0") {
			number, international = rest, true
		}
	}
	if international {
		if n.numberPlan, ok = findPlan(number); !ok {
			return n, false
		}
		number = number[len(n.code):]
	} else if strings.HasPrefix(digits, n.code) { // the country code, or an area code that looks like it
		rest := n.cutTrunk(digits[len(n.code):])
		if n.lengthOf(digits) == lengthTooLong || !n.isGeneral(digits) && n.isGeneral(rest) {
			number = rest
		}
	}
	rest := n.cutTrunk(number)
	if l := n.lengthOf(rest); l == lengthTooLong || l == lengthPossible {
		number = rest
	}
	n.national, n.marks = number, n.follow(number)
	return n, len(number) >= 2
}

// isPossible reports whether a number may have that many digits.
func (n *phoneNumber) isPossible() bool {
	l := n.lengthOf(n.national)
	return l == lengthPossible || l == lengthLocal
}

// isValid reports whether the number is in a range that a region with its country code uses.
func (n *phoneNumber) isValid() bool { return strings.Contains(n.marks, markValid) }

// groups returns the groups that the main region writes the number in, with its prefix; see groupMarks.
func (n *phoneNumber) groups() string { return strings.TrimLeft(n.marks, markGeneral+markValid) }

// findPlan returns the plan of the country code at the beginning of a number.
func findPlan(number string) (p numberPlan, ok bool) {
	at := firstState
	for i := range min(len(number), 3) {
		if at = nextState(at, number[i]); states[at] != markPlan {
			continue
		}
		p.code = number[:i+1]
		row, _, _ := strings.Cut(states[at+1:], "\n")
		for _, field := range []*string{&p.abroad, &p.trunk, &p.rewrite, &p.lengths} {
			*field, row, _ = strings.Cut(row, "\t")
		}
		p.start = placeIn(row)
		return p, true
	}
	return p, false
}

// cutTrunk returns the number without the plan's prefix for national calls. It leaves a prefix that is
// needed to match the general pattern: there, it is a part of the number.
func (p *numberPlan) cutTrunk(number string) string {
	rest := replacePrefix(number, p.trunk, p.rewrite)
	if rest != number && p.isGeneral(number) && !p.isGeneral(rest) {
		return number
	}
	return rest
}

// lengthOf returns what the plan says of the number of digits.
func (p *numberPlan) lengthOf(digits string) byte {
	if len(digits) >= len(p.lengths) {
		return lengthTooLong
	}
	return p.lengths[len(digits)]
}

// isGeneral reports whether the digits match the general pattern of the plan.
func (p *numberPlan) isGeneral(number string) bool {
	return strings.HasPrefix(p.follow(number), markGeneral)
}

// follow returns the marks of the state that the digits lead to.
func (p *numberPlan) follow(digits string) string {
	at := p.start
	for i := range len(digits) {
		at = nextState(at, digits[i])
	}
	return states[at:skipMarks(at)]
}

// nextState returns the place of the state that a digit leads to.
func nextState(at int, digit byte) int {
	at = skipMarks(at)
	for states[at] < digit {
		at += 4
	}
	return placeIn(states[at+1:])
}

// skipMarks returns the place of the first digit in the row of a state.
func skipMarks(at int) int {
	for states[at] > '9' {
		at++
	}
	return at
}

// placeIn returns the place of a state that the first three characters of s name.
func placeIn(s string) int { return int(s[0]-'0')<<12 | int(s[1]-'0')<<6 | int(s[2]-'0') }

// expressions holds the compiled expressions of prefixes, by their text. Few plans have one.
var expressions sync.Map

// replacePrefix replaces a prefix of the number. The prefix consists of digits, or is an expression that
// begins with ^. The replacement can name groups of the expression, and counts only if the last of
// them matches.
func replacePrefix(number, prefix, by string) string {
	if !strings.HasPrefix(prefix, "^") {
		return strings.TrimPrefix(number, prefix)
	}
	e, ok := expressions.Load(prefix)
	if !ok {
		e, _ = expressions.LoadOrStore(prefix, regexp.MustCompile(prefix))
	}
	groups := e.(*regexp.Regexp).FindStringSubmatchIndex(number)
	if groups == nil {
		return number
	}
	rest := number[groups[1]:]
	if groups[len(groups)-2] < 0 {
		return rest
	}
	return string(e.(*regexp.Regexp).ExpandString(nil, by, number, groups)) + rest
}
