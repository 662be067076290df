//go:build unix

package annotate_test

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the CPU time of this process.
func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
