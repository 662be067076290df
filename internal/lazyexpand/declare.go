package lazyexpand

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// DeclareTool is the name of our own tool that a client calls to declare its task.
const DeclareTool = "switchboard_declare_task"

// maxDeclared limits the requirements of a declared task.
const maxDeclared = 32

const declareSchema = `{"type":"object","properties":{"required_capabilities":{"type":"array","items":{"type":"object","properties":{` +
	`"verb":{"type":"string","enum":["search","read","write","execute","reason","notify"]},"resource":{"type":"string"},` +
	`"constraints":{"type":"array","items":{"type":"string"}},"optional":{"type":"boolean"},` +
	`"load":{"type":"string","enum":["essential","on_demand"]}},"required":["verb","resource"],"additionalProperties":false}},` +
	`"token_budget":{"type":"integer"}},"required":["required_capabilities"],"additionalProperties":false}`

// exampleTask shows a model how to declare a task.
const exampleTask = `{"required_capabilities":[{"verb":"search","resource":"internet"}]}`

// DeclareDefinition returns DeclareTool as lists show it. Clients may declare requirements within the ceiling. named says that there are
// named capabilities.
func DeclareDefinition(ceiling []switchboard.Requirement, named bool) *switchboard.Tool {
	schema := declareSchema
	if named {
		schema = strings.Replace(strings.Replace(schema, `"required":["verb","resource"],`, "", 1), `"properties":{"verb"`,
			`"properties":{"capability":{"type":"string","description":"in place of verb and resource: a named capability"},"verb"`, 1)
	}
	text := "Binds you to a task, once: say which capabilities you need, and get the tools that serve them. You may ask for " + spellCeiling(ceiling) + "."
	b := wire.AppendString([]byte(`{"name":"`+DeclareTool+`","description":`), text)
	b = append(append(append(b, `,"inputSchema":`...), schema...), `,`+AlwaysLoad+`}`...)
	return &switchboard.Tool{ID: switchboard.ToolID{Name: DeclareTool}, Definition: b}
}

// maxCeilingRows limits the rows of a ceiling in a text.
const maxCeilingRows = 16

func spellCeiling(ceiling []switchboard.Requirement) string {
	var rows []string
	for i := range ceiling {
		if i == maxCeilingRows {
			rows = append(rows, fmt.Sprintf("%d more", len(ceiling)-i))
			break
		}
		rows = append(rows, ceiling[i].String())
	}
	return strings.Join(rows, ", ")
}

// ParseDeclared reads the task that a client declares with these arguments, which were scanned as part of their message.
// Within decides whether the client may declare it.
func ParseDeclared(args []byte) (*switchboard.Task, error) {
	task := &switchboard.Task{ID: switchboard.DeclaredTask}
	for name, raw := range wire.Members(args) {
		switch name {
		case "token_budget":
			n, err := strconv.Atoi(string(raw))
			if err != nil || n < 1 {
				return nil, badArguments("token_budget must be a whole number above 0")
			}
			task.TokenBudget = n
		case "required_capabilities":
			if len(raw) == 0 || raw[0] != '[' {
				return nil, badArguments("required_capabilities must be a list, such as %s", exampleTask)
			}
			for element := range wire.Elements(raw) {
				if len(task.Requirements) == maxDeclared {
					return nil, badArguments("a task has at most %d requirements", maxDeclared)
				}
				r, err := parseRequirement(element)
				if err != nil {
					return nil, err
				}
				task.Requirements = append(task.Requirements, r)
			}
		default:
			return nil, badArguments("%q is not an argument here: there are required_capabilities and token_budget", shorten(name))
		}
	}
	if len(task.Requirements) == 0 {
		return nil, badArguments("say what you need, such as %s", exampleTask)
	}
	return task, nil
}

