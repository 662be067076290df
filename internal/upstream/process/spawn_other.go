//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"

	"github.com/summit-switchboard/switchboard/internal/wall"
)

// childSysProcAttr puts a child process into a group of its own. This system has no parent-death
// signal, so only a guard ends the child when we are killed.
func childSysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// waitWithoutReaping does nothing: the caller reaps the process at once.
func waitWithoutReaping(int) {}

// setCloseOnExec does nothing. Go sets the flag on the files that it opens. Only Linux has a cheap
// way to find files that we inherited.
func setCloseOnExec() error { return nil }

// HasUnread returns false. Only Linux tells the writer of a pipe how much is unread.
func (p *Process) HasUnread() bool { return false }

// prepareNetwork does nothing: no program has a network of its own here.
func prepareNetwork(*exec.Cmd, *wall.Order) {}

// explainStart returns the error as it is.
func explainStart(_ *exec.Cmd, err error) error { return err }
