//go:build race

package served_test

import (
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
)

func init() {
	chaosDeadline, chaosSlack = 3*time.Second, 10*time.Second
	chaosTools = []string{fault.Stateful, fault.Idempotent}
}
