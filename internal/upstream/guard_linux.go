package upstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes those below us that lose their parent our children.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// wait returns when the program has ended, and says how.
func (w *ward) wait() (how string) {
	for how == "" {
		// First look, then reap: until then no other has the number.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err.Error()
		}
		how, _ = w.reap()
	}
	return how
}

// sweep ends what the program has left behind.
func (w *ward) sweep() {
	for end := time.Now().Add(sweepPatience); time.Now().Before(end); time.Sleep(sweepEvery) {
		if _, more := w.reap(); !more {
			return
		}
		w.kill()
	}
}

// reap waits for those children that have ended. It says how the program did,
// if it was one of them, and whether there are more children.
func (w *ward) reap() (how string, more bool) {
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
			how = ending(syscall.WaitStatus(status))
		}
	}
}

// ending says how a process ended, as os.ProcessState does.
func ending(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal: " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// kill kills our children. Theirs are ours then, and must be killed too: the
// program is not gone before there are no more.
func (w *ward) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	self := strconv.Itoa(os.Getpid())
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// "pid (name) state parent …", where the name may hold anything.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && len(fields) > 1 && fields[1] == self {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
