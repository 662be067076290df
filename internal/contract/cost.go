package contract

import (
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of one check of a value against a schema. Both are others' words:
// without bounds, a few bytes of them keep a processor busy for years. So before
// the check, a walk that decides nothing counts what the check can cost.
const (
	// maxSteps is how much work a check may be, in applications of a schema to a
	// value or the like. maxChain is how many schemas may be applied within each
	// other.
	maxSteps = 1_000_000
	maxChain = 1_000
)

var (
	errCostly = errors.New("checking it would take too long")
	errRef    = errors.New("$dynamicRef and $recursiveRef are not followed here")
)

// A cost is what it costs to apply one schema.
type cost struct {
	own     int // whatever the value is
	program int // instructions that each byte of a text, or of members' names, may meet
	unique  bool

	here  []*cost          // applied to the same value
	each  []*cost          // applied perhaps to each element or member
	named map[string]*cost // applied to the member of the name
}

// costOf makes the cost of a schema and of all that it leads to. done has those
// that were made.
func costOf(s *jsonschema.Schema, done map[*jsonschema.Schema]*cost) (*cost, error) {
	if c := done[s]; c != nil {
		return c, nil
	}
	c := &cost{own: 1 + len(s.Required), unique: s.UniqueItems}
	done[s] = c
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		return nil, errRef
	}
	if s.Enum != nil {
		c.own += values(s.Enum.Values)
	}
	if s.Const != nil {
		c.own += values(*s.Const)
	}
	c.program = programOf(s.Pattern)
	for re := range s.PatternProperties {
		c.program += programOf(re)
	}
	var err error
	add := func(to *[]*cost, subs ...*jsonschema.Schema) {
		for _, sub := range subs {
			if sub == nil || err != nil {
				continue
			}
			var k *cost
			k, err = costOf(sub, done)
			*to = append(*to, k)
		}
	}
	add(&c.here, s.AllOf...)
	add(&c.here, s.AnyOf...)
	add(&c.here, s.OneOf...)
	add(&c.here, s.Ref, s.Not, s.If, s.Then, s.Else)
	for _, sub := range s.DependentSchemas {
		add(&c.here, sub)
	}
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok {
			add(&c.here, sub)
		}
	}
	add(&c.each, s.PrefixItems...)
	add(&c.each, s.PropertyNames, s.UnevaluatedProperties, s.Items2020, s.Contains, s.UnevaluatedItems)
	for _, sub := range s.PatternProperties {
		add(&c.each, sub)
	}
	for _, v := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			add(&c.each, v)
		case []*jsonschema.Schema:
			add(&c.each, v...)
		}
	}
	for name, sub := range s.Properties {
		var list []*cost
		if add(&list, sub); err == nil {
			if c.named == nil {
				c.named = make(map[string]*cost, len(s.Properties))
			}
			c.named[name] = list[0]
		}
	}
	return c, err
}

func programOf(re jsonschema.Regexp) int {
	if p, ok := re.(*pattern); ok {
		return p.program
	}
	return 0
}

// values is how many values v is made of.
func values(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += values(e)
		}
	case map[string]any:
		for _, e := range v {
			n += values(e)
		}
	}
	return n
}

// A walk counts down to what is left of the steps.
type walk struct{ left int }

// apply counts the application of c to v. chain is how many are around it, and
// same how many of these to the same value.
func (w *walk) apply(c *cost, v any, chain, same int) {
	if chain > maxChain {
		w.left = -1
	}
	if w.left -= c.own + same/8; w.left < 0 {
		return
	}
	switch v := v.(type) {
	case string:
		w.left -= len(v) * c.program / 32
	case []any:
		w.left -= len(v) / 4
		if c.unique {
			w.left -= len(v) / 32 * len(v)
		}
		if len(c.each) > 0 {
			for _, e := range v {
				w.all(c.each, e, chain+1, 0)
			}
		}
	case map[string]any:
		w.left -= len(v)
		if len(c.each)+len(c.named)+c.program > 0 {
			for name, e := range v {
				w.left -= len(name) * c.program / 32
				if sub := c.named[name]; sub != nil {
					w.apply(sub, e, chain+1, 0)
				}
				w.all(c.each, e, chain+1, 0)
			}
		}
	}
	w.all(c.here, v, chain+1, same+1)
}

func (w *walk) all(list []*cost, v any, chain, same int) {
	for _, c := range list {
		if w.left < 0 {
			return
		}
		w.apply(c, v, chain, same)
	}
}
