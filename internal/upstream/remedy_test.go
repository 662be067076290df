package upstream

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
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
		want         string // "" means nothing is said
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
		got := startRemedy(&switchboard.Server{Command: []string{tt.program, "-y"}, Dir: tt.dir})
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s in %q: %q, want %q", tt.program, tt.dir, got, tt.want)
		}
	}
}

func TestWhatAShellSaysOfAProgramIsUnderstood(t *testing.T) {
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
		got := exitRemedy(tt.how, []string{tt.line, "see the log"})
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s after %q: %q, want %q", tt.how, tt.line, got, tt.want)
		}
	}
	if got := exitRemedy(missing, []string{"sh: 1: first: not found", "sh: 2: second: not found"}); !strings.Contains(got, `"second"`) {
		t.Errorf("of two programs it names not the last: %q", got)
	}
	if got := exitRemedy(missing, nil); !strings.Contains(got, "exit status 127") {
		t.Errorf("of one that wrote nothing it says %q", got)
	}
}

func TestStatusSaysWhichProgramIsMissing(t *testing.T) {
	bare := child("bare", "legacy")
	bare.Command = []string{"no-such-program"}
	for name, o := range map[string]Options{"alone": {}, "guarded": guards()} {
		t.Run(name, func(t *testing.T) {
			f := open(t, o, bare, shell("inner", "exec no-such-program"), shell("outer", "/dev/null"))
			for id, want := range map[switchboard.ServerID]string{
				"bare": `"no-such-program" was not found`, "inner": `"no-such-program" was not found`, "outer": `"/dev/null" may not be run`,
			} {
				fails(t, f, id, "the program is named", func(why *Failure) bool { return strings.Contains(why.Remedy, want) })
			}
		})
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
		if said := slowStartRemedy(strings.Fields(command)); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("of %q it says %q", command, said)
		}
	}
	if said := slowStartRemedy([]string{"docker", "run", "some"}); !strings.Contains(said, "pull the image") {
		t.Errorf("of an image it says %q", said)
	}
}

func TestAServerThatStartsForLongIsSaidToBeDownloading(t *testing.T) {
	npx := filepath.Join(t.TempDir(), "npx")
	if err := os.WriteFile(npx, []byte("#!/bin/sh\necho 'npm http fetch GET' >&2\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	slow := child("slow", "legacy")
	slow.Command = []string{npx, "-y", "some-server"}
	f := open(t, Options{StartDeadline: 200 * time.Millisecond}, slow, shell("other", "exec sleep 1000"))
	if st := status(t, f, "slow"); st.LastFailure != nil && time.Since(began) < 100*time.Millisecond {
		t.Errorf("at once it is called slow: %+v", st.LastFailure)
	}
	fails(t, f, "slow", "the download is named", func(why *Failure) bool {
		return strings.Contains(why.Message, "has not answered yet") && strings.Contains(why.Remedy, `"npx" is probably downloading`) &&
			slices.Equal(why.Stderr, []string{"npm http fetch GET"}) && !why.Since.Before(began)
	})
	fails(t, f, "other", "it is slow", func(why *Failure) bool { return why.Remedy == "" })
}

// A server that has not answered after a minute is ended and started again. The reason stands.
func TestAServerThatTookTooLongToStartIsStillSaidToBeDownloading(t *testing.T) {
	f := New(Options{})
	defer f.Close(t.Context())
	for stage, want := range map[Stage]bool{StageConnect: true, StageServe: false} {
		s := newServer(f, switchboard.Server{ID: "one", Transport: switchboard.TransportStdio, Command: []string{"uvx", "some-server"}}, nil)
		s.recordDown(stage, exchangeErrorf(kindSilent, false, "too long"), time.Hour)
		if why := s.status().LastFailure; strings.Contains(why.Remedy, `"uvx" is probably downloading`) != want {
			t.Errorf("at the stage %s it says %+v", stage, why)
		}
		s.cancel()
	}
}

func TestALongStartDeadlineHidesNoSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{StartDeadline: 10 * time.Minute})
		defer f.Close(t.Context())
		s := newServer(f, switchboard.Server{ID: "one"}, nil)
		defer s.cancel()
		s.recordAttempt(time.Now())
		time.Sleep(slowStartTime)
		if why := s.status().LastFailure; why != nil {
			t.Errorf("within %s it is called slow: %+v", slowStartTime, why)
		}
		time.Sleep(time.Second)
		if s.status().LastFailure == nil {
			t.Errorf("after more than %s nothing is said", slowStartTime)
		}
	})
}
