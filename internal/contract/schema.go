package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of compiling and checking.
const (
	// MaxChecked limits the bytes of a value.
	MaxChecked = 4 << 20

	// maxValues limits the values inside it.
	maxValues = 500_000

	// maxProgram limits the instructions of all regular expressions of one schema together.
	maxProgram = 100_000

	// maxDigits and maxExponent limit the numbers that are treated exactly.
	maxDigits   = 64
	maxExponent = 400
)

// A schema is a compiled JSON Schema. It is safe for concurrent use.
type schema struct {
	compiled *jsonschema.Schema
	cost     *schemaCost
	quick    *quickSchema
}

// schemaURL is the URL that the compiler gets for a definition's schema. It does not exist.
const schemaURL = "switchboard:schema"

// noLoader refuses to load anything outside of the schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references out of the schema are not followed")
}

// compile compiles the schema of a server's tool.
func compile(text []byte) (s *schema, err error) {
	return compileWith(text, patternEngine{left: maxProgram, made: map[string]*schemaPattern{}})
}

// compileWhole compiles the schema of a contract: each of its regular expressions is checked. A person has written it, so that less
// is enough.
func compileWhole(text []byte) (*schema, error) {
	return compileWith(text, patternEngine{left: maxProgram / 10, whole: true, made: map[string]*schemaPattern{}})
}

func compileWith(text []byte, e patternEngine) (s *schema, err error) {
	defer func() {
		if r := recover(); r != nil { // the library met something that it did not expect
			s, err = nil, fmt.Errorf("cannot be compiled: %v", r)
		}
	}()
	doc, err := decode(text)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(e.compile)
	for _, name := range formatNames {
		// Opinions differ about what a format accepts. In the newer drafts it is only an annotation.
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, shortError(err, doc)
	}
	root, err := costOf(compiled, map[*jsonschema.Schema]*schemaCost{})
	return &schema{compiled, root, quickSchemaOf(doc, e.made)}, err
}

var formatNames = []string{
	"json-pointer", "relative-json-pointer", "uuid", "duration", "period", "ipv4", "ipv6", "hostname", "email", "date", "time", "date-time",
	"uri", "iri", "uri-reference", "iri-reference", "uri-template", "semver", "idn-email", "idn-hostname",
}

// shortError returns the first line of the library's error about the schema doc, without our URL.
func shortError(err error, doc any) error {
	if e, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if invalid, ok := errors.AsType[*jsonschema.ValidationError](e.Err); ok {
			return fmt.Errorf("is no JSON Schema: %w", firstMismatch(invalid, doc))
		}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(strings.ReplaceAll(text, schemaURL, ""))
}

// A patternEngine compiles the regular expressions of one schema. If whole is set, it refuses one that Go's syntax cannot
// express.
type patternEngine struct {
	left  int
	whole bool
	made  map[string]*schemaPattern // by their text
}

// A schemaPattern is a regular expression. If Go's syntax cannot express it, it is not checked, because then no text is
// certain not to match.
type schemaPattern struct {
	text    string
	program int
	*regexp.Regexp
}

func (p *schemaPattern) String() string { return p.text }

// MatchString implements jsonschema.Regexp.
func (p *schemaPattern) MatchString(s string) bool { return p.Regexp == nil || p.Regexp.MatchString(s) }

func (p *schemaPattern) matches(text []byte) bool { return p.Regexp == nil || p.Match(text) }

func (e *patternEngine) compile(text string) (jsonschema.Regexp, error) {
	p := &schemaPattern{text: text}
	e.made[text] = p
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil && e.whole {
		return nil, err
	}
	if err != nil {
		return p, nil //nolint:nilerr // see pattern
	}
	p.program = programLength(parsed)
	if e.left -= p.program; e.left < 0 {
		return nil, errCostly
	}
	p.Regexp, err = regexp.Compile(text)
	return p, err
}

// programLength returns about how long the program of an expression is.
func programLength(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/8
	for _, sub := range re.Sub {
		n = min(n+programLength(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return min(n, maxProgram+1)
}

// check returns why the value does not fit, as a *misfit, or another error if the check is not possible. The value is
// strict JSON.
func (s *schema) check(text []byte) error {
	if s.quick.accepts(text) {
		return nil
	}
	return s.checkWhole(text)
}

// checkWhole is check with the whole schema, for any value.
func (s *schema) checkWhole(text []byte) (err error) {
	defer func() {
		if r := recover(); r != nil { // the library met something that it did not expect
			err = fmt.Errorf("cannot be checked: %v", r)
		}
	}()
	if len(text) > MaxChecked {
		return fmt.Errorf("it is %d bytes long; at most %d are checked", len(text), MaxChecked)
	}
	v, err := decode(text)
	if err != nil {
		return err
	}
	w := costCounter{stepsLeft: maxSteps}
	if w.applyCost(s.cost, v, 0, 0); w.stepsLeft < 0 {
		return errCostly
	}
	err = s.compiled.Validate(v)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return firstMismatch(invalid, v)
	}
	return err
}

// property returns the schema of the named member, or nil if there is none.
func (s *schema) property(name string) *schema {
	sub := s.compiled.Properties[name]
	if sub == nil {
		return nil
	}
	return &schema{compiled: sub, cost: s.cost.named[name]}
}

// A misfit is the place where a value does not fit, with what the schema wants there. It never repeats a value.
type misfit struct {
	at   []string
	want string
}

// Error returns, for example, `at "/items/0": want string, not number`.
func (m *misfit) Error() string {
	at := make([]string, len(m.at))
	for i, name := range m.at {
		q := safeQuote(name)
		at[i] = strings.Trim(q, `"`)
	}
	return "at " + strconv.Quote(jsonPointer(at...)) + ": " + m.want
}

// jsonPointer returns the JSON pointer of names.
func jsonPointer(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(n))
	}
	return b.String()
}

