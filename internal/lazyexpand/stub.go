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

// What a stub can be asked for.
const (
	actionList     = "list"
	actionSearch   = "search"
	actionExpand   = "expand"
	actionCall     = "call"
	actionCollapse = "collapse"
)

// Bounds of the arguments and of the answers of a stub.
const (
	maxTools   = 100 // that one expansion names
	maxQuery   = search.MaxQuery
	maxFound   = 20
	usualFound = 8
	maxRows    = 60 // of a list, with a line for each tool
	maxNames   = 400
	maxLine    = 100 // of a tool's description, in characters
	maxStub    = 300 // tokens of a stub
	fewNames   = 150 // bytes of names of services, of which a stub has fewer tokens than that
)

// stubSchema is what every stub takes. An argument that it does not name is one of the
// tool that is called, so that the object stays open.
const stubSchema = `{"type":"object","properties":{` +
	`"action":{"type":"string","enum":["list","search","expand","call","collapse"],"description":"list (default): services, or a service's tools. expand: adds tools to your list; collapse: removes them"},` +
	`"query":{"type":"string","description":"search: what the tool should do"},` +
	`"limit":{"type":"integer","description":"search: most matches"},` +
	`"service":{"type":"string","description":"list, expand, collapse"},` +
	`"tool":{"type":"string","description":"call: its name"},` +
	`"arguments":{"type":"object","description":"call: what the tool takes"},` +
	`"tools":{"type":"array","items":{"type":"string"},"description":"expand, collapse: names"}}}`

// AlwaysLoad is a member of definitions that keeps a tool in sight of the model of a
// client that hides tools behind a search of its own.
const AlwaysLoad = `"_meta":{"anthropic/alwaysLoad":true}`

// definition is that of a group's stub. It is written for a model that has never seen one:
// when to use it, what is behind it, and the two calls that do the work. It names all
// services, or as many as have room in maxStub tokens; count counts them.
func definition(group, stub string, services []string, count func([]byte) int) []byte {
	names := unique(services)
	if len(names) == 1 {
		return stubOf(group, stub, len(services), "")
	}
	whole := strings.Join(names, ", ")
	b := stubOf(group, stub, len(services), whole)
	if len(whole) <= fewNames || count(b) <= maxStub {
		return b
	}
	n := sort.Search(len(names), func(n int) bool {
		return count(stubOf(group, stub, len(services), some(names, n))) > maxStub
	})
	return stubOf(group, stub, len(services), some(names, n-1))
}

// some is the first n of the names, and how many more there are.
func some(names []string, n int) string {
	return strings.Join(append(slices.Clone(names[:max(n, 0)]), fmt.Sprintf("%d more", len(names)-max(n, 0))), ", ")
}

