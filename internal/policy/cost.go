package policy

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// OPA stops an evaluation between two builtins. It does not stop a builtin that is at work: a regular expression can
// work for minutes on one argument of a client. So the cost of a call is counted before the builtin starts, from the
// operands alone: the same operands are always taken or always refused, on an idle machine and on a busy one.

const (
	// maxSteps bounds one call of a builtin. A step takes about 8 ns, and 40 ns at worst: half a second.
	maxSteps = 1 << 24

	// maxTotal bounds all calls of one evaluation together. It bounds the memory of what they make, too.
	maxTotal = 1 << 26

	// maxPattern bounds a regular expression, in bytes.
	maxPattern = 16 << 10

	// maxProgram bounds the instructions of a regular expression.
	maxProgram = 1 << 16

	// maxDigits bounds the operands of arithmetic, in digits.
	maxDigits = 1024
)

// A costError says that a builtin was not started, because it could take too long.
type costError struct {
	builtin string
	why     string
}

func (e *costError) Error() string {
	return fmt.Sprintf("%s was not started, because it could take too long: %s", e.builtin, e.why)
}

// A cost says how many steps a call of a builtin takes at most, and why that is too many; "" means that it is not.
type cost func(operands []*ast.Term) (steps float64, why string)

// priced says how the steps of a call came about, where they are too many.
func priced(steps float64, format string, args ...any) (float64, string) {
	if steps <= maxSteps {
		return steps, ""
	}
	return steps, fmt.Sprintf(format, args...) + fmt.Sprintf(", which is %.2g steps; the most is %d", steps, maxSteps)
}

// A meter counts the steps of one evaluation.
type meter struct{ steps float64 }

// metered is the key of the meter in the context of an evaluation.
type metered struct{}

// costs has a cost for each builtin that needs one. What is here and in soon is done soon with operands of this size.
var costs = map[string]cost{}

// reached are the builtins that a value of a client can make too costly: one message of a client has up to 4 MiB.
var reached = map[string]reach{}

// A reach says which calls of a builtin are refused.
type reach struct {
	beyond   string // what is refused
	operands []int  // it needs a value of a client in each of these; nil means in any of all
}

