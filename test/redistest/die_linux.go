package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the system kill the process of cmd when the thread that starts it ends. The process leads a group of its own.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
