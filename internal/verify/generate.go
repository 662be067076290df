package verify

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of one generated value, and of the attempts at it. A schema that needs more has no value.
const (
	maxSteps    = 20_000    // parts of schemas that are looked at
	maxValue    = 256 << 10 // bytes
	maxDepth    = 24        // schemas in schemas, and references that follow each other
	maxElements = 64        // of a list that needs some
	maxPattern  = 1 << 10   // bytes of a regular expression
	maxRepeat   = 64        // of one part of a regular expression
	attempts    = 24        // with other alternatives each
)

// ErrNoValue says that no value was found that fits a schema. That does not prove that there is none.
var ErrNoValue = errors.New("no value found that fits the schema")

// A generator makes values for JSON schemas of the drafts 7 and 2020-12. It reads what most schemas have, and guesses at the rest: whoever uses a value checks it. Equal
// schemas and seeds give equal values.
type generator struct {
	root any // the schema that references lead into
	rand *rand.Rand

	// variant chooses among alternatives; whole says that optional members are made, too.
	variant int
	whole   bool

	steps, size int
}

// generate returns a value that fits the schema of a tool's input as fits says, or ErrNoValue. given returns a value for a named member, such as a path that exists, or nil.
func generate(schema json.RawMessage, seed switchboard.Digest, whole bool, given func(name string, schema map[string]any) any, fits func(json.RawMessage) error) (json.RawMessage, error) {
	root, err := decodeSchema(schema)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoValue, err)
	}
	g := &generator{root: root, whole: whole}
	for g.variant = range attempts {
		g.rand = newRand(seed, g.variant)
		g.size = 0
		v, ok := g.make(root, 0, given)
		if g.steps > maxSteps {
			break
		}
		if !ok {
			continue
		}
		text, err := json.Marshal(v)
		if err != nil || len(text) > maxValue {
			continue
		}
		if fits(text) == nil {
			return text, nil
		}
	}
	return nil, ErrNoValue
}

// newRand returns the source of the attempt with the number, by a digest.
func newRand(seed switchboard.Digest, attempt int) *rand.Rand {
	_, hexed, _ := strings.Cut(string(seed), ":")
	sum, _ := hex.DecodeString(hexed)
	var key [32]byte
	copy(key[:], sum)
	key[31] ^= byte(attempt)
	return rand.New(rand.NewChaCha8(key)) //nolint:gosec // it must be the same again
}

// decodeSchema decodes a schema, with numbers as they are spelt.
func decodeSchema(schema json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// make makes a value for one schema. ok is false if it knows none.
func (g *generator) make(schema any, depth int, given func(string, map[string]any) any) (v any, ok bool) {
	if g.steps++; g.steps > maxSteps || depth > maxDepth {
		return nil, false
	}
	s, isObject := schema.(map[string]any)
	if !isObject {
		allowed, isBool := schema.(bool)
		return "value", isBool && allowed
	}
	s, ok = g.merge(s)
	if !ok {
		return nil, false
	}
	if v, ok := s["const"]; ok {
		return v, true
	}
	for _, key := range []string{"enum", "examples"} {
		if all, ok := s[key].([]any); ok && len(all) > 0 {
			return all[g.choose(len(all))], true
		}
	}
	if v, ok := s["default"]; ok && v != nil && g.variant%2 == 0 {
		return v, true
	}
	switch g.typeOf(s) {
	case "object":
		return g.object(s, depth, given)
	case "array":
		return g.array(s, depth, given)
	case "string":
		return g.text(s)
	case "integer":
		return g.number(s, true)
	case "number":
		return g.number(s, false)
	case "boolean":
		return g.variant%2 == 1, true
	case "null":
		return nil, true
	}
	return "value", true
}

// choose returns a number below n: at the first attempt the first one.
func (g *generator) choose(n int) int { return g.variant % n }

// merge follows the reference of a schema, and takes over what all of allOf and one of anyOf and oneOf say.
func (g *generator) merge(s map[string]any) (map[string]any, bool) {
	for range maxDepth {
		if g.steps++; g.steps > maxSteps {
			return nil, false
		}
		var more []any
		rest := maps.Clone(s)
		if ref, ok := s["$ref"].(string); ok {
			target, ok := g.resolve(ref)
			if !ok {
				return nil, false
			}
			delete(rest, "$ref")
			more = append(more, target)
		}
		if all, ok := s["allOf"].([]any); ok {
			delete(rest, "allOf")
			more = append(more, all...)
		}
		for _, key := range []string{"anyOf", "oneOf"} {
			if some, ok := s[key].([]any); ok && len(some) > 0 {
				delete(rest, key)
				more = append(more, some[g.choose(len(some))])
			}
		}
		if len(more) == 0 {
			return s, true
		}
		for _, m := range more {
			switch m := m.(type) {
			case map[string]any:
				rest = union(rest, m)
			case bool:
				if !m {
					return nil, false
				}
			}
		}
		s = rest
	}
	return nil, false
}

// union returns what two schemas say together, as far as one object can say it.
func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for _, key := range slices.Sorted(maps.Keys(b)) {
		was, both := out[key]
		if !both {
			out[key] = b[key]
			continue
		}
		switch key {
		case "properties", "patternProperties", "dependentRequired":
			members, ok1 := was.(map[string]any)
			others, ok2 := b[key].(map[string]any)
			if ok1 && ok2 {
				all := maps.Clone(members)
				for name, schema := range others {
					if first, ok := all[name]; ok {
						schema = map[string]any{"allOf": []any{first, schema}}
					}
					all[name] = schema
				}
				out[key] = all
			}
		case "required", "allOf", "anyOf", "oneOf":
			x, ok1 := was.([]any)
			y, ok2 := b[key].([]any)
			if ok1 && ok2 {
				out[key] = slices.Concat(x, y)
			}
		case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
			out[key] = pickNumber(was, b[key], 1)
		case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
			out[key] = pickNumber(was, b[key], -1)
		case "enum":
			out[key] = common(was, b[key])
		case "type":
			out[key] = commonTypes(was, b[key])
		}
	}
	return out
}