func init() {
	by := func(c cost, names string) {
		for name := range strings.FieldsSeq(names) {
			costs[name] = c
		}
	}
	more := func(c cost, beyond, names string, operands ...int) {
		by(c, names)
		for name := range strings.FieldsSeq(names) {
			reached[name] = reach{beyond, operands}
		}
	}
	bytes := func(most float64) string { return fmt.Sprintf("operands of more than %.0f bytes", most) }
	by(linear(1), `
		all any array.flatten base64.encode base64url.decode base64url.encode base64url.encode_no_pad hex.decode hex.encode
		bits.and bits.negate bits.or bits.rsh bits.xor
		cast_array cast_boolean cast_null cast_object cast_set cast_string
		crypto.hmac.equal crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 crypto.md5 crypto.sha1
		glob.quote_meta indexof_n internal.print internal.template_string internal.test_case print trace
		rego.metadata.chain rego.metadata.rule regex.is_valid semver.compare semver.is_valid set_diff strings.split_n
		net.cidr_intersects net.cidr_overlap
		uri.is_valid uri.parse urlquery.decode_object urlquery.encode urlquery.encode_object
		json.marshal json.unmarshal json.is_valid concat array.concat split substring sort union intersection object.union
		crypto.sha256 base64.decode urlquery.decode strings.reverse upper lower`)
	more(linear(16), bytes(maxSteps/16), `json.filter json.marshal_with_options json.remove object.union_n graph.reachable net.cidr_merge
		yaml.is_valid yaml.marshal yaml.unmarshal io.jwt.decode`)
	more(linear(1024), bytes(maxSteps/1024), `
		crypto.parse_private_keys crypto.x509.parse_and_verify_certificates crypto.x509.parse_and_verify_certificates_with_options
		crypto.x509.parse_certificate_request crypto.x509.parse_certificates crypto.x509.parse_keypair crypto.x509.parse_rsa_private_key
		io.jwt.decode_verify io.jwt.encode_sign io.jwt.encode_sign_raw io.jwt.verify_eddsa io.jwt.verify_es256 io.jwt.verify_es384
		io.jwt.verify_es512 io.jwt.verify_hs256 io.jwt.verify_hs384 io.jwt.verify_hs512 io.jwt.verify_ps256 io.jwt.verify_ps384
		io.jwt.verify_ps512 io.jwt.verify_rs256 io.jwt.verify_rs384 io.jwt.verify_rs512 providers.aws.sign_req`)
	more(squared, bytes(math.Sqrt(maxSteps)), `
		graphql.is_valid graphql.parse graphql.parse_and_verify graphql.parse_query graphql.parse_schema graphql.schema_is_valid
		json.patch net.cidr_contains_matches object.subset rego.parse_module`)
	by(arithmetic, `plus minus mul div rem sum round ceil floor abs format_int`)
	by(multiplied, `product`)
	more(shifted, fmt.Sprintf("a shift by more than %d bits", 4*maxDigits), `bits.lsh`, 1)
	more(replaced, fmt.Sprintf("a result of more than %d bytes", maxSteps), `replace`, 0, 2)
	more(replaced, fmt.Sprintf("a result of more than %d bytes", maxSteps), `strings.replace_n`, 0, 1)
	more(formatted, fmt.Sprintf("a format of more than %d bytes, widths included", maxSteps), `sprintf`, 0)
	more(ranged, fmt.Sprintf("a range of more than %d numbers", maxRange), `numbers.range numbers.range_step`)
	more(expanded, "a network of more than 2^16 addresses", `net.cidr_expand`)
	by(globbed, `glob.match`)
	more(intersected, "patterns with more than 18 repetitions, and with fewer in longer patterns", `regex.globs_match`)
	by(func(operands []*ast.Term) (float64, string) {
		return searched(stringOf(operands[0]), stringOf(operands[1]))
	}, `regex.match re_match`)
	for name, of := range searches {
		costs[name] = func(operands []*ast.Term) (float64, string) { s := of(operands); return searched(s.pattern, s.text) }
	}
	by(templated, `regex.template_match`)
	for name, c := range costs {
		if b := ast.BuiltinMap[name]; b.Infix == "" { // else OPA gives some of them no context, and so no meter
			b.CanSkipBctx = false
		}
		topdown.RegisterBuiltinFunc(name, bounded(name, c, topdown.GetBuiltin(name)))
	}
}

// bounded starts a builtin only where its cost allows that. One that finds all matches of a pattern is rehearsed first.
func bounded(name string, c cost, next topdown.BuiltinFunc) topdown.BuiltinFunc {
	of := searches[name]
	return func(b topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		steps, why := c(operands)
		if why == "" && b.Context != nil {
			if m, ok := b.Context.Value(metered{}).(*meter); ok {
				if m.steps += steps; m.steps > maxTotal {
					why = fmt.Sprintf("with it, this evaluation would take %.2g steps; the most is %d", m.steps, maxTotal)
				}
			}
		}
		if why != "" {
			return halt(b, &costError{name, why})
		}
		if of != nil {
			if err := of(operands).rehearse(name, b.Cancel); err != nil {
				return halt(b, err)
			}
		}
		return next(b, operands, iter)
	}
}

// halt ends the whole evaluation, also where the error of a builtin would only make an expression undefined.
func halt(b topdown.BuiltinContext, err error) error {
	e := &topdown.Error{Code: topdown.BuiltinErr, Message: err.Error(), Location: b.Location}
	return topdown.Halt{Err: e.Wrap(err)}
}

// linear is the cost of what takes time in proportion to its operands.
func linear(perByte float64) cost {
	return func(operands []*ast.Term) (float64, string) {
		n := sizeOf(operands...)
		return priced(perByte*n, "its operands have %s", bytesOf(n))
	}
}

