//go:build !linux

package main

// hideFromOtherProcesses does nothing: this system has no /proc.
func hideFromOtherProcesses() error { return nil }
