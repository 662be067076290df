package lazyexpand

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// RequestTool is the name of our own tool with which an agent asks a person for a capability.
const RequestTool = "switchboard_request_capability"

// Bounds of a request.
const (
	minReason     = 10 // characters
	maxReason     = 500
	maxCapability = 256 // bytes
)

const exampleRequest = `{"capability":"search internet","reason":"the task asks for news that I cannot read"}`

// RequestDefinition returns the definition of RequestTool in lists. The rows limit the capabilities that agents may ask for.
func RequestDefinition(rows []switchboard.RequestRow) *switchboard.Tool {
	text := "Asks a person for a capability that you lack, and that the task needs. A person decides; until then nothing changes, so go on with other work. You may ask for " + spellRows(rows) + "."
	b := wire.AppendString([]byte(`{"name":"`+RequestTool+`","description":`), text)
	b = append(b, `,"inputSchema":{"type":"object","properties":{`+
		`"capability":{"type":"string","description":"as it stands above","maxLength":256},`+
		`"reason":{"type":"string","description":"why the task needs it; the person reads this","minLength":10,"maxLength":500}},`+
		`"required":["capability","reason"],"additionalProperties":false},`+AlwaysLoad+`}`...)
	return &switchboard.Tool{ID: switchboard.ToolID{Name: RequestTool}, Definition: b}
}

// StatusWithCapability returns the status tool as lists show it where agents may ask for capabilities.
func StatusWithCapability(status *switchboard.Tool) *switchboard.Tool {
	own := *status
	own.Definition = bytes.Replace(status.Definition, []byte(`"properties":{}`),
		[]byte(`"properties":{"capability":{"type":"string","description":"says how it stands with this capability"}}`), 1)
	return &own
}

// spellRows returns what the rows allow, in words.
func spellRows(rows []switchboard.RequestRow) string {
	spelled := make([]switchboard.Requirement, len(rows))
	var names []string
	for i := range rows {
		if rows[i].Named != "" {
			names = append(names, rows[i].Named)
		}
		spelled[i] = rows[i].Requirement
	}
	spelled = slices.DeleteFunc(spelled, func(r switchboard.Requirement) bool { return r.Verb == "" })
	text := spellCeiling(spelled)
	if len(names) == 0 {
		return text
	}
	if text != "" {
		text += ", "
	}
	if more := len(names) - maxCeilingRows; more > 0 {
		names = append(names[:maxCeilingRows], formatNumber(more)+" more")
	}
	return text + strings.Join(names, ", ")
}

// An AskedCapability is what an agent asks a person for.
type AskedCapability struct{ Capability, Reason string }

// ParseRequest reads the arguments of RequestTool, which were scanned as part of their message.
func ParseRequest(args []byte) (AskedCapability, error) {
	var q AskedCapability
	for name, raw := range wire.Members(args) {
		text, ok := wire.String(raw)
		switch name {
		case "capability":
			q.Capability = text
		case "reason":
			q.Reason = strings.TrimSpace(text)
		default:
			return q, badArguments("%q is not an argument here: there are capability and reason", shorten(name))
		}
		if !ok {
			return q, badArguments("%s must be a text, as in %s", name, exampleRequest)
		}
	}
	if err := checkCapability(q.Capability); err != nil {
		return q, err
	}
	if n := utf8.RuneCountInString(q.Reason); n < minReason || n > maxReason {
		return q, badArguments("reason has %d characters, and must have %d to %d: a person reads it to decide, as in %s", n, minReason, maxReason, exampleRequest)
	}
	return q, nil
}

func checkCapability(text string) error {
	if text == "" {
		return badArguments("say which capability, as in %s", exampleRequest)
	}
	if len(text) > maxCapability {
		return badArguments("capability has %d bytes; the most is %d", len(text), maxCapability)
	}
	return nil
}

// ParseStatus reads the arguments of the status tool: the capability that it is asked about, or "".
func ParseStatus(args []byte) (capability string, err error) {
	for name, raw := range wire.Members(args) {
		text, ok := wire.String(raw)
		if name != "capability" || !ok {
			return "", badArguments("the one argument is capability, a text such as \"search internet\"; without it you get the status of everything")
		}
		if err := checkCapability(text); err != nil {
			return "", err
		}
		capability = text
	}
	return capability, nil
}

var (
	// spokenCapability is a capability as agents and our own texts spell it, such as "read fs [readonly]" or "read:fs".
	spokenCapability = regexp.MustCompile(`^([a-z]+)[ :._/-]([a-z0-9_-]+)(?: *\[([a-z0-9_, -]*)\])?$`)

	capabilityName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)
)

