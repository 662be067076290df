//go:build race

package served_test

// The binary is tested with the race detector when the tests are.
func init() { buildFlags = []string{"-race"} }