func parseRequirement(raw []byte) (r switchboard.Requirement, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		return r, badArguments("each of required_capabilities is an object, such as {\"verb\":\"search\",\"resource\":\"internet\"}")
	}
	for name, raw := range wire.Members(raw) {
		var text string
		ok := true
		switch name {
		case "capability":
			r.Capability, ok = wire.String(raw)
			ok = ok && r.Capability != "" && len(r.Capability) <= maxCapability
		case "verb":
			text, ok = wire.String(raw)
			r.Verb = switchboard.Verb(text)
		case "resource":
			text, ok = wire.String(raw)
			r.Resource = switchboard.Resource(text)
		case "constraints":
			var list []string
			if string(raw) != "[]" {
				list, ok = stringList(raw)
			}
			for _, c := range slices.Sorted(slices.Values(list)) {
				r.Constraints = append(r.Constraints, switchboard.Constraint(c))
			}
		case "optional":
			r.Optional, ok = string(raw) == "true", string(raw) == "true" || string(raw) == "false"
		case "load":
			text, ok = wire.String(raw)
			ok = ok && (text == "essential" || text == "on_demand")
			r.OnDemand = text == "on_demand"
		default:
			return r, badArguments("%q is no member of a requirement: there are verb, resource, constraints, capability, optional and load", shorten(name))
		}
		if !ok {
			return r, badArguments("%q of a requirement is malformed: write it as in %s", name, exampleTask)
		}
	}
	if r.Capability != "" {
		if r.Verb != "" || r.Resource != "" || r.Constraints != nil {
			return r, badArguments("a requirement has a capability, or a verb and a resource, and not both")
		}
		return r, nil
	}
	if r.Verb == "" || r.Resource == "" {
		return r, badArguments("a requirement needs a verb and a resource, such as {\"verb\":\"search\",\"resource\":\"internet\"}")
	}
	if r.OnDemand {
		r.Group, r.Stub = defaultGroup(r.Resource)
	}
	return r, nil
}

// LimitToCeiling returns the task within the ceiling: each requirement matches a row with the same verb and with the same
// resource or one of its ancestors, and gets the row's constraints in addition. The contract of a named capability must have
// the row's constraints. A requirement without a row, or a budget larger than the given one, is refused with SB-TASK-002.
func LimitToCeiling(task *switchboard.Task, ceiling []switchboard.Requirement, tax *switchboard.Taxonomy, budget int, named FindNamed) (*switchboard.Task, error) {
	own := *task
	own.Requirements = slices.Clone(task.Requirements)
	if task.TokenBudget > budget {
		return nil, switchboard.Refuse(switchboard.CodeTaskRefused, "the task may not start: a token budget of %s is more than the %s that you have", formatNumber(task.TokenBudget), formatNumber(budget))
	}
	for i := range own.Requirements {
		r := &own.Requirements[i]
		row := ceilingRow(r, ceiling, tax)
		if r.Capability != "" {
			row = limitNamed(r, ceiling, tax, named)
		}
		if row == nil {
			return nil, &switchboard.Error{
				Code: switchboard.CodeTaskRefused, Requirement: shorten(r.String()),
				Text: fmt.Sprintf("the task may not start: %s is more than you may ask for", shorten(r.String())),
				Hint: "you may ask for " + spellCeiling(ceiling),
			}
		}
		if r.Capability == "" {
			r.Constraints = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Constraints, row.Constraints))))
		}
	}
	return &own, nil
}

// limitNamed completes the requirement of a named capability. It returns the row that allows it, or nil.
func limitNamed(r *switchboard.Requirement, ceiling []switchboard.Requirement, tax *switchboard.Taxonomy, named FindNamed) *switchboard.Requirement {
	need, constraints, ok := named.find(r.Capability)
	if !ok {
		return nil
	}
	r.Verb, r.Resource = need.Verb, need.Resource
	if r.OnDemand && r.Group == "" {
		r.Group, r.Stub = defaultGroup(r.Resource)
	}
	need.Constraints = constraints
	row := ceilingRow(&need, ceiling, tax)
	if row == nil || slices.ContainsFunc(row.Constraints, func(c switchboard.Constraint) bool { return !slices.Contains(constraints, c) }) {
		return nil
	}
	return row
}

// ceilingRow returns the row that the requirement matches: one with no constraints beyond the requirement's own if
// there is one, otherwise the first. It returns nil for none.
func ceilingRow(r *switchboard.Requirement, ceiling []switchboard.Requirement, tax *switchboard.Taxonomy) (row *switchboard.Requirement) {
	for _, c := range r.Constraints {
		if !tax.HasConstraint(c) {
			return nil
		}
	}
	for i := range ceiling {
		c := &ceiling[i]
		if c.Verb != r.Verb || c.Resource != r.Resource && !slices.Contains(tax.Ancestors(r.Resource), c.Resource) {
			continue
		}
		if !slices.ContainsFunc(c.Constraints, func(k switchboard.Constraint) bool { return !slices.Contains(r.Constraints, k) }) {
			return c
		}
		if row == nil {
			row = c
		}
	}
	return row
}
