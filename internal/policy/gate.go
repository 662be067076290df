package policy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// AnswerKeepOut is the answer of the operator's layer in the phase admit: candidate id → set of reasons why the tool is kept out. It is no part of the other phases, so a
// rule of it costs their questions nothing.
const AnswerKeepOut = "keep_out"

// gateBatch limits the tools of one evaluation, so that it ends within the time limit.
const gateBatch = 256

// gateShare is the share of evaluations that belong to no tenant. It is no id of a tenant.
const gateShare = "phase/admit"

// An AdmitGate asks the operator's layer, in the phase admit, which tools are kept out. Its answers depend on the rules and on the facts about a tool alone: there is neither a
// clock nor a tenant in this phase. It is safe for concurrent use.
type AdmitGate struct {
	engine *Engine
	layer  *Layer // answers keep_out as deny

	risks []switchboard.RiskClass // the classes of the tools that a rule can keep out; nil means any

	mu      sync.Mutex // held by an evaluation, so that they do not crowd each other out
	stopped time.Time  // when the time limit last ended an evaluation
}

// gateRetry is how long the rules are not evaluated again after the time limit has ended an evaluation: a state waits for each of them.
const gateRetry = 10 * time.Second

// NewGate returns the gate of the operator's layer. It is nil if no rule of the layer keeps anything out.
func (e *Engine) NewGate(operator *Layer) (*AdmitGate, error) {
	if operator == nil || !operator.keepsOut() {
		return nil, nil
	}
	own := *operator
	own.queries = own.compiler.QueryCompiler()
	var err error
	if own.query, err = own.queries.Compile(mustParseBody("answer = [x | x := " + own.kind.rootRef().String() + "." + AnswerKeepOut + "]")); err != nil {
		return nil, err
	}
	own.variables = []answerVariable{{"answer", AnswerDeny}}
	return &AdmitGate{engine: e, layer: &own, risks: neededRisks(operator)}, nil
}

// missingInputs returns the faults of rules of AnswerKeepOut that read what the phase admit does not have: they would never fire, and let everything in.
func (l *Layer) missingInputs() (faults switchboard.Faults) {
	for _, r := range l.rules {
		if !r.KeepsOut || r.Location == nil {
			continue
		}
		fault := func(what string) {
			faults = append(faults, switchboard.Fault{
				File: r.Location.File, Line: r.Location.Row, Column: r.Location.Col,
				Text: AnswerKeepOut + " reads " + what + ", and the phase admit does not have that: its input has phase and candidate_tools alone; a rule about callers, tenants or times belongs into deny",
			})
		}
		seen := map[string]bool{}
		l.eachNeeded(r, func(needed *CompiledRule) {
			ast.WalkRefs(needed.Rule, func(ref ast.Ref) bool {
				if !ref[0].Equal(ast.InputRootDocument) || len(ref) > 1 && (ref[1].Equal(keyPhase) || ref[1].Equal(keyCandidates)) {
					return false
				}
				if what := ref[:min(2, len(ref))].String(); !seen[what] {
					seen[what] = true
					fault(what)
				}
				return false
			})
		})
		if r.reads&readsClock != 0 && !seen["input.now"] {
			fault("the clock")
		}
	}
	return faults
}

// eachNeeded calls see with a rule, and with the rules that it refers to, each once.
func (l *Layer) eachNeeded(r *CompiledRule, see func(*CompiledRule)) {
	known := map[*CompiledRule]bool{r: true}
	for todo := []*CompiledRule{r}; len(todo) > 0; todo = todo[1:] {
		see(todo[0])
		for _, d := range todo[0].Dependencies {
			if !known[d] {
				known[d] = true
				todo = append(todo, d)
			}
		}
	}
}

// keepsOut reports whether the layer has an answer AnswerKeepOut: rules of that name, or a package.
func (l *Layer) keepsOut() bool {
	return slices.ContainsFunc(l.rules, func(r *CompiledRule) bool { return r.KeepsOut }) || l.keepsOutByPackage()
}

