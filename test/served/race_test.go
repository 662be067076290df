//go:build race

package served_test

import (
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
)

// The binary is tested with the race detector when the tests are, but for what scripts/test
// leaves out.
func init() {
	buildFlags = []string{"-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc=-race=false"}
	chaosDeadline, chaosSlack = 3*time.Second, 10*time.Second
	chaosTools = []string{fault.Stateful, fault.Idempotent}
}
