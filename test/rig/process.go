package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Children returns the process ids of pid's descendants.
func Children(pid int) (all []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range list {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if len(f) > 1 && f[1] == strconv.Itoa(pid) {
			all = append(append(all, child), Children(child)...)
		}
	}
	return all
}

// Alive reports whether the process runs.
func Alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// Stopped reports whether a signal has stopped all threads of the process.
func Stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		if text, err := os.ReadFile(file); err == nil && !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return len(threads) > 0
}
