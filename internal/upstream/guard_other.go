//go:build !linux

package upstream

import "syscall"

// adoptOrphans has no equal here.
func adoptOrphans() error { return nil }

// wait returns when the program has ended, and says how.
func (w *ward) wait() (how string) {
	_ = w.cmd.Wait() // how it ended is in cmd.ProcessState
	return w.cmd.ProcessState.String()
}

// sweep ends what the program has left behind in its group.
func (w *ward) sweep() {
	w.kill()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// kill kills the program's group.
func (w *ward) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
	}
}
