//go:build unix && !linux

package process

import (
	"os"
	"syscall"

	"github.com/summit-switchboard/switchboard/internal/wall"
)

// onOtherThread runs f. There are no walls here, which alone need a thread.
func onOtherThread(f func()) { f() }

// adoptOrphans does nothing on this system.
func adoptOrphans() error { return nil }

// launch starts the program, and says which walls are missing: all of them.
func (w *guardedProgram) launch(o *wall.Order, _ [3]*os.File) (walls wall.InEffect, err error) {
	if walls, err = o.Raise(); err == nil {
		err = w.cmd.Start()
	}
	return walls, err
}

// watchLimits does nothing: there are no limits here.
func (w *guardedProgram) watchLimits() {}

// wait returns when the program has ended, and says how.
func (w *guardedProgram) wait() (how string) {
	_ = w.cmd.Wait() // the result is in cmd.ProcessState
	return w.cmd.ProcessState.String()
}

// sweep ends the processes that the program left in its group.
func (w *guardedProgram) sweep() {
	w.kill()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// kill kills the program's process group.
func (w *guardedProgram) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
	}
}
