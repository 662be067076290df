//go:build !linux

package upstream

import "syscall"

// childAttr puts a child in a group of its own. Without a parent-death signal,
// only the guard ends it when we are killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// waitUnreaped has no equal here: the child is waited for at once.
func waitUnreaped(int) {}

// closeOnExec has nothing to do: Go opens files so, and systems other than
// Linux have no cheap way to find those that our parent left to us.
func closeOnExec() error { return nil }

// hasUnread reports false: only Linux tells the writer of a pipe what is unread.
func (p *process) hasUnread() bool { return false }
