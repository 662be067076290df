package main

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/law"
)

// LK-01: what is not dumpable cannot be read below /proc by another process of
// the same user. (root reads everything, and tests may run as root.)
func TestServersCannotReadOurEnvironment(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	if err := harden(); err != nil {
		t.Fatal(err)
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || on != 0 {
		t.Errorf("dumpable = %d, %v", on, err)
	}
}
