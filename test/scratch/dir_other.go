//go:build !linux

package scratch

// Dir creates no folder, and returns "".
func Dir() string { return "" }