func stubOf(group, stub string, tools int, services string) []byte {
	what := plural(tools, group+" tool")
	if group == FoldGroup {
		what = plural(tools, "more tool")
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

// unique returns the words once each, sorted.
func unique(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }

// An ask is what a stub is asked.
type ask struct {
	action    string
	service   string
	query     string
	limit     int
	tools     []string
	tool      string
	arguments []byte // an object; nil means none
	lists     bool   // the client's list grows by what is expanded
}

// members says which members each action but call takes; the first is required, and of
// two that are joined by | just one.
var members = map[string][]string{
	actionList:     {"", "service"},
	actionSearch:   {"query", "limit"},
	actionExpand:   {"tools|service"},
	actionCollapse: {"tools|service"},
}

// examples show a model how each action is asked for.
var examples = map[string]string{
	actionList:     `{"action":"list"}`,
	actionSearch:   `{"action":"search","query":"what the tool should do"}`,
	actionExpand:   `{"action":"expand","tools":["NAME"]}`,
	actionCall:     `{"action":"call","tool":"NAME","arguments":{}}`,
	actionCollapse: `{"action":"collapse","tools":["NAME"]}`,
}

// A given member of what a stub is asked, and its value.
type given struct {
	name string
	raw  []byte
}

// parse reads a stub's arguments. It takes what has one meaning, however it is written,
// and refuses the rest with what to write instead. args were scanned as part of their
// message. takes returns the definition of a member of the group, nil where there is none.
func parse(args []byte, takes func(tool string) []byte) (a ask, err error) {
	var all []given
	has := map[string][]byte{}
	for name, raw := range wire.Members(args) {
		all = append(all, given{name, raw})
		has[name] = raw
	}
	switch raw, said := has["action"]; {
	case said:
		text, ok := wire.String(raw)
		if !ok {
			return a, bad("\"action\" must be %s, such as %s", kinds["action"], examples[actionList])
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
		return a, bad("say which action: %s or %s", examples[actionExpand], examples[actionCollapse])
	default:
		a.action = actionList
	}
	switch _, ok := examples[a.action]; {
	case !ok:
		return a, bad("there is no action %q: there are list, search, expand, call and collapse, such as %s", short(a.action), examples[actionSearch])
	case a.action == actionCall:
		return a, a.takeCall(all, has, takes)
	}
	return a, a.takeOther(all)
}

// takeCall reads the tool and its arguments: as an object, as the text of one, or beside
// the tool.
func (a *ask) takeCall(all []given, has map[string][]byte, takes func(tool string) []byte) error {
	own := []string{"action", "tool"}
	if a.tool == "" {
		from := "tool"
		if has["tool"] == nil {
			from = "tools"
		}
		names, ok := words(has[from])
		if !ok || len(names) != 1 {
			return bad("action call takes one tool, such as %s", examples[actionCall])
		}
		a.tool = names[0]
		own = append(own, from)
	}
	var beside []given
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
		return bad("put %q into \"arguments\", beside what the tool takes besides: %s", short(beside[0].name), examples[actionCall])
	case said:
		text, isText := wire.String(raw)
		if isText && strings.TrimSpace(text) == "" || string(raw) == "null" {
			return nil
		}
		if isText {
			raw = []byte(strings.TrimSpace(text))
		}
		if len(raw) == 0 || raw[0] != '{' || isText && !wire.Strict(raw) {
			return bad("\"arguments\" must be %s, such as %s", kinds["arguments"], examples[actionCall])
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

// declares reports whether the tool's schema has an argument of that name.
func declares(definition []byte, name string) bool {
	schema, _ := wire.Field(definition, "inputSchema")
	properties, _ := wire.Field(schema, "properties")
	_, ok := wire.Field(properties, name)
	return ok
}

// takeOther reads what the actions but call take.
func (a *ask) takeOther(all []given) error {
	takes := members[a.action]
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
			return bad("action %s does not take %q; write %s", a.action, short(m.name), examples[a.action])
		case name == "service":
			a.service, ok = wire.String(m.raw)
		case name == "query":
			a.query, ok = wire.String(m.raw)
		case name == "limit":
			a.limit, ok = count(m.raw)
		case name == "tools":
			a.tools, ok = words(m.raw)
		}
		if !ok {
			return bad("%q must be %s, such as %s", name, kinds[name], examples[a.action])
		}
		if slices.Contains(required, name) {
			n++
		}
	}
	switch {
	case takes[0] != "" && n != 1:
		return bad("action %s takes %s, such as %s", a.action, strings.ReplaceAll(takes[0], "|", " or "), examples[a.action])
	case len(a.query) > maxQuery:
		return bad("the query is longer than %d bytes; a few words find more", maxQuery)
	case a.action == actionSearch && strings.TrimSpace(a.query) == "":
		return bad("the query is empty; say what the tool should do: %s", examples[actionSearch])
	case len(a.tools) > maxTools:
		return bad("%d tools are more than the %d that one action takes", len(a.tools), maxTools)
	}
	return nil
}

// count reads a whole number above 0, also as text.
func count(raw []byte) (n int, ok bool) {
	if text, isText := wire.String(raw); isText {
		raw = []byte(text)
	}
	n, err := strconv.Atoi(string(raw))
	return n, err == nil && n > 0
}

// kinds are what the arguments must be.
var kinds = map[string]string{
	"action": "a string", "service": "a string", "query": "a string", "tool": "a string", "limit": "a whole number above 0",
	"tools": "a list of at least one name", "arguments": "an object",
}

// words reads a list of strings; a single string is taken for a list of one.
func words(raw []byte) (out []string, ok bool) {
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
			break // it is refused for that
		}
	}
	return out, len(out) > 0
}

// bad refuses arguments that a stub does not take.
func bad(format string, args ...any) error {
	return switchboard.Refuse(switchboard.CodeBadArguments, format, args...)
}

// short cuts what is repeated to whoever sent it.
func short(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}
