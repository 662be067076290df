package main

import (
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

// memory returns how many bytes of the process and its children are resident.
func memory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0, fmt.Errorf("process %d has no memory", pid)
	}
	kib, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return 0, err
	}
	sum := kib << 10
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	for _, t := range tasks {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for f := range strings.FieldsSeq(string(children)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return 0, err
			}
			m, err := memory(child)
			if err != nil {
				continue // the child has ended
			}
			sum += m
		}
	}
	return sum, nil
}

// dieWithUs has the process end when this one does, however that happens.
func dieWithUs(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
