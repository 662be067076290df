package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// Two servers write the number of their build into each definition, and count it up with each list. The operator says so of one of them: its tool is not frozen, its words still
// are, and after the setting is gone nothing that was let in is frozen for that. No client sees a number that was not let in.
func TestAMemberThatChangesAllTheTimeFreezesOnlyWhereTheOperatorDoesNotNameIt(t *testing.T) {
	t.Parallel()
	const key = "example.com/number-of-the-build-that-has-written-this-definition"
	const tool = `{"name":"work-ID","description":"WORDS","inputSchema":{"type":"object"},"_meta":{"note":"n","` + key + `":NUMBER}}`
	files := t.TempDir()
	list := func(id, words, number string, more ...string) []string {
		d := strings.NewReplacer("ID", id, "WORDS", words, "NUMBER", number).Replace(tool)
		return append([]string{d, fmt.Sprintf(rig.Tool, "turn-"+id)}, more...)
	}
	offers := func(name, id string, args []string) string {
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(files, name+"-"+id)
		rig.WriteFile(t, file, string(text))
		return file
	}
	row := func(id string) string {
		return rig.FakeRow(id, "args="+offers("first", id, list(id, "works", "1")), "become="+filepath.Join(files, "now-"+id))
	}
	plain := rig.Fakes(strings.Replace(row("named"), "{transport", "{admission: {volatile: ["+key+"]}, transport", 1), row("silent"))
	dir := rig.LayOut(t, plain)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	listed := func() string {
		m, _ := s.Ask(t, "tools/list", "")
		return string(m.Result)
	}
	first := listed()
	if !strings.Contains(first, `"name":"work-named"`) || strings.Count(first, `"`+key+`":1`) != 1 || strings.Count(first, `"note":"n"`) != 2 {
		t.Fatalf("at first, the client sees %s", first)
	}
	change := func(words, number string, want map[string]string) {
		t.Helper()
		for id, state := range want {
			late := fmt.Sprintf(rig.Tool, "late-"+number+"-"+id) // shows that the list has arrived
			file := offers("next", id, list(id, words, number, late))
			s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn-%s","arguments":{"do":"become","bytes":%q}}`, id, file))
			rig.Eventually(t, id+" has offered build "+number, func() string {
				states := statesOf(t, g, id)
				return rig.ReasonUnless(states["tool late-"+number+"-"+id] == "testing" && states["tool work-"+id] == state, fmt.Sprint(states))
			})
		}
		if is := listed(); is != first {
			t.Errorf("after build %s, the client sees %s", number, is)
		}
	}
	change("works", "2", map[string]string{"named": "", "silent": frozenWords})
	change("EVIL", "3", map[string]string{"named": frozenWords, "silent": frozenWords})
	change("works", "4", map[string]string{"named": "", "silent": frozenWords})
	change("works well", "5", map[string]string{"named": frozenWords})
	g.Accept(t, "named", "tool", "work-named")
	rig.Eventually(t, "what a person accepts is shown without the number", func() string {
		is := listed()
		return rig.ReasonUnless(strings.Contains(is, "works well") && strings.Count(is, key) == 1, is)
	})
	if lock := rig.ReadFile(t, filepath.Join(dir, "admitted.lock")); !strings.Contains(lock, " d2:"+key+":") {
		t.Errorf("admitted.lock is %s", lock)
	}
	first = listed()
	change("works well", "6", map[string]string{"named": ""})

	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), strings.Replace(rig.ReadFile(t, filepath.Join(dir, "switchboard.yaml")), "admission: {volatile: ["+key+"]}, ", "", 1))
	g.Reload(t)
	change("works well", "7", map[string]string{"named": ""})
	change("works", "8", map[string]string{"silent": frozenWords})
	g.Accept(t, "silent", "tool", "work-silent")
	rig.Eventually(t, "what a person accepts is shown whole", func() string { return rig.ReasonUnless(strings.Contains(listed(), `"`+key+`":8`), listed()) })
}
