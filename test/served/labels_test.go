package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// labelledRead is a tool without labels, as its server offers it first.
const labelledRead = `{"name":"read_file","description":"Read a file of the disk.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`

// A person labels a tool, and a client gets it. Other words of its server keep the label. A freer definition ends it, also after a person has let it in, and a new label takes its place.
func TestALabelEndsWithTheDefinitionThatItWasGivenTo(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", labelledRead, turnTool)+"\ntenants: {default: {servers: [\"*\"], allow: [by_name]}}\n"+`-- tenants/default/tenant.yaml --
tenant: default
default_task: notes
-- tenants/default/tasks/notes.yaml --
task_id: notes
required_capabilities: [{tools: ["a/turn"]}, {verb: read, resource: fs, optional: true}]
`)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	lists := func(what, want, never string) {
		t.Helper()
		rig.Eventually(t, what, func() string {
			m, _ := s.Ask(t, "tools/list", "{}")
			list := string(m.Result)
			return rig.ReasonUnless(strings.Contains(list, "turn") && strings.Contains(list, want) && (never == "" || !strings.Contains(list, never)), list)
		})
	}
	run := func(args ...string) (out string, code int) {
		t.Helper()
		out, errs, code := rig.Command(t, dir, args...)
		return out + errs, code
	}
	offer := func(definition string) {
		t.Helper()
		for _, last := range []string{definition, turnTool} { // each takes the place of the first one
			s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn","arguments":{"do":"replace","bytes":%q}}`, last))
		}
	}
	letIn := func() {
		t.Helper()
		var digest string
		rig.Eventually(t, "the change can be looked at", func() string {
			out, _ := run("pins", "diff", "a/read_file")
			if m := regexp.MustCompile(`--digest (d1:[0-9a-f]{64})`).FindStringSubmatch(out); m != nil {
				digest = m[1]
			}
			return rig.ReasonUnless(digest != "", out)
		})
		if out, code := run("pins", "accept", "a/read_file", "--digest", digest); code != 0 {
			t.Fatalf("exit %d: %s", code, out)
		}
	}
	status := func(what, want string) {
		t.Helper()
		rig.Eventually(t, what, func() string {
			out, _ := run("status")
			return rig.ReasonUnless(strings.Contains(out, want), out)
		})
	}
	overlay := filepath.Join(dir, "overlays", "a.yaml")

	lists("the tool without a label is not listed", "turn", "read_file")
	if out, code := run("annotate", "a"); code != 0 || !strings.Contains(out, "read_file  read fs [readonly]") {
		t.Fatalf("exit %d: %s", code, out)
	}
	lists("a suggestion changes nothing", "turn", "read_file")
	if out, code := run("annotate", "--accept", "a", "read_file"); code != 0 || !strings.Contains(rig.ReadFile(t, overlay), `for: "sha256:`) {
		t.Fatalf("exit %d: %s", code, out)
	}
	lists("the labelled tool is listed", "read_file", "")

	words := strings.Replace(labelledRead, "Read a file", "Read one file", 1)
	offer(words)
	letIn()
	lists("other words, which a person has let in, keep the label", "Read one file", "")
	if out, _ := run("status"); strings.Contains(out, "labels") {
		t.Errorf("a label has ended by words: %s", out)
	}

	freer := strings.Replace(words, `"readOnlyHint":true`, `"readOnlyHint":false`, 1)
	offer(freer)
	lists("a freer definition takes the tool out", "turn", "read_file")
	status("while it is offered, the label is about to end", "its labels end: its server offers a definition that is freer")
	offer(words)
	lists("the admitted definition brings it back", "Read one file", "")
	offer(freer)
	letIn()
	status("let in, the definition has no label", "its labels have ended: they were given to another definition (sha256:")
	lists("the tool stays out", "turn", "read_file")
	if m, _ := s.Ask(t, "tools/call", `{"name":"read_file","arguments":{"path":"x"}}`); strings.Contains(string(m.Raw), `"text":"work`) || !strings.Contains(string(m.Raw), "SB-") && !strings.Contains(string(m.Raw), "error") {
		t.Errorf("it is called still: %s", m.Raw)
	}

	// The API lists it again, with the reason, and replaces the row for exactly the definition that was looked at.
	var open struct {
		Suggestions []struct {
			Tool, Digest string
			LabelEnd     string `json:"label_end"`
		}
	}
	a := g.AskAdmin(t, "", http.MethodGet, "/v1/suggestions?server=a", "")
	if err := json.Unmarshal([]byte(a.Body), &open); err != nil || len(open.Suggestions) != 2 || open.Suggestions[0].Tool == "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	digest := ""
	for _, one := range open.Suggestions {
		if one.Tool == "read_file" && strings.Contains(one.LabelEnd, "have ended") {
			digest = one.Digest
		}
	}
	accept := func(digest, rest string) rig.Answer {
		return g.AskAdmin(t, "", http.MethodPost, "/v1/suggestions/accept", fmt.Sprintf(`{"server":"a","reason":"looked at it","rows":[{"tool":"read_file","digest":%q%s}]}`, digest, rest))
	}
	before := rig.ReadFile(t, overlay)
	for _, bad := range []struct {
		digest, rest string
		status       int
		code         string
	}{
		{"sha256:" + strings.Repeat("0", 64), "", http.StatusPreconditionFailed, "SB-CONF-002"},
		{digest, `,"overlay":{"capabilities":[{"verb":"read","resource":"nothing"}]}`, http.StatusUnprocessableEntity, "SB-CONF-001"},
		{digest, `},{"tool":"read_file","digest":"` + digest + `"`, http.StatusBadRequest, "twice"},
		{digest, `},{"tool":"nosuch","digest":"` + digest + `"`, http.StatusPreconditionFailed, "SB-CONF-002"},
	} {
		if a := accept(bad.digest, bad.rest); a.Status != bad.status || !strings.Contains(a.Body, bad.code) || rig.ReadFile(t, overlay) != before {
			t.Errorf("%s is answered %d %s", bad.rest, a.Status, a.Body)
		}
	}
	if a := accept(digest, `,"overlay":{"capabilities":[{"verb":"read","resource":"fs"}]}`); a.Status != http.StatusOK || !strings.Contains(a.Body, `"path":"overlays/a.yaml"`) {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	lists("the new label counts", "read_file", "")
	if text := rig.ReadFile(t, overlay); strings.Count(text, "read_file") != 1 || !strings.Contains(text, digest) {
		t.Errorf("the overlay is\n%s", text)
	}
	if out, code := run("config", "history"); code != 0 || !strings.Contains(out, "overlays/a.yaml") {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, check := range [][]string{{"receipts", "verify"}, {"receipts", "replay", "--since", "1h"}} { // the decisions before and after the end are made again from what was recorded
		if out, code := run(check...); code != 0 {
			t.Errorf("%s: exit %d: %s", check, code, out)
		}
	}
}