// squared is the cost of what may look at each part of its operands once for each other part.
func squared(operands []*ast.Term) (float64, string) {
	n := sizeOf(operands...)
	return priced(n*n, "its operands have %s, and it may compare each part with each other", bytesOf(n))
}

// bytesOf is a size as people read it. A size that passed the bound was not counted to its end.
func bytesOf(n float64) string {
	if n > maxSteps {
		return fmt.Sprintf("more than %d bytes", maxSteps)
	}
	return fmt.Sprintf("%.0f bytes", n)
}

// sizeOf returns how many bytes and values the terms have, or more than maxSteps. It stops there: values that share parts can be
// larger than memory.
func sizeOf(terms ...*ast.Term) float64 {
	n := 0
	var add func(t *ast.Term) bool // reports whether it stops
	add = func(t *ast.Term) bool {
		n++
		switch v := t.Value.(type) {
		case ast.String:
			n += len(v)
		case ast.Number:
			n += len(v)
		case *ast.Array:
			v.Until(add)
		case ast.Set:
			v.Until(add)
		case ast.Object:
			v.Until(func(k, t *ast.Term) bool { return add(k) || add(t) })
		}
		return n > maxSteps
	}
	for _, t := range terms {
		if add(t) {
			break
		}
	}
	return float64(n)
}

// arithmetic refuses numbers that grow: the square of a square has four times the digits.
func arithmetic(operands []*ast.Term) (float64, string) {
	for _, t := range operands {
		n := 0
		if number, ok := t.Value.(ast.Number); ok {
			n = len(number)
		} else {
			n = longest(t)
		}
		if n > maxDigits {
			return maxSteps, fmt.Sprintf("a number has %d digits; the most is %d", n, maxDigits)
		}
	}
	return 1, ""
}

// multiplied refuses what has as many digits as all its factors together.
func multiplied(operands []*ast.Term) (float64, string) {
	if n := sizeOf(operands...); n > 4*maxDigits {
		return maxSteps, fmt.Sprintf("its factors have %.0f digits; the most is %d", n, 4*maxDigits)
	}
	return sizeOf(operands...), ""
}

// longest returns how many digits the longest number of an array or a set has.
func longest(t *ast.Term) (n int) {
	digits := func(t *ast.Term) bool {
		if number, ok := t.Value.(ast.Number); ok {
			n = max(n, len(number))
		}
		return false
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Until(digits)
	case ast.Set:
		v.Until(digits)
	}
	return n
}

// shifted bounds by how many bits a number is shifted to the left.
func shifted(operands []*ast.Term) (float64, string) {
	by, ok := number(operands[1])
	if ok && by > 4*maxDigits {
		return maxSteps, fmt.Sprintf("it shifts by %.0f bits; the most is %d", by, 4*maxDigits)
	}
	return arithmetic(operands)
}

func number(t *ast.Term) (float64, bool) {
	n, ok := t.Value.(ast.Number)
	if !ok {
		return 0, false
	}
	return n.Float64()
}

func stringOf(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}

// replaced bounds what a replacement makes: each byte of the text can be replaced.
func replaced(operands []*ast.Term) (float64, string) {
	if pairs, ok := operands[0].Value.(ast.Object); ok { // strings.replace_n
		longest := 0
		pairs.Foreach(func(_, t *ast.Term) { longest = max(longest, len(stringOf(t))) })
		n := float64(len(stringOf(operands[1])) + 1)
		return priced(n*float64(longest+pairs.Len()+1), "it puts up to %d bytes in the place of each of %.0f", longest, n)
	}
	text, old := stringOf(operands[0]), stringOf(operands[1])
	n := float64(len(text) + 1)
	if old != "" {
		n = float64(strings.Count(text, old))
	}
	return priced(float64(len(text))+n*float64(len(stringOf(operands[2]))+1), "it puts %d bytes in the place of each of %.0f", len(stringOf(operands[2])), n)
}

