//go:build !linux

package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithUs only makes what cmd starts the first of a group of its own: here it outlives a
// test that is killed.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
