package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

// dieWithUs has what cmd starts killed when the thread that starts it ends. It is the
// first of a group of its own.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// inMemory makes a folder of which nothing waits for a disk; "" where there is not much room
// for one. Its files outlive the processes that write them, and not the machine.
func inMemory() string {
	const memory, enough = "/dev/shm", 1 << 30
	var room syscall.Statfs_t
	if err := syscall.Statfs(memory, &room); err != nil || room.Bavail*uint64(room.Bsize) < enough {
		return ""
	}
	dir, err := os.MkdirTemp(memory, "redistest")
	if err != nil {
		return ""
	}
	return dir
}