// ReadCapability returns the requirement that a text names, such as "read fs [readonly]". ok is false if the text names no capability of the
// taxonomy.
func ReadCapability(text string, tax *switchboard.Taxonomy) (r switchboard.Requirement, ok bool) {
	m := spokenCapability.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil || !slices.Contains(switchboard.Verbs, switchboard.Verb(m[1])) || !tax.HasResource(switchboard.Resource(m[2])) {
		return r, false
	}
	r.Verb, r.Resource = switchboard.Verb(m[1]), switchboard.Resource(m[2])
	for c := range strings.FieldsFuncSeq(m[3], func(c rune) bool { return c == ',' || c == ' ' }) {
		if !tax.HasConstraint(switchboard.Constraint(c)) {
			return r, false
		}
		r.Constraints = append(r.Constraints, switchboard.Constraint(c))
	}
	slices.Sort(r.Constraints)
	r.Constraints = slices.Compact(r.Constraints)
	return r, true
}

// namedPrefix is what the text of a requirement of a named capability begins with.
const namedPrefix = "capability "

// A Requested is a capability that the operator's rows allow an agent to ask for.
type Requested struct {
	Capability string // in the one spelling in which it is kept
	Row        string // that allows it

	// Requirement is what a yes adds; nil for a capability by name that nothing provides.
	Requirement *switchboard.Requirement
}

// A FindNamed returns the requirement of a named capability, such as io.fs.read@^1, and the constraints of its contract. ok is false if
// nothing provides it to the tenant. A nil FindNamed finds nothing.
type FindNamed func(ref string) (r switchboard.Requirement, constraints []switchboard.Constraint, ok bool)

func (f FindNamed) find(ref string) (r switchboard.Requirement, constraints []switchboard.Constraint, ok bool) {
	if f == nil {
		return r, nil, false
	}
	return f(ref)
}

// AllowedRequest returns what the text asks for, within the rows: a requirement gets the constraints of its row, and is on demand and optional.
// The error is a *switchboard.Error: SB-CAP-003 for what is no capability, SB-TASK-002 for one that no row allows.
func AllowedRequest(text string, rows []switchboard.RequestRow, tax *switchboard.Taxonomy, named FindNamed) (*Requested, error) {
	text = strings.TrimPrefix(strings.TrimSpace(text), namedPrefix)
	hint := "you may ask for " + spellRows(rows)
	var ceiling []switchboard.Requirement
	for i := range rows {
		if rows[i].Named == "" {
			ceiling = append(ceiling, rows[i].Requirement)
		}
	}
	r, spoken := ReadCapability(text, tax)
	if row := ceilingRow(&r, ceiling, tax); spoken && row != nil {
		r.Constraints = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Constraints, row.Constraints))))
		out := &Requested{Capability: r.String(), Row: row.String()}
		r.Optional, r.OnDemand = true, true
		r.Group, r.Stub = defaultGroup(r.Resource)
		out.Requirement = &r
		return out, nil
	}
	id, _, ranged := strings.Cut(text, "@")
	need, _, found := named.find(text)
	name := capabilityName.MatchString(id) && (found || !ranged)
	for i := range rows {
		if rows[i].Named == "" || !name || !switchboard.MatchPattern(rows[i].Named, id) {
			continue
		}
		out := &Requested{Capability: text, Row: namedPrefix + rows[i].Named}
		if found {
			need.Optional, need.OnDemand = true, true
			need.Group, need.Stub = defaultGroup(need.Resource)
			out.Requirement = &need
		}
		return out, nil
	}
	err := &switchboard.Error{Code: switchboard.CodeTaskRefused, Text: "you may not ask for " + shorten(text) + ", so nobody was asked", Hint: hint}
	if !spoken {
		err = &switchboard.Error{Code: switchboard.CodeBadArguments, Text: shorten(text) + " is no capability that is known here, so nobody was asked", Hint: hint}
	}
	return nil, err
}

// defaultGroup returns the group and the stub of a requirement that names none.
func defaultGroup(r switchboard.Resource) (group, stub string) {
	return strings.ReplaceAll(string(r), "_", "-"), surface.Shorten(strings.ReplaceAll(string(r), "-", "_") + "_helper")
}

// AddRequested returns the task with the requirements of the additions that the rows still allow. The task is not modified.
func AddRequested(task *switchboard.Task, added []switchboard.Addition, rows []switchboard.RequestRow, tax *switchboard.Taxonomy, named FindNamed) *switchboard.Task {
	var more []switchboard.Requirement
	for _, a := range added {
		q, err := AllowedRequest(a.Capability, rows, tax, named)
		if err != nil || q.Requirement == nil || slices.ContainsFunc(more, func(r switchboard.Requirement) bool { return r.String() == q.Requirement.String() }) {
			continue
		}
		r := q.Requirement
		r.Request = a.Request
		for i := range task.Requirements { // two groups cannot have one stub
			if own := &task.Requirements[i]; own.Stub == r.Stub || own.Group == r.Group {
				r.Group, r.Stub = own.Group, own.Stub
				break
			}
		}
		more = append(more, *q.Requirement)
	}
	if more == nil {
		return task
	}
	own := *task
	own.Requirements = slices.Concat(task.Requirements, more)
	return &own
}
