package served_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// The operator changes admitted.lock at the admin side as the other files. Edited by hand, a file with a mistake changes nothing, and a good one is read by
// itself.
func TestTheFileOfPinsIsChangedCheckedAndWatched(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	lock := filepath.Join(dir, "admitted.lock")
	line := func(tool, state string) string {
		return "a/" + tool + " " + state + " ops 2026-05-03T10:00:00Z d1:" + strings.Repeat("0", 64) + "\n"
	}
	first := line("gone", "retired") + "end\n"
	none := []string{"If-None-Match", "*"}
	for _, tt := range []struct {
		what, who, text string
		headers         []string
		status          int
		says            string
	}{
		{"an admin of a tenant", "admin", first, none, 404, ""},
		{"an agent", "agent", first, none, 401, ""},
		{"a digest of an unknown scheme", "operator", strings.Replace(first, "d1:", "d9:", 1), none, 422, `admitted.lock:1:`},
		{"one pin twice", "operator", line("gone", "retired") + first, none, 422, `a/gone stands here twice, first at line 1`},
		{"no end", "operator", line("gone", "retired"), none, 422, `the file is cut off`},
		{"without saying that there is none", "operator", first, nil, 428, ""},
		{"a good one", "operator", first, none, 200, `"changed":`},
		{"the same once more", "operator", first, none, 412, "SB-CONF-002"},
	} {
		path := changePath("admitted.lock")
		if tt.what == "a good one" {
			if a := g.AskAdmin(t, keys[tt.who], "PUT", changePath("admitted.lock", "dry_run=true"), textBody(t, tt.text)); a.Status != 200 || !strings.Contains(a.Body, `"changed":"pins +a/gone"`) {
				t.Errorf("a look: %d %s", a.Status, a.Body)
			}
			tt.says = ""
		}
		if a := g.AskAdmin(t, keys[tt.who], "PUT", path, textBody(t, tt.text), tt.headers...); a.Status != tt.status || !strings.Contains(a.Body, tt.says) {
			t.Errorf("%s: %d %s", tt.what, a.Status, a.Body)
		}
	}
	if got := rig.ReadFile(t, lock); got != first {
		t.Errorf("the file: %q", got)
	}
	rig.WriteFile(t, lock, first[:40])
	rig.Eventually(t, "a file that is cut off is refused, with its line", func() string {
		if out, _, _ := rig.Command(t, dir, "status"); !strings.Contains(out, "admitted.lock:1:41: the file is cut off within this line") {
			return out
		}
		return ""
	})
	if got := rig.ListNames(t, client); !slices.Equal(got, []string{"work"}) {
		t.Errorf("the old state does not serve: %q", got)
	}
	rig.WriteFile(t, lock, line("gone", "retired")+line("other", "testing")+"end\n")
	rig.Eventually(t, "the repaired file is in force", func() string {
		if logged := g.Logged(); !strings.Contains(logged, "pins +a/other") {
			return logged
		}
		return ""
	})
	if out, _, _ := rig.Command(t, dir, "receipts", "list"); !strings.Contains(out, "change admitted.lock a test") {
		t.Errorf("the receipts:\n%s", out)
	}
}
