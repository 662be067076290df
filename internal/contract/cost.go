package contract

import (
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The limits of one check of a value against a schema. Both come from outside: without limits, a few bytes can keep a
// processor busy for years. So before the check, a walk counts what the check can cost at most.
const (
	// maxSteps limits the work of a check. One step is about one application of a schema to a value. maxChain limits
	// how many schemas may be applied within each other.
	maxSteps = 1_000_000
	maxChain = 1_000
)

var (
	errCostly = errors.New("checking it would take too long")
	errRef    = errors.New("$dynamicRef and $recursiveRef are not followed here")
)

// A schemaCost is the cost of applying one schema.
type schemaCost struct {
	own     int // for any value
	program int // instructions that may run for each byte of a text or of a member's name
	unique  bool

	here  []*schemaCost          // applied to the same value
	each  []*schemaCost          // may be applied to each element or member
	named map[string]*schemaCost // applied to the member with this name
}

// costOf returns the cost of a schema, including the schemas that it refers to. done holds the costs that exist
// already.
func costOf(s *jsonschema.Schema, done map[*jsonschema.Schema]*schemaCost) (*schemaCost, error) {
	if c := done[s]; c != nil {
		return c, nil
	}
	c := &schemaCost{own: 1 + len(s.Required), unique: s.UniqueItems}
	done[s] = c
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		return nil, errRef
	}
	if s.Enum != nil {
		c.own += countValues(s.Enum.Values)
	}
	if s.Const != nil {
		c.own += countValues(*s.Const)
	}
	c.program = programOf(s.Pattern)
	for re := range s.PatternProperties {
		c.program += programOf(re)
	}
	var err error
	add := func(to *[]*schemaCost, subs ...*jsonschema.Schema) {
		for _, sub := range subs {
			if sub == nil || err != nil {
				continue
			}
			var k *schemaCost
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
		var list []*schemaCost
		if add(&list, sub); err == nil {
			if c.named == nil {
				c.named = make(map[string]*schemaCost, len(s.Properties))
			}
			c.named[name] = list[0]
		}
	}
	return c, err
}

func programOf(re jsonschema.Regexp) int {
	if p, ok := re.(*schemaPattern); ok {
		return p.program
	}
	return 0
}

// countValues returns how many values v consists of.
func countValues(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += countValues(e)
		}
	case map[string]any:
		for _, e := range v {
			n += countValues(e)
		}
	}
	return n
}

// A costCounter counts down the remaining steps.
type costCounter struct{ stepsLeft int }

// applyCost counts the application of c to v. chain is the number of schemas around it, and same is how many of them apply
// to the same value.
func (w *costCounter) applyCost(c *schemaCost, v any, chain, same int) {
	if chain > maxChain {
		w.stepsLeft = -1
	}
	if w.stepsLeft -= c.own + same/8; w.stepsLeft < 0 {
		return
	}
	switch v := v.(type) {
	case string:
		w.stepsLeft -= len(v) * c.program / 32
	case []any:
		w.stepsLeft -= len(v) / 4
		if c.unique {
			w.stepsLeft -= len(v) / 32 * len(v)
		}
		if len(c.each) > 0 {
			for _, e := range v {
				w.applyAll(c.each, e, chain+1, 0)
			}
		}
	case map[string]any:
		w.stepsLeft -= len(v)
		if len(c.each)+len(c.named)+c.program > 0 {
			for name, e := range v {
				w.stepsLeft -= len(name) * c.program / 32
				if sub := c.named[name]; sub != nil {
					w.applyCost(sub, e, chain+1, 0)
				}
				w.applyAll(c.each, e, chain+1, 0)
			}
		}
	}
	w.applyAll(c.here, v, chain+1, same+1)
}

func (w *costCounter) applyAll(list []*schemaCost, v any, chain, same int) {
	for _, c := range list {
		if w.stepsLeft < 0 {
			return
		}
		w.applyCost(c, v, chain, same)
	}
}
