package main

import "golang.org/x/sys/unix"

// hideFromOtherProcesses keeps the servers that we start from reading our environment and memory below
// /proc, where secrets are. They run as the same user.
func hideFromOtherProcesses() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
