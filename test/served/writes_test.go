package served_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// configuredFiles returns the texts of all files of a configuration, by their paths.
func configuredFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".switchboard":
			return fs.SkipDir
		case !d.IsDir():
			all[strings.TrimPrefix(path, dir)] = rig.ReadFile(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// patched returns a text after a unified difference, which has its hunks in order.
func patched(t *testing.T, text, difference string) string {
	t.Helper()
	var out []string
	rest := strings.SplitAfter(text, "\n")
	_, hunks, ok := strings.Cut(difference, "\n@@ ")
	if !ok {
		t.Fatalf("this is no difference: %q", difference)
	}
	taken := 0 // of the old lines
	for hunk := range strings.SplitSeq(hunks, "\n@@ ") {
		head, lines, _ := strings.Cut(hunk, "\n")
		var from, length int
		if _, err := fmt.Sscanf(head, "-%d,%d ", &from, &length); err != nil {
			t.Fatalf("%v: %q", err, head)
		}
		for length > 0 && taken < from-1 {
			out, taken, rest = append(out, rest[0]), taken+1, rest[1:]
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(lines, "\n"), "\n") {
			switch sign, own := line[0], line[1:]+"\n"; {
			case sign == '+':
				out = append(out, own)
			case len(rest) == 0 || rest[0] != own:
				t.Fatalf("the difference does not fit: %q, and the file has %q", line, rest)
			default:
				if sign == ' ' {
					out = append(out, own)
				}
				taken, rest = taken+1, rest[1:]
			}
		}
	}
	return strings.Join(append(out, rest...), "")
}

// With a shared store, files come from elsewhere. So each replica answers each change with the difference and writes nothing; what the difference makes
// of the files is served by all, once it is rolled out.
func TestThreeReplicasAnswerEachChangeWithTheDifferenceAndWriteNothing(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	all, _ := replicate(t, dir, 3)
	before := map[*rig.Gateway]map[string]string{}
	for _, g := range all {
		before[g] = configuredFiles(t, g.Dir)
	}
	old := rig.ReadFile(t, filepath.Join(dir, allTask))
	const rest = "task_id: all\nrequired_capabilities:\n  - {tools: [\"a/none\"], optional: true}\n"
	const other = "tenants/acme/tasks/other.yaml"
	difference := func(what string, a rig.Answer) string {
		t.Helper()
		var p struct{ Code, Detail string }
		if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != http.StatusConflict || p.Code != "SB-CONF-003" {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
			return ""
		}
		_, text, _ := strings.Cut(p.Detail, "roll this difference out:\n")
		return text
	}
	for i, g := range all {
		etag := g.AskAdmin(t, keys["admin"], "GET", changePath(allTask), "").Header.Get("ETag")
		for _, tt := range []struct {
			name, method, file, body string
			header                   []string
			before, after            string
		}{
			{"another text", "PUT", allTask, textBody(t, rest), []string{"If-Match", etag}, old, rest},
			{"with an idempotency key", "PUT", allTask, textBody(t, rest), []string{"If-Match", etag, "Idempotency-Key", "k"}, old, rest},
			{"one part", "PATCH", allTask, `{"edits":[{"at":"/token_budget","value":5000}]}`, []string{"If-Match", etag}, old, old + "token_budget: 5000\n"},
			{"a new file", "PUT", other, textBody(t, "task_id: other\n"+strings.TrimPrefix(rest, "task_id: all\n")), []string{"If-None-Match", "*"}, "", "task_id: other\n" + strings.TrimPrefix(rest, "task_id: all\n")},
		} {
			text := difference(fmt.Sprintf("replica %d, %s", i, tt.name), g.AskAdmin(t, keys["admin"], tt.method, changePath(tt.file), tt.body, tt.header...))
			if got := patched(t, tt.before, text); got != tt.after {
				t.Errorf("replica %d, %s: the difference makes\n%s\nwant\n%s", i, tt.name, got, tt.after)
			}
		}
		file := filepath.Join(t.TempDir(), "new.yaml")
		rig.WriteFile(t, file, rest)
		if out, errs, code := rig.CommandAs(t, g.Dir, keys["admin"], "config", "put", allTask, file, "--url", g.AdminURL()); code != 1 || !strings.Contains(out+errs, "SB-CONF-003") || !strings.Contains(out+errs, `+  - {tools: ["a/none"], optional: true}`) {
			t.Errorf("replica %d, by the command: exit %d\n%s%s", i, code, out, errs)
		}
	}
	lists := func(g *rig.Gateway) []string {
		t.Helper()
		return rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]))
	}
	for i, g := range all {
		if now := configuredFiles(t, g.Dir); !maps.Equal(now, before[g]) {
			t.Errorf("replica %d has written: %v, and had %v", i, now, before[g])
		}
		if got := changesOf(t, g); len(got) != 0 {
			t.Errorf("replica %d has changes in its history: %q", i, got)
		}
		if got := lists(g); !slices.Equal(got, []string{"work"}) {
			t.Errorf("replica %d lists %q", i, got)
		}
	}
	// Rolled out, it is served by all.
	for _, g := range all {
		rig.ReplaceFile(t, filepath.Join(g.Dir, allTask), rest)
	}
	for i, g := range all {
		rig.Eventually(t, fmt.Sprintf("replica %d serves what was rolled out", i), func() string {
			if got := lists(g); len(got) != 0 {
				return fmt.Sprintf("it lists %q", got)
			}
			return ""
		})
	}
}

