package served_test

import (
	"testing"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// awaitKept waits until the process keeps an idle connection without a goroutine.
func awaitKept(t *testing.T, pid int) {
	t.Helper()
	wait.Until(t, "a kept connection", func() bool { return keptConnections(t, pid) > 0 })
}
