package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// watchNull watches os.DevNull until ctx ends, or until isDevice says that it is no device any
// more. Then the report says when, and which tests were running. A program that runs as root can
// replace the device: `git config` does, when its file is the device. Tests that read it later
// fail, far from the cause.
func (r *report) watchNull(ctx context.Context, isDevice func() bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for isDevice() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var running []string
	for k := range r.tests {
		if k.name != "" {
			running = append(running, k.name)
		}
	}
	slices.Sort(running)
	r.nullLost = fmt.Sprintf("%s is no device since %s. Something replaced it while these tests ran: %s", os.DevNull, time.Now().UTC().Format(time.TimeOnly), strings.Join(running, ", "))
	fmt.Fprintln(r.out, r.nullLost)
}

// isNullDevice reports whether os.DevNull is a device.
func isNullDevice() bool {
	info, err := os.Lstat(os.DevNull)
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
