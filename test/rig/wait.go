package rig

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// ReasonUnless returns "" if ok, else why: a result for Eventually.
func ReasonUnless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

// Eventually waits until f returns "". After wait.Bound the test is late, and reports the last result of f.
func Eventually(t *testing.T, what string, f func() string) {
	t.Helper()
	wait.For(t, wait.Bound, what, func() error {
		if why := f(); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// AwaitCalls waits until the file marks has n executed calls.
func AwaitCalls(t *testing.T, marks string, n int) {
	t.Helper()
	Eventually(t, "all calls have arrived", func() string {
		text, _ := os.ReadFile(marks)
		if got := strings.Count(string(text), "\n"); got != n {
			return fmt.Sprint(got, " have")
		}
		return ""
	})
}
