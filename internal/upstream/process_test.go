package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// procState returns the letter of the process's state in /proc, or "" if there is no process.
func procState(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest[:1]
}

// assertGone waits until the process is gone, and is no zombie either.
func assertGone(t *testing.T, pid int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("process %d is gone", pid), func() bool { return procState(pid) == "" })
}

// assertDead is assertGone for processes that are not our children. In a container they may remain
// zombies.
func assertDead(t *testing.T, pid int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("process %d is dead", pid), func() bool { s := procState(pid); return s == "" || s == "Z" })
}

func TestAChildSeesItsOwnVariablesAndNothingElseOfUs(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	t.Setenv("SWITCHBOARD_CANARY", "must-not-be-seen")
	inherited, err := os.Open(os.Args[0]) // as if we had inherited it
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close() //nolint:errcheck // it was only read
	if err := system.KeepOnExec(inherited); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"alone": {}, "guarded": guardOptions()} {
		t.Run(name, func(t *testing.T) {
			f := readyFleet(t, o, stdioFake("one", "inside", "OWN=value"))
			result, err := f.Call(t.Context(), echoCall("one", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			saw := fields(t, result.JSON)
			for _, v := range saw["env"].([]any) {
				name, _, _ := strings.Cut(v.(string), "=")
				if !slices.Contains(process.BaseEnv, name) && name != "OWN" && name != fakeEnv && name != "GORACE" {
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

func TestCloseEndsStubbornProcessesAndTheirChildren(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("family", "family"), stdioFake("stubborn", "stubborn"), stdioFake("tame", "legacy"))
	result, err := f.Call(t.Context(), echoCall("family", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	family := fields(t, result.JSON)
	pids := []int{int(family["pid"].(float64)), int(family["grandchild"].(float64))}
	pids = append(pids, status(t, f, "stubborn").PIDs...)
	pids = append(pids, status(t, f, "tame").PIDs...)

	began := time.Now()
	f.Close(t.Context()) // without hurry
	if took := time.Since(began); took < process.InputGrace+process.TermGrace || took > process.InputGrace+process.TermGrace+2*wait.Bound {
		t.Errorf("it took %s, with one that only SIGKILL ends", took)
	}
	for i, pid := range pids {
		if i == 1 {
			assertDead(t, pid) // a grandchild is not our child
			continue
		}
		if s := procState(pid); s != "" {
			t.Errorf("process %d is still there (%s) when Close returns", pid, s)
		}
	}
	f.Close(t.Context()) // a second time
	f.Set([]switchboard.Server{stdioFake("late", "legacy")})
	if n := len(f.Status()); n != 0 {
		t.Errorf("%d servers after Close", n)
	}
}

func TestCloseInAHurryDoesNotWaitForCalls(t *testing.T) {
	s := stdioFake("one", "stubborn-calls")
	s.Timeout = time.Hour
	f := readyFleet(t, Options{}, s)
	ended := startAsync(func() error {
		_, err := f.Call(t.Context(), doCall("never"))
		return err
	})
	wait.Until(t, "the call is under way", func() bool { return pendingCount(f, "one") == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	f.Close(ctx)
	if took := time.Since(began); took > process.InputGrace+process.TermGrace { // the minimum without hurry
		wait.Late(t, "it took %s", took)
	}
	wantCode(t, <-ended, switchboard.CodeOutcomeUnknown)
}

// TestChildrenOutliveThreads tests the reason for the spawner: the parent-death signal comes when
// the thread that started the child ends.
func TestChildrenOutliveThreads(t *testing.T) {
	var fleets []*Fleet
	for i := range 5 {
		// Each fleet is made, and its child processes are requested, on a thread that ends at once.
		var wg sync.WaitGroup
		wg.Go(func() {
			runtime.LockOSThread()
			fleets = append(fleets, openFleet(t, Options{}, stdioFake(fmt.Sprintf("one-%d", i), "legacy")))
		})
		wg.Wait()
	}
	var pids []int
	for _, f := range fleets {
		id := f.Status()[0].ID
		awaitState(t, f, id, StateReady)
		pids = append(pids, status(t, f, id).PIDs...)
	}
	for range 200 { // many more threads end
		var wg sync.WaitGroup
		wg.Go(runtime.LockOSThread)
		wg.Wait()
	}
	for i, f := range fleets {
		id := f.Status()[0].ID
		if _, err := f.Call(t.Context(), echoCall(string(id), "{}")); err != nil {
			t.Fatal(err)
		}
		if st := status(t, f, id); st.Restarts != 0 || st.PIDs[0] != pids[i] {
			t.Errorf("%s was restarted: %+v", id, st)
		}
	}
}

// guardOptions returns options with a guard.
func guardOptions() Options { return Options{Guard: []string{os.Args[0], guardArg}} }

// guardOf returns the process id of the guard that started the process.
func guardOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	var parent int
	_, _ = fmt.Sscan(rest, &state, &parent)
	return parent
}

// parent is a process with a fleet. It prints the process ids and waits to be killed.
func parent() {
	f := New(guardOptions())
	f.Set([]switchboard.Server{stdioFake("clan", "clan"), stdioFake("family", "family"), stdioFake("stubborn", "stubborn")})
	f.Ready(context.Background())
	var family struct{ PID, Grandchild, Stray, Orphan int }
	for _, id := range []string{"clan", "family"} {
		result, err := f.Call(context.Background(), echoCall(id, "{}"))
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
					t.Fatalf("process %d does not run (%q)", pid, s)
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
			f := readyFleet(t, guardOptions(), stdioFake("one", "clan"))
			result, err := f.Call(t.Context(), echoCall("one", "{}"))
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
					t.Fatalf("process %d does not run (%q)", pid, s)
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
			_, err = f.Call(t.Context(), doCall("die"))
			if e := wantRefusal(t, err, switchboard.CodeOutcomeUnknown); !strings.Contains(e.Error(), "exit status 9") {
				t.Errorf("the error does not say how the process ended: %v", e)
			}
			for _, pid := range pids {
				assertGone(t, pid)
			}
		})
	}
}

func TestAGuardThatIsKilledTakesItsServerWithItAndBothComeBack(t *testing.T) {
	t.Parallel()
	f := readyFleet(t, guardOptions(), stdioFake("one", "legacy"))
	first := status(t, f, "one").PIDs[0]
	guard := guardOf(first)
	if guard == os.Getpid() {
		t.Fatal("there is no guard")
	}
	system.Kill(guard)
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

func TestAServerGetsSIGTERMBeforeItIsKilled(t *testing.T) {
	for name, o := range map[string]Options{"alone": {}, "guarded": guardOptions()} {
		t.Run(name, func(t *testing.T) {
			record := filepath.Join(t.TempDir(), "told")
			f := readyFleet(t, o, stdioFake("one", "ends-when-told", "RECORD="+record))
			f.Close(t.Context()) // without hurry
			if _, err := os.Stat(record); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAGuardReportsAProgramThatCannotRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte{0, 1, 2}, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"alone": {}, "guarded": guardOptions()} {
		t.Run(name, func(t *testing.T) {
			f := openFleet(t, o, switchboard.Server{ID: "one", Transport: switchboard.TransportStdio, Command: []string{program}})
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
	f := readyFleet(t, o, stdioFake("one", "talks", "TOKEN=hunter2-hunter2", "KEY=line-one-of-it\nline-two-of-it"))
	text := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Fatal(err)
	}
	f.Close(t.Context())
	for _, want := range []string{"server=one", `stderr="token=*** and ***"`, `\u001b[2J`, "lines of a server's stderr were left out"} {
		if !strings.Contains(text(), want) {
			t.Errorf("the log does not have %s", want)
		}
	}
	for _, never := range []string{"hunter2", "line-two-of-it", "\x1b", strings.Repeat("y", 2<<10+1)} {
		if strings.Contains(text(), never) {
			t.Errorf("the log has %q", never)
		}
	}
}

// A writerFunc is a writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