// Three processes on one folder and one file store: what an officer writes at one is served by all, and in the history of all; who writes at the same
// time as another is told so.
func TestAWriteAtOneOfThreeProcessesOfAFolderIsServedByAll(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	dir, keys := layOutOfficers(t)
	all := []*rig.Gateway{rig.Serve(t, dir), rig.Serve(t, dir), rig.Serve(t, dir)}
	before := rig.ReadFile(t, filepath.Join(dir, allTask))
	etag := func() string {
		return all[0].AskAdmin(t, keys["admin"], "GET", changePath(allTask), "").Header.Get("ETag")
	}
	with := func(comment, tools string) string {
		return fmt.Sprintf("task_id: all # %s\nrequired_capabilities: [{tools: [%q], optional: true}]\n", comment, tools)
	}
	served := func(what string, want ...string) {
		t.Helper()
		hashes := map[float64]bool{}
		for i, g := range all {
			client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
			rig.Eventually(t, fmt.Sprintf("process %d serves %s", i, what), func() string {
				if got := rig.ListNames(t, client); !slices.Equal(got, want) {
					return fmt.Sprintf("it lists %q", got)
				}
				return ""
			})
		}
		rig.Eventually(t, "all processes serve the same configuration: "+what, func() string {
			clear(hashes)
			for _, g := range all {
				_, values := g.Metrics()
				hashes[values["switchboard_configuration_hash"]] = true
			}
			return rig.ReasonUnless(len(hashes) == 1 && !hashes[0], fmt.Sprint(hashes))
		})
		first := changesOf(t, all[0])
		for i, g := range all {
			if got := changesOf(t, g); !slices.Equal(got, first) {
				t.Errorf("%s: process %d has the changes %q in its history, and the first one has %q", what, i, got, first)
			}
		}
	}
	served("what is in the files", "work")
	if a := all[1].AskAdmin(t, keys["admin"], "PUT", changePath(allTask), textBody(t, with("by the second", "a/none")), "If-Match", etag()); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	served("what was written at the second one")
	if out, errs, code := rig.Command(t, dir, "config", "revert", "1", "--url", all[2].URL); code != 0 {
		t.Errorf("the revert at the third one: exit %d\n%s%s", code, out, errs)
	}
	served("what was there before", "work")
	if now := rig.ReadFile(t, filepath.Join(dir, allTask)); now != before {
		t.Errorf("after the revert: %q", now)
	}

	// Three writers with one entity tag, each at another process.
	tag, answers := etag(), make([]rig.Answer, len(all))
	var writers sync.WaitGroup
	for i, g := range all {
		at := g.AdminURL()
		writers.Go(func() {
			answers[i].Status = putOnce(at+changePath(allTask), keys["admin"], tag, textBody(t, with(fmt.Sprint("by writer ", i), "a/none")))
		})
	}
	writers.Wait()
	var late wait.Lateness
	won := -1
	for i, a := range answers {
		switch {
		case a.Status == http.StatusOK && won < 0:
			won = i
		case a.Status == http.StatusTooManyRequests:
			late.Add("writer %d has waited too long for the others", i)
		case a.Status != http.StatusPreconditionFailed:
			t.Errorf("writer %d gets %d, and writer %d has won", i, a.Status, won)
		}
	}
	if won < 0 {
		t.Fatal("no writer has won")
	}
	if now := rig.ReadFile(t, filepath.Join(dir, allTask)); now != with(fmt.Sprint("by writer ", won), "a/none") {
		t.Errorf("writer %d has won, and the file is %q", won, now)
	}
	served("what the winner has written")
	if got := changesOf(t, all[0]); len(got) != 3 {
		t.Errorf("the changes: %q", got)
	}
	late.State(t)
}
