//go:build !linux

package served_test

import "testing"

// awaitKept does nothing: idle connections are kept on Linux only.
func awaitKept(*testing.T, int) {}
