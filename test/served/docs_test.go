package served_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// blocks are the fenced YAML blocks of a page.
func blocks(t *testing.T, page string) (yaml []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "\n```") {
		if block, ok := strings.CutPrefix(part, "yaml\n"); ok && i%2 == 1 {
			yaml = append(yaml, block+"\n")
		}
	}
	return yaml
}

func TestTheREADMEsFirstTaskWorksAsWritten(t *testing.T) {
	t.Parallel()
	yaml := blocks(t, "README.md")
	if len(yaml) != 3 {
		t.Fatalf("README has %d blocks of YAML, and this test knows 3", len(yaml))
	}
	dir := rig.LayOut(t, `
-- switchboard.yaml --
servers:
  files: {transport: stdio, command: [FAKE, '{"name":"read_text_file","inputSchema":{"type":"object"}}', '{"name":"write_file","inputSchema":{"type":"object"}}']}
`+yaml[1]+`
-- overlays/files.yaml --
`+yaml[0]+`
-- tenants/default/tasks/review.yaml --
`+yaml[2])
	if out, errs, code := rig.Command(t, dir, "validate"); code != 0 {
		t.Errorf("validate: exit %d\n%s%s", code, out, errs)
	}
	out, errs, code := rig.Command(t, dir, "tools", "--task", "review")
	if code != 0 || !strings.Contains(out, "read_text_file") || strings.Contains(out, "write_file") {
		t.Errorf("tools: exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := rig.Command(t, dir, "explain", "review"); code != 0 || !strings.Contains(out, "selected  files/read_text_file") {
		t.Errorf("explain: exit %d\n%s%s", code, out, errs)
	}
}

func TestTheExamplesOfTheTaskPageAreGood(t *testing.T) {
	t.Parallel()
	yaml := blocks(t, "docs/tasks.md")
	if len(yaml) != 4 {
		t.Fatalf("docs/tasks.md has %d blocks of YAML, and this test knows 4", len(yaml))
	}
	dir := rig.LayOut(t, `
-- switchboard.yaml --
servers:
  github: {transport: stdio, command: [x], class: local_knowledge}
  brave: {transport: stdio, command: [x], class: paid_api}
  google: {transport: stdio, command: [x], class: free_api}
  beta-1: {transport: stdio, command: [x]}
tenants:
  acme: {servers: ["*"]}
-- taxonomy.yaml --
resources: {issues: {}}
-- tenants/acme/tasks/investigate.yaml --
`+yaml[0]+`
-- tenants/acme/tasks/operate.yaml --
`+yaml[1]+`
-- overlays/github.yaml --
`+yaml[2]+`
-- tenants/acme/tenant.yaml --
tenant: acme
`+yaml[3])
	if out, errs, code := rig.Command(t, dir, "validate", "--tenant", "acme"); code != 0 {
		t.Errorf("validate: exit %d\n%s%s", code, out, errs)
	}
}

// What a person sees by following docs/connect.md with a tenant of their own.
func TestThePagesNameCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	help, _, _ := rig.Command(t, t.TempDir(), "--help")
	for _, page := range []string{"README.md", "docs/connect.md", "docs/tasks.md", "docs/lazy.md", "docs/operate.md", "docs/errors/README.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			rest, ok := strings.CutPrefix(line, "    switchboard ")
			if !ok {
				continue
			}
			if word := strings.Fields(rest)[0]; !strings.Contains(help, "\n  "+word) {
				t.Errorf("%s: there is no command %q", page, word)
			}
		}
	}
}
