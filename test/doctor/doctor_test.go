//go:build linux

// Package doctor_test runs `switchboard doctor` on broken installations, and carries its remedies out.
package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/doctor"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// web is a server over HTTP that every installation uses; it works.
var web = httptest.NewServer(http.HandlerFunc(fakeserver.New([]string{"modern", tool}).ServeHTTP))

var tool = fmt.Sprintf(rig.Tool, "look")

// An installation is one person's: a home, a configuration, a client, and a PATH with few programs.
type installation struct {
	*testing.T
	home, bin, config, data string
	env                     map[string]string // more variables
	wait                    string            // for doctor
	row                     string            // ends the names of a row, if several rows break one installation
}

// install makes an installation that is well.
func install(t *testing.T) *installation {
	t.Helper()
	home := t.TempDir()
	i := &installation{T: t, home: home, bin: filepath.Join(home, "bin"), env: map[string]string{}, wait: "60s"}
	i.config = filepath.Join(home, ".config", "switchboard", "switchboard.yaml")
	i.data = filepath.Join(filepath.Dir(i.config), ".switchboard")
	i.write(".config/switchboard/switchboard.yaml", "servers:\n"+i.webRow()+"listen: 127.0.0.1:"+i.freePort()+"\n")
	i.connectByHand("switchboard", i.config)
	i.mkdir("bin", "tmp")
	if err := os.Symlink(rig.Plain, filepath.Join(i.bin, "switchboard")); err != nil {
		t.Fatal(err)
	}
	return i
}

// webRow is the row of the server that works.
func (i *installation) webRow() string {
	return "  web: {transport: http, url: " + web.URL + "}\n"
}

// freePort returns a port that no other test takes.
func (i *installation) freePort() string {
	i.Helper()
	_, port, _ := strings.Cut(freeAddress(i.T), ":")
	return port
}

// connectByHand writes the file of Claude Code.
func (i *installation) connectByHand(program, config string) {
	i.Helper()
	i.write(".claude.json", fmt.Sprintf(`{"mcpServers": {"switchboard": {"type": "stdio", "command": %q, "args": ["stdio", "--config", %q]}}}`, program, config))
}

// write writes a file in the home, for its owner only.
func (i *installation) write(name, text string) {
	i.Helper()
	rig.WriteFile(i.T, filepath.Join(i.home, name), text)
}

func (i *installation) mkdir(names ...string) {
	i.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(i.home, name), 0o700); err != nil {
			i.Fatal(err)
		}
	}
}

func (i *installation) do(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

// addServer adds a row to the configuration.
func (i *installation) addServer(row string) {
	i.Helper()
	row = strings.Replace(row, "{command:", "{transport: stdio, command:", 1)
	i.edit("servers:\n", "servers:\n  "+row+"\n")
}

// edit replaces a text in the configuration.
func (i *installation) edit(old, now string) {
	i.Helper()
	text := rig.ReadFile(i.T, i.config)
	if !strings.Contains(text, old) {
		i.Fatalf("the configuration has no %q:\n%s", old, text)
	}
	i.do(os.WriteFile(i.config, []byte(strings.Replace(text, old, now, 1)), 0o600))
}

// program puts a shell script into the PATH. FAKE in it starts a server that works.
func (i *installation) program(name, script string) {
	i.Helper()
	script = strings.ReplaceAll(script, "FAKE", fmt.Sprintf("exec %s fake modern '%s'", rig.FakeProgram, tool))
	i.write("bin/"+name, "#!/bin/sh\n"+script+"\n")
	i.do(os.Chmod(filepath.Join(i.bin, name), 0o700)) //nolint:gosec // a program
}

// knownProgram puts a program into the PATH that says its version, and else starts a server that works.
func (i *installation) knownProgram(name, version string) {
	i.program(name, `[ "$1" = --version ] && echo `+version+" && exit\nFAKE")
}

// command returns a command in the installation's home and environment.
func (i *installation) command(words ...string) *exec.Cmd {
	cmd := exec.CommandContext(i.Context(), words[0], words[1:]...)
	cmd.Dir = i.home
	cmd.Env = []string{"HOME=" + i.home, "PATH=" + i.bin, "TMPDIR=" + filepath.Join(i.home, "tmp"), "GORACE=" + os.Getenv("GORACE")}
	for name, v := range i.env {
		cmd.Env = append(cmd.Env, name+"="+v)
	}
	return cmd
}

// examine runs doctor.
func (i *installation) examine() (r doctor.Report, code int) {
	i.Helper()
	cmd := i.command(rig.Plain, "doctor", "--json", "--wait", i.wait)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		i.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		i.Fatalf("doctor exits %d and prints no JSON: %v\n%s%s", cmd.ProcessState.ExitCode(), err, out, &errs)
	}
	return r, cmd.ProcessState.ExitCode()
}

