//go:build !linux

package dial

import "testing"

// blackHole ends the test: only Linux drops connections to a full queue.
func blackHole(t *testing.T, _ int) {
	t.Helper()
	t.Skip("only Linux drops connections to a full queue")
}
