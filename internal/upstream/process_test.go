package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// procState returns the letter of the process's state in /proc, or "" when
// there is none.
func procState(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest[:1]
}

// assertGone waits until there is no such process, and no zombie either.
func assertGone(t *testing.T, pid int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("process %d is gone", pid), func() bool { return procState(pid) == "" })
}

// assertDead is assertGone for processes that were not ours to wait for: in a
// container nobody may do so.
func assertDead(t *testing.T, pid int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("process %d is dead", pid), func() bool { s := procState(pid); return s == "" || s == "Z" })
}

func TestAChildSeesItsOwnVariablesAndNothingElseOfUs(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	t.Setenv("SWITCHBOARD_CANARY", "must-not-be-seen")
	inherited, err := os.Open(os.Args[0]) // as if our parent had left it to us
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close() //nolint:errcheck // it was only read
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, inherited.Fd(), syscall.F_SETFD, 0); e != 0 {
		t.Fatal(e)
	}
	for name, o := range map[string]Options{"alone": {}, "guarded": guards()} {
		t.Run(name, func(t *testing.T) {
			f := ready(t, o, child("one", "inside", "OWN=value"))
			result, err := f.Call(t.Context(), use("one", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			saw := fields(t, result.JSON)
			for _, v := range saw["env"].([]any) {
				name, _, _ := strings.Cut(v.(string), "=")
				if !slices.Contains(baseEnv, name) && name != "OWN" && name != fakeEnv && name != "GORACE" {
					t.Errorf("it sees %s", v)
				}
			}
			if got := fmt.Sprint(saw["fds"]); got != "[0 1 2]" {
				t.Errorf("its open files are %s", got)
			}
			if saw["nonblock"] == true {
				t.Error("its stdin does not block, which programs do not expect")
			}
			if saw["ignores"] == true {
				t.Error("it ignores signals, as its guard does")
			}
			if saw["leader"] != true {
				t.Error("it does not lead a process group of its own")
			}
		})
	}
}

func TestVariablesThatLoadOtherCodeAreRefused(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "NODE_OPTIONS", "PYTHONSTARTUP", "PYTHONPATH", "npm_config_registry", "A=B", "", "N\x00"} {
		env, err := childEnv(&switchboard.Server{Env: map[string]switchboard.Secret{name: switchboard.NewSecret("x")}, AllowEnv: []string{"pythonpath"}}, os.LookupEnv)
		if err == nil {
			t.Errorf("%q is let through: %q", name, env)
		}
	}
	own := map[string]switchboard.Secret{"HOME": switchboard.NewSecret("/elsewhere"), "PYTHONPATH": switchboard.NewSecret("src")}
	env, err := childEnv(&switchboard.Server{Env: own, AllowEnv: []string{"PYTHONPATH"}},
		func(name string) (string, bool) { return "ours", name == "HOME" || name == "PATH" })
	if want := []string{"HOME=/elsewhere", "PATH=ours", "PYTHONPATH=src"}; err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v; want %q", env, err, want)
	}
}

