//go:build !linux

package scratch

// Dir makes no folder, and returns "".
func Dir() string { return "" }