func (l *Layer) keepsOutByPackage() bool {
	answer := l.kind.rootRef().Append(ast.StringTerm(AnswerKeepOut))
	for _, m := range l.compiler.Modules {
		if m.Package.Path.HasPrefix(answer) {
			return true
		}
	}
	return false
}

// neededRisks returns the classes that the rules of AnswerKeepOut need of a candidate; nil if one of them needs none. Nearly all tools are then let in without an evaluation.
func neededRisks(l *Layer) (risks []switchboard.RiskClass) {
	if l.keepsOutByPackage() {
		return nil
	}
	for _, r := range l.rules {
		switch {
		case !r.KeepsOut:
		case !r.judgesAlone || r.needs.risk == "":
			return nil
		default:
			risks = append(risks, r.needs.risk)
		}
	}
	return risks
}

// errGateStopped says why tools are not asked about.
var errGateStopped = errors.New("the time limit has ended an evaluation of them less than " + gateRetry.String() + " ago")

// Key returns the same value for gates that always answer alike.
func (g *AdmitGate) Key() switchboard.Digest { return g.layer.digest }

// KeepOut returns for each tool why it is kept out; "" if it is not. failed is set where the rules could not be evaluated; nil if they were for all tools.
func (g *AdmitGate) KeepOut(tools []*switchboard.Tool) (why []string, failed []error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	why = make([]string, len(tools))
	fail := func(i int, err error) {
		if failed == nil {
			failed = make([]error, len(tools))
		}
		failed[i] = err
	}
	asked := make([]int, 0, len(tools))
	for i, t := range tools {
		if g.risks == nil || slices.Contains(g.risks, t.Contract.Risk) {
			asked = append(asked, i)
		}
	}
	for batch := range slices.Chunk(asked, gateBatch) {
		err := errGateStopped
		if g.stopped.IsZero() || time.Since(g.stopped) >= gateRetry {
			err = g.ask(tools, batch, why)
		}
		if err != nil && wasStopped(err) {
			g.stopped = time.Now()
		}
		for _, i := range batch { // one of them must not keep out the others
			if err == nil {
				break
			}
			one := err
			if !wasStopped(err) && !errors.Is(err, errGateStopped) {
				one = g.ask(tools, []int{i}, why)
			}
			if one != nil {
				fail(i, one)
			}
		}
	}
	return why, failed
}

// ask evaluates the rules once, about the tools with these indexes, and sets why of those that are kept out.
func (g *AdmitGate) ask(tools []*switchboard.Tool, asked []int, why []string) error {
	batch := make([]*switchboard.Tool, len(asked))
	for j, i := range asked {
		batch[j] = tools[i]
	}
	terms, err := candidateTerms(batch)
	if err != nil {
		return err
	}
	in := ast.ObjectTerm(ast.Item(keyPhase, textTerm(PhaseAdmit)), ast.Item(keyCandidates, ast.ArrayTerm(terms...)))
	raw, err := g.engine.eval(context.Background(), g.engine.shareOf(gateShare), layerView{Layer: g.layer}, in, time.Unix(0, 0).UTC())
	if err != nil {
		return err
	}
	reasons := make([][]string, len(batch))
	s := answerSorter{answer: &Answer{}, layer: g.layer, at: sortIDs(batch)}
	if err := s.sets(AnswerKeepOut, raw.deny, func(j int, reason *ast.Term) error {
		text, ok := reason.Value.(ast.String)
		if !ok {
			return errors.New(AnswerKeepOut + ": " + shortTerm(reason) + " is not a reason, which is a string")
		}
		if len(reasons[j]) < maxReasons {
			reasons[j] = append(reasons[j], truncate(string(text)))
		}
		return nil
	}); err != nil {
		return err
	}
	for j, list := range reasons {
		if list != nil {
			slices.Sort(list)
			why[asked[j]] = strings.Join(list, "; ")
		}
	}
	return nil
}
