package npm_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/officer"
)

// openapiFile is the OpenAPI document of the admin API.
const openapiFile = "../../docs/openapi.json"

// nodeTool returns a command that runs a program of node_modules without asking the network for anything.
func nodeTool(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join("node_modules", script)}, args...)...)
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	return cmd
}

// The document is what a linter that is not ours takes for a good one. A copy with two defects is linted beside it, so that
// a linter that finds nothing anywhere fails the test.
func TestALinterOfOthersFindsNothingInTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	npmlock.Need(t, "the linter of the OpenAPI document")
	text, err := os.ReadFile(openapiFile)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	delete(doc["info"].(map[string]any), "license")
	doc["paths"].(map[string]any)["/v1/status"].(map[string]any)["get"].(map[string]any)["operationId"] = "read-server"
	defective, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "defective.json")
	if err := os.WriteFile(copied, defective, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := nodeTool(t, "@redocly/cli/bin/cli.js", "lint", "--config=testdata/redocly.yaml", "--format=json", "--max-problems=1000", openapiFile, copied)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output() // it exits with 1, for the copy
	found := map[string]bool{}
	reports := json.NewDecoder(bytes.NewReader(out)) // one for each document
	for range 2 {
		var report struct {
			Problems []struct {
				RuleID, Severity, Message string
				Location                  []struct {
					Source  struct{ Ref string }
					Pointer string
				}
			}
		}
		if e := reports.Decode(&report); e != nil {
			t.Fatalf("%v, %v\n%s%s", err, e, out, &errs)
		}
		for _, p := range report.Problems {
			if len(p.Location) > 0 && filepath.Base(p.Location[0].Source.Ref) == filepath.Base(copied) {
				found[p.RuleID] = true
				continue
			}
			t.Errorf("%s %s: %s %+v", p.Severity, p.RuleID, p.Message, p.Location)
		}
	}
	for _, rule := range []string{"info-license", "operation-operationId-unique"} {
		if !found[rule] {
			t.Errorf("the linter does not find the defect for %s: %v\n%s", rule, err, &errs)
		}
	}
}

// roundArchive is the configuration for the operator's round.
const roundArchive = `
-- switchboard.yaml --
servers:
  atlas:
    transport: stdio
    command: ["SWITCHBOARD", sample, atlas-search]
    class: local_knowledge
    trust: operator
operators: [{key: ops, hash: "HASH:ops"}]
tenants:
  acme: {servers: ["*"], allow: [by_name]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{id: alice, hash: "HASH:alice"}]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`

// A client that others generate from the document compiles, and does the operator's round with it: status, servers, explain,
// files, keys, receipts, metrics. The test takes 6 s of processor time, most of them for the TypeScript compiler.
func TestAGeneratedClientDoesTheOperatorsRound(t *testing.T) {
	t.Parallel()
	npmlock.Need(t, "the generated client of the admin API")
	text := strings.ReplaceAll(roundArchive, "SWITCHBOARD", switchboard(t))
	keys := map[string]string{}
	for who, prefix := range map[string]string{"ops": identity.PersonPrefix, "alice": identity.AgentPrefix} {
		key, hash := identity.Mint(prefix)
		keys[who], text = key, strings.ReplaceAll(text, "HASH:"+who, hash)
	}
	dir := layOut(t, []byte(text))
	g := serveAtOnce(t, dir)
	row, err := officer.Row(g.url, filepath.Join(dir, ".switchboard"))
	if err != nil {
		t.Fatal(err)
	}

	client := t.TempDir()
	if err := os.CopyFS(client, os.DirFS("testdata/round")); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(here, filepath.Join(client, "node_modules")); err != nil {
		t.Fatal(err)
	}
	run := func(cmd *exec.Cmd) string {
		t.Helper()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd.Args, err, out)
		}
		return string(out)
	}
	run(nodeTool(t, "openapi-typescript/bin/cli.js", openapiFile, "--output", filepath.Join(client, "api.d.ts")))
	run(nodeTool(t, "typescript/bin/tsc", "--project", client))
	round := exec.CommandContext(t.Context(), "node", "round.js")
	round.Dir = client
	round.Env = append(os.Environ(), "ADMIN_URL="+row.Admin, "ADMIN_KEY="+keys["ops"], "FILE=tenants/acme/tasks/all.yaml", "AGENT=alice")
	steps := strings.Split(strings.TrimSpace(run(round)), "\n")
	want := []string{
		"status", "servers", "disable", "repeat", "another request with its key", "disabled", "enable", "explain", "file", "dry run", "dry run with a fault", "without an entity tag", "change",
		"with the old entity tag", "history", "one change", "revert", "keys", "revoke", "receipts", "one receipt", "metrics",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("the round: %q, want %q", steps, want)
	}
}
