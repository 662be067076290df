package rig

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
)

// Tool is the format of a tool's definition; its one verb is the name.
const Tool = `{"name":"%s","inputSchema":{"type":"object"}}`

// Fakes returns a configuration of fake servers, one row each, with a task that has all their tools.
func Fakes(servers ...string) string {
	return `
-- switchboard.yaml --
start_deadline: 30s
servers:
  ` + strings.Join(servers, "\n  ") + `
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
`
}

// FakeRow returns the row of a fake server in switchboard.yaml, with the arguments of fakeserver.New.
func FakeRow(id string, args ...string) string {
	quoted, _ := json.Marshal(args)
	return fmt.Sprintf("%s: {transport: stdio, command: [FAKE, %s]}", id, strings.Trim(string(quoted), "[]"))
}

// ServeResult starts a server over HTTP with one tool, which always returns the same result.
func ServeResult(t *testing.T, tool, marks, result string) (url string) {
	t.Helper()
	f := fakeserver.New([]string{"marks=" + marks, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, tool)})
	f.Says = result
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL + "/mcp"
}
