//go:build race

package conformance_test

// The switchboard has the race detector when the tests have it.
func init() { buildFlags = []string{"-race"} }