func TestCloseEndsTheStubbornAndTheirFamilies(t *testing.T) {
	f := ready(t, Options{}, child("family", "family"), child("stubborn", "stubborn"), child("tame", "legacy"))
	result, err := f.Call(t.Context(), use("family", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	family := fields(t, result.JSON)
	pids := []int{int(family["pid"].(float64)), int(family["grandchild"].(float64))}
	pids = append(pids, status(t, f, "stubborn").PIDs...)
	pids = append(pids, status(t, f, "tame").PIDs...)

	began := time.Now()
	f.Close(t.Context()) // in no hurry
	if took := time.Since(began); took < inputGrace+termGrace || took > inputGrace+termGrace+2*wait.Bound {
		t.Errorf("it took %s, with one that only SIGKILL ends", took)
	}
	for i, pid := range pids {
		if i == 1 {
			assertDead(t, pid) // a grandchild is not ours to wait for
			continue
		}
		if s := procState(pid); s != "" {
			t.Errorf("process %d is still there (%s) when Close returns", pid, s)
		}
	}
	f.Close(t.Context()) // and again
	f.Set([]switchboard.Server{child("late", "legacy")})
	if n := len(f.Status()); n != 0 {
		t.Errorf("%d servers after Close", n)
	}
}

func TestCloseInAHurryDoesNotWaitForCalls(t *testing.T) {
	s := child("one", "stubborn-calls")
	s.Timeout = time.Hour
	f := ready(t, Options{}, s)
	ended := later(func() error {
		_, err := f.Call(t.Context(), do("never"))
		return err
	})
	wait.Until(t, "the call is under way", func() bool { return underWay(f, "one") == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	f.Close(ctx)
	if took := time.Since(began); took > inputGrace+termGrace { // which one in no hurry would take at least
		t.Errorf("it took %s", took)
	}
	wantCode(t, <-ended, switchboard.CodeOutcomeUnknown)
}

// TestChildrenOutliveThreads holds the reason for the spawner: the parent-death
// signal comes with the end of the thread that started the child.
func TestChildrenOutliveThreads(t *testing.T) {
	var fleets []*Fleet
	for i := range 5 {
		// Each fleet is made, and its children are asked for, on a thread that
		// ends at once.
		var wg sync.WaitGroup
		wg.Go(func() {
			runtime.LockOSThread()
			fleets = append(fleets, open(t, Options{}, child(fmt.Sprintf("one-%d", i), "legacy")))
		})
		wg.Wait()
	}
	var pids []int
	for _, f := range fleets {
		id := f.Status()[0].ID
		await(t, f, id, StateReady)
		pids = append(pids, status(t, f, id).PIDs...)
	}
	for range 200 { // and many more threads end
		var wg sync.WaitGroup
		wg.Go(runtime.LockOSThread)
		wg.Wait()
	}
	for i, f := range fleets {
		id := f.Status()[0].ID
		if _, err := f.Call(t.Context(), use(string(id), "{}")); err != nil {
			t.Fatal(err)
		}
		if st := status(t, f, id); st.Restarts != 0 || st.PIDs[0] != pids[i] {
			t.Errorf("%s was started anew: %+v", id, st)
		}
	}
}

// guards has servers started by guards.
func guards() Options { return Options{Guard: []string{os.Args[0], guardArg}} }

// guardOf returns the process id of the guard that started the process.
func guardOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	var parent int
	_, _ = fmt.Sscan(rest, &state, &parent)
	return parent
}

// parent is a process with a fleet that says which processes there are, and
// then waits to be killed.
func parent() {
	f := New(guards())
	f.Set([]switchboard.Server{child("clan", "clan"), child("family", "family"), child("stubborn", "stubborn")})
	f.Ready(context.Background())
	var family struct{ PID, Grandchild, Stray, Orphan int }
	for _, id := range []string{"clan", "family"} {
		result, err := f.Call(context.Background(), use(id, "{}"))
		if err != nil {
			panic(err)
		}
		if err := json.Unmarshal(result.JSON, &family); err != nil {
			panic(err)
		}
	}
	fmt.Print(family.Stray, " ", family.Orphan, " ", family.Grandchild)
	for _, s := range f.Status() {
		fmt.Print(" ", s.PIDs[0], " ", guardOf(s.PIDs[0]))
	}
	fmt.Println()
	forever()
}

func TestNothingIsLeftWhenWeAreKilled(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), parentEnv+"=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var pids []int
			for field := range strings.FieldsSeq(line) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if s := procState(pid); s == "" || s == "Z" {
					t.Fatalf("process %d is not there (%q)", pid, s)
				}
				pids = append(pids, pid)
			}
			if len(pids) != 9 {
				t.Fatalf("%q", line)
			}
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
			for _, pid := range pids {
				assertDead(t, pid)
			}
		})
	}
}

