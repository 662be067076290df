package npm_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/test/npmlock"
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
