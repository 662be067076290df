package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the time that the process has spent on processors, all its
// threads together, to the nanosecond.
func cpu(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of the kernel: what was scheduled, not what ticks saw
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory returns how many bytes of the process and its children are resident, and how many of these are their
// own: not pages of a file, which the system can drop and read again.
func memory(pid int) (resident, own int64, err error) {
	resident, own, _, err = vitals(pid)
	if err == nil && resident == 0 {
		err = fmt.Errorf("process %d has no memory", pid)
	}
	if err != nil {
		return 0, 0, err
	}
	for _, child := range children(pid) {
		if r, o, err := memory(child); err == nil { // else it has ended
			resident, own = resident+r, own+o
		}
	}
	return resident, own, nil
}

// vitals returns how many bytes of the process alone are resident, how many of these are its own, and how many
// threads it has.
func vitals(pid int) (resident, own int64, threads int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 {
			continue
		}
		switch name {
		case "VmRSS":
			resident, err = strconv.ParseInt(f[0], 10, 64)
		case "RssAnon":
			own, err = strconv.ParseInt(f[0], 10, 64)
		case "Threads":
			threads, err = strconv.Atoi(f[0])
		}
		if err != nil {
			return 0, 0, 0, err
		}
	}
	return resident << 10, own << 10, threads, nil
}

// dropCached removes the file from the system's cache, so that the next start reads it from the disk, as after a reboot. How
// much of a program is resident depends on the pieces in which the cache has it: the linker leaves pieces of 2 MiB, and
// Linux 6.18 maps a piece whole. Pages that a process uses stay.
func dropCached(path string) error {
	f, err := os.Open(path) //nolint:gosec // the program that is measured
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := f.Sync(); err != nil { // pages that are not written yet would stay
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// children returns the processes that the process has started.
func children(pid int) (all []int) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil // it has ended
	}
	for _, t := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for f := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// below returns how many processes descend from the process.
func below(pid int) (n int) {
	for _, child := range children(pid) {
		n += 1 + below(child)
	}
	return n
}

// kill ends the process at once.
func kill(pid int) error {
	err := syscall.Kill(pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// hang has the process do nothing any more, and wake has it go on.
func hang(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

func wake(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

// dieWithUs has the process end when this one does, however that happens; also
// where it has been stopped.
func dieWithUs(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// syncData writes the file's data to the disk, and the size and blocks that a reader needs.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
