package lazyexpand

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The actions of a stub.
const (
	actionList     = "list"
	actionSearch   = "search"
	actionExpand   = "expand"
	actionCall     = "call"
	actionCollapse = "collapse"
)

// Limits of a stub's arguments and answers.
const (
	maxTools   = 100 // in one expansion
	maxQuery   = search.MaxQuery
	maxFound   = 20
	usualFound = 8
	maxRows    = 60 // of a list, one line for each tool
	maxNames   = 400
	maxLine    = 100 // characters of a tool's description
	maxStub    = 300 // tokens of a stub
	fewNames   = 150 // bytes of service names; a stub with them is below maxStub without counting
)

// stubSchema is the input schema of each stub. The object stays open, because an unknown argument belongs to the tool
// that is called.
const stubSchema = `{"type":"object","properties":{` +
	`"action":{"type":"string","enum":["list","search","expand","call","collapse"],"description":"list (default): services, or a service's tools. expand: adds tools to your list; collapse: removes them"},` +
	`"query":{"type":"string","description":"search: what the tool should do"},` +
	`"limit":{"type":"integer","description":"search: most matches"},` +
	`"service":{"type":"string","description":"list, expand, collapse"},` +
	`"tool":{"type":"string","description":"call: its name"},` +
	`"arguments":{"type":"object","description":"call: what the tool takes"},` +
	`"tools":{"type":"array","items":{"type":"string"},"description":"expand, collapse: names"}}}`

// AlwaysLoad is a member of definitions. It makes clients that hide tools behind their own search keep this one
// visible to the model.
const AlwaysLoad = `"_meta":{"anthropic/alwaysLoad":true}`

// stubDefinition returns the definition of a group's stub. It is written for a model that has never seen a stub: when
// to use it, which tools are behind it, and the two requests that do the work. It names all services, or as many as
// fit in maxStub tokens; count counts them.
func stubDefinition(group, stub string, services []string, count func([]byte) int) []byte {
	names := sortedUnique(services)
	if len(names) == 1 {
		return buildStub(group, stub, len(services), "")
	}
	whole := strings.Join(names, ", ")
	b := buildStub(group, stub, len(services), whole)
	if len(whole) <= fewNames || count(b) <= maxStub {
		return b
	}
	n := sort.Search(len(names), func(n int) bool {
		return count(buildStub(group, stub, len(services), firstNames(names, n))) > maxStub
	})
	return buildStub(group, stub, len(services), firstNames(names, n-1))
}

// firstNames joins the first n names and the number of further ones.
func firstNames(names []string, n int) string {
	return strings.Join(append(slices.Clone(names[:max(n, 0)]), fmt.Sprintf("%d more", len(names)-max(n, 0))), ", ")
}

func buildStub(group, stub string, tools int, services string) []byte {
	what := countOf(tools, group+" tool")
	if group == FoldGroup {
		what = countOf(tools, "more tool")
	}
	if services != "" {
		what += " (" + services + ")"
	}
	text := what + `. Look here before you say that something cannot be done. Find: ` + examples[actionSearch] + `. Run: ` + examples[actionCall]
	b := wire.AppendString([]byte(`{"name":`), stub)
	b = wire.AppendString(append(b, `,"description":`...), text)
	b = append(append(b, `,"inputSchema":`...), stubSchema...)
	return append(append(b, ','), AlwaysLoad+`}`...)
}

// sortedUnique returns the distinct words, sorted.
func sortedUnique(words []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(words)))
}

// A stubRequest is a parsed request to a stub.
type stubRequest struct {
	action    string
	service   string
	query     string
	limit     int
	tools     []string
	tool      string
	arguments []byte // an object; nil means none
	lists     bool   // an expansion grows the client's list
}

// actionMembers are the members that each action except call takes. The first is required. A | separates
// alternatives, and exactly one of them is required.
var actionMembers = map[string][]string{
	actionList:     {"", "service"},
	actionSearch:   {"query", "limit"},
	actionExpand:   {"tools|service"},
	actionCollapse: {"tools|service"},
}

// examples show a model how to request each action.
var examples = map[string]string{
	actionList:     `{"action":"list"}`,
	actionSearch:   `{"action":"search","query":"what the tool should do"}`,
	actionExpand:   `{"action":"expand","tools":["NAME"]}`,
	actionCall:     `{"action":"call","tool":"NAME","arguments":{}}`,
	actionCollapse: `{"action":"collapse","tools":["NAME"]}`,
}

// An argument is one member of a request, and its value.
type argument struct {
	name string
	raw  []byte
}

// parse reads a stub's arguments. It accepts every spelling with one clear meaning, and refuses the rest with an
// example of what to write. args were scanned as part of their message. takes returns the definition of a member of
// the group, nil for none.
func parse(args []byte, takes func(tool string) []byte) (a stubRequest, err error) {
	var all []argument
	has := map[string][]byte{}
	for name, raw := range wire.Members(args) {
		all = append(all, argument{name, raw})
		has[name] = raw
	}
	switch raw, said := has["action"]; {
	case said:
		text, ok := wire.String(raw)
		if !ok {
			return a, badArguments("\"action\" must be %s, such as %s", argumentKinds["action"], examples[actionList])
		}
		a.action = strings.ToLower(strings.TrimSpace(text))
		if _, ok := examples[a.action]; !ok && has["tool"] == nil && takes(text) != nil {
			a.action, a.tool = actionCall, text
		}
	case has["tool"] != nil:
		a.action = actionCall
	case has["query"] != nil:
		a.action = actionSearch
	case has["tools"] != nil:
		return a, badArguments("say which action: %s or %s", examples[actionExpand], examples[actionCollapse])
	default:
		a.action = actionList
	}
	switch _, ok := examples[a.action]; {
	case !ok:
		return a, badArguments("there is no action %q: there are list, search, expand, call and collapse, such as %s", shorten(a.action), examples[actionSearch])
	case a.action == actionCall:
		return a, a.parseCall(all, has, takes)
	}
	return a, a.parseOther(all)
}

