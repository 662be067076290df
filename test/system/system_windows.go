// Package system does for tests what each operating system does in its own way: processes in groups, named pipes, limits.
package system

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

// ProcessorTime returns the processor time that this process has used. Other work on the machine changes it less than the time by the clock.
func ProcessorTime() time.Duration {
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user); err != nil {
		panic("the processor time of this process: " + err.Error())
	}
	units := func(t windows.Filetime) time.Duration { // of 100 ns
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
	}
	return units(kernel) + units(user)
}

// MakePipe makes a named pipe at the path. It skips the test on a system without them.
func MakePipe(t *testing.T, _ string) { t.Skip("skipped: Windows has no named pipes in folders") }

// LimitFileSize lets this process write no file beyond size bytes, until restore is called. Windows has no such limit.
func LimitFileSize(uint64) (restore func() error, err error) { return nil, errors.ErrUnsupported }

// SetUser makes this process run as another user, for good. Windows cannot do that.
func SetUser(int) error { return errors.ErrUnsupported }

// LeadGroup lets the process of cmd lead a process group of its own.
func LeadGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// LeadSession is LeadGroup: Windows has no sessions of this kind.
func LeadSession(cmd *exec.Cmd) { LeadGroup(cmd) }

// KillGroup kills the process pid, and reports whether there was one. What it has started stays.
func KillGroup(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Kill() == nil
}

// Kill kills a process.
func Kill(pid int) { KillGroup(pid) }

// Pause stops a process until Resume. Windows cannot do that.
func Pause(*os.Process) error { return errors.ErrUnsupported }

// Resume ends Pause.
func Resume(*os.Process) error { return errors.ErrUnsupported }

// LeadsGroup reports whether this process leads a process group. Windows does not say.
func LeadsGroup() bool { return true }

// IsNonblocking reports whether a file of this process does not block. Windows does not say.
func IsNonblocking(int) bool { return false }

// KeepOnExec lets child processes of this process inherit the file.
func KeepOnExec(f *os.File) error {
	return windows.SetHandleInformation(windows.Handle(f.Fd()), windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT)
}
