package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

func TestAProgramThatIsMissingIsNamedWithWhatToInstall(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for name, mode := range map[string]os.FileMode{"there": 0o755, "locked": 0o644} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		program, dir string
		want         string // "" means none
	}{
		{"npx", "", `"npx" was not found: install Node.js, or`},
		{"uvx", "", `"uvx" was not found: install uv, or`},
		{"docker", "", `"docker" was not found: install Docker, or`},
		{"acme-mcp", "", `"acme-mcp" was not found: install it, or add the folder of "acme-mcp" to the PATH with which Switchboard is started, or give the full path of "acme-mcp" in the server's "command"`},
		{"there", "", ""},
		{bin + "/there", bin, ""},
		{bin + "/npx", "", `there is no program "` + bin + `/npx": install it there, or correct the server's "command"`},
		{"./npx", bin, `there is no program "` + bin + `/npx"`},
		{bin + "/locked", "", `"` + bin + `/locked" may not be run: let the user of Switchboard execute it`},
		{bin + "/there", bin + "/nowhere", `there is no folder "` + bin + `/nowhere": make it, or correct the server's "dir"`},
	} {
		got := StartRemedy(&switchboard.Server{Command: []string{tt.program, "-y"}, Dir: tt.dir})
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s in %q: %q, want %q", tt.program, tt.dir, got, tt.want)
		}
	}
}

func TestTheErrorsOfShellsNameTheProgram(t *testing.T) {
	const missing, forbidden = "exit status 127", "exit status 126"
	for _, tt := range []struct {
		how, line string
		want      string
	}{
		{missing, "sh: 1: uvx: not found", `"uvx" was not found: install uv`},
		{missing, "/opt/run.sh: 3: exec: uvx: not found", `"uvx" was not found`},
		{missing, "sh: uvx: not found", `"uvx" was not found`},
		{missing, "bash: line 1: uvx: command not found", `"uvx" was not found`},
		{missing, "bash: line 1: /opt/acme: No such file or directory", `there is no program "/opt/acme"`},
		{missing, "/usr/bin/env: ‘node’: No such file or directory", `"node" was not found: install Node.js`},
		{missing, "env: 'node': No such file or directory", `"node" was not found`},
		{missing, "env: can't execute 'node': No such file or directory", `"node" was not found`},
		{missing, "goodbye", "exit status 127"},
		{missing, ": not found", "exit status 127"},
		{forbidden, "sh: 1: /opt/acme: Permission denied", `"/opt/acme" may not be run`},
		{forbidden, "env: ‘/opt/acme’: Permission denied", `"/opt/acme" may not be run`},
		{forbidden, "sh: 1: uvx: not found", "exit status 126"},
		{"exit status 1", "sh: 1: uvx: not found", ""},
		{"signal: killed", "sh: 1: /opt/acme: Permission denied", ""},
	} {
		got := ExitRemedy(tt.how, []string{tt.line, "see the log"})
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s after %q: %q, want %q", tt.how, tt.line, got, tt.want)
		}
	}
	if got := ExitRemedy(missing, []string{"sh: 1: first: not found", "sh: 2: second: not found"}); !strings.Contains(got, `"second"`) {
		t.Errorf("it does not name the last of two programs: %q", got)
	}
	if got := ExitRemedy(missing, nil); !strings.Contains(got, "exit status 127") {
		t.Errorf("without output it says %q", got)
	}
}

func TestWallsAreNamedWhereTheyMayBeTheReason(t *testing.T) {
	standard := &wall.InEffect{Level: switchboard.SandboxStandard, Walls: []string{wall.Files}}
	for _, tt := range []struct {
		walls *wall.InEffect
		words string
		want  bool
	}{
		{standard, "Error: EACCES: permission denied, open '/home/ann/.aws/config'", true},
		{standard, "PermissionError: [Errno 13] Permission denied: '/home/ann/x'", true},
		{standard, "mount: /mnt: Operation not permitted", true},
		{standard, "sqlite3.OperationalError: unable to open database file", true},
		{standard, "HTTP 403: Permission denied for this key", false},
		{standard, "Error: no key", false},
		{&wall.InEffect{Level: switchboard.SandboxOff}, "Permission denied", false},
		{&wall.InEffect{Level: switchboard.SandboxStandard, Missing: []wall.MissingWall{{Wall: wall.Files}}}, "Permission denied", false},
		{nil, "Permission denied", false},
	} {
		got := WallRemedy(tt.walls, []string{"starting", tt.words, "bye"})
		if (got != "") != tt.want || tt.want && !strings.Contains(got, "sandbox: standard") {
			t.Errorf("%+v, %s: %q", tt.walls, tt.words, got)
		}
	}
}

func TestPackageRunnersAreKnown(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y some-server":                "npx",
		"/opt/node/bin/npx some-server":     "npx",
		"uvx some-server":                   "uvx",
		"bunx some-server":                  "bunx",
		"pnpm --silent dlx some-server":     "pnpm dlx",
		"docker run -i --rm mcp/some":       "docker run",
		"pipx run some-server":              "pipx run",
		"uv run some-server":                "uv run",
		"npm exec -- some-server":           "npm exec",
		"docker exec -i box run":            "",
		"docker":                            "",
		"pnpm":                              "",
		"node some-server.mjs":              "",
		"/usr/local/bin/npx-like some-args": "",
		"":                                  "",
	} {
		if got := packageRunner(strings.Fields(command)); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
		if said := SlowStartRemedy(strings.Fields(command)); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("for %q it says %q", command, said)
		}
	}
	if said := SlowStartRemedy([]string{"docker", "run", "some"}); !strings.Contains(said, "pull the image") {
		t.Errorf("for an image it says %q", said)
	}
}
