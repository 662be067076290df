//go:build !linux

package redistest

import (
	"os/exec"

	"github.com/summit-switchboard/switchboard/test/system"
)

// dieWithUs only makes the process of cmd the leader of a group. On this system the process survives a test that is killed.
func dieWithUs(cmd *exec.Cmd) { system.LeadGroup(cmd) }
