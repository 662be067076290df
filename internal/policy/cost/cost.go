// Package cost limits what one evaluation of a policy can take: it refuses builtins that could run
// too long on their operands, and rules with values that grow too large.
//
// It decides how the steps of each builtin are counted and how many are too many. Importing it
// replaces the builtins of OPA by ones that count; WithMeter counts the steps of one evaluation
// together. How long an evaluation may take, and what a refusal means, is decided by package policy.
package cost

import (
	"context"
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

// OPA can stop an evaluation between two builtins, but not within one: a regular expression can
// take minutes on one argument from a client. So the cost of a call is computed before the builtin
// starts, from the operands alone. The same operands are always accepted or always refused, on an
// idle machine and on a busy one.

const (
	// MaxSteps limits one call of a builtin. A step takes about 8 ns, and 40 ns at worst: half a
	// second.
	MaxSteps = 1 << 24

	// maxTotal limits all calls of one evaluation together. It also limits the memory of their
	// results.
	maxTotal = 1 << 26

	// MaxPattern limits a regular expression, in bytes.
	MaxPattern = 16 << 10

	// maxProgram limits the instructions of a regular expression.
	maxProgram = 1 << 16

	// MaxDigits limits the operands of arithmetic, in digits.
	MaxDigits = 1024
)

// A RefusedError says that a builtin was not started, because it could take too long.
type RefusedError struct {
	builtin string
	why     string
}

// Error names the builtin and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s was not started, because it could take too long: %s", e.builtin, e.why)
}

// ErrTime says that an evaluation was cancelled because of its time limit.
var ErrTime = errors.New("it took longer than it may")

// A costFunc returns the most steps that a call of a builtin can take. why is set if they are too
// many.
type costFunc func(operands []*ast.Term) (steps float64, why string)

// checkSteps returns the steps of a call, and if they are too many a text that explains them.
func checkSteps(steps float64, format string, args ...any) (float64, string) {
	if steps <= MaxSteps {
		return steps, ""
	}
	return steps, fmt.Sprintf(format, args...) + fmt.Sprintf(", which is %.2g steps; the most is %d", steps, MaxSteps)
}

// A stepMeter counts the steps of one evaluation.
type stepMeter struct{ steps float64 }

// WithMeter returns a context for one evaluation, which counts its steps.
func WithMeter(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, &stepMeter{})
}

// meterKey is the key of the meter in the context of an evaluation.
type meterKey struct{}

// builtinCosts holds a cost for each builtin that needs one. A builtin that is in builtinCosts and
// in quickBuiltins ends soon with operands within its cost.
var builtinCosts = map[string]costFunc{}

// clientReachable lists the builtins that a value from a client can make too costly: a message from
// a client has up to 4 MiB.
var clientReachable = map[string]Reach{}

// A Reach says which calls of a builtin are refused.
type Reach struct {
	Refused  string // what is Refused
	Operands []int  // each of these must come from a client; nil means any operand
}

// ForClients returns which calls of a builtin are refused for large values; ok is false if
// none are, or if a pattern decides about it.
func ForClients(builtin string) (reach Reach, ok bool) {
	reach, ok = clientReachable[builtin]
	return reach, ok
}

