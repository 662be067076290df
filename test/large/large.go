// Package large writes an installation as large as the admin side must be fast with: the folder of a configuration, and in its data folder a store with
// receipts and a full history of metrics.
//
// It decides what the installation holds. The receipts are written by receipt.Ledger, so their chain has an index and verifies, and a Switchboard that
// serves the folder continues the chain. What the servers do is left to the caller: all of them are at one address.
package large

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Installation says how large the installation is, and where its parts are.
type Installation struct {
	Servers  int
	Tools    int // of each server, at least 2
	Tenants  int
	Receipts int // the chain has at least as many

	Behind string // the address of the servers; each has its id as the path
	Admin  string // the admin address, HOST:PORT
}

// Keys open the installation.
type Keys struct {
	Operator string   `json:"operator"`
	Viewers  []string `json:"viewers"` // of the tenants, in order
	Agents   []string `json:"agents"`  // the first key of each tenant, in order
}

// Receipts that are few among many, and the oldest of the chain: a search finds them only if it looks at everything.
const (
	RarePrincipal = "agent-rare"
	RareCode      = switchboard.CodeOutcomeUnknown
	rareEach      = 100_000 // calls
)

const (
	agents      = 10 // keys of each tenant
	serversEach = 50 // of each tenant but the first, which has all servers
)

// ServerID returns the id of a server, from 0.
func ServerID(i int) string { return fmt.Sprintf("server-%03d", i) }

// TenantID returns the id of a tenant, from 0.
func TenantID(i int) string { return fmt.Sprintf("tenant-%03d", i) }

// ToolName returns the name of a tool of a server, both from 0. The first tool searches, the second one writes, and the others read.
func ToolName(server, tool int) string {
	things := []string{"invoice", "incident", "customer", "release", "shipment"}
	return fmt.Sprintf("%s_%s_%03d", []string{"find", "set", "read", "list"}[tool%4], things[tool/4%len(things)], server)
}

// Definitions returns the definitions of all tools of a server, as a JSON array.
func (i *Installation) Definitions(server int) []byte {
	all := make([]map[string]any, i.Tools)
	for tool := range all {
		says := map[string]any{"verb": "read", "resource": "fs", "constraints": []string{"readonly"}}
		switch tool {
		case 0:
			says = map[string]any{"verb": "search", "resource": "internet", "constraints": []string{"readonly"}}
		case 1:
			says = map[string]any{"verb": "write", "resource": "fs"}
		}
		all[tool] = map[string]any{
			"name": ToolName(server, tool), "title": fmt.Sprintf("Tool %d of %s", tool, ServerID(server)),
			"description": fmt.Sprintf("Works on the entries of department %d: it takes a filter and the number of entries, and answers with their fields, the newest first. Ask again with the cursor of the answer for the next ones. Entries that were archived before this year are left out unless the filter names them.", server),
			"inputSchema": map[string]any{"type": "object", "properties": map[string]any{
				"nonce":  map[string]any{"type": "string", "description": "Begins the answer."},
				"size":   map[string]any{"type": "integer", "minimum": 0, "description": "The length of the answer, in bytes."},
				"filter": map[string]any{"type": "string", "description": "Words that entries must have; a minus before a word excludes it."},
				"sort":   map[string]any{"type": "string", "enum": []string{"time", "name", "owner", "amount"}, "description": "The order of the entries."},
				"cursor": map[string]any{"type": "string", "description": "Where the answer before has ended."},
			}},
			"annotations": map[string]any{"readOnlyHint": tool != 1},
			"_meta":       map[string]any{"x-summit-capabilities": []any{says}},
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // these values can be encoded
	}
	return text
}

// UsedServers returns the servers of a tenant, both by their numbers.
func (i *Installation) UsedServers(tenant int) (all []int) {
	n := min(serversEach, i.Servers)
	if tenant == 0 {
		n = i.Servers
	}
	for k := range n {
		all = append(all, (tenant*5+k)%i.Servers)
	}
	return all
}

// WriteConfiguration writes the folder of the configuration.
func (i *Installation) WriteConfiguration(dir string) (*Keys, error) {
	k := &Keys{}
	files := map[string]string{}
	operator, hash := identity.Mint(identity.PersonPrefix)
	k.Operator = operator
	var main strings.Builder
	fmt.Fprintf(&main, "admin: {listen: %q}\noperators: [{key: ops, hash: %q}]\nservers:\n", i.Admin, hash)
	for s := range i.Servers {
		fmt.Fprintf(&main, "  %s: {transport: http, url: \"%s/%s\", trust: operator}\n", ServerID(s), i.Behind, ServerID(s))
	}
	main.WriteString("tenants:\n")
	for t := range i.Tenants {
		id := TenantID(t)
		var servers []string
		for _, s := range i.UsedServers(t) {
			servers = append(servers, ServerID(s))
		}
		fmt.Fprintf(&main, "  %s: {servers: [%s], allow: [by_name], offices: [admin, author, viewer]}\n", id, strings.Join(servers, ", "))
		viewer, hash := identity.Mint(identity.PersonPrefix)
		k.Viewers = append(k.Viewers, viewer)
		var text strings.Builder
		fmt.Fprintf(&text, "tenant: %s\ndefault_task: look\nlimits: [{match: {constraint: rate_limited}, rate: 1000000/s, burst: 1000000}]\n", id)
		text.WriteString("budgets: [{id: writes, match: {tool: [\"*/set_*\"]}, limit: {calls: 10000000}, window: 30d}]\n")
		fmt.Fprintf(&text, "members: [{key: vic, hash: %q, offices: [viewer]}]\nkeys:\n", hash)
		for a := range agents {
			key, hash := identity.Mint(identity.AgentPrefix)
			if a == 0 {
				k.Agents = append(k.Agents, key)
			}
			fmt.Fprintf(&text, "  - {id: agent-%d, hash: %q, tasks: [look, named]}\n", a, hash)
		}
		in := "tenants/" + id + "/"
		files[in+"tenant.yaml"] = text.String()
		files[in+"tasks/look.yaml"] = "task_id: look\nrequired_capabilities:\n  - {verb: search, resource: internet, constraints: [readonly]}\n  - {verb: write, resource: fs}\n"
		files[in+"tasks/named.yaml"] = "task_id: named\nrequired_capabilities:\n  - {tools: [\"" + servers[0] + "/*\"]}\n"
		files[in+"policies/own.rego"] = "package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n\n" +
			"deny[c.id] contains \"incidents are for people\" if {\n\tsome c in input.candidate_tools\n\tstartswith(c.id, \"" + servers[0] + "/set_incident\")\n}\n"
	}
	files["switchboard.yaml"] = main.String()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return k, nil
}
