package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/completion"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// writeCompletionFiles makes a folder with a configuration.
func writeCompletionFiles(t testing.TB) (dir string) {
	t.Helper()
	useOwnHome(t)
	dir = t.TempDir()
	for name, text := range map[string]string{
		"switchboard.yaml":                "servers:\n  files: {transport: stdio, command: [switchboard, sample, code-reader]}\n  mail: {transport: stdio, command: [switchboard, sample, notifier]}\ntenants: {acme: {servers: [\"*\"], allow: [by_name]}}\n",
		"tenants/acme/tasks/review.yaml":  "task_id: review\nrequired_capabilities:\n  - {tools: [\"files/*\"]}\n",
		"tenants/acme/tasks/release.yaml": "task_id: release\nrequired_capabilities:\n  - {tools: [\"mail/*\"]}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runShell runs a script of a shell in dir, and returns the lines that it prints.
func runShell(t *testing.T, dir, shell string, args ...string) []string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skipf("skipped: completion in %s (%s is not installed)", shell, shell)
	}
	cmd := exec.CommandContext(t.Context(), shell, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestBashCompletesTheLine(t *testing.T) {
	got := runShell(t, writeCompletionFiles(t), "bash", "--norc", "-c", `source <(switchboard completion bash)
try() { COMP_LINE=$1; COMP_POINT=${#1}; _switchboard switchboard "${1##*[ =:]}" ""; echo "${COMPREPLY[*]}"; }
try "switchboard rec"
try "switchboard receipts list --kind=c"
try "switchboard logs "
try "switchboard tools --task re"
try "switchboard serve --config sw"
try "switchboard help SB-LAZY-00"
try "switchboard nothing "
try "switchboard connect cod"
complete -p switchboard
some() { echo none; echo "my tool"; echo "it's \"\$x\`+"`"+`\\"; }
for COMP_WORDS in m '"m' "'m"; do COMP_LINE="some $COMP_WORDS"; COMP_POINT=99; COMP_CWORD=0; _switchboard some m ""; printf '%s\n' "${COMPREPLY[@]}"; done
COMP_WORDS=--tool=p; COMP_LINE="switchboard explain --tenant=ac"; COMP_POINT=99; _switchboard switchboard --tenant=ac ""; echo "${COMPREPLY[*]}"`)
	want := []string{
		"receipts", "call collapse", "files mail switchboard", "release review", "switchboard.yaml",
		"SB-LAZY-001 SB-LAZY-002 SB-LAZY-003 SB-LAZY-004", "", "codex", "complete -F _switchboard switchboard",
		`my\ tool`, `it\'s\ \"\$x\` + "`" + `\\`, // as they are typed without quotes, in double quotes, in single ones
		`my tool`, `it's \"\$x\` + "`" + `\\`,
		`my tool`, `it'\''s "$x` + "`" + `\`,
		"--tenant=acme",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func TestFishCompletesTheLine(t *testing.T) {
	got := runShell(t, writeCompletionFiles(t), "fish", "--no-config", "-c", `switchboard completion fish | source
complete -C "switchboard rec"
complete -C "switchboard receipts list --kind=c"
complete -C "switchboard logs "
complete -C "switchboard serve --config sw"`)
	want := []string{"receipts\tList, show, check and export receipts", "--kind=call", "--kind=collapse", "files", "mail", "switchboard", "switchboard.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

// The functions of zsh's own that the script calls are stand-ins here, which print what they get.
func TestZshCompletesTheLine(t *testing.T) {
	got := runShell(t, writeCompletionFiles(t), "zsh", "-f", "-c", `compdef() { echo "compdef $*" }
source <(switchboard completion zsh)
_describe() { print -r -- "${(j: :)${(P)3}}" }
_files() { echo files $* }
try() { words=("$@"); CURRENT=$#words; PREFIX=$words[-1]; _switchboard }
try switchboard rec
try switchboard receipts list --kind=c
try switchboard tools --task ''
try switchboard serve --config sw
try switchboard serve --data ''`)
	want := []string{"compdef _switchboard switchboard", "receipts:List, show, check and export receipts", "--kind=call --kind=collapse", "release review", "files", "files -/"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

func TestToolsAndReceiptsAreCompletedFromTheStore(t *testing.T) {
	dir := writeCompletionFiles(t)
	call := exec.CommandContext(t.Context(), "switchboard", "call", "read_file", `{"path":"x"}`, "--tenant", "acme", "--task", "review")
	call.Dir = dir
	if out, err := call.CombinedOutput(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%v\n%s", err, out)
	}
	ask := func(command, name string) []string {
		found, _ := completeValue(t.Context(), nil, completion.Request{
			Command: command, Name: name, Type: reflect.TypeFor[string](), Flags: map[string]string{"config": filepath.Join(dir, "switchboard.yaml")},
		}, wait.Bound)
		var words []string
		for _, c := range found {
			words = append(words, c.Word)
		}
		return words
	}
	if got := ask("call", "tool"); !slices.Contains(got, "read_file") || !slices.IsSorted(got) {
		t.Errorf("tools %q", got)
	}
	if got := ask("explain", "tool"); !slices.Contains(got, switchboard.ToolID{Server: "files", Name: "read_file"}.String()) {
		t.Errorf("tools %q", got)
	}
	if got := ask("receipts show", "id"); len(got) < 2 || !strings.Contains(got[0], "/") {
		t.Errorf("receipts %q", got)
	}
}

func TestWithoutFilesCompletionPrintsNoError(t *testing.T) {
	useOwnHome(t)
	t.Chdir(t.TempDir())
	for _, line := range []string{"call ", "receipts show ", "logs ", "tools --task ", "explain --tenant ", "--config nothing.yaml call "} {
		var out, errs strings.Builder
		args := append([]string{"complete", "fish", "--"}, strings.Split(line, " ")...)
		if code := run(t.Context(), args, streams{strings.NewReader(""), io.Discard, &errs, &out}); code != exitOK || errs.Len() > 0 || !strings.HasPrefix(out.String(), "none\n") {
			t.Errorf("%q: exit %d, %q %q", line, code, out.String(), errs.String())
		}
	}
}

// BenchmarkCompletion measures the whole process, from its start to its end:
//
//	go test ./cmd/switchboard -run none -bench Completion
//
// The program is the one of the tests, which is a little larger than switchboard itself.
func BenchmarkCompletion(b *testing.B) {
	dir := writeCompletionFiles(b)
	for _, line := range []string{"switchboard rec", "switchboard tools --task ", "switchboard call "} {
		b.Run(fmt.Sprintf("%q", line), func(b *testing.B) {
			var cpu, most time.Duration
			for b.Loop() {
				cmd := exec.CommandContext(context.Background(), "switchboard", "complete", "bash", "--", line)
				cmd.Dir = dir
				began := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				most = max(most, time.Since(began))
				cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(most.Microseconds())/1000, "most-ms")
		})
	}
}
