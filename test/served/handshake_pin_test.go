package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// Servers of both eras end, and come back with another block in their handshake: first one that promises more, and then one that allows more. No task gets a tool by it before a
// person accepts the handshake by its digest.
func TestAServerThatReconnectsWithAWiderHandshakeGetsNoTaskByIt(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	resources := map[string]string{"legacy": "fs", "modern": "codebase"}
	handshake := func(id, constraints, more string) []string {
		block := fmt.Sprintf(`"experimental":{"x-summit-capabilities":{"tools":{"work-%s":[{"verb":"read","resource":"%s","constraints":[%s]}]%s}}}`, id, resources[id], constraints, more)
		args := []string{"block=" + block}
		for _, tool := range []string{"work-", "other-", "turn-"} {
			args = append(args, fmt.Sprintf(rig.Tool, tool+id))
		}
		return args
	}
	write := func(name string, args []string) {
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		rig.WriteFile(t, filepath.Join(files, name), string(text))
	}
	var rows []string
	archive := ""
	for id, resource := range resources {
		write(id+"-first", handshake(id, "", ""))
		args := []string{"args=" + filepath.Join(files, id+"-first"), "become=" + filepath.Join(files, id+"-next")}
		if id == "modern" {
			args = append(args, "modern")
		}
		rows = append(rows, rig.FakeRow(id, args...))
		for task, requirement := range map[string]string{"reads": "verb: read, resource: %s", "safely": "verb: read, resource: %s, constraints: [readonly]", "writes": "verb: write, resource: %s"} {
			archive += fmt.Sprintf("-- tenants/default/tasks/%s-%s.yaml --\ntask_id: %s-%s\nrequired_capabilities:\n  - {%s}\n", task, id, task, id, fmt.Sprintf(requirement, resource))
		}
	}
	dir := rig.LayOut(t, rig.Fakes(rows...)+archive)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	decisions := func(id string) string {
		var all []string
		for _, task := range []string{"reads", "safely", "writes"} {
			var x struct {
				Tools   []struct{ Name string }
				Refused string
			}
			text := g.Explain(t, "default", task+"-"+id, "")
			if err := json.Unmarshal([]byte(text), &x); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			got := "-"
			for _, tool := range x.Tools {
				if !strings.HasPrefix(tool.Name, "switchboard_") {
					got = strings.TrimSuffix(tool.Name, "-"+id)
				}
			}
			all = append(all, got)
		}
		return strings.Join(all, " ")
	}
	for _, step := range []struct {
		what   string
		next   func(id string) []string // nil: a person accepts
		states map[string]string        // the ID stands for that of the server
		want   string                   // who serves: reads, safely, writes
	}{
		{"at first sight", nil, map[string]string{}, "work - -"},
		{"with a promise", func(id string) []string { return handshake(id, `"readonly"`, "") }, map[string]string{"handshake ": frozenWords}, "work - -"},
		{
			"with one more capability", func(id string) []string {
				return handshake(id, "", fmt.Sprintf(`,"other-%s":[{"verb":"write","resource":"%s"}]`, id, resources[id]))
			}, map[string]string{"handshake ": suspendedFreer, "tool other-ID": "suspended"}, "work - -",
		},
		{"once a person has accepted it", nil, map[string]string{}, "work - other"},
	} {
		for id := range resources {
			switch {
			case step.next != nil:
				write(id+"-next", step.next(id))
				s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn-%s","arguments":{"do":"die"}}`, id))
			case strings.Contains(step.what, "person"):
				g.Accept(t, id, "handshake", "")
			}
			want := map[string]string{}
			for name, state := range step.states {
				want[strings.ReplaceAll(name, "ID", id)] = state
			}
			rig.Eventually(t, id+" "+step.what+": its states", func() string {
				rig.Call(t, s, "turn-"+id, `{}`) // starts it again
				return differences(statesOf(t, g, id), want)
			})
			if got := decisions(id); got != step.want {
				t.Errorf("%s %s: %s serve the tasks, want %s", id, step.what, got, step.want)
			}
		}
	}
	out, errs, code := rig.Command(t, dir, "pins", "diff", "legacy", "--kind", "handshake", "--url", g.URL)
	if code != 0 || !strings.Contains(out, "legacy is active") || !strings.Contains(out, `"other-legacy": [`) {
		t.Errorf("pins diff exits %d: %s%s", code, out, errs)
	}
}