// parseCall reads the tool and its arguments: as an object, as JSON text, or beside the tool.
func (a *stubRequest) parseCall(all []argument, has map[string][]byte, takes func(tool string) []byte) error {
	own := []string{"action", "tool"}
	if a.tool == "" {
		from := "tool"
		if has["tool"] == nil {
			from = "tools"
		}
		names, ok := stringList(has[from])
		if !ok || len(names) != 1 {
			return badArguments("action call takes one tool, such as %s", examples[actionCall])
		}
		a.tool = names[0]
		own = append(own, from)
	}
	var beside []argument
	for _, m := range all {
		if !slices.Contains(own, m.name) && m.name != "arguments" {
			beside = append(beside, m)
		}
	}
	raw, said := has["arguments"]
	if !said && len(beside) == 1 && slices.Contains([]string{"args", "params", "parameters", "input"}, beside[0].name) && !declares(takes(a.tool), beside[0].name) {
		raw, said, beside = beside[0].raw, true, nil
	}
	switch {
	case said && len(beside) > 0:
		return badArguments("put %q into \"arguments\", beside what the tool takes besides: %s", shorten(beside[0].name), examples[actionCall])
	case said:
		text, isText := wire.String(raw)
		if isText && strings.TrimSpace(text) == "" || string(raw) == "null" {
			return nil
		}
		if isText {
			raw = []byte(strings.TrimSpace(text))
		}
		if len(raw) == 0 || raw[0] != '{' || isText && !wire.Strict(raw) {
			return badArguments("\"arguments\" must be %s, such as %s", argumentKinds["arguments"], examples[actionCall])
		}
		a.arguments = raw
	case len(beside) > 0:
		edits := make([]wire.Edit, len(beside))
		for i, m := range beside {
			edits[i] = wire.Edit{Name: m.name, Value: m.raw}
		}
		a.arguments = wire.Rewrite(nil, []byte(`{}`), edits...)
	}
	return nil
}

// declares reports whether the tool's schema has an argument with that name.
func declares(definition []byte, name string) bool {
	schema, _ := wire.Field(definition, "inputSchema")
	properties, _ := wire.Field(schema, "properties")
	_, ok := wire.Field(properties, name)
	return ok
}

// parseOther reads the arguments of all actions except call.
func (a *stubRequest) parseOther(all []argument) error {
	takes := actionMembers[a.action]
	required := strings.Split(takes[0], "|")
	n := 0
	for _, m := range all {
		var ok bool
		name := m.name
		if name == "tool" && slices.Contains(required, "tools") {
			name = "tools"
		}
		switch {
		case name == "action":
			continue
		case !slices.Contains(required, name) && !slices.Contains(takes[1:], name):
			return badArguments("action %s does not take %q; write %s", a.action, shorten(m.name), examples[a.action])
		case name == "service":
			a.service, ok = wire.String(m.raw)
		case name == "query":
			a.query, ok = wire.String(m.raw)
		case name == "limit":
			a.limit, ok = positiveInt(m.raw)
		case name == "tools":
			a.tools, ok = stringList(m.raw)
		}
		if !ok {
			return badArguments("%q must be %s, such as %s", name, argumentKinds[name], examples[a.action])
		}
		if slices.Contains(required, name) {
			n++
		}
	}
	switch {
	case takes[0] != "" && n != 1:
		return badArguments("action %s takes %s, such as %s", a.action, strings.ReplaceAll(takes[0], "|", " or "), examples[a.action])
	case len(a.query) > maxQuery:
		return badArguments("the query is longer than %d bytes; a few words find more", maxQuery)
	case a.action == actionSearch && strings.TrimSpace(a.query) == "":
		return badArguments("the query is empty; say what the tool should do: %s", examples[actionSearch])
	case len(a.tools) > maxTools:
		return badArguments("%d tools are more than the %d that one action takes", len(a.tools), maxTools)
	}
	return nil
}

// positiveInt reads a whole number above 0, also as text.
func positiveInt(raw []byte) (n int, ok bool) {
	if text, isText := wire.String(raw); isText {
		raw = []byte(text)
	}
	n, err := strconv.Atoi(string(raw))
	return n, err == nil && n > 0
}

// argumentKinds are the types of the arguments in words.
var argumentKinds = map[string]string{
	"action": "a string", "service": "a string", "query": "a string", "tool": "a string", "limit": "a whole number above 0",
	"tools": "a list of at least one name", "arguments": "an object",
}

// stringList reads a list of strings; a single string counts as a list of one.
func stringList(raw []byte) (out []string, ok bool) {
	if s, ok := wire.String(raw); ok {
		return []string{s}, true
	}
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	for element := range wire.Elements(raw) {
		s, ok := wire.String(element)
		if !ok {
			return nil, false
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
		if len(out) > maxTools+1 {
			break // the caller refuses the number
		}
	}
	return out, len(out) > 0
}

// badArguments refuses arguments that a stub does not take.
func badArguments(format string, args ...any) error {
	return switchboard.Refuse(switchboard.CodeBadArguments, format, args...)
}

// shorten cuts a text that is repeated to its sender.
func shorten(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}