// formatted bounds the widths that a format asks for.
func formatted(operands []*ast.Term) (float64, string) {
	format := stringOf(operands[0])
	n := sizeOf(operands...)
	width := 0
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c >= '0' && c <= '9':
			width = min(10*width+int(c-'0'), 1e6) // package fmt takes no more
		default:
			n += float64(width)
			width = 0
			if c == '*' { // the width is one of the operands
				n += 1e6
			}
		}
	}
	// One operand can be formatted more than once: %[1]s.
	again := float64(1 + strings.Count(format, "%["))
	return priced(n*again, "it makes %.0f bytes", n*again)
}

// maxRange is how many values a range may have.
const maxRange = 1 << 18

func ranged(operands []*ast.Term) (float64, string) {
	from, ok1 := number(operands[0])
	to, ok2 := number(operands[1])
	step := 1.0
	if len(operands) > 3 || len(operands) == 3 && operands[2] != nil {
		if s, ok := number(operands[2]); ok && s >= 1 {
			step = s
		}
	}
	if n := math.Abs(to-from) / step; ok1 && ok2 && n > maxRange {
		return maxSteps, fmt.Sprintf("it makes %.0f numbers; the most is %d", n, maxRange)
	}
	return math.Abs(to-from) / step, ""
}

func expanded(operands []*ast.Term) (float64, string) {
	_, bits, ok := strings.Cut(stringOf(operands[0]), "/")
	var n int
	if _, err := fmt.Sscanf(bits, "%d", &n); !ok || err != nil {
		return 1, "" // it says itself what is wrong
	}
	all := 32
	if strings.Contains(stringOf(operands[0]), ":") {
		all = 128
	}
	if all-n > 16 {
		return maxSteps, fmt.Sprintf("a network of %d bits has 2^%d addresses; the most is 2^16", n, all-n)
	}
	return math.Pow(2, float64(all-n)), ""
}

// globbed is the cost of a pattern with wildcards: the matcher may try each choice of places for them.
func globbed(operands []*ast.Term) (float64, string) {
	pattern, text := stringOf(operands[0]), stringOf(operands[2])
	stars := wildcards(pattern)
	steps := float64(len(pattern)+1) * choices(len(text)+1, stars)
	return priced(steps, "a pattern with %d wildcards on %d bytes", stars, len(text))
}

// wildcards counts what can match texts of any length, or one of several texts.
func wildcards(pattern string) (n int) {
	for i := range len(pattern) {
		switch pattern[i] {
		case '*':
			if i == 0 || pattern[i-1] != '*' {
				n++
			}
		case '{':
			n++
		case ',':
			n++
		}
	}
	return n
}

// choices is how many ways there are to choose k of n places.
func choices(n, k int) float64 {
	ways := 1.0
	for i := range min(k, n) {
		ways = ways * float64(n-i) / float64(i+1)
		if ways > 1e18 {
			break
		}
	}
	return math.Max(ways, float64(n))
}

func intersected(operands []*ast.Term) (float64, string) {
	a, b := stringOf(operands[0]), stringOf(operands[1])
	repeats := strings.Count(a, "*") + strings.Count(b, "*") + strings.Count(a, "+") + strings.Count(b, "+")
	return priced(math.Pow(2, float64(repeats))*float64(len(a)+1)*float64(len(b)+1), "patterns of %d and %d bytes with %d repetitions", len(a), len(b), repeats)
}

// A search is a call of a builtin that finds all matches of a pattern.
type search struct {
	pattern, text string
	template      string // what each match is replaced by
	limit         int    // how many matches it wants; below 0 means all
}

// searches are the builtins that find all matches.
var searches = map[string]func(operands []*ast.Term) search{
	"regex.find_n":                     wanted,
	"regex.find_all_string_submatch_n": wanted,
	"regex.split":                      func(o []*ast.Term) search { return search{stringOf(o[0]), stringOf(o[1]), "", -1} },
	"regex.replace":                    func(o []*ast.Term) search { return search{stringOf(o[1]), stringOf(o[0]), stringOf(o[2]), -1} },
}

