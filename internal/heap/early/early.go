// Package early keeps the garbage collector away from the start of the program.
//
// Libraries read large tables before main begins, and a start makes much garbage. With the usual target the collector
// runs three times meanwhile, and takes a tenth of the start's processor time. With this package it does not run before
// the heap has first: a short command ends before, and a server that starts is collected when it frees memory (package heap).
// Only package main imports it.
package early

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// first is the size of the heap, in percent of Go's smallest target of 4 MiB, at which the first collection begins.
const first = 800

// before is the target that the environment asks for, or Go's own.
var before = debug.SetGCPercent(first)

// End sets the target that the environment asks for. The first collection calls it, so that a large heap does not grow
// to a multiple of what it needs. A second call does nothing.
var End = sync.OnceFunc(func() { debug.SetGCPercent(before) })

func init() {
	if before < 0 || before > first { // GOGC asks for less work
		End()
		return
	}
	runtime.SetFinalizer(&struct{ _ *byte }{}, func(any) { go End() }) // other finalizers must not wait for the collector
}
