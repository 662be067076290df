package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How often a guard looks at what its program uses. A look at everything that the program has started reads a few files for each process. So most
// looks only ask for the number of processes of the whole machine, and for the memory of the program itself.
const (
	lookEvery = time.Second
	lookBelow = 10 // looks between two looks at all processes
	manyMore  = 32 // so many more processes on the machine are a reason to look at once
)

// watchLimits ends the program and all that it has started when they use more than their limits.
func (w *guardedProgram) watchLimits() {
	if w.limits.Memory == 0 && w.limits.Processes == 0 {
		return
	}
	var last uint16
	for n := 0; ; n++ {
		time.Sleep(lookEvery)
		var s unix.Sysinfo_t
		_ = unix.Sysinfo(&s) // zero is no reason to look
		near := w.limits.Memory > 0 && memoryOf(w.cmd.Process.Pid) > w.limits.Memory/4
		if n%lookBelow != 0 && !near && s.Procs < last+manyMore {
			continue
		}
		last = s.Procs
		if why := w.overLimit(); why != "" {
			w.mu.Lock()
			w.over = why
			w.mu.Unlock()
			for end := time.Now().Add(sweepTimeout); time.Now().Before(end); time.Sleep(sweepEvery) {
				w.signalGroup(unix.SIGKILL) // all at once, before they start more
				w.kill()
			}
			return
		}
	}
}

// overLimit says which limit the program and its descendants exceed, or returns "".
func (w *guardedProgram) overLimit() string {
	processes, memory := 0, int64(0)
	for next := []int{os.Getpid()}; len(next) > 0; next = next[1:] {
		lists, _ := filepath.Glob("/proc/" + strconv.Itoa(next[0]) + "/task/*/children")
		for _, file := range lists {
			list, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			for child := range strings.FieldsSeq(string(list)) {
				pid, err := strconv.Atoi(child)
				if err != nil {
					continue
				}
				processes++
				if w.limits.Processes > 0 && processes > w.limits.Processes {
					return fmt.Sprintf("it ran more than %d processes", w.limits.Processes)
				}
				memory += memoryOf(pid)
				next = append(next, pid)
			}
		}
	}
	if w.limits.Memory > 0 && memory > w.limits.Memory {
		return fmt.Sprintf("it used more than %d MiB of memory", w.limits.Memory>>20)
	}
	return ""
}

// memoryOf returns the memory that a process has for itself: what is resident, without what it shares with files.
func memoryOf(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(fields[1], 10, 64)
	shared, _ := strconv.ParseInt(fields[2], 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}
