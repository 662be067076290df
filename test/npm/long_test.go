package npm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/test/npmlock"
)

const oneServer = `
-- switchboard.yaml --
servers:
  files: {transport: stdio, command: ["%s", "%s"]}
tenants: {example: {servers: ["*"], allow: [by_name], token_budget: 20000}}
-- tenants/example/tenant.yaml --
tenant: example
-- tenants/example/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
`

func TestFirstMinutes9AFileOfAMebibyteCostsAModelLittleAndNothingIsLost(t *testing.T) {
	t.Parallel() // it times nothing
	npmlock.Need(t, "an npm server that reads a large file")
	program, err := filepath.Abs("node_modules/.bin/mcp-server-filesystem")
	if err != nil {
		t.Fatal(err)
	}
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, "%d: the harbour master signs the log of the día\n", i)
	}
	whole, pixels := b.String(), strings.Repeat("\x89PNG\r\n\x1a\n", 20_000)
	for name, text := range map[string]string{"log.txt": whole, "chart.png": pixels} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := serve(t, layOut(t, fmt.Appendf(nil, oneServer, program, work)))
	counter, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	type content struct {
		Content []struct{ Type, Text, Data string }
	}
	read := func(t *testing.T, a answer) (c content) {
		t.Helper()
		if err := json.Unmarshal(a.result, &c); err != nil || len(c.Content) == 0 {
			t.Fatalf("%v: %.300s %s", err, a.result, a.err)
		}
		return c
	}
	for _, c := range []client{clients[0], clients[2]} {
		t.Run(c.name, func(t *testing.T) {
			ask := c.open(t, g, "all")
			a := ask(call("read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(work, "log.txt"))))
			text := read(t, a).Content[0].Text
			// The tool has an output schema: what that promises stays whole, for programs.
			if n := counter.Count([]byte(text)); n > 2000 || !strings.Contains(text, "Shape: text of") {
				t.Errorf("%d tokens: %.300s", n, text)
			}
			_, after, _ := strings.Cut(text, `"handle":"`)
			handle, _, _ := strings.Cut(after, `"`)
			var got strings.Builder
			for got.Len() < len(whole) {
				piece := read(t, ask(call("switchboard_read", fmt.Sprintf(`{"handle":%q,"range":"%d-%d"}`, handle, got.Len(), got.Len()+64<<10)))).Content[0].Text
				_, body, ok := strings.Cut(piece, "\n")
				if !ok {
					t.Fatalf("%.300s", piece)
				}
				got.WriteString(body)
			}
			if got.String() != whole {
				t.Error("what was read is not the file")
			}
			image := read(t, ask(call("read_media_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(work, "chart.png"))))).Content[0]
			if image.Type != "image" || len(image.Data) < len(pixels) {
				t.Errorf("an image: %s of %d bytes", image.Type, len(image.Data))
			}
		})
	}
}
