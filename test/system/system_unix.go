//go:build unix

// Package system does for tests what each operating system does in its own way: processes in groups, named pipes, limits.
package system

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime returns the processor time that this process has used. Other work on the machine changes it less than the time by the clock.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("the processor time of this process: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// MakePipe makes a named pipe at the path. It skips the test on a system without them.
func MakePipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// LimitFileSize lets this process write no file beyond size bytes, until restore is called.
func LimitFileSize(size uint64) (restore func() error, err error) {
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		return nil, err
	}
	limit := before
	setLimit(&limit, size)
	return func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) }, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// SetUser makes this process run as another user, for good.
func SetUser(uid int) error { return syscall.Setuid(uid) }

// LeadGroup lets the process of cmd lead a process group of its own.
func LeadGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// LeadSession lets the process of cmd lead a session of its own.
func LeadSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// KillGroup kills the process group that pid leads, and reports whether there was one.
func KillGroup(pid int) bool { return syscall.Kill(-pid, syscall.SIGKILL) == nil }

// Kill kills a process.
func Kill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// Pause stops a process until Resume.
func Pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume ends Pause.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// LeadsGroup reports whether this process leads a process group.
func LeadsGroup() bool {
	group, err := syscall.Getpgid(0)
	return err == nil && group == os.Getpid()
}

// IsNonblocking reports whether a file of this process does not block.
func IsNonblocking(file int) bool {
	flags, err := unix.FcntlInt(uintptr(file), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_NONBLOCK != 0
}

// KeepOnExec lets child processes of this process inherit the file.
func KeepOnExec(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0)
	return err
}
