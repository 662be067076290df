package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithUs has what cmd starts killed when the thread that starts it ends. It is the
// first of a group of its own.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
