//go:build !linux

package doctor

// listenerName returns "": other systems do not say without a program of theirs who listens at an address.
func listenerName(string) string { return "" }
