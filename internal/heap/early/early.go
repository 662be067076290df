// Package early keeps the garbage collector away from the start of the program.
//
// Libraries read large tables before main begins, and a start makes much garbage. With the usual target the collector
// runs three times meanwhile, and takes a tenth of the start's processor time. With this package it waits for a heap of
// 32 MiB or for endDelay: a short command ends before, and a server that starts is collected when it frees memory (package heap).
// Only package main imports it.
package early

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// first is the target until the first collection. It then begins when the heap has 32 MiB: Go's smallest target is 4 MiB for 100 percent.
const first = 800

// endDelay is how long a start lasts at most.
const endDelay = 2 * time.Second

// Usual is the target of the environment, or Go's own.
var Usual = debug.SetGCPercent(first)

// End sets the usual target. The first collection calls it: else a large heap would grow to nine times its live part. A
// second call does nothing.
var End = sync.OnceFunc(func() { debug.SetGCPercent(Usual) })

// ending calls End; nil if that is not needed.
var ending *time.Timer

func init() {
	if Usual < 0 || Usual > first { // GOGC asks for less work
		End()
		return
	}
	runtime.SetFinalizer(&struct{ _ *byte }{}, func(any) { go End() }) // other finalizers must not wait for the collector
	ending = time.AfterFunc(endDelay, End)
}
