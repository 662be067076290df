package connect

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/document"
)

// An entryDialect says how a client's entries differ from those that package importer reads: an object with command, args, env, url and headers, and
// variables as ${NAME}.
type entryDialect struct {
	refused  map[string]string // keys with which an entry cannot be taken, and why
	literal  bool              // the client replaces no ${NAME}
	dollar   bool              // the client replaces $NAME too
	codex    bool              // variables are named by keys of their own
	opencode bool              // command is a list, variables are {env:NAME}
	// rules finds why the client holds a server back by a setting outside its entry, or is nil.
	rules func(h *Host, read settingsReader, s *Server) (why string, err error)

	signIn signInKeys // where an entry has the registration of its sign-in

	editor bool // it replaces ${workspaceFolder} and the like by the folder that is open
}

var (
	dollarName = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
	braceName  = regexp.MustCompile(`\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)
)

// translate returns the entry as package importer reads it. why says why it cannot be taken.
func (d *entryDialect) translate(e clientfile.Entry, p Location) (value json.RawMessage, why string) {
	if e.Fixed != "" {
		return nil, e.Fixed
	}
	var o map[string]any
	decode := json.NewDecoder(bytes.NewReader(e.Value))
	decode.UseNumber() // a number keeps its spelling
	if err := decode.Decode(&o); err != nil || o == nil {
		return nil, "it is no object"
	}
	var keys []string
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if reason, bad := d.refused[k]; bad && o[k] != nil && o[k] != false {
			return nil, reason
		}
	}
	if why := d.signIn.translate(o); why != "" {
		return nil, why
	}
	switch {
	case d.codex:
		why = translateCodex(o)
	case d.opencode:
		why = translateOpencode(o)
	}
	if why != "" {
		return nil, why
	}
	if d.literal && !d.codex && !d.opencode && mentions(o, "${") {
		return nil, "it holds ${…}, which the client hands over as it is, and Switchboard would replace"
	}
	if d.editor && p.own() && mentions(o, "${workspace") {
		return nil, "it depends on the folder that is open (${workspaceFolder})"
	}
	if d.dollar {
		o, _ = mapTexts(o, func(s string) string { return dollarName.ReplaceAllString(s, "$${$1}") }).(map[string]any)
	}
	if _, has := o["cwd"]; !has && o["command"] != nil && p.Dir != "" {
		o["cwd"] = p.Dir
	}
	value, err := marshal(o)
	if err != nil {
		return nil, err.Error()
	}
	return value, ""
}

// translateCodex rewrites an entry of Codex.
func translateCodex(o map[string]any) (why string) {
	if mentions(o, "${") {
		return "it holds ${…}, which Codex hands over as it is, and Switchboard would replace"
	}
	if token, ok := o["bearer_token_env_var"].(string); ok {
		if !document.IsVariableName(token) {
			return "bearer_token_env_var names no variable"
		}
		addTo(o, "headers", "Authorization", "Bearer ${"+token+"}")
	}
	if headers, ok := o["http_headers"].(map[string]any); ok {
		for name, v := range headers {
			addTo(o, "headers", name, v)
		}
	}
	if headers, ok := o["env_http_headers"].(map[string]any); ok {
		for name, v := range headers {
			variable, _ := v.(string)
			if !document.IsVariableName(variable) {
				return "env_http_headers names no variable"
			}
			addTo(o, "headers", name, "${"+variable+"}")
		}
	}
	names, _ := o["env_vars"].([]any)
	for _, v := range names {
		variable, ok := v.(string)
		if !ok || !document.IsVariableName(variable) {
			return "env_vars holds more than names of variables"
		}
		addTo(o, "env", variable, "${"+variable+"}")
	}
	for _, k := range []string{"bearer_token_env_var", "http_headers", "env_http_headers", "env_vars"} {
		delete(o, k)
	}
	return ""
}

// addTo sets a key in an object that is a member of o, unless the key exists.
func addTo(o map[string]any, member, key string, value any) {
	inner, ok := o[member].(map[string]any)
	if !ok {
		inner = map[string]any{}
		o[member] = inner
	}
	if _, has := inner[key]; !has {
		inner[key] = value
	}
}

// translateOpencode rewrites an entry of opencode.
func translateOpencode(o map[string]any) (why string) {
	switch {
	case mentions(o, "${"):
		return "it holds ${…}, which opencode hands over as it is, and Switchboard would replace"
	case mentions(o, "{file:"):
		return "it holds {file:…}, which only opencode reads"
	case o["type"] == nil:
		return "it only changes a server that stands elsewhere"
	}
	if words, ok := o["command"].([]any); ok && len(words) > 0 {
		o["command"], o["args"] = words[0], words[1:]
	}
	// It is the time limit for reading the list of tools, 5 seconds if absent (opencode.ai/docs/mcp-servers). As the limit of calls it would be too short.
	if limit, ok := o["timeout"]; ok {
		o["timeout for the list of tools"] = limit
		delete(o, "timeout")
	}
	if env, ok := o["environment"]; ok {
		o["env"] = env
		delete(o, "environment")
	}
	for _, k := range slices.Sorted(mapKeys(o)) {
		o[k] = mapTexts(o[k], func(s string) string { return braceName.ReplaceAllString(s, "$${$1}") })
	}
	return ""
}

func mapKeys(o map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range o {
			if !yield(k) {
				return
			}
		}
	}
}

// mentions reports whether a text in the value holds part.
func mentions(v any, part string) bool {
	found := false
	mapTexts(v, func(s string) string {
		found = found || strings.Contains(s, part)
		return s
	})
	return found
}

// mapTexts returns the value with each text replaced. Keys stay.
func mapTexts(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = mapTexts(v[i], f)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = mapTexts(v[k], f)
		}
		return out
	}
	return v
}

// ourEntry reports whether an entry starts Switchboard with a configuration that it names. It returns that configuration.
func ourEntry(e clientfile.Entry) (configuration string, ours bool) {
	o, ok := ownEntry(e, Location{})
	return o.Config, ok && o.Config != ""
}
