//go:build !race

package frame

// MaxUnpooled is the largest buffer, in bytes, that is just allocated and not lent.
const MaxUnpooled = 512

// overwrite does nothing: only builds with the race detector overwrite what is given back.
func overwrite([]byte) {}
