package author

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// An Evaluation is the answer of layers to one input, with the value of every rule.
type Evaluation struct {
	Input      map[string]any    `json:"input"`
	Candidates []JudgedCandidate `json:"candidates"` // in the order of the input
	Unknown    []string          `json:"unknown,omitempty"`
	Layers     []LayerValues     `json:"layers"`
}

// A JudgedCandidate is the result for one candidate under all layers.
type JudgedCandidate struct {
	ID      string           `json:"id"`
	Allowed bool             `json:"allowed"`
	Code    switchboard.Code `json:"code,omitempty"`
	Why     string           `json:"why,omitempty"`
	Rows    []FiredRow       `json:"rows,omitempty"` // boundaries that fire, by id
}

// A FiredRow is a boundary that fires for a candidate.
type FiredRow struct {
	SourceLine
	Row      string                 `json:"row"`
	Decision capability.RowDecision `json:"decision"`
	Effect   verdict.Effect         `json:"effect"`
	Text     string                 `json:"text,omitempty"`
	Clauses  []string               `json:"clauses"` // all of them hold
}

// String says what the row does, and why it fires.
func (r FiredRow) String() string {
	text := fmt.Sprintf("%s, %s", r.Decision, map[verdict.Effect]string{verdict.Block: "denies", verdict.Ask: "asks for approval", verdict.Warn: "only warns"}[r.Effect])
	if r.Text != "" {
		text += " (" + r.Text + ")"
	}
	return text + ", because " + strings.Join(r.Clauses, "; ")
}

// LayerValues are the values of one layer's rules.
type LayerValues struct {
	Layer string      `json:"layer"`
	Error string      `json:"error,omitempty"` // why it could not be evaluated
	Rules []RuleValue `json:"rules,omitempty"` // by name

	// Expressions are those in the bodies of the rules, by file and line, if they were asked for.
	Expressions []ExpressionValue `json:"expressions,omitempty"`
}

// A RuleValue is the value of one rule. Functions are not included.
type RuleValue struct {
	Rule      string       `json:"rule"`
	At        []SourceLine `json:"at"`
	Undefined bool         `json:"undefined,omitempty"`
	Error     string       `json:"error,omitempty"`
	Value     any          `json:"value,omitempty"`
}

// Evaluate asks layers about an input that a person wrote. rows are those of the layer of boundaries, if there is one. Its error is
// a mistake in the input.
func Evaluate(ctx context.Context, e *policy.Engine, input map[string]any, rows []capability.Boundary, layers ...*policy.Layer) (*Evaluation, error) {
	in, tools, now, err := parseInput(input)
	if err != nil {
		return nil, err
	}
	out := &Evaluation{Input: input, Candidates: []JudgedCandidate{}, Layers: []LayerValues{}}
	a := &policy.Answer{Verdicts: make([]policy.CandidateVerdict, len(tools))}
	for _, l := range layers {
		values := LayerValues{Layer: string(l.Kind()), Rules: ruleValues(ctx, l, in, now)}
		if err := e.JudgeInput(ctx, l, in, tools, now, a); err != nil {
			values.Error = err.Error()
		}
		out.Layers = append(out.Layers, values)
	}
	fired, err := firedRows(ctx, in, rows, layers)
	if err != nil {
		return nil, err
	}
	for i, v := range a.Verdicts {
		c := JudgedCandidate{ID: tools[i].ID.String(), Allowed: v.Denied == nil, Rows: fired[tools[i].ID.String()]}
		if v.Denied != nil {
			c.Code, c.Why = v.Denied.Code, v.Denied.String()
		}
		out.Candidates = append(out.Candidates, c)
	}
	slices.Sort(a.Unknown)
	out.Unknown = slices.Compact(a.Unknown)
	return out, nil
}