// firstMismatch returns the first of all mismatches, so that the answer is always the same. If no alternative of a schema fits,
// it reports only that. value is what was checked.
func firstMismatch(e *jsonschema.ValidationError, value any) *misfit {
	at := slices.Clone(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		var best *misfit
		for _, c := range e.Causes {
			if m := firstMismatch(c, value); best == nil || slices.Compare(m.at, best.at) < 0 || slices.Equal(m.at, best.at) && m.want < best.want {
				best = m
			}
		}
		if best != nil {
			return best
		}
	case *kind.PropertyNames:
		// The library goes on to write into this location, so only its length is right (validator.go of v6.0.3, objValidate).
		at, _ = findMember(value, len(at), k.Property)
	}
	return &misfit{at, describeWant(e.ErrorKind)}
}

// findMember returns the location of the first object at this depth with a member of that name, in the order of locations.
func findMember(value any, depth int, name string) (at []string, ok bool) {
	below := func(token string, v any) bool {
		if at, ok = findMember(v, depth-1, name); ok {
			at = append([]string{token}, at...)
		}
		return ok
	}
	switch v := value.(type) {
	case map[string]any:
		if depth == 0 {
			_, ok = v[name]
			return nil, ok
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if below(key, v[key]) {
				return at, true
			}
		}
	case []any:
		for i := 0; depth > 0 && i < len(v); i++ {
			if below(strconv.Itoa(i), v[i]) {
				return at, true
			}
		}
	}
	return nil, false
}

// describeWant returns what the schema wants, in the words of the schema only.
func describeWant(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "want " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Required:
		missing := slices.Clone(k.Missing)
		slices.Sort(missing)
		return fmt.Sprintf("%s is missing", safeQuote(missing[0]))
	case *kind.AdditionalProperties:
		names := slices.Clone(k.Properties)
		slices.Sort(names)
		return fmt.Sprintf("%s is not allowed here", safeQuote(names[0]))
	case *kind.Format:
		if k.Want == "regex" {
			return "want a regular expression (RE2) that is cheap to match"
		}
	case *kind.FalseSchema:
		return "nothing is allowed here"
	case *kind.Not: // its path is empty
		return `does not fit "not"`
	case *kind.InvalidJsonValue:
		return "the number is too large to be checked"
	}
	if k == nil {
		return "does not fit"
	}
	return fmt.Sprintf("does not fit %q", strings.Join(k.KeywordPath(), "/"))
}

// maxShown limits how many bytes of foreign text are repeated.
const maxShown = 64

func safeQuote(s string) string {
	if len(s) > maxShown {
		return strconv.QuoteToASCII(s[:maxShown]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// decode parses strict JSON, at most wire.MaxDepth deep, into the library's types: integers as int64, other numbers in
// their own spelling.
func decode(text []byte) (any, error) {
	d := valueDecoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(text))}
	v, err := d.value()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return v, nil
}

type valueDecoder struct {
	*jsontext.Decoder
	values int
}

func (d *valueDecoder) value() (any, error) {
	if d.values++; d.values > maxValues {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if d.StackDepth() > wire.MaxDepth {
		return nil, fmt.Errorf("more than %d objects and lists within each other", wire.MaxDepth)
	}
	switch token.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return token.String(), nil
	case '0':
		return parseNumber(token.String()), nil
	case '[':
		return d.list()
	}
	return d.object()
}

func (d *valueDecoder) list() (any, error) {
	list := []any{}
	for d.PeekKind() != ']' {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.ReadToken()
	return list, err
}

func (d *valueDecoder) object() (any, error) {
	object := map[string]any{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if object[key], err = d.value(); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return object, err
}

// parseNumber parses a number. A long one is rounded: a few bytes such as 1e999999 would take megabytes to compute with
// exactly.
func parseNumber(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if len(s) > maxDigits || err != nil {
		return f
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if n, err := strconv.Atoi(s[i+1:]); err != nil || n > maxExponent || n < -maxExponent {
			return f
		}
	}
	return json.Number(s)
}
