package main

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/law"
)

// LK-01: other processes of the same user cannot read a process below /proc that is not dumpable. The test
// checks the flag only, because root can read every process and tests may run as root.
func TestServersCannotReadOurEnvironment(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	if err := hideFromOtherProcesses(); err != nil {
		t.Fatal(err)
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || on != 0 {
		t.Errorf("dumpable = %d, %v", on, err)
	}
}
