package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A VerifiedTool is a tool that is verified.
type VerifiedTool struct {
	ID         switchboard.ToolID
	Digest     string // of its definition, with the scheme in front
	Definition []byte
	Contract   switchboard.Contract
	Examples   []json.RawMessage // arguments that the operator has written down for it

	// Timeout is how long a call of its server may take; 0 means switchboard.DefaultTimeout. A timeout of its contract counts before that.
	Timeout time.Duration
}

// callTime returns how long one call of the tool may take.
func (s *VerifiedTool) callTime() time.Duration {
	return cmp.Or(s.Contract.Timeout, s.Timeout, switchboard.DefaultTimeout)
}

// CallLimits bound the verification of one tool. The zero value means the defaults, which are also the most that is allowed.
type CallLimits struct {
	Calls int
	Time  time.Duration
}

// The most that a verification may use for one tool.
const (
	MaxCalls = switchboard.MaxVerifyCalls
	MaxTime  = switchboard.MaxVerifyTime

	maxArguments = 8 // that are exercised one by one
	maxExamples  = 4
)

// Bounded returns the limits with the defaults in place of zeros, and within the most that is allowed.
func (l CallLimits) Bounded() CallLimits {
	if l.Calls <= 0 || l.Calls > MaxCalls {
		l.Calls = MaxCalls
	}
	if l.Time <= 0 || l.Time > MaxTime {
		l.Time = MaxTime
	}
	return l
}

// A TestName names a test.
type TestName string

// The tests.
const (
	Valid         TestName = "valid"         // a call with arguments that fit succeeds
	Missing       TestName = "missing"       // a call without a required argument is refused
	Types         TestName = "types"         // an argument of another type, or beyond a bound, is refused
	Nonsense      TestName = "nonsense"      // unknown, null and empty members get an honest answer
	InTime        TestName = "time"          // calls end within their time
	Hostile       TestName = "hostile"       // hostile values disclose nothing, and the server is alive afterwards
	Words         TestName = "words"         // answers have no orders for models, and no hidden characters
	Output        TestName = "output"        // results fit the output schema
	Idempotent    TestName = "idempotent"    // a repeated call changes nothing more
	Deterministic TestName = "deterministic" // equal calls give equal results
	ReadOnly      TestName = "readonly"      // no call changes anything
)

// A weighing is what a test counts.
type weighing struct {
	name   TestName
	weight int // in tenths
	must   bool
}

// tests are all tests in the order of reports.
var tests = []weighing{
	{Valid, 10, true},
	{Missing, 8, true},
	{Types, 6, false},
	{Nonsense, 9, true},
	{InTime, 7, false},
	{Hostile, 9, true},
	{Words, 9, true},
	{Output, 9, true},
	{Idempotent, 8, true},
	{Deterministic, 5, true},
	{ReadOnly, 10, true},
}

// A WantedAnswer says which answer passes.
type WantedAnswer string

// The wanted answers.
const (
	WantSuccess WantedAnswer = "success" // a result that is no error
	WantRefusal WantedAnswer = "refusal" // a result or an answer that is marked as an error
	WantAnswer  WantedAnswer = "answer"  // either
)

// A PlannedCall is a call that a verification makes.
type PlannedCall struct {
	Test      TestName        `json:"test"`
	About     string          `json:"about"` // what is special about the arguments
	Arguments json.RawMessage `json:"arguments"`
	Want      WantedAnswer    `json:"want"`

	// Given says that the arguments are no guess: the operator's overlay has them.
	Given bool `json:"given,omitempty"`

	// Repeats says that the call repeats the one before.
	Repeats bool `json:"repeats,omitempty"`
}

// A CallPlan is what a verification of one tool calls, and why it leaves tests out.
type CallPlan struct {
	Tool  switchboard.ToolID `json:"tool"`
	Calls []PlannedCall      `json:"calls"`

	// Skipped says why a test is left out. Dropped are the tests that the limit of calls leaves none for.
	Skipped map[TestName]string `json:"skipped"`
	Dropped []TestName          `json:"dropped,omitempty"`
}

// A TestPlace is what values for arguments are taken from: a file that exists, say. The zero value has nothing.
type TestPlace struct {
	File, Folder string // relative names; "" means none
	Outside      string // the name of a file outside of the folder, from the folder

	// Known are values that earlier tools have returned, by their name.
	Known map[string]any
}

// MakePlan returns the calls that verify the tool. Equal subjects and places give equal plans: chance comes from the digest of the definition.
func MakePlan(s *VerifiedTool, l CallLimits, p TestPlace) *CallPlan {
	m := planner{subject: s, plan: &CallPlan{Tool: s.ID, Calls: []PlannedCall{}, Skipped: map[TestName]string{}}, place: p, limit: l.Bounded().Calls}
	m.tool = &switchboard.Tool{ID: s.ID, Definition: s.Definition, Digest: switchboard.Digest(s.Digest)}
	m.schema, _ = wire.Field(s.Definition, "inputSchema")
	m.read()
	m.valid()
	m.repeats()
	m.missing()
	m.nonsense()
	m.types()
	m.hostile()
	m.last()
	return m.plan
}

