//go:build !linux

package heap

// unmapProgram does nothing: only Linux lets a process remove pages of its program from its memory.
func unmapProgram() {}
