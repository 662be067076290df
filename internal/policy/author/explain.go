package author

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A DenialCause is a rule that contributes to a denial: a rule that denies, or a rule that could have
// allowed, with the expression that failed.
type DenialCause struct {
	Layer policy.LayerKind `json:"layer"`
	Rule  string           `json:"rule"`
	File  string           `json:"file"`
	Line  int              `json:"line"`

	// Reason is the text of a rule that denies. Failed is the failed expression of a rule that does
	// not allow.
	Reason string `json:"reason,omitempty"`
	Failed string `json:"failed,omitempty"`

	// Values are the rule's variables at that moment, in JSON, without the candidate itself and
	// without long values.
	Values map[string]string `json:"values,omitempty"`
}

// maxValue limits the shown text of one variable, in bytes, and maxValues the number of variables.
const (
	maxValue  = 256
	maxValues = 12
)

// Explain returns the rules that deny, or do not allow, each denied candidate. The causes of each
// layer are in the order of files and lines. Explain evaluates again and traces every step, so it
// is slower than Judge.
func Explain(ctx context.Context, p *policy.Policy, q *policy.CandidateQuestion) map[switchboard.ToolID][]DenialCause {
	found := map[switchboard.ToolID][]DenialCause{}
	_ = p.TraceLayers(ctx, q, func(l *policy.Layer, evaluate func(topdown.QueryTracer) error) {
		w := &denialTracer{layer: l, causes: map[string][]DenialCause{}, nearest: map[string]map[*ast.Rule]nearMiss{}, allows: map[string]bool{}}
		if evaluate(w) != nil {
			return // the denial says why
		}
		for _, c := range q.Candidates {
			found[c.ID] = append(found[c.ID], w.causesOf(c.ID.String())...)
		}
	}) // the denials say why there is no input
	return found
}

// A denialTracer traces an evaluation.
type denialTracer struct {
	layer   *policy.Layer
	causes  map[string][]DenialCause // of denials, by candidate
	allows  map[string]bool
	nearest map[string]map[*ast.Rule]nearMiss // by candidate and rule that could allow it: the furthest failure
}

type nearMiss struct {
	exprIndex int // index of the expression in its body
	cause     DenialCause
}

// Enabled implements topdown.QueryTracer.
func (*denialTracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*denialTracer) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer.
func (w *denialTracer) TraceEvent(e topdown.Event) {
	switch x := e.Node.(type) {
	case *ast.Rule:
		if e.Op != topdown.ExitOp {
			return
		}
		switch w.answerOf(x) {
		case policy.AnswerAllowed:
			if id, ok := headText(x.Head.Key, e.Locals); ok {
				w.allows[id] = true
			}
		case policy.AnswerDeny:
			id, ok := headText(x.Head.Reference[1], e.Locals)
			reason, _ := headText(x.Head.Key, e.Locals)
			if ok {
				w.causes[id] = append(w.causes[id], w.newCause(policy.AnswerDeny, x.Location, reason, "", e))
			}
		}
	case *ast.Expr:
		if e.Op == topdown.FailOp {
			w.recordFailure(x, e)
		}
	}
}

// causesOf returns the causes of the denial of a candidate, in the order of files and lines.
func (w *denialTracer) causesOf(id string) []DenialCause {
	causes := w.causes[id]
	if !w.allows[id] {
		for _, n := range w.nearest[id] {
			causes = append(causes, n.cause)
		}
	}
	slices.SortFunc(causes, func(a, b DenialCause) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Reason, b.Reason))
	})
	return causes
}

// answerOf returns the name of the answer that the rule adds to.
func (w *denialTracer) answerOf(r *ast.Rule) string {
	for _, known := range w.layer.Rules() {
		if known.Rule == r {
			return known.Answer
		}
	}
	return ""
}

// recordFailure records the furthest failed expression of a rule that could have allowed the
// candidate.
func (w *denialTracer) recordFailure(x *ast.Expr, e topdown.Event) {
	for _, r := range w.layer.Rules() {
		if r.Answer != policy.AnswerAllowed || !slices.Contains(r.Body, x) {
			continue
		}
		id, ok := candidateOf(e.Locals)
		if !ok {
			continue
		}
		if w.nearest[id] == nil {
			w.nearest[id] = map[*ast.Rule]nearMiss{}
		}
		if was, ok := w.nearest[id][r.Rule]; !ok || was.exprIndex < x.Index {
			w.nearest[id][r.Rule] = nearMiss{x.Index, w.newCause(policy.AnswerAllowed, x.Location, "", sourceLine(x.Location), e)}
		}
	}
}

func (w *denialTracer) newCause(rule string, at *ast.Location, reason, failed string, e topdown.Event) DenialCause {
	c := DenialCause{Layer: w.layer.Kind(), Rule: rule, Reason: shorten(reason), Failed: shorten(failed)}
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
		if _, ok := candidateID(v); ok {
			return false // the candidate itself
		}
		if s, ok := v.(ast.String); ok && string(s) == reason {
			return false // it is the reason
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

// candidateOf returns the id of the candidate among the variables of a rule.
func candidateOf(locals *ast.ValueMap) (id string, ok bool) {
	if locals == nil {
		return "", false
	}
	locals.Iter(func(_, v ast.Value) bool {
		id, ok = candidateID(v)
		return ok
	})
	return id, ok
}

// candidateID returns the id of v if v is a candidate.
func candidateID(v ast.Value) (string, bool) {
	obj, ok := v.(ast.Object)
	if !ok || obj.Get(keyCapabilities) == nil {
		return "", false
	}
	return headText(obj.Get(keyID), nil)
}

var keyCapabilities = ast.InternedTerm("capabilities")

// maxText limits a reason and an expression, in bytes.
const maxText = 1024

func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// headText returns the text value of a term of a rule's head.
func headText(t *ast.Term, locals *ast.ValueMap) (string, bool) {
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

func sourceLine(l *ast.Location) string {
	if l == nil {
		return ""
	}
	text, _, _ := strings.Cut(string(l.Text), "\n")
	return text
}
