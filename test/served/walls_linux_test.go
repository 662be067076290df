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

// needsLandlock skips the test where the kernel cannot make all walls.
func needsLandlock(t *testing.T) {
	t.Helper()
	if abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || abi < 6 {
		t.Skipf("skipped: walls (this kernel has version %d of Landlock, and the test needs 6)", int(abi))
	}
}

// The report of each process's guard is what status shows, and the kernel says the same. The program at the standard level reads none of Switchboard's own
// files, which the open one reads.
func TestStatusShowsTheWallsThatEachProcessHas(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	// Each tries to read the row by which commands find this process, when that is there.
	row := func(id, more string) string {
		fake := strings.TrimPrefix(rig.FakeRow("", fmt.Sprintf(rig.Tool, id)), ": {transport: stdio, command: [FAKE, ")
		script := `until ls ../.switchboard/operator.json; do sleep 0.1; done >&2; cat ../.switchboard/operator.json >&2; echo $? > ` + id + `; exec "$@"`
		return fmt.Sprintf("%s: {transport: stdio, dir: work, %s command: [sh, -c, %q, sh, FAKE, %s", id, more, script, fake)
	}
	dir := rig.LayOut(t, rig.Fakes(row("usual", ""), row("open", "sandbox: off,"),
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

// A server that needs a key of the user's home does not start. Status says why and what to do, and doing it helps: this server reads the one key.
func TestAServerThatItsWallsStopStartsWithOnePermission(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	home := t.TempDir()
	rig.WriteFile(t, filepath.Join(home, ".aws", "config"), "region\n")
	rig.WriteFile(t, filepath.Join(home, ".aws", "credentials"), "key\n")
	fake := strings.TrimPrefix(rig.FakeRow("", fmt.Sprintf(rig.Tool, "list")), ": {transport: stdio, command: [FAKE, ")
	script := fmt.Sprintf(`c=$(cat %[1]s/.aws/config) || exit 1; echo "$c" >config; cat %[1]s/.aws/credentials >key; exec "$@"`, home)
	dir := rig.LayOut(t, rig.Fakes(fmt.Sprintf("cloud: {transport: stdio, dir: work, command: [sh, -c, %q, sh, FAKE, %s", script, fake))+"-- work/README --\n")
	cmd := rig.Switchboard(t, "-v", "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "HOME="+home)
	g := rig.ServeBy(t, dir, cmd)
	status := func() string {
		text, _, _ := rig.Command(t, dir, "status", "--url", g.URL)
		return text
	}
	rig.Eventually(t, "status names the walls", func() string {
		if text := status(); !strings.Contains(text, "Permission denied") || !strings.Contains(text, "cloud: the walls around its program (sandbox: standard) may refuse what its words name: permit it with permissions") {
			return text
		}
		return ""
	})

	file := filepath.Join(dir, "switchboard.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, file, strings.Replace(string(text), "dir: work,", fmt.Sprintf("dir: work, permissions: {read: [%s/.aws/config]},", home), 1))
	g.Signal(t, unix.SIGHUP)
	rig.Eventually(t, "its tool is served", func() string {
		if text := status(); !strings.Contains(text, " healthy ") {
			return text
		}
		return ""
	})
	if code := rig.Call(t, g.OpenAtOnce(t, "/mcp", false), "list", `{}`); code != "" {
		t.Errorf("its tool answers with %s", code)
	}
	for name, want := range map[string]string{"config": "region\n", "key": ""} {
		rig.Eventually(t, "what it has read of "+name, func() string { // each of its processes reads it anew
			if got, err := os.ReadFile(filepath.Join(dir, "work", name)); err != nil || string(got) != want {
				return fmt.Sprintf("%q, want %q; %v", got, want, err)
			}
			return ""
		})
	}
	if text := status(); strings.Contains(text, "may refuse") {
		t.Errorf("status still says\n%s", text)
	}
}
