package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// Bounds of what is compiled and checked.
const (
	// MaxChecked is how many bytes a value may have.
	MaxChecked = 4 << 20

	// maxValues is how many values may stand in it.
	maxValues = 500_000

	// maxProgram is how many instructions the regular expressions of one schema
	// may have together.
	maxProgram = 100_000

	// maxDigits and maxExponent bound numbers that are reckoned with exactly.
	maxDigits   = 64
	maxExponent = 400
)

// A schema is a JSON Schema, compiled. It is safe for concurrent use.
type schema struct {
	compiled *jsonschema.Schema
	cost     *cost
	flat     *flat
}

// place is what the compiler calls a definition's schema. It leads nowhere.
const place = "switchboard:schema"

// nowhere loads what is referred to outside of the schema: nothing.
type nowhere struct{}

func (nowhere) Load(string) (any, error) {
	return nil, errors.New("references out of the schema are not followed")
}

// compile compiles the schema.
func compile(text []byte) (s *schema, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's: it has met what it did not expect
			s, err = nil, fmt.Errorf("cannot be compiled: %v", r)
		}
	}()
	doc, err := decode(text)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	e := engine{left: maxProgram}
	c.UseRegexpEngine(e.compile)
	for _, name := range formats {
		// What a format takes is a matter of opinion; to the newer drafts it is
		// a remark.
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	if err := c.AddResource(place, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(place)
	if err != nil {
		return nil, short(err)
	}
	root, err := costOf(compiled, map[*jsonschema.Schema]*cost{})
	return &schema{compiled, root, flatOf(doc)}, err
}

var formats = []string{
	"json-pointer", "relative-json-pointer", "uuid", "duration", "period", "ipv4", "ipv6", "hostname", "email", "date", "time", "date-time",
	"uri", "iri", "uri-reference", "iri-reference", "uri-template", "semver", "idn-email", "idn-hostname",
}

// short is the first line of what the library says, without our place.
func short(err error) error {
	if e, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if invalid, ok := errors.AsType[*jsonschema.ValidationError](e.Err); ok {
			return fmt.Errorf("is no JSON Schema: %w", first(invalid))
		}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(strings.ReplaceAll(text, place, ""))
}

// An engine compiles the regular expressions of one schema.
type engine struct{ left int }

// A pattern is a regular expression, or one that says things which Go's cannot:
// that is not checked, since nobody can say that a text does not match it.
type pattern struct {
	text    string
	program int
	*regexp.Regexp
}

func (p *pattern) String() string { return p.text }

// MatchString implements jsonschema.Regexp.
func (p *pattern) MatchString(s string) bool { return p.Regexp == nil || p.Regexp.MatchString(s) }

func (e *engine) compile(text string) (jsonschema.Regexp, error) {
	p := &pattern{text: text}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return p, nil //nolint:nilerr // see pattern
	}
	p.program = instructions(parsed)
	if e.left -= p.program; e.left < 0 {
		return nil, errCostly
	}
	p.Regexp, err = regexp.Compile(text)
	return p, err
}

// instructions is about how long the program of an expression is.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/8
	for _, sub := range re.Sub {
		n = min(n+instructions(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return min(n, maxProgram+1)
}

// check says why the value, which is strict JSON, does not fit: a *misfit; or
// that it cannot be found out.
func (s *schema) check(text []byte) error {
	if s.flat.accepts(text) {
		return nil
	}
	return s.examine(text)
}

// examine is check with the whole schema, whatever the value.
func (s *schema) examine(text []byte) (err error) {
	defer func() {
		if r := recover(); r != nil { // the library's: it has met what it did not expect
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
	w := walk{left: maxSteps}
	if w.apply(s.cost, v, 0, 0); w.left < 0 {
		return errCostly
	}
	err = s.compiled.Validate(v)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return first(invalid)
	}
	return err
}

// property is what the schema says of the member of that name alone, or nil where
// it says nothing.
func (s *schema) property(name string) *schema {
	sub := s.compiled.Properties[name]
	if sub == nil {
		return nil
	}
	return &schema{compiled: sub, cost: s.cost.named[name]}
}

// A misfit says where a value does not fit, and what was wanted there. It never
// repeats a value.
type misfit struct {
	at   []string
	want string
}

// Error gives `at "/items/0": want string, not number`.
func (m *misfit) Error() string {
	at := make([]string, len(m.at))
	for i, name := range m.at {
		q := quoted(name)
		at[i] = strings.Trim(q, `"`)
	}
	return "at " + strconv.Quote(pointer(at...)) + ": " + m.want
}

// pointer is the JSON pointer of names.
func pointer(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(n))
	}
	return b.String()
}

// first finds of all that is wrong what stands first, so that it is always the
// same. Of what is wrong with alternatives it says that none fits.
func first(e *jsonschema.ValidationError) *misfit {
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		var best *misfit
		for _, c := range e.Causes {
			if m := first(c); best == nil || slices.Compare(m.at, best.at) < 0 || slices.Equal(m.at, best.at) && m.want < best.want {
				best = m
			}
		}
		if best != nil {
			return best
		}
	}
	return &misfit{slices.Clone(e.InstanceLocation), wanted(e.ErrorKind)}
}

// wanted says what the schema wants, in its words alone.
func wanted(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "want " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Required:
		missing := slices.Clone(k.Missing)
		slices.Sort(missing)
		return fmt.Sprintf("%s is missing", quoted(missing[0]))
	case *kind.AdditionalProperties:
		names := slices.Clone(k.Properties)
		slices.Sort(names)
		return fmt.Sprintf("%s is not allowed here", quoted(names[0]))
	case *kind.FalseSchema:
		return "nothing is allowed here"
	case *kind.InvalidJsonValue:
		return "the number is too large to be checked"
	}
	if k == nil {
		return "does not fit"
	}
	return fmt.Sprintf("does not fit %q", strings.Join(k.KeywordPath(), "/"))
}

// maxShown bounds how much of a stranger's word is repeated, in bytes.
const maxShown = 64

func quoted(s string) string {
	if len(s) > maxShown {
		return strconv.QuoteToASCII(s[:maxShown]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// decode reads strict JSON, no deeper than wire.MaxDepth, as the library wants
// it: with whole numbers as such, others as they are spelt.
func decode(text []byte) (any, error) {
	d := decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(text))}
	v, err := d.value()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return v, nil
}

type decoder struct {
	*jsontext.Decoder
	values int
}

func (d *decoder) value() (any, error) {
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
		return number(token.String()), nil
	case '[':
		return d.list()
	}
	return d.object()
}

func (d *decoder) list() (any, error) {
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

func (d *decoder) object() (any, error) {
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

// number reads a number. One that is spelt at length is rounded: a few bytes
// such as 1e999999 are megabytes to who reckons exactly.
func number(s string) any {
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