// addExpressions adds the values of the expressions of each layer of rules.
func (x *Evaluation) addExpressions(ctx context.Context, e *policy.Engine, layers []*policy.Layer) error {
	in, _, now, err := parseInput(x.Input)
	if err != nil {
		return err
	}
	for i, l := range layers {
		if l.Kind() != policy.Boundaries && x.Layers[i].Error == "" {
			if x.Layers[i].Expressions, err = expressionValues(ctx, e, l, in, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// firedRows returns the boundaries that fire, by the id of the candidate.
func firedRows(ctx context.Context, in *ast.Term, rows []capability.Boundary, layers []*policy.Layer) (map[string][]FiredRow, error) {
	out := map[string][]FiredRow{}
	for _, l := range layers {
		if l.Kind() != policy.Boundaries {
			continue
		}
		all, err := boundary.FiredFor(ctx, l, in)
		if err != nil {
			return nil, err
		}
		for id, fired := range all {
			for _, f := range fired {
				r := FiredRow{SourceLine: SourceLine{f.File, f.Line}, Row: f.Row, Effect: f.Effect, Text: f.Text}
				if at := slices.IndexFunc(rows, func(b capability.Boundary) bool { return b.ID == f.Row }); at >= 0 {
					r.Decision, r.Clauses = rows[at].Decision, rows[at].Clauses()
				}
				out[id] = append(out[id], r)
			}
		}
	}
	return out, nil
}

// AddCapability adds a version to the candidates of an input, with the facts of its contract. ref is as a task names a capability.
func AddCapability(input map[string]any, r *capability.Registry, ref string) error {
	of, err := capability.ParseRef(ref)
	if err != nil {
		return err
	}
	v := r.Find(of, nil)
	if v == nil {
		return fmt.Errorf("no active version of the registry is %s; see switchboard capability list", ref)
	}
	in, err := policy.CandidateInput([]*switchboard.Tool{boundary.Candidate(r, v)})
	if err != nil {
		return err
	}
	plain, err := ast.JSON(in.Value)
	if err != nil {
		return err
	}
	made, _ := plain.(map[string]any)["candidate_tools"].([]any)
	given, ok := input["candidate_tools"].([]any)
	if _, there := input["candidate_tools"]; there && !ok {
		return errors.New("input.candidate_tools: want a list")
	}
	input["candidate_tools"] = append(given, made...)
	return nil
}

// parseInput converts an input to the form that policies get.
func parseInput(input map[string]any) (*ast.Term, []*switchboard.Tool, time.Time, error) {
	no := func(format string, args ...any) (*ast.Term, []*switchboard.Tool, time.Time, error) {
		return nil, nil, time.Time{}, fmt.Errorf(format, args...)
	}
	var schema map[string]any
	if err := json.Unmarshal(policy.Schema, &schema); err != nil {
		return no("%w", err)
	}
	if err := checkSchema("input", input, schema); err != nil {
		return no("%w", err)
	}
	stamp, _ := input["now"].(string)
	now, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return no("input.now: want a time such as 2026-11-21T09:00:00Z")
	}
	var tools []*switchboard.Tool
	list, _ := input["candidate_tools"].([]any)
	for i, c := range list {
		id, _ := c.(map[string]any)["id"].(string)
		tool, err := switchboard.ParseToolID(id)
		if err != nil {
			return no("input.candidate_tools[%d].id: %w", i, err)
		}
		tools = append(tools, &switchboard.Tool{ID: tool})
	}
	text, err := json.Marshal(input)
	if err != nil {
		return no("%w", err)
	}
	v, err := policy.ParseValue(text)
	if err != nil {
		return no("the values %w", err)
	}
	return ast.NewTerm(v), tools, now, nil
}

// checkSchema checks a value against the parts of JSON Schema that Schema uses. A member that is
// not in the schema is probably mistyped, so it is an error.
func checkSchema(at string, v any, schema map[string]any) error {
	kind := map[string]string{
		"object": "an object", "array": "a list", "string": "a text", "boolean": "true or false", "integer": "a whole number", "number": "a number",
	}[schema["type"].(string)]
	switch v := v.(type) {
	case map[string]any:
		if schema["type"] != "object" {
			return fmt.Errorf("%s: want %s", at, kind)
		}
		known, _ := schema["properties"].(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			sub, ok := known[k].(map[string]any)
			if !ok {
				if schema["additionalProperties"] == true {
					continue
				}
				return fmt.Errorf("%s: there is no %q; there are %s", at, k, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			}
			if err := checkSchema(at+"."+k, v[k], sub); err != nil {
				return err
			}
		}
	case []any:
		if schema["type"] != "array" {
			return fmt.Errorf("%s: want %s", at, kind)
		}
		for i, e := range v {
			if err := checkSchema(fmt.Sprintf("%s[%d]", at, i), e, schema["items"].(map[string]any)); err != nil {
				return err
			}
		}
	case string:
		if schema["type"] != "string" {
			return fmt.Errorf("%s: want %s", at, kind)
		}
		if one, ok := schema["enum"].([]any); ok && !slices.Contains(one, any(v)) {
			return fmt.Errorf("%s: want one of %v", at, one)
		}
	case bool:
		if schema["type"] != "boolean" {
			return fmt.Errorf("%s: want %s", at, kind)
		}
	case json.Number, float64:
		if _, err := strconv.Atoi(fmt.Sprint(v)); schema["type"] != "number" && (err != nil || schema["type"] != "integer") {
			return fmt.Errorf("%s: want %s", at, kind)
		}
	default:
		return fmt.Errorf("%s: want %s", at, kind)
	}
	return nil
}

// ruleValues evaluates every rule alone.
func ruleValues(ctx context.Context, l *policy.Layer, in *ast.Term, now time.Time) []RuleValue {
	at := map[string][]SourceLine{}
	for _, r := range l.Rules() {
		if len(r.Head.Args) == 0 && r.Location != nil {
			name := r.Ref().GroundPrefix().String()
			at[name] = append(at[name], lineOf(r.Location))
		}
	}
	var out []RuleValue
	for _, name := range slices.Sorted(maps.Keys(at)) {
		v := RuleValue{Rule: strings.TrimPrefix(name, "data."), At: slices.Compact(at[name])}
		value, defined, err := l.RuleValue(ctx, name, in, now)
		switch {
		case err != nil:
			v.Error = err.Error()
		case !defined:
			v.Undefined = true
		default:
			v.Value = value
		}
		out = append(out, v)
	}
	return out
}
