package importer

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// toolLists are the keys that restrict the tools of a server, each with the setting of a tenant's policy that restricts them
// in Switchboard. A deny list names the tools that are held back. An allow list names the only tools that may be used.
var toolLists = map[string]string{
	"disabledTools": "deny", "disabled_tools": "deny", "excludeTools": "deny", "exclude_tools": "deny",
	"enabledTools": "allow", "enabled_tools": "allow", "includeTools": "allow", "include_tools": "allow",
	"allowedTools": "allow", "allowed_tools": "allow", "toolFilter": "allow",
	"tools": "allow", // of GitHub Copilot (docs.github.com, Extending Copilot coding agent with MCP)
}

// checkToolList records a fault at a key of toolLists if its list holds tools back. If the key was ignored, models would get
// more tools than the user wants, and the row of a server cannot restrict them.
func checkToolList(key document.Value, list document.Node) {
	name := key.Text
	setting := toolLists[name]
	isList := list.Kind == document.KindList
	switch {
	case list.Kind == document.KindNull: // as if the key was absent
	case setting == "deny" && isList && len(list.Items) == 0:
	case setting == "allow" && isList && slices.ContainsFunc(list.Items, isStar):
	case setting == "allow" && isList && len(list.Items) == 0:
		key.Fault(`%q is an empty list, which means no tool to some clients and every tool to others; remove it, or write "disabled": true`, name)
	default:
		key.Fault(`%q holds tools back, which the row of a server cannot; remove it, bring the server in with "switchboard import FILE", `+
			`and write policy: {%s: ["SERVER/TOOL"]} into tenants/default/tenant.yaml ("switchboard docs configuration#lists-of-tools" shows the files)`, name, setting)
	}
}

func isStar(item document.Node) bool { return item.Kind == document.KindText && item.Text == "*" }