func TestWhatAServerHasStartedEndsWithIt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"die", "close"} {
		t.Run(how, func(t *testing.T) {
			f := ready(t, guards(), child("one", "clan"))
			result, err := f.Call(t.Context(), use("one", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			saw := fields(t, result.JSON)
			pids := []int{int(saw["pid"].(float64)), int(saw["stray"].(float64)), int(saw["orphan"].(float64))}
			if got := status(t, f, "one").PIDs; !slices.Equal(got, pids[:1]) {
				t.Errorf("status has %d, and not the program's %d", got, pids[0])
			}
			for _, pid := range pids {
				if s := procState(pid); s == "" || s == "Z" {
					t.Fatalf("process %d is not there (%q)", pid, s)
				}
			}
			if how == "close" {
				f.Close(t.Context())
				for _, pid := range pids {
					if s := procState(pid); s != "" {
						t.Errorf("process %d is still there (%s) when Close returns", pid, s)
					}
				}
				return
			}
			_, err = f.Call(t.Context(), do("die"))
			if e := refused(t, err, switchboard.CodeOutcomeUnknown); !strings.Contains(e.Error(), "exit status 9") {
				t.Errorf("the cause does not say how: %v", e)
			}
			for _, pid := range pids {
				assertGone(t, pid)
			}
		})
	}
}

func TestAGuardThatIsKilledTakesItsServerWithItAndBothComeBack(t *testing.T) {
	t.Parallel()
	f := ready(t, guards(), child("one", "legacy"))
	first := status(t, f, "one").PIDs[0]
	guard := guardOf(first)
	if guard == os.Getpid() {
		t.Fatal("there is no guard")
	}
	_ = syscall.Kill(guard, syscall.SIGKILL)
	assertDead(t, first)
	wait.Until(t, "it is back", func() bool { return status(t, f, "one").Restarts == 1 })
	second := status(t, f, "one").PIDs[0]
	guard = guardOf(second)
	f.Close(t.Context())
	for _, pid := range []int{second, guard} {
		if s := procState(pid); s != "" {
			t.Errorf("process %d is still there (%s)", pid, s)
		}
	}
}

func TestAServerIsToldToEndBeforeItIsKilled(t *testing.T) {
	for name, o := range map[string]Options{"alone": {}, "guarded": guards()} {
		t.Run(name, func(t *testing.T) {
			record := filepath.Join(t.TempDir(), "told")
			f := ready(t, o, child("one", "ends-when-told", "RECORD="+record))
			f.Close(t.Context()) // in no hurry
			if _, err := os.Stat(record); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAProgramThatCannotRunIsSaidToByItsGuardToo(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte{0, 1, 2}, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"alone": {}, "guarded": guards()} {
		t.Run(name, func(t *testing.T) {
			f := open(t, o, switchboard.Server{ID: "one", Transport: switchboard.TransportStdio, Command: []string{program}})
			f.Ready(t.Context())
			if s := status(t, f, "one"); s.LastFailure == nil || s.LastFailure.Message != fmt.Sprintf("start %q: exec format error", program) {
				t.Errorf("%+v", s.LastFailure)
			}
		})
	}
}

func TestStderrIsLoggedBoundedEscapedAndWithoutSecrets(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	var mu sync.Mutex
	var log bytes.Buffer
	o := Options{Log: slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))}
	f := ready(t, o, child("one", "talks", "TOKEN=hunter2-hunter2", "KEY=line-one-of-it\nline-two-of-it"))
	text := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	if _, err := f.Call(t.Context(), use("one", "{}")); err != nil {
		t.Fatal(err)
	}
	f.Close(t.Context())
	for _, want := range []string{"server=one", `stderr="token=*** and ***"`, `\u001b[2J`, "lines of a server's stderr were left out"} {
		if !strings.Contains(text(), want) {
			t.Errorf("the log does not have %s", want)
		}
	}
	for _, never := range []string{"hunter2", "line-two-of-it", "\x1b", strings.Repeat("y", maxStderrLine+1)} {
		if strings.Contains(text(), never) {
			t.Errorf("the log has %q", never)
		}
	}
}

func TestAFloodOfStderrIsShownInDropsAndTheRestCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := newStderrLog(slog.New(slog.NewJSONHandler(&log, nil)), &secretMask{})
		in, out := io.Pipe()
		s := readStderr(v, in)
		const lines, minutes = 60_000, 10
		for i := range lines {
			_, _ = fmt.Fprintln(out, "line", i)
			time.Sleep(minutes * time.Minute / lines)
		}
		_ = out.Close()
		<-s.done
		again, ended := io.Pipe() // another process of the same server
		s = readStderr(v, again)
		for range lines {
			_, _ = fmt.Fprintln(ended, "line")
		}
		_ = ended.Close()
		<-s.done

		shown, leftOut := 0, 0
		for line := range bytes.Lines(log.Bytes()) {
			var said struct {
				Stderr string `json:"stderr"`
				Before int    `json:"left_out_before"`
				Last   int    `json:"lines"`
			}
			if err := json.Unmarshal(line, &said); err != nil {
				t.Fatal(err)
			}
			if said.Stderr != "" {
				shown++
			}
			leftOut += said.Before + said.Last
		}
		if most := stderrBurst + minutes*60 + 1; shown < most-2 || shown > most+2 {
			t.Errorf("%d lines were logged in %d minutes, want %d", shown, minutes, most)
		}
		if shown+leftOut != 2*lines {
			t.Errorf("%d lines were logged and %d counted, of %d", shown, leftOut, 2*lines)
		}
	})
}

// A writerFunc is a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