func init() {
	by := func(c costFunc, names string) {
		for name := range strings.FieldsSeq(names) {
			builtinCosts[name] = c
		}
	}
	more := func(c costFunc, beyond, names string, operands ...int) {
		by(c, names)
		for name := range strings.FieldsSeq(names) {
			clientReachable[name] = Reach{beyond, operands}
		}
	}
	bytes := func(most float64) string { return fmt.Sprintf("operands of more than %.0f bytes", most) }
	by(linearCost(1), `
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
	more(linearCost(16), bytes(MaxSteps/16), `json.filter json.marshal_with_options json.remove object.union_n graph.reachable net.cidr_merge
		yaml.is_valid yaml.marshal yaml.unmarshal io.jwt.decode`)
	more(linearCost(1024), bytes(MaxSteps/1024), `
		crypto.parse_private_keys crypto.x509.parse_and_verify_certificates crypto.x509.parse_and_verify_certificates_with_options
		crypto.x509.parse_certificate_request crypto.x509.parse_certificates crypto.x509.parse_keypair crypto.x509.parse_rsa_private_key
		io.jwt.decode_verify io.jwt.encode_sign io.jwt.encode_sign_raw io.jwt.verify_eddsa io.jwt.verify_es256 io.jwt.verify_es384
		io.jwt.verify_es512 io.jwt.verify_hs256 io.jwt.verify_hs384 io.jwt.verify_hs512 io.jwt.verify_ps256 io.jwt.verify_ps384
		io.jwt.verify_ps512 io.jwt.verify_rs256 io.jwt.verify_rs384 io.jwt.verify_rs512 providers.aws.sign_req`)
	more(squaredCost, bytes(math.Sqrt(MaxSteps)), `
		graphql.is_valid graphql.parse graphql.parse_and_verify graphql.parse_query graphql.parse_schema graphql.schema_is_valid
		json.patch net.cidr_contains_matches object.subset rego.parse_module`)
	by(arithmeticCost, `plus minus mul div rem sum round ceil floor abs format_int`)
	by(productCost, `product`)
	more(shiftCost, fmt.Sprintf("a shift by more than %d bits", 4*MaxDigits), `bits.lsh`, 1)
	more(replaceCost, fmt.Sprintf("a result of more than %d bytes", MaxSteps), `replace`, 0, 2)
	more(replaceCost, fmt.Sprintf("a result of more than %d bytes", MaxSteps), `strings.replace_n`, 0, 1)
	more(formatCost, fmt.Sprintf("a format of more than %d bytes, widths included", MaxSteps), `sprintf`, 0)
	more(rangeCost, fmt.Sprintf("a range of more than %d numbers", maxRange), `numbers.range numbers.range_step`)
	more(expandCost, "a network of more than 2^16 addresses", `net.cidr_expand`)
	by(globCost, `glob.match`)
	more(intersectCost, "patterns with more than 18 repetitions, and with fewer in longer patterns", `regex.globs_match`)
	by(func(operands []*ast.Term) (float64, string) {
		return searchCost(stringOf(operands[0]), stringOf(operands[1]))
	}, `regex.match re_match`)
	for name, of := range searchBuiltins {
		builtinCosts[name] = func(operands []*ast.Term) (float64, string) { s := of(operands); return searchCost(s.pattern, s.text) }
	}
	by(templateCost, `regex.template_match`)
	for name, c := range builtinCosts {
		if b := ast.BuiltinMap[name]; b.Infix == "" { // otherwise OPA gives some of them no context, and so no meter
			b.CanSkipBctx = false
		}
		topdown.RegisterBuiltinFunc(name, withCostCheck(name, c, topdown.GetBuiltin(name)))
	}
}

// quickBuiltins lists the builtins with a time proportional to the size of their operands at most,
// up to a logarithm, and with a result that is not much larger than them.
var quickBuiltins = map[string]bool{}

func init() {
	for name := range strings.FieldsSeq(`
		eq assign equal neq lt lte gt gte internal.member_2 internal.member_3
		plus minus mul div rem abs round ceil floor
		count sum max min sort and or intersection union
		array.concat array.reverse array.slice
		object.get object.keys object.remove object.filter object.union
		startswith endswith contains indexof lower upper substring split concat
		trim trim_left trim_right trim_prefix trim_suffix trim_space strings.reverse
		strings.any_prefix_match strings.any_suffix_match strings.count format_int
		is_array is_boolean is_null is_number is_object is_set is_string type_name to_number
		json.marshal json.unmarshal json.is_valid base64.decode base64.is_valid urlquery.decode
		net.cidr_contains net.cidr_is_valid units.parse units.parse_bytes
		time.now_ns time.parse_rfc3339_ns time.parse_duration_ns time.parse_ns
		time.clock time.date time.weekday time.add_date time.diff time.format
		rand.intn uuid.rfc4122 uuid.parse crypto.sha256
		walk`) {
		quickBuiltins[name] = true
	}
}

// IsQuick reports whether a call of a builtin ends soon. A call of another rule counts as soon: that
// rule is analysed by itself.
func IsQuick(op ast.Ref, operands []*ast.Term) bool {
	name := op.String()
	if name == ast.Sprintf.Name { // a format can ask for any width
		_, constant := operands[0].Value.(ast.String)
		return constant
	}
	return quickBuiltins[name] || op[0].Equal(ast.DefaultRootDocument)
}

// IsLimited reports whether the time of a builtin is limited: it is quick or has a cost.
func IsLimited(builtin string) bool { return quickBuiltins[builtin] || builtinCosts[builtin] != nil }

// withCostCheck wraps a builtin so that it starts only if its cost allows it. A builtin that finds
// all matches of a pattern is rehearsed first.
func withCostCheck(name string, c costFunc, next topdown.BuiltinFunc) topdown.BuiltinFunc {
	of := searchBuiltins[name]
	return func(b topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
		steps, why := c(operands)
		if why == "" && b.Context != nil {
			if m, ok := b.Context.Value(meterKey{}).(*stepMeter); ok {
				if m.steps += steps; m.steps > maxTotal {
					why = fmt.Sprintf("with it, this evaluation would take %.2g steps; the most is %d", m.steps, maxTotal)
				}
			}
		}
		if why != "" {
			return haltEvaluation(b, &RefusedError{name, why})
		}
		if of != nil {
			if err := of(operands).rehearse(name, b.Cancel); err != nil {
				return haltEvaluation(b, err)
			}
		}
		return next(b, operands, iter)
	}
}

// haltEvaluation ends the whole evaluation, even if the error of a builtin would only make an
// expression undefined.
func haltEvaluation(b topdown.BuiltinContext, err error) error {
	e := &topdown.Error{Code: topdown.BuiltinErr, Message: err.Error(), Location: b.Location}
	return topdown.Halt{Err: e.Wrap(err)}
}

// linearCost is the cost of a builtin with a time proportional to the size of its operands.
func linearCost(perByte float64) costFunc {
	return func(operands []*ast.Term) (float64, string) {
		n := sizeOf(operands...)
		return checkSteps(perByte*n, "its operands have %s", byteCount(n))
	}
}

// squaredCost is the cost of a builtin that may compare each part of its operands with each other
// part.
func squaredCost(operands []*ast.Term) (float64, string) {
	n := sizeOf(operands...)
	return checkSteps(n*n, "its operands have %s, and it may compare each part with each other", byteCount(n))
}

// byteCount returns a size as text. A size above the limit was not counted to its end.
func byteCount(n float64) string {
	if n > MaxSteps {
		return fmt.Sprintf("more than %d bytes", MaxSteps)
	}
	return fmt.Sprintf("%.0f bytes", n)
}

// sizeOf returns the number of bytes and values in the terms. It stops above maxSteps, because
// values that share parts can be larger than memory.
func sizeOf(terms ...*ast.Term) float64 {
	n := 0
	var add func(t *ast.Term) bool // returns true to stop
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
		return n > MaxSteps
	}
	for _, t := range terms {
		if add(t) {
			break
		}
	}
	return float64(n)
}

// arithmeticCost refuses long numbers, because results grow: the square of a square has four times
// the digits.
func arithmeticCost(operands []*ast.Term) (float64, string) {
	for _, t := range operands {
		n := 0
		if number, ok := t.Value.(ast.Number); ok {
			n = len(number)
		} else {
			n = longestNumber(t)
		}
		if n > MaxDigits {
			return MaxSteps, fmt.Sprintf("a number has %d digits; the most is %d", n, MaxDigits)
		}
	}
	return 1, ""
}

// productCost limits a product, which has as many digits as all its factors together.
func productCost(operands []*ast.Term) (float64, string) {
	if n := sizeOf(operands...); n > 4*MaxDigits {
		return MaxSteps, fmt.Sprintf("its factors have %.0f digits; the most is %d", n, 4*MaxDigits)
	}
	return sizeOf(operands...), ""
}

// longestNumber returns the digits of the longest number in an array or a set.
func longestNumber(t *ast.Term) (n int) {
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

// shiftCost limits the bits by which a number may be shifted to the left.
func shiftCost(operands []*ast.Term) (float64, string) {
	by, ok := numberOf(operands[1])
	if ok && by > 4*MaxDigits {
		return MaxSteps, fmt.Sprintf("it shifts by %.0f bits; the most is %d", by, 4*MaxDigits)
	}
	return arithmeticCost(operands)
}

func numberOf(t *ast.Term) (float64, bool) {
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

// replaceCost limits the result of a replacement: each byte of the text can be replaced.
func replaceCost(operands []*ast.Term) (float64, string) {
	if pairs, ok := operands[0].Value.(ast.Object); ok { // strings.replace_n
		longest := 0
		pairs.Foreach(func(_, t *ast.Term) { longest = max(longest, len(stringOf(t))) })
		n := float64(len(stringOf(operands[1])) + 1)
		return checkSteps(n*float64(longest+pairs.Len()+1), "it puts up to %d bytes in the place of each of %.0f", longest, n)
	}
	text, old := stringOf(operands[0]), stringOf(operands[1])
	n := float64(len(text) + 1)
	if old != "" {
		n = float64(strings.Count(text, old))
	}
	return checkSteps(float64(len(text))+n*float64(len(stringOf(operands[2]))+1), "it puts %d bytes in the place of each of %.0f", len(stringOf(operands[2])), n)
}

// formatCost limits the widths in a format.
func formatCost(operands []*ast.Term) (float64, string) {
	format := stringOf(operands[0])
	n := sizeOf(operands...)
	width := 0
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c >= '0' && c <= '9':
			width = min(10*width+int(c-'0'), 1e6) // package fmt accepts no larger width
		default:
			n += float64(width)
			width = 0
			if c == '*' { // the width is one of the operands
				n += 1e6
			}
		}
	}
	// %[1]s can format one operand more than once.
	again := float64(1 + strings.Count(format, "%["))
	return checkSteps(n*again, "it makes %.0f bytes", n*again)
}

// maxRange limits the values of a range.
const maxRange = 1 << 18

func rangeCost(operands []*ast.Term) (float64, string) {
	from, ok1 := numberOf(operands[0])
	to, ok2 := numberOf(operands[1])
	step := 1.0
	if len(operands) > 3 || len(operands) == 3 && operands[2] != nil {
		if s, ok := numberOf(operands[2]); ok && s >= 1 {
			step = s
		}
	}
	if n := math.Abs(to-from) / step; ok1 && ok2 && n > maxRange {
		return MaxSteps, fmt.Sprintf("it makes %.0f numbers; the most is %d", n, maxRange)
	}
	return math.Abs(to-from) / step, ""
}

func expandCost(operands []*ast.Term) (float64, string) {
	_, bits, ok := strings.Cut(stringOf(operands[0]), "/")
	var n int
	if _, err := fmt.Sscanf(bits, "%d", &n); !ok || err != nil {
		return 1, "" // the builtin reports the error itself
	}
	all := 32
	if strings.Contains(stringOf(operands[0]), ":") {
		all = 128
	}
	if all-n > 16 {
		return MaxSteps, fmt.Sprintf("a network of %d bits has 2^%d addresses; the most is 2^16", n, all-n)
	}
	return math.Pow(2, float64(all-n)), ""
}

// globCost is the cost of a pattern with wildcards: the matcher may try each combination of
// positions for them.
func globCost(operands []*ast.Term) (float64, string) {
	pattern, text := stringOf(operands[0]), stringOf(operands[2])
	stars := CountWildcards(pattern)
	steps := float64(len(pattern)+1) * binomial(len(text)+1, stars)
	return checkSteps(steps, "a pattern with %d wildcards on %d bytes", stars, len(text))
}

// GlobRefused reports whether glob.match is refused for the pattern on a text of n bytes.
func GlobRefused(pattern string, n int) bool {
	_, why := globCost([]*ast.Term{ast.StringTerm(pattern), ast.NullTerm(), ast.StringTerm(strings.Repeat("x", n))})
	return why != ""
}

// CountWildcards counts the parts of a pattern that match texts of any length, or one of several
// texts.
func CountWildcards(pattern string) (n int) {
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

// binomial returns the number of ways to choose k of n positions.
func binomial(n, k int) float64 {
	ways := 1.0
	for i := range min(k, n) {
		ways = ways * float64(n-i) / float64(i+1)
		if ways > 1e18 {
			break
		}
	}
	return math.Max(ways, float64(n))
}

func intersectCost(operands []*ast.Term) (float64, string) {
	a, b := stringOf(operands[0]), stringOf(operands[1])
	repeats := strings.Count(a, "*") + strings.Count(b, "*") + strings.Count(a, "+") + strings.Count(b, "+")
	return checkSteps(math.Pow(2, float64(repeats))*float64(len(a)+1)*float64(len(b)+1), "patterns of %d and %d bytes with %d repetitions", len(a), len(b), repeats)
}

// A regexSearch is a call of a builtin that finds all matches of a pattern.
type regexSearch struct {
	pattern, text string
	template      string // the replacement of each match
	limit         int    // the number of wanted matches; negative means all
}

// searchBuiltins lists the builtins that find all matches.
var searchBuiltins = map[string]func(operands []*ast.Term) regexSearch{
	"regex.find_n":                     limitedSearch,
	"regex.find_all_string_submatch_n": limitedSearch,
	"regex.split":                      func(o []*ast.Term) regexSearch { return regexSearch{stringOf(o[0]), stringOf(o[1]), "", -1} },
	"regex.replace": func(o []*ast.Term) regexSearch {
		return regexSearch{stringOf(o[1]), stringOf(o[0]), stringOf(o[2]), -1}
	},
}

func limitedSearch(operands []*ast.Term) regexSearch {
	s := regexSearch{stringOf(operands[0]), stringOf(operands[1]), "", -1}
	if n, ok := numberOf(operands[2]); ok && n >= 0 {
		s.limit = int(min(n, MaxSteps))
	}
	return s
}

// searchCost is the cost of one search: all instructions of the pattern, for each byte of the text.
func searchCost(pattern, text string) (float64, string) {
	p := programOf(pattern)
	if p.why != "" {
		return MaxSteps, p.why
	}
	return checkSteps(p.size*float64(len(text)+1), "a pattern of %.0f instructions on %d bytes", p.size, len(text))
}

// templateCost limits a pattern that consists of text and regular expressions: each brace could
// repeat the expression before it.
func templateCost(operands []*ast.Term) (float64, string) {
	pattern, text := stringOf(operands[0]), stringOf(operands[1])
	n := float64(len(pattern) + 1)
	if strings.Count(pattern, "{") > 0 && stringOf(operands[2]) != "{" || strings.Count(pattern, "{") > 1 {
		n *= 1000 // the highest count of a repetition
	}
	return checkSteps(n*float64(len(text)+1), "a pattern of up to %.0f instructions on %d bytes", n, len(text))
}

// A regexProgram holds the analysis of a regular expression.
type regexProgram struct {
	size float64        // instructions, at most
	why  string         // why it must not be compiled
	re   *regexp.Regexp // nil if it does not compile
}

// regexPrograms caches the analysis of patterns. Most patterns are constants of policies.
var regexPrograms = struct {
	sync.RWMutex
	of map[string]*regexProgram
}{of: map[string]*regexProgram{}}

// maxPrograms limits the cached patterns. A full cache is cleared.
const maxPrograms = 256

func programOf(pattern string) *regexProgram {
	regexPrograms.RLock()
	p := regexPrograms.of[pattern]
	regexPrograms.RUnlock()
	if p != nil {
		return p
	}
	p = newProgram(pattern)
	regexPrograms.Lock()
	defer regexPrograms.Unlock()
	if len(regexPrograms.of) >= maxPrograms {
		clear(regexPrograms.of)
	}
	regexPrograms.of[pattern] = p
	return p
}

func newProgram(pattern string) *regexProgram {
	if len(pattern) > MaxPattern {
		return &regexProgram{why: fmt.Sprintf("a pattern of %d bytes; the most is %d", len(pattern), MaxPattern)}
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return &regexProgram{} // the builtin reports the error
	}
	p := &regexProgram{size: countInstructions(parsed)}
	if p.size > maxProgram {
		p.why = fmt.Sprintf("a pattern of %.0f instructions; the most is %d", p.size, maxProgram)
		return p
	}
	p.re, _ = regexp.Compile(pattern)
	return p
}

// Pattern returns the most instructions of a regular expression. why is set if it is never
// started.
func Pattern(pattern string) (instructions float64, why string) {
	p := programOf(pattern)
	return p.size, p.why
}

// countInstructions returns the number of instructions of the compiled pattern, at most: x{n} is n
// times x.
func countInstructions(re *syntax.Regexp) float64 {
	n := 0.0
	for _, sub := range re.Sub {
		n += countInstructions(sub)
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

// rehearse finds all matches once and checks for cancellation between two of them: a pattern can
// read the whole rest of the text for each match. It also counts the size of the result of a
// replacement.
func (s regexSearch) rehearse(name string, cancel topdown.Cancel) (err error) {
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
			err = ErrTime
		case made > MaxSteps:
			err = &RefusedError{name, fmt.Sprintf("its result has more than %d bytes", MaxSteps)}
		case found != s.limit:
			return ""
		}
		panic(errRehearsed)
	})
	return nil
}

// errRehearsed ends a rehearsal.
var errRehearsed = errors.New("the rehearsal is over")
