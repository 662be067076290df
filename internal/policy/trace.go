package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A RuleID identifies a rule by its text, in whichever file and line it stands. So the rules of recorded policies can be compared with those in force.
type RuleID struct {
	Layer LayerKind
	Name  string // with its package
	Text  string
}

// NewRuleID returns the id of a rule of a layer.
func NewRuleID(kind LayerKind, r *ast.Rule) RuleID {
	id := RuleID{Layer: kind, Name: r.Ref().GroundPrefix().String()}
	if r.Location != nil {
		id.Text = strings.TrimSpace(string(r.Location.Text))
	}
	return id
}

// TraceFired returns the rules that hold somewhere in an evaluation of each question. They are sorted by name and text.
func TraceFired(ctx context.Context, p *Policy, questions []*CandidateQuestion) (all []RuleID, err error) {
	fired := map[*ast.Rule]LayerKind{}
	for _, q := range questions {
		unasked := p.TraceLayers(ctx, q, func(l *Layer, evaluate func(topdown.QueryTracer) error) {
			own := map[*ast.Rule]LayerKind{}
			if failed := evaluate(&firedTracer{l.kind, own}); failed != nil { // it may still be going on, and write to its map
				err = cmp.Or(err, failed)
				return
			}
			maps.Copy(fired, own)
		})
		err = cmp.Or(err, unasked)
	}
	for r, kind := range fired {
		all = append(all, NewRuleID(kind, r))
	}
	slices.SortFunc(all, func(a, b RuleID) int {
		return strings.Compare(a.Name+"\x00"+a.Text+"\x00"+string(a.Layer), b.Name+"\x00"+b.Text+"\x00"+string(b.Layer))
	})
	return slices.Compact(all), err
}

// A firedTracer notes the rules that hold.
type firedTracer struct {
	kind  LayerKind
	fired map[*ast.Rule]LayerKind
}

// Enabled implements topdown.QueryTracer.
func (*firedTracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*firedTracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer.
func (t *firedTracer) TraceEvent(e topdown.Event) {
	if e.Op != topdown.ExitOp {
		return
	}
	if r, ok := e.Node.(*ast.Rule); ok {
		t.fired[r] = t.kind
	}
}

// CallQuestions returns the questions that p is asked about a call, one for each requirement that its tool serves. elements are as in JudgeRecordedCall.
func CallQuestions(p *Policy, c *switchboard.Call, elements map[string]int, now time.Time) (all []*CandidateQuestion, err error) {
	j := callJudge{p, c, now, elements}
	for _, judgment := range c.Judgments {
		q, _, err := j.questionAbout(judgment, PhaseCall)
		if err != nil {
			return nil, err
		}
		all = append(all, &q)
	}
	return all, nil
}

// InputOf returns the input that a question gives to the layers, as "policy eval" takes it.
func InputOf(p *Policy, q *CandidateQuestion) (input map[string]any, err error) {
	term, err := p.buildInput(q)
	if err != nil {
		return nil, err
	}
	plain, err := ast.JSON(term.Value)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return input, d.Decode(&input)
}

// TraceInput evaluates a layer for an input document under a tracer.
func (e *Engine) TraceInput(ctx context.Context, l *Layer, in *ast.Term, now time.Time, t topdown.QueryTracer) error {
	_, err := e.evalBeside(ctx, e.shareOf(""), func(c topdown.Cancel) (*rawAnswer, error) { return l.evaluate(in, now, c, t) })
	return err
}
