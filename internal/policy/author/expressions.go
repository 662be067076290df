package author

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/policy"
)

// An ExpressionValue is one expression of a rule, as it was evaluated for an input.
type ExpressionValue struct {
	SourceLine
	Column int    `json:"column"`
	Text   string `json:"text"`
	Held   int    `json:"held"`   // how often it was true
	Failed int    `json:"failed"` // how often it was false or undefined

	// Values is the text with the values of its variables below: of the first time that it was true, else of the first time that it was not. "" means that it was not
	// evaluated, because an expression before it was never true.
	Values string `json:"values,omitempty"`
}

// Bounds of the expressions of a layer.
const (
	maxExpressions     = 500
	maxExpressionEvent = 100_000 // events of the evaluation; later ones are not looked at
)

// expressionValues evaluates a layer for an input, and returns the expressions in the bodies of its rules, by file and line.
func expressionValues(ctx context.Context, e *policy.Engine, l *policy.Layer, in *ast.Term, now time.Time) ([]ExpressionValue, error) {
	t := &expressionTracer{found: map[*ast.Expr]*ExpressionValue{}, last: map[uint64]*ast.Expr{}}
	for _, r := range l.Rules() {
		ast.WalkExprs(r.Body, func(x *ast.Expr) bool {
			if x.Location != nil && len(x.Location.Text) > 0 && len(t.found) < maxExpressions {
				t.found[x] = &ExpressionValue{SourceLine: lineOf(x.Location), Column: x.Location.Col, Text: shorten(string(x.Location.Text))}
			}
			return false
		})
	}
	if err := e.TraceInput(ctx, l, in, now, t); err != nil {
		return nil, err // the evaluation may still be going on, and count
	}
	return t.values(), nil
}

// An expressionTracer counts how often expressions hold.
type expressionTracer struct {
	found  map[*ast.Expr]*ExpressionValue
	last   map[uint64]*ast.Expr // by query: the expression that is being evaluated
	events int
}

// Enabled implements topdown.QueryTracer.
func (t *expressionTracer) Enabled() bool { return t.events < maxExpressionEvent }

// Config implements topdown.QueryTracer.
func (*expressionTracer) Config() topdown.TraceConfig {
	return topdown.TraceConfig{PlugLocalVars: true}
}

// TraceEvent implements topdown.QueryTracer. An expression has held when the next one of its body is evaluated, or when the body ends.
func (t *expressionTracer) TraceEvent(e topdown.Event) {
	t.events++
	x, isExpr := e.Node.(*ast.Expr)
	switch {
	case e.Op == topdown.EvalOp && isExpr:
		if was := t.last[e.QueryID]; was != nil && was.Index == x.Index-1 {
			t.hold(was, e)
		}
		t.last[e.QueryID] = x
	case e.Op == topdown.RedoOp && isExpr:
		t.last[e.QueryID] = x
	case e.Op == topdown.FailOp && isExpr:
		if v := t.found[x]; v != nil {
			if v.Failed++; v.Values == "" {
				v.Values = shorten(valuesAt(&e))
			}
		}
		delete(t.last, e.QueryID)
	case e.Op == topdown.ExitOp:
		if was := t.last[e.QueryID]; was != nil {
			t.hold(was, e)
			delete(t.last, e.QueryID)
		}
	}
}

// hold counts that an expression has held. e is the event behind it, which has the values.
func (t *expressionTracer) hold(x *ast.Expr, e topdown.Event) {
	v := t.found[x]
	if v == nil {
		return
	}
	if v.Held++; v.Held == 1 {
		shown := x.Copy()
		shown.Negated = true // else a variable without a value here, such as one of the compiler, is shown as undefined, which it was not
		e.Node, e.Location, e.Op = shown, x.Location, topdown.EvalOp
		v.Values = shorten(valuesAt(&e))
	}
}

// values returns the expressions in the order of the files. The compiler makes several of one: they count as the last of them holds.
func (t *expressionTracer) values() (all []ExpressionValue) {
	type place struct {
		SourceLine
		column int
	}
	for _, v := range t.found {
		all = append(all, *v)
	}
	slices.SortFunc(all, func(a, b ExpressionValue) int {
		return cmp.Or(compareLines(a.SourceLine, b.SourceLine), cmp.Compare(a.Column, b.Column), cmp.Compare(b.Held+b.Failed, a.Held+a.Failed), strings.Compare(a.Text, b.Text))
	})
	at := map[place]int{}
	out := all[:0]
	for _, v := range all {
		key := place{v.SourceLine, v.Column}
		if i, ok := at[key]; ok {
			if out[i].Held > v.Held && v.Failed > 0 {
				out[i].Held = v.Held
			}
			out[i].Failed += v.Failed
			continue
		}
		at[key] = len(out)
		out = append(out, v)
	}
	return out
}