// A planner makes a plan.
type planner struct {
	subject *VerifiedTool
	tool    *switchboard.Tool
	schema  json.RawMessage
	plan    *CallPlan
	place   TestPlace
	limit   int

	properties map[string]map[string]any
	names      []string // of the arguments that are exercised, sorted: required ones first
	required   []string
	base       map[string]any // arguments that fit; nil if none are known
}

// fits returns nil if the arguments fit the schema.
func (m *planner) fits(args json.RawMessage) error {
	return contract.Check(switchboard.CheckStrict, m.tool, args)
}

// read reads which arguments there are.
func (m *planner) read() {
	root, err := decodeSchema(m.schema)
	if err != nil {
		return
	}
	g := &generator{root: root}
	top, isObject := root.(map[string]any)
	if !isObject {
		return
	}
	if top, isObject = g.merge(top); !isObject {
		return
	}
	m.required = textsIn(top["required"])
	m.properties = map[string]map[string]any{}
	properties, _ := top["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		schema, _ := properties[name].(map[string]any)
		if merged, ok := g.merge(schema); ok {
			schema = merged
		}
		if schema == nil {
			schema = map[string]any{}
		}
		m.properties[name] = schema
	}
	for _, name := range m.required {
		if len(m.names) < maxArguments {
			m.names = append(m.names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.properties)) {
		if len(m.names) < maxArguments && !slices.Contains(m.names, name) {
			m.names = append(m.names, name)
		}
	}
}

// add adds a call, unless the plan is full.
func (m *planner) add(c PlannedCall) {
	if len(m.plan.Calls) < m.limit {
		m.plan.Calls = append(m.plan.Calls, c)
		return
	}
	if isIn := slices.ContainsFunc(m.plan.Calls, func(o PlannedCall) bool { return o.Test == c.Test }); !isIn && !slices.Contains(m.plan.Dropped, c.Test) {
		m.plan.Dropped = append(m.plan.Dropped, c.Test)
	}
}

// given returns a value for an argument by its name: one that an earlier tool returned, a file or a folder that exists, or nil.
func (m *planner) given(name string, schema map[string]any) any {
	if v, ok := m.place.Known[name]; ok {
		return v
	}
	if t, ok := schema["type"]; ok && t != "string" || schema["format"] != nil || schema["pattern"] != nil {
		return nil
	}
	words := strings.ToLower(name)
	switch {
	case m.place.Folder != "" && (strings.Contains(words, "dir") || strings.Contains(words, "folder")):
		return m.place.Folder
	case m.place.File != "" && (strings.Contains(words, "path") || strings.Contains(words, "file")):
		if named := strings.ToLower(m.subject.ID.Name); strings.Contains(named, "dir") || strings.Contains(named, "tree") || strings.Contains(named, "search") {
			return m.place.Folder
		}
		return m.place.File
	case strings.Contains(words, "url") || strings.Contains(words, "uri"):
		return "https://example.com/"
	}
	return nil
}

// valid plans calls with arguments that fit.
func (m *planner) valid() {
	for i, e := range m.subject.Examples {
		if i < maxExamples {
			m.addValid(PlannedCall{Test: Valid, About: fmt.Sprintf("example %d of the overlay", i+1), Arguments: e, Want: WantSuccess, Given: true})
		}
	}
	if root, err := decodeSchema(m.schema); err == nil {
		s, _ := root.(map[string]any)
		if all, ok := s["examples"].([]any); ok {
			for i, e := range all[:min(len(all), maxExamples)] {
				if text, err := json.Marshal(e); err == nil && m.fits(text) == nil {
					m.addValid(PlannedCall{Test: Valid, About: fmt.Sprintf("example %d of the schema", i+1), Arguments: text, Want: WantSuccess})
				}
			}
		}
	}
	seed := switchboard.Digest(m.subject.Digest)
	for _, whole := range []bool{false, true} {
		about := "generated, with the required arguments"
		if whole {
			about = "generated, with all arguments"
		}
		args, err := generate(m.schema, seed, whole, m.given, m.fits)
		if err != nil {
			if len(m.plan.Calls) == 0 {
				m.plan.Skipped[Valid] = err.Error()
			}
			continue
		}
		m.addValid(PlannedCall{Test: Valid, About: about, Arguments: args, Want: WantSuccess})
	}
	if len(m.plan.Calls) > 0 {
		delete(m.plan.Skipped, Valid)
	}
}

// addValid adds a valid call that is not there yet, and remembers the arguments of the first one.
func (m *planner) addValid(c PlannedCall) {
	if slices.ContainsFunc(m.plan.Calls, func(o PlannedCall) bool { return string(o.Arguments) == string(c.Arguments) }) {
		return
	}
	m.add(c)
	if m.base == nil {
		v, err := decodeSchema(c.Arguments)
		if base, ok := v.(map[string]any); ok && err == nil {
			m.base = base
		}
	}
}

// repeats plans the calls that show whether a tool is as its contract says.
func (m *planner) repeats() {
	c := &m.subject.Contract
	for _, r := range []struct {
		test TestName
		fact switchboard.Fact
	}{{Idempotent, c.Idempotent}, {Deterministic, c.Deterministic}} {
		switch {
		case !r.fact.Holds:
			m.plan.Skipped[r.test] = "nobody has declared it " + string(r.test)
		case m.base == nil:
			m.plan.Skipped[r.test] = "no arguments that fit are known"
		default:
			m.add(PlannedCall{Test: r.test, About: "the first valid call", Arguments: m.plan.Calls[0].Arguments, Want: WantAnswer})
			m.add(PlannedCall{Test: r.test, About: "the same again", Arguments: m.plan.Calls[0].Arguments, Want: WantAnswer, Repeats: true})
		}
	}
	if !c.ReadOnly.Holds {
		m.plan.Skipped[ReadOnly] = "nobody has declared it readonly"
	}
	if !m.hasOutput() {
		m.plan.Skipped[Output] = "it has no output schema"
	}
}

func (m *planner) hasOutput() bool {
	_, ok := wire.Field(m.subject.Definition, "outputSchema")
	return ok
}

// with returns the first valid arguments with one of them replaced, or removed if v is absent.
func (m *planner) with(name string, v any) json.RawMessage {
	args := maps.Clone(m.base)
	if args == nil {
		args = map[string]any{}
	}
	args[name] = v
	if v == absent {
		delete(args, name)
	}
	text, err := json.Marshal(args)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return text
}

// absent stands for an argument that is left out.
var absent = new(struct{ _ byte })

// wantOf returns a refusal for arguments that do not fit, and any answer for others.
func (m *planner) wantOf(args json.RawMessage) WantedAnswer {
	if m.fits(args) != nil {
		return WantRefusal
	}
	return WantAnswer
}

// missing plans a call without each required argument.
func (m *planner) missing() {
	if len(m.required) == 0 {
		m.plan.Skipped[Missing] = "no argument is required"
		return
	}
	for _, name := range m.names {
		if slices.Contains(m.required, name) {
			m.add(PlannedCall{Test: Missing, About: "without " + name, Arguments: m.with(name, absent), Want: WantRefusal})
		}
	}
}

// nonsense plans calls with members that mean nothing.
func (m *planner) nonsense() {
	unknown := m.with("switchboard_unknown", "nonsense")
	m.add(PlannedCall{Test: Nonsense, About: "with an unknown argument", Arguments: unknown, Want: m.wantOf(unknown)})
	if len(m.names) == 0 {
		return
	}
	null := m.with(m.names[0], nil)
	m.add(PlannedCall{Test: Nonsense, About: m.names[0] + " is null", Arguments: null, Want: m.wantOfNull(null)})
	for _, name := range m.texts() {
		empty := m.with(name, "")
		m.add(PlannedCall{Test: Nonsense, About: name + " is empty", Arguments: empty, Want: m.wantOf(empty)})
		break
	}
	nulls, empties := map[string]any{}, map[string]any{}
	for _, name := range m.names {
		nulls[name], empties[name] = nil, map[string]any{}
	}
	if text, err := json.Marshal(nulls); err == nil {
		m.add(PlannedCall{Test: Nonsense, About: "each argument is null", Arguments: text, Want: m.wantOfNull(text)})
	}
	if text, err := json.Marshal(empties); err == nil {
		m.add(PlannedCall{Test: Nonsense, About: "each argument is {}", Arguments: text, Want: m.wantOf(text)})
	}
}

// wantOfNull is wantOf for arguments that are null. Many servers take null for an optional argument that is absent, which harms nobody.
func (m *planner) wantOfNull(args json.RawMessage) WantedAnswer {
	if len(m.required) == 0 { // so m.names begins with an optional one
		return WantAnswer
	}
	return m.wantOf(args)
}

// texts are the exercised arguments that may be texts of any kind.
func (m *planner) texts() (names []string) {
	g := &generator{}
	for _, name := range m.names {
		s := m.properties[name]
		_, fixed := s["const"]
		_, listed := s["enum"]
		if t := g.typeOf(s); !fixed && !listed && (t == "string" || t == "") {
			names = append(names, name)
		}
	}
	return names
}

// types plans a call with each argument of another type, and beyond each bound.
func (m *planner) types() {
	if len(m.names) == 0 {
		m.plan.Skipped[Types] = "it has no arguments"
		return
	}
	planned := 0
	for _, name := range m.names {
		for _, wrong := range misfits(m.properties[name]) {
			args := m.with(name, wrong.value)
			if m.fits(args) == nil {
				continue // the schema allows it
			}
			m.add(PlannedCall{Test: Types, About: name + " is " + wrong.about, Arguments: args, Want: WantRefusal})
			planned++
		}
	}
	if planned == 0 {
		m.plan.Skipped[Types] = "its schema allows each argument to be anything"
	}
}

// A wrongValue is a value that a schema should refuse.
type wrongValue struct {
	about string
	value any
}

// misfits returns values that do not fit a schema: one of another type, and one beyond one bound.
func misfits(s map[string]any) (out []wrongValue) {
	g := &generator{}
	switch t := g.typeOf(s); t {
	case "string":
		out = append(out, wrongValue{"a list", []any{1, 2}})
	case "object", "array":
		out = append(out, wrongValue{"a number", 7})
	default:
		out = append(out, wrongValue{"an object", map[string]any{"a": 1}})
	}
	switch {
	case s["enum"] != nil:
		out = append(out, wrongValue{"none of the allowed values", "switchboard_not_allowed"})
	case s["minimum"] != nil:
		if n, ok := rational(s["minimum"]); ok {
			f, _ := n.Float64()
			out = append(out, wrongValue{"below its minimum", f - 1})
		}
	case s["maximum"] != nil:
		if n, ok := rational(s["maximum"]); ok {
			f, _ := n.Float64()
			out = append(out, wrongValue{"above its maximum", f + 1})
		}
	case s["maxLength"] != nil && countIn(s["maxLength"]) < maxValue/4:
		out = append(out, wrongValue{"too long", strings.Repeat("a", countIn(s["maxLength"])+1)})
	case countIn(s["minLength"]) > 0:
		out = append(out, wrongValue{"too short", ""})
	}
	return out
}

// A hostileValue is a text that should do nothing but be read.
type hostileValue struct{ about, text string }

// hostileValues returns the texts of each plan.
func (m *planner) hostileValues() []hostileValue {
	all := []hostileValue{
		{"a path out of the folder", "../../../../../../../../etc/passwd"},
		{"commands of a shell", "a'; env; cat /proc/self/environ; echo $(env) `env` #"},
		{"an expression of a template", "{{constructor.constructor('return process.env')()}}${process.env}#{ENV}<%= ENV %>"},
		{"a part of SQL", "' OR '1'='1'; DROP TABLE notes; --"},
		{"an address of the machine's own network", "http://169.254.169.254/latest/meta-data/"},
		{"the address of a file", "file:///etc/passwd"},
		{"characters that are not visible", "a\u0000b\u202ec\u200bd\U000e0041"},
		{"a very long text", strings.Repeat("A", 64<<10)},
	}
	if m.place.Outside != "" {
		all = slices.Insert(all, 0, hostileValue{"a file beside the folder", m.place.Outside}, hostileValue{"a file beside the folder, through the folder", "./" + m.place.Outside})
	}
	return all
}

// hostile plans calls with hostile values in all texts at once, and with the worst of them in each.
func (m *planner) hostile() {
	texts := m.texts()
	for _, v := range m.hostileValues() {
		if len(texts) == 0 {
			break
		}
		args := maps.Clone(m.base)
		if args == nil {
			args = map[string]any{}
		}
		for _, name := range texts {
			args[name] = v.text
		}
		if text, err := json.Marshal(args); err == nil {
			m.add(PlannedCall{Test: Hostile, About: v.about + " in each text", Arguments: text, Want: WantAnswer})
		}
	}
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	m.add(PlannedCall{Test: Hostile, About: "an argument with 60 levels", Arguments: m.with("switchboard_deep", json.RawMessage(deep)), Want: WantAnswer})
	if len(texts) > 1 {
		worst := m.hostileValues()[0]
		for _, name := range texts {
			m.add(PlannedCall{Test: Hostile, About: worst.about + " in " + name, Arguments: m.with(name, worst.text), Want: WantAnswer})
		}
	}
}

// last plans the call that shows that the server is alive. It takes the place of another call if the plan is full.
func (m *planner) last() {
	c := PlannedCall{Test: Hostile, About: "alive afterwards", Arguments: json.RawMessage(`{}`), Want: WantAnswer}
	if m.base != nil {
		c.Arguments = m.plan.Calls[0].Arguments
	}
	if len(m.plan.Calls) == m.limit {
		m.plan.Calls[m.limit-1] = c
		return
	}
	m.add(c)
}

// Tests returns the names of all tests, in the order of reports.
func Tests() (names []TestName) {
	for _, t := range tests {
		names = append(names, t.name)
	}
	return names
}
