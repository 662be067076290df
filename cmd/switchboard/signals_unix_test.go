//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"
)

func TestTheSecondSignalIsNoticedHoweverSoonItComes(t *testing.T) {
	for range 200 {
		ctx, stop := untilSignal(t.Context())
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} { // two of one kind, pending at once, are one
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				t.Fatal(err)
			}
		}
		<-ctx.Done()
		<-hurry(ctx)
		stop()
	}
}
