package served_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// The report of each process's guard is what status shows, and the kernel says the same. The program at the standard level reads none of Switchboard's own
// files, which the open one reads.
func TestStatusShowsTheWallsThatEachProcessHas(t *testing.T) {
	t.Parallel()
	if abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || abi < 6 {
		t.Skipf("skipped: walls (this kernel has version %d of Landlock, and the test needs 6)", int(abi))
	}
	// Each tries to read the row by which commands find this process, when that is there.
	row := func(id, more string) string {
		fake := strings.TrimPrefix(rig.FakeRow("", fmt.Sprintf(rig.Tool, id)), ": {transport: stdio, command: [FAKE, ")
		script := `until ls ../.switchboard/operator.json; do sleep 0.1; done >&2; cat ../.switchboard/operator.json >&2; echo $? > ` + id + `; exec "$@"`
		return fmt.Sprintf("%s: {transport: stdio, dir: work, %s command: [sh, -c, %q, sh, FAKE, %s", id, more, script, fake)
	}
	dir := rig.LayOut(t, rig.Fakes(row("usual", "sandbox: standard,"), row("open", "sandbox: off,"),
		"strict: {sandbox: strict, "+strings.TrimPrefix(rig.FakeRow("", fmt.Sprintf(rig.Tool, "strict")), ": {"))+"-- work/README --\n")
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	for _, tool := range []string{"usual", "open", "strict"} {
		if code := rig.Call(t, s, tool, `{}`); code != "" {
			t.Fatalf("%s: %s", tool, code)
		}
	}
	out, _, _ := rig.Command(t, dir, "status", "--json", "--url", g.URL)
	var status struct {
		Servers []struct {
			ID    string `json:"id"`
			PIDs  []int  `json:"pids"`
			Walls []struct {
				PID     int      `json:"pid"`
				Level   string   `json:"level"`
				Walls   []string `json:"in_effect"`
				Missing []struct{ Wall, Why string }
			} `json:"walls"`
		} `json:"servers"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err, out)
	}
	levels := map[string]string{}
	for _, s := range status.Servers {
		if len(s.Walls) == 0 || len(s.Walls) != len(s.PIDs) {
			t.Fatalf("%s: processes %v, walls %+v", s.ID, s.PIDs, s.Walls)
		}
		for i, w := range s.Walls {
			levels[s.ID] = w.Level
			has := w.Level != "off"
			if w.PID != s.PIDs[i] || len(w.Missing) > 0 || slices.Contains(w.Walls, "files") != has || slices.Contains(w.Walls, "network") != (w.Level == "strict") {
				t.Errorf("%s: %+v", s.ID, w)
			}
			kernel, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.PID))
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
				if strings.Contains(string(kernel), line) != has {
					t.Errorf("%s: that the kernel says %q is not %v", s.ID, line, has)
				}
			}
		}
	}
	if want := map[string]string{"usual": "standard", "open": "off", "strict": "strict"}; fmt.Sprint(levels) != fmt.Sprint(want) {
		t.Errorf("the levels are %v", levels)
	}
	for id, want := range map[string]string{"usual": "1\n", "open": "0\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, "work", id)); string(got) != want {
			t.Errorf("%s: reading operator.json gave %q, want %q; %v", id, got, want, err)
		}
	}
	if text, _, _ := rig.Command(t, dir, "status", "--url", g.URL); !strings.Contains(text, "WALLS") || !strings.Contains(text, "standard") {
		t.Errorf("status shows\n%s", text)
	}
}