func wanted(operands []*ast.Term) search {
	s := search{stringOf(operands[0]), stringOf(operands[1]), "", -1}
	if n, ok := number(operands[2]); ok && n >= 0 {
		s.limit = int(min(n, maxSteps))
	}
	return s
}

// searched is the cost of one search: all instructions of the pattern, for each byte of the text.
func searched(pattern, text string) (float64, string) {
	p := programOf(pattern)
	if p.why != "" {
		return maxSteps, p.why
	}
	return priced(p.size*float64(len(text)+1), "a pattern of %.0f instructions on %d bytes", p.size, len(text))
}

// templated bounds a pattern of which only parts are regular expressions: each brace could repeat what is before it.
func templated(operands []*ast.Term) (float64, string) {
	pattern, text := stringOf(operands[0]), stringOf(operands[1])
	n := float64(len(pattern) + 1)
	if strings.Count(pattern, "{") > 0 && stringOf(operands[2]) != "{" || strings.Count(pattern, "{") > 1 {
		n *= 1000 // the most that a repetition may ask for
	}
	return priced(n*float64(len(text)+1), "a pattern of up to %.0f instructions on %d bytes", n, len(text))
}

// A program is what is known of a regular expression.
type program struct {
	size float64        // instructions, at most
	why  string         // it is not to be compiled
	re   *regexp.Regexp // nil where it does not compile
}

// programs keeps what is known of patterns. Most are constants of policies.
var programs = struct {
	sync.RWMutex
	of map[string]*program
}{of: map[string]*program{}}

// maxPrograms is how many patterns are known at most; where there are more, all are forgotten.
const maxPrograms = 256

func programOf(pattern string) *program {
	programs.RLock()
	p := programs.of[pattern]
	programs.RUnlock()
	if p != nil {
		return p
	}
	p = newProgram(pattern)
	programs.Lock()
	defer programs.Unlock()
	if len(programs.of) >= maxPrograms {
		clear(programs.of)
	}
	programs.of[pattern] = p
	return p
}

func newProgram(pattern string) *program {
	if len(pattern) > maxPattern {
		return &program{why: fmt.Sprintf("a pattern of %d bytes; the most is %d", len(pattern), maxPattern)}
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return &program{} // the builtin says what is wrong
	}
	p := &program{size: instructions(parsed)}
	if p.size > maxProgram {
		p.why = fmt.Sprintf("a pattern of %.0f instructions; the most is %d", p.size, maxProgram)
		return p
	}
	p.re, _ = regexp.Compile(pattern)
	return p
}

// instructions is how many the compiled pattern has, at most: x{n} is n times x.
func instructions(re *syntax.Regexp) float64 {
	n := 0.0
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	switch re.Op {
	case syntax.OpRepeat:
		return float64(max(re.Min, re.Max, 1)) * (n + 1)
	case syntax.OpLiteral:
		return n + float64(len(re.Rune))
	default:
		return n + 2
	}
}

// rehearse finds all matches once, with a look at the clock between two of them: a pattern can read the whole rest of
// the text for each of its matches. It also counts what a replacement would make.
func (s search) rehearse(name string, cancel topdown.Cancel) (err error) {
	re := programOf(s.pattern).re
	if re == nil || s.limit == 0 {
		return nil
	}
	refs := strings.Count(s.template, "$")
	made, found := len(s.text), 0
	defer func() {
		if p := recover(); p != nil && p != any(errRehearsed) {
			panic(p)
		}
	}()
	re.ReplaceAllStringFunc(s.text, func(match string) string {
		found++
		made += len(s.template) + refs*len(match)
		switch {
		case cancel != nil && cancel.Cancelled():
			err = errTime
		case made > maxSteps:
			err = &costError{name, fmt.Sprintf("its result has more than %d bytes", maxSteps)}
		case found != s.limit:
			return ""
		}
		panic(errRehearsed)
	})
	return nil
}

// errRehearsed ends a rehearsal.
var errRehearsed = errors.New("the rehearsal is over")