// shell carries a command line out, as a person does who copies it into a shell.
func (i *installation) shell(line string) {
	i.Helper()
	cmd := i.command("/bin/sh", "-c", line)
	cmd.Env = append(cmd.Env, "PATH="+i.bin+":/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		i.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// printed is what doctor has found, for the log of a failure.
func printed(r doctor.Report) string {
	var out strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&out, "%s %s %s: %s", f.Area, f.State, f.Subject, f.What)
		if f.State == doctor.Wrong {
			fmt.Fprintf(&out, " [%s]\n   → %s\n   $ %s\n   | %s", f.Cause, f.Remedy, f.Command, strings.Join(f.Output, "\n   | "))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// A broken row breaks an installation in one place.
type broken struct {
	name   string
	breaks func(i *installation)

	cause   string // of the only finding that is wrong
	subject string // a part of what it names
	remedy  string // a part of its remedy or of its command

	// mend carries the remedy out by hand, as the finding says it. nil means that the finding has a command that does.
	mend func(i *installation, f doctor.Diagnosis)
}

// RD-03: each installation is broken in one place. Doctor names that place and nothing else, and its remedy works.
func TestRD03DoctorNamesWhatIsBrokenAndItsRemedyWorks(t *testing.T) {
	rows := slices.Concat(configRows, fileRows, storeRows, programRows, webRows, clientRows)
	if len(rows) < 25 {
		t.Errorf("%d installations are broken", len(rows))
	}
	for _, b := range rows {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			b.breaks(i)
			before := i.look()
			report, code := i.examine()
			if after := i.look(); !slices.Equal(before, after) {
				t.Errorf("doctor has changed files:\n%s\nnow\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			wrong := wrongOnes(report)
			if len(wrong) != 1 || code != 1 || report.Well {
				t.Fatalf("doctor exits %d and finds %d things wrong:\n%s", code, len(wrong), printed(report))
			}
			i.carryOut(&b, wrong[0])
			if report, code = i.examine(); code != 0 || !report.Well {
				t.Errorf("the remedy %q was carried out, and doctor exits %d:\n%s", wrong[0].Remedy, code, printed(report))
			}
		})
	}
}

// wrongOnes returns what is wrong.
func wrongOnes(r doctor.Report) []doctor.Diagnosis {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f doctor.Diagnosis) bool { return f.State != doctor.Wrong })
}

// carryOut compares what doctor says with the row, and carries the remedy out.
func (i *installation) carryOut(b *broken, f doctor.Diagnosis) {
	i.Helper()
	if f.Cause != b.cause || !strings.Contains(f.Subject+" "+f.What, b.subject+i.row) || !strings.Contains(f.Remedy+"\n"+f.Command, b.remedy) {
		i.Errorf("%s: want %s of %q with the remedy %q; doctor says:\n%+v", b.name, b.cause, b.subject+i.row, b.remedy, f)
	}
	if b.mend == nil {
		i.shell(f.Command)
	} else {
		b.mend(i, f)
	}
}

// RD-03, with all rows in one installation: each server is broken in another way, and doctor looks at all of them.
func TestRD03DoctorNamesEachBrokenServer(t *testing.T) {
	t.Parallel()
	i := install(t)
	rows := slices.Concat(serverRows, pageRows)
	for n, b := range rows {
		i.row = fmt.Sprintf("-%02d", n)
		b.breaks(i)
	}
	report, code := i.examine()
	wrong := wrongOnes(report)
	if len(wrong) != len(rows) || code != 1 {
		t.Fatalf("doctor exits %d and finds %d of %d servers broken:\n%s", code, len(wrong), len(rows), printed(report))
	}
	for n := range rows {
		i.row = fmt.Sprintf("-%02d", n)
		at := slices.IndexFunc(wrong, func(f doctor.Diagnosis) bool { return strings.HasSuffix(f.Subject, i.row) })
		if at < 0 {
			t.Fatalf("%s is not named:\n%s", rows[n].name, printed(report))
		}
		i.carryOut(&rows[n], wrong[at])
	}
	if report, code = i.examine(); code != 0 || !report.Well {
		t.Errorf("the remedies were carried out, and doctor exits %d:\n%s", code, printed(report))
	}
}

func TestAnInstallationThatIsWellIsFoundWell(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.addServer("files: {command: [npx, -y, files-server]}")
	i.knownProgram("npx", "11.4.2")
	i.knownProgram("node", "v22.14.0")
	report, code := i.examine()
	if code != 0 || !report.Well || report.Wrong != 0 {
		t.Fatalf("exit %d:\n%s", code, printed(report))
	}
	for _, want := range []string{"configuration well", "files well", "store well", "address well", "clock well", "programs well node: 22.14.0", "programs well npx: 11.4.2", "servers well files: ready", "servers well web: ready", "clients well Claude Code"} {
		group, rest, _ := strings.Cut(want, " ")
		if !regexp.MustCompile(`(?m)^` + group + " " + regexp.QuoteMeta(rest)).MatchString(printed(report)) {
			t.Errorf("%s is missing in\n%s", want, printed(report))
		}
	}
}

// look returns all files of the installation, with their modes, sizes and times.
func (i *installation) look() (all []string) {
	i.Helper()
	i.do(filepath.WalkDir(i.home, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprint(name, " ", info.Mode(), " ", info.Size())
		if !strings.HasPrefix(name, filepath.Join(i.home, "tmp")) { // its time changes with each file that comes and goes
			line += " " + info.ModTime().Format(time.RFC3339Nano)
		}
		all = append(all, line)
		return nil
	}))
	return all
}

// awaitServing waits until the process answers.
func awaitServing(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait.Until(t, what, ok)
}
