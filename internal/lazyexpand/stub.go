package lazyexpand

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// Bounds of what a stub is asked, and of what it answers.
const (
	maxTools    = 100 // that one expansion names
	maxQuery    = 1000
	maxFound    = 20
	usualFound  = 5
	maxRows     = 60 // of a list, with a line for each tool
	maxNames    = 400
	maxLine     = 100 // of a tool's description, in characters
	maxServices = 5   // that a stub's description names
)

// stubSchema is what every stub takes.
const stubSchema = `{"type":"object","properties":{` +
	`"action":{"type":"string","enum":["list","search","expand","call","collapse"]},` +
	`"service":{"type":"string"},"query":{"type":"string"},"limit":{"type":"integer"},` +
	`"tools":{"type":"array","items":{"type":"string"}},` +
	`"tool":{"type":"string"},"arguments":{"type":"object"}},` +
	`"required":["action"],"additionalProperties":false}`

// definition is that of a group's stub. It is written for models: what is behind
// it, and how to get there in two steps.
func definition(group, stub string, services []string) []byte {
	names := unique(services)
	what := plural(len(services), group+" tool")
	if group == FoldGroup {
		what = plural(len(services), "tool")
	}
	if len(names) > 1 {
		more := ""
		if n := len(names) - maxServices; n > 0 {
			names, more = names[:maxServices], fmt.Sprintf(", %d more", n)
		}
		what += ": " + strings.Join(names, ", ") + more
	}
	text := what + `. search or list, then call or expand.`
	b := wire.AppendString([]byte(`{"name":`), stub)
	b = wire.AppendString(append(b, `,"description":`...), text)
	b = append(b, `,"inputSchema":`...)
	return append(append(b, stubSchema...), '}')
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
}

// members says which members each action takes; the first is required, and of two
// that are joined by | just one.
var members = map[string][]string{
	actionList:     {"", "service"},
	actionSearch:   {"query", "limit"},
	actionExpand:   {"tools|service"},
	actionCall:     {"tool", "arguments"},
	actionCollapse: {"tools|service"},
}

// examples show a model how each action is asked for.
var examples = map[string]string{
	actionList:     `{"action":"list"}`,
	actionSearch:   `{"action":"search","query":"what the tool is to do"}`,
	actionExpand:   `{"action":"expand","tools":["NAME"]}`,
	actionCall:     `{"action":"call","tool":"NAME","arguments":{}}`,
	actionCollapse: `{"action":"collapse","tools":["NAME"]}`,
}

// parse reads a stub's arguments, strictly: what it does not know it refuses, with
// what to write instead. args were scanned as part of their message.
func parse(args []byte) (a ask, err error) {
	given := map[string]bool{}
	for name, raw := range wire.Members(args) {
		var ok bool
		switch name {
		case "action":
			a.action, ok = wire.String(raw)
		case "service":
			a.service, ok = wire.String(raw)
		case "query":
			a.query, ok = wire.String(raw)
		case "limit":
			n, err := strconv.Atoi(string(raw))
			a.limit, ok = n, err == nil && n > 0
		case "tool":
			a.tool, ok = wire.String(raw)
		case "tools":
			a.tools, ok = words(raw)
		case "arguments":
			a.arguments, ok = raw, len(raw) > 0 && raw[0] == '{'
		default:
			return a, bad("%q is not an argument here: there are action, service, query, limit, tools, tool and arguments", short(name))
		}
		if !ok {
			return a, bad("%q must be %s", name, kinds[name])
		}
		given[name] = true
	}
	takes, ok := members[a.action]
	switch {
	case a.action == "":
		return a, bad("say which action: list, search, expand, call or collapse, such as %s", examples[actionList])
	case !ok:
		return a, bad("there is no action %q: there are list, search, expand, call and collapse", short(a.action))
	}
	required := strings.Split(takes[0], "|")
	n := 0
	for _, name := range required {
		if given[name] {
			n++
		}
	}
	if takes[0] != "" && n != 1 {
		return a, bad("action %s takes %s, such as %s", a.action, strings.ReplaceAll(takes[0], "|", " or "), examples[a.action])
	}
	for name := range given {
		if name != "action" && !slices.Contains(required, name) && !slices.Contains(takes[1:], name) {
			return a, bad("action %s does not take %q; write %s", a.action, name, examples[a.action])
		}
	}
	switch {
	case len(a.query) > maxQuery:
		return a, bad("the query is longer than %d bytes; a few words find more", maxQuery)
	case given["query"] && strings.TrimSpace(a.query) == "":
		return a, bad("the query is empty; say what the tool is to do")
	case len(a.tools) > maxTools:
		return a, bad("%d tools are more than the %d that one action takes", len(a.tools), maxTools)
	}
	return a, nil
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
