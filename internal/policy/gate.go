package policy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// AnswerKeepOut is the answer of the operator's layer in the phase admit: candidate id → set of reasons why the tool is kept out. It is no part of the other phases, so a
// rule of it costs their questions nothing.
const AnswerKeepOut = "keep_out"

// gateBatch limits the tools of one evaluation, so that it ends within the time limit.
const gateBatch = 256

// gateShare is the share of evaluations that belong to no tenant. It is no id of a tenant.
const gateShare = "phase/admit"

// A Gate asks the operator's layer, in the phase admit, which tools are kept out. Its answers depend on the rules and on the facts about a tool alone: there is neither a
// clock nor a tenant in this phase. It is safe for concurrent use.
type Gate struct {
	engine *Engine
	layer  *Layer // answers keep_out as deny

	mu sync.Mutex // held by an evaluation, so that they do not crowd each other out
}

// NewGate returns the gate of the operator's layer. It is nil if no rule of the layer keeps anything out.
func (e *Engine) NewGate(operator *Layer) (*Gate, error) {
	if operator == nil || !slices.ContainsFunc(operator.rules, func(r *CompiledRule) bool { return r.KeepsOut }) {
		return nil, nil
	}
	own := *operator
	own.queries = own.compiler.QueryCompiler()
	var err error
	if own.query, err = own.queries.Compile(ast.MustParseBody("answer = [x | x := " + own.kind.rootRef().String() + "." + AnswerKeepOut + "]")); err != nil {
		return nil, err
	}
	own.variables = []answerVariable{{"answer", AnswerDeny}}
	return &Gate{engine: e, layer: &own}, nil
}

// Key returns the same value for gates that always answer alike.
func (g *Gate) Key() switchboard.Digest { return g.layer.digest }

// KeepOut returns for each tool why it is kept out; "" if it is not. failed is set where the rules could not be evaluated; nil if they were for all tools.
func (g *Gate) KeepOut(tools []*switchboard.Tool) (why []string, failed []error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	why = make([]string, len(tools))
	fail := func(i int, err error) {
		if failed == nil {
			failed = make([]error, len(tools))
		}
		failed[i] = err
	}
	for from := 0; from < len(tools); from += gateBatch {
		to := min(from+gateBatch, len(tools))
		err := g.ask(tools[from:to], why[from:to])
		for i := from; err != nil && i < to; i++ { // one of them must not keep out the others
			one := err
			if !wasStopped(err) {
				one = g.ask(tools[i:i+1], why[i:i+1])
			}
			if one != nil {
				fail(i, one)
			}
		}
	}
	return why, failed
}

// ask evaluates the rules once. If it fails, it may have changed why.
func (g *Gate) ask(tools []*switchboard.Tool, why []string) error {
	clear(why)
	terms, err := candidateTerms(tools)
	if err != nil {
		return err
	}
	in := ast.ObjectTerm(ast.Item(keyPhase, textTerm(PhaseAdmit)), ast.Item(keyCandidates, ast.ArrayTerm(terms...)))
	raw, err := g.engine.evalBeside(context.Background(), g.engine.shareOf(gateShare), func(c topdown.Cancel) (*rawAnswer, error) {
		return g.layer.evaluate(in, time.Unix(0, 0).UTC(), c, nil)
	})
	if err != nil {
		return err
	}
	at := make(map[string]int, len(tools))
	for i, t := range tools {
		at[t.ID.String()] = i
	}
	reasons := make([][]string, len(tools))
	s := answerSorter{answer: &Answer{}, layer: g.layer, at: at}
	if err := s.sets(AnswerKeepOut, raw.deny, func(i int, reason *ast.Term) error {
		text, ok := reason.Value.(ast.String)
		if !ok {
			return errors.New(AnswerKeepOut + ": " + shortTerm(reason) + " is not a reason, which is a string")
		}
		if len(reasons[i]) < maxReasons {
			reasons[i] = append(reasons[i], truncate(string(text)))
		}
		return nil
	}); err != nil {
		return err
	}
	for i, list := range reasons {
		slices.Sort(list)
		why[i] = strings.Join(list, "; ")
	}
	return nil
}
