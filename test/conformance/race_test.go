//go:build race

package conformance_test

// The switchboard has the race detector when the tests have it, but for what scripts/test
// leaves out.
func init() {
	buildFlags = []string{"-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc=-race=false"}
}
