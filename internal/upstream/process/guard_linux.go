package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// onOtherThread runs f on a thread of its own, which is not the first one of this process. The thread ends with f.
func onOtherThread(f func()) {
	runtime.LockOSThread() // never unlocked
	if unix.Gettid() == os.Getpid() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			onOtherThread(f)
		}()
		<-done
		return
	}
	f()
}

// adoptOrphans makes this process the parent of all descendants that lose theirs.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// wait returns when the program has ended, and says how.
func (w *guardedProgram) wait() (how string) {
	for how == "" {
		// Wait first and reap then: until it is reaped, no other process gets its number.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err.Error()
		}
		how, _ = w.reap()
	}
	return how
}

// sweep ends the processes that the program left behind.
func (w *guardedProgram) sweep() {
	for end := time.Now().Add(sweepTimeout); time.Now().Before(end); time.Sleep(sweepEvery) {
		if _, more := w.reap(); !more {
			return
		}
		w.kill()
	}
}

// reap reaps the children that have ended. how says how the program ended, if it was one of them.
// more says whether there are more children.
func (w *guardedProgram) reap() (how string, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return how, false
		case pid == 0:
			return how, true
		case pid == w.cmd.Process.Pid:
			w.ended = true
			how = exitStatusText(syscall.WaitStatus(status))
		}
	}
}

// exitStatusText says how a process ended, in the words of os.ProcessState.
func exitStatusText(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal: " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// kill kills our children. Their children then become ours and must be killed too. So the caller
// repeats kill until none is left.
func (w *guardedProgram) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	self := strconv.Itoa(os.Getpid())
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The file is "pid (name) state parent …", and name may contain anything.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && len(fields) > 1 && fields[1] == self {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
