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
	eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return procState(pid) == "" })
}

// assertDead is assertGone for processes that were not ours to wait for: in a
// container nobody may do so.
func assertDead(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is dead", pid), func() bool { s := procState(pid); return s == "" || s == "Z" })
}

func TestAChildSeesItsOwnVariablesAndNothingElseOfUs(t *testing.T) {
	t.Setenv("SWITCHBOARD_CANARY", "must-not-be-seen")
	inherited, err := os.Open(os.Args[0]) // as if our parent had left it to us
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close() //nolint:errcheck // it was only read
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, inherited.Fd(), syscall.F_SETFD, 0); e != 0 {
		t.Fatal(e)
	}
	f := ready(t, Options{}, child("one", "inside", "OWN=value"))
	result, err := f.Call(t.Context(), use("one", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	saw := fields(t, result)
	for _, v := range saw["env"].([]any) {
		name, _, _ := strings.Cut(v.(string), "=")
		if !slices.Contains(baseEnv, name) && name != "OWN" && name != fakeEnv {
			t.Errorf("it sees %s", v)
		}
	}
	if got := fmt.Sprint(saw["fds"]); got != "[0 1 2]" {
		t.Errorf("its open files are %s", got)
	}
	if saw["nonblock"] == true {
		t.Error("its stdin does not block, which programs do not expect")
	}
	if saw["leader"] != true {
		t.Error("it does not lead a process group of its own")
	}
}

func TestVariablesThatLoadOtherCodeAreRefused(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "NODE_OPTIONS", "PYTHONSTARTUP", "A=B", "", "N\x00"} {
		env, err := childEnv(map[string]switchboard.Secret{name: switchboard.NewSecret("x")}, os.LookupEnv)
		if err == nil {
			t.Errorf("%q is let through: %q", name, env)
		}
	}
	env, err := childEnv(map[string]switchboard.Secret{"HOME": switchboard.NewSecret("/elsewhere")},
		func(name string) (string, bool) { return "ours", name == "HOME" || name == "PATH" })
	if want := []string{"HOME=/elsewhere", "PATH=ours"}; err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v; want %q", env, err, want)
	}
}

func TestCloseEndsTheStubbornAndTheirFamilies(t *testing.T) {
	f := ready(t, Options{}, child("family", "family"), child("stubborn", "stubborn"), child("tame", "legacy"))
	result, err := f.Call(t.Context(), use("family", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	family := fields(t, result)
	pids := []int{int(family["pid"].(float64)), int(family["grandchild"].(float64))}
	pids = append(pids, status(t, f, "stubborn").PIDs...)
	pids = append(pids, status(t, f, "tame").PIDs...)

	began := time.Now()
	f.Close(t.Context()) // in no hurry
	if took := time.Since(began); took < graceInput+graceTerm || took > graceInput+graceTerm+5*time.Second {
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
	eventually(t, "the call is under way", func() bool { return underWay(f, "one") == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	f.Close(ctx)
	if took := time.Since(began); took > graceInput {
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

// A child that is started directly on a thread that ends is killed: without
// this the test above would prove nothing.
func TestAChildDiesWithTheThreadThatStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fakeEnv+"=hang")
	cmd.SysProcAttr = childAttr()
	var start func() error
	start = func() error {
		runtime.LockOSThread() // never unlocked: the thread ends here
		if syscall.Gettid() == os.Getpid() {
			return <-later(start) // but Go keeps the first thread
		}
		return cmd.Start()
	}
	if err := <-later(start); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}

// parent is a process with a fleet that says which processes there are, and
// then waits to be killed.
func parent() {
	f := New(Options{Guard: []string{os.Args[0], guardArg}})
	f.Set([]switchboard.Server{child("family", "family"), child("stubborn", "stubborn")})
	f.Ready(context.Background())
	result, err := f.Call(context.Background(), use("family", "{}"))
	if err != nil {
		panic(err)
	}
	var family struct{ PID, Grandchild int }
	if err := json.Unmarshal(result, &family); err != nil {
		panic(err)
	}
	f.spawner.guard.mu.Lock()
	guard := f.spawner.guard.cmd.Process.Pid
	f.spawner.guard.mu.Unlock()
	fmt.Println(family.PID, family.Grandchild, f.Status()[1].PIDs[0], guard)
	forever()
}

func TestNothingIsLeftWhenWeAreKilled(t *testing.T) {
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
			if len(pids) != 4 {
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

func TestAGuardThatIsKilledIsReplacedAndEndsWithUs(t *testing.T) {
	f := ready(t, Options{Guard: []string{os.Args[0], guardArg}}, child("one", "legacy"))
	pid := func() int {
		g := f.spawner.guard
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.pipe == nil {
			return 0
		}
		return g.cmd.Process.Pid
	}
	first := pid()
	_ = syscall.Kill(first, syscall.SIGKILL)
	eventually(t, "there is another guard", func() bool { p := pid(); return p != 0 && p != first })
	second := pid()
	f.Close(t.Context())
	if s := procState(second); s != "" {
		t.Errorf("the guard is still there (%s)", s)
	}
}

func TestStderrIsLoggedBoundedEscapedAndWithoutSecrets(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := newVoice(slog.New(slog.NewJSONHandler(&log, nil)), &mask{})
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
