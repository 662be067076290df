package connect

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/document"
)

// Clients have rules about a server outside its entry: it is switched off, or a tool of it is denied or needs approval. The rules name the server,
// or its tools by names that begin with the server's. For our entry they would not hold, so such a server stays.

// A settingsReader returns the values of a client's settings file, or nil if there is none.
type settingsReader func(file string) (map[string]any, error)

// heldBack returns why the client's rules keep a server where it is, or "".
func (p *Plan) heldBack(s *Server) string {
	c := p.options.Client
	if c.dialect.rules == nil {
		return ""
	}
	read := func(file string) (map[string]any, error) {
		t := p.text(file)
		if t.err != nil || t.text == nil {
			return nil, t.err
		}
		return clientfile.Values(file, t.text, c.form)
	}
	why, err := c.dialect.rules(p.options.Host, read, s)
	if err != nil {
		return "its client may have rules for it in a file that cannot be read: " + errorText(err)
	}
	return why
}

// notToolName matches the characters that clients replace by _ in the names of tools.
var notToolName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// toolPrefix returns a server's name as it stands in the names of its tools.
func toolPrefix(server string) string { return notToolName.ReplaceAllString(server, "_") }

// at returns the value at the keys, or nil.
func at(values map[string]any, keys ...string) any {
	var v any = values
	for _, k := range keys {
		o, _ := v.(map[string]any)
		v = o[k]
	}
	return v
}

// texts returns the texts in a list.
func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// claudeRules finds the rules of Claude Code about a server: folders in which it is switched off, and permissions and hooks in the settings of the
// user and of this folder.
func claudeRules(h *Host, read settingsReader, s *Server) (string, error) {
	user := h.join(h.Home, ".claude")
	if dir := h.env("CLAUDE_CONFIG_DIR"); dir != "" {
		user = dir
	}
	if s.Place.Scope != ScopeProject {
		values, err := read(s.Place.File)
		if err != nil {
			return "", err
		}
		projects, _ := values["projects"].(map[string]any)
		for _, folder := range slices.Sorted(mapKeys(projects)) {
			if o, _ := projects[folder].(map[string]any); slices.Contains(texts(o["disabledMcpServers"]), s.Name) && (s.Place.Scope == ScopeUser || s.Place.Section[1] == folder) {
				return fmt.Sprintf("it is switched off in %s", document.Shown(folder)), nil
			}
		}
	}
	files := []string{h.join(user, "settings.json")}
	for _, dir := range slices.Compact([]string{h.Dir, repositoryOf(h.Dir)}) {
		files = append(files, h.join(dir, ".claude", "settings.json"), h.join(dir, ".claude", "settings.local.json"))
	}
	for _, file := range files {
		values, err := read(file)
		if err != nil {
			return "", err
		}
		base := filepath.Base(strings.ReplaceAll(file, `\`, "/"))
		if slices.Contains(texts(values["disabledMcpjsonServers"]), s.Name) && s.Place.Scope == ScopeProject {
			return "it is switched off (disabledMcpjsonServers in " + base + ")", nil
		}
		if list, _ := values["deniedMcpServers"].([]any); slices.ContainsFunc(list, func(v any) bool {
			o, _ := v.(map[string]any)
			return o["serverName"] == s.Name
		}) {
			return "it is switched off (deniedMcpServers in " + base + ")", nil
		}
		tools := "mcp__" + toolPrefix(s.Name)
		named := func(rule string) bool {
			rest, ok := strings.CutPrefix(rule, tools)
			return ok && (rest == "" || strings.HasPrefix(rest, "__"))
		}
		for _, kind := range []string{"deny", "ask"} {
			if i := slices.IndexFunc(texts(at(values, "permissions", kind)), named); i >= 0 {
				return fmt.Sprintf("%s has the rule %s %s, which would not hold any more", base, kind, document.Shown(texts(at(values, "permissions", kind))[i])), nil
			}
		}
		hooks, _ := values["hooks"].(map[string]any)
		for _, event := range slices.Sorted(mapKeys(hooks)) {
			list, _ := hooks[event].([]any)
			for _, v := range list {
				o, _ := v.(map[string]any)
				if matcher, _ := o["matcher"].(string); strings.Contains(matcher, tools+"__") || matcher == tools {
					return fmt.Sprintf("%s has a hook for its tools (%s), which would not run any more", base, document.Shown(matcher)), nil
				}
			}
		}
	}
	return "", nil
}

// geminiRules finds the lists of Gemini CLI that switch a server or its tools off.
func geminiRules(h *Host, read settingsReader, s *Server) (string, error) {
	for _, place := range geminiPlaces(h) {
		values, err := read(place.File)
		if err != nil {
			return "", err
		}
		for _, keys := range [][]string{{"mcp", "allowed"}, {"allowMCPServers"}} {
			if list, ok := at(values, keys...).([]any); ok && !slices.Contains(texts(list), s.Name) {
				return fmt.Sprintf("it is switched off: %s does not name it", strings.Join(keys, ".")), nil
			}
		}
		for _, keys := range [][]string{{"mcp", "excluded"}, {"excludeMCPServers"}} {
			if slices.Contains(texts(at(values, keys...)), s.Name) {
				return fmt.Sprintf("it is switched off: %s names it", strings.Join(keys, ".")), nil
			}
		}
		for _, keys := range [][]string{{"tools", "exclude"}, {"excludeTools"}} {
			for _, rule := range texts(at(values, keys...)) {
				if strings.HasPrefix(rule, s.Name+"__") || strings.HasPrefix(rule, "mcp_"+s.Name+"_") {
					return fmt.Sprintf("%s holds back %s, which would not hold any more", strings.Join(keys, "."), document.Shown(rule)), nil
				}
			}
		}
	}
	return "", nil
}

// opencodeRules finds the rules of opencode about a server's tools: for all work, and for each agent.
func opencodeRules(h *Host, read settingsReader, s *Server) (string, error) {
	tools := toolPrefix(s.Name) + "_"
	// A pattern such as "*" holds for our entry too.
	names := func(pattern string) bool {
		fixed, _, wild := strings.Cut(pattern, "*")
		return strings.HasPrefix(fixed, tools) || wild && fixed != "" && strings.HasPrefix(tools, fixed) || pattern == toolPrefix(s.Name)
	}
	find := func(values map[string]any, path string) string {
		for _, kind := range []string{"tools", "permission"} {
			rules, _ := values[kind].(map[string]any)
			for _, pattern := range slices.Sorted(mapKeys(rules)) {
				if rule := rules[pattern]; names(pattern) && rule != true && rule != "allow" {
					return fmt.Sprintf("%s%s has the rule %s for its tools, which would not hold any more", path, kind, document.Shown(pattern))
				}
			}
		}
		return ""
	}
	for _, place := range distinctPlaces(opencodePlaces(h)) {
		values, err := read(place.File)
		if err != nil {
			return "", err
		}
		if why := find(values, ""); why != "" {
			return why, nil
		}
		for _, group := range []string{"agent", "mode"} {
			agents, _ := values[group].(map[string]any)
			for _, name := range slices.Sorted(mapKeys(agents)) {
				o, _ := agents[name].(map[string]any)
				if why := find(o, group+"."+name+"."); why != "" {
					return why, nil
				}
			}
		}
	}
	return "", nil
}
