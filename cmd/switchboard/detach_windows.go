package main

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached starts a process without the console of this one. It has not been run on Windows.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}