// pickNumber returns the larger of two numbers if sign is 1, and the smaller if it is -1.
func pickNumber(a, b any, sign int) any {
	x, ok1 := rational(a)
	y, ok2 := rational(b)
	if ok1 && ok2 && y.Cmp(x) == sign {
		return b
	}
	return a
}

// common returns the values that two lists have.
func common(a, b any) any {
	x, ok1 := a.([]any)
	y, ok2 := b.([]any)
	if !ok1 || !ok2 {
		return a
	}
	out := []any{}
	for _, v := range x {
		if slices.ContainsFunc(y, func(o any) bool { return fmt.Sprint(o) == fmt.Sprint(v) }) {
			out = append(out, v)
		}
	}
	return out
}

// commonTypes returns the types that two values of "type" have.
func commonTypes(a, b any) any {
	list := func(v any) []any {
		if all, ok := v.([]any); ok {
			return all
		}
		return []any{v}
	}
	x := list(a)
	if slices.Contains(x, any("number")) {
		x = append(slices.Clone(x), "integer")
	}
	return common(x, list(b))
}

// resolve returns the part of the root that a reference names.
func (g *generator) resolve(ref string) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	if pointer != "" && pointer[0] != '/' {
		for _, key := range []string{"$defs", "definitions"} {
			root, _ := g.root.(map[string]any)
			defs, _ := root[key].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(defs)) {
				if d, ok := defs[name].(map[string]any); ok && (d["$anchor"] == pointer || d["$id"] == ref) {
					return d, true
				}
			}
		}
		return nil, false
	}
	at := g.root
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		if g.steps++; g.steps > maxSteps {
			return nil, false
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := at.(type) {
		case map[string]any:
			if at, ok = v[part]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// typeOf returns the type of values that a schema describes, by its keywords if it names none; "" means any.
func (g *generator) typeOf(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		var names []string
		for _, v := range t {
			if name, ok := v.(string); ok && name != "null" {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return names[g.choose(len(names))]
		}
		return "null"
	}
	for _, by := range []struct{ keyword, means string }{
		{"properties", "object"},
		{"required", "object"},
		{"items", "array"},
		{"prefixItems", "array"},
		{"minItems", "array"},
		{"pattern", "string"},
		{"minLength", "string"},
		{"format", "string"},
		{"minimum", "number"},
		{"maximum", "number"},
		{"multipleOf", "number"},
	} {
		if _, ok := s[by.keyword]; ok {
			return by.means
		}
	}
	return ""
}

// object makes an object with the required members; if g.whole, and at the outermost level, with all.
func (g *generator) object(s map[string]any, depth int, given func(string, map[string]any) any) (any, bool) {
	properties, _ := s["properties"].(map[string]any)
	out := map[string]any{}
	names := textsIn(s["required"])
	if g.whole && depth == 0 {
		names = append(names, slices.Sorted(maps.Keys(properties))...)
	}
	if least := countIn(s["minProperties"]); least > 0 {
		if least > maxElements {
			return nil, false
		}
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if len(names) < least && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		for i := 0; len(names) < least; i++ {
			names = append(names, fmt.Sprint("member", i))
		}
	}
	dependent, _ := s["dependentRequired"].(map[string]any)
	for i := 0; i < len(names) && len(names) <= maxSteps; i++ {
		name := names[i]
		if _, ok := out[name]; ok {
			continue
		}
		schema, known := properties[name]
		if !known {
			schema = memberSchema(s, name)
		}
		v, ok := g.member(name, schema, depth, given)
		if !ok {
			if slices.Contains(textsIn(s["required"]), name) {
				return nil, false
			}
			continue
		}
		if g.size += len(name) + 4; g.size > maxValue {
			return nil, false
		}
		out[name] = v
		names = append(names, textsIn(dependent[name])...)
	}
	return out, true
}

// memberSchema returns the schema for a member that is not among the properties.
func memberSchema(s map[string]any, _ string) any {
	if more, ok := s["additionalProperties"]; ok && more != false {
		return more
	}
	return map[string]any{"type": "string"}
}

// member makes the value of one member: a given one at the first attempts, if there is one.
func (g *generator) member(name string, schema any, depth int, given func(string, map[string]any) any) (any, bool) {
	if s, ok := schema.(map[string]any); ok && given != nil && g.variant < attempts/2 {
		if merged, ok := g.merge(s); ok {
			_, fixed := merged["const"]
			_, listed := merged["enum"]
			if !fixed && !listed {
				if v := given(name, merged); v != nil {
					return v, true
				}
			}
		}
	}
	return g.make(schema, depth+1, given)
}

// array makes a list with as many elements as must be there, and one if none must.
func (g *generator) array(s map[string]any, depth int, given func(string, map[string]any) any) (any, bool) {
	least := max(countIn(s["minItems"]), countIn(s["minContains"]))
	if least > maxElements {
		return nil, false
	}
	most := maxElements
	if v, ok := s["maxItems"]; ok {
		most = countIn(v)
	}
	prefix, _ := s["prefixItems"].([]any)
	items, has := s["items"]
	if list, ok := items.([]any); ok { // draft 7
		prefix, items, has = list, s["additionalItems"], s["additionalItems"] != nil
	}
	if !has {
		items = true
	}
	contains, must := s["contains"]
	n := min(max(least, min(1, most)), most)
	if must {
		n = max(n, 1)
	}
	out := []any{}
	for i := 0; i < max(n, min(len(prefix), most)); i++ {
		schema := items
		switch {
		case i < len(prefix):
			schema = prefix[i]
		case must && len(out) == len(prefix):
			schema = contains
		}
		v, ok := g.make(schema, depth+1, given)
		if !ok {
			if i >= least && !must {
				break
			}
			return nil, false
		}
		if s["uniqueItems"] == true {
			v = g.distinct(v, i)
		}
		if g.size += 8; g.size > maxValue {
			return nil, false
		}
		out = append(out, v)
	}
	return out, true
}

// distinct changes a value so that it differs from the other elements of a list.
func (g *generator) distinct(v any, i int) any {
	switch v := v.(type) {
	case string:
		if i > 0 {
			return v + strconv.Itoa(i)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return json.Number(strconv.FormatInt(n+int64(i), 10))
		}
	}
	return v
}

// texts that fit formats. The values are of the documentation ranges (RFC 2606, RFC 5737, RFC 3849).
var formatted = map[string]string{
	"email": "ann@example.com", "idn-email": "ann@example.com", "uri": "https://example.com/", "url": "https://example.com/", "iri": "https://example.com/", "uri-reference": "/notes",
	"iri-reference": "/notes", "uuid": "123e4567-e89b-42d3-a456-426614174000", "date": "2026-01-02", "date-time": "2026-01-02T03:04:05Z", "time": "03:04:05Z", "duration": "P1D", "ipv4": "192.0.2.1",
	"ipv6": "2001:db8::1", "hostname": "example.com", "idn-hostname": "example.com", "regex": "a+", "json-pointer": "/a", "uri-template": "/notes/{id}",
}

// text makes a string.
func (g *generator) text(s map[string]any) (any, bool) {
	least, most := countIn(s["minLength"]), maxValue
	if v, ok := s["maxLength"]; ok {
		most = countIn(v)
	}
	if least > most || least > maxValue/4 {
		return nil, false
	}
	format, _ := s["format"].(string)
	text, ok := formatted[format]
	if pattern, has := s["pattern"].(string); has {
		text, ok = g.matching(pattern)
		if !ok {
			return nil, false
		}
	}
	if !ok {
		text = "sample"
	}
	if n := len([]rune(text)); n < least {
		text += strings.Repeat("a", least-n)
	}
	if r := []rune(text); len(r) > most {
		text = string(r[:most])
	}
	if g.size += len(text); g.size > maxValue {
		return nil, false
	}
	return text, true
}

// matching returns a text that a regular expression matches. Lookarounds and back references have none.
func (g *generator) matching(pattern string) (string, bool) {
	if len(pattern) > maxPattern {
		return "", false
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	if !g.write(&b, re.Simplify()) {
		return "", false
	}
	return b.String(), true
}

// write writes a text that matches a part of a regular expression. ok is false if it knows none within the bounds.
func (g *generator) write(b *strings.Builder, re *syntax.Regexp) (ok bool) {
	if g.steps++; g.steps > maxSteps || b.Len() > maxValue/4 {
		return false
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) == 0 {
			return false
		}
		b.WriteRune(pickRune(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range re.Sub {
			if !g.write(b, sub) {
				return false
			}
		}
	case syntax.OpAlternate:
		return g.write(b, re.Sub[g.choose(len(re.Sub))])
	case syntax.OpPlus:
		return g.write(b, re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > maxRepeat {
			return false
		}
		for range max(re.Min, min(1, re.Max)) {
			if !g.write(b, re.Sub[0]) {
				return false
			}
		}
	case syntax.OpNoMatch:
		return false
	default: // anchors, empty matches, and what may be absent
	}
	return true
}

// pickRune returns a character of a class: a letter or a digit if it has one.
func pickRune(ranges []rune) rune {
	for _, want := range []rune{'a', 'A', '1', '0', 'b', '-', '_'} {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	return ranges[0]
}

// number makes a number: 1 if it fits, and else the one that is next to it.
func (g *generator) number(s map[string]any, whole bool) (any, bool) {
	low, high := bound(s, "minimum", "exclusiveMinimum", 1), bound(s, "maximum", "exclusiveMaximum", -1)
	n := big.NewRat(1, 1)
	step := big.NewRat(1, 1)
	if m, ok := rational(s["multipleOf"]); ok && m.Sign() > 0 {
		step = m
		if whole && !step.IsInt() {
			step = new(big.Rat).SetInt(step.Num())
		}
		n = new(big.Rat).Set(step)
	}
	if low != nil && n.Cmp(low) < 0 {
		n = ceil(low, step)
	}
	if high != nil && n.Cmp(high) > 0 {
		n = new(big.Rat).Neg(ceil(new(big.Rat).Neg(high), step))
		if low != nil && n.Cmp(low) < 0 {
			if whole {
				return nil, false
			}
			n = new(big.Rat).Quo(new(big.Rat).Add(low, high), big.NewRat(2, 1))
		}
	}
	if g.variant > 0 && low == nil && high == nil {
		n = new(big.Rat).Mul(step, big.NewRat(int64(g.rand.IntN(100)), 1))
	}
	if n.IsInt() {
		return json.Number(n.Num().String()), true
	}
	return json.Number(strings.TrimRight(n.FloatString(12), "0")), !whole
}

// bound returns the least number that is allowed if sign is 1, and the greatest if it is -1; nil if there is none. Next to an exclusive bound, it is 1 away.
func bound(s map[string]any, key, exclusive string, sign int64) *big.Rat {
	one := big.NewRat(sign, 1)
	n, ok := rational(s[key])
	if x, has := rational(s[exclusive]); has {
		next := new(big.Rat).Add(x, one)
		if !ok || next.Cmp(n) == int(sign) {
			return next
		}
	}
	if s[exclusive] == true && ok { // draft 4
		return new(big.Rat).Add(n, one)
	}
	if !ok {
		return nil
	}
	return n
}

// ceil returns the least multiple of step that is at least n.
func ceil(n, step *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(n, step)
	i := new(big.Int).Div(q.Num(), q.Denom()) // rounded down
	if !q.IsInt() {
		i.Add(i, big.NewInt(1))
	}
	return new(big.Rat).Mul(new(big.Rat).SetInt(i), step)
}

// rational returns the value of a number of a schema. Numbers with large exponents have none, because they would need much memory.
func rational(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok || len(n) > 40 {
		return nil, false
	}
	if f, err := n.Float64(); err != nil || f > 1e18 || f < -1e18 || f != 0 && f < 1e-12 && f > -1e-12 {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

// countIn returns the value of a keyword that counts; 0 if it has none, and a number beyond all bounds if it is too large.
func countIn(v any) int {
	n, ok := v.(json.Number)
	if !ok {
		return 0
	}
	f, err := n.Float64()
	switch {
	case err != nil || f > maxValue:
		return maxValue + 1
	case f < 0:
		return 0
	}
	return int(f)
}

// textsIn returns the texts of a list.
func textsIn(v any) (out []string) {
	all, _ := v.([]any)
	for _, one := range all {
		if s, ok := one.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
