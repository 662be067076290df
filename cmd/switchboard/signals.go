package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// secondSignal is the key of the channel in a context from untilSignal.
type secondSignal struct{}

// untilSignal returns a context that ends at the first signal that asks this process to end. The signals are counted in one
// place, so that the second one is noticed however soon it comes. stop gives the signals back.
func untilSignal(ctx context.Context) (_ context.Context, stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	second, stopped := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithValue(ctx, secondSignal{}, (<-chan struct{})(second)))
	go func() {
		for _, then := range []func(){cancel, func() { close(second) }} {
			select {
			case <-signals:
				then()
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		cancel()
	}
}

// hurry returns a channel that is closed at the second signal. It is nil if ctx is not from untilSignal.
func hurry(ctx context.Context) <-chan struct{} {
	second, _ := ctx.Value(secondSignal{}).(<-chan struct{})
	return second
}
