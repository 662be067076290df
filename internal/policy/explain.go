package policy

import (
	"context"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Cause is a rule that has a part in a denial: one that denies; or one that
// could have allowed, with the expression at which it ended.
type Cause struct {
	Layer Kind   `json:"layer"`
	Rule  string `json:"rule"`
	File  string `json:"file"`
	Line  int    `json:"line"`

	// Reason is what a rule that denies says, and Failed the expression of a
	// rule that does not allow.
	Reason string `json:"reason,omitempty"`
	Failed string `json:"failed,omitempty"`

	// Values are the rule's variables as they were, in JSON, but for the
	// candidate itself and what is long.
	Values map[string]string `json:"values,omitempty"`
}

// maxValue bounds what is shown of one variable, in bytes, and maxValues how
// many are.
const (
	maxValue  = 256
	maxValues = 12
)

// Explain says which rules deny the candidates that are denied, or do not allow
// them, by candidate; each layer's in the order of files and lines. It evaluates
// once more, with an eye on every step, and so is slower than Judge.
func (p *Policy) Explain(ctx context.Context, q *Question) map[switchboard.ToolID][]Cause {
	found := map[switchboard.ToolID][]Cause{}
	in, err := p.input(q)
	if err != nil {
		return found
	}
	for _, v := range p.layers {
		w := &witness{layer: v.Layer, causes: map[string][]Cause{}, nearest: map[string]map[*ast.Rule]near{}, allows: map[string]bool{}}
		if _, err := p.engine.evalBeside(ctx, p.share, func(c topdown.Cancel) (*raw, error) { return v.ask(in, q.Now, c, w) }); err != nil {
			continue // the denial says where
		}
		for _, c := range q.Candidates {
			id := c.ID.String()
			causes := w.causes[id]
			if !w.allows[id] {
				for _, n := range w.nearest[id] {
					causes = append(causes, n.cause)
				}
			}
			slices.SortFunc(causes, func(a, b Cause) int {
				if c := strings.Compare(a.File, b.File); c != 0 {
					return c
				}
				if a.Line != b.Line {
					return a.Line - b.Line
				}
				return strings.Compare(a.Reason, b.Reason)
			})
			found[c.ID] = append(found[c.ID], causes...)
		}
	}
	return found
}

// A witness watches an evaluation.
type witness struct {
	layer   *Layer
	causes  map[string][]Cause // of denials, by candidate
	allows  map[string]bool
	nearest map[string]map[*ast.Rule]near // of each rule that could allow, how far it came
}

type near struct {
	place int // of the expression in its body
	cause Cause
}

// Enabled implements topdown.QueryTracer.
func (*witness) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*witness) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer.
func (w *witness) TraceEvent(e topdown.Event) {
	switch x := e.Node.(type) {
	case *ast.Rule:
		if e.Op != topdown.ExitOp {
			return
		}
		switch w.answer(x) {
		case nameAllowed:
			if id, ok := textOf(x.Head.Key, e.Locals); ok {
				w.allows[id] = true
			}
		case nameDeny:
			id, ok := textOf(x.Head.Reference[1], e.Locals)
			reason, _ := textOf(x.Head.Key, e.Locals)
			if ok {
				w.causes[id] = append(w.causes[id], w.cause(nameDeny, x.Location, reason, "", e))
			}
		}
	case *ast.Expr:
		if e.Op == topdown.FailOp {
			w.failed(x, e)
		}
	}
}

// answer returns to which answer of the layer the rule adds.
func (w *witness) answer(r *ast.Rule) string {
	for _, known := range w.layer.rules {
		if known.Rule == r {
			return known.answer
		}
	}
	return ""
}

// failed notes how far a rule came that could have allowed the candidate at
// which it is.
func (w *witness) failed(x *ast.Expr, e topdown.Event) {
	for _, r := range w.layer.rules {
		if r.answer != nameAllowed || !slices.Contains(r.Body, x) {
			continue
		}
		id, ok := candidateOf(e.Locals)
		if !ok {
			continue
		}
		if w.nearest[id] == nil {
			w.nearest[id] = map[*ast.Rule]near{}
		}
		if was, ok := w.nearest[id][r.Rule]; !ok || was.place < x.Index {
			w.nearest[id][r.Rule] = near{x.Index, w.cause(nameAllowed, x.Location, "", textAt(x.Location), e)}
		}
	}
}

func (w *witness) cause(rule string, at *ast.Location, reason, failed string, e topdown.Event) Cause {
	c := Cause{Layer: w.layer.kind, Rule: rule, Reason: cut(reason), Failed: cut(failed)}
	if at != nil {
		c.File, c.Line = at.File, at.Row
	}
	if e.Locals == nil {
		return c
	}
	e.Locals.Iter(func(k, v ast.Value) bool {
		name, ok := k.(ast.Var)
		if !ok {
			return false
		}
		shown := e.LocalMetadata[name].Name
		if shown == "" || strings.HasPrefix(string(shown), "__local") || shown.IsWildcard() || len(c.Values) == maxValues {
			return false
		}
		if _, ok := idOf(v); ok {
			return false // the candidate itself
		}
		if s, ok := v.(ast.String); ok && string(s) == reason {
			return false // it has been said
		}
		if text := v.String(); len(text) <= maxValue {
			if c.Values == nil {
				c.Values = map[string]string{}
			}
			c.Values[string(shown)] = text
		}
		return false
	})
	return c
}

// candidateOf returns the candidate among the variables of a rule.
func candidateOf(locals *ast.ValueMap) (id string, ok bool) {
	if locals == nil {
		return "", false
	}
	locals.Iter(func(_, v ast.Value) bool {
		id, ok = idOf(v)
		return ok
	})
	return id, ok
}

// idOf returns the id of what is a candidate.
func idOf(v ast.Value) (string, bool) {
	obj, ok := v.(ast.Object)
	if !ok || obj.Get(keyCapabilities) == nil {
		return "", false
	}
	return str(obj, "id")
}

var keyCapabilities = ast.InternedTerm("capabilities")

// textOf returns the text that a term of a head stands for.
func textOf(t *ast.Term, locals *ast.ValueMap) (string, bool) {
	if t == nil {
		return "", false
	}
	v := t.Value
	if _, ok := v.(ast.Var); ok && locals != nil {
		v = locals.Get(v)
	}
	s, ok := v.(ast.String)
	return string(s), ok
}

func textAt(l *ast.Location) string {
	if l == nil {
		return ""
	}
	text, _, _ := strings.Cut(string(l.Text), "\n")
	return text
}
